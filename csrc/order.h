/* order: permutations that are computed where they are asked. Pure. lmdbio/planning/order.py says what for,
 * and after whom.
 */
#ifndef LIO_ORDER_H
#define LIO_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* Replaces each of `count` numbers below `below` by the one that a permutation of those below
 * `below` has in its place. That is a Feistel network on the numbers below `left` * `right`, which
 * is at least `below`, with a key for each round, walked until it comes back; `rounds` is even, and
 * the two sides are to be about as large. */
void lio_order_permute(uint64_t *numbers, size_t count, uint64_t below, uint64_t left,
                       uint64_t right, const uint64_t *keys, size_t rounds);

#endif
