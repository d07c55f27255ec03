/* Opens, sends and takes. Sockets are mesh_thread.c's. */
#include "mesh.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "contract.h"
#include "mesh_part.h"
#include "trace.h"

/* Messages of more than LIO_SPARE_FROM bytes and at most LIO_MESSAGE_BYTES are used again. */
enum { SPARE_FROM = 65536, SPARES_MAX = 32, BACKLOG = 4096, STACK_BYTES = 256 * 1024 };

static const uint8_t MAGIC[8] = "lmdbioM1";

/* --- opening ------------------------------------------------------------------------------ */

unsigned lio_mesh_name(const lio_mesh *m, uint32_t rank, struct sockaddr_un *out)
{
    /* The key is a secret, and names are not: a few of its bits are enough to tell jobs apart. */
    uint32_t job = lio_mesh_u32(m->greeting + sizeof MAGIC);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX}; /* the name's first byte stays 0 */
    int size = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "lmdbio-%08x-%u", job, rank);
    LIO_ASSERT(size > 0 && (size_t)size < sizeof out->sun_path - 1);
    return (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
}

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
    pthread_attr_t attributes;
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int problem = pthread_create(&m->thread, &attributes, lio_mesh_carry, m);
    (void)pthread_attr_destroy(&attributes);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    m->has_thread = problem == 0;
    if (problem != 0)
        return lio_fail_errno(error, problem, 0, 0, "cannot start a thread for messages");
    return LIO_OK;
}

int lio_mesh_open(uint32_t rank, uint32_t ranks, const uint8_t *key, lio_mesh **out,
                  lio_error *error)
{
    pthread_condattr_t clock;
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
    memcpy(m->greeting, MAGIC, sizeof MAGIC);
    memcpy(m->greeting + sizeof MAGIC, key, LIO_MESH_KEY_BYTES);
    lio_mesh_put_u32(m->greeting + sizeof MAGIC + LIO_MESH_KEY_BYTES, rank);
    lio_mesh_put_u32(m->greeting + sizeof MAGIC + LIO_MESH_KEY_BYTES + 4, ranks);
    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&m->moved, &clock);
    (void)pthread_condattr_destroy(&clock);
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

void lio_mesh_wake(lio_mesh *m)
{
    const uint64_t once = 1;
    (void)!write(m->wake, &once, sizeof once);
}

/* --- other ranks --------------------------------------------------------------------------- */

/* Under the lock; NULL: no memory. */
static lio_link *link_to(lio_mesh *m, uint32_t rank)
{
    lio_link *link = m->links[rank];
    if (link == NULL && (link = calloc(1, sizeof *link)) != NULL) {
        link->kind = LIO_LINK;
        link->rank = rank;
        link->fd = -1;
        link->next = m->all_links;
        m->all_links = m->links[rank] = link;
    }
    return link;
}

void lio_mesh_place(lio_mesh *m, uint32_t rank, const uint8_t *host, uint16_t port,
                    uint32_t is_near)
{
    if (rank >= m->ranks)
        return;
    (void)pthread_mutex_lock(&m->lock);
    lio_link *link = link_to(m, rank);
    if (link != NULL && !link->is_placed) {
        memcpy(link->host, host, sizeof link->host);
        link->port = port;
        link->is_near = is_near != 0;
        link->is_placed = true;
    }
    (void)pthread_mutex_unlock(&m->lock);
}

int lio_mesh_connect(lio_mesh *m, uint32_t rank, lio_error *error)
{
    if (rank >= m->ranks || rank == m->rank)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, m->ranks, rank, "no other rank is that");
    (void)pthread_mutex_lock(&m->lock);
    lio_link *link = link_to(m, rank);
    if (link != NULL)
        link->is_wanted = true;
    (void)pthread_mutex_unlock(&m->lock);
    if (link == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *link, 0, "no memory for messages");
    lio_mesh_wake(m);
    return LIO_OK;
}

/* --- sending ------------------------------------------------------------------------------- */

/* To this process itself. */
static int send_own(lio_mesh *m, int32_t tag, const uint8_t *bytes, uint64_t count,
                    lio_error *error)
{
    lio_mesh_message *message = lio_mesh_message_make(m, count);
    if (message == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory for a message");
    message->sender = m->rank;
    message->tag = tag;
    if (count > 0)
        memcpy(message->content, bytes, count);
    (void)pthread_mutex_lock(&m->lock);
    *m->arrived_end = message;
    m->arrived_end = &message->next;
    m->events++;
    (void)pthread_cond_broadcast(&m->moved);
    (void)pthread_mutex_unlock(&m->lock);
    return LIO_OK;
}

int lio_mesh_begin(lio_mesh *m, uint32_t rank, int32_t tag, const uint8_t *bytes, uint64_t count,
                   bool is_request, lio_sending **out, lio_error *error)
{
    if (rank >= m->ranks || (tag < 0 && tag != LIO_MESH_FAREWELL) || count > LIO_MESH_BYTES_MAX)
        return lio_fail(error, LIO_ERR_ARGUMENT, rank, LIO_MESH_BYTES_MAX, count,
                        "a message of impossible size, tag or receiver");
    size_t copied = is_request ? 0 : (size_t)count;
    lio_sending *one = calloc(1, sizeof *one + copied);
    if (one == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory for a message");
    one->is_request = is_request;
    one->from = is_request ? bytes : one->copy;
    one->count = count;
    if (copied > 0)
        memcpy(one->copy, bytes, copied);
    memcpy(one->head, m->greeting, 4);
    lio_mesh_put_u32(one->head + 4, (uint32_t)tag);
    lio_mesh_put_u32(one->head + 8, (uint32_t)count);
    lio_mesh_put_u32(one->head + 12, (uint32_t)(count >> 32));
    (void)pthread_mutex_lock(&m->lock);
    bool is_dropped = m->state[rank] != LIO_MESH_AWAY ||
                      (m->is_leaving && tag != LIO_MESH_FAREWELL) || m->pid != getpid();
    lio_link *link = is_dropped ? NULL : link_to(m, rank);
    if (link != NULL) {
        if (link->first == NULL)
            link->first = one;
        else
            link->last->next = one;
        link->last = one;
        link->is_wanted = true;
        m->unsent += count;
    }
    (void)pthread_mutex_unlock(&m->lock);
    if (link == NULL && !is_dropped) {
        free(one);
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *link, 0, "no memory for a message");
    }
    if (is_dropped && is_request)
        atomic_store(&one->has_ended, true);
    else if (is_dropped)
        free(one);
    else
        lio_mesh_wake(m);
    if (is_request)
        *out = one;
    return LIO_OK;
}

void lio_mesh_sending_free(lio_sending *request)
{
    LIO_ASSERT(request->is_request && atomic_load(&request->has_ended));
    free(request);
}

int lio_mesh_send(lio_mesh *m, uint32_t rank, int32_t tag, const uint8_t *bytes, uint64_t count,
                  lio_error *error)
{
    if (tag < 0)
        return lio_fail(error, LIO_ERR_ARGUMENT, rank, 0, 0, "no message has a tag below 0");
    if (rank == m->rank)
        return send_own(m, tag, bytes, count, error);
    return lio_mesh_begin(m, rank, tag, bytes, count, false, NULL, error);
}

/* --- taking -------------------------------------------------------------------------------- */

lio_mesh_message *lio_mesh_message_make(lio_mesh *m, uint64_t count)
{
    lio_mesh_message *message = NULL;
    uint64_t room = count;
    if (count > SPARE_FROM && count <= LIO_MESSAGE_BYTES) {
        room = LIO_MESSAGE_BYTES;
        (void)pthread_mutex_lock(&m->lock);
        message = m->spare;
        if (message != NULL) {
            m->spare = message->next;
            m->spares--;
        }
        (void)pthread_mutex_unlock(&m->lock);
    }
    if (message == NULL)
        message = malloc(sizeof *message + (size_t)room);
    if (message != NULL)
        *message = (lio_mesh_message){.mesh = m, .count = count, .room = room};
    return message;
}

void lio_mesh_message_free(lio_mesh_message *message)
{
    if (message == NULL)
        return;
    lio_mesh *m = message->mesh;
    bool is_kept = false;
    if (message->room == LIO_MESSAGE_BYTES) {
        (void)pthread_mutex_lock(&m->lock);
        is_kept = m->spares < SPARES_MAX;
        if (is_kept) {
            message->next = m->spare;
            m->spare = message;
            m->spares++;
        }
        (void)pthread_mutex_unlock(&m->lock);
    }
    if (!is_kept)
        free(message);
}

lio_mesh_message *lio_mesh_take(lio_mesh *m, int32_t tag)
{
    (void)pthread_mutex_lock(&m->lock);
    lio_mesh_message **at = &m->arrived;
    while (*at != NULL && tag != LIO_MESH_ANY_TAG && (*at)->tag != tag)
        at = &(*at)->next;
    lio_mesh_message *message = *at;
    if (message != NULL) {
        *at = message->next;
        if (message->next == NULL)
            m->arrived_end = at;
        message->next = NULL;
    }
    (void)pthread_mutex_unlock(&m->lock);
    return message;
}

uint32_t lio_mesh_message_sender(const lio_mesh_message *message)
{
    return message->sender;
}

uint64_t lio_mesh_message_bytes(const lio_mesh_message *message)
{
    return message->count;
}

const uint8_t *lio_mesh_message_content(const lio_mesh_message *message)
{
    return message->content;
}

int lio_mesh_wait(lio_mesh *m, uint64_t *seen, int timeout_ms)
{
    uint64_t until_ns = lio_now_ns() + (uint64_t)timeout_ms * 1000000;
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    int problem = 0;
    (void)pthread_mutex_lock(&m->lock);
    while (m->events == *seen && problem == 0)
        problem = pthread_cond_timedwait(&m->moved, &m->lock, &until);
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
    m->leave_until_ns = lio_now_ns() + (uint64_t)timeout_ms * 1000000;
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
