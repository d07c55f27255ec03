/* gather: a small batch of records, as they lie, out of the page cache.
 *
 * Where the page cache holds all of it, this takes less than to sort and coalesce the extents would
 * (plan), and each record lands where it was asked for.
 */
#ifndef LIO_GATHER_H
#define LIO_GATHER_H

#include <stddef.h>

#include "engine.h"
#include "extent.h"

/* Copies what lies at `extents` of the file to `offsets` of `into`, which has `room` bytes, by the
 * calling thread, while that need not wait. Returns how many, from the first on. */
size_t lio_gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                  size_t count, uint8_t *into, uint64_t room);

#endif
