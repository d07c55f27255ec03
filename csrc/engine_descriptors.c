#include "engine_descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contract.h"
#include "engine_file.h"

enum { CLOSED = -1, OPENING = -2 };

/* One of the files. */
typedef struct {
    const char *name; /* in lio_descriptors.names */
    lio_file_id id;
    int fd;              /* or CLOSED, OPENING */
    uint32_t takers;     /* threads that have it */
    size_t newer, older; /* files that are open and that nobody has, by their last use */
} named_file;

struct lio_descriptors {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a file was opened, given back or closed */
    char *names;
    size_t count;
    uint32_t open_max, open; /* those that are being opened included */
    lio_descriptors *next;   /* of all that there are */
    atomic_int advice;       /* about all of each file that is opened (posix_fadvise) */
    named_file files[];      /* and one more, `ends` */
};

/* Closes the ring of files that nobody has: newer than it is the one used longest ago. */
static size_t ends(const lio_descriptors *files)
{
    return files->count;
}

static void unlink_file(lio_descriptors *files, size_t number)
{
    named_file *file = &files->files[number];
    files->files[file->newer].older = file->older;
    files->files[file->older].newer = file->newer;
}

static void link_newest(lio_descriptors *files, size_t number)
{
    named_file *file = &files->files[number], *end = &files->files[ends(files)];
    file->newer = ends(files);
    file->older = end->older;
    files->files[end->older].newer = number;
    end->older = number;
}

static bool is_file(const named_file *file, const struct stat *status)
{
    return (uint64_t)status->st_dev == file->id.device &&
           (uint64_t)status->st_ino == file->id.inode;
}

/* Opens the file of a name, if it is still the one that was known by it. */
static int open_named(const named_file *file, int advice, int *fd, lio_error *error)
{
    struct stat status;
    int code = lio_open_file(file->name, fd, error);
    if (code != LIO_OK)
        return code;
    if (fstat(*fd, &status) == 0 && is_file(file, &status)) {
        (void)posix_fadvise(*fd, 0, 0, advice);
        return LIO_OK;
    }
    (void)close(*fd);
    return lio_fail(error, LIO_ERR_CHANGED, 0, 0, 0,
                    "another file has taken its place since it was opened");
}

/* Closes the file that was used longest ago, of those that nobody has; false: there is none. The lock
 * is held. */
static bool close_oldest(lio_descriptors *files)
{
    size_t oldest = files->files[ends(files)].newer;
    if (oldest == ends(files))
        return false;
    LIO_ASSERT(files->files[oldest].takers == 0 && files->files[oldest].fd >= 0);
    unlink_file(files, oldest);
    (void)close(files->files[oldest].fd);
    files->files[oldest].fd = CLOSED;
    files->open--;
    return true;
}

/* Finds room for one more open file. The lock is held. */
static bool make_room(lio_descriptors *files)
{
    return files->open < files->open_max || close_oldest(files);
}

/* Opens `file`, for which there is room, without the lock, which is held before and after. Where the
 * process has no descriptor left, for others have them, one of ours goes. */
static int open_unlocked(lio_descriptors *files, named_file *file, lio_error *error)
{
    int code, fd = CLOSED;
    lio_error reason = {0};
    file->fd = OPENING;
    files->open++;
    do {
        (void)pthread_mutex_unlock(&files->lock);
        code = open_named(file, files->advice, &fd, &reason);
        (void)pthread_mutex_lock(&files->lock);
    } while (code == LIO_ERR_IO && reason.sys_errno == EMFILE && close_oldest(files));
    if (code != LIO_OK && error != NULL)
        *error = reason;
    file->fd = code == LIO_OK ? fd : CLOSED;
    files->open -= code != LIO_OK;
    (void)pthread_cond_broadcast(&files->changed);
    return code;
}

int lio_descriptors_take(lio_descriptors *files, size_t number, int *fd, lio_error *error)
{
    named_file *file = &files->files[number];
    int code = LIO_OK;
    LIO_ASSERT(number < files->count);
    (void)pthread_mutex_lock(&files->lock);
    while (file->fd == OPENING || (file->fd == CLOSED && !make_room(files)))
        (void)pthread_cond_wait(&files->changed, &files->lock);
    if (file->fd == CLOSED)
        code = open_unlocked(files, file, error);
    else if (file->takers == 0)
        unlink_file(files, number);
    if (code == LIO_OK) {
        file->takers++;
        *fd = file->fd;
    }
    (void)pthread_mutex_unlock(&files->lock);
    return code;
}

int lio_descriptors_try_take(lio_descriptors *files, size_t number, bool may_open)
{
    named_file *file = &files->files[number];
    bool is_quick;
    int fd;
    (void)pthread_mutex_lock(&files->lock);
    is_quick = file->fd >= 0 || (may_open && file->fd == CLOSED && make_room(files));
    (void)pthread_mutex_unlock(&files->lock);
    return is_quick && lio_descriptors_take(files, number, &fd, NULL) == LIO_OK ? fd : -1;
}

void lio_descriptors_give(lio_descriptors *files, size_t number)
{
    named_file *file = &files->files[number];
    (void)pthread_mutex_lock(&files->lock);
    LIO_ASSERT(file->takers > 0);
    if (--file->takers == 0) {
        link_newest(files, number);
        (void)pthread_cond_broadcast(&files->changed);
    }
    (void)pthread_mutex_unlock(&files->lock);
}

bool lio_descriptors_has(const lio_descriptors *files, size_t number, uint64_t size)
{
    struct stat status;
    return stat(files->files[number].name, &status) == 0 &&
           is_file(&files->files[number], &status) && (uint64_t)status.st_size >= size;
}

void lio_descriptors_advise(lio_descriptors *files, int advice)
{
    files->advice = advice;
    (void)posix_fadvise(files->files[0].fd, 0, 0, advice);
}

int lio_descriptors_first(const lio_descriptors *files)
{
    return files->files[0].fd;
}

static void ready_lock(lio_descriptors *files)
{
    (void)pthread_mutex_init(&files->lock, NULL);
    (void)pthread_cond_init(&files->changed, NULL);
}

void lio_descriptors_lock(lio_descriptors *files)
{
    (void)pthread_mutex_lock(&files->lock);
}

void lio_descriptors_unlock(lio_descriptors *files)
{
    (void)pthread_mutex_unlock(&files->lock);
}

/* The threads that had descriptors, waited or were opening one are the parent's. */
static void begin_child(lio_descriptors *files)
{
    ready_lock(files);
    files->open = 0;
    files->files[ends(files)].newer = files->files[ends(files)].older = ends(files);
    for (size_t i = 1; i < files->count; i++) {
        named_file *file = &files->files[i];
        file->takers = 0;
        file->fd = file->fd == OPENING ? CLOSED : file->fd;
        if (file->fd >= 0) {
            files->open++;
            link_newest(files, i);
        }
    }
}

/* --- forks -------------------------------------------------------------------------------- */

/* A thread that has Python's GIL may wait for a lock here. So whoever forks takes the locks in fork()
 * itself, where he needs nothing else, and not while Python's code runs. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER; /* taken before one of theirs */
static lio_descriptors *all;

static void before_fork(void)
{
    (void)pthread_mutex_lock(&all_lock);
    for (lio_descriptors *files = all; files != NULL; files = files->next)
        lio_descriptors_lock(files);
}

static void in_parent(void)
{
    for (lio_descriptors *files = all; files != NULL; files = files->next)
        lio_descriptors_unlock(files);
    (void)pthread_mutex_unlock(&all_lock);
}

static void in_child(void)
{
    for (lio_descriptors *files = all; files != NULL; files = files->next)
        begin_child(files);
    (void)pthread_mutex_init(&all_lock, NULL);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

static void enlist(lio_descriptors *files)
{
    (void)pthread_once(&once, watch_forks);
    (void)pthread_mutex_lock(&all_lock);
    files->next = all;
    all = files;
    (void)pthread_mutex_unlock(&all_lock);
}

static void delist(lio_descriptors *files)
{
    lio_descriptors **link = &all;
    (void)pthread_mutex_lock(&all_lock);
    while (*link != NULL && *link != files)
        link = &(*link)->next;
    if (*link == files)
        *link = files->next;
    (void)pthread_mutex_unlock(&all_lock);
}

/* --- the beginning and the end ------------------------------------------------------------ */

int lio_descriptors_open(const char *names, const lio_file_id *ids, size_t count,
                         uint32_t open_max, lio_descriptors **out, lio_error *error)
{
    lio_descriptors *files;
    const char *name = names;
    size_t bytes = 0;
    int fd, code;
    if (count == 0 || open_max == 0 || count > SIZE_MAX / sizeof files->files[0] - 2)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, count, "no files, or too many");
    for (size_t i = 0; i < count; i++)
        bytes += strlen(names + bytes) + 1;
    files = calloc(1, sizeof *files + (count + 1) * sizeof files->files[0]);
    if (files != NULL)
        files->names = malloc(bytes);
    if (files == NULL || files->names == NULL) {
        free(files);
        return lio_fail(error, LIO_ERR_NOMEM, 0, bytes, 0, "no memory for the names of files");
    }
    memcpy(files->names, names, bytes);
    name = files->names;
    for (size_t i = 0; i < count; i++, name += strlen(name) + 1)
        files->files[i] = (named_file){.name = name, .id = ids[i], .fd = CLOSED};
    files->count = count;
    files->files[count].newer = files->files[count].older = count;
    files->open_max = open_max;
    files->advice = POSIX_FADV_NORMAL;
    ready_lock(files);
    code = lio_descriptors_take(files, 0, &fd, error); /* for good */
    if (code != LIO_OK) {
        lio_descriptors_close(files);
        return code;
    }
    enlist(files);
    files->open--; /* it is none of those that come and go */
    *out = files;
    return LIO_OK;
}

void lio_descriptors_close(lio_descriptors *files)
{
    if (files == NULL)
        return;
    delist(files);
    for (size_t i = 0; i < files->count; i++)
        if (files->files[i].fd >= 0)
            (void)close(files->files[i].fd);
    (void)pthread_cond_destroy(&files->changed);
    (void)pthread_mutex_destroy(&files->lock);
    free(files->names);
    free(files);
}
