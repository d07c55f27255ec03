/* locate: finds where records lie, by walking trees level by level.
 *
 * A walk hands out the pages of a database, or of many trees side by side, in chunks. Each level
 * keeps a chunk of at most `chunk_pages` pages whose reads are all in flight together; when a
 * level runs dry it takes the children named by the next chunk of the level above. Memory is
 * therefore depth * chunk_pages * page size, whatever the size of the file, and the pages of one
 * level always come in key order, tree by tree. Trees of unequal depth stand on one floor:
 *
 *   level 0          the root of the deepest
 *   ...              branch pages, roots of others
 *   level depth - 1  leaf pages
 *
 * Cycles cannot trap it: levels are counted, each page is visited once (a bitmap over the
 * file's pages says so), and the totals must equal the database record's.
 */
#ifndef LIO_LOCATE_H
#define LIO_LOCATE_H

#include <stddef.h>

#include "engine.h"
#include "extent.h"
#include "format.h"

typedef struct lio_walk lio_walk;

typedef struct {
    const uint8_t *pages;  /* count * page size bytes, checked; borrowed until the next call */
    const uint64_t *pgnos; /* count page numbers                                          */
    const uint32_t *trees; /* count: which of the walk's trees each is of, not descending */
    uint32_t count;        /* 0: the walk has ended                                       */
    uint32_t level;        /* 0 is the root of the deepest tree                           */
    uint32_t height;       /* above the leaves of its tree; 0: these are leaves           */
} lio_chunk;

/* Reads and parses the meta pages, of which the chosen one is whole, also beside a writer: if
 * `txnid` is given, as long as it is the newest (lio_meta_newest, asked afterwards). */
int lio_meta_read(lio_engine *engine, uint64_t txnid, lio_meta *out, lio_error *error);

/* Reads both meta pages as they stand now into `into` (2 * page size bytes, or NULL) and tells
 * the newest transaction (NULL: not asked). Cheap: for asking again whether a snapshot still
 * holds. Pages of a snapshot S are rewritten from S + 3 on, so a reader without a slot may
 * trust what it read while this is at most S + 1. */
int lio_meta_newest(lio_engine *engine, const lio_layout *layout, uint8_t *into, uint64_t *txnid,
                    lio_error *error);

/* Walks the trees of `dbs` (`count` of them), one after the other as far as each level goes,
 * through `engine` (borrowed for the walk's life). `beside`: NULL, or a walk of the same file, to
 * be closed later, none of whose pages may be met again. `chunk_pages`: 1..65536, 0 for the
 * default. The next chunk of leaves is read while this one is used. An empty database ends at once.
 * When a page of a tree's leaves is handed out the totals of all trees before it were right. */
int lio_walk_open(lio_engine *engine, const lio_meta *meta, const lio_db *dbs, uint32_t count,
                  const lio_walk *beside, uint32_t chunk_pages, lio_walk **out, lio_error *error);

/* The next chunk, of whatever level comes next. Waits up to `timeout_ms` (-1: for ever) and
 * returns LIO_PENDING when the pages are still under way. After an error only close is
 * legal. */
int lio_walk_next(lio_walk *walk, int timeout_ms, lio_chunk *out, lio_error *error);
void lio_walk_close(lio_walk *walk);

/* Decodes leaf pages into extents, in key order. `pages`: `count` checked leaf pages.
 * Writes up to `capacity` extents and, when not NULL, the overflow page counts; `*made` is
 * their number. LIO_ERR_ARGUMENT when capacity is too small (ask lio_leaves_entries first). */
int lio_leaves_extents(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                       uint32_t count, lio_extent *out, uint32_t *overflow_pages, size_t capacity,
                       size_t *made, lio_error *error);

/* Steps through the named databases on leaves of the main one. `*page`, `*index` (0, 0 at
 * first) keep the place; `node` borrows from `pages`. LIO_NOTFOUND after the last. */
int lio_leaves_database(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                        uint32_t count, uint32_t *page, uint32_t *index, lio_node *node,
                        lio_db *out, lio_error *error);

/* The number of nodes of `count` checked leaf pages. */
size_t lio_leaves_entries(const lio_layout *layout, const uint8_t *pages, uint32_t count);

#endif
