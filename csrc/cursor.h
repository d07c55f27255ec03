/* cursor: a position in one database, moved as LMDB moves it.
 *
 *   lio_cursor (main tree) --- a position among the keys
 *        |
 *        +-- sub tree: the duplicates of the current key
 *              in the node itself (a sub-page), or in a tree of their own
 *
 * Moves have LMDB's semantics down to what a failed move leaves behind: a cursor is placed
 * or not, and may stand at the end (EOF) with its inner position alive.
 *
 * Cursors of one lio_pages share its lock: they may be used by several threads, one call at
 * a time. The memory that an item points to is safe only while the lock is held (lio_pages_lock) or
 * while no other thread uses the same cursor.
 */
#ifndef LIO_CURSOR_H
#define LIO_CURSOR_H

#include <stddef.h>

#include "extent.h"
#include "format.h"
#include "pages.h"
#include "readahead.h"
#include "tree.h"

typedef struct lio_cursor lio_cursor;

enum lio_move {
    LIO_MOVE_FIRST,
    LIO_MOVE_FIRST_DUP,
    LIO_MOVE_LAST,
    LIO_MOVE_LAST_DUP,
    LIO_MOVE_NEXT,
    LIO_MOVE_NEXT_DUP,
    LIO_MOVE_NEXT_NODUP,
    LIO_MOVE_PREV,
    LIO_MOVE_PREV_DUP,
    LIO_MOVE_PREV_NODUP,
    LIO_MOVE_CURRENT,
    LIO_MOVE_MULTIPLE,      /* DUPFIXED: all values of the current page of duplicates */
    LIO_MOVE_NEXT_MULTIPLE, /* DUPFIXED: those of the next one                        */
    LIO_MOVE_SET,           /* these take a key: exact                                */
    LIO_MOVE_SET_RANGE,     /* the first key not below                                */
    LIO_MOVE_BOTH,          /* these take a key and a value: both exact               */
    LIO_MOVE_BOTH_RANGE     /* exact key, first duplicate not below                   */
};

/* One more code of lio_cursor_move and lio_cursor_count: the move needs a placed cursor. */
enum { LIO_ERR_UNPLACED = 64 };

/* Where a move ended. Borrowed until the next call on the cursor. */
typedef struct {
    const uint8_t *key;
    const uint8_t *data; /* NULL: the value lies in overflow pages, at `where` */
    uint64_t key_size;
    uint64_t data_size;
    lio_extent where;    /* of the value, when data is NULL                   */
    uint32_t node_flags; /* enum lio_node_flag, of the key's node             */
} lio_item;

int lio_cursor_open(lio_pages *pages, const lio_db *db, lio_cursor **out, lio_error *error);

/* A second cursor at the same place. */
int lio_cursor_copy(lio_cursor *cursor, lio_cursor **out, lio_error *error);
void lio_cursor_close(lio_cursor *cursor);
lio_pages *lio_cursor_pages(lio_cursor *cursor);

/* Moves; lio_cursor_item has the item. LIO_NOTFOUND: no such place. LIO_ERR_UNPLACED;
 * LIO_ERR_UNSUPPORTED: the move is for duplicates and the database has none; LIO_ERR_ARGUMENT: an
 * empty key. */
int lio_cursor_move(lio_cursor *cursor, uint32_t move, const uint8_t *key, size_t key_size,
                    const uint8_t *data, size_t data_size, lio_error *error);

/* The item that the last move returned; NULL when it failed. Borrowed until the next call. */
const lio_item *lio_cursor_item(const lio_cursor *cursor);

/* Where it stands: the number of its leaf, and the node on it. LIO_ERR_UNPLACED. */
int lio_cursor_place(lio_cursor *cursor, uint64_t *pgno, uint32_t *index, lio_error *error);

/* Number of values of the current key. */
int lio_cursor_count(lio_cursor *cursor, uint64_t *out, lio_error *error);

/* cdef: skip */
/* Reads up to `pages_max` leaves ahead of forward moves, in growing batches that are under
 * way while earlier ones are used; 0 stops. `past`
 * (NULL: none) reads large batches; it must live until the reading ahead stops. */
void lio_cursor_read_ahead(lio_cursor *cursor, uint32_t pages_max, lio_bypass *past);

/* lio_cursor_move, for a caller who holds the lock. */
int lio_cursor_move_locked(lio_cursor *cursor, uint32_t move, const uint8_t *key, size_t key_size,
                           const uint8_t *data, size_t data_size, lio_error *error);

/* The trees that it stands in: of keys and, in a database with duplicates (else NULL), of the
 * current key's values. The caller holds the lock. */
void lio_cursor_trees(lio_cursor *cursor, lio_tree **main, lio_tree **sub);

/* Stands at the end of a path, and among the key's duplicates at the end of the one below. */
int lio_cursor_go(lio_cursor *cursor, const lio_step *steps, uint32_t count, const lio_step *below,
                  uint32_t below_count, lio_error *error);

/* Tells places of one database apart: pages and the nodes on them, of the key and, where it has a
 * page or tree of duplicates, of its value. The caller holds the lock. */
typedef struct {
    uint64_t key, value;
} lio_spot;

lio_spot lio_cursor_spot(const lio_cursor *cursor);

/* The leaf that the key is on. */
uint64_t lio_spot_page(lio_spot spot);

/* Puts `cursor`, which must not read ahead, where `from` is, which is closed. */
void lio_cursor_become(lio_cursor *cursor, lio_cursor *from);
/* cdef: resume */

#endif
