#include "tree.h"

#include <inttypes.h>
#include <string.h>

/* --- levels --------------------------------------------------------------------------- */

static void level_drop(lio_level *l)
{
    if (l->pin != NULL)
        lio_pin_drop(l->pin);
    l->pin = NULL;
}

static void drop_to(lio_tree *t, uint32_t height)
{
    while (t->height > height)
        level_drop(&t->stack[--t->height]);
}

void lio_tree_clear(lio_tree *t)
{
    drop_to(t, 0);
    lio_tree_unplace(t);
    t->run = 0;
}

void lio_tree_copy(lio_tree *to, const lio_tree *from)
{
    *to = *from;
    to->lender = NULL;
    for (uint32_t i = 0; i < to->height; i++)
        if (to->stack[i].pin != NULL)
            lio_pin_add(to->stack[i].pin);
}

int lio_tree_check_pgno(const lio_tree *t, uint64_t pgno, lio_error *error)
{
    if (pgno >= 2 && pgno < t->layout.page_limit)
        return LIO_OK;
    return lio_fail(error, LIO_ERR_CORRUPT, 0, t->layout.page_limit, pgno,
                    "a branch page points at page %" PRIu64 " of %" PRIu64 " in use", pgno,
                    t->layout.page_limit);
}

bool lio_tree_return_leaf(lio_tree *t)
{
    lio_level *l;
    if (t->height == 0 || t->height != t->db.depth || lio_tree_leaf(t)->pin != NULL)
        return false;
    l = lio_tree_leaf(t);
    if (lio_pages_pin(t->pages, l->pgno, LIO_P_LEAF, &l->pin, NULL) == LIO_OK)
        l->page = lio_pin_page(l->pin);
    else
        lio_tree_clear(t);
    return true;
}

/* Makes page `pgno` the level below the present ones. */
static int push(lio_tree *t, uint64_t pgno, lio_error *error)
{
    uint32_t depth = t->height;
    int type = depth + 1 < t->db.depth ? LIO_P_BRANCH : LIO_P_LEAF, code;
    lio_level l = {NULL, NULL, pgno, 0, 0};
    if (depth >= lio_tree_levels(t) || depth >= LIO_DEPTH_MAX)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, t->db.depth, depth,
                        "a tree is deeper than its database record says");
    code = lio_tree_check_pgno(t, pgno, error);
    if (code == LIO_OK && type == LIO_P_LEAF && t->lender != NULL)
        code = t->lender->find(t->lender, t, pgno, &l.page, error);
    if (code != LIO_OK)
        return code;
    if (l.page == NULL) {
        code = lio_pages_pin(t->pages, pgno, type, &l.pin, error);
        if (code != LIO_OK)
            return code;
        l.page = lio_pin_page(l.pin);
    }
    l.count = lio_page_count(&t->layout, l.page);
    if (l.count == 0) {
        level_drop(&l);
        return lio_fail(error, LIO_ERR_CORRUPT, pgno * t->layout.page_size, 1, 0,
                        "page %" PRIu64 " of a tree holds nothing", pgno);
    }
    t->stack[depth] = l;
    t->height++;
    return LIO_OK;
}

/* From the root to a leaf: towards `key` or, when that is NULL, towards `edge`. The index in
 * the leaf is left to the caller (0). */
static int descend(lio_tree *t, enum lio_edge edge, const uint8_t *key, size_t key_size,
                   lio_error *error)
{
    lio_node node;
    int code, exact;
    lio_tree_clear(t);
    if (t->db.root == UINT64_MAX || t->db.depth == 0)
        return LIO_NOTFOUND;
    code = push(t, t->db.root, error);
    while (code == LIO_OK && t->height < lio_tree_levels(t)) {
        lio_level *l = lio_tree_leaf(t);
        l->index = edge == LIO_EDGE_LAST ? l->count - 1 : 0;
        if (key != NULL) {
            code = lio_page_search(&t->layout, l->page, l->pgno, t->db.flags, key, key_size,
                                   &l->index, &exact, error);
        }
        if (code == LIO_OK)
            code = lio_level_node(t, l, &node, error);
        if (code == LIO_OK)
            code = push(t, node.child, error);
    }
    if (code != LIO_OK) {
        lio_tree_clear(t);
        return code;
    }
    t->placed = true;
    return LIO_OK;
}

/* --- steps ---------------------------------------------------------------------------- */

/* A tree that hands out more than it holds repeats itself. */
static int count_run(lio_tree *t, int32_t direction, lio_error *error)
{
    if (t->direction != direction) {
        t->direction = direction;
        t->run = 0;
    }
    if (t->run++ > t->db.entries) /* the one too many finds the end */
        return lio_fail(error, LIO_ERR_CORRUPT, 0, t->db.entries, t->run,
                        "a tree holds more than the %" PRIu64 " entries of its database record",
                        t->db.entries);
    return LIO_OK;
}

/* From the node that level `height - 1` stands on down to a leaf. */
static int down(lio_tree *t, int32_t direction, lio_error *error)
{
    lio_node node;
    int code;
    do {
        code = lio_tree_node(t, &node, error);
        if (code == LIO_OK)
            code = push(t, node.child, error);
        if (code != LIO_OK)
            return code;
        if (direction < 0)
            lio_tree_leaf(t)->index = lio_tree_leaf(t)->count - 1;
    } while (t->height < lio_tree_levels(t));
    return LIO_OK;
}

/* The levels that are left stay pinned until others stand in their place: a step that fails
 * changes nothing and can be made again. Only a lender's leaf may be gone by then. */
int lio_tree_sibling(lio_tree *t, int32_t direction, lio_error *error)
{
    uint32_t up = t->height - 1, height = t->height, count;
    lio_level left[LIO_DEPTH_MAX];
    bool lent = false;
    int code;
    do {
        if (up == 0)
            return LIO_NOTFOUND;
        up--;
    } while (direction > 0 ? t->stack[up].index + 1 >= t->stack[up].count
                           : t->stack[up].index == 0);
    count = height - up - 1;
    memcpy(left, &t->stack[up + 1], count * sizeof left[0]);
    t->height = up + 1;
    t->stack[up].index += (uint32_t)direction;
    code = down(t, direction, error);
    for (uint32_t i = 0; i < count; i++)
        lent = lent || left[i].pin == NULL;
    if (code == LIO_OK || lent) {
        for (uint32_t i = 0; i < count; i++)
            level_drop(&left[i]);
        if (code != LIO_OK)
            lio_tree_clear(t);
        return code;
    }
    drop_to(t, up + 1);
    t->stack[up].index -= (uint32_t)direction;
    memcpy(&t->stack[up + 1], left, count * sizeof left[0]);
    t->height = height;
    return code;
}

int lio_tree_edge(lio_tree *t, enum lio_edge edge, lio_error *error)
{
    lio_level *l;
    int code = LIO_OK;
    if (!t->placed || t->height > 1)
        code = descend(t, edge, NULL, 0, error);
    if (code != LIO_OK)
        return code;
    l = lio_tree_leaf(t);
    l->index = edge == LIO_EDGE_LAST ? l->count - 1 : 0;
    t->run = 0;
    t->at_end = edge == LIO_EDGE_LAST;
    return LIO_OK;
}

int lio_tree_next(lio_tree *t, lio_error *error)
{
    int code = count_run(t, 1, error);
    if (code != LIO_OK)
        return code;
    if (!lio_tree_is_last(t)) {
        lio_tree_leaf(t)->index++;
        return LIO_OK;
    }
    code = lio_tree_sibling(t, 1, error);
    if (code == LIO_NOTFOUND) {
        t->at_end = true;
        t->run = 0;
    } else if (code != LIO_OK && t->run > 0) {
        t->run--; /* it may be made again any number of times */
    }
    return code;
}

int lio_tree_prev(lio_tree *t, lio_error *error)
{
    int code = count_run(t, -1, error);
    t->at_end = false;
    if (code != LIO_OK)
        return code;
    if (lio_tree_leaf(t)->index > 0) {
        lio_tree_leaf(t)->index--;
        return LIO_OK;
    }
    code = lio_tree_sibling(t, -1, error);
    if (code == LIO_NOTFOUND)
        t->run = 0;
    else if (code != LIO_OK && t->run > 0)
        t->run--;
    return code;
}

static int go_down(lio_tree *t, const lio_step *steps, uint32_t count, lio_error *error)
{
    uint64_t pgno = t->db.root;
    lio_node node;
    int code = LIO_OK;
    for (uint32_t i = 0; code == LIO_OK && i < count; i++) {
        lio_level *l;
        if (pgno != steps[i].pgno)
            return lio_fail(error, LIO_ERR_CORRUPT, pgno * t->layout.page_size, pgno,
                            steps[i].pgno, "a path names page %" PRIu64 " for %" PRIu64,
                            steps[i].pgno, pgno);
        code = push(t, pgno, error);
        if (code != LIO_OK)
            return code;
        l = lio_tree_leaf(t);
        if (steps[i].index >= l->count)
            return lio_fail(error, LIO_ERR_CORRUPT, pgno * t->layout.page_size, l->count,
                            steps[i].index,
                            "a path names node %" PRIu32 " of %" PRIu32 " on page %" PRIu64,
                            steps[i].index, l->count, pgno);
        l->index = steps[i].index;
        if (i + 1 < count) {
            code = lio_tree_node(t, &node, error);
            pgno = code == LIO_OK ? node.child : pgno;
        }
    }
    return code;
}

int lio_tree_go(lio_tree *t, const lio_step *steps, uint32_t count, lio_error *error)
{
    int code;
    lio_tree_clear(t);
    if (count == 0 || count != t->db.depth)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, t->db.depth, count,
                        "a path of %" PRIu32 " steps in a tree of %" PRIu16 " levels", count,
                        t->db.depth);
    code = go_down(t, steps, count, error);
    if (code != LIO_OK) {
        lio_tree_clear(t);
        return code;
    }
    t->placed = true;
    return LIO_OK;
}

/* --- searches ------------------------------------------------------------------------- */

/* Compares `key` with node `index` of the leaf. */
static int leaf_order(lio_tree *t, uint32_t index, const uint8_t *key, size_t key_size, int *order,
                      lio_error *error)
{
    const lio_level *l = lio_tree_leaf(t);
    lio_node node;
    int code = lio_page_node(&t->layout, l->page, l->pgno, index, &node, error);
    if (code == LIO_OK)
        *order = lio_key_compare(t->db.flags, key, key_size, node.key, node.key_size);
    return code;
}

enum nearby { NEARBY_NO, NEARBY_HERE, NEARBY_LEAF, NEARBY_NONE };

/* Looks whether the key belongs to the leaf the tree stands on. The index that a miss leaves
 * is LMDB's choice, and visible through later moves. */
static int search_nearby(lio_tree *t, const uint8_t *key, size_t key_size, enum nearby *found,
                         lio_error *error)
{
    lio_level *l = lio_tree_leaf(t);
    uint32_t i;
    int order, code = leaf_order(t, 0, key, key_size, &order, error);
    *found = NEARBY_NO;
    if (code != LIO_OK)
        return code;
    if (order == 0) {
        l->index = 0;
        *found = NEARBY_HERE;
        return LIO_OK;
    }
    if (order > 0) {
        if (l->count > 1) {
            code = leaf_order(t, l->count - 1, key, key_size, &order, error);
            if (code != LIO_OK)
                return code;
            if (order <= 0) {
                if (order == 0)
                    l->index = l->count - 1;
                *found = order == 0 ? NEARBY_HERE : NEARBY_LEAF;
                return LIO_OK;
            }
        }
        for (i = 0; i + 1 < t->height; i++)
            if (t->stack[i].index + 1 < t->stack[i].count)
                break;
        if (i + 1 == t->height) {
            l->index = l->count;
            *found = NEARBY_NONE;
            return LIO_OK;
        }
    }
    return LIO_OK;
}

int lio_tree_set(lio_tree *t, const uint8_t *key, size_t key_size, bool want_exact,
                 lio_error *error)
{
    enum nearby near = NEARBY_NO;
    lio_level *l;
    int code = LIO_OK, exact = 0;
    if (key_size == 0)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 1, 0, "an empty key");
    t->run = 0; /* a search ends a run of steps, also when it finds nothing */
    if (t->placed)
        code = search_nearby(t, key, key_size, &near, error);
    if (code != LIO_OK || near == NEARBY_NONE)
        return code != LIO_OK ? code : LIO_NOTFOUND;
    if (near == NEARBY_HERE)
        goto placed;
    if (near == NEARBY_NO && t->placed && t->height == 1) {
        lio_tree_leaf(t)->index = 0; /* below the only page's first key */
        if (want_exact)
            return LIO_NOTFOUND;
        goto placed;
    }
    if (near == NEARBY_NO)
        code = descend(t, LIO_EDGE_FIRST, key, key_size, error);
    if (code == LIO_OK) {
        t->at_end = false;
        l = lio_tree_leaf(t);
        code = lio_page_search(&t->layout, l->page, l->pgno, t->db.flags, key, key_size, &l->index,
                               &exact, error);
    }
    if (code != LIO_OK)
        return code;
    if (want_exact && !exact)
        return LIO_NOTFOUND;
    if (lio_tree_is_behind(t)) {
        code = lio_tree_sibling(t, 1, error);
        if (code == LIO_NOTFOUND)
            t->at_end = true;
        if (code != LIO_OK)
            return code;
    }
placed:
    t->at_end = false; /* and placed it is, by the move before or by the descent */
    return LIO_OK;
}
