/* The pread kind: reads through the page cache. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "buffer.h"
#include "engine_file.h"
#include "engine_mapped.h"
#include "storage.h"

#ifndef __GLIBC__
/* musl has this call since 1.2.5, and a wheel for musl 1.2 must load with every 1.2. The kernel takes
 * the offset in two words, of which a 64-bit one fills the first. */
#define preadv2(fd, into, count, offset, flags)                                                   \
    syscall(SYS_preadv2, fd, into, count, offset, 0L, flags)
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 0x8 /* linux/fs.h */
#endif
#endif

struct lio_source {
    int fd;
    lio_storage storage;
    atomic_bool keeps_nothing; /* what is read is not in a page cache afterwards */
    atomic_int
        begins; /* whether try_read begins to fetch what is missing: 0 while not known, 1, -1 */
    atomic_bool always_waits;  /* the kernel or the file system knows no RWF_NOWAIT */
    uint64_t mapped_bytes_max; /* 0: no mapping */
    atomic_uint reads;         /* of what may be cached, made and asked about, to MAPPED_FROM */
    _Atomic(lio_mapped *) mapped;
};

/* So many reads make a mapping worth while. */
enum { MAPPED_FROM = 32 };
/* For shorter reads, to read shows whether the page cache holds them. */
enum { ASK_FROM_BYTES = 16 << 10 };

/* Bytes that populate() reads at a time where it must read, again and again into the same memory,
 * which thus stays in a core's cache. */
enum { POPULATE_BYTES = 1 << 20, SCRATCH_BYTES = 16 << 10 };

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
    lio_storage_glance(fd, &source->storage); /* programs open a file for each record */
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

/* Whether a read that would have waited has begun to fetch its bytes, as Linux does since 5.9:
 * pages on their way count as cached. Seen once, it is believed. */
static bool has_begun(lio_source *source, const lio_read *read)
{
    uint64_t cached = 0;
    if (source->begins == 0)
        source->begins = source->storage.disk &&
                                 lio_cached_bytes(source->fd, read->offset, read->length,
                                                  &cached) &&
                                 cached >= read->needed
                             ? 1
                             : -1;
    return source->begins > 0;
}

static const char *map_cached(lio_source *source, uint64_t bytes_max)
{
    if (!source->storage.unmaps_first)
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
    return mapped != NULL && lio_mapped_copy(mapped, read->offset, read->length, into, count);
}

/* To ask the kernel takes as long as to copy a few pages, so where that is all it is not asked. */
static lio_cached holds(lio_source *source, uint64_t offset, uint64_t length, bool sure)
{
    lio_mapped *mapped = mapping_of(source);
    uint64_t begin, cached = 0;
    if (mapped != NULL && lio_mapped_holds(mapped, offset, length))
        return LIO_CACHED_MAPPED;
    if (atomic_load_explicit(&source->always_waits, memory_order_relaxed))
        return LIO_CACHED_NOT;
    if (mapped == NULL && length < ASK_FROM_BYTES && !sure)
        return LIO_CACHED_BY_CALL;
    /* Whole pages are counted, also those of which a few bytes are wanted. */
    begin = lio_round_down(offset, (uint64_t)sysconf(_SC_PAGESIZE));
    return lio_cached_bytes(source->fd, offset, length, &cached) &&
                   cached >= offset + length - begin
               ? LIO_CACHED_BY_CALL
               : LIO_CACHED_NOT;
}

static size_t fault_count(lio_source *source, lio_extent extent)
{
    lio_mapped *mapped = atomic_load_explicit(&source->mapped, memory_order_acquire);
    return mapped == NULL ? 0 : lio_mapped_untouched(mapped, extent.offset, extent.length);
}

static void approach(lio_source *source, uint64_t offset)
{
    const lio_mapped *mapped = atomic_load_explicit(&source->mapped, memory_order_acquire);
    if (mapped != NULL)
        lio_mapped_approach(mapped, offset);
}

static void prefault(lio_source *source, uint64_t offset, uint64_t length)
{
    lio_mapped *mapped = atomic_load_explicit(&source->mapped, memory_order_acquire);
    if (mapped != NULL)
        lio_mapped_prefault(mapped, offset, length);
}

/* Without O_DIRECT a read that would wait returns EAGAIN, or fewer bytes. Kernels and file
 * systems that do not know the flag refuse; then the threads do the work. */
static lio_cached try_read(lio_source *source, const lio_read *read, const struct iovec *into,
                           int count)
{
    ssize_t got;
    if (copy_mapped(source, read, into, count))
        return LIO_CACHED_MAPPED;
    if (atomic_load_explicit(&source->always_waits, memory_order_relaxed))
        return LIO_CACHED_NOT;
    got = preadv2(source->fd, into, count, (off_t)read->offset, RWF_NOWAIT);
    if (got == (ssize_t)read->length)
        return LIO_CACHED_BY_CALL;
    if (got < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        source->always_waits = true;
    return got < 0 && errno == EAGAIN && has_begun(source, read) ? LIO_CACHED_SOON
                                                                 : LIO_CACHED_NOT;
}

/* To read is to populate. Nobody looks at the bytes. */
static int populate_by_reading(lio_source *source, uint64_t offset, uint64_t length,
                               lio_error *error)
{
    uint8_t scratch[SCRATCH_BYTES];
    struct iovec again[POPULATE_BYTES / SCRATCH_BYTES];
    uint64_t cached;
    ssize_t got = 0;
    if (source->keeps_nothing ||
        (lio_cached_bytes(source->fd, offset, length, &cached) && cached >= length))
        return LIO_OK;
    for (size_t i = 0; i < POPULATE_BYTES / SCRATCH_BYTES; i++)
        again[i] = (struct iovec){.iov_base = scratch, .iov_len = SCRATCH_BYTES};
    for (uint64_t at = 0; at < length; at += (uint64_t)got) {
        uint64_t rest = length - at;
        size_t parts = (size_t)((rest < POPULATE_BYTES ? rest : POPULATE_BYTES) / SCRATCH_BYTES);
        again[0].iov_len = parts == 0 ? (size_t)rest : SCRATCH_BYTES;
        do
            got = preadv(source->fd, again, parts == 0 ? 1 : (int)parts, (off_t)(offset + at));
        while (got < 0 && errno == EINTR);
        if (got < 0)
            return lio_fail_errno(error, errno, offset + at, rest, "cannot read ahead");
        if (got == 0)
            break;
    }
    /* A mount may go without a page cache (FUSE's direct_io, 9p); all would be read twice. */
    if (got > 0 && lio_cached_bytes(source->fd, offset, length, &cached) && cached == 0)
        source->keeps_nothing = true;
    return LIO_OK;
}

/* File systems without a disk (FUSE was seen to) drop advice as soon as a few requests are
 * under way. */
static int populate(lio_source *source, uint64_t offset, uint64_t length, lio_error *error)
{
    int problem;
    if (!source->storage.disk)
        return populate_by_reading(source, offset, length, error);
    problem = posix_fadvise(source->fd, (off_t)offset, (off_t)length, POSIX_FADV_WILLNEED);
    return problem == 0 ? LIO_OK
                        : lio_fail_errno(error, problem, offset, length, "cannot read ahead");
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
    return (uint64_t)source->storage.device_major << 32 | source->storage.device_minor;
}

static const lio_page_cache page_cache = {
    .try_read = try_read,
    .holds = holds,
    .prefault = prefault,
    .fault_count = fault_count,
    .approach = approach,
    .populate = populate,
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
