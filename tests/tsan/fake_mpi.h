/* fake_mpi: several ranks of an MPI in one process, as far as csrc/exchange_messages.c calls it.
 *
 *   nodes[i]: one rank, with a communicator of its own number, so that a call tells who makes it
 *
 * Handles are ints, as MPICH's. Messages between two ranks keep their order, as MPI promises;
 * everything else is drawn. A message is copied when it is sent, or read out of the sender's
 * memory when it is received; a probe may overlook it; an operation may end many looks later, and
 * half of a room is written when the receipt begins and the rest when it ends. Each rank has a
 * lock of its own and no other order is made between ranks, so that the sanitizer sees a buffer
 * that is used again too early. A node's requests and draws have no lock: if two threads called
 * for it at once, the sanitizer would see that too.
 */
#ifndef FAKE_MPI_H
#define FAKE_MPI_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "exchange.h"
#include "threads.h"

enum { NODES_MAX = 4, REQUESTS = 4096, COMMUNICATOR = 0x44000000, BYTE = 0x4c00010d };
enum { ANY_SOURCE = -2, UNDEFINED = -32766, NO_HANDLE = 0x2c000000 };

#define FAKE_MUST(test) ((test) ? (void)0 : give_up(-__LINE__, #test, NULL))

typedef struct message {
    struct message *next;
    int source, tag, bytes; /* the node that sent it */
    const uint8_t *from;    /* the sender's memory, in use until `is_read` */
    uint8_t *copy;          /* NULL: there is none, it is read from there */
    atomic_bool is_read;
    atomic_int holders; /* its sender's request, and the queue or its receiver's request */
} message;

typedef struct {
    bool is_used, is_receipt;
    message *message;
    uint8_t *into;
    uint32_t looks; /* until it may end */
} request;

typedef struct {
    int rank;
    uint64_t state;
    pthread_mutex_t lock; /* of the messages to this node */
    message *first, **last;
    request requests[REQUESTS];
    int64_t drained[NODES_MAX];
} node;

typedef struct {
    int low, high, source, tag, error;
} fake_status;

static node nodes[NODES_MAX];
static uint32_t node_count;

static void nodes_make(uint32_t count, uint64_t seed, const int32_t *ranks)
{
    node_count = count;
    for (uint32_t i = 0; i < count; i++) {
        node *n = &nodes[i];
        n->rank = ranks[i];
        n->state = seed + i;
        n->first = NULL;
        n->last = &n->first;
        memset(n->drained, 0, sizeof n->drained);
        FAKE_MUST(pthread_mutex_init(&n->lock, NULL) == 0);
    }
}

/* All that was sent has been received or drained, and all requests have ended. */
static void nodes_end(void)
{
    for (uint32_t i = 0; i < node_count; i++) {
        FAKE_MUST(nodes[i].first == NULL);
        for (int k = 0; k < REQUESTS; k++)
            FAKE_MUST(!nodes[i].requests[k].is_used);
        (void)pthread_mutex_destroy(&nodes[i].lock);
    }
}

static node *node_of(int communicator)
{
    FAKE_MUST(communicator >= COMMUNICATOR && communicator < COMMUNICATOR + (int)node_count);
    return &nodes[communicator - COMMUNICATOR];
}

static request *request_of(const void *handle, node **whose)
{
    int number;
    memcpy(&number, handle, sizeof number);
    FAKE_MUST(number >= 0 && number < (int)node_count * REQUESTS);
    *whose = &nodes[number / REQUESTS];
    request *r = &(*whose)->requests[number % REQUESTS];
    FAKE_MUST(r->is_used);
    return r;
}

static request *request_make(node *own, message *m, void *handle)
{
    int at = 0;
    while (at < REQUESTS && own->requests[at].is_used)
        at++;
    FAKE_MUST(at < REQUESTS);
    own->requests[at] = (request){.is_used = true, .message = m};
    at += (int)(own - nodes) * REQUESTS;
    memcpy(handle, &at, sizeof at);
    return &own->requests[at % REQUESTS];
}

static void handle_clear(void *handle)
{
    int none = NO_HANDLE;
    memcpy(handle, &none, sizeof none);
}

static void message_leave(message *m)
{
    if (atomic_fetch_sub(&m->holders, 1) == 1) {
        free(m->copy);
        free(m);
    }
}

/* Copies the bytes from `begin` to `end`. */
static void message_read(const message *m, uint8_t *into, int begin, int end)
{
    if (end > begin)
        memcpy(into + begin, (m->copy != NULL ? m->copy : m->from) + begin, (size_t)(end - begin));
}

static void message_end(message *m)
{
    atomic_store(&m->is_read, true);
    message_leave(m);
}

static int fake_isend(const void *from, int bytes, int byte, int rank, int tag, int communicator,
                      void *handle)
{
    node *own = node_of(communicator), *to = nodes;
    message *m = calloc(1, sizeof *m);
    while (to < nodes + node_count && to->rank != rank)
        to++;
    FAKE_MUST(m != NULL && to < nodes + node_count && byte == BYTE && bytes >= 0);
    *m = (message){.source = (int)(own - nodes), .tag = tag, .bytes = bytes, .from = from};
    atomic_init(&m->holders, 2);
    if (draw(&own->state, 2) == 0) {
        m->copy = malloc((size_t)bytes + 1);
        FAKE_MUST(m->copy != NULL);
        memcpy(m->copy, from, (size_t)bytes);
    }
    request_make(own, m, handle)->looks = draw(&own->state, 3) == 0
                                              ? (uint32_t)draw(&own->state, 30)
                                              : 0;
    (void)pthread_mutex_lock(&to->lock);
    *to->last = m;
    to->last = &m->next;
    (void)pthread_mutex_unlock(&to->lock);
    return 0;
}

/* Takes a message out of the queue, under the lock. */
static message *queue_take(node *own, message **at)
{
    message *m = *at;
    *at = m->next;
    if (*at == NULL)
        own->last = at;
    return m;
}

static int fake_improbe(int source, int tag, int communicator, int *flag, void *handle,
                        void *status)
{
    node *own = node_of(communicator);
    message *m = NULL, **found = NULL;
    int liked = (int)draw(&own->state, node_count); /* the first one of it, rather than others */
    FAKE_MUST(source == ANY_SOURCE);
    *flag = 0;
    if (draw(&own->state, 4) == 0)
        return 0;
    (void)pthread_mutex_lock(&own->lock);
    for (message **at = &own->first; *at != NULL; at = &(*at)->next)
        if ((*at)->tag == tag &&
            (found == NULL || ((*found)->source != liked && (*at)->source == liked)))
            found = at;
    if (found != NULL)
        m = queue_take(own, found);
    (void)pthread_mutex_unlock(&own->lock);
    if (m == NULL)
        return 0;
    *flag = 1;
    (void)request_make(own, m, handle);
    *(fake_status *)status = (fake_status){m->bytes, 0, nodes[m->source].rank, tag, 0};
    return 0;
}

static int fake_imrecv(void *into, int bytes, int byte, void *handle, void *out)
{
    node *own;
    request *r = request_of(handle, &own);
    FAKE_MUST(byte == BYTE && bytes == r->message->bytes && !r->is_receipt);
    memcpy(out, handle, sizeof(int));
    handle_clear(handle);
    r->is_receipt = true;
    r->into = into;
    r->looks = draw(&own->state, 2) == 0 ? (uint32_t)draw(&own->state, 20) : 0;
    message_read(r->message, into, 0, bytes / 2);
    return 0;
}

static int fake_mrecv(void *into, int bytes, int byte, void *handle, void *status)
{
    node *own;
    request *r = request_of(handle, &own);
    FAKE_MUST(byte == BYTE && bytes == r->message->bytes && !r->is_receipt);
    message_read(r->message, into, 0, bytes);
    message_end(r->message);
    memset(status, 0, sizeof(fake_status));
    r->is_used = false;
    handle_clear(handle);
    return 0;
}

static bool request_ends(node *own, request *r)
{
    message *m = r->message;
    if (r->looks > 0) {
        r->looks--;
        return false;
    }
    if (draw(&own->state, 4) == 0 ||
        (!r->is_receipt && m->copy == NULL && !atomic_load(&m->is_read)))
        return false;
    if (r->is_receipt) {
        message_read(m, r->into, m->bytes / 2, m->bytes);
        message_end(m);
    } else {
        message_leave(m);
    }
    r->is_used = false;
    return true;
}

static int fake_testsome(int count, void *handles, int *ended, int *indices, void *statuses)
{
    int none = NO_HANDLE;
    *ended = UNDEFINED;
    for (int i = 0; i < count; i++) {
        uint8_t *handle = (uint8_t *)handles + (size_t)i * sizeof none;
        node *own;
        if (memcmp(handle, &none, sizeof none) == 0) /* it has ended before */
            continue;
        *ended = *ended == UNDEFINED ? 0 : *ended;
        request *r = request_of(handle, &own);
        if (!request_ends(own, r))
            continue;
        handle_clear(handle);
        memset((fake_status *)statuses + *ended, 0, sizeof(fake_status));
        indices[(*ended)++] = i;
    }
    return 0;
}

static int fake_get_count(const void *status, int byte, int *bytes)
{
    FAKE_MUST(byte == BYTE);
    *bytes = ((const fake_status *)status)->low;
    return 0;
}

/* Receives all that has come to a node whose thread has ended, and drops it. */
static void node_drain(node *own)
{
    (void)pthread_mutex_lock(&own->lock);
    while (own->first != NULL) {
        message *m = queue_take(own, &own->first);
        own->drained[m->source]++;
        message_end(m);
    }
    (void)pthread_mutex_unlock(&own->lock);
}

static lio_mpi fake_mpi(uint32_t number)
{
    return (lio_mpi){
        .isend = (uint64_t)(uintptr_t)fake_isend,
        .improbe = (uint64_t)(uintptr_t)fake_improbe,
        .imrecv = (uint64_t)(uintptr_t)fake_imrecv,
        .mrecv = (uint64_t)(uintptr_t)fake_mrecv,
        .testsome = (uint64_t)(uintptr_t)fake_testsome,
        .get_count = (uint64_t)(uintptr_t)fake_get_count,
        .communicator = (uint64_t)COMMUNICATOR + number,
        .byte = BYTE,
        .handle_bytes = sizeof(int),
        .status_bytes = sizeof(fake_status),
        .source_offset = offsetof(fake_status, source),
        .any_source = ANY_SOURCE,
        .undefined = UNDEFINED,
    };
}

#endif
