/* One request: performed by the kind, counted, traced, and its end compared with the file's. */
#include "engine_request.h"

#include <string.h>

void lio_engine_tally_add(_Atomic uint64_t *count, uint64_t amount)
{
    if (amount != 0)
        (void)atomic_fetch_add_explicit(count, amount, memory_order_relaxed);
}

void lio_engine_count(lio_engine *engine, const lio_tally *more)
{
    uint64_t counts[LIO_TALLIED];
    memcpy(counts, more, sizeof counts);
    for (size_t i = 0; i < LIO_TALLIED; i++)
        lio_engine_tally_add(&engine->tally[i], counts[i]);
}

void lio_engine_note(lio_engine *engine, lio_span span)
{
    lio_trace *trace = engine->trace;
    if (!lio_trace_is_on(trace))
        return;
    span.engine = engine->number;
    lio_trace_note(trace, &span);
}

void lio_engine_add(lio_engine *engine, uint64_t calls, uint64_t received)
{
    (void)atomic_fetch_add_explicit(&engine->requests, calls, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&engine->bytes, received, memory_order_relaxed);
}

static int perform_quietly(lio_engine *engine, const lio_read *read, lio_error *error)
{
    uint64_t received = 0, calls = 0;
    int code;
    if (read->into == NULL && read->length > 0) /* see lio_engine_populate */
        return engine->kind->populate(engine->source, read->offset, read->length, error);
    code = engine->kind->read(engine->source, read, &received, &calls, error);
    lio_engine_add(engine, calls, received);
    return code;
}

int lio_engine_check_size(lio_engine *engine, const lio_read *reads, size_t count, lio_error *error)
{
    uint64_t end = 0, size;
    int code;
    for (size_t i = 0; i < count; i++)
        if (reads[i].needed > 0 && reads[i].offset + reads[i].needed > end)
            end = reads[i].offset + reads[i].needed;
    if (end == 0)
        return LIO_OK;
    code = engine->kind->size(engine->source, &size, error);
    for (size_t i = 0; i < count && code == LIO_OK && size < end; i++)
        if (reads[i].needed > 0 && reads[i].offset + reads[i].needed > size)
            code = lio_short_read(&reads[i], size > reads[i].offset ? size - reads[i].offset : 0,
                                  error);
    return code;
}

int lio_engine_perform(lio_engine *engine, const lio_read *read, uint64_t queued_ns,
                   lio_error *error)
{
    lio_span span = {.offset = read->offset, .amount = read->length, .count = 1,
                     .kind = read->into == NULL ? LIO_SPAN_POPULATE : LIO_SPAN_REQUEST};
    int code;
    if (!lio_trace_is_on(engine->trace))
        return perform_quietly(engine, read, error);
    span.depth = atomic_fetch_add(&engine->in_flight, 1) + 1;
    span.begun_ns = lio_now_ns();
    span.queued_ns = queued_ns != 0 ? queued_ns : span.begun_ns;
    code = perform_quietly(engine, read, error);
    span.ended_ns = lio_now_ns();
    span.depth_after = atomic_fetch_sub(&engine->in_flight, 1) - 1;
    span.failed = (uint32_t)code;
    lio_engine_note(engine, span);
    return code;
}
