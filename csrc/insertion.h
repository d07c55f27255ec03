/* insertion: keys as they were put and deleted, brought into the order of their database.
 *
 *   put b, put c, put a, delete c, put b  ->  a (the third), b (the first)
 *
 * Pure. Keys compare as LMDB's do.
 */
#ifndef LIO_INSERTION_H
#define LIO_INSERTION_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

/* Reduces `count` events to those that last, in key order: `kept` (room for `count`) gets the event in which
 * each of the `*kept_count` keys was put since it was last deleted. Event i is of the key that ends
 * at `ends[i]` of `keys`, and begins where the one before ends; `gone[i]` is 1 where it was deleted,
 * else 0. `*again`: the first event, in key order, that puts a key that is there; UINT64_MAX: none
 * does. LIO_ERR_ARGUMENT: an end is before its beginning, or past `keys_size`. */
int lio_insertion_settle(uint32_t db_flags, const uint8_t *keys, size_t keys_size,
                         const uint64_t *ends, const uint8_t *gone, size_t count, uint64_t *kept,
                         size_t *kept_count, uint64_t *again, lio_error *error);

#endif
