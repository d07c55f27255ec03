#include "trace.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct lio_trace {
    pthread_mutex_t lock; /* of all but `on` and `owners` */
    atomic_bool on;
    _Atomic uint32_t owners;
    size_t capacity, first, count;
    uint64_t dropped;
    lio_span spans[];
};

uint64_t lio_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int lio_trace_open(size_t capacity, lio_trace **out, lio_error *error)
{
    lio_trace *trace = NULL;
    if (capacity == 0 || capacity > (SIZE_MAX - sizeof *trace) / sizeof trace->spans[0])
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, capacity,
                        "a trace of %zu spans is impossible", capacity);
    trace = calloc(1, sizeof *trace + capacity * sizeof trace->spans[0]);
    if (trace == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, 0, capacity, "no memory for a trace");
    (void)pthread_mutex_init(&trace->lock, NULL);
    trace->capacity = capacity;
    trace->owners = 1;
    *out = trace;
    return LIO_OK;
}

void lio_trace_share(lio_trace *trace)
{
    (void)atomic_fetch_add(&trace->owners, 1);
}

void lio_trace_close(lio_trace *trace)
{
    if (trace == NULL || atomic_fetch_sub(&trace->owners, 1) != 1)
        return;
    (void)pthread_mutex_destroy(&trace->lock);
    free(trace);
}

void lio_trace_switch(lio_trace *trace, int on)
{
    atomic_store(&trace->on, on != 0);
}

bool lio_trace_is_on(const lio_trace *trace)
{
    return trace != NULL && atomic_load_explicit(&trace->on, memory_order_relaxed);
}

void lio_trace_forked(lio_trace *trace)
{
    (void)pthread_mutex_init(&trace->lock, NULL);
    trace->first = trace->count = 0;
    trace->dropped = 0;
}

void lio_trace_note(lio_trace *trace, const lio_span *span)
{
    uint32_t thread = (uint32_t)syscall(SYS_gettid);
    (void)pthread_mutex_lock(&trace->lock);
    if (trace->count < trace->capacity) {
        lio_span *kept = &trace->spans[(trace->first + trace->count) % trace->capacity];
        *kept = *span;
        kept->thread = thread;
        trace->count++;
    } else {
        trace->dropped++;
    }
    (void)pthread_mutex_unlock(&trace->lock);
}

size_t lio_trace_take(lio_trace *trace, lio_span *out, size_t room, uint64_t *dropped)
{
    size_t taken = 0;
    (void)pthread_mutex_lock(&trace->lock);
    for (; taken < room && trace->count > 0; taken++) {
        out[taken] = trace->spans[trace->first];
        trace->first = (trace->first + 1) % trace->capacity;
        trace->count--;
    }
    *dropped = trace->dropped;
    trace->dropped = 0;
    (void)pthread_mutex_unlock(&trace->lock);
    return taken;
}
