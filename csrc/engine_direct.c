/* The direct kind: O_DIRECT. Offsets, lengths and memory are multiples of 4 KiB, which every
 * file system that knows O_DIRECT accepts.
 *
 * The staged kind: the same by way of a few huge pages of its own, from which a thread copies.
 * For memory that has none, such as shared memory: the disk then writes to one piece of memory
 * where it would write to 512, which was seen to be worth the copy and more.
 *
 * The uring kind: an io_uring carries the reads that are in flight together (engine_ring.h). A thread
 * that reads for itself alone calls the kernel as the direct kind does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "engine_file.h"
#include "engine_ring.h"
#include "extent.h"

enum {
    STAGE_BYTES = LIO_HUGE_BYTES_MIN,
    STAGED_BYTES_MIN = 256 << 10, /* smaller requests gain nothing */
    SPARES = 32                   /* stages that wait to be used again */
};

struct lio_source {
    int fd;
    _Atomic(uint8_t *) spares[SPARES];
};

/* Reopens the same inode with O_DIRECT, so that a rename in between cannot swap the file. */
static int reopen_direct(int fd, int *direct, lio_error *error)
{
    char path[64];
    int opened;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    do
        opened = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    while (opened < 0 && errno == EINTR);
    if (opened < 0 && errno == EINVAL)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0,
                        "the file system knows no O_DIRECT; use engine=\"pread\"");
    if (opened < 0)
        return lio_fail_errno(error, errno, 0, 0, "cannot open the file with O_DIRECT");
    *direct = opened;
    return LIO_OK;
}

/* Some file systems accept the flag and refuse the read. */
static int probe(int fd, lio_error *error)
{
    void *page = aligned_alloc(LIO_DIRECT_ALIGNMENT, LIO_DIRECT_ALIGNMENT);
    ssize_t got;
    int problem;
    if (page == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, LIO_DIRECT_ALIGNMENT, 0, "no memory for a probe");
    do
        got = pread(fd, page, LIO_DIRECT_ALIGNMENT, 0);
    while (got < 0 && errno == EINTR);
    problem = got < 0 ? errno : 0;
    free(page);
    if (problem == EINVAL)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, LIO_DIRECT_ALIGNMENT, 0,
                        "the file system refuses O_DIRECT reads; use engine=\"pread\"");
    if (problem != 0)
        return lio_fail_errno(error, problem, 0, LIO_DIRECT_ALIGNMENT, "cannot read");
    return LIO_OK;
}

static int source_open(lio_file *file, lio_error *error)
{
    int direct = -1, code = reopen_direct(file->fd, &direct, error);
    if (code != LIO_OK)
        return code;
    (void)close(file->fd);
    file->fd = direct;
    code = probe(direct, error);
    if (code != LIO_OK)
        return code;
    file->source = calloc(1, sizeof *file->source);
    if (file->source == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *file->source, 0,
                        "no memory for an engine");
    file->source->fd = direct;
    return LIO_OK;
}

int lio_direct_check(const lio_read *read, lio_error *error)
{
    if (read->offset % LIO_DIRECT_ALIGNMENT != 0 || read->length % LIO_DIRECT_ALIGNMENT != 0 ||
        (uintptr_t)read->into % LIO_DIRECT_ALIGNMENT != 0)
        return lio_fail(error, LIO_ERR_ARGUMENT, read->offset, LIO_DIRECT_ALIGNMENT, read->length,
                        "a direct read that is not aligned to 4096 bytes");
    return LIO_OK;
}

static int read_one(lio_source *source, const lio_read *read, uint64_t *received, uint64_t *calls,
                    lio_error *error)
{
    int code = lio_direct_check(read, error);
    return code != LIO_OK
               ? code
               : lio_pread_all(source->fd, read, LIO_DIRECT_ALIGNMENT, received, calls, error);
}

/* A child that is forked while its parent's threads hold stages never sees these again. */
static uint8_t *stage_take(lio_source *source)
{
    for (size_t i = 0; i < SPARES; i++) {
        uint8_t *found = atomic_exchange(&source->spares[i], NULL);
        if (found != NULL)
            return found;
    }
    return lio_buffer_open(STAGE_BYTES);
}

static void stage_give(lio_source *source, uint8_t *stage)
{
    for (size_t i = 0; i < SPARES; i++) {
        uint8_t *none = NULL;
        if (atomic_compare_exchange_strong(&source->spares[i], &none, stage))
            return;
    }
    lio_buffer_close(stage);
}

/* Part of a request, no larger than a stage. */
static int read_part(lio_source *source, const lio_read *part, uint8_t *stage, uint64_t *received,
                     uint64_t *calls, lio_error *error)
{
    lio_read staged = *part;
    uint64_t got = 0;
    int code;
    staged.into = stage;
    code = read_one(source, &staged, &got, calls, error);
    if (code == LIO_OK)
        memcpy(part->into, stage, (size_t)got);
    *received += got;
    return code;
}

static int read_staged(lio_source *source, const lio_read *read, uint64_t *received,
                       uint64_t *calls, lio_error *error)
{
    uint8_t *stage = read->length >= STAGED_BYTES_MIN ? stage_take(source) : NULL;
    int code = LIO_OK;
    if (stage == NULL)
        return read_one(source, read, received, calls, error);
    for (uint64_t at = 0; at < read->length && code == LIO_OK; at += STAGE_BYTES) {
        uint64_t rest = read->length - at, before = *received;
        lio_read part = {read->offset + at, rest < STAGE_BYTES ? rest : STAGE_BYTES, 0,
                         read->into + at};
        part.needed = read->needed <= at                ? 0
                      : read->needed - at < part.length ? read->needed - at
                                                        : part.length;
        code = read_part(source, &part, stage, received, calls, error);
        if (*received - before < part.length)
            break; /* the end of the file */
    }
    stage_give(source, stage);
    return code;
}

static void source_close(lio_source *source)
{
    for (size_t i = 0; i < SPARES; i++)
        lio_buffer_close(source->spares[i]);
    free(source);
}

/* Each process's own ring is made on first use; here it is seen whether one can be. */
static int open_with_ring(lio_file *file, lio_error *error)
{
    lio_ring *ring;
    int code = lio_ring_open(-1, 1, 1, &ring, error);
    if (code != LIO_OK)
        return code;
    lio_ring_close(ring);
    return source_open(file, error);
}

const lio_file_kind lio_file_direct = {
    .name = "direct",
    .alignment = LIO_DIRECT_ALIGNMENT,
    .open = source_open,
    .read = read_one,
    .close = source_close,
};
/* One read alone is as well done by its caller (lio_engine_read). */
const lio_file_kind lio_file_uring = {
    .name = "uring",
    .alignment = LIO_DIRECT_ALIGNMENT,
    .is_ringed = true,
    .open = open_with_ring,
    .read = read_one,
    .close = source_close,
};
const lio_file_kind lio_file_staged = {
    .name = "staged",
    .alignment = LIO_DIRECT_ALIGNMENT,
    .open = source_open,
    .read = read_staged,
    .close = source_close,
};
