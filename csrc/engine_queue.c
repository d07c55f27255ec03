#include "engine_queue.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "contract.h"
#include "engine_buffered.h"
#include "engine_ring.h"
#include "thread.h"

enum { STACK_BYTES = 128 * 1024 };

/* Behind so many, another hint would come too late. At a time so much is prefaulted: requests and
 * lio_queue_close wait for it. */
enum { HINTS_MAX = 8, HINT_BYTES = 1 << 20 };

/* How often a kind whose reads may take long is asked to end those that nobody waits for. */
enum { GIVE_UP_MS = 50 };

struct lio_queue {
    pthread_mutex_t lock;
    pthread_cond_t work; /* a request is queued, or the queue is closing */
    pthread_cond_t done; /* a ticket has ended, or has nothing left to begin */
    lio_engine *engine;
    lio_ticket *first, **end; /* tickets with requests not yet begun */
    lio_hint *hint, **hints_end;
    uint32_t hints;  /* that wait */
    bool is_hinting; /* a thread prefaults */
    uint32_t threads, idle;
    uint32_t heeding; /* who waits for a ticket that has nothing left to begin */
    bool closing;
    bool in_kernel; /* the ring's thread waits there */
    lio_ring *ring; /* NULL: a thread for each request in flight */
    pid_t pid;
    pthread_t thread[LIO_ENGINE_DEPTH_MAX];
};

/* --- tickets and hints in it (all under its lock) ------------------------------------------- */

static void queue_append(lio_queue *owner, lio_ticket *ticket)
{
    LIO_ASSERT(!ticket->queued && ticket->owner == owner && ticket->begun < ticket->count);
    ticket->queued = true;
    ticket->queued_ns = lio_now_ns();
    ticket->next = NULL;
    *owner->end = ticket;
    owner->end = &ticket->next;
}

/* Drops what has not begun. */
static void queue_remove(lio_queue *owner, lio_ticket *ticket)
{
    lio_ticket **at = &owner->first;
    if (!ticket->queued)
        return;
    while (*at != ticket)
        at = &(*at)->next;
    *at = ticket->next;
    if (*at == NULL)
        owner->end = at;
    ticket->queued = false;
}

/* Whether there is one that nobody is at. */
static bool has_hint(const lio_queue *owner)
{
    return owner->hint != NULL && !owner->is_hinting;
}

static void hint_append(lio_queue *owner, lio_hint *hint)
{
    hint->next = NULL;
    *owner->hints_end = hint;
    owner->hints_end = &hint->next;
    owner->hints++;
}

static void hint_drop(lio_queue *owner)
{
    lio_hint *first = owner->hint;
    owner->hint = first->next;
    if (owner->hint == NULL)
        owner->hints_end = &owner->hint;
    owner->hints--;
    free(first);
}

/* Takes the next piece of the first one. */
static lio_extent hint_take(lio_queue *owner)
{
    lio_hint *first = owner->hint;
    LIO_ASSERT(first != NULL && first->begun < first->count);
    lio_extent *next = &first->extents[first->begun], piece = *next;
    if (piece.length > HINT_BYTES)
        piece.length = HINT_BYTES;
    next->offset += piece.length;
    next->length -= piece.length;
    if (next->length == 0 && ++first->begun == first->count)
        hint_drop(owner);
    return piece;
}

/* Threads that all that waits is worth. One that was woken counts as idle until it runs. */
static uint64_t queue_hands(const lio_queue *owner)
{
    uint64_t hands = has_hint(owner);
    for (const lio_ticket *ticket = owner->first; ticket != NULL; ticket = ticket->next) {
        size_t left = ticket->count - ticket->begun;
        hands += left < ticket->hands ? left : ticket->hands;
    }
    return hands;
}

static bool has_ended(const lio_ticket *ticket)
{
    return !ticket->queued && ticket->running == 0;
}

/* Takes the next request of the first ticket. */
static const lio_read *queue_take(lio_queue *owner, lio_ticket **ticket)
{
    lio_ticket *first = owner->first;
    LIO_ASSERT(first != NULL && first->queued && first->begun < first->count);
    const lio_read *read = &first->reads[first->begun];
    first->begun++;
    first->running++;
    if (first->begun == first->count) {
        owner->first = first->next;
        if (owner->first == NULL)
            owner->end = &owner->first;
        first->queued = false;
        if (owner->heeding > 0)
            (void)pthread_cond_broadcast(&owner->done);
    }
    *ticket = first;
    return read;
}

static void ticket_fail(lio_queue *owner, lio_ticket *ticket, const lio_error *error)
{
    if (error->code == LIO_OK || ticket->error.code != LIO_OK)
        return;
    ticket->error = *error;
    queue_remove(owner, ticket);
    (void)pthread_cond_broadcast(&owner->done); /* it has nothing left to begin */
}

/* A request that was taken has ended. After the last one the size is asked for, without the lock;
 * until then the ticket has not ended. */
static void request_ended(lio_queue *owner, lio_ticket *ticket, const lio_error *error)
{
    lio_error cut = {0};
    LIO_ASSERT(ticket->owner == owner && ticket->running > 0 && ticket->begun <= ticket->count);
    ticket_fail(owner, ticket, error);
    if (!ticket->queued && ticket->running == 1 && ticket->error.code == LIO_OK) {
        (void)pthread_mutex_unlock(&owner->lock);
        (void)lio_file_check_size(owner->engine->file, ticket->reads, ticket->count, &cut);
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

static void wait_for_work(lio_queue *owner)
{
    owner->idle++;
    (void)pthread_cond_wait(&owner->work, &owner->lock);
    owner->idle--;
}

/* Does one request, and counts how long that took. */
static void perform_queued(lio_engine *engine, const lio_read *read, uint64_t queued_ns,
                           lio_error *error)
{
    uint64_t begun = lio_now_ns();
    (void)lio_engine_perform(engine, read, queued_ns, error);
    lio_engine_count(engine, &(lio_tally){.queued_requests = 1,
                                          .queue_ns = begun - queued_ns,
                                          .service_ns = lio_now_ns() - begun});
}

static void follow_hint(lio_queue *owner)
{
    lio_extent piece = hint_take(owner);
    owner->is_hinting = true;
    (void)pthread_mutex_unlock(&owner->lock);
    lio_buffered_prefault(&owner->engine->file, piece);
    (void)pthread_mutex_lock(&owner->lock);
    owner->is_hinting = false;
}

/* Does the next request, without the lock. */
static void carry_next(lio_queue *owner)
{
    lio_ticket *ticket;
    lio_error error = {0};
    const lio_read *read = queue_take(owner, &ticket);
    /* One wakes the next: woken together, they would wait for the lock in turn. */
    if (owner->first != NULL && owner->idle > 0 &&
        (ticket->hands > 1 || owner->first != ticket || owner->first->next != NULL))
        (void)pthread_cond_signal(&owner->work);
    (void)pthread_mutex_unlock(&owner->lock);
    perform_queued(owner->engine, read, ticket->queued_ns, &error);
    (void)pthread_mutex_lock(&owner->lock);
    request_ended(owner, ticket, &error);
}

/* One request after another. */
static void carry_one_by_one(lio_queue *owner)
{
    for (;;) {
        while (owner->first == NULL && !has_hint(owner) && !owner->closing)
            wait_for_work(owner);
        if (owner->closing)
            break;
        if (owner->first == NULL)
            follow_hint(owner);
        else
            carry_next(owner);
    }
}

/* A request is handed to the ring. */
static lio_ring_mark begin(lio_engine *engine, lio_ticket *ticket)
{
    return (lio_ring_mark){
        .ticket = ticket, .begun_ns = lio_now_ns(), .depth = lio_engine_begin(engine)};
}

/* Counts what came of it and, if that was on when it began, traces it. */
static void tell_of(lio_engine *engine, const lio_ring_done *done)
{
    const lio_ring_mark *mark = &done->mark;
    uint64_t queued_ns = mark->ticket->submitted_ns;
    lio_engine_add(engine, done->calls, done->received);
    lio_engine_count(engine, &(lio_tally){.queued_requests = 1,
                                          .queue_ns = mark->begun_ns - queued_ns,
                                          .service_ns = lio_now_ns() - mark->begun_ns});
    lio_engine_end(engine,
                   (lio_span){.queued_ns = queued_ns,
                              .begun_ns = mark->begun_ns,
                              .offset = done->offset,
                              .amount = done->length,
                              .count = 1,
                              .kind = LIO_SPAN_REQUEST,
                              .failed = (uint32_t)done->error.code},
                   mark->depth);
}

static void ring_fill(lio_queue *owner)
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
static void carry_by_ring(lio_queue *owner)
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
    lio_queue *owner = argument;
    (void)pthread_mutex_lock(&owner->lock);
    if (owner->ring != NULL)
        carry_by_ring(owner);
    else
        carry_one_by_one(owner);
    (void)pthread_mutex_unlock(&owner->lock);
    return NULL;
}

/* --- the queue ----------------------------------------------------------------------- */

static int queue_make(lio_engine *engine, lio_queue **out, lio_error *error)
{
    lio_queue *owner = calloc(1, sizeof *owner);
    if (owner == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *owner, 0, "no memory for an engine");
    owner->engine = engine;
    owner->pid = getpid();
    owner->end = &owner->first;
    owner->hints_end = &owner->hint;
    /* Without one (descriptors used up, a sandbox closed since) threads read the same way. */
    if (engine->file.kind->is_ringed)
        (void)lio_ring_open(engine->file.fd, engine->depth, engine->file.kind->alignment,
                            &owner->ring, NULL);
    (void)pthread_mutex_init(&owner->lock, NULL);
    (void)pthread_cond_init(&owner->work, NULL);
    lio_condition_make(&owner->done);
    *out = owner;
    return LIO_OK;
}

static void queue_end(lio_queue *owner)
{
    uint32_t threads;
    (void)pthread_mutex_lock(&owner->lock);
    owner->closing = true;
    threads = owner->threads;
    (void)pthread_cond_broadcast(&owner->work);
    (void)pthread_mutex_unlock(&owner->lock);
    for (uint32_t i = 0; i < threads; i++)
        (void)pthread_join(owner->thread[i], NULL);
    while (owner->hint != NULL)
        hint_drop(owner);
    (void)pthread_cond_destroy(&owner->work);
    (void)pthread_cond_destroy(&owner->done);
    (void)pthread_mutex_destroy(&owner->lock);
    lio_ring_close(owner->ring);
    free(owner);
}

/* The parent's queue, in its child: its descriptor and mappings are this process's too. */
static void queue_abandon(lio_queue *parents)
{
    lio_ring_close(parents->ring);
    parents->ring = NULL;
}

void lio_queue_close(lio_queue *queue)
{
    if (queue != NULL && queue->pid == getpid())
        queue_end(queue);
    else if (queue != NULL)
        queue_abandon(queue);
}

int lio_queue_of(lio_engine *engine, lio_queue **out, lio_error *error)
{
    lio_queue *found = engine->queue, *made = NULL;
    int code;
    if (found != NULL && found->pid == getpid()) {
        *out = found;
        return LIO_OK;
    }
    code = queue_make(engine, &made, error);
    if (code != LIO_OK)
        return code;
    if (atomic_compare_exchange_strong(&engine->queue, &found, made)) {
        if (found != NULL)
            queue_abandon(found);
        *out = made;
    } else { /* another thread was first; its queue is this process's too */
        queue_end(made);
        *out = found;
    }
    return LIO_OK;
}

/* Starts threads for what waits, as far as `depth` allows. They are a matter of speed: where there is
 * none, who waits for a ticket does its requests (wait_for). */
static void queue_grow(lio_queue *owner)
{
    uint64_t wanted = owner->threads - owner->idle + queue_hands(owner);
    uint32_t most = owner->ring != NULL ? 1 : owner->engine->depth;
    size_t stack_bytes = owner->engine->file.kind->stack_bytes;
    wanted = wanted < most ? wanted : most;
    stack_bytes = stack_bytes > 0 ? stack_bytes : STACK_BYTES;
    while (owner->threads < wanted &&
           lio_thread_start(&owner->thread[owner->threads], stack_bytes, carry, owner) == 0)
        owner->threads++;
}

void lio_queue_hint(lio_queue *owner, lio_hint *hint)
{
    (void)pthread_mutex_lock(&owner->lock);
    if (owner->hints < HINTS_MAX) {
        hint_append(owner, hint);
        queue_grow(owner); /* without a thread it waits for one, or the end */
        if (has_hint(owner))
            (void)pthread_cond_signal(&owner->work);
        hint = NULL;
    }
    (void)pthread_mutex_unlock(&owner->lock);
    free(hint);
}

/* --- tickets ------------------------------------------------------------------------- */

int lio_ticket_make(lio_queue *owner, size_t count, lio_ticket **out, lio_error *error)
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

void lio_ticket_start(lio_ticket *ticket)
{
    lio_queue *owner = ticket->owner;
    if (ticket->count > 0) {
        (void)pthread_mutex_lock(&owner->lock);
        queue_append(owner, ticket);
        queue_grow(owner);
        if (owner->in_kernel && lio_ring_room(owner->ring) > 0)
            lio_ring_nudge(owner->ring);
        else
            (void)pthread_cond_signal(&owner->work); /* which wakes the next, if there is more */
        (void)pthread_mutex_unlock(&owner->lock);
    }
}

/* Under the lock: waits until the one has ended, or the other has nothing left to begin, or time is
 * up. Either may be NULL. Where no thread could be started, it does the requests that wait meanwhile,
 * one at least. */
static void wait_for(lio_queue *owner, const lio_ticket *ended, const lio_ticket *begun,
                     int timeout_ms)
{
    uint64_t deadline = lio_moment_after(timeout_ms);
    bool in_time = true;
    owner->heeding += begun != NULL;
    while ((ended == NULL || !has_ended(ended)) && (begun == NULL || begun->queued) && in_time) {
        if (owner->threads == 0 && owner->first != NULL) {
            carry_next(owner);
            in_time = timeout_ms < 0 || lio_now_ns() < deadline;
        } else if (timeout_ms == 0)
            break;
        else if (timeout_ms < 0)
            (void)pthread_cond_wait(&owner->done, &owner->lock);
        else
            in_time = lio_wait_until(&owner->done, &owner->lock, deadline);
    }
    owner->heeding -= begun != NULL;
}

static int begun_before_fork(lio_error *error)
{
    return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0, "these reads were begun before fork");
}

int lio_ticket_wait(lio_ticket *ticket, int timeout_ms, lio_error *error)
{
    lio_queue *owner = ticket->owner;
    int code = LIO_OK;
    if (owner->pid != getpid())
        return begun_before_fork(error);
    (void)pthread_mutex_lock(&owner->lock);
    wait_for(owner, ticket, NULL, timeout_ms);
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

int lio_ticket_wait_begun(lio_ticket *ticket, lio_ticket *older, int timeout_ms, lio_error *error)
{
    lio_queue *owner = ticket->owner;
    bool begun;
    if (owner->pid != getpid())
        return begun_before_fork(error);
    if (older != NULL && older->owner != owner)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0, "tickets of two engines");
    (void)pthread_mutex_lock(&owner->lock);
    wait_for(owner, older, ticket, timeout_ms);
    begun = !ticket->queued;
    (void)pthread_mutex_unlock(&owner->lock);
    return begun ? LIO_OK : LIO_PENDING;
}

double lio_ticket_left(lio_ticket *ticket)
{
    lio_queue *owner = ticket->owner;
    double left;
    if (owner->pid != getpid())
        return 1;
    (void)pthread_mutex_lock(&owner->lock);
    left = has_ended(ticket)
               ? 0
               : (double)(ticket->count - ticket->begun + ticket->running) / (double)ticket->count;
    (void)pthread_mutex_unlock(&owner->lock);
    return left;
}

void lio_ticket_times(lio_ticket *ticket, uint64_t *submitted_ns, uint64_t *ended_ns)
{
    lio_queue *owner = ticket->owner;
    *submitted_ns = *ended_ns = ticket->submitted_ns;
    if (owner->pid != getpid())
        return;
    (void)pthread_mutex_lock(&owner->lock);
    if (ticket->ended_ns != 0)
        *ended_ns = ticket->ended_ns;
    (void)pthread_mutex_unlock(&owner->lock);
}

/* Under the lock. Reads that have not come so far that they can be given up are asked again. */
static void wait_for_end(lio_queue *owner, const lio_ticket *ticket)
{
    lio_file file = owner->engine->file;
    while (!has_ended(ticket)) {
        if (file.kind->give_up != NULL) {
            (void)pthread_mutex_unlock(&owner->lock);
            file.kind->give_up(file.source, ticket->reads, ticket->count);
            (void)pthread_mutex_lock(&owner->lock);
        }
        wait_for(owner, ticket, NULL, file.kind->give_up != NULL ? GIVE_UP_MS : -1);
    }
}

void lio_ticket_free(lio_ticket *ticket)
{
    lio_queue *owner;
    if (ticket == NULL)
        return;
    owner = ticket->owner;
    if (owner->pid == getpid()) {
        (void)pthread_mutex_lock(&owner->lock);
        queue_remove(owner, ticket);
        wait_for_end(owner, ticket);
        (void)pthread_mutex_unlock(&owner->lock);
    }
    free(ticket);
}
