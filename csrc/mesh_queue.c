/* Messages to be sent, and those that have arrived: callers and the thread hand them to each other. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "contract.h"
#include "mesh_part.h"

/* Messages of more than SPARE_FROM bytes and at most LIO_MESSAGE_BYTES are used again. */
enum { SPARE_FROM = 65536, SPARES_MAX = 32 };

unsigned lio_mesh_name(const lio_mesh *m, uint32_t rank, struct sockaddr_un *out)
{
    /* The key is a secret, and names are not: a few of its bits are enough to tell jobs apart. */
    uint32_t job = lio_mesh_u32(m->greeting + sizeof LIO_MESH_MAGIC);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX}; /* the name's first byte stays 0 */
    int size = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "lmdbio-%08x-%u", job, rank);
    LIO_ASSERT(size > 0 && (size_t)size < sizeof out->sun_path - 1);
    return (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
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

void lio_mesh_met(lio_mesh *m)
{
    (void)pthread_mutex_lock(&m->lock);
    m->has_met = true;
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
    lio_mesh_arrive(m, message);
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
    bool is_dropped = m->state[rank] >= LIO_MESH_LEFT ||
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

void lio_mesh_announce(lio_mesh *m)
{
    m->events++;
    (void)pthread_cond_broadcast(&m->moved);
}

void lio_mesh_arrive(lio_mesh *m, lio_mesh_message *message)
{
    (void)pthread_mutex_lock(&m->lock);
    *m->arrived_end = message;
    m->arrived_end = &message->next;
    lio_mesh_announce(m);
    (void)pthread_mutex_unlock(&m->lock);
}

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

/* Under the lock: the place of the oldest message with a tag, or that of `which`. */
static lio_mesh_message **find(lio_mesh *m, int32_t tag, const lio_mesh_message *which)
{
    lio_mesh_message **at = &m->arrived;
    while (*at != NULL &&
           (which != NULL ? *at != which : tag != LIO_MESH_ANY_TAG && (*at)->tag != tag))
        at = &(*at)->next;
    return at;
}

/* Under the lock. */
static lio_mesh_message *take_at(lio_mesh *m, lio_mesh_message **at)
{
    lio_mesh_message *message = *at;
    if (message != NULL) {
        *at = message->next;
        if (message->next == NULL)
            m->arrived_end = at;
        message->next = NULL;
    }
    return message;
}

const lio_mesh_message *lio_mesh_first(lio_mesh *m, int32_t tag)
{
    (void)pthread_mutex_lock(&m->lock);
    const lio_mesh_message *message = *find(m, tag, NULL);
    (void)pthread_mutex_unlock(&m->lock);
    return message;
}

void lio_mesh_drop(lio_mesh *m, const lio_mesh_message *which)
{
    (void)pthread_mutex_lock(&m->lock);
    lio_mesh_message *message = take_at(m, find(m, 0, which));
    (void)pthread_mutex_unlock(&m->lock);
    LIO_ASSERT(message != NULL);
    lio_mesh_message_free(message);
}

lio_mesh_message *lio_mesh_take(lio_mesh *m, int32_t tag)
{
    (void)pthread_mutex_lock(&m->lock);
    lio_mesh_message *message = take_at(m, find(m, tag, NULL));
    (void)pthread_mutex_unlock(&m->lock);
    return message;
}
