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
 * A file that was not written in the order of its keys has its records all over it. Such a file is
 * swept, in its own order, as soon as single reads have cost an eighth of that, and the reader of
 * such a record waits for the sweep. A small file is swept at once.
 *
 * Nothing fails here: bytes that cannot be asked for only cost time. One caller at a time.
 */
#ifndef LIO_PREFETCH_H
#define LIO_PREFETCH_H

#include <stddef.h>

#include "engine.h"
#include "extent.h"

typedef struct lio_prefetch lio_prefetch;

/* For an engine that goes through the page cache, borrowed. `file_end`: there is nothing to ask
 * for beyond. `piece`: bytes that one thread asks for at once. `sweep_bytes_max`: no larger file
 * is swept, for which the page cache has no room. NULL: no memory, or another engine. */
lio_prefetch *lio_prefetch_open(lio_engine *engine, uint64_t file_end, uint64_t piece,
                                uint64_t sweep_bytes_max);

/* How records lie in a file that was asked for whole. */
enum {
    LIO_SWEEP_NONE = 0, /* it was not */
    LIO_SWEEP_DENSE,    /* in its order: they come in time */
    LIO_SWEEP_SCATTERED /* all over it: first comes the rest */
};

/* The reader is about to come to some records, in blocks of about `block_bytes`: sweeps the file
 * where that pays. One of the above. */
int lio_prefetch_sweep(lio_prefetch *prefetch, const lio_extent *records, size_t count,
                       uint64_t block_bytes);

/* Waits up to `timeout_ms` until all of the file has been asked for. LIO_PENDING: ask again. */
int lio_prefetch_wait(lio_prefetch *prefetch, int timeout_ms);

/* The reader is about to come to some records, in blocks of about `block_bytes`: has the file
 * there brought to the page cache, and up to `ahead` bytes beyond. 0: they do not lie dense, so
 * prefetching is of no use for them, or it is NULL. */
int lio_prefetch_cover(lio_prefetch *prefetch, const lio_extent *records, size_t count,
                       uint64_t block_bytes, uint64_t ahead);

/* Ends what is under way. NULL is fine. */
void lio_prefetch_close(lio_prefetch *prefetch);

#endif
