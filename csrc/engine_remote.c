/* The remote kind: reads that are under way, each by a call of the function, which are told when nobody
 * waits for them; and the file over it. */
#include "engine_remote.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine_file.h"
#include "thread.h"

struct lio_remote_call {
    const void *mark;
    atomic_bool given_up;
    lio_remote_call *next, *before;
};

struct lio_source {
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
    (void)pthread_mutex_init(&remote->lock, NULL);
    lio_condition_make(&remote->fewer);
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

void lio_remote_forked(lio_remote *remote)
{
    lock_make(remote);
    remote->calls = NULL;
}

bool lio_remote_end(lio_remote *remote, int timeout_ms)
{
    uint64_t deadline = lio_moment_after(timeout_ms);
    bool is_idle, in_time = true;
    (void)pthread_mutex_lock(&remote->lock);
    remote->ended = true;
    for (lio_remote_call *call = remote->calls; call != NULL; call = call->next)
        atomic_store_explicit(&call->given_up, true, memory_order_relaxed);
    while (remote->calls != NULL && in_time)
        in_time = lio_wait_until(&remote->fewer, &remote->lock, deadline);
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

/* Reads as the function does. `mark`: by which give_up() knows it. */
static int fetch(lio_remote *remote, const void *mark, uint64_t offset, uint64_t length,
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

/* --- the file over it --------------------------------------------------------------------- */

/* Python runs in the threads that carry reads; a TLS handshake and a look-up of a host's name took less
 * than a quarter of this. */
enum { STACK_BYTES = 1 << 20 };

/* Neighbours of more bytes together are asked for one by one. */
enum { TOGETHER_BYTES_MAX = 16 << 20 };

static int read_one(lio_source *source, const lio_read *read, uint64_t *received, uint64_t *calls,
                    lio_error *error)
{
    uint64_t size = source->size, requests = 0;
    uint64_t length = read->offset >= size ? 0 : size - read->offset;
    int code;
    length = length < read->length ? length : read->length;
    if (length < read->needed)
        return lio_short_read(read, length, error);
    if (length == 0)
        return LIO_OK;
    code = fetch(source, read, read->offset, length, read->into, &requests, error);
    *calls += requests;
    if (code == LIO_OK)
        *received += length;
    return code;
}

/* Neighbours in one request, by way of memory that they share: a second one takes longer than a copy. */
static int scatter(lio_source *source, const lio_read *reads, size_t count, uint64_t *received,
                   uint64_t *calls, lio_error *error)
{
    lio_read all = {.offset = reads[0].offset};
    int code = LIO_OK;
    for (size_t i = 0; i < count; i++)
        all.length += reads[i].length;
    all.needed = all.length;
    if (all.length <= TOGETHER_BYTES_MAX)
        all.into = malloc((size_t)all.length + 1);
    if (all.into != NULL)
        code = read_one(source, &all, received, calls, error);
    for (size_t i = 0; i < count && code == LIO_OK; i++)
        if (all.into == NULL)
            code = read_one(source, &reads[i], received, calls, error);
        else if (reads[i].length > 0)
            memcpy(reads[i].into, all.into + (reads[i].offset - all.offset),
                   (size_t)reads[i].length);
    free(all.into);
    return code;
}

/* Gives up the reads that are under way whose marks are among these. */
static void give_up(lio_source *source, const lio_read *reads, size_t count)
{
    (void)pthread_mutex_lock(&source->lock);
    for (lio_remote_call *call = source->calls; call != NULL; call = call->next)
        if ((uintptr_t)call->mark >= (uintptr_t)reads &&
            (uintptr_t)call->mark < (uintptr_t)(reads + count))
            atomic_store_explicit(&call->given_up, true, memory_order_relaxed);
    (void)pthread_mutex_unlock(&source->lock);
}

static int source_size(lio_source *source, uint64_t *size, lio_error *error)
{
    (void)error;
    *size = source->size;
    return LIO_OK;
}

static const lio_file_kind elsewhere = {
    .name = "remote",
    .alignment = 1,
    .stack_bytes = STACK_BYTES,
    .read = read_one,
    .scatter = scatter,
    .give_up = give_up,
    .size = source_size,
};

lio_file lio_file_remote(lio_remote *remote)
{
    return (lio_file){
        .kind = &elsewhere, .source = remote, .fd = -1, .keeps_state = remote->keeps_state};
}
