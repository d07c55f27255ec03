/* The engine around a kind: counters, traces, errors, what the page cache has at once. Requests in
 * flight together are engine_pool.c's. */
#include "engine.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine_kind.h"
#include "engine_pool.h"
#include "extent.h"
#include "trace.h"

/* Above this, copying from the page cache is worth a thread of its own. */
enum { PEEK_BYTES_MAX = 256 * 1024 };

/* So many short records, each by a call, take about as long as to plan and read them together. */
enum { GATHER_CALLS_MAX = 256, GATHER_SHORT_BYTES = 16 << 10 };

/* To wake a thread takes about as long as a fault. */
enum { PREFAULT_FROM = 4 };

static_assert(sizeof(lio_tally) % sizeof(uint64_t) == 0, "a tally is counts alone");

/* --- opening and closing ------------------------------------------------------------- */

static int engine_make(const lio_kind *kind, lio_source *source, uint32_t depth, lio_engine **out,
                       lio_error *error)
{
    lio_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        kind->close(source);
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *engine, 0, "no memory for an engine");
    }
    engine->kind = kind;
    engine->source = source;
    engine->depth = depth;
    *out = engine;
    return LIO_OK;
}

static int check_depth(uint32_t depth, lio_error *error)
{
    if (depth >= 1 && depth <= LIO_ENGINE_DEPTH_MAX)
        return LIO_OK;
    return lio_fail(error, LIO_ERR_ARGUMENT, 0, LIO_ENGINE_DEPTH_MAX, depth,
                    "a depth of %" PRIu32 " requests; 1 to 256 can be in flight", depth);
}

int lio_engine_open(const char *path, const char *kind, uint32_t depth, lio_engine **out,
                    lio_error *error)
{
    static const struct {
        const lio_kind *kind;
        int (*open)(const char *path, lio_source **out, lio_error *error);
    } kinds[] = {{&lio_kind_pread, lio_pread_open},
                 {&lio_kind_direct, lio_direct_open},
                 {&lio_kind_staged, lio_direct_open},
                 {&lio_kind_uring, lio_uring_open},
                 {&lio_kind_mmap, lio_mmap_open}};
    lio_source *source;
    int code = check_depth(depth, error);
    if (code != LIO_OK)
        return code;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kind, kinds[i].kind->name) != 0)
            continue;
        code = kinds[i].open(path, &source, error);
        return code != LIO_OK ? code : engine_make(kinds[i].kind, source, depth, out, error);
    }
    return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0,
                    "no engine \"%.40s\"; there are pread, direct, uring, staged and mmap", kind);
}

int lio_engine_open_memory(const uint8_t *bytes, uint64_t size, uint32_t depth, lio_engine **out,
                           lio_error *error)
{
    lio_source *source;
    int code = check_depth(depth, error);
    if (code == LIO_OK)
        code = lio_memory_open(bytes, size, &source, error);
    return code != LIO_OK ? code : engine_make(&lio_kind_memory, source, depth, out, error);
}

void lio_engine_memory_script(lio_engine *engine, uint64_t every, int sys_errno,
                              uint32_t delay_us)
{
    if (engine->kind == &lio_kind_memory)
        lio_memory_script(engine->source, every, sys_errno, delay_us);
}

void lio_engine_close(lio_engine *engine)
{
    if (engine == NULL)
        return;
    lio_pool_close(engine->pool);
    engine->kind->close(engine->source);
    lio_trace_close(engine->trace);
    free(engine);
}

uint32_t lio_engine_alignment(const lio_engine *engine)
{
    return engine->kind->alignment;
}

int lio_engine_size(lio_engine *engine, uint64_t *size, lio_error *error)
{
    return engine->kind->size(engine->source, size, error);
}

int lio_engine_fd(const lio_engine *engine)
{
    return engine->kind->fd(engine->source);
}

const uint8_t *lio_engine_map(const lio_engine *engine, uint64_t *size)
{
    *size = 0;
    return engine->kind == &lio_kind_mmap ? lio_mmap_span(engine->source, size) : NULL;
}

void lio_engine_map_cached(lio_engine *engine, uint64_t bytes_max)
{
    if (engine->kind == &lio_kind_pread)
        lio_pread_map_cached(engine->source, bytes_max);
}

int lio_engine_cached(lio_engine *engine, uint64_t offset, uint64_t length, uint64_t *bytes,
                      lio_error *error)
{
    int fd = lio_engine_fd(engine);
    if (fd < 0 || !lio_cached_bytes(fd, offset, length, bytes))
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0,
                        "the kernel does not say what is in the page cache");
    return LIO_OK;
}

void lio_engine_counters(lio_engine *engine, lio_counters *out)
{
    out->requests = engine->requests;
    out->bytes = engine->bytes;
}

/* --- what is counted and traced -------------------------------------------------------- */

void lio_engine_trace(lio_engine *engine, lio_trace *trace, uint32_t engine_number)
{
    lio_trace *none = NULL;
    if (engine->trace != NULL)
        return;
    lio_trace_share(trace);
    engine->number = engine_number; /* nobody looks at it before the next line */
    if (!atomic_compare_exchange_strong(&engine->trace, &none, trace))
        lio_trace_close(trace);
}

void lio_engine_tally(const lio_engine *engine, lio_tally *out)
{
    uint64_t counts[LIO_TALLIED];
    for (size_t i = 0; i < LIO_TALLIED; i++)
        counts[i] = atomic_load_explicit(&engine->tally[i], memory_order_relaxed);
    memcpy(out, counts, sizeof *out);
}

void lio_engine_handed_out(lio_engine *engine, uint64_t located, uint64_t records,
                           uint64_t record_bytes)
{
    lio_engine_tally_add(&engine->tally[offsetof(lio_tally, located_records) / sizeof(uint64_t)], located);
    lio_engine_tally_add(&engine->tally[offsetof(lio_tally, records) / sizeof(uint64_t)], records);
    lio_engine_tally_add(&engine->tally[offsetof(lio_tally, record_bytes) / sizeof(uint64_t)], record_bytes);
}

void lio_engine_planned(lio_engine *engine, uint64_t planned_bytes, uint64_t gap_bytes)
{
    lio_engine_tally_add(&engine->tally[offsetof(lio_tally, planned_bytes) / sizeof(uint64_t)], planned_bytes);
    lio_engine_tally_add(&engine->tally[offsetof(lio_tally, gap_bytes) / sizeof(uint64_t)], gap_bytes);
}

void lio_engine_stage(lio_engine *engine, uint32_t stage, uint64_t begun_ns, uint64_t amount)
{
    uint64_t now = lio_now_ns();
    lio_tally more = {0};
    assert(stage < LIO_STAGES);
    more.stage_ns[stage] = now - begun_ns;
    lio_engine_count(engine, &more);
    lio_engine_note(engine, (lio_span){.queued_ns = begun_ns, .begun_ns = begun_ns, .ended_ns = now,
                            .amount = amount, .kind = stage, .count = 1});
}

/* --- what the page cache has at once --------------------------------------------------- */

/* Asks the kind, and counts what came of it. */
static lio_peek look(lio_engine *engine, const lio_read *read, const struct iovec *into, int count)
{
    lio_peek found = LIO_PEEK_NOTHING;
    if (engine->kind->peek != NULL)
        found = engine->kind->peek(engine->source, read, into, count);
    if (found >= LIO_PEEK_BY_CALL)
        lio_engine_add(engine, 1, read->length);
    return found;
}

static bool glance(lio_engine *engine, uint64_t offset, const struct iovec *into, int count,
                   bool check)
{
    lio_read read = {.offset = offset};
    lio_span span = {.kind = LIO_SPAN_CACHED, .offset = offset, .count = 1};
    bool traced = lio_trace_is_on(engine->trace), all;
    lio_peek found;
    for (int i = 0; i < count; i++)
        read.length += into[i].iov_len;
    read.needed = read.length;
    if (!lio_fits(offset, read.length, INT64_MAX))
        return false;
    if (traced)
        span.queued_ns = span.begun_ns = lio_now_ns();
    found = look(engine, &read, into, count);
    all = found == LIO_PEEK_MAPPED ||
          (found == LIO_PEEK_BY_CALL &&
           (!check || lio_engine_check_size(engine, &read, 1, NULL) == LIO_OK));
    if (traced && all) {
        span.ended_ns = lio_now_ns();
        span.amount = read.length;
        lio_engine_note(engine, span);
    }
    return all;
}

bool lio_engine_peek(lio_engine *engine, uint64_t offset, const struct iovec *into, int count)
{
    return glance(engine, offset, into, count, true);
}

bool lio_engine_glance(lio_engine *engine, uint64_t offset, const struct iovec *into, int count)
{
    return glance(engine, offset, into, count, false);
}

/* How an extent is held; not at all once `*calls` have been used up. */
static lio_holds how_held(lio_engine *engine, lio_extent e, size_t *calls, bool sure)
{
    lio_holds found;
    if (engine->kind->holds == NULL || !lio_fits(e.offset, e.length, INT64_MAX))
        return LIO_HOLDS_NOT;
    if (e.length == 0)
        return LIO_HOLDS_MAPPED;
    if (e.length < GATHER_SHORT_BYTES && *calls >= GATHER_CALLS_MAX)
        return LIO_HOLDS_NOT;
    found = engine->kind->holds(engine->source, e.offset, e.length, sure);
    *calls += found == LIO_HOLDS_BY_CALL && e.length < GATHER_SHORT_BYTES;
    return found;
}

size_t lio_engine_missing(lio_engine *engine, const lio_extent *extents, size_t count,
                          uint8_t *missing)
{
    size_t calls = 0, found = 0;
    for (size_t i = 0; i < count; i++) {
        missing[i] = how_held(engine, extents[i], &calls, true) == LIO_HOLDS_NOT;
        found += missing[i];
    }
    return found;
}

bool lio_engine_holds(lio_engine *engine, const lio_extent *extents, size_t count)
{
    size_t calls = 0;
    for (size_t i = 0; i < count; i++)
        if (how_held(engine, extents[i], &calls, true) == LIO_HOLDS_NOT)
            return false;
    return true;
}

void lio_engine_prefault(lio_engine *engine, const lio_extent *extents, size_t count)
{
    lio_hint *hint;
    lio_pool *pool;
    size_t faults = 0, wanted = 0;
    if (engine->kind->prefault == NULL)
        return;
    for (size_t i = 1; i < count; i++) {
        size_t more = engine->kind->untouched(engine->source, extents[i]);
        faults += more;
        wanted += more > 0;
    }
    if (faults < PREFAULT_FROM || lio_pool_of(engine, &pool, NULL) != LIO_OK)
        return;
    hint = malloc(sizeof *hint + wanted * sizeof hint->extents[0]);
    if (hint == NULL)
        return;
    hint->count = hint->begun = 0;
    for (size_t i = 1; i < count && hint->count < wanted; i++)
        if (engine->kind->untouched(engine->source, extents[i]) > 0)
            hint->extents[hint->count++] = extents[i];
    if (hint->count > 0)
        lio_pool_hint(pool, hint);
    else /* others have touched it meanwhile */
        free(hint);
}

static bool can_gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                       size_t count, uint64_t room)
{
    size_t calls = 0;
    for (size_t i = 0; i < count; i++)
        if (!lio_fits(offsets[i], extents[i].length, room) ||
            how_held(engine, extents[i], &calls, false) == LIO_HOLDS_NOT)
            return false;
    return true;
}

static bool gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                   size_t count, uint8_t *into)
{
    uint64_t end = 0;
    lio_read last = {0}; /* of those by a call, in the file */
    for (size_t i = 0; i < count; i++) {
        lio_read read = {extents[i].offset, extents[i].length, extents[i].length,
                         into + offsets[i]};
        struct iovec place = {.iov_base = read.into, .iov_len = (size_t)read.length};
        lio_peek found = LIO_PEEK_MAPPED;
        if (offsets[i] > end)
            memset(into + end, 0, (size_t)(offsets[i] - end));
        if (read.length > 0)
            found = look(engine, &read, &place, 1);
        if (found < LIO_PEEK_BY_CALL)
            return false;
        if (found == LIO_PEEK_BY_CALL && read.offset + read.needed > last.offset + last.needed)
            last = read;
        end = offsets[i] + read.length;
    }
    return lio_engine_check_size(engine, &last, 1, NULL) == LIO_OK;
}

bool lio_engine_gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                       size_t count, uint8_t *into, uint64_t room)
{
    lio_span span = {.kind = LIO_SPAN_CACHED, .count = (uint32_t)count};
    bool traced = lio_trace_is_on(engine->trace);
    if (traced)
        span.queued_ns = span.begun_ns = lio_now_ns();
    if (!can_gather(engine, extents, offsets, count, room) ||
        !gather(engine, extents, offsets, count, into))
        return false;
    if (traced && count > 0) {
        span.ended_ns = lio_now_ns();
        for (size_t i = 0; i < count; i++)
            span.amount += extents[i].length;
        lio_engine_note(engine, span);
    }
    return true;
}

/* Serves a request from the page cache if that can be done at once. The size is not asked for. */
static lio_peek peek(lio_engine *engine, const lio_read *read)
{
    struct iovec into = {.iov_base = read->into, .iov_len = (size_t)read->length};
    return read->length <= PEEK_BYTES_MAX ? look(engine, read, &into, 1) : LIO_PEEK_NOTHING;
}

static int check_reads(const lio_read *reads, size_t count, lio_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (reads[i].needed > reads[i].length || reads[i].length > INT64_MAX ||
            reads[i].offset > INT64_MAX - reads[i].length)
            return lio_fail(error, LIO_ERR_ARGUMENT, reads[i].offset, reads[i].length,
                            reads[i].needed, "a read of impossible size or place");
        if (reads[i].into == NULL && reads[i].length > 0)
            return lio_fail(error, LIO_ERR_ARGUMENT, reads[i].offset, reads[i].length, 0,
                            "a read without memory to fill");
    }
    return LIO_OK;
}

/* What the page cache served at once is one span. */
static void note_cached(lio_engine *engine, const lio_read *reads, size_t count,
                        const lio_ticket *ticket)
{
    lio_span span = {.kind = LIO_SPAN_CACHED, .queued_ns = ticket->submitted_ns,
                     .begun_ns = ticket->submitted_ns, .count = (uint32_t)(count - ticket->count)};
    if (span.count == 0 || !lio_trace_is_on(engine->trace))
        return;
    for (size_t i = 0; i < count; i++)
        span.amount += reads[i].length;
    for (size_t i = 0; i < ticket->count; i++)
        span.amount -= ticket->reads[i].length;
    span.ended_ns = lio_now_ns();
    lio_engine_note(engine, span);
}

int lio_engine_submit(lio_engine *engine, const lio_read *reads, size_t count, lio_ticket **out,
                      lio_error *error)
{
    lio_ticket *ticket;
    lio_pool *pool;
    bool by_call = false;
    int code = check_reads(reads, count, error);
    if (code == LIO_OK)
        code = lio_pool_of(engine, &pool, error);
    if (code == LIO_OK)
        code = lio_ticket_make(pool, count, &ticket, error);
    if (code != LIO_OK)
        return code;
    for (size_t i = 0; i < count; i++) {
        lio_peek found = peek(engine, &reads[i]);
        by_call = by_call || found == LIO_PEEK_BY_CALL;
        if (found >= LIO_PEEK_BY_CALL)
            continue;
        ticket->reads[ticket->count++] = reads[i];
        ticket->hands += found == LIO_PEEK_NOTHING;
    }
    if (by_call && lio_engine_check_size(engine, reads, count, NULL) != LIO_OK) { /* all of it again */
        memcpy(ticket->reads, reads, count * sizeof *reads);
        ticket->hands = ticket->count = count;
    }
    /* What the kernel has begun already only needs to be copied as it arrives. */
    if (ticket->hands == 0)
        ticket->hands = 1;
    note_cached(engine, reads, count, ticket);
    return lio_ticket_start(ticket, out, error);
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

int lio_engine_populate(lio_engine *engine, const lio_extent *ranges, size_t count,
                        uint64_t piece, lio_ticket **out, lio_error *error)
{
    lio_ticket *ticket;
    lio_pool *pool;
    uint64_t pieces;
    int code;
    if (engine->kind->populate == NULL)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0, "a %s engine fills no page cache",
                        engine->kind->name);
    pieces = piece > 0 ? count_pieces(ranges, count, piece) : UINT64_MAX;
    if (pieces >= SIZE_MAX)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, piece,
                        "reading ahead of impossible size or place");
    code = lio_pool_of(engine, &pool, error);
    if (code == LIO_OK)
        code = lio_ticket_make(pool, (size_t)pieces, &ticket, error);
    if (code != LIO_OK)
        return code;
    for (size_t i = 0; i < count; i++)
        for (uint64_t at = 0; at < ranges[i].length; at += piece) {
            uint64_t rest = ranges[i].length - at;
            ticket->reads[ticket->count++] = (lio_read){.offset = ranges[i].offset + at,
                                                        .length = rest < piece ? rest : piece};
            if (rest <= piece)
                break;
        }
    ticket->hands = ticket->count;
    return lio_ticket_start(ticket, out, error);
}

int lio_engine_read(lio_engine *engine, const lio_read *reads, size_t count, lio_error *error)
{
    lio_ticket *ticket;
    int code;
    if (count == 0)
        return LIO_OK;
    if (count == 1) { /* nothing to overlap with: spare two thread switches */
        code = check_reads(reads, count, error);
        if (code == LIO_OK)
            code = lio_engine_perform(engine, reads, 0, error);
        return code != LIO_OK ? code : lio_engine_check_size(engine, reads, 1, error);
    }
    code = lio_engine_submit(engine, reads, count, &ticket, error);
    if (code != LIO_OK)
        return code;
    code = lio_ticket_wait(ticket, -1, error);
    lio_ticket_free(ticket);
    return code;
}

int lio_engine_scatter(lio_engine *engine, const lio_read *reads, size_t count,
                       lio_error *error)
{
    uint64_t received = 0, calls = 0;
    lio_span span = {.kind = LIO_SPAN_REQUEST, .depth = 1};
    int code = check_reads(reads, count, error);
    if (code != LIO_OK)
        return code;
    if (engine->kind != &lio_kind_pread) {
        for (size_t i = 0; i < count && code == LIO_OK; i++)
            code = lio_engine_perform(engine, &reads[i], 0, error);
        return code != LIO_OK ? code : lio_engine_check_size(engine, reads, count, error);
    }
    if (count > 0)
        span.offset = reads[0].offset;
    if (lio_trace_is_on(engine->trace))
        span.queued_ns = span.begun_ns = lio_now_ns();
    code = lio_pread_scatter(engine->source, reads, count, &received, &calls, error);
    if (code == LIO_OK)
        code = lio_engine_check_size(engine, reads, count, error);
    (void)atomic_fetch_add_explicit(&engine->requests, calls, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&engine->bytes, received, memory_order_relaxed);
    if (!lio_trace_is_on(engine->trace))
        return code;
    span.ended_ns = lio_now_ns();
    span.amount = received;
    span.count = (uint32_t)calls;
    span.failed = (uint32_t)code;
    lio_engine_note(engine, span);
    return code;
}
