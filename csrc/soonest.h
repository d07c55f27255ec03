/* soonest: which records one root holds that holds, at any time, those that it uses again soonest. Pure.
 *
 *   use of a record, and when it is used next -> was it held?   what is used again latest makes room
 *
 * A record that is used again later than all that are held, and has no room, is not held at all; nor
 * is one that is not used again.
 *
 * Source: Belady, A Study of Replacement Algorithms for a Virtual-Storage Computer (1966).
 */
#ifndef LIO_SOONEST_H
#define LIO_SOONEST_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct lio_soonest lio_soonest;

/* `records` of the data set; `capacity` in the unit of their sizes. LIO_ERR_NOMEM. */
int lio_soonest_open(uint32_t records, uint64_t capacity, lio_soonest **out, lio_error *error);

/* How many records are held. */
uint32_t lio_soonest_held(const lio_soonest *soonest);

/* Uses `count` records one after the other. `next` is when each is used again: later uses have larger
 * numbers, INT64_MAX is never. `sizes` are theirs. `found`: it was held before this use; `kept`: it is
 * held after the last one. `dropped` are records that are not held any more, some perhaps twice and
 * some that were not held before; it has room for as many as are held, and `count` more. Returns how
 * many these are. */
size_t lio_soonest_use(lio_soonest *soonest, const int64_t *records, const int64_t *next,
                       const uint64_t *sizes, size_t count, uint8_t *found, uint8_t *kept,
                       int64_t *dropped);

/* NULL is fine. */
void lio_soonest_close(lio_soonest *soonest);

#endif
