#include "scan_block.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"

void lio_block_clear(lio_block *b)
{
    lio_ticket_free(b->ticket);
    lio_ticket_free(b->advice);
    lio_plan_free(b->plan);
    b->ticket = b->advice = NULL;
    b->plan = NULL;
    b->count = b->extent_count = 0;
    b->arena_size = b->value_bytes = b->spread_bytes = 0;
    b->past = b->is_prefetched = false;
    b->awaited = (lio_extent){0, 0};
    b->state = LIO_BLOCK_EMPTY;
}

void lio_block_free(lio_block *b)
{
    lio_block_clear(b);
    free(b->records);
    free(b->arena);
    free(b->extents);
    lio_buffer_close(b->buffer);
}

/* Makes room for `wanted` items of `size` bytes in a growing array. */
static int reserve(void **items, size_t *capacity, size_t wanted, size_t size, lio_error *error)
{
    size_t next = *capacity < 16 ? 16 : *capacity;
    void *grown;
    if (wanted <= *capacity)
        return LIO_OK;
    while (next < wanted && next <= SIZE_MAX / 2)
        next *= 2;
    grown = next < wanted || next > SIZE_MAX / size ? NULL : realloc(*items, next * size);
    if (grown == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, wanted, 0, "no memory for a block of records");
    *items = grown;
    *capacity = next;
    return LIO_OK;
}

/* Copies bytes into the arena; `*at`: where they lie in it. */
static int keep(lio_block *b, const uint8_t *bytes, uint64_t size, uint64_t *at, lio_error *error)
{
    void *arena = b->arena;
    size_t capacity = b->arena_capacity;
    int code = reserve(&arena, &capacity, b->arena_size + size, 1, error);
    if (code != LIO_OK)
        return code;
    b->arena = arena;
    b->arena_capacity = capacity;
    if (size != 0)
        memcpy(b->arena + b->arena_size, bytes, size);
    *at = b->arena_size;
    b->arena_size += size;
    return LIO_OK;
}

/* Bytes that one extent more adds to a plan's buffer: the pages that it touches, and what lies between
 * it and the one before it where that is worth reading. */
static uint64_t spread(const lio_block *b, const lio_extent *next)
{
    uint64_t start = lio_round_down(next->offset, LIO_BUFFER_ALIGNMENT);
    uint64_t end = lio_round_up(next->offset + next->length, LIO_BUFFER_ALIGNMENT);
    const lio_extent *last = b->extent_count > 0 ? &b->extents[b->extent_count - 1] : NULL;
    uint64_t before = last == NULL
                          ? 0
                          : lio_round_up(last->offset + last->length, LIO_BUFFER_ALIGNMENT);
    if (last == NULL || next->offset < last->offset || start > before + LIO_BLOCK_GAP_BYTES_MAX)
        return end - start;
    return end > before ? end - before : 0;
}

static int keep_extent(lio_block *b, const lio_item *item, uint64_t header, lio_block_record *r,
                       lio_error *error)
{
    void *extents = b->extents;
    lio_extent whole;
    int code = reserve(&extents, &b->extent_capacity, b->extent_count + 1, sizeof *b->extents,
                       error);
    if (code != LIO_OK)
        return code;
    b->extents = extents;
    r->extent = (uint32_t)b->extent_count;
    whole = (lio_extent){item->where.offset - header, item->where.length + header};
    b->spread_bytes = lio_add_saturated(b->spread_bytes, spread(b, &whole));
    b->extents[b->extent_count++] = whole;
    return LIO_OK;
}

int lio_block_append(lio_block *b, const lio_item *item, lio_spot spot, uint64_t header_size,
                     bool want_values, lio_error *error)
{
    lio_block_record r = {0, 0, item->data_size, (uint32_t)item->key_size, LIO_NO_EXTENT, spot};
    void *records = b->records;
    int code = reserve(&records, &b->capacity, b->count + 1, sizeof *b->records, error);
    if (code != LIO_OK)
        return code;
    b->records = records;
    code = keep(b, item->key, item->key_size, &r.key_at, error);
    if (code == LIO_OK && want_values) {
        if (item->data != NULL)
            code = keep(b, item->data, item->data_size, &r.value_at, error);
        else
            code = keep_extent(b, item, header_size, &r, error);
        b->value_bytes += item->data_size;
    }
    if (code == LIO_OK)
        b->records[b->count++] = r;
    return code;
}
