/* prefetch: brings a part of a file to the page cache before its readers ask for it.
 *
 *   ... |  used  |  asked for, in the order of the file  | ...
 *                                                        `to`
 *
 * Records that follow each other by key lie mostly one after another, but with pages of the tree
 * between them, and forth and back where transactions took the pages of others. Asked for one by
 * one each jump costs a server a seek. So the file around them is asked for whole, in order, as
 * long as at least half of it is used.
 *
 * Nothing waits for it, and what cannot be asked for only costs time. One caller at a time.
 */
#ifndef LIO_PREFETCH_H
#define LIO_PREFETCH_H

#include <stddef.h>

#include "engine.h"
#include "extent.h"

typedef struct lio_prefetch lio_prefetch;

/* For an engine that goes through the page cache, borrowed. `file_end`: there is nothing to ask
 * for beyond. `piece`: bytes that one thread asks for at once. NULL: no memory, or another
 * engine. */
lio_prefetch *lio_prefetch_open(lio_engine *engine, uint64_t file_end, uint64_t piece);

/* The reader is about to come to some records, in blocks of about `block_bytes`: has the file
 * there brought to the page cache, and up to `ahead` bytes beyond. 0: they do not lie dense, so
 * prefetching is of no use for them, or it is NULL. */
int lio_prefetch_cover(lio_prefetch *prefetch, const lio_extent *records, size_t count,
                       uint64_t block_bytes, uint64_t ahead);

/* Ends what is under way. NULL is fine. */
void lio_prefetch_close(lio_prefetch *prefetch);

#endif
