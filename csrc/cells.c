#include "cells.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Cells are numbered from 1 on; 0 is none. */
struct lio_cells {
    uint64_t address, size;
    uint32_t *firsts; /* of each record */
    uint32_t *next;   /* of the same record, or of those that are free; by cell */
    uint32_t free;
    uint64_t free_count;
};

int lio_cells_open(uint64_t address, uint64_t size, uint32_t count, uint32_t records,
                   lio_cells **out, lio_error *error)
{
    lio_cells *c = calloc(1, sizeof *c);
    if (c != NULL) {
        c->address = address;
        c->size = size;
        c->firsts = calloc((size_t)records + 1, sizeof *c->firsts);
        c->next = malloc(((size_t)count + 1) * sizeof *c->next);
        if (c->firsts != NULL && c->next != NULL) {
            for (uint32_t cell = 0; cell < count; cell++)
                c->next[cell] = cell + 1; /* the lowest is taken first */
            c->next[count] = 0;
            c->free = c->next[0];
            c->free_count = count;
            *out = c;
            return LIO_OK;
        }
        lio_cells_close(c);
    }
    return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory for a list of %" PRIu32 " cells",
                    count);
}

static void *bytes_of(const lio_cells *c, uint32_t cell)
{
    return (void *)(uintptr_t)(c->address + (cell - 1) * c->size);
}

static size_t part(const lio_cells *c, uint64_t left)
{
    return (size_t)(left < c->size ? left : c->size);
}

size_t lio_cells_put(lio_cells *c, const int64_t *records, const uint64_t *lengths,
                     const uint64_t *sources, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t length = lengths[i], need = length / c->size + (length % c->size > 0);
        uint32_t *at = &c->firsts[records[i]];
        const char *from = (const char *)(uintptr_t)sources[i];
        if (*at != 0 || length == 0)
            continue;
        if (need > c->free_count)
            return i;
        for (uint64_t left = length; left > 0;) {
            size_t size = part(c, left);
            uint32_t cell = c->free;
            c->free = c->next[cell];
            memcpy(bytes_of(c, cell), from, size);
            *at = cell;
            at = &c->next[cell];
            from += size;
            left -= size;
        }
        *at = 0;
        c->free_count -= need;
    }
    return count;
}

size_t lio_cells_get(const lio_cells *c, const int64_t *records, const uint64_t *lengths,
                     const uint64_t *targets, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *to = (char *)(uintptr_t)targets[i];
        uint32_t cell = c->firsts[records[i]];
        for (uint64_t left = lengths[i]; left > 0; cell = c->next[cell]) {
            size_t size = part(c, left);
            if (cell == 0)
                return i;
            memcpy(to, bytes_of(c, cell), size);
            to += size;
            left -= size;
        }
    }
    return count;
}

void lio_cells_drop(lio_cells *c, const int64_t *records, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t first = c->firsts[records[i]], last = first;
        if (first == 0)
            continue;
        c->free_count++;
        for (; c->next[last] != 0; last = c->next[last])
            c->free_count++;
        c->next[last] = c->free;
        c->free = first;
        c->firsts[records[i]] = 0;
    }
}

void lio_cells_close(lio_cells *cells)
{
    if (cells == NULL)
        return;
    free(cells->firsts);
    free(cells->next);
    free(cells);
}
