/* engine_queue: requests that are in flight together, and the threads that carry them.
 *
 *   submit -> [ticket] -> [ticket] -> ...      threads take requests from the first ticket
 *                                              that has one left, in order
 *
 * Each thread performs one request at a time; or, where the queue has a ring, one thread hands all
 * of them to the kernel. Where the system gives no thread, the caller that waits for a ticket does its
 * requests. Hints have a queue of their own: one thread at a time comes to them, when no request
 * waits.
 *
 * A queue belongs to the process that made it. After fork the child finds another process id
 * in it and makes one of its own; the parent's is left alone (its threads do not exist in
 * the child and its mutex may be held), at the price of the queue's few hundred bytes.
 *
 * Private to the engine, which hands it tickets.
 */
#ifndef LIO_ENGINE_QUEUE_H
#define LIO_ENGINE_QUEUE_H

#include <stdbool.h>

#include "engine_private.h"

struct lio_ticket {
    lio_queue *owner;
    lio_ticket *next; /* in the queue */
    size_t count, begun, running;
    size_t hands;                    /* threads that it is worth */
    uint64_t submitted_ns, ended_ns; /* the second is 0 until it has ended */
    uint64_t queued_ns;              /* what the page cache had was served by then */
    bool queued;
    lio_error error; /* code LIO_OK while none */
    lio_read reads[];
};

/* Extents to prefault. */
typedef struct lio_hint {
    struct lio_hint *next; /* in the queue */
    size_t count, begun;
    lio_extent extents[];
} lio_hint;

/* This process's queue; made on first use and again after fork. */
int lio_queue_of(lio_engine *engine, lio_queue **out, lio_error *error);

/* Ends its threads, or leaves a parent's alone. NULL: there is none. */
void lio_queue_close(lio_queue *queue);

/* A ticket with room for `count` reads, none of them filled in. */
int lio_ticket_make(lio_queue *owner, size_t count, lio_ticket **out, lio_error *error);

/* Hands a ticket whose requests are filled in to the threads. */
void lio_ticket_start(lio_ticket *ticket);

/* Queues a hint from malloc, which is the queue's from now on. */
void lio_queue_hint(lio_queue *queue, lio_hint *hint);

#endif
