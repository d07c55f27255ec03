/* extent: a range of bytes in a file, with arithmetic that cannot wrap. */
#ifndef LIO_EXTENT_H
#define LIO_EXTENT_H

#include <stdint.h>

typedef struct {
    uint64_t offset; /* bytes from the start of the file */
    uint64_t length; /* bytes; 0 is legal (an empty value) */
} lio_extent;

/* cdef: skip */
#include <stdbool.h>

/* True when [offset, offset + length) lies inside [0, size), without computing a sum that
 * could wrap. */
static inline bool lio_fits(uint64_t offset, uint64_t length, uint64_t size)
{
    return length <= size && offset <= size - length;
}

/* Rounds down and up to `alignment`, a power of two. Rounding up saturates, so that a huge
 * offset never becomes a small one. */
static inline uint64_t lio_round_down(uint64_t value, uint64_t alignment)
{
    return value & ~(alignment - 1);
}

static inline uint64_t lio_round_up(uint64_t value, uint64_t alignment)
{
    uint64_t down = lio_round_down(value, alignment);
    if (down == value)
        return value;
    return down > UINT64_MAX - alignment ? UINT64_MAX : down + alignment;
}

static inline uint64_t lio_add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline bool lio_is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}
/* cdef: resume */

#endif
