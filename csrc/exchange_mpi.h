/* exchange_mpi: calls of MPI by address, whatever its handles are: an int (MPICH) or a pointer
 * (Open MPI, the standard's binary interface). Each returns MPI's own code, 0 for success.
 * Private to the exchange. */
#ifndef LIO_EXCHANGE_MPI_H
#define LIO_EXCHANGE_MPI_H

#include <stdbool.h>

#include "exchange.h"

/* One handle, with room for either kind. */
typedef union {
    int number;
    void *pointer;
    uint64_t bits;
} lio_handle;

/* Whether its types can be dealt with. */
bool lio_mpi_is_known(const lio_mpi *mpi);

int lio_mpi_isend(const lio_mpi *mpi, const void *from, int bytes, int rank, int tag,
                  void *request);

/* Looks for a message from any rank, and takes it out of the queue. */
int lio_mpi_improbe(const lio_mpi *mpi, int tag, bool *found, int *source, int *bytes,
                    lio_handle *message);

int lio_mpi_imrecv(const lio_mpi *mpi, void *into, int bytes, lio_handle *message, void *request);

int lio_mpi_mrecv(const lio_mpi *mpi, void *into, int bytes, lio_handle *message);

/* `requests` are `count` handles of mpi->handle_bytes each; `statuses` has room for as many. */
int lio_mpi_testsome(const lio_mpi *mpi, int count, void *requests, int *ended, int *indices,
                     void *statuses);

#endif
