/* window: hands slots of shared memory from a root that fills them to the ranks that use them.
 *
 * A root fills slots, in turn, with blocks; the ranks of its team use each block and release
 * it. Block b lies in slot b mod `slots`. All they share is the control area drawn here,
 * which may lie in memory shared between processes (every word is a lock-free atomic, and
 * waits are futexes that are not private) or in memory of one process.
 *
 *   header            abort: state, rank, message; the ranks that left; how closing ends
 *   ranks x 64 bytes  released: blocks [0, released) are needed no more; state
 *   roots x 128 bytes published: blocks [0, published) are filled; two bells
 *
 * Order: a root fills a slot, then publishes (release); a rank sees the block published
 * (acquire), then reads. A rank stops reading, then releases (release); a root sees it
 * (acquire), then fills the slot anew. A bell is a counter that a waiter sleeps on: whoever
 * changes what is waited for changes it first, then rings.
 *
 * The memory is the caller's: formatted once by one of them before any other uses it, zero
 * or not. Ranks and roots are numbered from 0 within the node.
 */
#ifndef LIO_WINDOW_H
#define LIO_WINDOW_H

#include "status.h"

enum { LIO_WINDOW_MESSAGE_MAX = 448 }; /* bytes of an abort message, the final 0 included */

/* How far a rank has left the window. */
enum lio_window_state {
    LIO_WINDOW_USES = 0,  /* it will ask for further blocks                    */
    LIO_WINDOW_LEFT = 1,  /* it asks for no more and uses none; roots go on    */
    LIO_WINDOW_CLOSES = 2 /* the same, and it waits to free the window         */
};

/* How closing ends. */
enum lio_window_ending {
    LIO_WINDOW_OPEN = 0,
    LIO_WINDOW_FREE = 1, /* all ranks close: the memory may be freed, together        */
    LIO_WINDOW_KEEP = 2  /* some rank will not: nobody frees, the memory stays mapped */
};

/* Bytes of a control area. */
uint64_t lio_window_bytes(uint32_t ranks, uint32_t roots);

/* Makes `control` (64-byte aligned, lio_window_bytes() bytes) a control area. */
int lio_window_format(void *control, uint32_t ranks, uint32_t roots, lio_error *error);

/* Checks that `control` was formatted for just so many ranks and roots. */
int lio_window_check(const void *control, uint32_t ranks, uint32_t roots, lio_error *error);

/* Root: block `published` - 1 and all before it are filled. */
void lio_window_publish(void *control, uint32_t root, uint64_t published);

/* Root: waits until the `count` ranks from `first` have released `released` blocks or left.
 * LIO_PENDING: time is up, or somebody aborted. LIO_NOTFOUND: all of them have left. */
int lio_window_wait_released(void *control, uint32_t root, uint32_t first, uint32_t count,
                             uint64_t released, int timeout_ms);

/* The same without waiting. */
int lio_window_is_released(void *control, uint32_t root, uint32_t first, uint32_t count,
                           uint64_t released);

/* Rank: waits until more than `block` blocks are published. LIO_PENDING as above. */
int lio_window_wait_published(void *control, uint32_t root, uint64_t block, int timeout_ms);

/* Rank: needs blocks [0, released) no more. Never goes back: a smaller value changes nothing. */
void lio_window_release(void *control, uint32_t root, uint32_t rank, uint64_t released);

/* Rank: wants no more. `state`: LIO_WINDOW_LEFT or LIO_WINDOW_CLOSES; never goes back. When
 * the last rank closes, the end becomes LIO_WINDOW_FREE. */
void lio_window_leave(void *control, uint32_t root, uint32_t rank, int state);

/* Settles that nobody frees, unless it is settled otherwise. Returns what is settled. */
int lio_window_retain(void *control);

/* Waits until the end is settled or, when `left` is not 0, until all ranks have at least left.
 * LIO_PENDING as above. */
int lio_window_wait_end(void *control, int left, int timeout_ms);

/* enum lio_window_ending. */
int lio_window_end(const void *control);

/* Ends every wait. The first call wins; its rank (as the caller counts them, of this node or
 * another) and message (cut when too long) stay. */
void lio_window_abort(void *control, uint32_t rank, const char *message);

/* 1 when somebody aborted; then `rank` and `message` (LIO_WINDOW_MESSAGE_MAX bytes), when not
 * NULL, are filled. */
int lio_window_aborted(const void *control, uint32_t *rank, char *message);

/* Backs [address, address + size) with memory now, so that touching it later cannot fail.
 * Widens to whole pages. LIO_ERR_IO with ENOSPC when there is not enough;
 * LIO_ERR_UNSUPPORTED on kernels before 5.14. */
int lio_window_populate(void *address, uint64_t size, lio_error *error);

/* Maps [address, address + size), whole pages of shared memory, a second time: whoever made the
 * first mapping may then unmap it, and what is looked at stays. `*mapping` is the caller's, to be
 * given to lio_window_unmap(). LIO_ERR_UNSUPPORTED where that cannot be. */
int lio_window_map(void *address, uint64_t size, void **mapping, lio_error *error);

/* Unmaps it all, whatever became of its pages. */
void lio_window_unmap(void *mapping, uint64_t size);

/* Replaces whole pages of such a mapping by private memory with the same bytes: who still looks
 * at them keeps them, and the shared pages are free to change. */
int lio_window_detach(void *address, uint64_t size, lio_error *error);

/* Gives back whole pages of such a mapping that nobody looks at; the addresses stay taken. */
void lio_window_vacate(void *address, uint64_t size);

#endif
