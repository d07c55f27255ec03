#include "remote.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct lio_remote_call {
    const void *mark;
    atomic_bool given_up;
    lio_remote_call *next, *before;
};

struct lio_remote {
    lio_remote_read read;
    void *handle;
    uint64_t size;
    bool keeps_state;
    pthread_mutex_t lock;
    pthread_cond_t fewer; /* a call has ended */
    lio_remote_call *calls;
    bool ended;
};

static void lock_make(lio_remote *remote)
{
    pthread_condattr_t clock;
    (void)pthread_mutex_init(&remote->lock, NULL);
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&remote->fewer, &clock);
    (void)pthread_condattr_destroy(&clock);
}

int lio_remote_open(lio_remote_read read, void *handle, uint64_t size, bool keeps_state,
                    lio_remote **out, lio_error *error)
{
    lio_remote *remote = calloc(1, sizeof *remote);
    if (remote == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *remote, 0, "no memory for an engine");
    remote->read = read;
    remote->handle = handle;
    remote->size = size;
    remote->keeps_state = keeps_state;
    lock_make(remote);
    *out = remote;
    return LIO_OK;
}

void lio_remote_close(lio_remote *remote)
{
    if (remote == NULL)
        return;
    (void)pthread_cond_destroy(&remote->fewer);
    (void)pthread_mutex_destroy(&remote->lock);
    free(remote);
}

uint64_t lio_remote_size(const lio_remote *remote)
{
    return remote->size;
}

bool lio_remote_keeps_state(const lio_remote *remote)
{
    return remote->keeps_state;
}

void lio_remote_forked(lio_remote *remote)
{
    lock_make(remote);
    remote->calls = NULL;
}

bool lio_remote_end(lio_remote *remote, int timeout_ms)
{
    struct timespec until;
    bool is_idle;
    int waited = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_mutex_lock(&remote->lock);
    remote->ended = true;
    for (lio_remote_call *call = remote->calls; call != NULL; call = call->next)
        atomic_store_explicit(&call->given_up, true, memory_order_relaxed);
    while (remote->calls != NULL && waited == 0)
        waited = pthread_cond_timedwait(&remote->fewer, &remote->lock, &until);
    is_idle = remote->calls == NULL;
    (void)pthread_mutex_unlock(&remote->lock);
    return is_idle;
}

/* --- the calls -------------------------------------------------------------------------- */

/* False: nothing is read any more. */
static bool call_begin(lio_remote *remote, lio_remote_call *call)
{
    bool begun;
    (void)pthread_mutex_lock(&remote->lock);
    begun = !remote->ended;
    if (begun) {
        call->next = remote->calls;
        if (call->next != NULL)
            call->next->before = call;
        remote->calls = call;
    }
    (void)pthread_mutex_unlock(&remote->lock);
    return begun;
}

static void call_end(lio_remote *remote, lio_remote_call *call)
{
    (void)pthread_mutex_lock(&remote->lock);
    if (call->before != NULL)
        call->before->next = call->next;
    else
        remote->calls = call->next;
    if (call->next != NULL)
        call->next->before = call->before;
    (void)pthread_cond_broadcast(&remote->fewer);
    (void)pthread_mutex_unlock(&remote->lock);
}

bool lio_remote_is_given_up(const lio_remote_call *call)
{
    return atomic_load_explicit(&call->given_up, memory_order_relaxed);
}

int lio_remote_fetch(lio_remote *remote, const void *mark, uint64_t offset, uint64_t length,
                     uint8_t *into, uint64_t *requests, lio_error *error)
{
    lio_remote_call call = {.mark = mark};
    int code;
    if (!call_begin(remote, &call))
        return lio_fail_errno(error, ESHUTDOWN, offset, length,
                              "the process is ending, and reads nothing more");
    code = remote->read(remote->handle, &call, offset, length, into, requests, error);
    call_end(remote, &call);
    return code;
}

void lio_remote_give_up(lio_remote *remote, const void *first, const void *end)
{
    (void)pthread_mutex_lock(&remote->lock);
    for (lio_remote_call *call = remote->calls; call != NULL; call = call->next)
        if ((uintptr_t)call->mark >= (uintptr_t)first && (uintptr_t)call->mark < (uintptr_t)end)
            atomic_store_explicit(&call->given_up, true, memory_order_relaxed);
    (void)pthread_mutex_unlock(&remote->lock);
}
