/* cells: records in memory that is cut into cells of one size, so that any one may follow any other.
 *
 *   | a | a | b | free | a | c | ...     a record lies in as many as it needs, wherever these are
 *
 * Each cell is free, or of one record.
 */
#ifndef LIO_CELLS_H
#define LIO_CELLS_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct lio_cells lio_cells;

/* Cuts `count` cells of `size` bytes each from `address` on, for `records` of the data set. The caller
 * owns the memory, until close. LIO_ERR_NOMEM. */
int lio_cells_open(uint64_t address, uint64_t size, uint32_t count, uint32_t records,
                   lio_cells **out, lio_error *error);

/* Copies records from `sources`, as long as `lengths` say, into free cells; those that have some
 * already stay as they are. Returns how many, from the first on, have had room. */
size_t lio_cells_put(lio_cells *cells, const int64_t *records, const uint64_t *lengths,
                     const uint64_t *sources, size_t count);

/* Copies records to `targets`. Returns how many, from the first on, were there; an empty one always
 * is. */
size_t lio_cells_get(const lio_cells *cells, const int64_t *records, const uint64_t *lengths,
                     const uint64_t *targets, size_t count);

/* Frees the cells of records, as far as they have some. */
void lio_cells_drop(lio_cells *cells, const int64_t *records, size_t count);

/* NULL is fine. */
void lio_cells_close(lio_cells *cells);

#endif
