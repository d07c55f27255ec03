/* engine_buffered: reads of a descriptor by way of the page cache, without waiting where it has the
 * bytes, and hints that bring them there. Facts about the kernel and the file system, once found, are
 * remembered for all descriptors of one file system.
 *
 * Private to the engine.
 */
#ifndef LIO_ENGINE_BUFFERED_H
#define LIO_ENGINE_BUFFERED_H

#include <stdatomic.h>

#include "engine_mapped.h"
#include "storage.h"

struct lio_buffered {
    lio_storage storage;
    const char *refusal;       /* why nothing is copied out of a mapping; NULL: it may be */
    uint64_t mapped_bytes_max; /* 0: no mapping */
    atomic_uint reads; /* of what may be cached, made and asked about, to LIO_MAPPED_FROM */
    _Atomic(lio_mapped *) mapped;
    atomic_bool keeps_nothing; /* what is read is not in a page cache afterwards */
    atomic_int can_map;        /* streams by a mapping: 0 while not known, 1, -1 */
    atomic_int begins; /* whether lio_buffered_try begins to fetch what is missing: 0 while not
                        * known, 1, -1 */
    atomic_bool always_waits; /* the kernel or the file system knows no RWF_NOWAIT */
};

/* So many reads make a mapping worth while. */
enum { LIO_MAPPED_FROM = 32 };

/* Looks at the storage of a file that is open. */
void lio_buffered_probe(lio_buffered *known, int fd);

/* The mapping, which `open` makes for `source`; NULL: there is none, or not yet. Each call is for a
 * read. */
static inline lio_mapped *lio_buffered_mapping(lio_buffered *known,
                                               lio_mapped *(*open)(lio_source *source),
                                               lio_source *source)
{
    lio_mapped *mapped = atomic_load_explicit(&known->mapped, memory_order_acquire);
    if (mapped == NULL && known->mapped_bytes_max > 0 &&
        atomic_load_explicit(&known->reads, memory_order_relaxed) < LIO_MAPPED_FROM &&
        atomic_fetch_add(&known->reads, 1) + 1 == LIO_MAPPED_FROM) {
        mapped = open(source);
        atomic_store_explicit(&known->mapped, mapped, memory_order_release);
    }
    return mapped;
}

/* As lio_file_kind.try_read, by a call of the kernel. */
lio_cached lio_buffered_try(lio_buffered *known, int fd, const lio_read *read,
                            const struct iovec *into, int count);

/* As lio_file_kind.holds, for what is not copied out of a mapping. `is_asked`: the kernel is asked
 * also about short reads, of which to try is cheaper. */
lio_cached lio_buffered_holds(lio_buffered *known, int fd, uint64_t offset, uint64_t length,
                              bool is_asked);

/* As lio_file_kind.populate. */
int lio_buffered_populate(lio_buffered *known, int fd, uint64_t offset, uint64_t length,
                          bool is_stream, lio_error *error);

/* The mapping that has these bytes, NULL: there is none; and which of the files in it, if there are
 * several, and where. */
lio_mapped *lio_buffered_find(const lio_file *file, uint64_t *offset, uint64_t length,
                              lio_mapped_file **place);

/* Touches what would be copied out of it. */
void lio_buffered_prefault(const lio_file *file, lio_extent piece);

#endif
