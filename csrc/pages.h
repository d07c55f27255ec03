/* pages: the pages of one snapshot, read through an engine and kept in a bounded cache.
 *
 * Branch and leaf pages are checked once, when they enter the cache, and pinned while a tree
 * stands on them. Values in overflow pages are read past the cache, into the caller's memory.
 *
 * Bytes that were read belong to the snapshot only as long as no writer has reused its pages:
 * either a reader slot is held meanwhile, or lio_snapshot_intact is asked afterwards.
 *
 * Everybody who uses a lio_pages shares its lock.
 */
#ifndef LIO_PAGES_H
#define LIO_PAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "engine.h"
#include "extent.h"
#include "format.h"

typedef struct lio_pages lio_pages;

/* A snapshot vouches for the bytes that are read. Several threads may use one. */
typedef struct {
    uint64_t txnid;   /* of the snapshot                                             */
    uint64_t mark;    /* of its meta page (lio_meta_mark)                            */
    uint64_t seen;    /* requests of the engine when it was last found intact, and 1 */
    uint32_t is_held; /* a reader slot keeps its pages from being overwritten        */
} lio_snapshot;

/* The pages of one snapshot. `engine` is borrowed; `cache_bytes` bounds what is kept beside
 * the pages under cursors. */
int lio_pages_open(lio_engine *engine, const lio_layout *layout, uint64_t cache_bytes,
                   lio_pages **out, lio_error *error);

/* Closing with cursors open only marks it: the last cursor frees it. NULL is fine. */
void lio_pages_close(lio_pages *pages);

lio_engine *lio_pages_engine(const lio_pages *pages);

/* Held by every call on a cursor for its duration; recursive, so that a caller can hold it
 * across a move and the use of what the move returned. */
void lio_pages_lock(lio_pages *pages);
void lio_pages_unlock(lio_pages *pages);

/* In a child, before it has a second thread: the lock is free again. The forking thread holds the lock
 * meanwhile, so that the child does not find the pages half changed by another thread. */
void lio_pages_forked(lio_pages *pages);

/* Reads the value at `where` of an item into `into` (`where.length` bytes), and checks the
 * header of its first overflow page. Needs no lock. */
int lio_value_read(lio_pages *pages, const lio_extent *where, uint8_t *into, lio_error *error);

/* Key number `index` of leaf `pgno`, into `into`, which has room for a page. */
int lio_pages_key(lio_pages *pages, uint64_t pgno, uint32_t index, uint8_t *into, uint32_t *size,
                  lio_error *error);

/* Whether what was read up to now belongs to the snapshot, as far as its own meta page tells,
 * which usually does; `anew`: by a look of this call's own, whatever another thread has seen before
 * these reads; `wait`: also if it must be waited for. False: ask the meta pages (lio_meta_newest). */
bool lio_snapshot_intact(lio_snapshot *snapshot, lio_pages *pages, bool anew, bool wait);

/* Something was read past the engine: the snapshot is to be asked anew. */
void lio_snapshot_doubt(lio_snapshot *snapshot);

/* cdef: skip */
/* lio_value_read if it need not wait: LIO_PENDING when it would have to. */
int lio_value_try_read(lio_pages *pages, const lio_extent *where, uint8_t *into, lio_error *error);

/* The value at `where` in the engine's mapping, its header checked; NULL when it has none that
 * reaches so far. Touches the mapping: see engine_mmap.c for what that risks. */
int lio_value_lend(lio_pages *pages, const lio_extent *where, const uint8_t **out,
                   lio_error *error);

/* lio_pages_lock unless another thread holds it; until lio_pages_unlock_tried nothing waits. A
 * page that is neither in this cache nor in the kernel's ends a search with LIO_PENDING: make it
 * again under a lock that was waited for. */
bool lio_pages_try_lock(lio_pages *pages);
void lio_pages_unlock_tried(lio_pages *pages);

typedef struct lio_pin lio_pin; /* a page in the cache, which stays there while pinned */

const lio_layout *lio_pages_layout(const lio_pages *pages);

/* Counts one owner more; each calls lio_pages_close. */
void lio_pages_share(lio_pages *pages);

/* Below, the caller holds the lock. */

/* Pins page `pgno`, of type LIO_P_BRANCH or LIO_P_LEAF and below the layout's page_limit. */
int lio_pages_pin(lio_pages *pages, uint64_t pgno, int type, lio_pin **out, lio_error *error);

/* Checked; borrowed while pinned. */
const uint8_t *lio_pin_page(const lio_pin *pin);

/* Pins once more, and takes one pin off. */
void lio_pin_add(lio_pin *pin);
void lio_pin_drop(lio_pin *pin);

/* Whether the file reaches to the end of the value at `where`: LIO_ERR_SHORT. */
int lio_value_check(lio_pages *pages, const lio_extent *where, lio_error *error);
/* cdef: resume */

#endif
