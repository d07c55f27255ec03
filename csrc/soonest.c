#include "soonest.h"

#include <inttypes.h>
#include <stdlib.h>

#include "contract.h"

enum { BELOW = 4 }; /* items of the heap below each one */

typedef struct {
    int64_t next;
    uint64_t size;
    uint32_t record;
} item;

/* The heap has what is used again latest on top. */
struct lio_soonest {
    item *items; /* room for all records; its pages are made when they are first used */
    uint32_t count;
    uint32_t *places; /* of each record, from 1 on; 0: it is not held */
    uint64_t used, capacity;
};

/* --- the heap --------------------------------------------------------------------------------- */

static void set(lio_soonest *s, uint32_t place, item one)
{
    s->items[place] = one;
    s->places[one.record] = place + 1;
}

static void rise(lio_soonest *s, uint32_t place, item one)
{
    for (; place > 0 && one.next > s->items[(place - 1) / BELOW].next; place = (place - 1) / BELOW)
        set(s, place, s->items[(place - 1) / BELOW]);
    set(s, place, one);
}

static void sink(lio_soonest *s, uint32_t place, item one)
{
    for (;;) {
        uint64_t first = (uint64_t)place * BELOW + 1, end = first + BELOW;
        uint32_t latest = (uint32_t)first;
        if (first >= s->count)
            break;
        end = end < s->count ? end : s->count;
        for (uint64_t i = first + 1; i < end; i++)
            latest = s->items[i].next > s->items[latest].next ? (uint32_t)i : latest;
        if (s->items[latest].next <= one.next)
            break;
        set(s, place, s->items[latest]);
        place = latest;
    }
    set(s, place, one);
}

static void take_in(lio_soonest *s, item one)
{
    s->used += one.size;
    rise(s, s->count++, one);
}

static uint32_t take_out(lio_soonest *s, uint32_t place)
{
    LIO_ASSERT(place < s->count && s->places[s->items[place].record] == place + 1);
    item out = s->items[place], last = s->items[--s->count];
    LIO_ASSERT(out.size <= s->used);
    s->used -= out.size;
    s->places[out.record] = 0;
    if (place < s->count && place > 0 && last.next > s->items[(place - 1) / BELOW].next)
        rise(s, place, last);
    else if (place < s->count)
        sink(s, place, last);
    return out.record;
}

/* --- uses ------------------------------------------------------------------------------------- */

int lio_soonest_open(uint32_t records, uint64_t capacity, lio_soonest **out, lio_error *error)
{
    lio_soonest *s = calloc(1, sizeof *s);
    if (s != NULL) {
        s->items = malloc(((size_t)records + 1) * sizeof *s->items);
        s->places = calloc((size_t)records + 1, sizeof *s->places);
        s->capacity = capacity;
        if (s->items != NULL && s->places != NULL) {
            *out = s;
            return LIO_OK;
        }
        lio_soonest_close(s);
    }
    return lio_fail(error, LIO_ERR_NOMEM, 0, records, 0,
                    "no memory for when %" PRIu32 " records are used again", records);
}

uint32_t lio_soonest_held(const lio_soonest *soonest)
{
    return soonest->count;
}

size_t lio_soonest_use(lio_soonest *s, const int64_t *records, const int64_t *next,
                       const uint64_t *sizes, size_t count, uint8_t *found, uint8_t *kept,
                       int64_t *dropped)
{
    size_t gone = 0, left = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t record = (uint32_t)records[i], place = s->places[record];
        found[i] = place > 0;
        if (place > 0)
            (void)take_out(s, place - 1);
        if (next[i] == INT64_MAX) {
            if (place > 0)
                dropped[gone++] = record;
            continue;
        }
        take_in(s, (item){next[i], sizes[i], record});
        while (s->used > s->capacity)
            dropped[gone++] = take_out(s, 0);
    }
    for (size_t i = 0; i < count; i++)
        kept[i] = s->places[records[i]] > 0;
    for (size_t i = 0; i < gone; i++)
        if (s->places[dropped[i]] == 0)
            dropped[left++] = dropped[i];
    LIO_ASSERT(s->used <= s->capacity);
    return left;
}

void lio_soonest_close(lio_soonest *soonest)
{
    if (soonest == NULL)
        return;
    free(soonest->items);
    free(soonest->places);
    free(soonest);
}
