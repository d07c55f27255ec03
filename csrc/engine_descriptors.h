/* engine_descriptors: the descriptors of many files, of which a few are open at a time.
 *
 *   take -> [open, used now] -> give -> [open, used latest] ... [open, used longest ago] -> closed
 *
 * A thread that needs a file takes its descriptor, which stays open until it is given back. Where as
 * many are open as may be, the one that was used longest ago is closed for another; where all are
 * in use, the thread waits for one.
 *
 * A file is opened by its name again and again. Another file of that name is refused.
 *
 * A fork waits until nobody is taking or giving, so a child finds all as it was, and nobody who has
 * a descriptor.
 *
 * Private to the engine.
 */
#ifndef LIO_ENGINE_DESCRIPTORS_H
#define LIO_ENGINE_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>

#include "status.h"

typedef struct lio_descriptors lio_descriptors;

typedef struct {
    uint64_t device, inode;
} lio_file_id;

/* `names`: one after the other, each with its NUL; copied, as `ids` are. At most `open_max` (at least 1)
 * are open. The first one is opened at once, and stays so. */
int lio_descriptors_open(const char *names, const lio_file_id *ids, size_t count,
                         uint32_t open_max, lio_descriptors **out, lio_error *error);

/* Nobody has a descriptor. NULL is fine. */
void lio_descriptors_close(lio_descriptors *files);

/* The descriptor of file `number`, until it is given back. LIO_ERR_IO: it cannot be opened;
 * LIO_ERR_CHANGED: another file has taken its place. */
int lio_descriptors_take(lio_descriptors *files, size_t number, int *fd, lio_error *error);

/* The same, if the thread need not wait for another one; -1: it would have to, or the file cannot be opened,
 * or it is closed and not `may_open`. */
int lio_descriptors_try_take(lio_descriptors *files, size_t number, bool may_open);

void lio_descriptors_give(lio_descriptors *files, size_t number);

/* Whether the file of this name is still the one, and has `size` bytes. It need not be open. */
bool lio_descriptors_has(const lio_descriptors *files, size_t number, uint64_t size);

/* Gives the kernel advice (posix_fadvise) about all of each file that is opened from now on. */
void lio_descriptors_advise(lio_descriptors *files, int advice);

/* The descriptor of the first file. */
int lio_descriptors_first(const lio_descriptors *files);

/* Nobody takes or gives in between. */
void lio_descriptors_lock(lio_descriptors *files);
void lio_descriptors_unlock(lio_descriptors *files);

#endif
