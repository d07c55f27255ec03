/* Functions of every kind with a descriptor: they open a regular file, ask for its size and for what
 * the page cache holds of it, and read until all bytes are there. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine_file.h"

/* How often a read that ended off the alignment, not at the end of the file, is made again. */
enum { IN_VAIN_MAX = 64 };

/* Linux moves at most this much in one call; a multiple of every page size. */
static const uint64_t KERNEL_LIMIT = 0x7ffff000u & ~UINT64_C(0xffff);

static int fail_to_open(int sys_errno, lio_error *error)
{
    struct rlimit limit;
    (void)lio_fail_errno(error, sys_errno, 0, 0, "cannot open the file");
    if (sys_errno == EMFILE && error != NULL && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        (void)snprintf(error->reason, sizeof error->reason,
                       "the process has as many descriptors as it may (ulimit -n: %" PRIu64 ")",
                       (uint64_t)limit.rlim_cur);
    return LIO_ERR_IO;
}

int lio_open_file(const char *path, int *fd, lio_error *error)
{
    struct stat status;
    int opened;
    /* A FIFO would block in open() until a writer comes: O_NONBLOCK lets fstat refuse it. */
    do
        opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (opened < 0 && errno == EINTR);
    if (opened < 0)
        return fail_to_open(errno, error);
    if (fstat(opened, &status) != 0) {
        int code = lio_fail_errno(error, errno, 0, 0, "cannot stat the file");
        (void)close(opened);
        return code;
    }
    if (!S_ISREG(status.st_mode)) {
        (void)close(opened);
        return lio_fail(error, LIO_ERR_INVALID, 0, 0, 0, "not an LMDB database: %s",
                        S_ISDIR(status.st_mode) ? "it is a folder" : "it is no regular file");
    }
    *fd = opened;
    return LIO_OK;
}

int lio_fd_size(int fd, uint64_t *size, lio_error *error)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return lio_fail_errno(error, errno, 0, 0, "cannot stat the file");
    *size = (uint64_t)status.st_size;
    return LIO_OK;
}

void lio_file_close(lio_file file)
{
    if (file.kind->close != NULL)
        file.kind->close(file.source);
    if (file.kind->open != NULL)
        (void)close(file.fd);
}

int lio_file_size(lio_file file, uint64_t *size, lio_error *error)
{
    return file.kind->size != NULL ? file.kind->size(file.source, size, error)
                                   : lio_fd_size(file.fd, size, error);
}

/* cachestat(2): one system call number for all machines; libc has no wrapper yet. */
enum { CACHESTAT = 451 };

bool lio_cached_bytes(int fd, uint64_t offset, uint64_t length, uint64_t *bytes)
{
    struct {
        uint64_t offset, length;
    } range = {offset, length};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } pages = {0, 0, 0, 0, 0};
    if (syscall(CACHESTAT, fd, &range, &pages, 0) != 0)
        return false;
    *bytes = pages.cached * (uint64_t)sysconf(_SC_PAGESIZE);
    return true;
}

int lio_short_read(const lio_read *read, uint64_t received, lio_error *error)
{
    return lio_fail(error, LIO_ERR_SHORT, read->offset, read->needed, received,
                    "the file ends too early");
}

/* A direct read that is cut short may end at any sector; a rest that is not aligned is dropped
 * and read again. False at the end of the file, and when nothing comes of it. */
static bool read_on(int fd, const lio_read *read, uint32_t alignment, uint64_t *got,
                    uint32_t *in_vain)
{
    uint64_t size, whole = *got & ~((uint64_t)alignment - 1);
    if (*got >= read->needed || lio_fd_size(fd, &size, NULL) != LIO_OK ||
        read->offset + *got >= size || ++*in_vain > IN_VAIN_MAX)
        return false;
    *got = whole;
    return true;
}

int lio_pread_all(int fd, const lio_read *read, uint32_t alignment, uint64_t *received,
                  uint64_t *calls, lio_error *error)
{
    uint64_t got = 0;
    uint32_t in_vain = 0;
    int code = LIO_OK;
    if (read->offset > INT64_MAX || read->length > INT64_MAX - read->offset)
        return lio_fail(error, LIO_ERR_ARGUMENT, read->offset, read->length, 0,
                        "a read beyond the largest file offset");
    while (got < read->length) {
        uint64_t rest = read->length - got;
        ssize_t now = pread(fd, read->into + got, rest < KERNEL_LIMIT ? rest : KERNEL_LIMIT,
                            (off_t)(read->offset + got));
        ++*calls;
        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0) {
            code = lio_fail_errno(error, errno, read->offset + got, rest, "cannot read");
            break;
        }
        got += (uint64_t)now;
        if (now == 0 || (got % alignment != 0 && !read_on(fd, read, alignment, &got, &in_vain)))
            break;
    }
    *received += got;
    if (code == LIO_OK && got < read->needed)
        code = lio_short_read(read, got, error);
    return code;
}

int lio_file_check_size(lio_file file, const lio_read *reads, size_t count, lio_error *error)
{
    uint64_t end = 0, size;
    int code;
    for (size_t i = 0; i < count; i++)
        if (reads[i].needed > 0 && reads[i].offset + reads[i].needed > end)
            end = reads[i].offset + reads[i].needed;
    if (end == 0)
        return LIO_OK;
    code = lio_file_size(file, &size, error);
    for (size_t i = 0; i < count && code == LIO_OK && size < end; i++)
        if (reads[i].needed > 0 && reads[i].offset + reads[i].needed > size)
            code = lio_short_read(&reads[i], size > reads[i].offset ? size - reads[i].offset : 0,
                                  error);
    return code;
}
