/* gather: a small batch of records, as they lie, out of the page cache.
 *
 *   numbers --table--> extents --pack--> places --copy--> memory of the caller's
 *
 * Where the page cache holds all of it, this takes less than to sort and coalesce the extents
 * would (plan), and each record lands where it was asked for. All but
 * the copy is pure.
 */
#ifndef LIO_GATHER_H
#define LIO_GATHER_H

#include <stddef.h>

#include "engine.h"
#include "extent.h"

/* Packed records begin at multiples of it: further apart than LMDB itself promises. */
enum { LIO_PACK_ALIGNMENT = 16 };

/* Finds `count` records by their numbers in a table of all; negative numbers count from its end.
 * `places` are the same numbers from its beginning. Returns how many, from the first on, are in
 * the table. */
size_t lio_table_find(const lio_extent *table, size_t records, const int64_t *numbers,
                      size_t count, uint64_t *places, lio_extent *out);

/* Places records one after another: their lengths, and where they begin. Returns the sum of their
 * lengths; `room` is what they need. Both saturate. */
uint64_t lio_extents_pack(const lio_extent *extents, size_t count, uint64_t *lengths,
                          uint64_t *offsets, uint64_t *room);

/* How many, from the first on, lie inside of `room` bytes. */
size_t lio_places_inside(const uint64_t *offsets, const uint64_t *lengths, size_t count,
                         uint64_t room);

/* Copies what lies at `extents` of the file to `offsets` of `into`, which has `room` bytes, by the
 * calling thread, while that need not wait. Returns how many, from the first on. */
size_t lio_gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                  size_t count, uint8_t *into, uint64_t room);

#endif
