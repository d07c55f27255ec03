/* pfs: shows a folder at one or more mount points, as slow as the modelled store is.
 *
 *     pfs SERVERS STRIPE_KIB SERVER_MB_S REQUEST_MS OUT_OF_ORDER_MS CLIENT_MB_S READAHEAD_KIB
 *         IN_FLIGHT PAGE_CACHE FOLDER MOUNT...
 *
 * The constants are those of model.conf in its order, which pfs.py has checked and passes;
 * run.py is the command to use. Paths are absolute.
 *
 * Prints "ready" and, at the end, the counters. Ends at SIGINT, SIGTERM or SIGHUP, when its
 * standard input ends (so it outlives nobody), or when all mounts are gone.
 *
 *   kernel -> receiver, one thread per mount: everything but reads is answered here, at once
 *          -> store: reads, answered from its threads when due
 */
#define FUSE_USE_VERSION 312

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "store.h"
#include "tree.h"

/* The tree does not change, so what the kernel knows of it stays true. */
static const double FOREVER_S = 1e6;

/* getfattr -n user.pfs MOUNT: the counters. An attribute is read whole, is never cached and
 * passes by the model. */
static const char COUNTERS[] = "user.pfs";

enum { ROOM_OF_ENTRIES = 64 * 1024, EXIT_USAGE = 64, MOUNTS_MAX = 16, SERVERS_MAX = 32 };

/* Where each constant stands on the command line. */
enum {
    SERVERS = 1,
    STRIPE_KIB,
    SERVER_MB_S,
    REQUEST_MS,
    OUT_OF_ORDER_MS,
    CLIENT_MB_S,
    READAHEAD_KIB,
    IN_FLIGHT,
    PAGE_CACHE,
    FOLDER,
    FIRST_MOUNT
};

typedef struct server server;

typedef struct {
    server *of;
    uint32_t index;
    struct fuse_session *session;
    bool mounted, receiving;
    pthread_t receiver;
} mount_point;

struct server {
    pfs_constants constants;
    uint32_t readahead_bytes, in_flight;
    bool has_page_cache;
    pfs_store *store;
    pfs_tree *tree;
    int stop;  /* eventfd: receivers are to end */
    int ended; /* eventfd: how many have ended by themselves */
    uint32_t count;
    mount_point mounts[MOUNTS_MAX];
};

/* --- what the kernel asks ---------------------------------------------------------------- */

static server *server_of(fuse_req_t request)
{
    return ((mount_point *)fuse_req_userdata(request))->of;
}

/* A node's address is its number in FUSE; nodes live as long as the tree. */
static pfs_node *node_of(fuse_req_t request, fuse_ino_t number)
{
    return number == FUSE_ROOT_ID ? pfs_tree_root(server_of(request)->tree)
                                  : (pfs_node *)(uintptr_t)number;
}

static void on_init(void *user, struct fuse_conn_info *connection)
{
    const server *of = ((const mount_point *)user)->of;
    connection->max_readahead = of->readahead_bytes;
    connection->max_background = of->in_flight;
    connection->congestion_threshold = of->in_flight;
    connection->want |= connection->capable & (FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO);
    /* Requests are short (reads only), and a pipe does not go with a non-blocking device. */
    connection->want &= ~(unsigned)FUSE_CAP_SPLICE_READ;
}

static void on_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
    pfs_node *node;
    struct fuse_entry_param entry = {.attr_timeout = FOREVER_S, .entry_timeout = FOREVER_S};
    int error =
        pfs_tree_find(server_of(request)->tree, node_of(request, parent), name, &node);
    if (error != 0) {
        (void)fuse_reply_err(request, error);
        return;
    }
    entry.ino = (fuse_ino_t)(uintptr_t)node;
    entry.attr = node->stat;
    (void)fuse_reply_entry(request, &entry);
}

static void on_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
    (void)file;
    (void)fuse_reply_attr(request, &node_of(request, number)->stat, FOREVER_S);
}

static void on_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
    int error = pfs_tree_open_file(server_of(request)->tree, node_of(request, number));
    if (error != 0) {
        (void)fuse_reply_err(request, error);
        return;
    }
    file->keep_cache = 1; /* cold at mount, and from then on as any file system's */
    file->direct_io = !server_of(request)->has_page_cache;
    file->noflush = 1;
    (void)fuse_reply_open(request, file);
}

static void answer_read(void *context, const char *bytes, size_t size, int error)
{
    fuse_req_t request = context;
    if (error != 0)
        (void)fuse_reply_err(request, error);
    else
        (void)fuse_reply_buf(request, bytes, size);
}

static void on_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                    struct fuse_file_info *file)
{
    const mount_point *at = fuse_req_userdata(request);
    const pfs_node *node = node_of(request, number);
    (void)file;
    if (offset < 0 || offset >= node->stat.st_size || size == 0) {
        (void)fuse_reply_buf(request, NULL, 0);
        return;
    }
    if ((uint64_t)size > (uint64_t)(node->stat.st_size - offset))
        size = (size_t)(node->stat.st_size - offset);
    pfs_store_read(at->of->store, at->index, node->fd, node->layout, (uint64_t)offset, size,
                   answer_read, request);
}

/* Each call opens the folder anew and goes on at `offset`, so that there is nothing to keep
 * between calls. */
static void on_readdir(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                       struct fuse_file_info *file)
{
    char entries[ROOM_OF_ENTRIES];
    size_t room = size < sizeof entries ? size : sizeof entries, used = 0;
    const struct dirent *entry;
    DIR *list;
    int error = pfs_tree_list(server_of(request)->tree, node_of(request, number), &list);
    (void)file;
    if (error != 0) {
        (void)fuse_reply_err(request, error);
        return;
    }
    if (offset != 0)
        seekdir(list, offset);
    while ((entry = readdir(list)) != NULL) {
        struct stat brief = {.st_ino = entry->d_ino};
        size_t more;
        /* DT_LNK would be wrong, links are followed: no type is right for all. */
        more = fuse_add_direntry(request, entries + used, room - used, entry->d_name, &brief,
                                 entry->d_off);
        if (more > room - used)
            break;
        used += more;
    }
    (void)closedir(list);
    (void)fuse_reply_buf(request, entries, used);
}

static void on_getxattr(fuse_req_t request, fuse_ino_t number, const char *name, size_t size)
{
    char *text;
    size_t length;
    if (number != FUSE_ROOT_ID || strcmp(name, COUNTERS) != 0) {
        (void)fuse_reply_err(request, ENODATA);
        return;
    }
    text = pfs_store_counters(server_of(request)->store);
    length = text != NULL ? strlen(text) : 0;
    if (text == NULL)
        (void)fuse_reply_err(request, ENOMEM);
    else if (size == 0)
        (void)fuse_reply_xattr(request, length);
    else if (length > size)
        (void)fuse_reply_err(request, ERANGE);
    else
        (void)fuse_reply_buf(request, text, length);
    free(text);
}

static const struct fuse_lowlevel_ops OPERATIONS = {.init = on_init,
                                                    .lookup = on_lookup,
                                                    .getattr = on_getattr,
                                                    .open = on_open,
                                                    .read = on_read,
                                                    .readdir = on_readdir,
                                                    .getxattr = on_getxattr};

/* --- mounts ------------------------------------------------------------------------------ */

static void *receive(void *argument)
{
    mount_point *at = argument;
    struct fuse_buf buffer = {0};
    struct pollfd fds[] = {{fuse_session_fd(at->session), POLLIN, 0},
                           {at->of->stop, POLLIN, 0}};
    static const uint64_t one = 1;
    while (!fuse_session_exited(at->session)) {
        int got;
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            break;
        if (fds[1].revents != 0)
            break;
        got = fuse_session_receive_buf(at->session, &buffer);
        if (got > 0)
            fuse_session_process_buf(at->session, &buffer);
        else if (got != -EINTR && got != -EAGAIN)
            break;
    }
    free(buffer.mem);
    (void)!write(at->of->ended, &one, sizeof one);
    return NULL;
}

static bool start_mount(mount_point *at, const char *path)
{
    char program[] = "pfs", option[] = "-o", options[] = "ro,default_permissions,fsname=pfs";
    char *words[] = {program, option, options, NULL};
    struct fuse_args arguments = FUSE_ARGS_INIT(3, words);
    int device;
    at->session = fuse_session_new(&arguments, &OPERATIONS, sizeof OPERATIONS, at);
    fuse_opt_free_args(&arguments);
    if (at->session == NULL || fuse_session_mount(at->session, path) != 0)
        return false;
    at->mounted = true;
    /* poll says that there is a request; one that is withdrawn meanwhile must not block. */
    device = fuse_session_fd(at->session);
    if (fcntl(device, F_SETFL, fcntl(device, F_GETFL) | O_NONBLOCK) != 0)
        return false;
    at->receiving = pthread_create(&at->receiver, NULL, receive, at) == 0;
    return at->receiving;
}

/* --- the whole --------------------------------------------------------------------------- */

/* Returns when asked to end, or when all mounts are gone. */
static void wait_for_the_end(const server *all, int signals)
{
    char ignored[256];
    uint64_t gone = 0, more;
    struct pollfd fds[] = {
        {signals, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}, {all->ended, POLLIN, 0}};
    while (gone < all->count) {
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            return;
        if (fds[0].revents != 0)
            return;
        if (fds[1].revents != 0 && read(STDIN_FILENO, ignored, sizeof ignored) <= 0)
            return;
        if (fds[2].revents != 0 && read(all->ended, &more, sizeof more) == (ssize_t)sizeof more)
            gone += more;
    }
}

/* No read is under way afterwards, and nothing is mounted; files still open there give
 * errors. */
static void stop(server *all)
{
    static const uint64_t one = 1;
    (void)!write(all->stop, &one, sizeof one);
    for (uint32_t i = 0; i < all->count; i++)
        if (all->mounts[i].receiving)
            (void)pthread_join(all->mounts[i].receiver, NULL);
    pfs_store_stop(all->store);
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->mounts[i].mounted)
            fuse_session_unmount(all->mounts[i].session);
        if (all->mounts[i].session != NULL)
            fuse_session_destroy(all->mounts[i].session);
    }
}

static bool serve(server *all, char *const *paths, int signals)
{
    bool good = true;
    char *counters;
    for (uint32_t i = 0; i < all->count && good; i++) {
        all->mounts[i].of = all;
        all->mounts[i].index = i;
        good = start_mount(&all->mounts[i], paths[i]);
    }
    if (good) {
        (void)puts("ready");
        (void)fflush(stdout);
        wait_for_the_end(all, signals);
    }
    stop(all);
    counters = pfs_store_counters(all->store);
    if (good && counters != NULL)
        (void)puts(counters);
    free(counters);
    return good;
}

/* Signals arrive by a descriptor, in no thread. */
static int take_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Every file that was opened keeps its descriptor. */
static void raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

static bool run(server *all, const char *folder, char *const *paths)
{
    int signals = take_signals(), error = 0;
    bool good = false;
    raise_file_limit();
    all->stop = eventfd(0, EFD_CLOEXEC);
    all->ended = eventfd(0, EFD_CLOEXEC);
    all->store = pfs_store_open(&all->constants);
    if (signals < 0 || all->stop < 0 || all->ended < 0 || all->store == NULL)
        (void)fprintf(stderr, "no memory or no descriptors\n");
    else if ((error = pfs_tree_open(folder, pfs_store_model(all->store), &all->tree)) != 0)
        (void)fprintf(stderr, "%s: %s\n", folder, strerror(error));
    else
        good = serve(all, paths, signals);
    pfs_tree_close(all->tree);
    pfs_store_close(all->store);
    (void)close(all->ended);
    (void)close(all->stop);
    (void)close(signals);
    return good;
}

/* False, without a word, for numbers that pfs.py would not have passed. */
static bool read_constants(char *const *words, server *all)
{
    double values[FOLDER];
    for (int i = SERVERS; i < FOLDER; i++) {
        char *end;
        values[i] = strtod(words[i], &end);
        if (end == words[i] || *end != '\0' || !(values[i] >= 0 && values[i] < 4e9))
            return false;
    }
    all->constants = (pfs_constants){.servers = (uint32_t)values[SERVERS],
                                     .mounts = all->count,
                                     .stripe_bytes = (uint64_t)values[STRIPE_KIB] * 1024,
                                     .server_bytes_s = values[SERVER_MB_S] * 1e6,
                                     .client_bytes_s = values[CLIENT_MB_S] * 1e6,
                                     .request_ns = (uint64_t)(values[REQUEST_MS] * 1e6 + 0.5),
                                     .out_of_order_ns =
                                         (uint64_t)(values[OUT_OF_ORDER_MS] * 1e6 + 0.5)};
    all->readahead_bytes = (uint32_t)values[READAHEAD_KIB] * 1024;
    all->in_flight = (uint32_t)values[IN_FLIGHT];
    all->has_page_cache = values[PAGE_CACHE] > 0;
    return all->constants.servers > 0 && all->constants.servers <= SERVERS_MAX &&
           all->constants.stripe_bytes > 0 && values[SERVER_MB_S] > 0 &&
           values[CLIENT_MB_S] > 0 && all->in_flight > 0;
}

int main(int count, char **words)
{
    server *all = calloc(1, sizeof *all);
    bool good = all != NULL && count > FIRST_MOUNT && count <= FIRST_MOUNT + MOUNTS_MAX;
    if (good) {
        all->count = (uint32_t)(count - FIRST_MOUNT);
        good = read_constants(words, all);
    }
    if (!good) {
        (void)fprintf(stderr, "usage: pfs CONSTANTS... FOLDER MOUNT... (1 to %d mounts)\n",
                      MOUNTS_MAX);
        free(all);
        return EXIT_USAGE;
    }
    good = run(all, words[FOLDER], words + FIRST_MOUNT);
    free(all);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
