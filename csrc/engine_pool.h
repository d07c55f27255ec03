/* engine_pool: requests that are in flight together, and the threads that carry them.
 *
 *   submit -> [ticket] -> [ticket] -> ...      threads take requests from the first ticket
 *                                              that has one left, in order
 *
 * Each thread performs one request at a time; or, where the pool has a ring, one thread hands all
 * of them to the kernel. Hints have a queue of their own: one thread at a time comes to them, when
 * no request waits.
 *
 * A pool belongs to the process that made it. After fork the child finds another process id
 * in it and makes a pool of its own; the parent's is left alone (its threads do not exist in
 * the child and its mutex may be held), at the price of the pool's few hundred bytes.
 *
 * Private to the engine: what it consists of, and what its two files have of each other.
 */
#ifndef LIO_ENGINE_POOL_H
#define LIO_ENGINE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "engine_kind.h"
#include "trace.h"

enum {
    LIO_ENGINE_DEPTH_MAX = 256,
    LIO_TALLIED = sizeof(lio_tally) / sizeof(uint64_t)
};

typedef struct lio_pool lio_pool;

struct lio_engine {
    const lio_kind *kind;
    lio_source *source;
    uint32_t depth;
    _Atomic(lio_pool *) pool; /* NULL until the first submit */
    _Atomic uint64_t requests, bytes;
    _Atomic uint64_t tally[LIO_TALLIED]; /* a lio_tally */
    _Atomic(lio_trace *) trace;      /* NULL: none was ever asked for */
    uint32_t number;                 /* in the trace */
    _Atomic uint32_t in_flight;      /* while traced */
};

struct lio_ticket {
    lio_pool *owner;
    lio_ticket *next; /* in the pool's queue */
    size_t count, begun, running;
    size_t hands; /* threads that it is worth */
    uint64_t submitted_ns, ended_ns; /* the second is 0 until it has ended */
    uint64_t queued_ns;              /* what the page cache had was served by then */
    bool queued;
    lio_error error; /* code LIO_OK while none */
    lio_read reads[];
};

/* What is to be prefaulted. */
typedef struct lio_hint {
    struct lio_hint *next; /* in the pool's queue */
    size_t count, begun;
    lio_extent extents[];
} lio_hint;

/* --- the pool's, for the engine */

/* This process's pool; made on first use and again after fork. */
int lio_pool_of(lio_engine *engine, lio_pool **out, lio_error *error);

/* Ends its threads, or leaves a parent's alone. NULL: there is none. */
void lio_pool_close(lio_pool *pool);

/* A ticket with room for `count` reads, none of them filled in. */
int lio_ticket_make(lio_pool *owner, size_t count, lio_ticket **out, lio_error *error);

/* Hands a ticket whose requests are filled in to the threads. Frees it on failure. */
int lio_ticket_start(lio_ticket *ticket, lio_ticket **out, lio_error *error);

/* Queues a hint from malloc, which is the pool's from now on. */
void lio_pool_hint(lio_pool *pool, lio_hint *hint);

/* --- the engine's, for the pool */

/* Does one request and, while that is on, traces it. `queued_ns`: when it was submitted, 0: now. */
int lio_engine_perform(lio_engine *engine, const lio_read *read, uint64_t queued_ns,
                       lio_error *error);

/* While a file is cut, Linux may give zeros for the rest of the page that it then ends in: then its
 * size, asked for afterwards, is too small for what was read. */
int lio_engine_check_size(lio_engine *engine, const lio_read *reads, size_t count,
                          lio_error *error);

/* Counts what one request was. */
void lio_engine_add(lio_engine *engine, uint64_t calls, uint64_t received);

/* Traces a span, while that is on. */
void lio_engine_note(lio_engine *engine, lio_span span);

#endif
