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
 * swept, in its own order, as soon as single reads have cost a small part of that, and the reader of
 * such a record waits for the sweep. A small file is swept at once.
 *
 * A disk of this machine is asked by one stream: the kernel then reads ahead for it in large
 * requests, which get all that the disk gives, at a third of what many small ones cost. Readers stay
 * behind it, for a page that is there before it comes would break them into small ones. Other file
 * systems take many small requests at a time.
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
 * for beyond. `piece`: bytes that one thread asks for at once; 0: one stream asks for all.
 * `sweep_bytes_max`: no larger file is swept, nor streamed, for which the page cache has no room. `*out` is
 * NULL for such a stream, without memory, and for another engine. */
void lio_prefetch_open(lio_engine *engine, uint64_t file_end, uint64_t piece,
                       uint64_t sweep_bytes_max, lio_prefetch **out);

/* The reader is about to come to some records, in blocks of about `block_bytes`: sweeps the file where
 * that pays. `awaited`: the part that the reader is to wait for. False: the file is not swept, or
 * `prefetch` is NULL. */
bool lio_prefetch_sweep(lio_prefetch *prefetch, const lio_extent *records, size_t count,
                        uint64_t block_bytes, lio_extent *awaited);

/* Sweeps the file whatever its readers want, or goes on with that. How many bytes of it have not come yet;
 * UINT64_MAX: that is of no use here, or it is NULL. */
uint64_t lio_prefetch_sweep_all(lio_prefetch *prefetch);

/* Bytes that were asked for so far; 0: it is NULL. */
uint64_t lio_prefetch_asked(const lio_prefetch *prefetch);

/* The same for a file that is not: has it brought there around the records, and up to `ahead` bytes
 * beyond. False: they do not lie dense, so that is of no use for them, or it is NULL. */
bool lio_prefetch_cover(lio_prefetch *prefetch, const lio_extent *records, size_t count,
                        uint64_t block_bytes, uint64_t ahead, lio_extent *awaited);

/* Has the kernel told of some records that lie anywhere, those near each other at once, by the threads of
 * `engine`. A new ticket that nobody need wait for; NULL where that is not possible. */
lio_ticket *lio_prefetch_hint(lio_engine *engine, const lio_extent *records, size_t count);

/* Waits up to `timeout_ms` in all (-1: for ever) until a part of the file has come, as far as it was
 * asked for. LIO_PENDING: ask again. */
int lio_prefetch_wait(lio_prefetch *prefetch, lio_extent awaited, int timeout_ms);

/* Ends what is under way. NULL is fine. */
void lio_prefetch_close(lio_prefetch *prefetch);

#endif
