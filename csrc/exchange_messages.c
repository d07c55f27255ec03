#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "exchange_part.h"

void lio_exchange_enter(lio_exchange *x)
{
    (void)atomic_fetch_add_explicit(&x->callers, 1, memory_order_relaxed);
    (void)pthread_mutex_lock(&x->lock);
    (void)atomic_fetch_sub_explicit(&x->callers, 1, memory_order_relaxed);
}

void lio_exchange_leave(lio_exchange *x)
{
    (void)pthread_mutex_unlock(&x->lock);
}

uint64_t lio_exchange_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool lio_exchange_wait_until(pthread_cond_t *what, pthread_mutex_t *lock, uint64_t deadline_ns)
{
    struct timespec until = {(time_t)(deadline_ns / 1000000000u),
                             (long)(deadline_ns % 1000000000u)};
    return pthread_cond_timedwait(what, lock, &until) != ETIMEDOUT;
}

uint64_t lio_exchange_deadline_after(int timeout_ms)
{
    return lio_exchange_now_ns() + (timeout_ms < 0 ? 0 : (uint64_t)timeout_ms) * 1000000u;
}

void lio_exchange_fail(lio_exchange *x, int code, const char *what, int reason)
{
    if (x->error.code == LIO_OK)
        (void)lio_fail(&x->error, code, 0, 0, 0, "%s (%d)", what, reason);
    (void)pthread_cond_broadcast(&x->moved);
}

/* --- requests under way ---------------------------------------------------------------- */

bool lio_exchange_make_place(lio_exchange *x)
{
    int wanted = x->operations_max == 0 ? 64 : 2 * x->operations_max;
    if (x->operations < x->operations_max)
        return true;
    operation *operations = realloc(x->operation, (size_t)wanted * sizeof *operations);
    if (operations != NULL)
        x->operation = operations;
    uint8_t *requests = realloc(x->request, (size_t)wanted * x->mpi.handle_bytes);
    if (requests != NULL)
        x->request = requests;
    uint8_t *statuses = realloc(x->status, (size_t)wanted * x->mpi.status_bytes);
    if (statuses != NULL)
        x->status = statuses;
    int *indices = realloc(x->index, (size_t)wanted * sizeof *indices);
    if (indices != NULL)
        x->index = indices;
    if (operations == NULL || requests == NULL || statuses == NULL || indices == NULL) {
        lio_exchange_fail(x, LIO_ERR_NOMEM, "no memory for messages", wanted);
        return false;
    }
    x->operations_max = wanted;
    return true;
}

void *lio_exchange_next_request(lio_exchange *x)
{
    return x->request + (size_t)x->operations * x->mpi.handle_bytes;
}

void lio_exchange_under_way(lio_exchange *x, operation done)
{
    x->operation[x->operations++] = done;
}

/* --- words: what roots tell each other --------------------------------------------------- */

void lio_exchange_say(lio_exchange *x, uint32_t to, uint64_t what, uint64_t number)
{
    word *out;
    if (x->is_stopping) /* the communicator may be gone */
        return;
    out = malloc(sizeof *out);
    if (out == NULL) {
        lio_exchange_fail(x, LIO_ERR_NOMEM, "no memory for a message", 0);
        return;
    }
    *out = (word){.peer = to, .said = {what, number}};
    if (x->outbox == NULL)
        x->outbox = out;
    else
        x->last_out->next = out;
    x->last_out = out;
    (void)pthread_cond_signal(&x->work);
}
