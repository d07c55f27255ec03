/* engine_meter: wraps the reads of a file; it counts what they were and, while that is on, traces
 * them.
 *
 *   lio_meter_read -> file.kind->read        counts calls and bytes, notes a span
 *
 * Counts only grow. Any thread may count at any time; a reader of the counts may see one of two that
 * belong together before the other. Private to the engine.
 */
#ifndef LIO_ENGINE_METER_H
#define LIO_ENGINE_METER_H

#include <stdatomic.h>

#include "engine_file.h"
#include "trace.h"

enum { LIO_TALLIED = sizeof(lio_tally) / sizeof(uint64_t) };

typedef struct {
    _Atomic uint64_t requests, bytes;
    _Atomic uint64_t tally[LIO_TALLIED]; /* a lio_tally */
    _Atomic(lio_trace *) trace;          /* NULL: nobody has ever asked for one */
    uint32_t number;                     /* of the engine in the trace */
    _Atomic uint32_t in_flight;          /* requests, while they are traced */
} lio_meter;

/* Performs one request: a read, or, where read->into is NULL, bringing bytes into the page cache.
 * `queued_ns`: when somebody submitted it, 0: now. */
int lio_meter_read(lio_meter *meter, lio_file file, const lio_read *read, uint64_t queued_ns,
                   lio_error *error);

/* Reads neighbours by file.kind->scatter and compares their ends with the file's; one span. */
int lio_meter_scatter(lio_meter *meter, lio_file file, const lio_read *reads, size_t count,
                      lio_error *error);

/* A request that another carries (an io_uring) begins now: how many are in flight with it, 0 while
 * nothing is traced. */
uint32_t lio_meter_begin(lio_meter *meter);

/* The span of a request whose lio_meter_begin returned `depth`, which has ended now. */
void lio_meter_end(lio_meter *meter, lio_span span, uint32_t depth);

/* Whether somebody traces. */
static inline bool lio_meter_traces(const lio_meter *meter)
{
    return lio_trace_is_on(meter->trace);
}

/* Notes a span, while that is on. */
void lio_meter_note(lio_meter *meter, lio_span span);

/* Counts calls of the kernel, or copies out of a mapping, and the bytes that they gave. */
static inline void lio_meter_add(lio_meter *meter, uint64_t calls, uint64_t received)
{
    (void)atomic_fetch_add_explicit(&meter->requests, calls, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&meter->bytes, received, memory_order_relaxed);
}

/* Adds all of `more`, or `amount` to the count at `offset` of a lio_tally. */
void lio_meter_count(lio_meter *meter, const lio_tally *more);
void lio_meter_count_one(lio_meter *meter, size_t offset, uint64_t amount);

#endif
