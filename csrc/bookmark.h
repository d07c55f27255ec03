/* bookmark: where a cursor stands, written down, and where the records lie that it comes by.
 *
 * A bookmark names pages, so another process with the same file can go on from it without a
 * search:
 *
 *   u8 levels of the tree of keys, u8 levels of the tree of the key's values (0: it has none)
 *   a step per level, from each root to its leaf: u64 page number, u32 index on that page
 *
 * little-endian. A bookmark that is read back is held against the file: each step must lead to the next.
 *
 * Source: LMDBIO (ACM TOPC 2019), portable cursor representation.
 */
#ifndef LIO_BOOKMARK_H
#define LIO_BOOKMARK_H

#include "cursor.h"

enum { LIO_BOOKMARK_BYTES_MAX = 2 + 2 * 32 * 12 }; /* two trees of LIO_DEPTH_MAX levels */

/* Writes a bookmark of `cursor` into `out` (LIO_BOOKMARK_BYTES_MAX bytes). LIO_ERR_UNPLACED. */
int lio_bookmark_write(lio_cursor *cursor, uint8_t *out, size_t *size, lio_error *error);

/* Puts `cursor` on a bookmark of its database. LIO_ERR_CORRUPT: there is no such bookmark; the cursor
 * stands nowhere then. */
int lio_bookmark_go(lio_cursor *cursor, const uint8_t *bookmark, size_t size, lio_error *error);

/* Moves `cursor` over the next `count` records (from the first, if it stands nowhere) and says
 * where their values lie: `out`, unless NULL. `*made`: how many there were; fewer before an error
 * or, with LIO_NOTFOUND, the end. It stands on the last of them. */
int lio_bookmark_walk(lio_cursor *cursor, size_t count, lio_extent *out, size_t *made,
                      lio_error *error);

#endif
