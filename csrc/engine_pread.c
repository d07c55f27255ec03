/* The pread kind: reads through the page cache. */
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine_buffered.h"
#include "engine_mapped.h"

struct lio_source {
    int fd;
    lio_buffered known;
    uint64_t mapped_bytes_max; /* 0: no mapping */
    atomic_uint reads;         /* of what may be cached, made and asked about, to MAPPED_FROM */
    _Atomic(lio_mapped *) mapped;
};

/* So many reads make a mapping worth while. */
enum { MAPPED_FROM = 32 };

static int source_open(const char *path, lio_source **out, lio_error *error)
{
    lio_source *source;
    int fd, code = lio_open_file(path, &fd, error);
    if (code != LIO_OK)
        return code;
    source = calloc(1, sizeof *source);
    if (source == NULL) {
        (void)close(fd);
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *source, 0, "no memory for an engine");
    }
    source->fd = fd;
    lio_storage_glance(fd, &source->known.storage); /* programs open a file for each record */
    *out = source;
    return LIO_OK;
}

static int read_one(lio_source *source, const lio_read *read, uint64_t *received, uint64_t *calls,
                    lio_error *error)
{
    return lio_pread_all(source->fd, read, 1, received, calls, error);
}

/* Neighbours that the kernel serves in one call. */
enum { SCATTER_PARTS = 64, SCATTER_BYTES_MAX = 1 << 30 };

/* How many of the reads, from the first on, lie one after another. */
static size_t count_neighbours(const lio_read *reads, size_t count, struct iovec *parts,
                               uint64_t *bytes)
{
    size_t i = 0;
    *bytes = 0;
    while (i < count && i < SCATTER_PARTS && reads[i].offset == reads[0].offset + *bytes &&
           reads[i].length <= SCATTER_BYTES_MAX - *bytes) {
        parts[i] = (struct iovec){.iov_base = reads[i].into, .iov_len = (size_t)reads[i].length};
        *bytes += reads[i].length;
        i++;
    }
    return i;
}

static int scatter(lio_source *source, const lio_read *reads, size_t count, uint64_t *received,
                   uint64_t *calls, lio_error *error)
{
    struct iovec parts[SCATTER_PARTS];
    uint64_t bytes;
    int code = LIO_OK;
    while (count > 0 && code == LIO_OK) {
        size_t served = count_neighbours(reads, count, parts, &bytes);
        bool done = false;
        if (served > 1) {
            ++*calls;
            done = preadv(source->fd, parts, (int)served, (off_t)reads[0].offset) ==
                   (ssize_t)bytes;
            if (done)
                *received += bytes;
        }
        served = served > 0 ? served : 1;
        /* One by one where a signal, the end of the file or an error came between. */
        for (size_t i = 0; !done && i < served && code == LIO_OK; i++)
            code = lio_pread_all(source->fd, &reads[i], 1, received, calls, error);
        reads += served;
        count -= served;
    }
    return code;
}

static const char *map_cached(lio_source *source, uint64_t bytes_max)
{
    if (!source->known.storage.unmaps_first)
        return "on this file system a cut of the file would be seen too late";
    source->mapped_bytes_max = bytes_max;
    return bytes_max > 0 ? NULL : "the memory budget has no room for it";
}

/* The mapping; NULL: there is none, or not yet. Each call is for a read. */
static lio_mapped *mapping_of(lio_source *source)
{
    lio_mapped *mapped = atomic_load_explicit(&source->mapped, memory_order_acquire);
    if (mapped == NULL && source->mapped_bytes_max > 0 &&
        atomic_load_explicit(&source->reads, memory_order_relaxed) < MAPPED_FROM &&
        atomic_fetch_add(&source->reads, 1) + 1 == MAPPED_FROM) {
        mapped = lio_mapped_open(source->fd, source->mapped_bytes_max);
        atomic_store_explicit(&source->mapped, mapped, memory_order_release);
    }
    return mapped;
}

/* Whether a read could be served without the kernel. */
static bool copy_mapped(lio_source *source, const lio_read *read, const struct iovec *into,
                        int count)
{
    lio_mapped *mapped = mapping_of(source);
    return mapped != NULL &&
           lio_mapped_copy(mapped, NULL, read->offset, read->length, into, count, NULL);
}

static lio_cached holds(lio_source *source, uint64_t offset, uint64_t length, bool sure)
{
    lio_mapped *mapped = mapping_of(source);
    if (mapped != NULL && lio_mapped_holds(mapped, NULL, offset, length))
        return LIO_CACHED_MAPPED;
    return lio_buffered_holds(&source->known, source->fd, offset, length, mapped != NULL || sure);
}

static size_t fault_count(lio_source *source, lio_extent extent)
{
    lio_mapped *mapped = atomic_load_explicit(&source->mapped, memory_order_acquire);
    return mapped == NULL ? 0 : lio_mapped_untouched(mapped, NULL, extent.offset, extent.length);
}

static void approach(lio_source *source, uint64_t offset, uint64_t length)
{
    lio_mapped *mapped = atomic_load_explicit(&source->mapped, memory_order_acquire);
    if (mapped != NULL)
        lio_mapped_approach(mapped, NULL, offset, length);
}

static void prefault(lio_source *source, uint64_t offset, uint64_t length)
{
    lio_mapped *mapped = atomic_load_explicit(&source->mapped, memory_order_acquire);
    if (mapped != NULL)
        lio_mapped_prefault(mapped, NULL, offset, length);
}

static lio_cached try_read(lio_source *source, const lio_read *read, const struct iovec *into,
                           int count)
{
    if (copy_mapped(source, read, into, count))
        return LIO_CACHED_MAPPED;
    return lio_buffered_try(&source->known, source->fd, read, into, count);
}

static size_t copy_each(lio_source *source, const lio_read *reads, size_t count)
{
    lio_mapped *mapped = mapping_of(source);
    return mapped == NULL ? 0 : lio_mapped_copy_each(mapped, reads, count);
}

static int populate(lio_source *source, uint64_t offset, uint64_t length, bool is_stream,
                    lio_error *error)
{
    return lio_buffered_populate(&source->known, source->fd, offset, length, is_stream, error);
}

static void forget_missing(lio_source *source, uint64_t offset, uint64_t length)
{
    lio_mapped *mapped = atomic_load_explicit(&source->mapped, memory_order_acquire);
    if (mapped != NULL)
        lio_mapped_forget_missing(mapped, offset, length);
}

static int source_size(lio_source *source, uint64_t *size, lio_error *error)
{
    return lio_file_size(source->fd, size, error);
}

static void source_close(lio_source *source)
{
    lio_mapped_close(source->mapped);
    (void)close(source->fd);
    free(source);
}

static int source_fd(const lio_source *source)
{
    return source->fd;
}

static uint64_t source_device(const lio_source *source)
{
    return (uint64_t)source->known.storage.device_major << 32 | source->known.storage.device_minor;
}

static const lio_page_cache page_cache = {
    .try_read = try_read,
    .copy_each = copy_each,
    .holds = holds,
    .prefault = prefault,
    .fault_count = fault_count,
    .approach = approach,
    .populate = populate,
    .forget_missing = forget_missing,
    .map_cached = map_cached,
};

const lio_file_kind lio_file_pread = {
    .name = "pread",
    .alignment = 1,
    .open = source_open,
    .read = read_one,
    .scatter = scatter,
    .page_cache = &page_cache,
    .size = source_size,
    .close = source_close,
    .fd = source_fd,
    .device = source_device,
};
