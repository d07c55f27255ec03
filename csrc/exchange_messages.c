#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "contract.h"
#include "exchange_part.h"
#include "trace.h"

/* --- callers and the thread ---------------------------------------------------------------- */

void lio_exchange_post(lio_exchange *x, request *one, int kind, void *subject)
{
    *one = (request){.kind = kind, .subject = subject};
    (void)pthread_mutex_lock(&x->lock);
    if (x->requests == NULL)
        x->requests = one;
    else
        x->last_request->next = one;
    x->last_request = one;
    (void)pthread_cond_signal(&x->work);
    (void)pthread_mutex_unlock(&x->lock);
}

bool lio_exchange_wait_until(pthread_cond_t *what, pthread_mutex_t *lock, uint64_t deadline_ns)
{
    struct timespec until = {(time_t)(deadline_ns / 1000000000u),
                             (long)(deadline_ns % 1000000000u)};
    return pthread_cond_timedwait(what, lock, &until) != ETIMEDOUT;
}

bool lio_exchange_is_carrier(lio_exchange *x)
{
    return !atomic_load(&x->has_thread) || pthread_equal(x->carrier, pthread_self()) != 0;
}

uint64_t lio_exchange_deadline_after(int timeout_ms)
{
    return lio_now_ns() + (timeout_ms < 0 ? 0 : (uint64_t)timeout_ms) * 1000000u;
}

bool lio_exchange_wait_none(lio_exchange *x, _Atomic size_t *counter, bool heeds_failure,
                            int timeout_ms)
{
    uint64_t deadline;
    bool in_time = true;
    if (atomic_load(counter) == 0 || timeout_ms <= 0)
        return atomic_load(counter) == 0;
    deadline = lio_exchange_deadline_after(timeout_ms);
    (void)pthread_mutex_lock(&x->lock);
    while (in_time && atomic_load(counter) > 0 && atomic_load(&x->has_thread) &&
           !(heeds_failure && atomic_load(&x->has_failed)))
        in_time = lio_exchange_wait_until(&x->moved, &x->lock, deadline);
    (void)pthread_mutex_unlock(&x->lock);
    return atomic_load(counter) == 0;
}

void lio_exchange_fail(lio_exchange *x, int code, const char *what, int reason)
{
    if (!atomic_load(&x->has_failed)) {
        (void)lio_fail(&x->error, code, 0, 0, 0, "%s (%d)", what, reason);
        atomic_store(&x->has_failed, true);
    }
    x->has_news = true;
}

bool lio_exchange_has_failed(lio_exchange *x, lio_error *error)
{
    bool has_failed = atomic_load(&x->has_failed);
    if (has_failed)
        *error = x->error;
    return has_failed;
}

void lio_exchange_note(peer *p, uint8_t fact)
{
    (void)atomic_fetch_or(&p->known, fact);
}

/* --- operations under way ---------------------------------------------------------------- */

bool lio_exchange_make_place(lio_exchange *x)
{
    int wanted = x->operations_max == 0 ? 64 : 2 * x->operations_max;
    if (x->operations < x->operations_max)
        return true;
    operation *operations = realloc(x->operation, (size_t)wanted * sizeof *operations);
    if (operations != NULL)
        x->operation = operations;
    uint8_t *handles = realloc(x->handle, (size_t)wanted * x->mpi.handle_bytes);
    if (handles != NULL)
        x->handle = handles;
    uint8_t *statuses = realloc(x->status, (size_t)wanted * x->mpi.status_bytes);
    if (statuses != NULL)
        x->status = statuses;
    int *indices = realloc(x->index, (size_t)wanted * sizeof *indices);
    if (indices != NULL)
        x->index = indices;
    if (operations == NULL || handles == NULL || statuses == NULL || indices == NULL) {
        lio_exchange_fail(x, LIO_ERR_NOMEM, "no memory for messages", wanted);
        return false;
    }
    x->operations_max = wanted;
    return true;
}

void *lio_exchange_next_handle(lio_exchange *x)
{
    return x->handle + (size_t)x->operations * x->mpi.handle_bytes;
}

void lio_exchange_under_way(lio_exchange *x, operation done)
{
    LIO_ASSERT(x->operations < x->operations_max && done.peer < x->peers);
    x->operation[x->operations++] = done;
}

/* --- control messages ------------------------------------------------------------------ */

void lio_exchange_say(lio_exchange *x, uint32_t to, uint64_t what, uint64_t number)
{
    control_message *out;
    LIO_ASSERT(lio_exchange_is_carrier(x) && to < x->peers && to != x->own);
    if (x->is_stopping) /* the communicator may be gone */
        return;
    out = malloc(sizeof *out);
    if (out == NULL) {
        lio_exchange_fail(x, LIO_ERR_NOMEM, "no memory for a message", 0);
        return;
    }
    *out = (control_message){.peer = to, .said = {what, number}};
    if (x->outbox == NULL)
        x->outbox = out;
    else
        x->last_out->next = out;
    x->last_out = out;
}
