#include "rows.h"

uint64_t lio_row_room(uint64_t length)
{
    return lio_round_up(length, LIO_ROW_ALIGNMENT);
}

uint64_t lio_rows_room(const uint64_t *lengths, size_t count)
{
    uint64_t room = 0;
    for (size_t i = 0; i < count; i++)
        room = lio_add_saturated(room, lio_row_room(lengths[i]));
    return room;
}

void lio_rows_lay_out(const lio_extent *extents, const int64_t *order, const int64_t *begins,
                      size_t runs, uint64_t *lengths, uint64_t *offsets, uint64_t *run_offsets)
{
    uint64_t offset = 0;
    for (size_t run = 0; run < runs; run++) {
        run_offsets[run] = offset;
        for (int64_t i = begins[run]; i < begins[run + 1]; i++) {
            size_t row = (size_t)order[i];
            lengths[row] = extents[row].length;
            offsets[row] = offset;
            offset = lio_add_saturated(offset, lio_row_room(extents[row].length));
        }
    }
    run_offsets[runs] = offset;
}

bool lio_loaded_find(const lio_loaded *loaded, int64_t record, uint64_t *address)
{
    size_t low = 0, high = loaded->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (loaded->records[middle] < record)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == loaded->count || loaded->records[low] != record)
        return false;
    *address = loaded->base + loaded->slices[low];
    return true;
}

void lio_rows_write_table(uint64_t table, const uint64_t *offsets, const uint64_t *lengths,
                          size_t rows)
{
    uint64_t *out = (uint64_t *)(uintptr_t)table;
    for (size_t i = 0; i < rows; i++) {
        out[2 * i] = offsets[i];
        out[2 * i + 1] = lengths[i];
    }
}
