/* pages: the pages of one snapshot, read through an engine and kept in a bounded cache.
 *
 * Branch and leaf pages are checked once, when they enter the cache, and pinned while a tree
 * stands on them. Values in overflow pages are read past the cache, into the caller's memory.
 *
 * Everybody who uses a lio_pages shares its lock.
 */
#ifndef LIO_PAGES_H
#define LIO_PAGES_H

#include <stddef.h>

#include "engine.h"
#include "extent.h"
#include "format.h"

typedef struct lio_pages lio_pages;

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

/* In a child, before it has a second thread: the lock is free again. Who forks holds the lock
 * meanwhile, so that the child does not find the pages half changed by another thread. */
void lio_pages_forked(lio_pages *pages);

/* Reads the value at `where` of an item into `into` (`where.length` bytes), and checks the
 * header of its first overflow page. */
int lio_value_read(lio_pages *pages, const lio_extent *where, uint8_t *into, lio_error *error);

/* cdef: skip */
typedef struct lio_pin lio_pin; /* a page in the cache, which stays there while pinned */

const lio_layout *lio_pages_layout(const lio_pages *pages);

/* One owner more, who ends with lio_pages_close. */
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
