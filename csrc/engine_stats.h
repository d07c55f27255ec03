/* engine_stats: what an engine has read, in counts that only grow, and when, in a trace.
 *
 *   reads of the engine ---------------> requests, bytes
 *   rooms that read with it --count_*--> the other counts, stages
 *
 * Any thread may count at any time. A reader of the counts may see one of two that belong together
 * before the other.
 */
#ifndef LIO_ENGINE_STATS_H
#define LIO_ENGINE_STATS_H

#include "engine.h"
#include "trace.h"

/* Notes requests in `trace`, while that is on, under the number `engine_number`. For ever: an
 * engine has one trace at most, and is an owner of it until it is closed. */
void lio_engine_trace(lio_engine *engine, lio_trace *trace, uint32_t engine_number);

/* Whether such a trace is on now. */
bool lio_engine_is_traced(const lio_engine *engine);

/* All counts since open, of the engine and of the rooms that read with it. */
void lio_engine_tally(const lio_engine *engine, lio_tally *out);

/* The requests among them. */
uint64_t lio_engine_requests(const lio_engine *engine);

/* Counts more. */
void lio_engine_count(lio_engine *engine, const lio_tally *more);

/* The same for records found, records handed out and bytes of their values. */
void lio_engine_count_records(lio_engine *engine, uint64_t located, uint64_t records,
                              uint64_t record_bytes);

/* The same for the bytes that a read was to give, those that nobody asked for included. */
void lio_engine_count_planned(lio_engine *engine, uint64_t planned_bytes, uint64_t gap_bytes);

/* A stage that began at `begun_ns` has ended now: counts its time, and notes it. `amount`: see
 * lio_span. */
void lio_engine_count_stage(lio_engine *engine, uint32_t stage, uint64_t begun_ns,
                            uint64_t amount);

#endif
