/* duplicates: the values of one key of a DUPSORT database, which are a tree of their own.
 *
 *   few:   a sub-page inside the key's node
 *   many:  a tree beside it; the node holds its database record
 *
 * They are ordered, and searched, as the keys of a tree are.
 *
 * For the rooms of csrc alone. The caller holds the lock of the tree's pages.
 */
#ifndef LIO_DUPLICATES_H
#define LIO_DUPLICATES_H

#include "tree.h"

/* cdef: skip */
/* Opens those of `node` (with DUPDATA), which lies in the leaf of `main`, in `sub`. A sub-page
 * leaves `sub` placed on its first value, a tree of its own leaves it unplaced, as in LMDB. */
int lio_duplicates_open(lio_tree *sub, const lio_tree *main, const lio_node *node,
                        lio_error *error);

/* From where `sub` is placed to the next (1) or previous (-1) value. LIO_NOTFOUND: the key has no
 * more. */
int lio_duplicates_step(lio_tree *sub, int32_t direction, lio_error *error);

/* The values of fixed size in the whole page under `sub`, whose last one becomes current. */
int lio_duplicates_page(lio_tree *sub, const uint8_t **values, uint64_t *size, lio_error *error);

/* Orders two values of a database with `db_flags`, as lio_key_compare does keys. */
int lio_duplicates_compare(uint32_t db_flags, const uint8_t *a, size_t a_size, const uint8_t *b,
                           size_t b_size);
/* cdef: resume */

#endif
