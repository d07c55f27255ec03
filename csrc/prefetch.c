#include "prefetch.h"

#include <stdbool.h>
#include <stdlib.h>

enum {
    TICKETS = 4,
    AHEAD_MAX = 32 << 20 /* bytes that may turn out to be of no use */
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
};

/* Where most of some records lie. */
typedef struct {
    uint64_t low, high, bytes;
} place;

lio_prefetch *lio_prefetch_open(lio_engine *engine, uint64_t file_end, uint64_t piece)
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
    return s;
}

void lio_prefetch_close(lio_prefetch *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < TICKETS; i++)
        lio_ticket_free(s->tickets[i]);
    free(s);
}

/* Single records may lie elsewhere, in pages that were used before; false where they are all
 * over the file. */
static bool find_most(const lio_extent *records, size_t count, uint64_t reach, place *out)
{
    place found = {UINT64_MAX, 0, 0};
    uint64_t middle = records[count / 2].offset;
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
    return near >= count - count / 4;
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
