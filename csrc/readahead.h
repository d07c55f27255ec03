/* readahead: the leaves that a tree moving forwards will need next, read in growing batches.
 *
 *   leader     a second position, on the branch pages above the leaves
 *   batch n    leaves that the tree is using
 *   batch n+1  under way
 *
 * A tree that leaves the order in which they come (a search, a step back) starts it anew.
 *
 * For the rooms of csrc alone. The caller holds the lock of the tree's pages.
 */
#ifndef LIO_READAHEAD_H
#define LIO_READAHEAD_H

#include "tree.h"

/* cdef: skip */
/* Becomes the lender of `tree`, at most `pages_max` (not 0) leaves ahead; if it is already,
 * changes that bound. Does nothing where a tree has one page, pages are no multiple of what the
 * engine can read, or there is no memory. `past` reads large batches from now on (NULL: the
 * pages' own engine does); it must live until the lender is closed. */
void lio_readahead_open(lio_tree *tree, uint32_t pages_max, lio_engine *past);

/* How many bytes such engines have read for this lender, and how long it took. */
void lio_readahead_bypassed(const lio_tree *tree, uint64_t *bytes, uint64_t *duration_ns);

/* `tree` has given its leaf back (lio_tree_return_leaf), or ends. Without a lender: nothing. */
void lio_readahead_close(lio_tree *tree);
/* cdef: resume */

#endif
