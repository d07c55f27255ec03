#include "engine_meter.h"

#include <assert.h>
#include <string.h>

#include "contract.h"

static_assert(sizeof(lio_tally) % sizeof(uint64_t) == 0, "a tally is counts alone");

void lio_meter_note(lio_meter *meter, lio_span span)
{
    lio_trace *trace = meter->trace;
    if (!lio_trace_is_on(trace))
        return;
    span.engine = meter->number;
    lio_trace_note(trace, &span);
}

static void tally_add(_Atomic uint64_t *count, uint64_t amount)
{
    if (amount != 0)
        (void)atomic_fetch_add_explicit(count, amount, memory_order_relaxed);
}

void lio_meter_count_one(lio_meter *meter, size_t offset, uint64_t amount)
{
    LIO_ASSERT(offset % sizeof(uint64_t) == 0 && offset < sizeof(lio_tally));
    tally_add(&meter->tally[offset / sizeof(uint64_t)], amount);
}

void lio_meter_count(lio_meter *meter, const lio_tally *more)
{
    uint64_t counts[LIO_TALLIED];
    memcpy(counts, more, sizeof counts);
    for (size_t i = 0; i < LIO_TALLIED; i++)
        tally_add(&meter->tally[i], counts[i]);
}

static int read_counted(lio_meter *meter, lio_file file, const lio_read *read, lio_error *error)
{
    uint64_t received = 0, calls = 0;
    int code;
    if (read->into == NULL && read->length > 0) /* see lio_engine_populate */
        return file.kind->page_cache->populate(file.source, read->offset, read->length,
                                               read->needed > 0, error);
    code = file.kind->read(file.source, read, &received, &calls, error);
    lio_meter_add(meter, calls, received);
    return code;
}

uint32_t lio_meter_begin(lio_meter *meter)
{
    return lio_meter_traces(meter) ? atomic_fetch_add(&meter->in_flight, 1) + 1 : 0;
}

void lio_meter_end(lio_meter *meter, lio_span span, uint32_t depth)
{
    if (depth == 0)
        return;
    LIO_ASSERT(atomic_load(&meter->in_flight) > 0);
    span.ended_ns = lio_now_ns();
    span.depth = depth;
    span.depth_after = atomic_fetch_sub(&meter->in_flight, 1) - 1;
    lio_meter_note(meter, span);
}

int lio_meter_read(lio_meter *meter, lio_file file, const lio_read *read, uint64_t queued_ns,
                   lio_error *error)
{
    lio_span span = {.offset = read->offset,
                     .amount = read->length,
                     .count = 1,
                     .kind = read->into == NULL ? LIO_SPAN_POPULATE : LIO_SPAN_REQUEST};
    uint32_t depth = lio_meter_begin(meter);
    int code;
    if (depth == 0)
        return read_counted(meter, file, read, error);
    span.begun_ns = lio_now_ns();
    span.queued_ns = queued_ns != 0 ? queued_ns : span.begun_ns;
    code = read_counted(meter, file, read, error);
    span.failed = (uint32_t)code;
    lio_meter_end(meter, span, depth);
    return code;
}

int lio_meter_scatter(lio_meter *meter, lio_file file, const lio_read *reads, size_t count,
                      lio_error *error)
{
    uint64_t received = 0, calls = 0;
    lio_span span = {.kind = LIO_SPAN_REQUEST, .depth = 1};
    int code;
    if (count > 0)
        span.offset = reads[0].offset;
    if (lio_meter_traces(meter))
        span.queued_ns = span.begun_ns = lio_now_ns();
    code = file.kind->scatter(file.source, reads, count, &received, &calls, error);
    if (code == LIO_OK)
        code = lio_file_check_size(file, reads, count, error);
    lio_meter_add(meter, calls, received);
    if (span.begun_ns == 0)
        return code;
    span.ended_ns = lio_now_ns();
    span.amount = received;
    span.count = (uint32_t)calls;
    span.failed = (uint32_t)code;
    lio_meter_note(meter, span);
    return code;
}
