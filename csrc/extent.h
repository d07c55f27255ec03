/* extent: a range of bytes in a file, with arithmetic that cannot wrap; and tables of them. */
#ifndef LIO_EXTENT_H
#define LIO_EXTENT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t offset; /* bytes from the start of the file */
    uint64_t length; /* bytes; 0 is legal (an empty value) */
} lio_extent;

/* Packed extents begin at multiples of it: further apart than LMDB itself promises. */
enum { LIO_PACK_ALIGNMENT = 16 };

/* Finds `count` extents by their numbers in a table; negative numbers count from its end. `places`
 * are the same numbers from its beginning. Returns how many, from the first on, are in the table. */
size_t lio_extents_find(const lio_extent *table, size_t records, const int64_t *numbers,
                        size_t count, uint64_t *places, lio_extent *out);

/* The same by numbers that are in the table, or not: returns how many, from the first on, are. */
size_t lio_extents_take(const lio_extent *table, size_t records, const uint64_t *numbers,
                        size_t count, lio_extent *out);

/* Places extents one after another: their lengths, and where they begin. Returns the sum of their
 * lengths; `room` is what they need. Both saturate. */
uint64_t lio_extents_pack(const lio_extent *extents, size_t count, uint64_t *lengths,
                          uint64_t *offsets, uint64_t *room);

/* Splits extents inside of `room` bytes: their lengths, and where they begin from `span` on, which
 * is all that lies between the first byte and the last of them. An empty one begins there. Returns
 * how many, from the first on, lie inside; `span` and the places hold if all do. */
size_t lio_extents_split(const lio_extent *extents, size_t count, uint64_t room, uint64_t *lengths,
                         uint64_t *offsets, lio_extent *span);

/* How many extents, from the first on, have the same length and the same bytes in `memory` as the
 * `others` have in `other`. All lie inside. */
size_t lio_extents_same(const uint8_t *memory, const lio_extent *extents, const uint8_t *other,
                        const lio_extent *others, size_t count);

/* The bytes, in whole pieces of `alignment` (a power of two), that each extent needs beyond the one
 * before it. `last` is the first and the end of what the one before the first needs, and then of
 * what the last does. `shared_max` grows to the most that two neighbours share. Returns the sum. */
uint64_t lio_extents_footprint(const lio_extent *extents, size_t count, uint64_t alignment,
                               uint64_t last[2], int64_t *needed, uint64_t *shared_max);

/* Where extents begin in memory that keeps grains of the file, each of 1 << `bits` bytes:
 * `numbers` says which one of those there each of the file's `grains` is, counted from `first`. An
 * extent that begins in none of the file's is placed at 0. */
void lio_extents_place(const lio_extent *extents, size_t count, uint32_t bits,
                       const uint32_t *numbers, size_t grains, uint64_t first, uint64_t *places);

/* Finds the extents that end beyond `limit` in that memory, empty ones aside: their numbers go to
 * `beyond`. Returns how many there are. */
size_t lio_extents_beyond(const lio_extent *extents, const uint64_t *places, size_t count,
                          uint64_t limit, int64_t *beyond);

/* How many places, from the first on, lie inside of `room` bytes. */
size_t lio_places_inside(const uint64_t *offsets, const uint64_t *lengths, size_t count,
                         uint64_t room);

/* Goes on with a mark (0 at first) that two lists of extents have in common by chance once in 2^64:
 * to tell that what was written is read back, not against who forges. */
uint64_t lio_extents_mark(const lio_extent *extents, size_t count, uint64_t mark);

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
