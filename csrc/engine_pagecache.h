/* engine_pagecache: what the page cache holds of a file, and reading that without waiting.
 *
 *   kind -> try_read, gather         the calling thread copies
 *        -> find_missing, is_cached  it asks alone
 *        -> prefault, populate       another thread makes ready
 */
#ifndef LIO_ENGINE_PAGECACHE_H
#define LIO_ENGINE_PAGECACHE_H

#include <sys/uio.h>

#include "engine.h"

/* Lets a pread engine copy what is asked for, and the page cache holds, out of a mapping
 * (engine_mapped.h), of which at most `bytes_max` are touched; nothing changes for other kinds, nor
 * on file systems where a cut would be seen too late (storage.h, unmaps_first). To be said before
 * the first read. NULL, or the reason why nothing is copied so. */
const char *lio_engine_map_cached(lio_engine *engine, uint64_t bytes_max);

/* How many of `length` bytes from `offset` on (0: to the end of the file) are in the page cache
 * now. LIO_ERR_UNSUPPORTED where the kernel cannot say (before Linux 6.5, or in a sandbox). */
int lio_engine_cached(lio_engine *engine, uint64_t offset, uint64_t length, uint64_t *bytes,
                      lio_error *error);

/* Another engine has brought these bytes to the page cache: what was said to be missing is asked for again. */
void lio_engine_forget_missing(lio_engine *engine, lio_extent range);

/* Whether a byte can be read without waiting: what is on its way is in the page cache, too. */
bool lio_engine_has_come(lio_engine *engine, uint64_t offset);

/* Starts bringing `count` ranges of bytes (copied) into the page cache, in pieces of at most
 * `piece` bytes; no memory is filled. `is_stream`: they are read, in order where the engine has a
 * depth of 1, and each has ended when it is there; else when the kernel knows of it.
 * LIO_ERR_UNSUPPORTED for engines that go past the page cache. */
int lio_engine_populate(lio_engine *engine, const lio_extent *ranges, size_t count, uint64_t piece,
                        bool is_stream, lio_ticket **out, lio_error *error);

/* Copies what lies at `extents` of the file to `offsets` of `into`, which has `room` bytes and where
 * they are placed as by lio_extents_pack (what lies between becomes 0), if the calling thread need
 * not wait for any of it. False: it would have to, or this would take longer than to read them
 * together. Then `into` may hold anything. */
bool lio_engine_gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                       size_t count, uint8_t *into, uint64_t room);

/* Sets missing[i] to whether the calling thread would have to wait for what lies at extents[i], or
 * had better read it with others than copy it by itself; how many that are. The others may
 * be pushed out of the page cache. */
size_t lio_engine_find_missing(lio_engine *engine, const lio_extent *extents, size_t count,
                               uint8_t *missing);

/* Whether lio_engine_find_missing would find none. */
bool lio_engine_is_cached(lio_engine *engine, const lio_extent *extents, size_t count);

/* Whether lio_engine_try_read would most likely copy all of them out of a mapping, without a
 * call of the kernel. */
bool lio_engine_is_mapped(lio_engine *engine, const lio_extent *extents, size_t count);

/* Fills read->into, without a call of the kernel, for the first ones of some short reads, and says for
 * how many. The file had them all then. */
size_t lio_engine_copy_each(lio_engine *engine, const lio_read *reads, size_t count);

/* Tells that these bytes will most likely be read next: where they would be copied out of a mapping, the
 * processor brings the first ones nearer meanwhile. */
void lio_engine_approach(lio_engine *engine, uint64_t offset, uint64_t length);

/* Tells another thread to make ready what lio_engine_try_read would copy out of a mapping,
 * extent by extent, but the first, which the calling thread wants at once. A hint, for extents that
 * lio_engine_is_cached or lio_engine_find_missing has just found in the page cache: nobody waits
 * for it, and nothing fails. */
void lio_engine_prefault(lio_engine *engine, const lio_extent *extents, size_t count);

/* cdef: skip */
/* Fills the pieces of memory `into`, one after the other, with the bytes from `offset` on, if
 * the calling thread need not wait for them; how much is copied is the caller's to limit. `check`:
 * looks at the file's size afterwards, where a call of the kernel gave the bytes; else the caller notices
 * by himself when bytes became zeros because another process cuts the file. False: it would have to
 * wait, or the engine cannot know. Then `into` may hold anything. */
bool lio_engine_try_read(lio_engine *engine, uint64_t offset, const struct iovec *into, int count,
                         bool check);

/* How many of them have brought all to this thread, but later than the page cache would have: a fast
 * disk answers before the kernel looks again whether the bytes are there. */
uint64_t lio_engine_late_tries(void);
/* cdef: resume */

#endif
