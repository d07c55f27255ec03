#include "cursor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "contract.h"
#include "duplicates.h"

enum { SPOT_INDEX_BITS = 16 }; /* no page has more nodes */

struct lio_cursor {
    bool has_sub; /* DUPSORT */
    bool has_item;
    int32_t owed;  /* the direction of a step that reached its record and failed to enter it */
    lio_item item; /* of the last move */
    lio_tree main, sub; /* the keys; the current one's values */
};

/* --- items ---------------------------------------------------------------------------- */

/* The current value of the sub tree. */
static int sub_item(lio_cursor *c, lio_item *out, lio_error *error)
{
    lio_node value;
    LIO_ASSERT(c->has_sub && c->sub.placed);
    int code = lio_tree_node(&c->sub, &value, error);
    if (code != LIO_OK)
        return code;
    out->data = value.key;
    out->data_size = value.key_size;
    return LIO_OK;
}

static int node_item(lio_cursor *c, const lio_node *node, lio_item *out, lio_error *error)
{
    const lio_level *l = lio_tree_leaf(&c->main);
    LIO_ASSERT(c->main.placed);
    out->key = node->key;
    out->key_size = node->key_size;
    out->node_flags = node->flags;
    out->data = NULL;
    out->data_size = node->data_size;
    out->where = (lio_extent){0, 0};
    if (node->flags & LIO_N_DUPDATA)
        return LIO_OK; /* the value comes from the sub tree */
    if (node->flags & LIO_N_BIGDATA) {
        int code = lio_node_extent(&c->main.layout, l->page, l->pgno, node, &out->where, NULL,
                                   error);
        return code == LIO_OK ? lio_value_check(c->main.pages, &out->where, error) : code;
    }
    out->data = node->data;
    return LIO_OK;
}

/* The node under the main tree, and its item as far as no duplicates are needed. */
static int here(lio_cursor *c, lio_node *node, lio_item *out, lio_error *error)
{
    int code = lio_tree_node(&c->main, node, error);
    return code == LIO_OK ? node_item(c, node, out, error) : code;
}

/* Fills the item of the place the main tree has just moved to, entering its duplicates from
 * the front or the back. */
static int enter(lio_cursor *c, enum lio_edge side, lio_item *out, lio_error *error)
{
    lio_node node;
    int code = here(c, &node, out, error);
    if (code != LIO_OK || !(node.flags & LIO_N_DUPDATA))
        return code;
    if (!c->has_sub)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, 0, node.flags,
                        "a key holds duplicates in a database without them");
    code = lio_duplicates_open(&c->sub, &c->main, &node, error);
    if (code == LIO_OK)
        code = lio_tree_edge(&c->sub, side, error);
    return code == LIO_OK ? sub_item(c, out, error) : code;
}

static int no_duplicates(lio_error *error)
{
    return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0, "the database has no duplicates");
}

static int not_placed(lio_error *error)
{
    return lio_fail(error, LIO_ERR_UNPLACED, 0, 0, 0, "the cursor is not positioned");
}

/* --- the moves ------------------------------------------------------------------------ */

static int move_edge(lio_cursor *c, enum lio_edge side, lio_item *out, lio_error *error)
{
    int code;
    lio_tree_unplace(&c->sub);
    code = lio_tree_edge(&c->main, side, error);
    return code == LIO_OK ? enter(c, side, out, error) : code;
}

/* Where steps in a direction begin. */
static enum lio_edge edge_before(int32_t direction)
{
    return direction > 0 ? LIO_EDGE_FIRST : LIO_EDGE_LAST;
}

/* Enters the record that a step has reached, the first one from nowhere as well. Should that fail,
 * the same step made again enters it: no record is passed over in silence. */
static int arrive(lio_cursor *c, int32_t direction, lio_item *out, lio_error *error)
{
    int code = enter(c, edge_before(direction), out, error);
    c->owed = code == LIO_OK || code == LIO_NOTFOUND ? 0 : direction;
    return code;
}

/* Moves among the duplicates of one key, which ends with LIO_NOTFOUND. A search that found
 * nothing stands at a key whose duplicates were not entered. */
static int sub_step(lio_cursor *c, const lio_node *node, int32_t direction, lio_item *out,
                    lio_error *error)
{
    int code = LIO_OK;
    if (c->sub.placed) {
        code = lio_duplicates_step(&c->sub, direction, error);
    } else {
        code = lio_duplicates_open(&c->sub, &c->main, node, error);
        if (code == LIO_OK)
            code = lio_tree_edge(&c->sub, edge_before(direction), error);
    }
    return code == LIO_OK ? sub_item(c, out, error) : code;
}

/* From key to key, or from value to value of one. A cursor that stands nowhere comes to the end
 * from which the direction leads away. */
static int move_step(lio_cursor *c, uint32_t move, int32_t direction, lio_item *out,
                     lio_error *error)
{
    bool stays_on_key = move == LIO_MOVE_NEXT_DUP || move == LIO_MOVE_PREV_DUP;
    bool leaves_key = move == LIO_MOVE_NEXT_NODUP || move == LIO_MOVE_PREV_NODUP;
    lio_tree *t = &c->main;
    lio_node node;
    int code;
    if (!t->placed) {
        lio_tree_unplace(&c->sub);
        code = lio_tree_edge(t, edge_before(direction), error);
        t->at_end = false;
        return code == LIO_OK ? arrive(c, direction, out, error) : code;
    }
    if (direction > 0 && t->at_end) {
        if (lio_tree_is_last(t))
            return LIO_NOTFOUND;
        t->at_end = false;
    }
    if (c->has_sub && !lio_tree_is_behind(t)) {
        code = here(c, &node, out, error);
        if (code != LIO_OK)
            return code;
        if (!(node.flags & LIO_N_DUPDATA)) {
            lio_tree_unplace(&c->sub);
            if (stays_on_key)
                return LIO_NOTFOUND;
        } else if (!leaves_key) {
            code = sub_step(c, &node, direction, out, error);
            if (code == LIO_OK)
                t->at_end = false;
            if (stays_on_key || code != LIO_NOTFOUND)
                return code;
        }
    }
    code = direction > 0 ? lio_tree_next(t, error) : lio_tree_prev(t, error);
    return code == LIO_OK ? arrive(c, direction, out, error) : code;
}

/* To the first or last value of the current key. Should that fail, all is as it was. */
static int sub_edge(lio_cursor *c, enum lio_edge side, lio_error *error)
{
    lio_tree before;
    int code;
    lio_tree_copy(&before, &c->sub);
    code = lio_tree_edge(&c->sub, side, error);
    if (code != LIO_OK) {
        lio_tree_clear(&c->sub);
        c->sub = before;
    } else {
        lio_tree_clear(&before);
    }
    return code;
}

/* First or last duplicate of the current key. */
static int move_dup_edge(lio_cursor *c, enum lio_edge side, lio_item *out, lio_error *error)
{
    lio_tree *t = &c->main;
    lio_node node;
    int code;
    if (!t->placed)
        return not_placed(error);
    if (!c->has_sub)
        return no_duplicates(error);
    if (lio_tree_is_behind(t)) {
        lio_tree_leaf(t)->index = lio_tree_leaf(t)->count;
        return LIO_NOTFOUND;
    }
    if (t->layout.version == LIO_FORMAT_V1) /* LMDB 1.0 stays at the end until it moves away */
        t->at_end = false;
    code = here(c, &node, out, error);
    if (code != LIO_OK || !(node.flags & LIO_N_DUPDATA))
        return code;
    if (!c->sub.placed)
        return not_placed(error);
    code = sub_edge(c, side, error);
    return code == LIO_OK ? sub_item(c, out, error) : code;
}

static int move_current(lio_cursor *c, lio_item *out, lio_error *error)
{
    lio_tree *t = &c->main;
    lio_node node;
    int code;
    if (!t->placed)
        return not_placed(error);
    if (lio_tree_is_behind(t))
        return LIO_NOTFOUND;
    code = here(c, &node, out, error);
    if (code != LIO_OK || !(node.flags & LIO_N_DUPDATA))
        return code;
    if (!c->sub.placed)
        return not_placed(error);
    if (lio_tree_is_behind(&c->sub))
        return LIO_NOTFOUND;
    return sub_item(c, out, error);
}

static int move_multiple(lio_cursor *c, int next, lio_item *out, lio_error *error)
{
    lio_node node;
    int code;
    if (!next && !c->main.placed)
        return not_placed(error);
    if (!c->has_sub || !(c->main.db.flags & LIO_DB_DUPFIXED))
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0,
                        "the database has no duplicates of fixed size");
    if (next) {
        code = move_step(c, LIO_MOVE_NEXT_DUP, 1, out, error);
        if (code != LIO_OK)
            return code;
        if (!c->sub.placed)
            return LIO_NOTFOUND;
        return lio_duplicates_page(&c->sub, &out->data, &out->data_size, error);
    }
    if (lio_tree_is_behind(&c->main))
        return LIO_NOTFOUND;
    code = here(c, &node, out, error);
    if (code != LIO_OK || !(node.flags & LIO_N_DUPDATA) || !c->sub.placed || c->sub.at_end)
        return code;
    return lio_duplicates_page(&c->sub, &out->data, &out->data_size, error);
}

/* Places the sub tree, or compares a lone value. */
static int match_value(lio_cursor *c, int exact, const uint8_t *data, size_t data_size,
                       const lio_node *node, lio_item *out, lio_error *error)
{
    int code, order;
    if (node->flags & LIO_N_DUPDATA) {
        code = lio_duplicates_open(&c->sub, &c->main, node, error);
        if (code == LIO_OK)
            code = lio_tree_set(&c->sub, data, data_size, exact, error);
        return code == LIO_OK ? sub_item(c, out, error) : code;
    }
    if (out->data == NULL)
        return lio_fail(error, LIO_ERR_CORRUPT, out->where.offset, 0, out->where.length,
                        "a database of duplicates holds a value in overflow pages");
    order = lio_duplicates_compare(c->main.db.flags, data, data_size, out->data,
                                   (size_t)out->data_size);
    return order != 0 && (exact || order > 0) ? LIO_NOTFOUND : LIO_OK;
}

static int move_set(lio_cursor *c, uint32_t move, const uint8_t *key, size_t key_size,
                    const uint8_t *data, size_t data_size, lio_item *out, lio_error *error)
{
    int both = move == LIO_MOVE_BOTH || move == LIO_MOVE_BOTH_RANGE, code;
    lio_node node;
    if (both && !c->has_sub)
        return no_duplicates(error);
    if (key_size == 0)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 1, 0, "an empty key");
    lio_tree_unplace(&c->sub);
    code = lio_tree_set(&c->main, key, key_size, move != LIO_MOVE_SET_RANGE, error);
    if (code != LIO_OK)
        return code;
    if (!both)
        return enter(c, LIO_EDGE_FIRST, out, error);
    code = here(c, &node, out, error);
    if (code == LIO_OK)
        code = match_value(c, move == LIO_MOVE_BOTH, data, data_size, &node, out, error);
    return code;
}

/* +1, -1, or 0 for a move that is no step from key to key. */
static int32_t step_direction(uint32_t move)
{
    if (move == LIO_MOVE_NEXT || move == LIO_MOVE_NEXT_NODUP)
        return 1;
    return move == LIO_MOVE_PREV || move == LIO_MOVE_PREV_NODUP ? -1 : 0;
}

static int dispatch(lio_cursor *c, uint32_t move, const uint8_t *key, size_t key_size,
                    const uint8_t *data, size_t data_size, lio_item *out, lio_error *error)
{
    int32_t owed = c->owed;
    c->owed = 0;
    if (owed != 0 && owed == step_direction(move) && c->main.placed)
        return arrive(c, owed, out, error);
    switch (move) {
    case LIO_MOVE_FIRST:
        return move_edge(c, LIO_EDGE_FIRST, out, error);
    case LIO_MOVE_LAST:
        return move_edge(c, LIO_EDGE_LAST, out, error);
    case LIO_MOVE_FIRST_DUP:
        return move_dup_edge(c, LIO_EDGE_FIRST, out, error);
    case LIO_MOVE_LAST_DUP:
        return move_dup_edge(c, LIO_EDGE_LAST, out, error);
    case LIO_MOVE_NEXT:
    case LIO_MOVE_NEXT_DUP:
    case LIO_MOVE_NEXT_NODUP:
        return move_step(c, move, 1, out, error);
    case LIO_MOVE_PREV:
    case LIO_MOVE_PREV_DUP:
    case LIO_MOVE_PREV_NODUP:
        return move_step(c, move, -1, out, error);
    case LIO_MOVE_CURRENT:
        return move_current(c, out, error);
    case LIO_MOVE_MULTIPLE:
    case LIO_MOVE_NEXT_MULTIPLE:
        return move_multiple(c, move == LIO_MOVE_NEXT_MULTIPLE, out, error);
    case LIO_MOVE_SET:
    case LIO_MOVE_SET_RANGE:
    case LIO_MOVE_BOTH:
    case LIO_MOVE_BOTH_RANGE:
        return move_set(c, move, key, key_size, data, data_size, out, error);
    default:
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, LIO_MOVE_BOTH_RANGE, move,
                        "no such move: %" PRIu32, move);
    }
}

int lio_cursor_move_locked(lio_cursor *cursor, uint32_t move, const uint8_t *key, size_t key_size,
                           const uint8_t *data, size_t data_size, lio_error *error)
{
    int code;
    memset(&cursor->item, 0, sizeof cursor->item);
    code = dispatch(cursor, move, key, key_size, data, data_size, &cursor->item, error);
    cursor->has_item = code == LIO_OK;
    return code;
}

int lio_cursor_move(lio_cursor *cursor, uint32_t move, const uint8_t *key, size_t key_size,
                    const uint8_t *data, size_t data_size, lio_error *error)
{
    int code;
    lio_pages_lock(cursor->main.pages);
    code = lio_cursor_move_locked(cursor, move, key, key_size, data, data_size, error);
    lio_pages_unlock(cursor->main.pages);
    return code;
}

const lio_item *lio_cursor_item(const lio_cursor *cursor)
{
    return cursor->has_item ? &cursor->item : NULL;
}

int lio_cursor_place(lio_cursor *cursor, uint64_t *pgno, uint32_t *index, lio_error *error)
{
    lio_tree *t = &cursor->main;
    int code = LIO_OK;
    lio_pages_lock(t->pages);
    if (!t->placed || t->height == 0) {
        code = not_placed(error);
    } else {
        *pgno = lio_tree_leaf(t)->pgno;
        *index = lio_tree_leaf(t)->index;
    }
    lio_pages_unlock(t->pages);
    return code;
}

void lio_cursor_trees(lio_cursor *cursor, lio_tree **main, lio_tree **sub)
{
    *main = &cursor->main;
    *sub = cursor->has_sub ? &cursor->sub : NULL;
}

/* Enters the duplicates of the key that the main tree stands on, at the end of a path. */
static int go_below(lio_cursor *c, const lio_step *steps, uint32_t count, lio_error *error)
{
    lio_item item;
    lio_node node;
    int code = here(c, &node, &item, error);
    if (code != LIO_OK)
        return code;
    if (!(node.flags & LIO_N_DUPDATA) || !c->has_sub)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, 0, node.flags,
                        "a path leads to duplicates that a key does not have");
    code = lio_duplicates_open(&c->sub, &c->main, &node, error);
    if (code != LIO_OK || node.flags & LIO_N_SUBDATA)
        return code == LIO_OK ? lio_tree_go(&c->sub, steps, count, error) : code;
    if (count != 1 || steps[0].index >= c->sub.stack[0].count)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, c->sub.stack[0].count, steps[0].index,
                        "a path names a duplicate that a key does not have");
    c->sub.stack[0].index = steps[0].index;
    return LIO_OK;
}

int lio_cursor_go(lio_cursor *cursor, const lio_step *steps, uint32_t count, const lio_step *below,
                  uint32_t below_count, lio_error *error)
{
    int code;
    lio_pages_lock(cursor->main.pages);
    cursor->has_item = false;
    cursor->owed = 0;
    lio_tree_clear(&cursor->sub);
    code = lio_tree_go(&cursor->main, steps, count, error);
    if (code == LIO_OK && below_count != 0)
        code = go_below(cursor, below, below_count, error);
    if (code != LIO_OK) {
        lio_tree_clear(&cursor->main);
        lio_tree_clear(&cursor->sub);
    }
    lio_pages_unlock(cursor->main.pages);
    return code;
}

static int count_values(lio_cursor *c, uint64_t *out, lio_error *error)
{
    lio_tree *t = &c->main;
    lio_node node;
    int code;
    if (!c->has_sub)
        return no_duplicates(error);
    if (!t->placed)
        return not_placed(error);
    if (lio_tree_is_behind(t))
        return LIO_NOTFOUND;
    t->at_end = false;
    code = lio_tree_node(t, &node, error);
    if (code != LIO_OK)
        return code;
    if ((node.flags & LIO_N_DUPDATA) && !c->sub.placed)
        return not_placed(error);
    *out = node.flags & LIO_N_DUPDATA ? c->sub.db.entries : 1;
    return LIO_OK;
}

int lio_cursor_count(lio_cursor *cursor, uint64_t *out, lio_error *error)
{
    int code;
    lio_pages_lock(cursor->main.pages);
    code = count_values(cursor, out, error);
    lio_pages_unlock(cursor->main.pages);
    return code;
}

/* --- life ----------------------------------------------------------------------------- */

int lio_cursor_open(lio_pages *pages, const lio_db *db, lio_cursor **out, lio_error *error)
{
    lio_cursor *c = calloc(1, sizeof *c);
    if (c == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *c, 0, "no memory for a cursor");
    c->main.pages = c->sub.pages = pages;
    c->main.layout = *lio_pages_layout(pages);
    c->main.db = *db;
    c->has_sub = (db->flags & LIO_DB_DUPSORT) != 0;
    lio_pages_share(pages);
    *out = c;
    return LIO_OK;
}

int lio_cursor_copy(lio_cursor *cursor, lio_cursor **out, lio_error *error)
{
    lio_cursor *c;
    int code;
    lio_pages_lock(cursor->main.pages);
    if (cursor->main.lender != NULL)
        code = lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0,
                        "a cursor that reads ahead is not copied");
    else
        code = lio_cursor_open(cursor->main.pages, &cursor->main.db, &c, error);
    if (code == LIO_OK) {
        lio_tree_copy(&c->main, &cursor->main);
        lio_tree_copy(&c->sub, &cursor->sub);
        *out = c;
    }
    lio_pages_unlock(cursor->main.pages);
    return code;
}

static uint64_t spot_of(const lio_tree *t)
{
    const lio_level *l = &t->stack[t->height - 1];
    return l->pgno << SPOT_INDEX_BITS | l->index;
}

uint64_t lio_spot_page(lio_spot spot)
{
    return spot.key >> SPOT_INDEX_BITS;
}

lio_spot lio_cursor_spot(const lio_cursor *c)
{
    bool many = c->has_item && (c->item.node_flags & LIO_N_DUPDATA) && c->sub.height > 0;
    return (lio_spot){c->main.height > 0 ? spot_of(&c->main) : 0, many ? spot_of(&c->sub) : 0};
}

void lio_cursor_become(lio_cursor *cursor, lio_cursor *from)
{
    lio_pages *pages = cursor->main.pages;
    lio_pages_lock(pages);
    lio_tree_clear(&cursor->main);
    lio_tree_clear(&cursor->sub);
    *cursor = *from;
    from->main.height = from->sub.height = 0; /* the pages under them are the other's now */
    lio_pages_unlock(pages);
    lio_cursor_close(from);
}

void lio_cursor_close(lio_cursor *cursor)
{
    lio_pages *pages;
    if (cursor == NULL)
        return;
    pages = cursor->main.pages;
    lio_pages_lock(pages);
    lio_readahead_close(&cursor->main);
    lio_tree_clear(&cursor->main);
    lio_tree_clear(&cursor->sub);
    free(cursor);
    lio_pages_unlock(pages);
    lio_pages_close(pages);
}

lio_pages *lio_cursor_pages(lio_cursor *cursor)
{
    return cursor->main.pages;
}

void lio_cursor_read_ahead(lio_cursor *cursor, uint32_t pages_max, lio_bypass *past)
{
    lio_pages_lock(cursor->main.pages);
    if (pages_max != 0) {
        lio_readahead_open(&cursor->main, pages_max, past);
    } else if (cursor->main.lender != NULL) {
        if (lio_tree_return_leaf(&cursor->main))
            cursor->has_item = false; /* it lay in what is freed now */
        lio_readahead_close(&cursor->main);
    }
    lio_pages_unlock(cursor->main.pages);
}
