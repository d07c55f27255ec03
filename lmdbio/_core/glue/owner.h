/* glue_owner: cells into which calls put what they open, and which close it.
 *
 * A cell is there, and owned, before the call that fills it: an exception that a signal's handler raises
 * right after the call, where no line of Python's has seen yet what was opened, leaves nothing open.
 * Of each lio_NAME_close() of the rooms the builder makes a lio_cell_NAME_close() (csrc/build_extension.py),
 * which closes what is in a cell and empties it; here is what has another form.
 */

/* cdef: skip */
#ifndef LIO_GLUE_OWNER_H
#define LIO_GLUE_OWNER_H
#include <unistd.h>
/* cdef: resume */

/* Pages that are mapped; none at NULL. */
typedef struct {
    void *at;
    uint64_t size;
} lio_mapped_pages;

static void lio_cell_window_unmap(lio_mapped_pages *cell);

/* Of a descriptor; none at -1. */
static void lio_cell_descriptor_close(int *cell);

/* lio_arrival_close, and empties the cell. */
static int lio_cell_arrival_end(lio_arrival **cell, int timeout_ms);

/* lio_buffer_open, into a cell. */
static void lio_cell_buffer_open(uint64_t size, uint8_t **cell);

/* cdef: skip */
static void lio_cell_window_unmap(lio_mapped_pages *cell)
{
    if (cell->at != NULL)
        lio_window_unmap(cell->at, cell->size);
    cell->at = NULL;
}

static void lio_cell_descriptor_close(int *cell)
{
    int fd = *cell;
    *cell = -1;
    if (fd >= 0)
        (void)close(fd);
}

static int lio_cell_arrival_end(lio_arrival **cell, int timeout_ms)
{
    lio_arrival *held = *cell;
    *cell = NULL;
    return lio_arrival_close(held, timeout_ms);
}

static void lio_cell_buffer_open(uint64_t size, uint8_t **cell)
{
    *cell = lio_buffer_open(size);
}
#endif
/* cdef: resume */
