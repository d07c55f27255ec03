#include "prefetch.h"

#include <stdbool.h>
#include <stdlib.h>

enum {
    TICKETS = 4,
    AHEAD_MAX = 32 << 20,        /* bytes that may turn out to be of no use                   */
    SMALL_BYTES = 64 << 20,      /* such a file is there before one could say if it pays      */
    SCATTERED_BYTES = 128 << 10, /* of a sweep: what a record costs that lies by itself       */
    SWEEP_PART = 8,              /* records that have cost this part of a sweep begin it      */
    LARGE_BYTES = 1 << 20,       /* pieces of those who leave it to the kernel to read ahead  */
    SWEEP_BYTES = 16 << 20,      /* a step of a sweep: two side by side were no quicker       */
    UNIT_BYTES = 256 << 10       /* a sweep passes by units of which half have come already   */
};

struct lio_prefetch {
    lio_engine *engine;
    uint64_t file_end, piece;
    uint64_t from, to;            /* what was asked for       */
    uint64_t used;                /* of it, by records so far */
    lio_ticket *tickets[TICKETS]; /* nobody waits for them    */
    uint64_t asked[TICKETS];      /* where each begins        */
    uint32_t next;                /* the oldest of them       */
    bool useless;                 /* nothing stays in a page cache here */
    uint64_t scattered;           /* what such records cost so far   */
    uint64_t dense;               /* bytes of others                 */
    uint32_t *units;              /* the same of each unit; NULL: there is no sweep */
    lio_ticket *step;             /* of a sweep, that is under way; NULL: none */
    lio_extent stretch;           /* what it brings */
    uint64_t swept;               /* of the file that a sweep has asked for, or passed by */
    bool sweeps;
};

/* Where most of some records lie. */
typedef struct {
    uint64_t low, high, bytes;
} place;

lio_prefetch *lio_prefetch_open(lio_engine *engine, uint64_t file_end, uint64_t piece,
                                uint64_t sweep_bytes_max)
{
    lio_ticket *none = NULL;
    lio_prefetch *s;
    if (lio_engine_populate(engine, NULL, 0, piece, &none, NULL) != LIO_OK)
        return NULL;
    lio_ticket_free(none);
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->engine = engine;
    s->file_end = file_end;
    s->piece = piece;
    if (file_end <= sweep_bytes_max && file_end / UNIT_BYTES < SIZE_MAX)
        s->units = calloc((size_t)(file_end / UNIT_BYTES + 1), sizeof *s->units);
    return s;
}

void lio_prefetch_close(lio_prefetch *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < TICKETS; i++)
        lio_ticket_free(s->tickets[i]);
    lio_ticket_free(s->step);
    free(s->units);
    free(s);
}

/* How many of some records lie near a place, and where. */
static size_t gather_near(const lio_extent *records, size_t count, uint64_t reach, uint64_t middle,
                          place *out)
{
    place found = {UINT64_MAX, 0, 0};
    size_t near = 0;
    for (size_t i = 0; i < count; i++) {
        const lio_extent *e = &records[i];
        if (e->offset + reach < middle || e->offset > middle + reach)
            continue;
        found.low = e->offset < found.low ? e->offset : found.low;
        found.high = e->offset + e->length > found.high ? e->offset + e->length : found.high;
        found.bytes += e->length;
        near++;
    }
    *out = found;
    return near;
}

/* Single records may lie elsewhere, in pages that were used before, so three of them are asked what is
 * near; false where the records are all over the file. */
static bool find_most(const lio_extent *records, size_t count, uint64_t reach, place *out)
{
    for (size_t quarter = 1; quarter < 4; quarter++)
        if (gather_near(records, count, reach, records[count * quarter / 4].offset, out) >=
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

/* Asks for what is missing up to `goal`, unless what was asked for before has not come yet. */
static void extend(lio_prefetch *s, uint64_t goal)
{
    lio_ticket **ticket = &s->tickets[s->next];
    lio_extent range = {s->to, goal - s->to};
    uint64_t cached;
    if (goal <= s->to)
        return;
    if (lio_engine_cached(s->engine, range.offset, range.length, &cached, NULL) == LIO_OK &&
        cached >= range.length) {
        s->to = goal;
        return;
    }
    if (*ticket != NULL) {
        if (lio_ticket_wait(*ticket, 0, NULL) == LIO_PENDING)
            return;
        /* A mount may go without a page cache (FUSE's direct_io, 9p). */
        s->useless = lio_engine_cached(s->engine, s->asked[s->next], s->piece, &cached, NULL) ==
                         LIO_OK &&
                     cached == 0;
        lio_ticket_drop(ticket);
    }
    if (lio_engine_populate(s->engine, &range, 1, s->piece, ticket, NULL) != LIO_OK)
        return;
    s->asked[s->next] = range.offset;
    s->next = (s->next + 1) % TICKETS;
    s->to = goal;
}

static bool has_come(const lio_prefetch *s, uint64_t at)
{
    return s->units[at / UNIT_BYTES] >= UNIT_BYTES / 2;
}

/* The next part of the file that is to be swept, and passes by what has come. */
static lio_extent next_step(lio_prefetch *s)
{
    uint64_t end;
    while (s->swept < s->file_end && has_come(s, s->swept))
        s->swept += UNIT_BYTES;
    end = s->swept;
    while (end < s->file_end && end - s->swept < SWEEP_BYTES && !has_come(s, end))
        end += UNIT_BYTES;
    end = end < s->file_end ? end : s->file_end;
    return (lio_extent){s->swept, s->swept < end ? end - s->swept : 0};
}

/* Lets go of a step that has ended. A mount may go without a page cache. */
static void end_step(lio_prefetch *s)
{
    uint64_t cached;
    if (s->step == NULL)
        return;
    lio_ticket_drop(&s->step);
    if (lio_engine_cached(s->engine, s->stretch.offset, s->stretch.length, &cached, NULL) ==
            LIO_OK &&
        cached == 0)
        s->useless = true;
}

/* Begins the next step where the one before has ended. Where the kernel is asked for much at a time,
 * one stream gets all that a disk gives, in large pages, at a third of what many requests cost. */
static void go_on(lio_prefetch *s)
{
    if (s->step != NULL && lio_ticket_wait(s->step, 0, NULL) == LIO_PENDING)
        return;
    end_step(s);
    if (s->useless)
        return;
    s->stretch = next_step(s);
    if (s->stretch.length > 0 &&
        lio_engine_populate(s->engine, &s->stretch, 1,
                            s->piece < LARGE_BYTES ? s->piece : SWEEP_BYTES, &s->step,
                            NULL) != LIO_OK)
        s->useless = true; /* the reads that follow tell why */
    s->swept += s->stretch.length;
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

static void begin_sweep(lio_prefetch *s)
{
    uint64_t cached;
    bool is_there = lio_engine_cached(s->engine, 0, s->file_end, &cached, NULL) == LIO_OK &&
                    cached >= s->file_end;
    s->sweeps = true;
    s->to = s->file_end;
    s->swept = is_there ? s->file_end : 0;
}

int lio_prefetch_sweep(lio_prefetch *s, const lio_extent *records, size_t count,
                       uint64_t block_bytes)
{
    bool scattered;
    place at;
    if (s == NULL || s->useless || s->units == NULL || count == 0)
        return LIO_SWEEP_NONE;
    scattered = !find_most(records, count, 2 * block_bytes, &at);
    if (scattered)
        s->scattered += count * SCATTERED_BYTES;
    else if (!s->sweeps)
        note_dense(s, records, count);
    if (!s->sweeps && (s->file_end <= SMALL_BYTES ||
                       s->scattered + s->dense / SWEEP_PART >= s->file_end / SWEEP_PART))
        begin_sweep(s);
    if (!s->sweeps)
        return LIO_SWEEP_NONE;
    go_on(s);
    return scattered ? LIO_SWEEP_SCATTERED : LIO_SWEEP_DENSE;
}

int lio_prefetch_wait(lio_prefetch *s, int timeout_ms)
{
    if (s == NULL || !s->sweeps)
        return LIO_OK;
    for (go_on(s); s->step != NULL && !s->useless; go_on(s))
        if (lio_ticket_wait(s->step, timeout_ms, NULL) == LIO_PENDING)
            return LIO_PENDING;
    return LIO_OK;
}

int lio_prefetch_cover(lio_prefetch *s, const lio_extent *records, size_t count,
                       uint64_t block_bytes, uint64_t ahead)
{
    place at;
    uint64_t goal;
    if (s == NULL || s->useless || count == 0 || !find_most(records, count, 2 * block_bytes, &at))
        return 0;
    if (!goes_on(s, &at, 4 * block_bytes)) {
        if ((at.high - at.low) / 2 > at.bytes)
            return 0;
        s->from = s->to = lio_round_down(at.low, s->piece);
        s->used = 0;
    }
    s->used += at.bytes;
    goal = at.high + (ahead < AHEAD_MAX ? ahead : AHEAD_MAX);
    extend(s, goal < s->file_end ? lio_round_up(goal, s->piece) : s->file_end);
    return 1;
}
