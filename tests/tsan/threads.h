/* threads: what the programs here are made of: threads, naps, chance, and a word before the end.
 *
 * The program defines `give_up(line, what, error)`, which says what is wrong and ends it.
 */
#ifndef THREADS_H
#define THREADS_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "status.h"

#define MUST(test) ((test) ? (void)0 : give_up(__LINE__, #test, NULL))
#define MUST_BE_OK(code, error) ((code) == LIO_OK ? (void)0 : give_up(__LINE__, #code, error))

static void give_up(int line, const char *what, const lio_error *error);

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    MUST(pthread_create(thread, NULL, run, argument) == 0);
}

static void finish(pthread_t thread)
{
    MUST(pthread_join(thread, NULL) == 0);
}

#endif
