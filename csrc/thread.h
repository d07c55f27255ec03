/* thread: threads of the core's own, and conditions on which they and callers wait up to a moment.
 *
 * Moments are ns of CLOCK_MONOTONIC (lio_now_ns).
 */
#ifndef LIO_THREAD_H
#define LIO_THREAD_H

/* cdef: skip */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts a thread. Signals stay with the threads of the program, but for the one that a copy out of a mapping
 * may raise (engine_mapped.h). Returns 0, or errno. */
int lio_thread_start(pthread_t *out, size_t stack_bytes, void *(*run)(void *), void *argument);

/* Makes a condition for lio_wait_until. */
void lio_condition_make(pthread_cond_t *condition);

/* The moment in `timeout_ms` from now; now, where that is negative. */
uint64_t lio_moment_after(int timeout_ms);

/* Waits for what may have changed, under the lock. False: the moment has come. */
bool lio_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t moment_ns);
/* cdef: resume */

#endif
