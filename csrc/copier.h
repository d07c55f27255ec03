/* copier: copies rows from memory to their places in a slot, by a thread of its own.
 *
 * So whoever plans blocks goes on meanwhile, and gives Python's lock away for no copy.
 */
#ifndef LIO_COPIER_H
#define LIO_COPIER_H

#include <stddef.h>
#include <stdint.h>

#include "rows.h"
#include "status.h"

typedef struct lio_copier lio_copier;
typedef struct lio_copying lio_copying; /* rows that are copied, in their turn */

/* Starts the thread. Where the system has none, rows are copied when they are handed over. */
int lio_copier_open(lio_copier **out, lio_error *error);

/* Copies `rows` (numbers of rows whose `records` they are) to data + offsets[row], soon. The memory
 * stays where it is until lio_copying_wait() says LIO_OK, or after lio_copying_close(); the arrays
 * are the caller's again at once. LIO_ERR_ARGUMENT: a record is not loaded. */
int lio_copier_start(lio_copier *copier, const lio_loaded *loaded, const int64_t *rows,
                     size_t count, const int64_t *records, const uint64_t *lengths,
                     const uint64_t *offsets, uint64_t data, lio_copying **out, lio_error *error);

/* LIO_OK: all rows are in their places, after `timeout_ms` at most. LIO_PENDING: not yet. */
int lio_copying_wait(lio_copying *copying, int timeout_ms);

/* Drops it; if it has begun, waits for its end, which takes no longer than a copy. NULL is fine. */
void lio_copying_close(lio_copying *copying);

/* Ends the thread, after the copy that it makes: nothing is copied any more. Copies that wait are
 * never over; no more may be started. One thread at a time. */
void lio_copier_end(lio_copier *copier);

/* Ends the thread, and frees. All copies have been closed. */
void lio_copier_close(lio_copier *copier);

#endif
