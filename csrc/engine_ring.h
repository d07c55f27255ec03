/* engine_ring: reads in flight in an io_uring, without threads of their own. Private to the
 * engine.
 *
 * One thread, the ring's, pushes, waits and pops; any thread may nudge it. Pushing and nudging
 * share the submission queue: the caller holds one lock for both.
 *
 * Needs Linux 5.6. Speaks to the kernel itself: three system calls and two mapped queues.
 */
#ifndef LIO_ENGINE_RING_H
#define LIO_ENGINE_RING_H

#include <stdbool.h>

#include "engine.h"

typedef struct lio_ring lio_ring;

/* A mark that its owner sets on a read, and finds when the read has ended. */
typedef struct {
    lio_ticket *ticket;
    uint64_t begun_ns;
    uint32_t depth; /* reads in flight with it; 0: nobody asked */
} lio_ring_mark;

/* A read that has ended. */
typedef struct {
    lio_ring_mark mark;
    uint64_t offset, length; /* as they were pushed */
    uint64_t received, calls;
    lio_error error; /* code LIO_OK: all of it */
} lio_ring_done;

/* `alignment`: as in lio_pread_all. LIO_ERR_UNSUPPORTED with the reason where the kernel, a
 * sandbox or a limit forbids it. */
int lio_ring_open(int fd, uint32_t depth, uint32_t alignment, lio_ring **out, lio_error *error);

/* Nothing may be in flight; in a child, where nothing of the parent's is, at any time. */
void lio_ring_close(lio_ring *ring);

/* Reads that can still be pushed. */
uint32_t lio_ring_room(const lio_ring *ring);
bool lio_ring_is_empty(const lio_ring *ring);

/* Queues a read (copied); there must be room. */
void lio_ring_push(lio_ring *ring, const lio_read *read, lio_ring_mark mark);

/* Ends a lio_ring_wait that is under way, or the next one. */
void lio_ring_nudge(lio_ring *ring);

/* Hands what was pushed to the kernel and waits until a read has ended, or for a nudge. Without
 * the lock. */
void lio_ring_wait(lio_ring *ring);

/* The next read that has ended; false when there is none now. Short ones are pushed again, so
 * with the lock. */
bool lio_ring_pop(lio_ring *ring, lio_ring_done *out);

#endif
