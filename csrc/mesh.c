/* Opens, waits and ends. Messages are mesh_queue.c's, connections mesh_thread.c's. */
#include "mesh.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "contract.h"
#include "mesh_part.h"
#include "thread.h"

enum { BACKLOG = 4096, STACK_BYTES = 256 * 1024 };

/* --- opening ------------------------------------------------------------------------------ */

/* Listens at any address, of IPv6 and IPv4, or of IPv4 alone. */
static int listen_far(lio_mesh *m, lio_error *error)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    struct sockaddr_in old = {.sin_family = AF_INET};
    socklen_t size = sizeof any;
    int off = 0;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
                    bind(fd, (struct sockaddr *)&any, sizeof any) != 0)) {
        (void)close(fd);
        fd = -1;
    }
    if (fd < 0) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&old, sizeof old) != 0) {
            (void)close(fd);
            fd = -1;
        }
    }
    m->listeners[0] = fd;
    if (fd < 0 || listen(fd, BACKLOG) != 0 || getsockname(fd, (struct sockaddr *)&any, &size) != 0)
        return lio_fail_errno(error, errno, 0, 0, "cannot listen for other ranks");
    m->port = ntohs(any.sin6_port); /* lies where that of IPv4 does */
    return LIO_OK;
}

/* Ranks of this machine reach it by TCP, too: nothing fails. */
static void listen_near(lio_mesh *m)
{
    struct sockaddr_un name;
    socklen_t size = (socklen_t)lio_mesh_name(m, m->rank, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && (bind(fd, (struct sockaddr *)&name, size) != 0 || listen(fd, BACKLOG) != 0)) {
        (void)close(fd);
        fd = -1;
    }
    m->listeners[1] = fd;
}

static int poll_by(lio_mesh *m, int fd, lio_mesh_kind *what, lio_error *error)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    if (epoll_ctl(m->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return lio_fail_errno(error, errno, 0, 0, "cannot wait for other ranks");
    return LIO_OK;
}

static int open_sockets(lio_mesh *m, lio_error *error)
{
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->epoll < 0 || m->wake < 0)
        return lio_fail_errno(error, errno, 0, 0, "cannot wait for other ranks");
    int code = listen_far(m, error);
    listen_near(m);
    if (code == LIO_OK)
        code = poll_by(m, m->wake, &m->woken, error);
    for (int i = 0; i < 2 && code == LIO_OK; i++)
        if (m->listeners[i] >= 0)
            code = poll_by(m, m->listeners[i], &m->listener[i], error);
    return code;
}

static int start(lio_mesh *m, lio_error *error)
{
    int problem = lio_thread_start(&m->thread, STACK_BYTES, lio_mesh_carry, m);
    m->has_thread = problem == 0;
    if (problem != 0)
        return lio_fail_errno(error, problem, 0, 0, "cannot start a thread for messages");
    return LIO_OK;
}

int lio_mesh_open(uint32_t rank, uint32_t ranks, const uint8_t *key, lio_mesh **out,
                  lio_error *error)
{
    if (rank >= ranks || ranks > LIO_MESH_RANKS_MAX)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, ranks, rank, "a job has no such rank");
    lio_mesh *m = calloc(1, sizeof *m);
    if (m == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *m, 0, "no memory for messages");
    m->rank = rank;
    m->ranks = ranks;
    m->pid = getpid();
    m->epoll = m->wake = m->listeners[0] = m->listeners[1] = -1;
    m->woken = LIO_WOKEN;
    m->listener[0] = m->listener[1] = LIO_LISTENER;
    m->arrived_end = &m->arrived;
    memcpy(m->greeting, LIO_MESH_MAGIC, sizeof LIO_MESH_MAGIC);
    memcpy(m->greeting + sizeof LIO_MESH_MAGIC, key, LIO_MESH_KEY_BYTES);
    lio_mesh_put_u32(m->greeting + sizeof LIO_MESH_MAGIC + LIO_MESH_KEY_BYTES, rank);
    lio_mesh_put_u32(m->greeting + sizeof LIO_MESH_MAGIC + LIO_MESH_KEY_BYTES + 4, ranks);
    (void)pthread_mutex_init(&m->lock, NULL);
    lio_condition_make(&m->moved);
    m->links = calloc(ranks, sizeof(lio_link *));
    m->state = calloc(ranks, 1);
    int code = m->links == NULL || m->state == NULL
                   ? lio_fail(error, LIO_ERR_NOMEM, 0, ranks, 0, "no memory for messages")
                   : open_sockets(m, error);
    if (code == LIO_OK)
        code = start(m, error);
    if (code != LIO_OK) {
        lio_mesh_close(m);
        return code;
    }
    *out = m;
    return LIO_OK;
}

uint16_t lio_mesh_port(const lio_mesh *m)
{
    return m->port;
}

/* --- waiting ------------------------------------------------------------------------------- */

int lio_mesh_wait(lio_mesh *m, uint64_t *seen, int timeout_ms)
{
    uint64_t deadline = lio_moment_after(timeout_ms);
    bool in_time = true;
    (void)pthread_mutex_lock(&m->lock);
    while (m->events == *seen && in_time)
        in_time = lio_wait_until(&m->moved, &m->lock, deadline);
    int code = m->events == *seen ? LIO_PENDING : LIO_OK;
    *seen = m->events;
    (void)pthread_mutex_unlock(&m->lock);
    return code;
}

void lio_mesh_states(lio_mesh *m, uint8_t *out)
{
    (void)pthread_mutex_lock(&m->lock);
    memcpy(out, m->state, m->ranks);
    (void)pthread_mutex_unlock(&m->lock);
}

int lio_mesh_lost(lio_mesh *m, uint32_t *rank, lio_error *why)
{
    (void)pthread_mutex_lock(&m->lock);
    bool has_lost = m->has_lost;
    if (has_lost) {
        *rank = m->lost_rank;
        *why = m->lost_why;
    }
    (void)pthread_mutex_unlock(&m->lock);
    return has_lost;
}

uint64_t lio_mesh_unsent(lio_mesh *m)
{
    (void)pthread_mutex_lock(&m->lock);
    uint64_t unsent = m->unsent;
    (void)pthread_mutex_unlock(&m->lock);
    return unsent;
}

/* --- the end ------------------------------------------------------------------------------- */

static void close_once(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void lio_mesh_leave(lio_mesh *m, int timeout_ms)
{
    if (!m->has_thread || m->pid != getpid())
        return;
    (void)pthread_mutex_lock(&m->lock);
    m->is_leaving = true;
    m->leave_until_ns = lio_moment_after(timeout_ms);
    (void)pthread_mutex_unlock(&m->lock);
    lio_mesh_wake(m);
    (void)pthread_join(m->thread, NULL);
    m->has_thread = false;
    close_once(&m->listeners[0]); /* nobody is to wait for an answer */
    close_once(&m->listeners[1]);
}

static void free_messages(lio_mesh_message *message)
{
    while (message != NULL) {
        lio_mesh_message *next = message->next;
        free(message);
        message = next;
    }
}

static void close_sockets(lio_mesh *m)
{
    close_once(&m->listeners[0]);
    close_once(&m->listeners[1]);
    close_once(&m->wake);
    close_once(&m->epoll);
}

void lio_mesh_close(lio_mesh *m)
{
    if (m == NULL)
        return;
    if (m->pid !=
        getpid()) { /* the parent's lock may be held for ever, and its lists be in change */
        for (lio_link *link = m->all_links; link != NULL; link = link->next)
            close_once(&link->fd);
        for (lio_incoming *one = m->incoming; one != NULL; one = one->next)
            close_once(&one->fd);
        close_sockets(m);
        return;
    }
    lio_mesh_leave(m, 0);
    close_sockets(m);
    while (m->all_links != NULL) {
        lio_link *link = m->all_links;
        m->all_links = link->next;
        free(link);
    }
    free_messages(m->arrived);
    free_messages(m->spare);
    free(m->links);
    free(m->state);
    (void)pthread_cond_destroy(&m->moved);
    (void)pthread_mutex_destroy(&m->lock);
    free(m);
}
