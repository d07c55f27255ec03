/* tree: a position in one B+ tree: a stack of (page, index) from the root to a leaf.
 *
 * Moves have LMDB's semantics down to what a failed move leaves behind: a tree is placed or
 * not, and may stand at the end (EOF) or, after a search, behind the last node of its leaf.
 *
 * The depth of a stack is the one that the database record claims (at most LIO_DEPTH_MAX), and
 * no run of moves in one direction is longer than the record's number of entries, so a damaged
 * tree can neither trap nor crash a reader.
 *
 * For the rooms of csrc alone. The caller holds the lock of the tree's pages.
 */
#ifndef LIO_TREE_H
#define LIO_TREE_H

#include "format.h"
#include "pages.h"

/* cdef: skip */
#include <stdbool.h>

typedef struct lio_tree lio_tree;
typedef struct lio_lender lio_lender;

/* The seam to a room that has leaves before the cache is asked. */
struct lio_lender {
    /* `*page` stays NULL when leaf `pgno`, which `tree` is about to enter (its branch levels
     * are in place), is not to be had here. The leaf that is lent is checked, and stays until the tree
     * enters another leaf. */
    int (*find)(lio_lender *lender, const lio_tree *tree, uint64_t pgno, const uint8_t **page,
                lio_error *error);
};

typedef struct {
    const uint8_t *page;
    lio_pin *pin; /* NULL: the page is lent, or lies inside a node */
    uint64_t pgno;
    uint32_t index, count;
} lio_level;

struct lio_tree {
    lio_pages *pages;   /* borrowed */
    lio_lender *lender; /* NULL: all pages come from the cache */
    lio_layout layout;  /* page_size is the sub-page's own for duplicates inside a node */
    lio_db db;
    bool placed, at_end;
    uint32_t height; /* levels in use; the last is the leaf */
    uint32_t spared; /* levels at the bottom that moves do not enter: 0, or 1 for the leaves */
    int32_t direction;
    uint64_t run; /* moves in this direction, to notice trees that repeat themselves */
    lio_level stack[LIO_DEPTH_MAX];
};

enum lio_edge { LIO_EDGE_FIRST, LIO_EDGE_LAST };

/* One level of a path from the root to a node of a leaf. */
typedef struct {
    uint64_t pgno;
    uint32_t index;
} lio_step;

/* Leaves every page; the tree is not placed then. */
void lio_tree_clear(lio_tree *tree);

/* The same position once more, without the lender. `to` stands on no page. */
void lio_tree_copy(lio_tree *to, const lio_tree *from);

/* Has a lent leaf from the cache instead; where that fails, the tree is cleared. False: there
 * was none. */
bool lio_tree_return_leaf(lio_tree *tree);

/* Whether a branch page may point at page `pgno`: LIO_ERR_CORRUPT. */
int lio_tree_check_pgno(const lio_tree *tree, uint64_t pgno, lio_error *error);

/* Moves. LIO_NOTFOUND: no such place. All but lio_tree_edge and lio_tree_set need a tree that
 * is placed. */
int lio_tree_edge(lio_tree *tree, enum lio_edge edge, lio_error *error);
int lio_tree_next(lio_tree *tree, lio_error *error);
int lio_tree_prev(lio_tree *tree, lio_error *error);

/* To the leaf after (1) or before (-1) this one. LIO_NOTFOUND leaves everything as it was, an
 * error too, but that a tree on a lender's leaf is cleared. */
int lio_tree_sibling(lio_tree *tree, int32_t direction, lio_error *error);

/* To `key` (`exact`), or to the first key not below it. LIO_ERR_ARGUMENT: an empty key. */
int lio_tree_set(lio_tree *tree, const uint8_t *key, size_t key_size, bool exact,
                 lio_error *error);

/* To the end of a path of `count` steps, which was found in a tree with this root. LIO_ERR_CORRUPT:
 * it leads nowhere. */
int lio_tree_go(lio_tree *tree, const lio_step *steps, uint32_t count, lio_error *error);

/* How many levels moves go down. */
static inline uint32_t lio_tree_levels(const lio_tree *tree)
{
    return tree->db.depth - tree->spared;
}

/* The lowest page, a leaf unless these are spared, of a tree that stands on pages. */
static inline lio_level *lio_tree_leaf(lio_tree *tree)
{
    return &tree->stack[tree->height - 1];
}

/* Behind the last node of its leaf. */
static inline bool lio_tree_is_behind(lio_tree *tree)
{
    return lio_tree_leaf(tree)->index >= lio_tree_leaf(tree)->count;
}

/* On the last node of its leaf, or behind it. */
static inline bool lio_tree_is_last(lio_tree *tree)
{
    return lio_tree_leaf(tree)->index + 1 >= lio_tree_leaf(tree)->count;
}

/* The node of a page that an index stands on. */
static inline int lio_level_node(const lio_tree *tree, const lio_level *level, lio_node *out,
                                 lio_error *error)
{
    return lio_page_node(&tree->layout, level->page, level->pgno, level->index, out, error);
}

/* The node that the tree stands on. */
static inline int lio_tree_node(lio_tree *tree, lio_node *out, lio_error *error)
{
    return lio_level_node(tree, lio_tree_leaf(tree), out, error);
}

/* Stands nowhere from now on, but keeps its pages for the next move. */
static inline void lio_tree_unplace(lio_tree *tree)
{
    tree->placed = tree->at_end = false;
}
/* cdef: resume */

#endif
