#include "gather.h"

#include <sys/uio.h>

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
