/* engine_buffered: reads of a descriptor by way of the page cache, without waiting where it has the
 * bytes, and hints that bring them there. Facts about the kernel and the file system, once found, are
 * remembered for all descriptors of one file system.
 *
 * Private to the engine.
 */
#ifndef LIO_ENGINE_BUFFERED_H
#define LIO_ENGINE_BUFFERED_H

#include <stdatomic.h>

#include "engine_file.h"
#include "storage.h"

typedef struct {
    lio_storage storage;
    atomic_bool keeps_nothing; /* what is read is not in a page cache afterwards */
    atomic_bool maps_nothing;  /* the kernel does not fault in a mapping at once (Linux 5.14) */
    atomic_int begins; /* whether lio_buffered_try begins to fetch what is missing: 0 while not
                        * known, 1, -1 */
    atomic_bool always_waits; /* the kernel or the file system knows no RWF_NOWAIT */
} lio_buffered;

/* As lio_page_cache.try_read, by a call of the kernel. */
lio_cached lio_buffered_try(lio_buffered *known, int fd, const lio_read *read,
                            const struct iovec *into, int count);

/* As lio_page_cache.holds, for what is not copied out of a mapping. `is_asked`: the kernel is asked
 * also about short reads, of which to try is cheaper. */
lio_cached lio_buffered_holds(lio_buffered *known, int fd, uint64_t offset, uint64_t length,
                              bool is_asked);

/* As lio_page_cache.populate. */
int lio_buffered_populate(lio_buffered *known, int fd, uint64_t offset, uint64_t length,
                          bool is_stream, lio_error *error);

#endif
