#include "exchange_mpi.h"

#include <string.h>
#include <time.h>

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

int lio_mpi_isend(const lio_mpi *mpi, const void *from, int bytes, int rank, int tag,
                  void *request)
{
    lio_handle byte = handle_of(mpi->byte), comm = handle_of(mpi->communicator);
    if (has_ints(mpi))
        return ((isend_int *)(uintptr_t)mpi->isend)(from, bytes, byte.number, rank, tag,
                                                    comm.number, request);
    return ((isend_ptr *)(uintptr_t)mpi->isend)(from, bytes, byte.pointer, rank, tag, comm.pointer,
                                                request);
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

int lio_mpi_imrecv(const lio_mpi *mpi, void *into, int bytes, lio_handle *message, void *request)
{
    lio_handle byte = handle_of(mpi->byte);
    if (has_ints(mpi))
        return ((imrecv_int *)(uintptr_t)mpi->imrecv)(into, bytes, byte.number, message, request);
    return ((imrecv_ptr *)(uintptr_t)mpi->imrecv)(into, bytes, byte.pointer, message, request);
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
