#include "engine_stats.h"

#include <stddef.h>
#include <string.h>

#include "contract.h"
#include "engine_private.h"

void lio_engine_counters(lio_engine *engine, lio_counters *out)
{
    out->requests = engine->meter.requests;
    out->bytes = engine->meter.bytes;
}

void lio_engine_trace(lio_engine *engine, lio_trace *trace, uint32_t engine_number)
{
    lio_trace *none = NULL;
    if (engine->meter.trace != NULL)
        return;
    lio_trace_share(trace);
    engine->meter.number = engine_number; /* nobody looks at it before the next line */
    if (!atomic_compare_exchange_strong(&engine->meter.trace, &none, trace))
        lio_trace_close(trace);
}

bool lio_engine_is_traced(const lio_engine *engine)
{
    return lio_meter_traces(&engine->meter);
}

void lio_engine_tally(const lio_engine *engine, lio_tally *out)
{
    uint64_t counts[LIO_TALLIED];
    for (size_t i = 0; i < LIO_TALLIED; i++)
        counts[i] = atomic_load_explicit(&engine->meter.tally[i], memory_order_relaxed);
    memcpy(out, counts, sizeof *out);
}

void lio_engine_count(lio_engine *engine, const lio_tally *more)
{
    lio_meter_count(&engine->meter, more);
}

void lio_engine_count_records(lio_engine *engine, uint64_t located, uint64_t records,
                              uint64_t record_bytes)
{
    lio_meter_count_one(&engine->meter, offsetof(lio_tally, located_records), located);
    lio_meter_count_one(&engine->meter, offsetof(lio_tally, records), records);
    lio_meter_count_one(&engine->meter, offsetof(lio_tally, record_bytes), record_bytes);
}

void lio_engine_count_planned(lio_engine *engine, uint64_t planned_bytes, uint64_t gap_bytes)
{
    lio_meter_count_one(&engine->meter, offsetof(lio_tally, planned_bytes), planned_bytes);
    lio_meter_count_one(&engine->meter, offsetof(lio_tally, gap_bytes), gap_bytes);
}

void lio_engine_count_stage(lio_engine *engine, uint32_t stage, uint64_t begun_ns, uint64_t amount)
{
    uint64_t now = lio_now_ns();
    lio_tally more = {0};
    LIO_ASSERT(stage < LIO_STAGES);
    more.stage_ns[stage] = now - begun_ns;
    lio_meter_count(&engine->meter, &more);
    lio_meter_note(&engine->meter, (lio_span){.queued_ns = begun_ns,
                                              .begun_ns = begun_ns,
                                              .ended_ns = now,
                                              .amount = amount,
                                              .kind = stage,
                                              .count = 1});
}
