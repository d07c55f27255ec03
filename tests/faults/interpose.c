/* interpose: a library to preload that makes the operating system fail on request.
 *
 * It stands before the C library's calls and counts them. A rule says which of them fail, and
 * how: the call with number `first`, counted from the moment the rule was made, and from there
 * on every `every`th (0: no further), `limit` at most (0: no limit). All others go through.
 *
 * The calls that are counted:
 *   reads, mappings, advice     of files that were named by faults_file()
 *   opening                     what lies in a folder named by faults_folder(), and /proc/self/fd
 *   memory, stat                only those made by the library named by faults_library(), so
 *                               that the interpreter around it stays sound
 *   threads, statvfs, syscall   whoever makes them
 *
 * but nothing that the library named by faults_spare() does.
 *
 * For glibc on Linux. Driven by tests/faults/interposer.py through ctypes.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* In the order of interposer.Call. */
enum call {
    CALL_READ,        /* pread, preadv                           */
    CALL_READ_DIRECT, /* the same, of a descriptor with O_DIRECT */
    CALL_PEEK,        /* preadv2                                 */
    CALL_OPEN,
    CALL_OPEN_DIRECT, /* with O_DIRECT                           */
    CALL_MAP,         /* mmap of a file, or of 1 MiB and more    */
    CALL_ADVISE,      /* posix_fadvise                           */
    CALL_STATVFS,
    CALL_STAT,        /* fstat                                   */
    CALL_THREAD,      /* pthread_create                          */
    CALL_CACHESTAT,
    CALL_URING,       /* io_uring_setup                          */
    CALL_MEMORY,      /* malloc and its kin                      */
    CALL_WRITE,       /* pwrite                                  */
    CALL_SYNC,        /* fsync                                   */
    CALL_POPULATE,    /* madvise with MADV_POPULATE_WRITE        */
    CALL_URING_ENTER, /* io_uring_enter                          */
    CALLS
};

/* In the order of interposer.Act. */
enum act {
    ACT_NONE,
    ACT_FAIL,    /* with an errno                                              */
    ACT_SHORT,   /* a read or write of a part                                  */
    ACT_END,     /* a read finds the end of the file                           */
    ACT_DELAY,   /* goes through after a while                                 */
    ACT_NOTHING, /* cachestat: nothing is cached                               */
    ACT_CUT      /* as if the file had been cut in the last page of this read, */
                 /* whose rest reads as zeros; once, until faults_whole()      */
};

typedef struct {
    _Atomic int act, error;
    _Atomic uint64_t first, every, limit, seen, done;
} rule;

enum { FILES = 16, FOLDER_BYTES = 512, DELAY_NS = 300000, SECTOR = 512, BLOCK = 4096, MAP_BYTES_MIN = 1 << 20 };
enum { POPULATE_WRITE = 23 }; /* older headers lack MADV_POPULATE_WRITE */
enum { SYS_IO_URING_SETUP = 425, SYS_IO_URING_ENTER = 426 };
enum { SYS_CACHESTAT = 451, CACHESTAT_BYTES = 40 };

static rule rules[CALLS];
static struct {
    _Atomic uint64_t device, inode;
} files[FILES];
static _Atomic uint32_t file_count;
static atomic_bool is_cut;
static _Atomic int cut_file = -1; /* of `files` */
static _Atomic uint64_t cut_to;   /* its size since */
static char folder[FOLDER_BYTES];
static _Atomic size_t folder_bytes;
typedef struct {
    _Atomic uintptr_t start, end;
} code_range;
static code_range library, spared;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

/* --- driving it ----------------------------------------------------------------------- */

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void faults_arm(int call, int act, int error, uint64_t first, uint64_t every,
                         uint64_t limit)
{
    rule *r = &rules[call];
    r->act = ACT_NONE;
    r->error = error;
    r->first = first;
    r->every = every;
    r->limit = limit;
    r->seen = r->done = 0;
    r->act = act;
}

/* Make the file that was cut whole again. */
EXPORTED void faults_whole(void)
{
    cut_file = -1;
    is_cut = false;
}

EXPORTED uint64_t faults_seen(int call)
{
    return rules[call].seen;
}

EXPORTED uint64_t faults_done(int call)
{
    return rules[call].done;
}

EXPORTED int faults_file(const char *path)
{
    struct stat status;
    uint32_t at = file_count;
    if (at == FILES || stat(path, &status) != 0)
        return -1;
    files[at].device = status.st_dev;
    files[at].inode = status.st_ino;
    file_count = at + 1;
    return 0;
}

EXPORTED void faults_forget_files(void)
{
    file_count = 0;
}

EXPORTED int faults_folder(const char *path)
{
    size_t bytes = strlen(path);
    if (bytes >= FOLDER_BYTES)
        return -1;
    folder_bytes = 0;
    memcpy(folder, path, bytes + 1);
    folder_bytes = bytes;
    return 0;
}

struct search {
    const char *name;
    code_range *found;
};

static int note_code(struct dl_phdr_info *info, size_t size, void *searched)
{
    const struct search *search = searched;
    (void)size;
    if (strstr(info->dlpi_name, search->name) == NULL)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        search->found->start = start;
        search->found->end = start + part->p_memsz;
        return 1;
    }
    return 0;
}

/* 0 when a loaded library's name contains `name`. */
EXPORTED int faults_library(const char *name)
{
    struct search search = {name, &library};
    return dl_iterate_phdr(note_code, &search) ? 0 : -1;
}

EXPORTED int faults_spare(const char *name)
{
    struct search search = {name, &spared};
    return dl_iterate_phdr(note_code, &search) ? 0 : -1;
}

/* --- judging a call ------------------------------------------------------------------- */

static bool is_in(const code_range *range, const void *caller)
{
    return (uintptr_t)caller >= range->start && (uintptr_t)caller < range->end;
}

/* The number of a file, -1: none of `files`. */
static int file_of(int fd)
{
    struct stat status;
    int saved = errno, found = -1;
    uint32_t count = file_count;
    if (count == 0)
        return -1;
    static int (*real)(int, struct stat *);
    if (real == NULL)
        real = (int (*)(int, struct stat *))dlsym(RTLD_NEXT, "fstat");
    if (real(fd, &status) == 0)
        for (uint32_t i = 0; i < count && found < 0; i++)
            if (files[i].device == status.st_dev && files[i].inode == status.st_ino)
                found = (int)i;
    errno = saved;
    return found;
}

static bool is_file(int fd)
{
    return file_of(fd) >= 0;
}

static uint64_t size_as_cut(int fd, uint64_t size)
{
    int cut = cut_file;
    return cut >= 0 && size > cut_to && file_of(fd) == cut ? cut_to : size;
}

static bool in_folder(const char *path)
{
    size_t bytes = folder_bytes;
    return bytes > 0 && path != NULL &&
           (strncmp(path, folder, bytes) == 0 || strncmp(path, "/proc/self/fd/", 14) == 0);
}

/* Say what shall happen to this call; sets errno for ACT_FAIL. `*number` tells calls apart. */
static int strike(int call, uint64_t *number)
{
    rule *r = &rules[call];
    uint64_t n = atomic_fetch_add(&r->seen, 1), first = r->first, every = r->every;
    int act = r->act;
    if (number != NULL)
        *number = n;
    if (act == ACT_NONE || n < first || (every == 0 ? n != first : (n - first) % every != 0))
        return ACT_NONE;
    if (r->limit != 0 && r->done >= r->limit)
        return ACT_NONE;
    (void)atomic_fetch_add(&r->done, 1);
    if (act == ACT_DELAY) {
        struct timespec while_ = {0, DELAY_NS};
        (void)nanosleep(&while_, NULL);
        return ACT_NONE;
    }
    if (act == ACT_FAIL)
        errno = r->error;
    return act;
}

/* A part of `length`, another one each time; of whole sectors where that is the rule. */
static size_t part_of(size_t length, uint64_t number, bool sectors)
{
    uint64_t mixed = (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
    size_t part = length < 2 ? length : 1 + (size_t)((mixed >> 20) % (length - 1));
    if (!sectors)
        return part;
    if (length <= BLOCK) /* a direct read of one block is whole, or fails */
        return length;
    part = part / SECTOR * SECTOR;
    return part < BLOCK ? BLOCK : part;
}

/* Cut the file inside the page in which a read ended, as the kernel would see it: where, differs. */
static void cut_in_last_page(int fd, const struct iovec *into, ssize_t got, off_t offset)
{
    uint64_t end, begin, from;
    if (got <= 0 || atomic_exchange(&is_cut, true)) /* it is cut once: it does not grow */
        return;
    end = (uint64_t)offset + (uint64_t)got;
    begin = (end - 1) / BLOCK * BLOCK;
    begin = begin < (uint64_t)offset ? (uint64_t)offset : begin;
    cut_to = begin + part_of((size_t)(end - begin), end, false) - (end - begin < 2);
    cut_file = file_of(fd);
    from = cut_to - (uint64_t)offset;
    for (uint64_t at = 0; at < (uint64_t)got; at += into->iov_len, into++) {
        uint64_t skipped = from > at ? from - at : 0, here = (uint64_t)got - at;
        here = here < into->iov_len ? here : into->iov_len;
        if (skipped < here)
            memset((uint8_t *)into->iov_base + skipped, 0, (size_t)(here - skipped));
    }
}

#define CALLER __builtin_return_address(0)
#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* --- reading -------------------------------------------------------------------------- */

/* ACT_NONE: read `*length` bytes; else the call has ended with `*result`. */
static int before_read(int fd, size_t *length, ssize_t *result, const void *caller)
{
    uint64_t number;
    bool direct;
    int act;
    if (is_in(&spared, caller) || !is_file(fd))
        return ACT_NONE;
    direct = fcntl(fd, F_GETFL) & O_DIRECT;
    act = direct ? strike(CALL_READ_DIRECT, &number) : ACT_NONE;
    if (act == ACT_NONE)
        act = strike(CALL_READ, &number);
    *result = act == ACT_FAIL ? -1 : 0;
    if (act == ACT_SHORT) {
        *length = part_of(*length, number, direct);
        return ACT_NONE;
    }
    return act;
}

#define READ(name, offset_type) \
    EXPORTED ssize_t name(int fd, void *into, size_t length, offset_type offset) \
    { \
        ssize_t result; \
        int act; \
        REAL(name); \
        act = before_read(fd, &length, &result, CALLER); \
        if (act != ACT_NONE && act != ACT_CUT) \
            return result; \
        result = real(fd, into, length, offset); \
        if (act == ACT_CUT) \
            cut_in_last_page(fd, &(struct iovec){into, length}, result, offset); \
        return result; \
    }
READ(pread, off_t)
READ(pread64, off64_t)

EXPORTED ssize_t preadv(int fd, const struct iovec *into, int count, off_t offset)
{
    struct iovec part = into[0];
    ssize_t result;
    int act;
    REAL(preadv);
    act = before_read(fd, &part.iov_len, &result, CALLER);
    if (act != ACT_NONE && act != ACT_CUT)
        return result;
    if (part.iov_len < into[0].iov_len)
        return real(fd, &part, 1, offset);
    result = real(fd, into, count, offset);
    if (act == ACT_CUT)
        cut_in_last_page(fd, into, result, offset);
    return result;
}

EXPORTED ssize_t preadv2(int fd, const struct iovec *into, int count, off_t offset, int flags)
{
    uint64_t number;
    struct iovec part;
    ssize_t result;
    REAL(preadv2);
    switch (is_file(fd) ? strike(CALL_PEEK, &number) : ACT_NONE) {
    case ACT_FAIL:
        return -1;
    case ACT_END:
        return 0;
    case ACT_SHORT:
        part = into[0];
        part.iov_len = part_of(part.iov_len, number, false);
        return real(fd, &part, 1, offset, flags);
    case ACT_CUT:
        result = real(fd, into, count, offset, flags);
        cut_in_last_page(fd, into, result, offset);
        return result;
    default:
        return real(fd, into, count, offset, flags);
    }
}

EXPORTED ssize_t pwrite64(int fd, const void *from, size_t length, off64_t offset)
{
    uint64_t number;
    REAL(pwrite64);
    switch (strike(CALL_WRITE, &number)) {
    case ACT_FAIL:
        return -1;
    case ACT_SHORT:
        return real(fd, from, part_of(length, number, false), offset);
    default:
        return real(fd, from, length, offset);
    }
}

EXPORTED int fsync(int fd)
{
    REAL(fsync);
    return strike(CALL_SYNC, NULL) == ACT_FAIL ? -1 : real(fd);
}

/* --- opening and mapping -------------------------------------------------------------- */

static bool refused(const char *path, int flags, const void *caller)
{
    if (is_in(&spared, caller) || !in_folder(path))
        return false;
    if ((flags & O_DIRECT) && strike(CALL_OPEN_DIRECT, NULL) == ACT_FAIL)
        return true;
    return strike(CALL_OPEN, NULL) == ACT_FAIL;
}

#define OPEN(name) \
    EXPORTED int name(const char *path, int flags, ...) \
    { \
        va_list more; \
        mode_t mode; \
        REAL(name); \
        va_start(more, flags); \
        mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return refused(path, flags, CALLER) ? -1 : real(path, flags, mode); \
    }
#define OPENAT(name) \
    EXPORTED int name(int at, const char *path, int flags, ...) \
    { \
        va_list more; \
        mode_t mode; \
        REAL(name); \
        va_start(more, flags); \
        mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return refused(path, flags, CALLER) ? -1 : real(at, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static bool map_refused(size_t length, int fd)
{
    return (fd < 0 ? length >= MAP_BYTES_MIN : is_file(fd)) &&
           strike(CALL_MAP, NULL) == ACT_FAIL;
}

EXPORTED void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    REAL(mmap);
    return map_refused(length, fd) ? MAP_FAILED : real(at, length, protection, flags, fd, offset);
}

EXPORTED void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset)
{
    REAL(mmap64);
    return map_refused(length, fd) ? MAP_FAILED : real(at, length, protection, flags, fd, offset);
}

/* --- asking and advising -------------------------------------------------------------- */

static int advice_refused(int fd)
{
    int saved = errno, told = 0;
    if (is_file(fd) && strike(CALL_ADVISE, NULL) == ACT_FAIL)
        told = errno;
    errno = saved;
    return told; /* posix_fadvise returns its error */
}

EXPORTED int posix_fadvise(int fd, off_t offset, off_t length, int advice)
{
    int told = advice_refused(fd);
    REAL(posix_fadvise);
    return told != 0 ? told : real(fd, offset, length, advice);
}

EXPORTED int posix_fadvise64(int fd, off64_t offset, off64_t length, int advice)
{
    int told = advice_refused(fd);
    REAL(posix_fadvise64);
    return told != 0 ? told : real(fd, offset, length, advice);
}

EXPORTED int madvise(void *at, size_t length, int advice)
{
    REAL(madvise);
    if (advice == POPULATE_WRITE && strike(CALL_POPULATE, NULL) == ACT_FAIL)
        return -1;
    return real(at, length, advice);
}

EXPORTED int statvfs(const char *path, struct statvfs *out)
{
    REAL(statvfs);
    return strike(CALL_STATVFS, NULL) == ACT_FAIL ? -1 : real(path, out);
}

EXPORTED int statvfs64(const char *path, struct statvfs64 *out)
{
    REAL(statvfs64);
    return strike(CALL_STATVFS, NULL) == ACT_FAIL ? -1 : real(path, out);
}

EXPORTED int fstat(int fd, struct stat *out)
{
    REAL(fstat);
    int result;
    if (is_in(&library, CALLER) && strike(CALL_STAT, NULL) == ACT_FAIL)
        return -1;
    result = real(fd, out);
    if (result == 0)
        out->st_size = (off_t)size_as_cut(fd, (uint64_t)out->st_size);
    return result;
}

EXPORTED long syscall(long number, ...)
{
    va_list more;
    long a[6];
    int act = ACT_NONE;
    REAL(syscall);
    va_start(more, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(more, long);
    va_end(more);
    if (number == SYS_CACHESTAT)
        act = strike(CALL_CACHESTAT, NULL);
    else if (number == SYS_IO_URING_SETUP)
        act = strike(CALL_URING, NULL);
    else if (number == SYS_IO_URING_ENTER)
        act = strike(CALL_URING_ENTER, NULL);
    if (act == ACT_FAIL)
        return -1;
    if (act == ACT_NOTHING) {
        memset((void *)(uintptr_t)a[2], 0, CACHESTAT_BYTES);
        return 0;
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* --- threads and memory --------------------------------------------------------------- */

EXPORTED int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                            void *(*start)(void *), void *argument)
{
    int saved = errno, told = 0;
    REAL(pthread_create);
    if (strike(CALL_THREAD, NULL) == ACT_FAIL)
        told = errno;
    errno = saved;
    return told != 0 ? told : real(thread, attributes, start, argument);
}

static bool no_memory(const void *caller)
{
    return is_in(&library, caller) && strike(CALL_MEMORY, NULL) == ACT_FAIL;
}

EXPORTED void *malloc(size_t size)
{
    return no_memory(CALLER) ? NULL : __libc_malloc(size);
}

EXPORTED void *calloc(size_t count, size_t size)
{
    return no_memory(CALLER) ? NULL : __libc_calloc(count, size);
}

EXPORTED void *realloc(void *old, size_t size)
{
    return no_memory(CALLER) ? NULL : __libc_realloc(old, size);
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
    return no_memory(CALLER) ? NULL : __libc_memalign(alignment, size);
}
