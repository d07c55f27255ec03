/* trace: what happened when, kept in a bounded ring until somebody writes it down.
 *
 *   threads -> lio_trace_note -> [span][span][span] -> lio_trace_take -> a file
 *
 * Off, it costs those who ask one load. On, a span costs a lock that is held for the copy of
 * some sixty bytes. A ring that is full keeps what it has and counts what it drops.
 *
 * All times are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
 */
#ifndef LIO_TRACE_H
#define LIO_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct lio_trace lio_trace;

/* The stages of reading. LOCATE: records found. PLAN: reads made of extents. WAIT: for bytes to
 * arrive. COPY: out of what was read, into the caller's objects. */
enum lio_stage {
    LIO_STAGE_LOCATE = 0,
    LIO_STAGE_PLAN = 1,
    LIO_STAGE_WAIT = 2,
    LIO_STAGE_COPY = 3,
    LIO_STAGES = 4,
    /* In spans alone: one request; some that the page cache served at once; bytes brought into
     * the page cache. */
    LIO_SPAN_REQUEST = 8,
    LIO_SPAN_CACHED = 9,
    LIO_SPAN_POPULATE = 10
};

typedef struct {
    uint64_t queued_ns; /* a request: when it began to wait for a thread; else begun_ns  */
    uint64_t begun_ns, ended_ns;
    uint64_t offset;      /* a request: in the file                                         */
    uint64_t amount;      /* records of LOCATE, else bytes                                  */
    uint32_t kind;        /* enum lio_stage                                                 */
    uint32_t thread;      /* that did it, the kernel's number                               */
    uint32_t engine;      /* as lio_engine_trace numbered it                                */
    uint32_t count;       /* requests                                                       */
    uint32_t depth;       /* a request: of its engine in flight when it began, itself too   */
    uint32_t depth_after; /* and after it had ended                                       */
    uint32_t failed;      /* an lio_code, 0: none                                           */
    uint32_t reserved;
} lio_span;

/* Counts of reading with one engine, in bytes, nanoseconds and items. */
typedef struct {
    uint64_t requests;        /* reads issued, and copies out of a mapping                 */
    uint64_t bytes;           /* received                                                  */
    uint64_t located_records; /* found by a cursor or a scan                               */
    uint64_t records;         /* handed out                                                */
    uint64_t record_bytes;    /* of their values                                           */
    uint64_t planned_bytes;   /* of the file, to read for values                           */
    uint64_t gap_bytes;       /* of these, under no value                                  */
    uint64_t page_requests;   /* for pages of the tree, and metas                          */
    uint64_t page_bytes;
    uint64_t queued_requests; /* carried out by the engine's threads                       */
    uint64_t queue_ns;        /* how long these waited for a thread, in sum                */
    uint64_t service_ns;      /* and were under way                                        */
    uint64_t stage_ns[4];     /* by enum lio_stage; what one thread does for another, too  */
} lio_tally;

/* A ring of `capacity` spans, at least one; off. One owner. */
int lio_trace_open(size_t capacity, lio_trace **out, lio_error *error);

/* One owner less; the last one frees it. NULL is fine. */
void lio_trace_close(lio_trace *trace);

void lio_trace_switch(lio_trace *trace, int on);

/* In a child, before it has a second thread: what the ring holds is the parent's. */
void lio_trace_forked(lio_trace *trace);

/* Moves up to `room` spans, oldest first, to `out` and says how many; `*dropped`: how many there
 * was no room for in the ring since the last call. */
size_t lio_trace_take(lio_trace *trace, lio_span *out, size_t room, uint64_t *dropped);

/* cdef: skip */
#include <stdbool.h>

/* One owner more. */
void lio_trace_share(lio_trace *trace);

/* NULL is off. */
bool lio_trace_is_on(const lio_trace *trace);

/* Keeps a span; fills in its thread. */
void lio_trace_note(lio_trace *trace, const lio_span *span);

uint64_t lio_now_ns(void);
/* cdef: resume */

#endif
