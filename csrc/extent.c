#include "extent.h"

#include <string.h>

size_t lio_extents_find(const lio_extent *table, size_t records, const int64_t *numbers,
                        size_t count, uint64_t *places, lio_extent *out)
{
    for (size_t i = 0; i < count; i++) {
        /* A number too far below 0 wraps to one that is too large. */
        uint64_t place = (uint64_t)numbers[i] + (numbers[i] < 0 ? records : 0);
        if (place >= records)
            return i;
        places[i] = place;
        out[i] = table[place];
    }
    return count;
}

size_t lio_extents_take(const lio_extent *table, size_t records, const uint64_t *numbers,
                        size_t count, lio_extent *out)
{
    for (size_t i = 0; i < count; i++) {
        if (numbers[i] >= records)
            return i;
        out[i] = table[numbers[i]];
    }
    return count;
}

uint64_t lio_extents_pack(const lio_extent *extents, size_t count, uint64_t *lengths,
                          uint64_t *offsets, uint64_t *room)
{
    uint64_t sum = 0;
    *room = 0;
    for (size_t i = 0; i < count; i++) {
        lengths[i] = extents[i].length;
        offsets[i] = lio_round_up(*room, LIO_PACK_ALIGNMENT);
        *room = lio_add_saturated(offsets[i], lengths[i]);
        sum = lio_add_saturated(sum, lengths[i]);
    }
    return sum;
}

size_t lio_extents_split(const lio_extent *extents, size_t count, uint64_t room, uint64_t *lengths,
                         uint64_t *offsets, lio_extent *span)
{
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < count; i++) {
        lio_extent e = extents[i];
        if (!lio_fits(e.offset, e.length, room))
            return i;
        offsets[i] = e.offset;
        lengths[i] = e.length;
        if (e.length > 0) {
            low = e.offset < low ? e.offset : low;
            high = e.offset + e.length > high ? e.offset + e.length : high;
        }
    }
    *span = high > 0 ? (lio_extent){low, high - low} : (lio_extent){0, 0};
    for (size_t i = 0; i < count; i++)
        offsets[i] = lengths[i] > 0 ? offsets[i] - low : 0;
    return count;
}

uint64_t lio_extents_footprint(const lio_extent *extents, size_t count, uint64_t alignment,
                               uint64_t last[2], int64_t *needed, uint64_t *shared_max)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        lio_extent e = extents[i];
        uint64_t end = lio_round_up(lio_add_saturated(e.offset, e.length), alignment);
        uint64_t begin = e.length > 0 ? lio_round_down(e.offset, alignment) : end;
        uint64_t low = begin > last[0] ? begin : last[0], high = end < last[1] ? end : last[1];
        uint64_t shared = high > low ? high - low : 0;
        *shared_max = shared > *shared_max ? shared : *shared_max;
        needed[i] = (int64_t)(end - begin - shared);
        sum += end - begin - shared;
        last[0] = begin;
        last[1] = end;
    }
    return sum;
}

size_t lio_extents_same(const uint8_t *memory, const lio_extent *extents, const uint8_t *other,
                        const lio_extent *others, size_t count)
{
    size_t i = 0;
    while (i < count && extents[i].length == others[i].length &&
           memcmp(memory + extents[i].offset, other + others[i].offset, extents[i].length) == 0)
        i++;
    return i;
}

void lio_extents_place(const lio_extent *extents, size_t count, uint32_t bits,
                       const uint32_t *numbers, size_t grains, uint64_t first, uint64_t *places)
{
    uint64_t within = ((uint64_t)1 << bits) - 1;
    for (size_t i = 0; i < count; i++) {
        uint64_t grain = extents[i].offset >> bits;
        places[i] = grain < grains
                        ? ((numbers[grain] - first) << bits) + (extents[i].offset & within)
                        : 0;
    }
}

size_t lio_extents_beyond(const lio_extent *extents, const uint64_t *places, size_t count,
                          uint64_t limit, int64_t *beyond)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (extents[i].length > 0 && !lio_fits(places[i], extents[i].length, limit))
            beyond[found++] = (int64_t)i;
    return found;
}

size_t lio_places_inside(const uint64_t *offsets, const uint64_t *lengths, size_t count,
                         uint64_t room)
{
    size_t i = 0;
    while (i < count && lio_fits(offsets[i], lengths[i], room))
        i++;
    return i;
}

/* Multiplication spreads upwards, the shifted sum downwards; both can be undone, so that no two marks
 * become one. The constants are odd, their bits as good as random (fractions of the golden ratio and
 * of the root of 3). */
uint64_t lio_extents_mark(const lio_extent *extents, size_t count, uint64_t mark)
{
    for (size_t i = 0; i < count; i++) {
        mark = (mark ^ extents[i].offset) * UINT64_C(0x9E3779B97F4A7C15);
        mark = ((mark ^ (mark >> 32)) + extents[i].length) * UINT64_C(0xBB67AE8584CAA73B);
        mark ^= mark >> 29;
    }
    return mark;
}
