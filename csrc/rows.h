/* rows: the rows of a block in its slot, where they are brought together from several places.
 *
 *   slot:   table: offset, length of each row | data: runs of rows, in the order of their sources
 *
 * The rows of a run (of one round and one root, csrc/sources.h) lie one behind the other, so that
 * they can come in one piece. Each begins at a multiple of LIO_ROW_ALIGNMENT.
 */
#ifndef LIO_ROWS_H
#define LIO_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "extent.h"

enum { LIO_ROW_ALIGNMENT = 8 };

/* The bytes that a row takes in a slot, and on its way there. */
uint64_t lio_row_room(uint64_t length);

/* The bytes of several. Saturates. */
uint64_t lio_rows_room(const uint64_t *lengths, size_t count);

/* Places rows: their `lengths`, and their `offsets` in the data. `order` are the rows by runs, each
 * of which begins where `begins` says, whose last number is the end. `run_offsets` are where runs
 * begin in the data, and the end of the last. Saturates. */
void lio_rows_lay_out(const lio_extent *extents, const int64_t *order, const int64_t *begins,
                      size_t runs, uint64_t *lengths, uint64_t *offsets, uint64_t *run_offsets);

/* Records in memory, which begin at base + slices[i]; their numbers ascend. */
typedef struct {
    const int64_t *records;
    const uint64_t *slices;
    size_t count;
    uint64_t base; /* address */
} lio_loaded;

/* Finds the address of a record; false: it is not there. */
bool lio_loaded_find(const lio_loaded *loaded, int64_t record, uint64_t *address);

/* Writes the table of a slot. */
void lio_rows_write_table(uint64_t table, const uint64_t *offsets, const uint64_t *lengths,
                          size_t rows);

#endif
