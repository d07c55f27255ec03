#include "scan.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "engine_pagecache.h"
#include "engine_stats.h"
#include "plan.h"
#include "prefetch.h"
#include "scan_block.h"

enum {
    RECORDS_FIRST = 8,
    RECORDS_MAX = 1 << 16,
    KEYS_MAX = 1 << 11, /* of a block of keys: these stay in a core's cache    */
    BYTES_FIRST = 64 << 10,
    GROWTH = 4,                      /* of blocks: each size costs far storage a wait      */
    REQUEST_BYTES_MAX = 1 << 20,     /* of which several are in flight                     */
    ARENA_BYTES_MAX = 256 << 10,     /* likewise, for what is copied out of leaves           */
    STRETCH_PIECE_BYTES = 128 << 10, /* what a kernel asks of such file systems at once      */
    PIECE_BYTES = 192 << 10,         /* stays in a core's cache between read and use       */
    ALONE_BYTES_MIN = 32 << 10,      /* such a value is read where it is wanted            */
    PAST_BYTES_MIN = 4 << 20,        /* blocks that may go past the page cache             */
    LEAVES_AHEAD_INLINE = 512,       /* the leaves are the data                            */
    LEAVES_AHEAD_OVERFLOW = 64       /* each names a hundred values                        */
};

/* Values of some records of a block, read into memory that is used again and again. */
typedef struct {
    lio_plan *plan;
    uint8_t *buffer;
    uint64_t capacity;
    size_t first_extent, extent_count;
} piece;

struct lio_scan {
    lio_cursor *cursor;
    lio_engine *engine;
    lio_layout layout;
    lio_scan_options options;
    lio_bypass past;
    uint64_t bytes_limit, records_limit;
    lio_block blocks[2];
    piece loaded;
    lio_extent brought;     /* of the file, for the last block; empty: it need not be */
    bool is_in_place;       /* the last piece was left in a mapping: each value is copied once */
    lio_prefetch *prefetch; /* NULL: none */
    uint32_t current, begun;
    uint32_t through_cache; /* see submit() */
    uint64_t records;       /* of all blocks that were current */
    lio_spot tail;          /* of the last record of the block before */
    bool between;           /* that one is handed out, and none has become current since */
    int failed;             /* what ended collecting: LIO_NOTFOUND or an error */
    lio_error failure;
};

/* Where the file is asked for in order, what the kernel adds to single reads only disturbs. */
static void own_readahead(const lio_scan *scan, int advice)
{
    if (scan->prefetch != NULL && scan->options.dense)
        (void)posix_fadvise(lio_engine_fd(scan->engine), 0, 0, advice);
}

int lio_scan_open(lio_cursor *cursor, const lio_scan_options *options, lio_scan **out,
                  lio_error *error)
{
    uint64_t file_end, bytes_max = options->block_bytes_max;
    lio_scan *scan = calloc(1, sizeof *scan);
    int code;
    if (scan == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *scan, 0, "no memory for a scan");
    code = lio_cursor_copy(cursor, &scan->cursor, error);
    if (code != LIO_OK) {
        free(scan);
        return code;
    }
    scan->engine = lio_pages_engine(lio_cursor_pages(cursor));
    scan->layout = *lio_pages_layout(lio_cursor_pages(cursor));
    scan->options = *options;
    scan->bytes_limit = BYTES_FIRST < bytes_max ? BYTES_FIRST : bytes_max;
    scan->records_limit = RECORDS_FIRST;
    scan->through_cache = lio_engine_alignment(scan->engine) == 1 &&
                          lio_engine_fd(scan->engine) >= 0;
    file_end = scan->layout.page_limit * scan->layout.page_size;
    if ((options->dense || file_end <= options->sweep_bytes_max) && scan->through_cache)
        lio_prefetch_open(scan->engine, file_end, options->dense ? STRETCH_PIECE_BYTES : 0,
                          options->sweep_bytes_max, &scan->prefetch);
    own_readahead(scan, POSIX_FADV_RANDOM);
    *out = scan;
    return LIO_OK;
}

void lio_scan_close(lio_scan *scan)
{
    if (scan == NULL)
        return;
    lio_block_free(&scan->blocks[0]);
    lio_block_free(&scan->blocks[1]);
    own_readahead(scan, POSIX_FADV_NORMAL);
    lio_prefetch_close(scan->prefetch);
    lio_plan_free(scan->loaded.plan);
    lio_buffer_close(scan->loaded.buffer);
    lio_cursor_close(scan->cursor);
    free(scan);
}

/* Plans the reads of some extents, each with a page's header before its value, and makes the
 * buffer large enough. */
static int plan_reads(const lio_scan *scan, lio_engine *engine, const lio_extent *extents,
                      size_t count, lio_plan **plan, uint8_t **buffer, uint64_t *capacity,
                      lio_read **reads, size_t *read_count, lio_error *error)
{
    lio_plan_options options = {LIO_BLOCK_GAP_BYTES_MAX, REQUEST_BYTES_MAX,
                                lio_engine_alignment(engine)};
    lio_plan_totals totals;
    const lio_request *requests;
    uint64_t begun = lio_now_ns();
    int code = lio_plan_make(extents, count, &options, plan, error);
    if (code != LIO_OK)
        return code;
    lio_plan_get_totals(*plan, &totals);
    if (totals.buffer_bytes > *capacity) {
        lio_buffer_close(*buffer);
        *capacity = totals.buffer_bytes + totals.buffer_bytes / 8;
        *buffer = lio_buffer_open(*capacity);
    }
    *reads = calloc(totals.requests, sizeof **reads);
    if (*buffer == NULL || *reads == NULL) {
        if (*buffer == NULL)
            *capacity = 0;
        free(*reads);
        return lio_fail(error, LIO_ERR_NOMEM, 0, totals.buffer_bytes, 0,
                        "no memory for a block of values");
    }
    requests = lio_plan_requests(*plan);
    for (uint64_t i = 0; i < totals.requests; i++)
        (*reads)[i] = (lio_read){requests[i].offset, requests[i].length, requests[i].needed,
                                 *buffer + requests[i].buffer_offset};
    *read_count = totals.requests;
    lio_engine_count_stage(scan->engine, LIO_STAGE_PLAN, begun, totals.buffer_bytes);
    lio_engine_count_planned(scan->engine, totals.buffer_bytes,
                             totals.waste_bytes + count * scan->layout.header_size);
    return LIO_OK;
}

/* A value larger than any block is better read where it is wanted. */
static bool goes_past(const lio_scan *scan, const lio_block *b)
{
    return scan->past.engine != NULL && b->value_bytes >= PAST_BYTES_MIN &&
           b->value_bytes / 2 <= scan->options.block_bytes_max;
}

/* The leaves that a block's records lie on, in their order. NULL: no memory. */
static lio_extent *leaves_of(const lio_scan *scan, const lio_block *b, size_t *count)
{
    lio_extent *leaves = malloc((b->count + 1) * sizeof *leaves);
    uint64_t last = 0; /* a meta page's */
    *count = 0;
    for (size_t i = 0; leaves != NULL && i < b->count; i++) {
        uint64_t page = lio_spot_page(b->records[i].spot);
        if (page != last)
            leaves[(*count)++] = (lio_extent){page * scan->layout.page_size,
                                              scan->layout.page_size};
        last = page;
    }
    return leaves;
}

/* Sweeps the file where that pays for the values of this block: those beside the leaves, or the leaves. */
static bool sweep(const lio_scan *scan, lio_block *b)
{
    lio_extent *leaves;
    size_t count;
    bool is_swept;
    if (scan->prefetch == NULL || !scan->options.want_values)
        return false;
    if (b->extent_count > 0)
        return lio_prefetch_sweep(scan->prefetch, b->extents, b->extent_count, scan->bytes_limit,
                                  &b->awaited);
    leaves = leaves_of(scan, b, &count);
    is_swept = leaves != NULL &&
               lio_prefetch_sweep(scan->prefetch, leaves, count, scan->bytes_limit, &b->awaited);
    free(leaves);
    return is_swept;
}

/* Has the file brought to the page cache around the values of this block, and ahead of them. */
static bool cover(const lio_scan *scan, lio_block *b)
{
    return b->extent_count > 1 &&
           lio_prefetch_cover(scan->prefetch, b->extents, b->extent_count, scan->bytes_limit,
                              2 * GROWTH * scan->bytes_limit, &b->awaited);
}

/* Starts the reads of a collected block. */
static int submit(lio_scan *scan, lio_block *b, lio_error *error)
{
    lio_engine *engine = scan->engine;
    lio_read *reads;
    size_t count;
    int code;
    b->is_prefetched = sweep(scan, b) || cover(scan, b);
    if (b->extent_count == 0 || b->is_prefetched)
        return LIO_OK;
    if (goes_past(scan, b)) {
        engine = scan->past.engine;
    } else if (scan->through_cache) {
        /* The values are fetched piece by piece, through memory that stays in the core's cache. */
        if (scan->options.advised)
            b->advice = lio_prefetch_hint(scan->engine, b->extents, b->extent_count);
        return LIO_OK;
    }
    code = plan_reads(scan, engine, b->extents, b->extent_count, &b->plan, &b->buffer,
                      &b->buffer_capacity, &reads, &count, error);
    if (code != LIO_OK)
        return code;
    code = lio_engine_submit(engine, reads, count, &b->ticket, error);
    b->past = engine != scan->engine;
    free(reads);
    return code;
}

/* Fills a block from the cursor on and starts its reads. The scan keeps an error that ends it for later. */
static void collect(lio_scan *scan, lio_block *b)
{
    lio_pages *pages = lio_cursor_pages(scan->cursor);
    uint64_t begun = lio_now_ns();
    int code = LIO_OK;
    lio_block_clear(b);
    lio_pages_lock(pages);
    while (scan->failed == LIO_OK && b->count < scan->records_limit &&
           b->arena_size < ARENA_BYTES_MAX && b->value_bytes < scan->bytes_limit &&
           b->spread_bytes / 2 < scan->bytes_limit) {
        code = lio_cursor_move_locked(scan->cursor, scan->options.move, NULL, 0, NULL, 0,
                                      &scan->failure);
        if (code == LIO_OK)
            code = lio_block_append(b, lio_cursor_item(scan->cursor),
                                    lio_cursor_spot(scan->cursor), scan->layout.header_size,
                                    scan->options.want_values, &scan->failure);
        scan->failed = code;
    }
    lio_pages_unlock(pages);
    lio_engine_count_stage(scan->engine, LIO_STAGE_LOCATE, begun, b->count);
    lio_engine_count_records(scan->engine, b->count, 0, 0);
    code = submit(scan, b, &scan->failure);
    scan->brought = b->awaited;
    if (code != LIO_OK) {
        scan->failed = code;
        lio_block_clear(b);
    }
    if (scan->records_limit < (scan->options.want_values ? RECORDS_MAX : KEYS_MAX))
        scan->records_limit *= GROWTH;
    scan->bytes_limit = scan->bytes_limit * GROWTH < scan->options.block_bytes_max
                            ? scan->bytes_limit * GROWTH
                            : scan->options.block_bytes_max;
    b->state = LIO_BLOCK_COLLECTED;
}

/* Leaves ahead pay once a scan has shown that it goes on, where nothing else brings them. */
static void look_ahead(lio_scan *scan, const lio_block *b)
{
    if (scan->options.move != LIO_MOVE_NEXT && scan->options.move != LIO_MOVE_NEXT_NODUP)
        return;
    if (b->is_prefetched && b->extent_count != 0)
        lio_cursor_read_ahead(scan->cursor, 0, NULL);
    else if (b->extent_count != 0 || !scan->options.want_values)
        lio_cursor_read_ahead(scan->cursor, LEAVES_AHEAD_OVERFLOW, NULL);
    else if (scan->past.engine == NULL)
        lio_cursor_read_ahead(scan->cursor, LEAVES_AHEAD_INLINE, NULL);
    else
        lio_cursor_read_ahead(
            scan->cursor, (uint32_t)(scan->options.block_bytes_max / scan->layout.page_size) + 1,
            &scan->past);
}

static int check_headers(const lio_scan *scan, const lio_plan *plan, const uint8_t *buffer,
                         const lio_extent *extents, size_t count, lio_error *error)
{
    const uint64_t *slices = plan != NULL ? lio_plan_slices(plan) : NULL;
    int code = LIO_OK;
    for (size_t i = 0; slices != NULL && i < count && code == LIO_OK; i++)
        code = lio_overflow_check(&scan->layout, buffer + slices[i],
                                  extents[i].offset / scan->layout.page_size,
                                  extents[i].length - scan->layout.header_size, error);
    return code;
}

static int next_block(lio_scan *scan, int timeout_ms, size_t *count, lio_error *error)
{
    lio_block *next = &scan->blocks[scan->begun ? scan->current ^ 1 : 0];
    lio_block *other = next == &scan->blocks[0] ? &scan->blocks[1] : &scan->blocks[0];
    lio_plan_totals totals;
    uint64_t begun;
    int code = LIO_OK;
    if (scan->begun && !scan->between) {
        scan->tail = other->records[other->count - 1].spot;
        scan->between = true;
    }
    if (next->state == LIO_BLOCK_EMPTY) {
        /* Its leaves lie among the values: those that a stream is about to bring are not read first. */
        lio_extent near = {scan->brought.offset, scan->brought.length + scan->bytes_limit};
        if (scan->brought.length > 0 &&
            lio_prefetch_wait(scan->prefetch, near, timeout_ms) != LIO_OK)
            return LIO_PENDING;
        collect(scan, next);
    }
    if (next->count == 0) {
        if (scan->failed != LIO_NOTFOUND && scan->failed != LIO_OK && error != NULL)
            *error = scan->failure;
        return scan->failed;
    }
    if (next->awaited.length > 0 &&
        lio_prefetch_wait(scan->prefetch, next->awaited, timeout_ms) != LIO_OK)
        return LIO_PENDING;
    if (other->state == LIO_BLOCK_HANDED_OUT) {
        /* The block handed out before this one: its memory now takes the one after. */
        look_ahead(scan, next);
        if (scan->options.want_values && next->awaited.length == 0)
            collect(scan, other);
        else
            lio_block_clear(other); /* what it needs is read ahead by others */
    }
    begun = lio_now_ns();
    if (next->ticket != NULL) {
        code = lio_ticket_wait(next->ticket, timeout_ms, error);
        lio_engine_count_stage(scan->engine, LIO_STAGE_WAIT, begun, next->value_bytes);
    }
    if (code == LIO_OK)
        code = check_headers(scan, next->plan, next->buffer, next->extents, next->extent_count,
                             error);
    if (code != LIO_OK)
        return code;
    if (next->past) {
        lio_plan_get_totals(next->plan, &totals);
        lio_bypass_note(&scan->past, next->ticket, totals.buffer_bytes);
    }
    scan->current = (uint32_t)(next - scan->blocks);
    scan->begun = 1;
    scan->between = false;
    scan->records += next->count;
    next->state = LIO_BLOCK_HANDED_OUT;
    scan->loaded.extent_count = 0;
    *count = next->count;
    return LIO_OK;
}

/* Two threads that share an iterator can ask for what the other has moved past. */
static int no_record(size_t index, size_t count, lio_error *error)
{
    return lio_fail(error, LIO_ERR_ARGUMENT, 0, count, index,
                    "the block has %zu records, not record %zu", count, index);
}

/* Reads the values at extents [first, first + count) of the current block. */
static int load_piece(lio_scan *scan, const lio_block *b, size_t first, size_t count,
                      lio_error *error)
{
    piece *p = &scan->loaded;
    lio_read *reads;
    size_t read_count;
    uint64_t begun, bytes = 0;
    int code;
    lio_plan_free(p->plan);
    p->plan = NULL;
    p->first_extent = first;
    p->extent_count = 0;
    code = plan_reads(scan, scan->engine, b->extents + first, count, &p->plan, &p->buffer,
                      &p->capacity, &reads, &read_count, error);
    if (code != LIO_OK)
        return code;
    begun = lio_now_ns();
    for (size_t i = 0; i < read_count; i++)
        bytes += reads[i].length;
    for (size_t i = 0; read_count <= 4 && i < read_count && code == LIO_OK; i++)
        code = lio_engine_read(scan->engine, &reads[i], 1, error); /* by this very thread */
    if (read_count > 4)
        code = lio_engine_read(scan->engine, reads, read_count, error);
    lio_engine_count_stage(scan->engine, LIO_STAGE_WAIT, begun, bytes);
    free(reads);
    if (code == LIO_OK)
        code = check_headers(scan, p->plan, p->buffer, b->extents + first, count, error);
    if (code == LIO_OK)
        p->extent_count = count;
    return code;
}

/* The value at an extent when it is part of the loaded piece, else NULL. */
static const uint8_t *in_piece(const lio_scan *scan, size_t extent)
{
    const piece *p = &scan->loaded;
    if (extent < p->first_extent || extent - p->first_extent >= p->extent_count)
        return NULL;
    return p->buffer + lio_plan_slices(p->plan)[extent - p->first_extent] +
           scan->layout.header_size;
}

static int load(lio_scan *scan, size_t first, size_t *count, lio_error *error)
{
    const lio_block *b = &scan->blocks[scan->current];
    size_t last = first, extents = 0, first_extent = 0;
    uint64_t bytes = 0;
    int code = LIO_OK;
    if (first >= b->count)
        return no_record(first, b->count, error);
    for (; last < b->count && last - first < *count && (last == first || bytes < PIECE_BYTES);
         last++) {
        const lio_block_record *e = &b->records[last];
        if (e->extent != LIO_NO_EXTENT && extents++ == 0)
            first_extent = e->extent;
        bytes += scan->options.want_values ? e->value_size : 0;
        if (b->plan == NULL && e->extent != LIO_NO_EXTENT && e->value_size >= ALONE_BYTES_MIN) {
            /* A large value ends a piece, and is none itself. */
            if (last == first)
                last++;
            else
                bytes -= e->value_size;
            extents--;
            break;
        }
    }
    if (b->plan == NULL)
        scan->loaded.extent_count = 0;
    scan->is_in_place = b->plan == NULL && extents != 0 && scan->through_cache &&
                        lio_engine_is_mapped(scan->engine, b->extents + first_extent, extents);
    if (b->plan == NULL && extents != 0 && !scan->is_in_place)
        code = load_piece(scan, b, first_extent, extents, error);
    if (code != LIO_OK)
        return code;
    *count = last - first;
    lio_engine_count_records(scan->engine, 0, *count, bytes);
    return LIO_OK;
}

/* From where the scan began to its record `number`, counted from 1. */
static int walk_to(const lio_scan *scan, lio_cursor *cursor, uint64_t number, lio_error *error)
{
    int code = LIO_OK;
    for (uint64_t i = 0; i < number && code == LIO_OK; i++)
        code = lio_cursor_move(cursor, scan->options.move, NULL, 0, NULL, 0, error);
    return code;
}

static bool stands_on(const lio_cursor *cursor, lio_spot wanted)
{
    lio_spot is = lio_cursor_spot(cursor);
    return is.key == wanted.key && is.value == wanted.value;
}

/* Whether a search that ended so says only that the record is not where its key leads. */
static bool leads_nowhere(int code)
{
    return code == LIO_OK || code == LIO_NOTFOUND || code == LIO_ERR_ARGUMENT ||
           code == LIO_ERR_CORRUPT;
}

/* Where record `number` is: one of the current block, or the last one before. */
static bool spot_of(const lio_scan *scan, uint64_t number, lio_spot *out)
{
    const lio_block *b = &scan->blocks[scan->current];
    uint64_t before = scan->records - (scan->between ? 0 : b->count);
    if (!scan->begun || number < before || number > scan->records)
        return false;
    *out = number > before ? b->records[number - before - 1].spot : scan->tail;
    return true;
}

static int settle(const lio_scan *scan, lio_cursor *cursor, uint64_t number, uint32_t move,
                  const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size,
                  lio_error *error)
{
    lio_spot wanted;
    lio_cursor *found;
    int code;
    if (!spot_of(scan, number, &wanted))
        return no_record((size_t)number, (size_t)scan->records, error);
    code = lio_cursor_copy(cursor, &found, error);
    if (code != LIO_OK)
        return code;
    code = lio_cursor_move(found, move, key, key_size, value, value_size, error);
    if (leads_nowhere(code) && !(code == LIO_OK && stands_on(found, wanted))) {
        lio_cursor_close(found);
        code = lio_cursor_copy(cursor, &found, error);
        if (code != LIO_OK)
            return code;
        code = walk_to(scan, found, number, error);
        if (code == LIO_NOTFOUND || (code == LIO_OK && !stands_on(found, wanted)))
            code = lio_fail(error, LIO_ERR_CORRUPT, 0, number, 0,
                            "a record that was read ahead is not found again");
    }
    if (code == LIO_OK)
        lio_cursor_become(cursor, found);
    else
        lio_cursor_close(found);
    return code;
}

int lio_scan_next(lio_scan *scan, int timeout_ms, size_t *count, lio_error *error)
{
    int code;
    lio_pages_lock(lio_scan_pages(scan));
    code = next_block(scan, timeout_ms, count, error);
    lio_pages_unlock(lio_scan_pages(scan));
    return code;
}

int lio_scan_load(lio_scan *scan, size_t first, size_t *count, lio_error *error)
{
    int code;
    lio_pages_lock(lio_scan_pages(scan));
    code = load(scan, first, count, error);
    lio_pages_unlock(lio_scan_pages(scan));
    return code;
}

bool lio_scan_is_in_place(const lio_scan *scan)
{
    return scan->is_in_place;
}

int lio_scan_settle(lio_scan *scan, lio_cursor *cursor, uint64_t number, uint32_t both,
                    const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size,
                    lio_error *error)
{
    int code;
    lio_pages_lock(lio_scan_pages(scan));
    code = settle(scan, cursor, number, both ? LIO_MOVE_BOTH : LIO_MOVE_SET, key, key_size, value,
                  value_size, error);
    lio_pages_unlock(lio_scan_pages(scan));
    return code;
}

void lio_scan_bypass(lio_scan *scan, lio_engine *engine)
{
    lio_pages_lock(lio_scan_pages(scan));
    scan->past.engine = engine;
    lio_pages_unlock(lio_scan_pages(scan));
}

void lio_scan_bypassed(const lio_scan *scan, uint64_t *bytes, uint64_t *duration_ns)
{
    *bytes = scan->past.bytes;
    *duration_ns = scan->past.duration_ns;
}

lio_pages *lio_scan_pages(const lio_scan *scan)
{
    return lio_cursor_pages(scan->cursor);
}

int lio_scan_record(const lio_scan *scan, size_t index, lio_record *out, lio_error *error)
{
    const lio_block *b = &scan->blocks[scan->current];
    const lio_block_record *e;
    if (index >= b->count)
        return no_record(index, b->count, error);
    e = &b->records[index];
    out->key = b->arena + e->key_at;
    out->key_size = e->key_size;
    out->value_size = e->value_size;
    out->where = (lio_extent){0, 0};
    if (e->extent != LIO_NO_EXTENT) {
        out->where.offset = b->extents[e->extent].offset + scan->layout.header_size;
        out->where.length = e->value_size;
    }
    if (!scan->options.want_values)
        out->value = NULL;
    else if (e->extent == LIO_NO_EXTENT)
        out->value = b->arena + e->value_at;
    else if (b->plan == NULL)
        out->value = in_piece(scan, e->extent);
    else
        out->value = b->buffer + lio_plan_slices(b->plan)[e->extent] + scan->layout.header_size;
    return LIO_OK;
}
