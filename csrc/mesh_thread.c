/* The thread of a mesh: connects, accepts, writes and reads. */
#include <errno.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "contract.h"
#include "mesh_part.h"
#include "trace.h"

/* Bytes that a connection may carry before others get their turn. */
enum { TURN_BYTES = 8 << 20, EVENTS = 64, RETRY_MS = 5 };
/* How often a rank is dialled again that ends a connection before it says its welcome. */
enum { REDIALS_MAX = 400 };
/* Those who connect and do not greet: how many may wait beside the ranks, how long, and how many are
 * accepted at a time. */
enum { STRANGERS_MAX = 64, GREET_SECONDS = 10, ACCEPTED_MAX = 64 };
/* A machine is lost after so many checks in a row that find it silent. */
enum { CHECK_MS = 1000, SILENT_CHECKS_MAX = LIO_MESH_ANSWER_SECONDS };

/* --- what callers hear of ---------------------------------------------------------------- */

/* Under the lock. */
static void end_sending(lio_mesh *m, lio_link *link)
{
    lio_sending *one = link->first;
    LIO_ASSERT(m->unsent >= one->count);
    m->unsent -= one->count;
    link->first = one->next;
    if (one->is_request)
        atomic_store(&one->has_ended, true); /* its owner may free it from now on */
    else
        free(one);
}

/* A child made by a bare fork() may hold the connection: closing alone would not end its events. */
static void close_watched(lio_mesh *m, int *fd)
{
    /* A child that is forked from now on does not close its number, which may be another's by then. */
    int watched = *fd;
    *fd = -1;
    if (watched >= 0) {
        (void)epoll_ctl(m->epoll, EPOLL_CTL_DEL, watched, NULL);
        (void)close(watched);
    }
}

static void close_link(lio_mesh *m, lio_link *link)
{
    close_watched(m, &link->fd);
    (void)pthread_mutex_lock(&m->lock);
    while (link->first != NULL)
        end_sending(m, link);
    lio_mesh_announce(m);
    (void)pthread_mutex_unlock(&m->lock);
}

/* A rank has left, or is lost: nothing is sent to it any more. None is lost to a rank that has left,
 * for others answer its farewell by an end of their connections. */
static void end_rank(lio_mesh *m, uint32_t rank, enum lio_mesh_state state, int sys_errno,
                     const char *what)
{
    (void)pthread_mutex_lock(&m->lock);
    bool is_news = m->state[rank] < LIO_MESH_LEFT;
    if (is_news) {
        state = m->has_left ? LIO_MESH_LEFT : state;
        m->state[rank] = (uint8_t)state;
        if (state == LIO_MESH_LOST && !m->has_lost) {
            m->has_lost = true;
            m->lost_rank = rank;
            if (sys_errno != 0)
                (void)lio_fail_errno(&m->lost_why, sys_errno, rank, 0, what);
            else
                (void)lio_fail(&m->lost_why, LIO_ERR_IO, rank, 0, 0, "%s", what);
        }
        lio_mesh_announce(m);
    }
    lio_link *link = m->links[rank];
    (void)pthread_mutex_unlock(&m->lock);
    if (is_news && link != NULL)
        close_link(m, link);
}

static void lose(lio_mesh *m, uint32_t rank, int sys_errno, const char *what)
{
    end_rank(m, rank, LIO_MESH_LOST, sys_errno, what);
}

/* --- to other ranks ---------------------------------------------------------------------- */

static bool add(lio_mesh *m, int fd, uint32_t events, lio_mesh_kind *what)
{
    struct epoll_event event = {.events = events, .data.ptr = what};
    return epoll_ctl(m->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Returns errno of the call; 0: connected. */
static int dial(lio_mesh *m, lio_link *link, bool is_near)
{
    struct sockaddr_storage to;
    socklen_t size = is_near ? (socklen_t)lio_mesh_name(m, link->rank, (struct sockaddr_un *)&to)
                             : (socklen_t)lio_mesh_address(link, &to);
    link->fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (link->fd < 0)
        return errno;
    if (is_near)
        lio_mesh_widen(link->fd);
    else
        lio_mesh_keep_alive(link->fd, false);
    if (!add(m, link->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, &link->kind))
        return errno;
    if (connect(link->fd, (const struct sockaddr *)&to, size) != 0)
        return errno;
    return !is_near || lio_mesh_is_own_user(link->fd)
               ? 0
               : EPERM; /* before it is greeted, with the key */
}

static void want(lio_mesh *m, lio_link *link)
{
    (void)pthread_mutex_lock(&m->lock);
    link->is_wanted = true;
    (void)pthread_mutex_unlock(&m->lock);
}

/* Takes what the listener at the other end has said; returns whether it was its farewell. */
static bool has_farewell(lio_mesh *m, lio_link *link)
{
    uint8_t said[2];
    bool is_farewell = false;
    ssize_t got = recv(link->fd, said, sizeof said, MSG_DONTWAIT);
    (void)pthread_mutex_lock(&m->lock);
    for (ssize_t i = 0; i < got; i++) {
        is_farewell |= said[i] == LIO_SAYS_FAREWELL;
        link->is_welcome |= said[i] == LIO_SAYS_WELCOME;
        if (said[i] == LIO_SAYS_WELCOME && m->state[link->rank] == LIO_MESH_AWAY) {
            m->state[link->rank] = LIO_MESH_HERE;
            lio_mesh_announce(m);
        }
    }
    (void)pthread_mutex_unlock(&m->lock);
    return is_farewell;
}

static bool was_ended(int sys_errno) /* by its other end */
{
    return sys_errno == 0 || sys_errno == ECONNRESET || sys_errno == EPIPE;
}

/* A listener closes the oldest of those who have not greeted where too many wait: a rank that had no time
 * to greet, too. Returns whether it is dialled anew. Nothing is lost: messages wait for the welcome. */
static bool redial(lio_mesh *m, lio_link *link, int sys_errno)
{
    if (!link->is_open || link->is_welcome || !was_ended(sys_errno) ||
        link->redials >= REDIALS_MAX)
        return false;
    link->redials++;
    link->not_before_ns = lio_now_ns() + RETRY_MS * 1000000ull;
    link->is_open = link->has_unanswered = false;
    link->greeted = link->silent_checks = 0;
    close_watched(m, &link->fd);
    want(m, link);
    return true;
}

static void end_link(lio_mesh *m, lio_link *link, int sys_errno, const char *what)
{
    bool has_left = link->fd >= 0 && has_farewell(m, link);
    if (!has_left && redial(m, link, sys_errno))
        return;
    (void)pthread_mutex_lock(&m->lock);
    if (m->has_met && m->state[link->rank] == LIO_MESH_AWAY) /* it listened once, no more */
        has_left |= was_ended(sys_errno) || sys_errno == ECONNREFUSED || link->redials > 0;
    (void)pthread_mutex_unlock(&m->lock);
    if (has_left)
        end_rank(m, link->rank, LIO_MESH_LEFT, 0, "");
    else
        lose(m, link->rank, sys_errno, what);
}

static void end_unreached(lio_mesh *m, lio_link *link, int sys_errno)
{
    struct sockaddr_storage to;
    socklen_t size = (socklen_t)lio_mesh_address(link, &to);
    char host[INET6_ADDRSTRLEN] = "?", what[sizeof m->lost_why.reason];
    (void)getnameinfo((const struct sockaddr *)&to, size, host, sizeof host, NULL, 0,
                      NI_NUMERICHOST);
    (void)snprintf(what, sizeof what,
                   "it cannot be reached at %s, port %u (LMDBIO_HOST on its machine says by which "
                   "address others reach that)",
                   host, link->port);
    end_link(m, link, sys_errno, what);
}

/* Returns whether the rank can be written to. */
static bool connect_to(lio_mesh *m, lio_link *link)
{
    bool is_near = link->is_near;
    int problem = 0;
    if (link->is_open)
        return true;
    if (link->fd >= 0)
        return false; /* under way */
    if (!link->is_placed) {
        lose(m, link->rank, 0, "nobody has said where it listens");
        return false;
    }
    problem = dial(m, link, is_near);
    if (is_near && problem != 0 && problem != EAGAIN) { /* another user or namespace of networks */
        close_watched(m, &link->fd);
        link->is_near = false;
        problem = dial(m, link, false);
    }
    link->is_open = problem == 0;
    if (problem == EAGAIN) { /* its queue of connections is full */
        close_watched(m, &link->fd);
        m->retries = true;
        want(m, link);
    } else if (problem != 0 && problem != EINPROGRESS) {
        end_unreached(m, link, problem);
    }
    return link->is_open;
}

/* Returns what is to be written next, in up to two pieces; 0: nothing. */
static int next_pieces(lio_mesh *m, lio_link *link, struct iovec pieces[2], lio_sending **of)
{
    int count = 0;
    *of = NULL;
    if (link->greeted < LIO_GREETING_BYTES) {
        pieces[0] = (struct iovec){m->greeting + link->greeted,
                                   LIO_GREETING_BYTES - link->greeted};
        return 1;
    }
    if (!link->is_welcome)
        return 0;
    (void)pthread_mutex_lock(&m->lock);
    lio_sending *one = *of = link->first;
    (void)pthread_mutex_unlock(&m->lock);
    if (one == NULL)
        return 0;
    if (one->sent < LIO_HEAD_BYTES)
        pieces[count++] = (struct iovec){one->head + one->sent, LIO_HEAD_BYTES - one->sent};
    uint64_t done = one->sent > LIO_HEAD_BYTES ? one->sent - LIO_HEAD_BYTES : 0;
    if (one->count > done)
        pieces[count++] = (struct iovec){(uint8_t *)(uintptr_t)one->from + done,
                                         one->count - done};
    return count;
}

static void note_written(lio_mesh *m, lio_link *link, lio_sending *one, uint64_t bytes)
{
    link->has_unanswered = m->has_unanswered = true;
    if (one == NULL) {
        link->greeted += bytes;
        return;
    }
    one->sent += bytes;
    if (one->sent < LIO_HEAD_BYTES + one->count)
        return;
    (void)pthread_mutex_lock(&m->lock);
    end_sending(m, link);
    if (m->unsent == 0)
        lio_mesh_announce(m);
    (void)pthread_mutex_unlock(&m->lock);
}

static void write_some(lio_mesh *m, lio_link *link)
{
    struct iovec pieces[2];
    lio_sending *one;
    int64_t left = TURN_BYTES;
    while (link->fd >= 0 && connect_to(m, link)) {
        int count = next_pieces(m, link, pieces, &one);
        if (count == 0)
            return;
        if (left <= 0) {
            want(m, link);
            return;
        }
        struct msghdr what = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
        ssize_t written = sendmsg(link->fd, &what, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (written >= 0) {
            left -= written;
            note_written(m, link, one, (uint64_t)written);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return; /* epoll tells when there is room again */
        } else if (errno != EINTR) {
            end_link(m, link, errno, "its connection broke");
            return;
        }
    }
}

static void link_event(lio_mesh *m, lio_link *link, uint32_t events)
{
    int problem = 0;
    socklen_t size = sizeof problem;
    if (link->fd < 0)
        return;
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0 && !link->is_open) {
        (void)getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &problem, &size);
        if (problem != 0) {
            end_unreached(m, link, problem);
            return;
        }
        link->is_open = true;
    }
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        (void)getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &problem, &size);
        end_link(m, link, problem,
                 was_ended(problem) ? "its process has ended" : "its connection broke");
        return;
    }
    if ((events & EPOLLIN) != 0 && has_farewell(m, link)) {
        end_rank(m, link->rank, LIO_MESH_LEFT, 0, "");
        return;
    }
    write_some(m, link);
}

/* Ends ranks whose machines do not answer. Counts checks, not time: this process may be stopped. */
static void check_answers(lio_mesh *m)
{
    uint64_t now_ns = lio_now_ns(), since_ms = (now_ns - m->checked_ns) / 1000000;
    if (!m->has_unanswered || since_ms < CHECK_MS)
        return;
    m->checked_ns = now_ns;
    m->has_unanswered = false;
    (void)pthread_mutex_lock(&m->lock);
    lio_link *link = m->all_links; /* new ones come before it */
    (void)pthread_mutex_unlock(&m->lock);
    for (; link != NULL; link = link->next) {
        int waiting = 0; /* bytes; a Unix socket has none of this */
        if (link->fd < 0 || !link->has_unanswered)
            continue;
        link->has_unanswered = !link->is_near && ioctl(link->fd, SIOCOUTQ, &waiting) == 0 &&
                               waiting > 0;
        bool is_quiet = link->has_unanswered && lio_mesh_is_silent(link->fd, since_ms);
        link->silent_checks = is_quiet ? link->silent_checks + 1 : 0;
        if (link->silent_checks >= SILENT_CHECKS_MAX)
            lose(m, link->rank, ETIMEDOUT, "its machine does not answer");
        else
            m->has_unanswered |= link->has_unanswered;
    }
}

/* Carries on all links for which somebody has asked. */
static void serve_links(lio_mesh *m)
{
    lio_link *link;
    uint64_t now_ns = lio_now_ns();
    m->retries = false;
    (void)pthread_mutex_lock(&m->lock);
    link = m->all_links; /* new ones come before it */
    (void)pthread_mutex_unlock(&m->lock);
    for (; link != NULL; link = link->next) {
        (void)pthread_mutex_lock(&m->lock);
        bool is_wanted = link->is_wanted && m->state[link->rank] < LIO_MESH_LEFT &&
                         (!m->has_left || link->first != NULL);
        link->is_wanted = is_wanted && now_ns < link->not_before_ns;
        m->retries |= link->is_wanted;
        is_wanted &= !link->is_wanted;
        (void)pthread_mutex_unlock(&m->lock);
        if (is_wanted && (link->fd >= 0 || connect_to(m, link)))
            write_some(m, link);
    }
}

/* --- from other ranks -------------------------------------------------------------------- */

static void accept_some(lio_mesh *m, int listener)
{
    for (int i = 0; i < ACCEPTED_MAX; i++) { /* epoll tells again where there are more */
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) /* it stays in the queue */
                (void)nanosleep(&(struct timespec){0, RETRY_MS * 1000000}, NULL);
            return;
        }
        bool is_known = listener == m->listeners[0] || lio_mesh_is_own_user(fd);
        lio_incoming *one = is_known ? calloc(1, sizeof *one) : NULL;
        if (one == NULL) {
            (void)close(fd);
            continue;
        }
        *one = (lio_incoming){.kind = LIO_INCOMING,
                              .fd = fd,
                              .rank = -1,
                              .since_ns = lio_now_ns(),
                              .next = m->incoming};
        if (listener == m->listeners[0])
            lio_mesh_keep_alive(fd, true);
        if (!add(m, fd, EPOLLIN | EPOLLRDHUP, &one->kind)) {
            (void)close(fd);
            free(one);
            continue;
        }
        m->incoming = one;
        m->strangers++;
    }
}

static void close_incoming(lio_mesh *m, lio_incoming *one)
{
    lio_incoming **at = &m->incoming;
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    m->strangers -= one->rank < 0;
    close_watched(m, &one->fd);
    if (one->message != NULL)
        lio_mesh_message_free(one->message);
    free(one);
}

/* Ends those who do not greet in time, and the oldest ones where too many wait. */
static void end_strangers(lio_mesh *m)
{
    uint64_t now_ns = lio_now_ns(), newer = 0;
    for (lio_incoming *one = m->incoming, *next; one != NULL; one = next) { /* newest first */
        int unread = 0;
        next = one->next;
        if (one->rank >= 0)
            continue;
        bool has_to_go = newer++ >= STRANGERS_MAX + (uint64_t)m->ranks ||
                         now_ns - one->since_ns >= GREET_SECONDS * 1000000000ull;
        if (has_to_go && ioctl(one->fd, FIONREAD, &unread) == 0 && unread == 0)
            close_incoming(m, one); /* else its greeting may lie there: this process was stopped */
    }
}

static bool is_heard(const lio_mesh *m, uint32_t rank)
{
    for (const lio_incoming *one = m->incoming; one != NULL; one = one->next)
        if (one->rank == rank)
            return true;
    return false;
}

static void say(const lio_incoming *one, uint8_t what)
{
    (void)send(one->fd, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Has each of two machines hear of the other one's end, while the one that writes waits for the other. */
static void connect_back(lio_mesh *m, uint32_t rank)
{
    (void)pthread_mutex_lock(&m->lock);
    lio_link *link = m->links[rank];
    if (link != NULL && link->is_placed && !link->is_near)
        link->is_wanted = true;
    (void)pthread_mutex_unlock(&m->lock);
}

/* Returns whether a rank of this job has greeted. */
static bool take_greeting(lio_mesh *m, lio_incoming *one)
{
    const size_t said = LIO_GREETING_BYTES - 2 * sizeof(uint32_t);
    uint8_t differs = 0;
    uint32_t rank = lio_mesh_u32(one->head + said), ranks = lio_mesh_u32(one->head + said + 4);
    for (size_t i = 0; i < said; i++) /* takes as long wherever they differ */
        differs |= (uint8_t)(one->head[i] ^ m->greeting[i]);
    if (differs != 0 || ranks != m->ranks || rank >= ranks || rank == m->rank || is_heard(m, rank))
        return false;
    one->rank = rank;
    m->strangers--;
    say(one, LIO_SAYS_WELCOME);
    if (m->has_left) /* it has said farewell to all that it had heard by then */
        say(one, LIO_SAYS_FAREWELL);
    else
        connect_back(m, rank);
    return true;
}

/* Returns whether a message may follow. */
static bool take_head(lio_mesh *m, lio_incoming *one)
{
    uint32_t rank = (uint32_t)one->rank;
    int32_t tag = (int32_t)lio_mesh_u32(one->head + 4);
    uint64_t count = lio_mesh_u64(one->head + 8);
    if (lio_mesh_u32(one->head) != lio_mesh_u32(m->greeting) || count > LIO_MESH_BYTES_MAX ||
        (tag < 0 && tag != LIO_MESH_FAREWELL)) {
        lose(m, rank, 0, "it sent what is no message");
        return false;
    }
    if (tag == LIO_MESH_FAREWELL) {
        end_rank(m, rank, LIO_MESH_LEFT, 0, "");
        return false;
    }
    one->message = lio_mesh_message_make(m, count);
    if (one->message == NULL) {
        lose(m, rank, ENOMEM, "no memory for its message");
        return false;
    }
    one->message->sender = rank;
    one->message->tag = tag;
    return true;
}

/* Goes on with what is complete; returns whether the connection goes on. */
static bool take_piece(lio_mesh *m, lio_incoming *one)
{
    if (one->message == NULL) {
        if (one->got < (one->rank < 0 ? LIO_GREETING_BYTES : LIO_HEAD_BYTES))
            return true;
        one->got = 0;
        if (one->rank < 0)
            return take_greeting(m, one);
        if (!take_head(m, one))
            return false;
    }
    if (one->got == one->message->count) {
        one->got = 0;
        lio_mesh_arrive(m, one->message);
        one->message = NULL;
    }
    return true;
}

static void read_some(lio_mesh *m, lio_incoming *one)
{
    for (int64_t left = TURN_BYTES; left > 0;) {
        uint64_t whole = one->message != NULL ? one->message->count
                         : one->rank < 0      ? LIO_GREETING_BYTES
                                              : LIO_HEAD_BYTES;
        uint8_t *into = one->message != NULL ? one->message->content : one->head;
        ssize_t got = recv(one->fd, into + one->got, whole - one->got, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (got <= 0) {
            if (one->rank >= 0)
                lose(m, (uint32_t)one->rank, got < 0 ? errno : 0,
                     got < 0 ? "its connection broke" : "its process has ended");
            close_incoming(m, one);
            return;
        }
        left -= got;
        one->got += (uint64_t)got;
        if (!take_piece(m, one)) {
            close_incoming(m, one);
            return;
        }
    }
}

/* --- the thread -------------------------------------------------------------------------- */

/* Queues a farewell to each rank that is connected. */
static void say_farewell(lio_mesh *m)
{
    m->has_left = true;
    for (lio_incoming *one = m->incoming; one != NULL; one = one->next)
        if (one->rank >= 0)
            say(one, LIO_SAYS_FAREWELL);
    for (lio_link *link = m->all_links; link != NULL; link = link->next)
        if (link->fd >= 0 || link->first != NULL)
            (void)lio_mesh_begin(m, link->rank, LIO_MESH_FAREWELL, NULL, 0, false, NULL, NULL);
}

/* Returns whether the thread ends now. */
static bool is_over(lio_mesh *m)
{
    bool is_over = false, has_more = false;
    (void)pthread_mutex_lock(&m->lock);
    bool is_leaving = m->is_leaving;
    if (is_leaving) {
        for (lio_link *link = m->all_links; link != NULL; link = link->next)
            has_more |= link->first != NULL;
        is_over = !has_more || lio_now_ns() >= m->leave_until_ns;
    }
    (void)pthread_mutex_unlock(&m->lock);
    if (is_leaving && is_over && !m->has_left) {
        say_farewell(m);
        return false; /* these are sent as well, if there is room for them */
    }
    return is_over;
}

static int wait_ms(lio_mesh *m)
{
    int limit = m->retries ? RETRY_MS : m->strangers > 0 || m->has_unanswered ? CHECK_MS : -1;
    (void)pthread_mutex_lock(&m->lock);
    for (lio_link *link = m->all_links; link != NULL && limit != 0; link = link->next)
        if (link->is_wanted && !m->retries)
            limit = 0;
    if (m->is_leaving && (limit < 0 || limit > RETRY_MS))
        limit = RETRY_MS;
    (void)pthread_mutex_unlock(&m->lock);
    return limit;
}

static void take_event(lio_mesh *m, const struct epoll_event *event)
{
    lio_mesh_kind *what = event->data.ptr;
    uint64_t times;
    switch (*what) {
    case LIO_WOKEN:
        (void)!read(m->wake, &times, sizeof times);
        break;
    case LIO_LISTENER:
        accept_some(m, m->listeners[what - m->listener]);
        break;
    case LIO_LINK:
        link_event(m, (lio_link *)(void *)what, event->events);
        break;
    case LIO_INCOMING:
        read_some(m, (lio_incoming *)(void *)what);
        break;
    }
}

void *lio_mesh_carry(void *mesh)
{
    lio_mesh *m = mesh;
    struct epoll_event events[EVENTS];
    while (!is_over(m)) {
        serve_links(m);
        int count = epoll_wait(m->epoll, events, EVENTS, wait_ms(m));
        for (int i = 0; i < count; i++)
            take_event(m, &events[i]);
        check_answers(m);
        if (m->strangers > 0) /* not before: a later event might be one's */
            end_strangers(m);
    }
    while (m->incoming != NULL)
        close_incoming(m, m->incoming);
    for (lio_link *link = m->all_links; link != NULL; link = link->next) {
        link->is_welcome = true; /* who says it too late, for it is stopped, reads all the same */
        write_some(m, link);
        close_link(m, link);
    }
    return NULL;
}
