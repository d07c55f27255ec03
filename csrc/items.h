/* items: the values of a database whose keys may have many, found on its leaves.
 *
 *   leaf node --- one value, in the node
 *             --- a few, on a page inside the node
 *             --- many, in a tree beside it, whose keys they are
 *
 * Pure. Source: LMDB's DUPSORT and DUPFIXED databases (MDB_SUBDATA, P_SUBP, P_LEAF2).
 */
#ifndef LIO_ITEMS_H
#define LIO_ITEMS_H

#include <stddef.h>

#include "extent.h"
#include "format.h"
#include "status.h"

typedef struct {
    size_t keys, items, trees; /* items: those on the leaves themselves */
} lio_item_counts;

/* How much `count` checked leaf pages hold. */
int lio_items_count(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                    uint32_t count, lio_item_counts *out, lio_error *error);

/* Where the items on the same leaves lie; of each key, how many it has; and which keys (counted on
 * these leaves) have theirs in a tree, and its database record. All in key order, each array with
 * the room that lio_items_count told. */
int lio_items_find(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                   uint32_t count, lio_extent *items, uint64_t *each, uint64_t *trees,
                   lio_db *records, lio_error *error);

/* Where the items on checked leaves of such a tree lie. `capacity` is that of `out`; `made` their
 * number. LIO_ERR_ARGUMENT: too little room. */
int lio_items_of_tree(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                      uint32_t count, lio_extent *out, size_t capacity, size_t *made,
                      lio_error *error);

#endif
