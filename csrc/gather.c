#include "gather.h"

#include <sys/uio.h>

size_t lio_table_find(const lio_extent *table, size_t records, const int64_t *numbers,
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

size_t lio_places_inside(const uint64_t *offsets, const uint64_t *lengths, size_t count,
                         uint64_t room)
{
    size_t i = 0;
    while (i < count && lio_fits(offsets[i], lengths[i], room))
        i++;
    return i;
}

size_t lio_gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                  size_t count, uint8_t *into, uint64_t room)
{
    size_t i = 0;
    for (; i < count && lio_fits(offsets[i], extents[i].length, room); i++) {
        struct iovec place = {.iov_base = into + offsets[i],
                              .iov_len = (size_t)extents[i].length};
        if (extents[i].length > 0 && !lio_engine_peek(engine, extents[i].offset, &place, 1))
            break;
    }
    return i;
}
