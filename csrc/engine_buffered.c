#include "engine_buffered.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine_pagecache.h"
#include "trace.h"

#ifndef __GLIBC__
/* musl has this call since 1.2.5, and a wheel for musl 1.2 must load with every 1.2. The kernel takes
 * the offset in two words, of which a 64-bit one fills the first. */
#define preadv2(fd, into, count, offset, flags)                                                   \
    syscall(SYS_preadv2, fd, into, count, offset, 0L, flags)
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 0x8 /* linux/fs.h */
#endif
#endif

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older C libraries do not name it */
#endif

/* For shorter reads, to read shows whether the page cache holds them. */
enum { ASK_FROM_BYTES = 16 << 10 };

/* Bytes that populate() reads at a time where it must read, again and again into the same memory,
 * which thus stays in a core's cache. The kernel reads ahead of each; with 4 MiB at a time, 62 MiB took a
 * fifth longer. */
enum { POPULATE_BYTES = 1 << 20, SCRATCH_BYTES = 16 << 10 };

void lio_buffered_probe(lio_buffered *known, int fd)
{
    lio_storage_probe_type(fd, &known->storage);
    if (!known->storage.unmaps_first)
        known->refusal = "on this file system a cut of the file would be seen too late";
}

/* Whether a read that would have waited has begun to fetch its bytes, as Linux does since 5.9:
 * pages on their way count as cached. Seen once, it is believed. */
static bool has_begun(lio_buffered *known, int fd, const lio_read *read)
{
    uint64_t cached = 0;
    if (known->begins == 0)
        known->begins = known->storage.disk &&
                                lio_cached_bytes(fd, read->offset, read->length, &cached) &&
                                cached >= read->needed
                            ? 1
                            : -1;
    return known->begins > 0;
}

/* To ask the kernel takes as long as to copy a few pages, so where that is all it is not asked. */
lio_cached lio_buffered_holds(lio_buffered *known, int fd, uint64_t offset, uint64_t length,
                              bool is_asked)
{
    uint64_t begin, cached = 0;
    if (atomic_load_explicit(&known->always_waits, memory_order_relaxed))
        return LIO_CACHED_NOT;
    if (length < ASK_FROM_BYTES && !is_asked)
        return LIO_CACHED_BY_CALL;
    /* Whole pages are counted, also those of which a few bytes are wanted. */
    begin = lio_round_down(offset, (uint64_t)sysconf(_SC_PAGESIZE));
    return lio_cached_bytes(fd, offset, length, &cached) && cached >= offset + length - begin
               ? LIO_CACHED_BY_CALL
               : LIO_CACHED_NOT;
}

static LIO_THREAD_LOCAL uint64_t late_tries;

uint64_t lio_engine_late_tries(void)
{
    return late_tries;
}

/* Without O_DIRECT a read that would wait returns EAGAIN, or fewer bytes. Kernels and file
 * systems that do not know the flag refuse; then the threads do the work. */
lio_cached lio_buffered_try(lio_buffered *known, int fd, const lio_read *read,
                            const struct iovec *into, int count)
{
    uint64_t begun;
    ssize_t got;
    if (atomic_load_explicit(&known->always_waits, memory_order_relaxed))
        return LIO_CACHED_NOT;
    begun = lio_now_ns();
    got = preadv2(fd, into, count, (off_t)read->offset, RWF_NOWAIT);
    if (got == (ssize_t)read->length) {
        late_tries += lio_has_waited(lio_now_ns() - begun, read->length);
        return LIO_CACHED_BY_CALL;
    }
    if (got < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        known->always_waits = true;
    return got < 0 && errno == EAGAIN && has_begun(known, fd, read) ? LIO_CACHED_SOON
                                                                    : LIO_CACHED_NOT;
}

/* To read is to populate. Nobody looks at the bytes. A stream reads also what is there, or on its way: it
 * was asked for by what the kernel read ahead of it, which goes on only where all of it is read. */
static int populate_by_reading(lio_buffered *known, int fd, uint64_t offset, uint64_t length,
                               bool is_stream, lio_error *error)
{
    uint8_t scratch[SCRATCH_BYTES];
    struct iovec again[POPULATE_BYTES / SCRATCH_BYTES];
    uint64_t cached;
    ssize_t got = 0;
    if (known->keeps_nothing ||
        (!is_stream && lio_cached_bytes(fd, offset, length, &cached) && cached >= length))
        return LIO_OK;
    for (size_t i = 0; i < POPULATE_BYTES / SCRATCH_BYTES; i++)
        again[i] = (struct iovec){.iov_base = scratch, .iov_len = SCRATCH_BYTES};
    for (uint64_t at = 0; at < length; at += (uint64_t)got) {
        uint64_t rest = length - at;
        size_t parts = (size_t)((rest < POPULATE_BYTES ? rest : POPULATE_BYTES) / SCRATCH_BYTES);
        again[0].iov_len = parts == 0 ? (size_t)rest : SCRATCH_BYTES;
        do
            got = preadv(fd, again, parts == 0 ? 1 : (int)parts, (off_t)(offset + at));
        while (got < 0 && errno == EINTR);
        if (got < 0)
            return lio_fail_errno(error, errno, offset + at, rest, "cannot read ahead");
        if (got == 0)
            break;
    }
    /* A mount may go without a page cache (FUSE's direct_io, 9p); all would be read twice. */
    if (got > 0 && lio_cached_bytes(fd, offset, length, &cached) && cached == 0)
        known->keeps_nothing = true;
    return LIO_OK;
}

/* Whether the kernel faults in a mapping at once (Linux 5.14), in requests that are large enough. */
static bool can_map(lio_buffered *known, int fd)
{
    if (known->can_map == 0)
        known->can_map = lio_storage_reads_far(fd) ? 1 : -1;
    return known->can_map > 0;
}

/* Maps a part of the file for a moment, and has the kernel fault all of it in, in requests of what it
 * reads ahead: nothing is copied, which takes a fifth less of a processor. It does not ask for huge pages:
 * they take as long, and where the host of a virtual machine takes free memory back, that is what they are
 * made of, and the first touch of each of their pages waits for the host (250,000 records of 3 KB, got in
 * random order: 2.3 s instead of 1.1). False: it cannot, or a read tells why; also where the file ends
 * before that. */
static bool populate_by_mapping(lio_buffered *known, int fd, uint64_t offset, uint64_t length)
{
    uint64_t begin = lio_round_down(offset, (uint64_t)sysconf(_SC_PAGESIZE));
    size_t size = (size_t)(offset + length - begin);
    bool is_populated;
    void *map;
    if (length == 0 || !can_map(known, fd))
        return false;
    map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, (off_t)begin);
    if (map == MAP_FAILED)
        return false;
    is_populated = madvise(map, size, MADV_POPULATE_READ) == 0;
    if (!is_populated && errno == EINVAL)
        known->can_map = -1;
    (void)munmap(map, size);
    return is_populated;
}

/* File systems without a disk (FUSE was seen to) drop advice as soon as a few requests are under way, and
 * wait for each page of a mapping. */
int lio_buffered_populate(lio_buffered *known, int fd, uint64_t offset, uint64_t length,
                          bool is_stream, lio_error *error)
{
    int problem;
    if (!known->storage.disk || (is_stream && !populate_by_mapping(known, fd, offset, length)))
        return populate_by_reading(known, fd, offset, length, is_stream, error);
    if (is_stream)
        return LIO_OK;
    problem = posix_fadvise(fd, (off_t)offset, (off_t)length, POSIX_FADV_WILLNEED);
    return problem == 0 ? LIO_OK
                        : lio_fail_errno(error, problem, offset, length, "cannot read ahead");
}

lio_mapped *lio_buffered_find(const lio_file *file, uint64_t *offset, uint64_t length,
                              lio_mapped_file **place)
{
    lio_mapped *mapped = NULL;
    *place = NULL;
    if (file->known != NULL)
        mapped = atomic_load_explicit(&file->known->mapped, memory_order_acquire);
    if (mapped == NULL || file->kind->place == NULL)
        return mapped;
    *place = file->kind->place(file->source, offset, length);
    return *place != NULL ? mapped : NULL;
}

void lio_buffered_prefault(const lio_file *file, lio_extent piece)
{
    lio_mapped_file *place;
    lio_mapped *mapped = lio_buffered_find(file, &piece.offset, piece.length, &place);
    if (mapped != NULL)
        lio_mapped_prefault(mapped, place, piece.offset, piece.length);
}
