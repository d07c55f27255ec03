/* order: the records of an epoch in an order that is computed where it is asked, in both directions.
 * Pure. lmdbio/planning/shuffle.py says what for, order.py after whom.
 */
#ifndef LIO_ORDER_H
#define LIO_ORDER_H

#include <stddef.h>
#include <stdint.h>

enum { LIO_ORDER_ROUNDS = 8 }; /* an even number; fewer than six are told from chance */

/* Chunks of `chunk` records (the last one may be shorter) are permuted, by the first keys; then the
 * records of each run of `window` chunks are shuffled among each other, by the second keys, unless
 * chunks keep their order inside. */
typedef struct {
    uint64_t count; /* records */
    uint64_t chunk, window;
    uint64_t chunk_keys[LIO_ORDER_ROUNDS], inner_keys[LIO_ORDER_ROUNDS];
    uint32_t keeps_inner;
    uint32_t keeps_chunks; /* chunks are not permuted: with keeps_inner, no record is */
} lio_shuffle;

/* Replaces each of `count` places, below shuffle->count, by the record there. */
void lio_shuffle_records(const lio_shuffle *shuffle, uint64_t *numbers, size_t count);

/* Replaces each of `count` records, below shuffle->count, by its place. */
void lio_shuffle_places(const lio_shuffle *shuffle, uint64_t *numbers, size_t count);

#endif
