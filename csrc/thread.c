#include "thread.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "trace.h"

int lio_thread_start(pthread_t *out, size_t stack_bytes, void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int problem;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, stack_bytes);
    problem = pthread_create(out, &attributes, run, argument);
    (void)pthread_attr_destroy(&attributes);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return problem;
}

void lio_condition_make(pthread_cond_t *condition)
{
    pthread_condattr_t clock;
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(condition, &clock);
    (void)pthread_condattr_destroy(&clock);
}

uint64_t lio_moment_after(int timeout_ms)
{
    return lio_now_ns() + (timeout_ms < 0 ? 0 : (uint64_t)timeout_ms) * 1000000u;
}

bool lio_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t moment_ns)
{
    struct timespec until = {(time_t)(moment_ns / 1000000000u), (long)(moment_ns % 1000000000u)};
    return pthread_cond_timedwait(condition, lock, &until) != ETIMEDOUT;
}
