/* engine_private: what an engine consists of, for its own parts: the queue, the page cache, and the
 * functions that open, read, close and count. Private to the engine.
 *
 *   lio_engine_perform -> file.kind->read        counts calls and bytes, notes a span
 *
 * Counts only grow. Any thread may count at any time; a reader of the counts may see one of two that
 * belong together before the other. */
#ifndef LIO_ENGINE_PRIVATE_H
#define LIO_ENGINE_PRIVATE_H

#include <stdatomic.h>
#include <stddef.h>

#include "engine_file.h"
#include "engine_stats.h"

enum { LIO_ENGINE_DEPTH_MAX = 256, LIO_TALLIED = sizeof(lio_tally) / sizeof(uint64_t) };

/* Where these counts stand in a lio_tally. */
enum {
    LIO_REQUESTS_AT = offsetof(lio_tally, requests) / sizeof(uint64_t),
    LIO_BYTES_AT = offsetof(lio_tally, bytes) / sizeof(uint64_t)
};

typedef struct lio_queue lio_queue;

struct lio_engine {
    lio_file file;
    uint32_t depth;
    uint32_t number;                     /* in the trace */
    _Atomic(lio_queue *) queue;          /* NULL until the first submit */
    _Atomic uint64_t tally[LIO_TALLIED]; /* a lio_tally */
    _Atomic(lio_trace *) trace;          /* NULL: nobody has ever asked for one */
    _Atomic uint32_t in_flight;          /* requests, while they are traced */
};

/* Performs one request: a read, or, where read->into is NULL, bringing bytes into the page cache.
 * `queued_ns`: when somebody submitted it, 0: now. */
int lio_engine_perform(lio_engine *engine, const lio_read *read, uint64_t queued_ns,
                       lio_error *error);

/* A request that another carries (an io_uring) begins now: how many are in flight with it, 0 while
 * nothing is traced. */
uint32_t lio_engine_begin(lio_engine *engine);

/* The span of a request whose lio_engine_begin returned `depth`, which has ended now. */
void lio_engine_end(lio_engine *engine, lio_span span, uint32_t depth);

/* Notes a span, while somebody traces. */
void lio_engine_note(lio_engine *engine, lio_span span);

/* The same for one that began at `begun_ns` and has ended now. 0: nobody traced then. */
void lio_engine_note_since(lio_engine *engine, uint64_t begun_ns, lio_span span);

/* Now, where somebody traces, else 0. */
static inline uint64_t lio_engine_traced_ns(const lio_engine *engine)
{
    return lio_trace_is_on(engine->trace) ? lio_now_ns() : 0;
}

/* Counts calls of the kernel, or copies out of a mapping, and the bytes that they gave. */
static inline void lio_engine_add(lio_engine *engine, uint64_t calls, uint64_t received)
{
    (void)atomic_fetch_add_explicit(&engine->tally[LIO_REQUESTS_AT], calls, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&engine->tally[LIO_BYTES_AT], received, memory_order_relaxed);
}

/* Serves a small request out of the page cache, if that takes no waiting. The caller compares the
 * file's size afterwards, once for all requests that were served by a call of the kernel. */
lio_cached lio_pagecache_serve(lio_engine *engine, const lio_read *read);

#endif
