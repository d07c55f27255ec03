#include "engine_stats.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "contract.h"
#include "engine_private.h"

static_assert(sizeof(lio_tally) % sizeof(uint64_t) == 0, "a tally is counts alone");

/* --- the trace ---------------------------------------------------------------------------- */

void lio_engine_trace(lio_engine *engine, lio_trace *trace, uint32_t engine_number)
{
    lio_trace *none = NULL;
    if (engine->trace != NULL)
        return;
    lio_trace_share(trace);
    engine->number = engine_number; /* nobody looks at it before the next line */
    if (!atomic_compare_exchange_strong(&engine->trace, &none, trace))
        lio_trace_close(trace);
}

bool lio_engine_is_traced(const lio_engine *engine)
{
    return lio_trace_is_on(engine->trace);
}

void lio_engine_note(lio_engine *engine, lio_span span)
{
    lio_trace *trace = engine->trace;
    if (!lio_trace_is_on(trace))
        return;
    span.engine = engine->number;
    lio_trace_note(trace, &span);
}

void lio_engine_note_since(lio_engine *engine, uint64_t begun_ns, lio_span span)
{
    if (begun_ns == 0)
        return;
    span.queued_ns = span.begun_ns = begun_ns;
    span.ended_ns = lio_now_ns();
    lio_engine_note(engine, span);
}

uint32_t lio_engine_begin(lio_engine *engine)
{
    return lio_trace_is_on(engine->trace) ? atomic_fetch_add(&engine->in_flight, 1) + 1 : 0;
}

void lio_engine_end(lio_engine *engine, lio_span span, uint32_t depth)
{
    if (depth == 0)
        return;
    LIO_ASSERT(atomic_load(&engine->in_flight) > 0);
    span.ended_ns = lio_now_ns();
    span.depth = depth;
    span.depth_after = atomic_fetch_sub(&engine->in_flight, 1) - 1;
    lio_engine_note(engine, span);
}

/* --- requests ------------------------------------------------------------------------------ */

static int read_counted(lio_engine *engine, const lio_read *read, lio_error *error)
{
    const lio_file *file = &engine->file;
    uint64_t received = 0, calls = 0;
    int code;
    if (read->into == NULL && read->length > 0) /* see lio_engine_populate */
        return file->kind->populate(file->source, read->offset, read->length, read->needed > 0,
                                    error);
    code = file->kind->read(file->source, read, &received, &calls, error);
    lio_engine_add(engine, calls, received);
    return code;
}

int lio_engine_perform(lio_engine *engine, const lio_read *read, uint64_t queued_ns,
                       lio_error *error)
{
    lio_span span = {.offset = read->offset,
                     .amount = read->length,
                     .count = 1,
                     .kind = read->into == NULL ? LIO_SPAN_POPULATE : LIO_SPAN_REQUEST};
    uint32_t depth = lio_engine_begin(engine);
    int code;
    if (depth == 0)
        return read_counted(engine, read, error);
    span.begun_ns = lio_now_ns();
    span.queued_ns = queued_ns != 0 ? queued_ns : span.begun_ns;
    code = read_counted(engine, read, error);
    span.failed = (uint32_t)code;
    lio_engine_end(engine, span, depth);
    return code;
}

/* --- counts -------------------------------------------------------------------------------- */

uint64_t lio_engine_requests(const lio_engine *engine)
{
    return atomic_load(&engine->tally[LIO_REQUESTS_AT]);
}

void lio_engine_tally(const lio_engine *engine, lio_tally *out)
{
    uint64_t counts[LIO_TALLIED];
    for (size_t i = 0; i < LIO_TALLIED; i++)
        counts[i] = atomic_load_explicit(&engine->tally[i], memory_order_relaxed);
    memcpy(out, counts, sizeof *out);
}

/* Adds to the count at `offset` of a lio_tally. */
static void count_one(lio_engine *engine, size_t offset, uint64_t amount)
{
    LIO_ASSERT(offset % sizeof(uint64_t) == 0 && offset < sizeof(lio_tally));
    if (amount != 0)
        (void)atomic_fetch_add_explicit(&engine->tally[offset / sizeof(uint64_t)], amount,
                                        memory_order_relaxed);
}

void lio_engine_count(lio_engine *engine, const lio_tally *more)
{
    uint64_t counts[LIO_TALLIED];
    memcpy(counts, more, sizeof counts);
    for (size_t i = 0; i < LIO_TALLIED; i++)
        count_one(engine, i * sizeof counts[0], counts[i]);
}

void lio_engine_count_records(lio_engine *engine, uint64_t located, uint64_t records,
                              uint64_t record_bytes)
{
    count_one(engine, offsetof(lio_tally, located_records), located);
    count_one(engine, offsetof(lio_tally, records), records);
    count_one(engine, offsetof(lio_tally, record_bytes), record_bytes);
}

void lio_engine_count_planned(lio_engine *engine, uint64_t planned_bytes, uint64_t gap_bytes)
{
    count_one(engine, offsetof(lio_tally, planned_bytes), planned_bytes);
    count_one(engine, offsetof(lio_tally, gap_bytes), gap_bytes);
}

void lio_engine_count_stage(lio_engine *engine, uint32_t stage, uint64_t begun_ns, uint64_t amount)
{
    uint64_t now = lio_now_ns();
    LIO_ASSERT(stage < LIO_STAGES);
    count_one(engine, offsetof(lio_tally, stage_ns) + stage * sizeof now, now - begun_ns);
    lio_engine_note(engine, (lio_span){.queued_ns = begun_ns,
                                       .begun_ns = begun_ns,
                                       .ended_ns = now,
                                       .amount = amount,
                                       .kind = stage,
                                       .count = 1});
}
