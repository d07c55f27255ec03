#include "prefetch.h"

#include <stdbool.h>
#include <stdlib.h>

#include "contract.h"
#include "engine_pagecache.h"
#include "plan.h"
#include "trace.h"

enum {
    TICKETS = 16,
    AHEAD_MAX = 32 << 20,        /* bytes that may turn out to be of no use                   */
    SMALL_BYTES = 64 << 20,      /* such a file is there before one could say if it pays      */
    SCATTERED_BYTES = 128 << 10, /* of a sweep: what a record costs that lies by itself       */
    SWEEP_PART = 32,             /* records that have cost this part of a sweep begin it,     */
    SOON_BYTES = 256 << 20,      /* and of a file up to this size, which takes a moment,      */
    SOON_PART = 128,             /* this part                                                 */
    STEP_BYTES = 4 << 20,        /* of a stream, in one ticket                                */
    AHEAD_MIN = 8 << 20,         /* of a stream                                               */
    ROUND_BYTES = 2 << 20,       /* a stream begins and ends with a multiple of this          */
    HINT_GAP_BYTES = 32 << 10,   /* not needed between records that one hint tells of         */
    HINT_BYTES_MAX = 2 << 20,    /* one thread brings this much at a time                     */
    UNIT_BYTES = 256 << 10,      /* a sweep passes by units of which half have come already   */
    STREAMS = 2                  /* parts of a large file that are swept side by side         */
};

/* A part of the file that was asked for. */
typedef struct {
    lio_ticket *ticket; /* NULL: all of it has come */
    lio_extent range;
} request;

/* A part of the file that one stream reads. */
typedef struct {
    lio_engine *engine; /* with a thread and a descriptor of its own; NULL: none yet */
    bool is_begun;      /* somebody has asked for it */
    uint64_t streamed;  /* the end of its last request; UINT64_MAX: there was none */
    uint64_t swept;     /* of the file that a sweep has asked for, or passed by */
    uint64_t end;       /* of its part in a sweep */
} stream;

struct lio_prefetch {
    lio_engine *engine;
    stream streams[STREAMS]; /* without a sweep, the first of them */
    uint64_t file_end;
    uint64_t piece;    /* 0: a stream */
    uint64_t from, to; /* what was asked for       */
    uint64_t used;     /* of it, by records so far */
    uint64_t asked;    /* bytes, in all            */
    request requests[TICKETS];
    uint32_t next;      /* the oldest of them                              */
    lio_ticket *strays; /* the hint of the last block; NULL: it had none   */
    bool useless;       /* nothing stays in a page cache here              */
    uint64_t scattered; /* what such records cost so far                   */
    uint64_t dense;     /* bytes of others                                 */
    uint32_t *units;    /* the same of each unit; NULL: there is no sweep  */
    bool is_sweeping;   /* a sweep has begun                               */
};

/* The cost of reading some records where they lie: that of the jumps between them. */
static uint64_t cost_of(const lio_extent *records, size_t count)
{
    uint64_t jumps = 1;
    for (size_t i = 1; i < count; i++) {
        uint64_t a = records[i - 1].offset, b = records[i].offset;
        jumps += (a < b ? b - a : a - b) > SCATTERED_BYTES;
    }
    return jumps * SCATTERED_BYTES;
}

/* Where most of some records lie. */
typedef struct {
    uint64_t low, high, bytes;
    size_t records;
} place;

void lio_prefetch_open(lio_engine *engine, uint64_t file_end, uint64_t piece,
                       uint64_t sweep_bytes_max, lio_prefetch **out)
{
    lio_ticket *none = NULL;
    lio_prefetch *s;
    *out = NULL;
    if ((piece == 0 && file_end > sweep_bytes_max) ||
        lio_engine_populate(engine, NULL, 0, STEP_BYTES, true, &none, NULL) != LIO_OK)
        return;
    lio_ticket_free(none);
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return;
    s->engine = engine;
    s->file_end = file_end;
    s->piece = piece;
    for (size_t i = 0; i < STREAMS; i++)
        s->streams[i].streamed = UINT64_MAX;
    if (file_end <= sweep_bytes_max && file_end / UNIT_BYTES < SIZE_MAX)
        s->units = calloc((size_t)(file_end / UNIT_BYTES + 1), sizeof *s->units);
    *out = s;
}

void lio_prefetch_close(lio_prefetch *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < TICKETS; i++)
        lio_ticket_free(s->requests[i].ticket);
    lio_ticket_free(s->strays);
    for (size_t i = 0; i < STREAMS; i++)
        lio_engine_close(s->streams[i].engine);
    free(s->units);
    free(s);
}

/* How many of some records lie near a place, and where. */
static size_t find_near(const lio_extent *records, size_t count, uint64_t reach, uint64_t middle,
                        place *out)
{
    place found = {.low = UINT64_MAX};
    for (size_t i = 0; i < count; i++) {
        const lio_extent *e = &records[i];
        if (e->offset + reach < middle || e->offset > middle + reach)
            continue;
        found.low = e->offset < found.low ? e->offset : found.low;
        found.high = e->offset + e->length > found.high ? e->offset + e->length : found.high;
        found.bytes += e->length;
        found.records++;
    }
    *out = found;
    return found.records;
}

/* Single records may lie elsewhere, in pages that were used before, so three of them are asked what is
 * near; false where the records are all over the file. */
static bool find_most(const lio_extent *records, size_t count, uint64_t reach, place *out)
{
    for (size_t quarter = 1; quarter < 4; quarter++)
        if (find_near(records, count, reach, records[count * quarter / 4].offset, out) >=
            count - count / 4)
            return true;
    return false;
}

/* At least half of what was asked for is used, also with these records: in blocks that go forth
 * and back each alone looks sparse. */
static bool goes_on(const lio_prefetch *s, const place *at, uint64_t slack)
{
    return s->to != 0 && at->low <= s->to && at->high + 2 * AHEAD_MAX >= s->to &&
           (at->high <= s->from || at->high - s->from <= 2 * (s->used + at->bytes) + slack);
}

/* Lets go of a request that has ended; LIO_PENDING: it has not. */
static int end_request(lio_prefetch *s, request *r, int timeout_ms)
{
    uint64_t cached;
    if (r->ticket == NULL)
        return LIO_OK;
    if (lio_ticket_wait(r->ticket, timeout_ms, NULL) == LIO_PENDING)
        return LIO_PENDING;
    lio_ticket_free(r->ticket);
    r->ticket = NULL;
    /* A mount may go without a page cache (FUSE's direct_io, 9p). */
    if (lio_engine_cached(s->engine, r->range.offset, r->range.length, &cached, NULL) == LIO_OK &&
        cached == 0)
        s->useless = true;
    lio_engine_forget_missing(s->engine, r->range);
    return LIO_OK;
}

/* The engine that asks: of a stream one of its own, whose requests nobody else's come between. */
static lio_engine *asker(lio_prefetch *s, stream *t)
{
    if (s->piece > 0)
        return s->engine;
    if (!t->is_begun) {
        t->is_begun = true;
        if (lio_engine_reopen(s->engine, 1, &t->engine, NULL) != LIO_OK)
            t->engine = NULL;
    }
    return t->engine != NULL ? t->engine : s->engine;
}

/* Whether a part of the file need not be asked for. A stream goes on through what is there: it was the
 * kernel that read ahead for it. It takes over what is on its way, but not there. */
static bool is_there(const lio_prefetch *s, const stream *t, lio_extent range)
{
    uint64_t cached;
    if (s->piece == 0 && range.offset == t->streamed)
        return false;
    return lio_engine_cached(s->engine, range.offset, range.length, &cached, NULL) == LIO_OK &&
           cached >= range.length &&
           (s->piece > 0 || lio_engine_has_come(s->engine, range.offset + range.length - 1));
}

/* Asks for a part of the file; false: enough has been asked for that has not come yet. */
static bool ask(lio_prefetch *s, stream *t, lio_extent range)
{
    request *r = &s->requests[s->next];
    if (range.length == 0 || is_there(s, t, range))
        return true;
    if (s->useless || end_request(s, r, 0) == LIO_PENDING)
        return false;
    LIO_ASSERT(r->ticket == NULL && lio_fits(range.offset, range.length, s->file_end));
    if (lio_engine_populate(asker(s, t), &range, 1, s->piece > 0 ? s->piece : STEP_BYTES,
                            s->piece == 0, &r->ticket, NULL) != LIO_OK)
        s->useless = true; /* the reads that follow tell why */
    r->range = range;
    t->streamed = range.offset + range.length;
    s->next = (s->next + 1) % TICKETS;
    s->asked += s->useless ? 0 : range.length;
    return !s->useless;
}

/* Asks for what is missing up to `goal`. */
static void extend(lio_prefetch *s, uint64_t goal)
{
    while (s->to < goal) {
        lio_extent range = {s->to, goal - s->to < STEP_BYTES ? goal - s->to : STEP_BYTES};
        if (!ask(s, &s->streams[0], range))
            break;
        s->to += range.length;
    }
}

static bool has_come(const lio_prefetch *s, uint64_t at)
{
    LIO_ASSERT(s->units != NULL && at < s->file_end);
    return s->units[at / UNIT_BYTES] >= UNIT_BYTES / 2;
}

/* The next part of the file that a stream is to sweep, which passes by what has come. */
static lio_extent next_step(const lio_prefetch *s, stream *t)
{
    uint64_t end, most;
    while (t->swept < t->end && has_come(s, t->swept))
        t->swept += UNIT_BYTES;
    t->swept = t->swept < t->end ? t->swept : t->end;
    end = t->swept;
    most = lio_round_down(end + STEP_BYTES, ROUND_BYTES);
    while (end < t->end && end < most && !has_come(s, end))
        end += UNIT_BYTES;
    end = end < t->end ? end : t->end;
    return (lio_extent){t->swept, end - t->swept};
}

/* All streams in turns. */
static void go_on(lio_prefetch *s)
{
    for (bool asks = true; asks;) {
        asks = false;
        for (size_t i = 0; i < STREAMS; i++) {
            stream *t = &s->streams[i];
            lio_extent step = next_step(s, t);
            if (step.length == 0)
                continue;
            if (!ask(s, t, step))
                return;
            t->swept += step.length;
            asks = true;
        }
    }
}

/* How many bytes a sweep asks for before it has asked for a part of the file. */
static uint64_t left_to_ask(const lio_prefetch *s, lio_extent part)
{
    uint64_t left = 0, end = part.offset + part.length;
    for (size_t i = 0; i < STREAMS; i++) {
        const stream *t = &s->streams[i];
        if (t->end > part.offset && t->swept < end)
            left += (end < t->end ? end : t->end) - t->swept;
    }
    return left;
}

/* Notes records that lie dense. */
static void note_dense(lio_prefetch *s, const lio_extent *records, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const lio_extent *e = &records[i];
        uint32_t *unit = &s->units[(e->offset < s->file_end ? e->offset : 0) / UNIT_BYTES];
        uint64_t more = lio_add_saturated(*unit, e->length);
        *unit = more < UNIT_BYTES ? (uint32_t)more : UNIT_BYTES;
        s->dense += e->length;
    }
}

/* Two parts of the file come side by side, but for small files and disks that seek. The second begins at
 * `middle`, where readers are. */
static void begin_sweep(lio_prefetch *s, uint64_t middle)
{
    uint64_t cached;
    bool is_there = lio_engine_cached(s->engine, 0, s->file_end, &cached, NULL) == LIO_OK &&
                    cached >= s->file_end;
    if (s->piece > 0 || s->file_end <= SMALL_BYTES || lio_engine_seeks(s->engine))
        middle = s->file_end;
    s->streams[0].end = middle < s->file_end ? lio_round_down(middle, ROUND_BYTES) : s->file_end;
    s->streams[1].swept = s->streams[0].end;
    s->streams[1].end = s->file_end;
    LIO_ASSERT(s->streams[0].end <= s->file_end); /* both parts together are the file */
    s->is_sweeping = true;
    for (size_t i = 0; is_there && i < STREAMS; i++)
        s->streams[i].swept = s->streams[i].end;
}

bool lio_prefetch_sweep(lio_prefetch *s, const lio_extent *records, size_t count,
                        uint64_t block_bytes, lio_extent *awaited)
{
    uint64_t part;
    bool is_scattered;
    place at;
    if (s == NULL || s->useless || s->units == NULL || count == 0)
        return false;
    is_scattered = !find_most(records, count, 2 * block_bytes, &at);
    part = is_scattered && s->file_end <= SOON_BYTES ? SOON_PART : SWEEP_PART;
    s->scattered += is_scattered ? cost_of(records, count)
                                 : (count - at.records) * SCATTERED_BYTES;
    if (!s->is_sweeping && ((is_scattered && s->file_end <= SMALL_BYTES) ||
                            s->scattered + s->dense / part >= s->file_end / part))
        begin_sweep(s, is_scattered ? s->file_end / 2 : at.low);
    if (!s->is_sweeping) {
        if (!is_scattered)
            note_dense(s, records, count);
        return false;
    }
    go_on(s);
    *awaited = is_scattered ? (lio_extent){0, s->file_end}
                            : (lio_extent){at.low, at.high - at.low};
    return true;
}

uint64_t lio_prefetch_sweep_all(lio_prefetch *s)
{
    uint64_t left;
    if (s == NULL || s->units == NULL)
        return UINT64_MAX;
    if (!s->is_sweeping)
        begin_sweep(s, s->file_end / 2);
    go_on(s);
    left = left_to_ask(s, (lio_extent){0, s->file_end});
    for (size_t i = 0; i < TICKETS; i++)
        if (end_request(s, &s->requests[i], 0) == LIO_PENDING)
            left += s->requests[i].range.length;
    return s->useless ? UINT64_MAX : left;
}

uint64_t lio_prefetch_asked(const lio_prefetch *s)
{
    return s != NULL ? s->asked : 0;
}

lio_ticket *lio_prefetch_hint(lio_engine *engine, const lio_extent *records, size_t count)
{
    lio_plan_options options = {HINT_GAP_BYTES, HINT_BYTES_MAX, 1};
    lio_ticket *ticket = NULL;
    lio_plan_totals totals;
    lio_extent *ranges;
    lio_plan *plan;
    if (count == 0 || lio_plan_make(records, count, &options, &plan, NULL) != LIO_OK)
        return NULL;
    lio_plan_get_totals(plan, &totals);
    ranges = malloc((size_t)totals.requests * sizeof *ranges);
    for (uint64_t i = 0; ranges != NULL && i < totals.requests; i++)
        ranges[i] = (lio_extent){lio_plan_requests(plan)[i].offset,
                                 lio_plan_requests(plan)[i].needed};
    if (ranges != NULL && lio_engine_populate(engine, ranges, (size_t)totals.requests,
                                              HINT_BYTES_MAX, false, &ticket, NULL) != LIO_OK)
        ticket = NULL;
    free(ranges);
    lio_plan_free(plan);
    return ticket;
}

/* Tells of the records that lie outside of what is covered. */
static void hint_strays(lio_prefetch *s, const lio_extent *records, size_t count, const place *at)
{
    lio_extent *strays = malloc(count * sizeof *strays);
    size_t found = 0;
    for (size_t i = 0; strays != NULL && i < count; i++)
        if (records[i].offset < s->from || records[i].offset > at->high)
            strays[found++] = records[i];
    lio_ticket_free(s->strays);
    s->strays = lio_prefetch_hint(s->engine, strays, found);
    free(strays);
}

bool lio_prefetch_cover(lio_prefetch *s, const lio_extent *records, size_t count,
                        uint64_t block_bytes, uint64_t ahead, lio_extent *awaited)
{
    uint64_t goal, round;
    place at;
    if (s == NULL || s->useless || count == 0 || !find_most(records, count, 2 * block_bytes, &at))
        return false;
    round = s->piece > 0 ? s->piece : ROUND_BYTES;
    if (!goes_on(s, &at, 4 * block_bytes)) {
        if ((at.high - at.low) / 2 > at.bytes)
            return false;
        s->from = s->to = lio_round_down(at.low, round);
        s->used = 0;
    }
    s->used += at.bytes;
    if (s->piece == 0 && ahead < AHEAD_MIN)
        ahead = AHEAD_MIN;
    goal = at.high + (ahead < AHEAD_MAX ? ahead : AHEAD_MAX);
    if (goal > s->file_end || (s->piece == 0 && s->file_end <= SMALL_BYTES))
        goal = s->file_end;
    extend(s, goal < s->file_end ? lio_round_up(goal, round) : s->file_end);
    hint_strays(s, records, count, &at);
    *awaited = (lio_extent){0, s->piece > 0 ? 0 : at.high};
    return true;
}

/* Whether nobody who waits for a part needs a request. */
static bool is_beside(const request *r, lio_extent part)
{
    return r->range.offset >= part.offset + part.length ||
           r->range.offset + r->range.length <= part.offset;
}

int lio_prefetch_wait(lio_prefetch *s, lio_extent awaited, int timeout_ms)
{
    uint64_t begun = timeout_ms > 0 ? lio_now_ns() : 0;
    int left = timeout_ms;
    if (s == NULL)
        return LIO_OK;
    for (bool waits = true; waits && !s->useless;) {
        waits = false;
        go_on(s);
        for (size_t i = 0; i < TICKETS; i++) {
            request *r = &s->requests[(s->next + i) % TICKETS];
            if (r->ticket == NULL || (is_beside(r, awaited) && left_to_ask(s, awaited) == 0))
                continue;
            if (end_request(s, r, left) == LIO_PENDING)
                return LIO_PENDING;
            waits = s->is_sweeping; /* that made room for the next one */
            if (timeout_ms > 0) {
                uint64_t taken_ms = (lio_now_ns() - begun) / 1000000;
                left = taken_ms < (uint64_t)timeout_ms ? timeout_ms - (int)taken_ms : 0;
            }
        }
    }
    return LIO_OK;
}
