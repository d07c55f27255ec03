#include "copier.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "buffer.h"
#include "thread.h"

enum { STACK_BYTES = 64 * 1024 };

typedef struct {
    uint64_t from, to, length;
} row_copy;

struct lio_copying {
    lio_copier *copier;
    lio_copying *next;
    enum { WAITS, RUNS } state; /* under the lock */
    atomic_bool is_over;
    size_t count;
    row_copy rows[];
};

struct lio_copier {
    pthread_t thread;
    pid_t pid;
    pthread_mutex_t lock;
    pthread_cond_t work, over;
    lio_copying *first, **last; /* that wait */
    bool has_thread, is_closing;
    bool is_alone; /* no thread could be started: who has rows copied does it */
};

static void copy(const lio_copying *one)
{
    for (size_t i = 0; i < one->count; i++)
        lio_copy((void *)(uintptr_t)one->rows[i].to, (const void *)(uintptr_t)one->rows[i].from,
                 (size_t)one->rows[i].length);
}

static void *carry(void *argument)
{
    lio_copier *c = argument;
    (void)pthread_mutex_lock(&c->lock);
    for (;;) {
        lio_copying *one = c->first;
        if (c->is_closing)
            break;
        if (one == NULL) {
            (void)pthread_cond_wait(&c->work, &c->lock);
            continue;
        }
        c->first = one->next;
        if (c->first == NULL)
            c->last = &c->first;
        one->state = RUNS;
        (void)pthread_mutex_unlock(&c->lock);
        copy(one);
        (void)pthread_mutex_lock(&c->lock);
        atomic_store(&one->is_over, true);
        (void)pthread_cond_broadcast(&c->over);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

int lio_copier_open(lio_copier **out, lio_error *error)
{
    lio_copier *c = calloc(1, sizeof *c);
    if (c == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, 0, 0, "no memory for a thread that copies");
    c->last = &c->first;
    c->pid = getpid();
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->work, NULL);
    lio_condition_make(&c->over);
    c->has_thread = lio_thread_start(&c->thread, STACK_BYTES, carry, c) == 0;
    c->is_alone = !c->has_thread;
    *out = c;
    return LIO_OK;
}

int lio_copier_start(lio_copier *c, const lio_loaded *loaded, const int64_t *rows, size_t count,
                     const int64_t *records, const uint64_t *lengths, const uint64_t *offsets,
                     uint64_t data, lio_copying **out, lio_error *error)
{
    lio_copying *copying = malloc(sizeof *copying + count * sizeof copying->rows[0]);
    if (copying == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory to copy rows");
    copying->copier = c;
    copying->next = NULL;
    copying->state = WAITS;
    copying->count = count;
    atomic_init(&copying->is_over, false);
    for (size_t i = 0; i < count; i++) {
        size_t row = (size_t)rows[i];
        uint64_t from;
        if (!lio_loaded_find(loaded, records[row], &from)) {
            free(copying);
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, (uint64_t)records[row],
                            "a record is not loaded");
        }
        copying->rows[i] = (row_copy){from, data + offsets[row], lengths[row]};
    }
    if (c->is_alone) {
        copy(copying);
        atomic_store(&copying->is_over, true);
    } else {
        (void)pthread_mutex_lock(&c->lock);
        *c->last = copying;
        c->last = &copying->next;
        (void)pthread_cond_signal(&c->work);
        (void)pthread_mutex_unlock(&c->lock);
    }
    *out = copying;
    return LIO_OK;
}

int lio_copying_wait(lio_copying *copying, int timeout_ms)
{
    lio_copier *c = copying->copier;
    bool in_time = true;
    uint64_t deadline;
    if (atomic_load(&copying->is_over) || timeout_ms <= 0 || c->pid != getpid())
        return atomic_load(&copying->is_over) ? LIO_OK : LIO_PENDING;
    deadline = lio_moment_after(timeout_ms);
    (void)pthread_mutex_lock(&c->lock);
    while (!atomic_load(&copying->is_over) && in_time)
        in_time = lio_wait_until(&c->over, &c->lock, deadline);
    (void)pthread_mutex_unlock(&c->lock);
    return atomic_load(&copying->is_over) ? LIO_OK : LIO_PENDING;
}

static void unlink_waiting(lio_copier *c, const lio_copying *copying)
{
    lio_copying **at = &c->first;
    while (*at != copying)
        at = &(*at)->next;
    *at = copying->next;
    if (*at == NULL)
        c->last = at;
}

void lio_copying_close(lio_copying *copying)
{
    lio_copier *c;
    if (copying == NULL ||
        copying->copier->pid != getpid()) /* a forked child has no such thread */
        return;
    c = copying->copier;
    if (!atomic_load(&copying->is_over)) {
        (void)pthread_mutex_lock(&c->lock);
        if (copying->state == WAITS)
            unlink_waiting(c, copying);
        else
            while (!atomic_load(&copying->is_over))
                (void)pthread_cond_wait(&c->over, &c->lock);
        (void)pthread_mutex_unlock(&c->lock);
    }
    free(copying);
}

void lio_copier_end(lio_copier *c)
{
    if (!c->has_thread || c->pid != getpid())
        return;
    (void)pthread_mutex_lock(&c->lock);
    c->is_closing = true;
    (void)pthread_cond_signal(&c->work);
    (void)pthread_mutex_unlock(&c->lock);
    (void)pthread_join(c->thread, NULL);
    c->has_thread = false;
}

void lio_copier_close(lio_copier *c)
{
    if (c == NULL || c->pid != getpid())
        return;
    lio_copier_end(c);
    (void)pthread_cond_destroy(&c->work);
    (void)pthread_cond_destroy(&c->over);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
}
