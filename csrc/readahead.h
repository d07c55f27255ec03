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
/* An engine that goes past the page cache, for large batches; and what such engines have read. */
typedef struct {
    lio_engine *engine; /* NULL: none */
    uint64_t bytes, duration_ns;
} lio_bypass;

/* It has read a batch of so many bytes. One is under way at a time. */
void lio_bypass_note(lio_bypass *past, lio_ticket *ticket, uint64_t bytes);

/* Becomes the lender of `tree`, at most `pages_max` (not 0) leaves ahead; if it is already,
 * changes that bound. Does nothing where a tree has one page, pages are no multiple of what the
 * engine can read, or there is no memory. `past` reads large batches from now on (NULL: the
 * pages' own engine does); it must live until the lender is closed. */
void lio_readahead_open(lio_tree *tree, uint32_t pages_max, lio_bypass *past);

/* `tree` has given its leaf back (lio_tree_return_leaf), or ends. Without a lender: nothing. */
void lio_readahead_close(lio_tree *tree);
/* cdef: resume */

#endif
