/* engine_request: what an engine consists of, and how it performs, counts and traces one request.
 *
 *   engine -> pool -> request -> a kind of file
 *
 * Private to the engine. It knows neither the pool that carries requests nor who submits them.
 */
#ifndef LIO_ENGINE_REQUEST_H
#define LIO_ENGINE_REQUEST_H

#include <stdatomic.h>

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

/* Adds `amount` to one count of a tally. */
void lio_engine_tally_add(_Atomic uint64_t *count, uint64_t amount);

#endif
