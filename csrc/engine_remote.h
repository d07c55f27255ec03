/* engine_remote: a file that lies elsewhere, which a function reads that was handed in.
 *
 *   engine, engine ... -> lio_remote -> the function: Python's, for one
 *
 * Several engines may read by one remote. A read that nobody waits for any more, or that the end of the
 * process cuts short, is told to end by lio_remote_is_given_up, which the function asks while it waits.
 *
 * A remote lives as long as every engine that was opened with it.
 */
#ifndef LIO_ENGINE_REMOTE_H
#define LIO_ENGINE_REMOTE_H

#include <stdbool.h>

#include "status.h"

typedef struct lio_source lio_remote; /* what the file of its engines keeps open (engine_file.h) */
typedef struct lio_remote_call lio_remote_call; /* a read that is under way */

/* Fills `into` with `length` bytes from `offset` on, which the file has, and sets `*requests` to how
 * many it took. Blocks meanwhile; many threads call it at once. */
typedef int (*lio_remote_read)(void *handle, const lio_remote_call *call, uint64_t offset,
                               uint64_t length, uint8_t *into, uint64_t *requests,
                               lio_error *error);

/* `handle` is borrowed until the close. `keeps_state`: see lio_engine_keeps_state. */
int lio_remote_open(lio_remote_read read, void *handle, uint64_t size, bool keeps_state,
                    lio_remote **out, lio_error *error);

/* After all engines that read by it. NULL is fine. */
void lio_remote_close(lio_remote *remote);

/* In a child, before it has a second thread: the parent's reads are not its own. */
void lio_remote_forked(lio_remote *remote);

/* From now on nothing is read, and what is under way is given up. Waits up to `timeout_ms` for that;
 * false: some of it goes on. */
bool lio_remote_end(lio_remote *remote, int timeout_ms);

/* Whether nobody waits for a read any more. */
bool lio_remote_is_given_up(const lio_remote_call *call);

#endif
