/* The engine around a kind: a queue of tickets and the threads that carry their requests.
 *
 *   submit -> [ticket] -> [ticket] -> ...      threads take requests from the first ticket
 *                                              that has one left, in order
 *
 * Each thread performs one request at a time; or, where the pool has a ring, one thread hands all
 * of them to the kernel.
 *
 * A pool belongs to the process that made it. After fork the child finds another process id
 * in it and makes a pool of its own; the parent's is left alone (its threads do not exist in
 * the child and its mutex may be held), at the price of the pool's few hundred bytes.
 */
#include "engine.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine_kind.h"
#include "engine_ring.h"
#include "extent.h"
#include "trace.h"

enum { DEPTH_MAX = 256, STACK_BYTES = 128 * 1024 };

/* Above this, copying from the page cache is worth a thread of its own. */
enum { PEEK_BYTES_MAX = 256 * 1024 };

/* So many records, each by a call, take about as long as to plan and read them together. */
enum { GATHER_CALLS_MAX = 256 };

enum { TALLIED = sizeof(lio_tally) / sizeof(uint64_t) };
static_assert(sizeof(lio_tally) % sizeof(uint64_t) == 0, "a tally is counts alone");

typedef struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work; /* a request is queued, or the pool is closing */
    pthread_cond_t done; /* a ticket has ended */
    lio_engine *engine;
    lio_ticket *first, *last; /* tickets with requests not yet begun */
    uint32_t threads, idle;
    bool closing;
    bool in_kernel; /* the ring's thread waits there */
    lio_ring *ring; /* NULL: a thread for each request in flight */
    pid_t pid;
    pthread_t thread[DEPTH_MAX];
} pool;

struct lio_ticket {
    pool *owner;
    lio_ticket *next; /* in the pool's queue */
    size_t count, begun, running;
    size_t hands; /* threads that it is worth */
    uint64_t submitted_ns, ended_ns; /* the second is 0 until it has ended */
    uint64_t queued_ns;              /* what the page cache had was served by then */
    bool queued;
    lio_error error; /* code LIO_OK while none */
    lio_read reads[];
};

struct lio_engine {
    const lio_kind *kind;
    lio_source *source;
    uint32_t depth;
    _Atomic(pool *) pool; /* NULL until the first submit */
    _Atomic uint64_t requests, bytes;
    _Atomic uint64_t tally[TALLIED]; /* a lio_tally */
    _Atomic(lio_trace *) trace;      /* NULL: none was ever asked for */
    uint32_t number;                 /* in the trace */
    _Atomic uint32_t in_flight;      /* while traced */
};

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
    if (depth >= 1 && depth <= DEPTH_MAX)
        return LIO_OK;
    return lio_fail(error, LIO_ERR_ARGUMENT, 0, DEPTH_MAX, depth,
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

static void pool_close(pool *owner)
{
    uint32_t threads;
    (void)pthread_mutex_lock(&owner->lock);
    owner->closing = true;
    threads = owner->threads;
    (void)pthread_cond_broadcast(&owner->work);
    (void)pthread_mutex_unlock(&owner->lock);
    for (uint32_t i = 0; i < threads; i++)
        (void)pthread_join(owner->thread[i], NULL);
    (void)pthread_cond_destroy(&owner->work);
    (void)pthread_cond_destroy(&owner->done);
    (void)pthread_mutex_destroy(&owner->lock);
    lio_ring_close(owner->ring);
    free(owner);
}

/* The parent's pool, in its child: its descriptor and mappings are this process's too. */
static void pool_abandon(pool *parents)
{
    lio_ring_close(parents->ring);
    parents->ring = NULL;
}

void lio_engine_close(lio_engine *engine)
{
    pool *owner;
    if (engine == NULL)
        return;
    owner = engine->pool;
    if (owner != NULL && owner->pid == getpid())
        pool_close(owner);
    else if (owner != NULL)
        pool_abandon(owner);
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

void lio_engine_map_small(lio_engine *engine, uint64_t bytes_max)
{
    if (engine->kind == &lio_kind_pread)
        lio_pread_map_small(engine->source, bytes_max);
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
    uint64_t counts[TALLIED];
    for (size_t i = 0; i < TALLIED; i++)
        counts[i] = atomic_load_explicit(&engine->tally[i], memory_order_relaxed);
    memcpy(out, counts, sizeof *out);
}

static void add(_Atomic uint64_t *count, uint64_t amount)
{
    if (amount != 0)
        (void)atomic_fetch_add_explicit(count, amount, memory_order_relaxed);
}

void lio_engine_count(lio_engine *engine, const lio_tally *more)
{
    uint64_t counts[TALLIED];
    memcpy(counts, more, sizeof counts);
    for (size_t i = 0; i < TALLIED; i++)
        add(&engine->tally[i], counts[i]);
}

void lio_engine_handed_out(lio_engine *engine, uint64_t located, uint64_t records,
                           uint64_t record_bytes)
{
    add(&engine->tally[offsetof(lio_tally, located_records) / sizeof(uint64_t)], located);
    add(&engine->tally[offsetof(lio_tally, records) / sizeof(uint64_t)], records);
    add(&engine->tally[offsetof(lio_tally, record_bytes) / sizeof(uint64_t)], record_bytes);
}

void lio_engine_planned(lio_engine *engine, uint64_t planned_bytes, uint64_t gap_bytes)
{
    add(&engine->tally[offsetof(lio_tally, planned_bytes) / sizeof(uint64_t)], planned_bytes);
    add(&engine->tally[offsetof(lio_tally, gap_bytes) / sizeof(uint64_t)], gap_bytes);
}

static void note(lio_engine *engine, lio_span span)
{
    lio_trace *trace = engine->trace;
    if (!lio_trace_is_on(trace))
        return;
    span.engine = engine->number;
    lio_trace_note(trace, &span);
}

void lio_engine_stage(lio_engine *engine, uint32_t stage, uint64_t begun_ns, uint64_t amount)
{
    uint64_t now = lio_now_ns();
    lio_tally more = {0};
    assert(stage < LIO_STAGES);
    more.stage_ns[stage] = now - begun_ns;
    lio_engine_count(engine, &more);
    note(engine, (lio_span){.queued_ns = begun_ns, .begun_ns = begun_ns, .ended_ns = now,
                            .amount = amount, .kind = stage, .count = 1});
}

/* --- one request --------------------------------------------------------------------- */

static void add_to_counters(lio_engine *engine, uint64_t calls, uint64_t received)
{
    (void)atomic_fetch_add_explicit(&engine->requests, calls, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&engine->bytes, received, memory_order_relaxed);
}

static int perform_quietly(lio_engine *engine, const lio_read *read, lio_error *error)
{
    uint64_t received = 0, calls = 0;
    int code;
    if (read->into == NULL && read->length > 0) /* see lio_engine_populate */
        return engine->kind->populate(engine->source, read->offset, read->length, error);
    code = engine->kind->read(engine->source, read, &received, &calls, error);
    add_to_counters(engine, calls, received);
    return code;
}

/* While a file is cut, Linux may give zeros for the rest of the page that it then ends in: then its
 * size, asked for afterwards, is too small for what was read. */
static int check_size(lio_engine *engine, const lio_read *reads, size_t count, lio_error *error)
{
    uint64_t end = 0, size;
    int code;
    for (size_t i = 0; i < count; i++)
        if (reads[i].needed > 0 && reads[i].offset + reads[i].needed > end)
            end = reads[i].offset + reads[i].needed;
    if (end == 0)
        return LIO_OK;
    code = engine->kind->size(engine->source, &size, error);
    for (size_t i = 0; i < count && code == LIO_OK && size < end; i++)
        if (reads[i].needed > 0 && reads[i].offset + reads[i].needed > size)
            code = lio_short_read(&reads[i], size > reads[i].offset ? size - reads[i].offset : 0,
                                  error);
    return code;
}

/* Does one request and, while that is on, traces it. `queued_ns`: when it was submitted, 0: now. */
static int perform(lio_engine *engine, const lio_read *read, uint64_t queued_ns,
                   lio_error *error)
{
    lio_span span = {.offset = read->offset, .amount = read->length, .count = 1,
                     .kind = read->into == NULL ? LIO_SPAN_POPULATE : LIO_SPAN_REQUEST};
    int code;
    if (!lio_trace_is_on(engine->trace))
        return perform_quietly(engine, read, error);
    span.depth = atomic_fetch_add(&engine->in_flight, 1) + 1;
    span.begun_ns = lio_now_ns();
    span.queued_ns = queued_ns != 0 ? queued_ns : span.begun_ns;
    code = perform_quietly(engine, read, error);
    span.ended_ns = lio_now_ns();
    span.depth_after = atomic_fetch_sub(&engine->in_flight, 1) - 1;
    span.failed = (uint32_t)code;
    note(engine, span);
    return code;
}

/* The same for a thread of the pool, which counts how long that took. */
static void perform_queued(lio_engine *engine, const lio_read *read, uint64_t queued_ns,
                           lio_error *error)
{
    uint64_t begun = lio_now_ns();
    (void)perform(engine, read, queued_ns, error);
    lio_engine_count(engine, &(lio_tally){.queued_requests = 1, .queue_ns = begun - queued_ns,
                                          .service_ns = lio_now_ns() - begun});
}

/* Asks the kind, and counts what came of it. */
static lio_peek look(lio_engine *engine, const lio_read *read, const struct iovec *into, int count)
{
    lio_peek found = LIO_PEEK_NOTHING;
    if (engine->kind->peek != NULL)
        found = engine->kind->peek(engine->source, read, into, count);
    if (found >= LIO_PEEK_BY_CALL)
        add_to_counters(engine, 1, read->length);
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
           (!check || check_size(engine, &read, 1, NULL) == LIO_OK));
    if (traced && all) {
        span.ended_ns = lio_now_ns();
        span.amount = read.length;
        note(engine, span);
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

static bool can_gather(lio_engine *engine, const lio_extent *extents, const uint64_t *offsets,
                       size_t count, uint64_t room)
{
    size_t calls = 0;
    if (engine->kind->peek == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        lio_extent e = extents[i];
        lio_holds held = LIO_HOLDS_MAPPED;
        if (!lio_fits(offsets[i], e.length, room) || !lio_fits(e.offset, e.length, INT64_MAX))
            return false;
        if (e.length > 0)
            held = engine->kind->holds(engine->source, e.offset, e.length);
        calls += held == LIO_HOLDS_BY_CALL;
        if (held == LIO_HOLDS_NOT || calls > GATHER_CALLS_MAX)
            return false;
    }
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
    return check_size(engine, &last, 1, NULL) == LIO_OK;
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
        note(engine, span);
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

/* --- the queue (all under the pool's lock) ------------------------------------------- */

static void queue_append(pool *owner, lio_ticket *ticket)
{
    ticket->queued = true;
    ticket->queued_ns = lio_now_ns();
    ticket->next = NULL;
    if (owner->last != NULL)
        owner->last->next = ticket;
    else
        owner->first = ticket;
    owner->last = ticket;
}

/* Drops what has not begun. */
static void queue_remove(pool *owner, lio_ticket *ticket)
{
    lio_ticket *before = NULL;
    if (!ticket->queued)
        return;
    for (lio_ticket *at = owner->first; at != ticket; at = at->next)
        before = at;
    if (before != NULL)
        before->next = ticket->next;
    else
        owner->first = ticket->next;
    if (owner->last == ticket)
        owner->last = before;
    ticket->queued = false;
}

static bool has_ended(const lio_ticket *ticket)
{
    return !ticket->queued && ticket->running == 0;
}

/* Takes the next request of the first ticket. */
static const lio_read *queue_take(pool *owner, lio_ticket **ticket)
{
    lio_ticket *first = owner->first;
    const lio_read *read = &first->reads[first->begun];
    first->begun++;
    first->running++;
    if (first->begun == first->count) {
        owner->first = first->next;
        if (owner->first == NULL)
            owner->last = NULL;
        first->queued = false;
    }
    *ticket = first;
    return read;
}

static void ticket_fail(pool *owner, lio_ticket *ticket, const lio_error *error)
{
    if (error->code == LIO_OK || ticket->error.code != LIO_OK)
        return;
    ticket->error = *error;
    queue_remove(owner, ticket);
}

/* A request that was taken has ended. After the last one the size is asked for, without the lock;
 * until then the ticket has not ended. */
static void request_ended(pool *owner, lio_ticket *ticket, const lio_error *error)
{
    lio_error cut = {0};
    ticket_fail(owner, ticket, error);
    if (!ticket->queued && ticket->running == 1 && ticket->error.code == LIO_OK) {
        (void)pthread_mutex_unlock(&owner->lock);
        (void)check_size(owner->engine, ticket->reads, ticket->count, &cut);
        (void)pthread_mutex_lock(&owner->lock);
        ticket_fail(owner, ticket, &cut);
    }
    ticket->running--;
    if (has_ended(ticket)) {
        ticket->ended_ns = lio_now_ns();
        (void)pthread_cond_broadcast(&owner->done);
    }
}

/* --- the threads --------------------------------------------------------------------- */

static void wait_for_work(pool *owner)
{
    owner->idle++;
    (void)pthread_cond_wait(&owner->work, &owner->lock);
    owner->idle--;
}

/* One request after another. */
static void carry_one_by_one(pool *owner)
{
    for (;;) {
        lio_ticket *ticket;
        const lio_read *read;
        lio_error error = {0};
        while (owner->first == NULL && !owner->closing)
            wait_for_work(owner);
        if (owner->closing)
            break;
        read = queue_take(owner, &ticket);
        (void)pthread_mutex_unlock(&owner->lock);
        perform_queued(owner->engine, read, ticket->queued_ns, &error);
        (void)pthread_mutex_lock(&owner->lock);
        request_ended(owner, ticket, &error);
    }
}

/* A request is handed to the ring. */
static lio_ring_mark begin(lio_engine *engine, lio_ticket *ticket)
{
    lio_ring_mark mark = {.ticket = ticket, .begun_ns = lio_now_ns()};
    if (lio_trace_is_on(engine->trace))
        mark.depth = atomic_fetch_add(&engine->in_flight, 1) + 1;
    return mark;
}

/* Counts what came of it and, if that was on when it began, traces it. */
static void tell_of(lio_engine *engine, const lio_ring_done *done)
{
    const lio_ring_mark *mark = &done->mark;
    uint64_t queued_ns = mark->ticket->submitted_ns, now = lio_now_ns();
    add_to_counters(engine, done->calls, done->received);
    lio_engine_count(engine, &(lio_tally){.queued_requests = 1,
                                          .queue_ns = mark->begun_ns - queued_ns,
                                          .service_ns = now - mark->begun_ns});
    if (mark->depth == 0)
        return;
    note(engine, (lio_span){.queued_ns = queued_ns, .begun_ns = mark->begun_ns, .ended_ns = now,
                            .offset = done->offset, .amount = done->length, .count = 1,
                            .kind = LIO_SPAN_REQUEST, .depth = mark->depth,
                            .depth_after = atomic_fetch_sub(&engine->in_flight, 1) - 1,
                            .failed = (uint32_t)done->error.code});
}

static void ring_fill(pool *owner)
{
    while (owner->first != NULL && !owner->closing && lio_ring_room(owner->ring) > 0) {
        lio_ticket *ticket;
        lio_error error = {0};
        const lio_read *read = queue_take(owner, &ticket);
        if (read->length == 0 || lio_direct_check(read, &error) != LIO_OK)
            request_ended(owner, ticket, &error);
        else
            lio_ring_push(owner->ring, read, begin(owner->engine, ticket));
    }
}

/* All at once, as many as the ring takes. */
static void carry_by_ring(pool *owner)
{
    lio_ring_done done;
    for (;;) {
        ring_fill(owner);
        if (lio_ring_is_empty(owner->ring)) {
            if (owner->closing)
                break;
            wait_for_work(owner);
            continue;
        }
        owner->in_kernel = true;
        (void)pthread_mutex_unlock(&owner->lock);
        lio_ring_wait(owner->ring);
        (void)pthread_mutex_lock(&owner->lock);
        owner->in_kernel = false;
        while (lio_ring_pop(owner->ring, &done)) {
            tell_of(owner->engine, &done);
            request_ended(owner, done.mark.ticket, &done.error);
        }
    }
}

static void *carry(void *argument)
{
    pool *owner = argument;
    (void)pthread_mutex_lock(&owner->lock);
    if (owner->ring != NULL)
        carry_by_ring(owner);
    else
        carry_one_by_one(owner);
    (void)pthread_mutex_unlock(&owner->lock);
    return NULL;
}

/* --- the pool ------------------------------------------------------------------------ */

static int pool_make(lio_engine *engine, pool **out, lio_error *error)
{
    pthread_condattr_t clock;
    pool *owner = calloc(1, sizeof *owner);
    if (owner == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *owner, 0, "no memory for an engine");
    owner->engine = engine;
    owner->pid = getpid();
    /* Without one (descriptors used up, a sandbox closed since) threads read the same way. */
    if (engine->kind == &lio_kind_uring)
        (void)lio_ring_open(lio_engine_fd(engine), engine->depth, engine->kind->alignment,
                            &owner->ring, NULL);
    (void)pthread_mutex_init(&owner->lock, NULL);
    (void)pthread_cond_init(&owner->work, NULL);
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&owner->done, &clock);
    (void)pthread_condattr_destroy(&clock);
    *out = owner;
    return LIO_OK;
}

/* This process's pool; made on first use and again after fork. */
static int pool_of(lio_engine *engine, pool **out, lio_error *error)
{
    pool *found = engine->pool, *made = NULL;
    int code;
    if (found != NULL && found->pid == getpid()) {
        *out = found;
        return LIO_OK;
    }
    code = pool_make(engine, &made, error);
    if (code != LIO_OK)
        return code;
    if (atomic_compare_exchange_strong(&engine->pool, &found, made)) {
        if (found != NULL)
            pool_abandon(found);
        *out = made;
    } else { /* another thread was first; its pool is this process's too */
        pool_close(made);
        *out = found;
    }
    return LIO_OK;
}

/* Starts threads for a ticket, as far as `depth` allows. Signals stay with the threads of the
 * program, but for the one that a copy out of a mapping may raise (engine_mapped.h). At least one
 * thread must run, the others are a matter of speed. */
static int pool_grow(pool *owner, const lio_ticket *ticket, lio_error *error)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int problem = 0;
    uint64_t wanted = owner->threads - owner->idle + ticket->hands;
    uint32_t most = owner->ring != NULL ? 1 : owner->engine->depth;
    wanted = wanted < most ? wanted : most;
    if (owner->threads >= wanted)
        return LIO_OK;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    while (owner->threads < wanted) {
        problem = pthread_create(&owner->thread[owner->threads], &attributes, carry, owner);
        if (problem != 0)
            break;
        owner->threads++;
    }
    (void)pthread_attr_destroy(&attributes);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (owner->threads == 0)
        return lio_fail_errno(error, problem, 0, 0, "cannot start a thread for reading");
    return LIO_OK;
}

/* --- tickets ------------------------------------------------------------------------- */

static int ticket_make(pool *owner, size_t count, lio_ticket **out, lio_error *error)
{
    lio_ticket *ticket = NULL;
    if (count > (SIZE_MAX - sizeof *ticket) / sizeof ticket->reads[0])
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, count, "too many reads in one batch");
    ticket = calloc(1, sizeof *ticket + count * sizeof ticket->reads[0]);
    if (ticket == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory for %zu reads", count);
    ticket->owner = owner;
    ticket->submitted_ns = lio_now_ns();
    *out = ticket;
    return LIO_OK;
}

/* Hands a ticket whose requests are filled in to the threads. Frees it on failure. */
static int ticket_start(lio_ticket *ticket, lio_ticket **out, lio_error *error)
{
    pool *owner = ticket->owner;
    int code = LIO_OK;
    if (ticket->count > 0) {
        (void)pthread_mutex_lock(&owner->lock);
        queue_append(owner, ticket);
        code = pool_grow(owner, ticket, error);
        if (code != LIO_OK)
            queue_remove(owner, ticket);
        else if (owner->in_kernel && lio_ring_room(owner->ring) > 0)
            lio_ring_nudge(owner->ring);
        else if (ticket->hands == 1 || owner->ring != NULL)
            (void)pthread_cond_signal(&owner->work);
        else
            (void)pthread_cond_broadcast(&owner->work);
        (void)pthread_mutex_unlock(&owner->lock);
    }
    if (code != LIO_OK) {
        free(ticket);
        return code;
    }
    *out = ticket;
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
    note(engine, span);
}

int lio_engine_submit(lio_engine *engine, const lio_read *reads, size_t count, lio_ticket **out,
                      lio_error *error)
{
    lio_ticket *ticket;
    pool *owner;
    bool by_call = false;
    int code = check_reads(reads, count, error);
    if (code == LIO_OK)
        code = pool_of(engine, &owner, error);
    if (code == LIO_OK)
        code = ticket_make(owner, count, &ticket, error);
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
    if (by_call && check_size(engine, reads, count, NULL) != LIO_OK) { /* all of it again */
        memcpy(ticket->reads, reads, count * sizeof *reads);
        ticket->hands = ticket->count = count;
    }
    /* What the kernel has begun already only needs to be copied as it arrives. */
    if (ticket->hands == 0)
        ticket->hands = 1;
    note_cached(engine, reads, count, ticket);
    return ticket_start(ticket, out, error);
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
    pool *owner;
    uint64_t pieces;
    int code;
    if (engine->kind->populate == NULL)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0, "a %s engine fills no page cache",
                        engine->kind->name);
    pieces = piece > 0 ? count_pieces(ranges, count, piece) : UINT64_MAX;
    if (pieces >= SIZE_MAX)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, piece,
                        "reading ahead of impossible size or place");
    code = pool_of(engine, &owner, error);
    if (code == LIO_OK)
        code = ticket_make(owner, (size_t)pieces, &ticket, error);
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
    return ticket_start(ticket, out, error);
}

static struct timespec deadline_after(int timeout_ms)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    now.tv_sec += timeout_ms / 1000;
    now.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (now.tv_nsec >= 1000000000) {
        now.tv_sec++;
        now.tv_nsec -= 1000000000;
    }
    return now;
}

int lio_ticket_wait(lio_ticket *ticket, int timeout_ms, lio_error *error)
{
    pool *owner = ticket->owner;
    struct timespec deadline = deadline_after(timeout_ms > 0 ? timeout_ms : 0);
    int code = LIO_OK, waited = 0;
    if (owner->pid != getpid())
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0, "these reads were begun before fork");
    (void)pthread_mutex_lock(&owner->lock);
    while (!has_ended(ticket) && waited == 0) {
        if (timeout_ms < 0)
            (void)pthread_cond_wait(&owner->done, &owner->lock);
        else
            waited = pthread_cond_timedwait(&owner->done, &owner->lock, &deadline);
    }
    if (!has_ended(ticket))
        code = LIO_PENDING;
    else if (ticket->error.code != LIO_OK) {
        code = ticket->error.code;
        if (error != NULL)
            *error = ticket->error;
    }
    (void)pthread_mutex_unlock(&owner->lock);
    return code;
}

void lio_ticket_times(lio_ticket *ticket, uint64_t *submitted_ns, uint64_t *ended_ns)
{
    pool *owner = ticket->owner;
    *submitted_ns = *ended_ns = ticket->submitted_ns;
    if (owner->pid != getpid())
        return;
    (void)pthread_mutex_lock(&owner->lock);
    if (ticket->ended_ns != 0)
        *ended_ns = ticket->ended_ns;
    (void)pthread_mutex_unlock(&owner->lock);
}

void lio_ticket_free(lio_ticket *ticket)
{
    pool *owner;
    if (ticket == NULL)
        return;
    owner = ticket->owner;
    if (owner->pid == getpid()) {
        (void)pthread_mutex_lock(&owner->lock);
        queue_remove(owner, ticket);
        while (!has_ended(ticket))
            (void)pthread_cond_wait(&owner->done, &owner->lock);
        (void)pthread_mutex_unlock(&owner->lock);
    }
    free(ticket);
}

void lio_ticket_drop(lio_ticket **ticket)
{
    lio_ticket *gone = *ticket;
    *ticket = NULL;
    lio_ticket_free(gone);
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
            code = perform(engine, reads, 0, error);
        return code != LIO_OK ? code : check_size(engine, reads, 1, error);
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
            code = perform(engine, &reads[i], 0, error);
        return code != LIO_OK ? code : check_size(engine, reads, count, error);
    }
    if (count > 0)
        span.offset = reads[0].offset;
    if (lio_trace_is_on(engine->trace))
        span.queued_ns = span.begun_ns = lio_now_ns();
    code = lio_pread_scatter(engine->source, reads, count, &received, &calls, error);
    if (code == LIO_OK)
        code = check_size(engine, reads, count, error);
    (void)atomic_fetch_add_explicit(&engine->requests, calls, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&engine->bytes, received, memory_order_relaxed);
    if (!lio_trace_is_on(engine->trace))
        return code;
    span.ended_ns = lio_now_ns();
    span.amount = received;
    span.count = (uint32_t)calls;
    span.failed = (uint32_t)code;
    note(engine, span);
    return code;
}
