#include "exchange_part.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "contract.h"
#include "thread.h"

/* --- calls of MPI ------------------------------------------------------------------------- */

/* The same functions, as libraries with either kind of handles declare them. */
typedef int isend_int(const void *, int, int, int, int, int, void *);
typedef int isend_ptr(const void *, int, void *, int, int, void *, void *);
typedef int improbe_int(int, int, int, int *, void *, void *);
typedef int improbe_ptr(int, int, void *, int *, void *, void *);
typedef int imrecv_int(void *, int, int, void *, void *);
typedef int imrecv_ptr(void *, int, void *, void *, void *);
typedef int testsome_any(int, void *, int *, int *, void *);
typedef int get_count_int(const void *, int, int *);
typedef int get_count_ptr(const void *, void *, int *);

static bool has_ints(const lio_mpi *mpi)
{
    return mpi->handle_bytes == sizeof(int);
}

static lio_handle handle_of(uint64_t bits)
{
    return (lio_handle){.bits = bits};
}

bool lio_mpi_is_known(const lio_mpi *mpi)
{
    return (has_ints(mpi) || mpi->handle_bytes == sizeof(void *)) &&
           mpi->status_bytes <= LIO_STATUS_BYTES_MAX &&
           mpi->source_offset + sizeof(int) <= mpi->status_bytes;
}

int lio_mpi_isend(const lio_mpi *mpi, const void *from, int bytes, int rank, int tag, void *handle)
{
    lio_handle byte = handle_of(mpi->byte), comm = handle_of(mpi->communicator);
    if (has_ints(mpi))
        return ((isend_int *)(uintptr_t)mpi->isend)(from, bytes, byte.number, rank, tag,
                                                    comm.number, handle);
    return ((isend_ptr *)(uintptr_t)mpi->isend)(from, bytes, byte.pointer, rank, tag, comm.pointer,
                                                handle);
}

static int get_count(const lio_mpi *mpi, const void *status, int *bytes)
{
    lio_handle byte = handle_of(mpi->byte);
    if (has_ints(mpi))
        return ((get_count_int *)(uintptr_t)mpi->get_count)(status, byte.number, bytes);
    return ((get_count_ptr *)(uintptr_t)mpi->get_count)(status, byte.pointer, bytes);
}

int lio_mpi_improbe(const lio_mpi *mpi, int tag, bool *found, int *source, int *bytes,
                    lio_handle *message)
{
    union {
        uint64_t aligned;
        uint8_t bytes[LIO_STATUS_BYTES_MAX];
    } status = {0};
    lio_handle comm = handle_of(mpi->communicator);
    int flag = 0, code;
    message->bits = 0;
    if (has_ints(mpi))
        code = ((improbe_int *)(uintptr_t)mpi->improbe)(mpi->any_source, tag, comm.number, &flag,
                                                        message, &status);
    else
        code = ((improbe_ptr *)(uintptr_t)mpi->improbe)(mpi->any_source, tag, comm.pointer, &flag,
                                                        message, &status);
    *found = code == 0 && flag != 0;
    if (!*found)
        return code;
    memcpy(source, status.bytes + mpi->source_offset, sizeof *source);
    return get_count(mpi, &status, bytes);
}

int lio_mpi_imrecv(const lio_mpi *mpi, void *into, int bytes, lio_handle *message, void *handle)
{
    lio_handle byte = handle_of(mpi->byte);
    if (has_ints(mpi))
        return ((imrecv_int *)(uintptr_t)mpi->imrecv)(into, bytes, byte.number, message, handle);
    return ((imrecv_ptr *)(uintptr_t)mpi->imrecv)(into, bytes, byte.pointer, message, handle);
}

int lio_mpi_mrecv(const lio_mpi *mpi, void *into, int bytes, lio_handle *message)
{
    union {
        uint64_t aligned;
        uint8_t bytes[LIO_STATUS_BYTES_MAX];
    } status = {0};
    lio_handle byte = handle_of(mpi->byte);
    if (has_ints(mpi)) /* MPI_Mrecv has a status where MPI_Imrecv has a request */
        return ((imrecv_int *)(uintptr_t)mpi->mrecv)(into, bytes, byte.number, message, &status);
    return ((imrecv_ptr *)(uintptr_t)mpi->mrecv)(into, bytes, byte.pointer, message, &status);
}

int lio_mpi_testsome(const lio_mpi *mpi, int count, void *requests, int *ended, int *indices,
                     void *statuses)
{
    int code = ((testsome_any *)(uintptr_t)mpi->testsome)(count, requests, ended, indices,
                                                          statuses);
    if (code == 0 && *ended == mpi->undefined)
        *ended = 0;
    return code;
}

/* --- a try ------------------------------------------------------------------------------- */

enum { TRIES = 1000, TRY_NS = 1000000 };

/* Returns a reason why a try failed; NULL: it did not. */
static const char *try_message(const lio_mpi *mpi, bool waits)
{
    const uint64_t sent[2] = {0x6c6d64622d696f21, 42};
    uint64_t taken[2] = {0, 0};
    lio_handle requests[2] = {0}, message = {0}; /* one after the other, whatever their size */
    uint64_t statuses[2 * LIO_STATUS_BYTES_MAX / sizeof(uint64_t)];
    int left = waits ? 1 : 2, source = -1, bytes = 0, ended, indices[2];
    bool found = false;
    uint8_t *second = (uint8_t *)requests + mpi->handle_bytes;
    if (lio_mpi_isend(mpi, sent, sizeof sent, 0, 1, requests) != 0)
        return "MPI_Isend failed";
    for (int i = 0; i < TRIES && !found; i++) {
        if (i > 1)
            (void)nanosleep(&(struct timespec){0, TRY_NS}, NULL);
        if (lio_mpi_improbe(mpi, 1, &found, &source, &bytes, &message) != 0)
            return "MPI_Improbe failed";
    }
    if (!found || source != 0 || bytes != (int)sizeof sent)
        return "MPI_Improbe finds another message than was sent";
    if ((waits ? lio_mpi_mrecv(mpi, taken, bytes, &message)
               : lio_mpi_imrecv(mpi, taken, bytes, &message, second)) != 0)
        return "a message that was found cannot be received";
    for (int i = 0; i < TRIES && left > 0; i++) {
        if (i > 1)
            (void)nanosleep(&(struct timespec){0, TRY_NS}, NULL);
        if (lio_mpi_testsome(mpi, waits ? 1 : 2, requests, &ended, indices, statuses) != 0)
            return "MPI_Testsome failed";
        left -= ended;
    }
    return left != 0 || memcmp(sent, taken, sizeof sent) != 0 ? "a message does not arrive" : NULL;
}

int lio_exchange_probe(const lio_mpi *mpi, lio_error *error)
{
    if (!lio_mpi_is_known(mpi))
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, mpi->handle_bytes,
                        "MPI's handles are of a kind that is not known");
    for (int waits = 0; waits < 2; waits++) {
        const char *reason = try_message(mpi, waits != 0);
        if (reason != NULL)
            return lio_fail(error, LIO_ERR_IO, 0, 0, 0, "%s", reason);
    }
    return LIO_OK;
}

/* --- callers and the thread ---------------------------------------------------------------- */

void lio_exchange_post(lio_exchange *x, request *one,
                       void (*carry_out)(lio_exchange *x, void *subject), void *subject)
{
    *one = (request){.carry_out = carry_out, .subject = subject};
    (void)pthread_mutex_lock(&x->lock);
    if (x->requests == NULL)
        x->requests = one;
    else
        x->last_request->next = one;
    x->last_request = one;
    (void)pthread_cond_signal(&x->work);
    (void)pthread_mutex_unlock(&x->lock);
}

bool lio_exchange_is_carrier(lio_exchange *x)
{
    return !atomic_load(&x->has_thread) || pthread_equal(x->carrier, pthread_self()) != 0;
}

int lio_exchange_wait_none(lio_exchange *x, _Atomic size_t *counter, int timeout_ms,
                           lio_error *error)
{
    bool in_time = timeout_ms > 0;
    if (in_time && atomic_load(counter) > 0) {
        uint64_t deadline = lio_moment_after(timeout_ms);
        (void)pthread_mutex_lock(&x->lock);
        while (in_time && atomic_load(counter) > 0 && atomic_load(&x->has_thread) &&
               !(error != NULL && atomic_load(&x->has_failed)))
            in_time = lio_wait_until(&x->moved, &x->lock, deadline);
        (void)pthread_mutex_unlock(&x->lock);
    }
    if (atomic_load(counter) == 0)
        return LIO_OK;
    if (error == NULL || !atomic_load(&x->has_failed))
        return LIO_PENDING;
    *error = x->error;
    return error->code;
}

void lio_exchange_fail(lio_exchange *x, int code, const char *what, int reason)
{
    if (!atomic_load(&x->has_failed)) {
        (void)lio_fail(&x->error, code, 0, 0, 0, "%s (%d)", what, reason);
        atomic_store(&x->has_failed, true);
    }
    x->has_news = true;
}

void lio_exchange_note(peer *p, uint8_t fact)
{
    (void)atomic_fetch_or(&p->known, fact);
}

/* --- operations under way ---------------------------------------------------------------- */

bool lio_exchange_make_place(lio_exchange *x)
{
    size_t count = (size_t)x->operations, wanted = count == 0 ? 64 : 2 * count;
    size_t handle_bytes = x->mpi.handle_bytes, status_bytes = x->mpi.status_bytes;
    if (x->operations < x->operations_max)
        return true;
    operation *operations = malloc(
        wanted * (sizeof *operations + status_bytes + handle_bytes + sizeof *x->index));
    if (operations == NULL) {
        lio_exchange_fail(x, LIO_ERR_NOMEM, "no memory for messages", (int)wanted);
        return false;
    }
    uint8_t *statuses = (uint8_t *)(operations + wanted);
    uint8_t *handles = statuses + wanted * status_bytes;
    if (count > 0) {
        memcpy(operations, x->operation, count * sizeof *operations);
        memcpy(handles, x->handle, count * handle_bytes);
    }
    free(x->operation);
    x->operation = operations;
    x->status = statuses;
    x->handle = handles;
    x->index = (int *)(void *)(handles + wanted * handle_bytes);
    x->operations_max = (int)wanted;
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
