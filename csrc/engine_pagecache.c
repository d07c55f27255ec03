#include "engine_pagecache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "contract.h"
#include "engine_buffered.h"
#include "engine_queue.h"

/* Above this, copying from the page cache is worth a thread of its own. */
enum { SERVED_BYTES_MAX = 256 * 1024 };

/* So many short records, each by a call, take about as long as to plan and read them together. */
enum { GATHER_CALLS_MAX = 256, GATHER_SHORT_BYTES = 16 << 10 };

/* So many records later one is brought nearer while one is copied. */
enum { APPROACHED = 4 };

/* To wake a thread takes about as long as a fault. */
enum { PREFAULT_FROM = 4 };

/* Lets the kind try, and counts what it copied. */
static lio_cached try_counted(lio_engine *engine, const lio_read *read, const struct iovec *into,
                              int count)
{
    const lio_file *file = &engine->file;
    lio_cached found = LIO_CACHED_NOT;
    if (file->kind->try_read != NULL)
        found = file->kind->try_read(file->source, read, into, count);
    if (found >= LIO_CACHED_BY_CALL)
        lio_engine_add(engine, 1, read->length);
    return found;
}

/* Notes what was copied since `begun_ns`, unless that is 0. */
static void note_cached(lio_engine *engine, uint64_t begun_ns, uint64_t offset, uint64_t bytes,
                        size_t count)
{
    if (begun_ns != 0)
        lio_engine_note_since(engine, begun_ns,
                              (lio_span){.kind = LIO_SPAN_CACHED,
                                         .offset = offset,
                                         .amount = bytes,
                                         .count = (uint32_t)count});
}

bool lio_engine_try_read(lio_engine *engine, uint64_t offset, const struct iovec *into, int count,
                         bool check)
{
    lio_read read = {.offset = offset};
    lio_cached found;
    uint64_t begun_ns;
    bool all;
    for (int i = 0; i < count; i++)
        read.length += into[i].iov_len;
    read.needed = read.length;
    if (!lio_fits(offset, read.length, INT64_MAX))
        return false;
    begun_ns = lio_engine_traced_ns(engine);
    found = try_counted(engine, &read, into, count);
    all = found == LIO_CACHED_MAPPED ||
          (found == LIO_CACHED_BY_CALL &&
           (!check || lio_file_check_size(engine->file, &read, 1, NULL) == LIO_OK));
    if (all)
        note_cached(engine, begun_ns, offset, read.length, 1);
    return all;
}

/* How an extent is held; not at all once `*calls` have been used up. */
static lio_cached how_held(lio_engine *engine, lio_extent e, size_t *calls, bool sure)
{
    const lio_file *file = &engine->file;
    lio_cached found;
    if (file->kind->holds == NULL || !lio_fits(e.offset, e.length, INT64_MAX))
        return LIO_CACHED_NOT;
    if (e.length == 0)
        return LIO_CACHED_MAPPED;
    if (e.length < GATHER_SHORT_BYTES && *calls >= GATHER_CALLS_MAX)
        return LIO_CACHED_NOT;
    found = file->kind->holds(file->source, e.offset, e.length, sure);
    *calls += found == LIO_CACHED_BY_CALL && e.length < GATHER_SHORT_BYTES;
    return found;
}

size_t lio_engine_find_missing(lio_engine *engine, const lio_extent *extents, size_t count,
                               uint8_t *missing)
{
    size_t calls = 0, found = 0;
    for (size_t i = 0; i < count; i++) {
        missing[i] = how_held(engine, extents[i], &calls, true) == LIO_CACHED_NOT;
        found += missing[i];
    }
    return found;
}

bool lio_engine_is_cached(lio_engine *engine, const lio_extent *extents, size_t count)
{
    size_t calls = 0;
    for (size_t i = 0; i < count; i++)
        if (how_held(engine, extents[i], &calls, true) == LIO_CACHED_NOT)
            return false;
    return true;
}

bool lio_engine_is_mapped(lio_engine *engine, const lio_extent *extents, size_t count)
{
    const lio_file *file = &engine->file;
    for (size_t i = 0; file->kind->holds != NULL && i < count; i++)
        if (!lio_fits(extents[i].offset, extents[i].length, INT64_MAX) ||
            file->kind->holds(file->source, extents[i].offset, extents[i].length, false) !=
                LIO_CACHED_MAPPED)
            return false;
    return file->kind->holds != NULL;
}

size_t lio_engine_copy_each(lio_engine *engine, const lio_read *reads, size_t count)
{
    lio_mapped_file *place;
    uint64_t begun_ns = lio_engine_traced_ns(engine), bytes = 0, offset = 0;
    lio_mapped *mapped = lio_buffered_find(&engine->file, &offset, 1, &place);
    size_t copied = 0;
    if (mapped != NULL && place == NULL) /* there is one file */
        copied = lio_mapped_copy_each(mapped, reads, count);
    for (size_t i = 0; i < copied; i++)
        bytes += reads[i].length;
    if (copied > 0) {
        lio_engine_add(engine, copied, bytes);
        note_cached(engine, begun_ns, reads[0].offset, bytes, copied);
    }
    return copied;
}

void lio_engine_approach(lio_engine *engine, uint64_t offset, uint64_t length)
{
    lio_mapped_file *place;
    lio_mapped *mapped = lio_buffered_find(&engine->file, &offset, length, &place);
    if (mapped != NULL)
        lio_mapped_approach(mapped, place, offset, length);
}

/* How many faults that would most likely be. */
static size_t count_faults(const lio_engine *engine, lio_extent extent)
{
    lio_mapped_file *place;
    const lio_mapped *mapped = lio_buffered_find(&engine->file, &extent.offset, extent.length,
                                                 &place);
    return mapped == NULL ? 0 : lio_mapped_faults(mapped, place, extent.offset, extent.length);
}

void lio_engine_prefault(lio_engine *engine, const lio_extent *extents, size_t count)
{
    lio_hint *hint;
    lio_queue *queue;
    size_t faults = 0, wanted = 0;
    for (size_t i = 1; i < count; i++) {
        size_t more = count_faults(engine, extents[i]);
        faults += more;
        wanted += more > 0;
    }
    if (faults < PREFAULT_FROM || lio_queue_of(engine, &queue, NULL) != LIO_OK)
        return;
    hint = malloc(sizeof *hint + wanted * sizeof hint->extents[0]);
    if (hint == NULL)
        return;
    hint->count = hint->begun = 0;
    for (size_t i = 1; i < count && hint->count < wanted; i++)
        if (count_faults(engine, extents[i]) > 0)
            hint->extents[hint->count++] = extents[i];
    if (hint->count > 0)
        lio_queue_hint(queue, hint);
    else /* others have touched it meanwhile */
        free(hint);
}

static bool can_gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                       size_t count, uint64_t room)
{
    size_t calls = 0;
    for (size_t i = 0; i < count; i++)
        if (!lio_fits(offsets[i], extents[i].length, room) ||
            how_held(engine, extents[i], &calls, false) == LIO_CACHED_NOT)
            return false;
    return true;
}

static bool gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                   size_t count, uint8_t *into)
{
    uint64_t end = 0;
    lio_read last = {0}; /* of those by a call, in the file */
    for (size_t i = 0; i < count; i++) {
        if (i + APPROACHED < count)
            lio_engine_approach(engine, extents[i + APPROACHED].offset,
                                extents[i + APPROACHED].length);
        lio_read read = {extents[i].offset, extents[i].length, extents[i].length,
                         into + offsets[i]};
        struct iovec place = {.iov_base = read.into, .iov_len = (size_t)read.length};
        lio_cached found = LIO_CACHED_MAPPED;
        if (offsets[i] > end)
            memset(into + end, 0, (size_t)(offsets[i] - end));
        if (read.length > 0)
            found = try_counted(engine, &read, &place, 1);
        if (found < LIO_CACHED_BY_CALL)
            return false;
        if (found == LIO_CACHED_BY_CALL && read.offset + read.needed > last.offset + last.needed)
            last = read;
        end = offsets[i] + read.length;
    }
    return lio_file_check_size(engine->file, &last, 1, NULL) == LIO_OK;
}

bool lio_engine_gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                       size_t count, uint8_t *into, uint64_t room)
{
    uint64_t begun_ns = lio_engine_traced_ns(engine), bytes = 0;
    if (!can_gather(engine, extents, offsets, count, room) ||
        !gather(engine, extents, offsets, count, into))
        return false;
    for (size_t i = 0; begun_ns != 0 && i < count; i++)
        bytes += extents[i].length;
    if (count > 0)
        note_cached(engine, begun_ns, 0, bytes, count);
    return true;
}

lio_cached lio_pagecache_serve(lio_engine *engine, const lio_read *read)
{
    struct iovec into = {.iov_base = read->into, .iov_len = (size_t)read->length};
    return read->length <= SERVED_BYTES_MAX ? try_counted(engine, read, &into, 1) : LIO_CACHED_NOT;
}

/* The pieces of all ranges; UINT64_MAX when a range is impossible. */
static uint64_t count_pieces(const lio_extent *ranges, size_t count, uint64_t piece)
{
    uint64_t pieces = 0;
    for (size_t i = 0; i < count; i++) {
        if (!lio_fits(ranges[i].offset, ranges[i].length, INT64_MAX))
            return UINT64_MAX;
        pieces = lio_add_saturated(pieces, ranges[i].length / piece + 1);
    }
    return pieces;
}

int lio_engine_populate(lio_engine *engine, const lio_extent *ranges, size_t count, uint64_t piece,
                        bool is_stream, lio_ticket **out, lio_error *error)
{
    lio_ticket *ticket;
    lio_queue *queue;
    uint64_t pieces, size = 0;
    int code;
    if (engine->file.kind->populate == NULL)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0, "a %s engine fills no page cache",
                        engine->file.kind->name);
    pieces = piece > 0 ? count_pieces(ranges, count, piece) : UINT64_MAX;
    if (pieces >= SIZE_MAX)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, piece,
                        "reading ahead of impossible size or place");
    code = lio_queue_of(engine, &queue, error);
    if (code == LIO_OK && is_stream)
        code = lio_file_size(engine->file, &size, error);
    if (code == LIO_OK)
        code = lio_ticket_make(queue, (size_t)pieces, &ticket, error);
    if (code != LIO_OK)
        return code;
    for (size_t i = 0; i < count; i++)
        for (uint64_t at = 0; at < ranges[i].length; at += piece) {
            uint64_t rest = ranges[i].length - at;
            LIO_ASSERT(ticket->count < pieces);
            /* `needed` marks a stream; nobody looks at the bytes, and there may be none. */
            ticket->reads[ticket->count++] = (lio_read){
                .offset = ranges[i].offset + at,
                .length = rest < piece ? rest : piece,
                .needed = is_stream && ranges[i].offset + at < size ? 1 : 0};
            if (rest <= piece)
                break;
        }
    ticket->hands = ticket->count;
    lio_ticket_start(ticket);
    *out = ticket;
    return LIO_OK;
}

bool lio_engine_has_come(lio_engine *engine, uint64_t offset)
{
    const lio_file *file = &engine->file;
    uint8_t byte;
    struct iovec into = {.iov_base = &byte, .iov_len = 1};
    lio_read read = {.offset = offset, .length = 1, .needed = 1};
    return file->kind->try_read != NULL &&
           file->kind->try_read(file->source, &read, &into, 1) >= LIO_CACHED_BY_CALL;
}

void lio_engine_forget_missing(lio_engine *engine, lio_extent range)
{
    lio_mapped_file *place;
    lio_mapped *mapped = lio_buffered_find(&engine->file, &range.offset, range.length, &place);
    if (mapped != NULL)
        lio_mapped_forget_missing(mapped, place, range.offset, range.length);
}

const char *lio_engine_map_cached(lio_engine *engine, uint64_t bytes_max)
{
    lio_buffered *known = engine->file.known;
    if (known == NULL)
        return "this engine does not read by way of the page cache";
    if (known->refusal != NULL)
        return known->refusal;
    if (engine->file.kind->share != NULL && known->mapped_bytes_max > 0) /* by another engine */
        return NULL;
    known->mapped_bytes_max = bytes_max;
    return bytes_max > 0 ? NULL : "the memory budget has no room for it";
}

int lio_engine_cached(lio_engine *engine, uint64_t offset, uint64_t length, uint64_t *bytes,
                      lio_error *error)
{
    const lio_file *file = &engine->file;
    bool is_said = file->kind->cached != NULL
                       ? file->kind->cached(file->source, offset, length, bytes)
                       : file->fd >= 0 && lio_cached_bytes(file->fd, offset, length, bytes);
    if (!is_said)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0,
                        "the kernel does not say what is in the page cache");
    return LIO_OK;
}
