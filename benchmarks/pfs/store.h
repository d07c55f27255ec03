/* store: answers reads when the model says, from threads of its own.
 *
 * A read is handed over in the order in which it came, which is the order of the servers'
 * queues, so one thread per mount hands over. A thread of the store then fetches the bytes and
 * sleeps until the read is due: an absolute time of the model, so that a late wake delays that
 * one answer and nothing behind it. Waking and copying to the kernel take time as well: an
 * answer begins so much earlier as answers of its size took lately, to end when it is due.
 */
#ifndef PFS_STORE_H
#define PFS_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "model.h"

typedef struct pfs_store pfs_store;

/* Called once per read, on a thread of the store or on the caller's. `bytes` end with the
 * call; `error` is 0 or an errno. */
typedef void pfs_answer(void *context, const char *bytes, size_t size, int error);

/* NULL without memory. */
pfs_store *pfs_store_open(const pfs_constants *constants);

/* Answers all that is under way at once and ends the threads. No read may follow. */
void pfs_store_stop(pfs_store *store);

/* After pfs_store_stop. */
void pfs_store_close(pfs_store *store);

/* For making layouts; the store guards and owns it. */
const pfs_model *pfs_store_model(const pfs_store *store);

/* Reads `length` bytes, above 0, at `offset` of a file, all of them below its end. `fd` and
 * `layout` must live until the answer. */
void pfs_store_read(pfs_store *store, uint32_t mount, int fd, pfs_layout *layout,
                    uint64_t offset, size_t length, pfs_answer *answer, void *context);

/* All counters at one moment, as JSON in one line; the caller frees. NULL without memory. */
char *pfs_store_counters(pfs_store *store);

#endif
