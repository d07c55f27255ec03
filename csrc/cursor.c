#include "cursor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- trees ---------------------------------------------------------------------------- */

enum { PLACED = 1, AT_END = 2 };

typedef struct {
    const uint8_t *page;
    lio_pin *pin; /* NULL: the page lies in a batch read ahead, or inside a node */
    uint64_t pgno;
    uint32_t index, count;
} level;

typedef struct {
    lio_layout layout; /* page_size is the sub-page's own for duplicates inside a node */
    lio_db db;
    uint32_t state;  /* PLACED | AT_END */
    uint32_t height; /* levels in use; the last is the leaf */
    int32_t direction;
    uint64_t run; /* moves in this direction, to notice trees that repeat themselves */
    level stack[LIO_DEPTH_MAX];
} tree;

/* Leaves read ahead: page numbers in key order, pages one after another. */
typedef struct {
    uint64_t *pgnos;
    uint8_t *memory;
    lio_read *reads;
    lio_ticket *ticket;
    uint32_t count, at, capacity;
} batch;

typedef struct {
    tree leader; /* runs ahead of the cursor along the branch pages */
    batch batches[2];
    uint32_t window, pages_max, current;
    uint32_t started, ended;
    pid_t pid;
} ahead;

struct lio_cursor {
    lio_pages *pages;
    ahead *ahead;
    uint32_t has_sub; /* DUPSORT */
    uint32_t has_item;
    lio_item item; /* of the last move */
    tree main, sub;
};

static level *leaf_of(tree *t)
{
    return &t->stack[t->height - 1];
}

static void level_drop(level *l)
{
    if (l->pin != NULL)
        lio_pin_drop(l->pin);
    l->pin = NULL;
}

static void tree_clear(tree *t)
{
    while (t->height > 0)
        level_drop(&t->stack[--t->height]);
}

static int level_node(const tree *t, const level *l, lio_node *out, lio_error *error)
{
    return lio_page_node(&t->layout, l->page, l->pgno, l->index, out, error);
}

static int bad_pgno(const tree *t, uint64_t pgno, lio_error *error)
{
    return lio_fail(error, LIO_ERR_CORRUPT, 0, t->layout.page_limit, pgno,
                    "a branch page points at page %" PRIu64 " of %" PRIu64 " in use", pgno,
                    t->layout.page_limit);
}

static int ahead_find(lio_cursor *c, uint64_t pgno, const uint8_t **page, lio_error *error);

/* Makes page `pgno` level number `depth` of the tree (what is below must be gone). */
static int tree_push(lio_cursor *c, tree *t, uint64_t pgno, lio_error *error)
{
    uint32_t depth = t->height;
    int type = depth + 1 < t->db.depth ? LIO_P_BRANCH : LIO_P_LEAF, code;
    level l = {NULL, NULL, pgno, 0, 0};
    if (depth >= t->db.depth || depth >= LIO_DEPTH_MAX)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, t->db.depth, depth,
                        "a tree is deeper than its database record says");
    if (pgno < 2 || pgno >= t->layout.page_limit)
        return bad_pgno(t, pgno, error);
    if (type == LIO_P_LEAF && t == &c->main && c->ahead != NULL) {
        code = ahead_find(c, pgno, &l.page, error);
        if (code != LIO_OK)
            return code;
    }
    if (l.page == NULL) {
        code = lio_pages_pin(c->pages, pgno, type, &l.pin, error);
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

/* Puts `index` on the first node whose key is not below `key` (count: none). */
static int level_search(const tree *t, level *l, const uint8_t *key, size_t key_size,
                        int *exact, lio_error *error)
{
    uint32_t low = lio_page_flags(&t->layout, l->page) & LIO_P_BRANCH ? 1 : 0, high = l->count;
    *exact = 0; /* the first key of a branch page stands for minus infinity */
    while (low < high) {
        lio_node node;
        int order, code;
        l->index = low + (high - low) / 2;
        code = level_node(t, l, &node, error);
        if (code != LIO_OK)
            return code;
        order = lio_key_compare(t->db.flags, key, key_size, node.key, node.key_size);
        if (order == 0) {
            *exact = 1;
            return LIO_OK;
        }
        if (order < 0)
            high = l->index;
        else
            low = l->index + 1;
    }
    l->index = low;
    return LIO_OK;
}

enum descent { TO_FIRST, TO_LAST, TO_KEY };

/* From the root to a leaf. The index in the leaf is left to the caller (0). */
static int tree_descend(lio_cursor *c, tree *t, enum descent how, const uint8_t *key,
                        size_t key_size, lio_error *error)
{
    int code, exact;
    lio_node node;
    tree_clear(t);
    t->state &= ~(uint32_t)(PLACED | AT_END);
    t->run = 0;
    if (t->db.root == UINT64_MAX || t->db.depth == 0)
        return LIO_NOTFOUND;
    code = tree_push(c, t, t->db.root, error);
    while (code == LIO_OK && t->height < t->db.depth) {
        level *l = leaf_of(t);
        l->index = how == TO_LAST ? l->count - 1 : 0;
        if (how == TO_KEY) {
            code = level_search(t, l, key, key_size, &exact, error);
            if (code == LIO_OK && !exact)
                l->index--;
        }
        if (code == LIO_OK)
            code = level_node(t, l, &node, error);
        if (code == LIO_OK)
            code = tree_push(c, t, node.child, error);
    }
    if (code != LIO_OK) {
        tree_clear(t);
        return code;
    }
    t->state |= PLACED;
    return LIO_OK;
}

/* A tree that hands out more than it holds repeats itself. */
static int count_run(tree *t, int32_t direction, lio_error *error)
{
    if (t->direction != direction) {
        t->direction = direction;
        t->run = 0;
    }
    if (t->run++ > t->db.entries) /* the one too many finds the end */
        return lio_fail(error, LIO_ERR_CORRUPT, 0, t->db.entries, t->run,
                        "a tree holds more than the %" PRIu64
                        " entries of its database record", t->db.entries);
    return LIO_OK;
}

/* Steps to the next or previous leaf. LIO_NOTFOUND leaves everything as it was. */
static int tree_sibling(lio_cursor *c, tree *t, int32_t direction, lio_error *error)
{
    uint32_t up = t->height - 1;
    lio_node node;
    int code;
    do {
        if (up == 0)
            return LIO_NOTFOUND;
        up--;
    } while (direction > 0 ? t->stack[up].index + 1 >= t->stack[up].count
                           : t->stack[up].index == 0);
    while (t->height > up + 1)
        level_drop(&t->stack[--t->height]);
    t->stack[up].index += (uint32_t)direction;
    do {
        code = level_node(t, leaf_of(t), &node, error);
        if (code == LIO_OK)
            code = tree_push(c, t, node.child, error);
        if (code != LIO_OK) {
            tree_clear(t);
            t->state = 0;
            return code;
        }
        if (direction < 0)
            leaf_of(t)->index = leaf_of(t)->count - 1;
    } while (t->height < t->db.depth);
    return LIO_OK;
}

/* --- leaves ahead --------------------------------------------------------------------- */

enum { WINDOW_FIRST = 4, LEAF_REQUEST_BYTES = 1 << 20 };

static void batch_drop(batch *b)
{
    lio_ticket_free(b->ticket);
    b->ticket = NULL;
    b->count = b->at = 0;
}

static void batch_free(batch *b)
{
    batch_drop(b);
    free(b->pgnos);
    free(b->reads);
    free(b->memory);
    memset(b, 0, sizeof *b);
}

static void ahead_stop(lio_cursor *c)
{
    ahead *a = c->ahead;
    if (a == NULL)
        return;
    tree_clear(&a->leader);
    batch_drop(&a->batches[0]);
    batch_drop(&a->batches[1]);
    a->started = a->ended = 0;
}

static void ahead_free(lio_cursor *c)
{
    if (c->ahead == NULL)
        return;
    ahead_stop(c);
    batch_free(&c->ahead->batches[0]);
    batch_free(&c->ahead->batches[1]);
    free(c->ahead);
    c->ahead = NULL;
}

/* The leaf under the cursor may lie in a batch: have it from the cache instead. */
static void leave_batch(lio_cursor *c)
{
    level *l = leaf_of(&c->main);
    if (c->main.height != c->main.db.depth || l->pin != NULL)
        return;
    if (lio_pages_pin(c->pages, l->pgno, LIO_P_LEAF, &l->pin, NULL) == LIO_OK) {
        l->page = lio_pin_page(l->pin);
    } else {
        tree_clear(&c->main);
        c->main.state = 0;
    }
    c->has_item = 0;
}

void lio_cursor_read_ahead(lio_cursor *cursor, uint32_t pages_max)
{
    lio_pages *pages = cursor->pages;
    lio_pages_lock(pages);
    if (cursor->main.db.depth < 2 ||
        cursor->main.layout.page_size % lio_engine_alignment(lio_pages_engine(pages)) != 0)
        pages_max = 0;
    if (pages_max == 0 && cursor->ahead != NULL) {
        leave_batch(cursor);
        ahead_free(cursor);
    }
    if (pages_max != 0 && cursor->ahead == NULL)
        cursor->ahead = calloc(1, sizeof *cursor->ahead); /* no memory: nothing read ahead */
    if (cursor->ahead != NULL)
        cursor->ahead->pages_max = pages_max;
    lio_pages_unlock(pages);
}

static int batch_reserve(batch *b, uint32_t pages, uint32_t page_size)
{
    if (b->capacity >= pages)
        return LIO_OK;
    batch_free(b);
    b->pgnos = calloc(pages, sizeof *b->pgnos);
    b->reads = calloc(pages, sizeof *b->reads);
    b->memory = aligned_alloc(4096, lio_round_up((uint64_t)pages * page_size, 4096));
    if (b->pgnos == NULL || b->reads == NULL || b->memory == NULL) {
        batch_free(b);
        return LIO_ERR_NOMEM;
    }
    b->capacity = pages;
    return LIO_OK;
}

/* The next leaf in key order along the leader's branch pages. */
static int leader_step(lio_cursor *c, uint64_t *pgno, lio_error *error)
{
    tree *t = &c->ahead->leader;
    lio_node node;
    int code = LIO_OK;
    level *l = leaf_of(t);
    if (l->index + 1 < l->count)
        l->index++;
    else
        code = tree_sibling(c, t, 1, error);
    if (code == LIO_OK)
        code = level_node(t, leaf_of(t), &node, error);
    if (code == LIO_OK)
        *pgno = node.child;
    return code;
}

/* Submits the next `window` leaves. Runs of adjacent pages become one request. */
static int batch_submit(lio_cursor *c, batch *b, lio_error *error)
{
    ahead *a = c->ahead;
    uint32_t size = c->main.layout.page_size, reads = 0;
    uint64_t pgno;
    int code = LIO_OK;
    if (batch_reserve(b, a->window, size) != LIO_OK)
        return lio_fail(error, LIO_ERR_NOMEM, 0, (uint64_t)a->window * size, 0,
                        "no memory to read leaf pages ahead");
    while (b->count < a->window && !a->ended) {
        code = leader_step(c, &pgno, error);
        if (code == LIO_OK && (pgno < 2 || pgno >= c->main.layout.page_limit))
            code = bad_pgno(&c->main, pgno, error);
        a->ended = code != LIO_OK; /* what is wrong ahead is the cursor's to report */
        if (code != LIO_OK)
            break;
        if (b->count > 0 && pgno == b->pgnos[b->count - 1] + 1 &&
            b->reads[reads - 1].length < LEAF_REQUEST_BYTES) {
            b->reads[reads - 1].length += size;
            b->reads[reads - 1].needed += size;
        } else {
            b->reads[reads++] = (lio_read){pgno * size, size, size,
                                           b->memory + (size_t)b->count * size};
        }
        b->pgnos[b->count++] = pgno;
    }
    if (b->count == 0)
        return LIO_OK;
    code = lio_engine_submit(lio_pages_engine(c->pages), b->reads, reads, &b->ticket, error);
    if (code != LIO_OK)
        b->count = 0;
    a->window = a->window * 2 < a->pages_max ? a->window * 2 : a->pages_max;
    return code;
}

/* Begins after the leaf the cursor is about to enter (its branch levels are in place). */
static int ahead_start(lio_cursor *c, lio_error *error)
{
    ahead *a = c->ahead;
    ahead_stop(c);
    a->leader = c->main;
    for (uint32_t i = 0; i < a->leader.height; i++)
        if (a->leader.stack[i].pin != NULL)
            lio_pin_add(a->leader.stack[i].pin);
    a->leader.db.depth = (uint16_t)(c->main.db.depth - 1);
    a->started = 1;
    a->current = 0;
    a->pid = getpid();
    a->window = WINDOW_FIRST < a->pages_max ? WINDOW_FIRST : a->pages_max;
    return batch_submit(c, &a->batches[0], error);
}

static const uint8_t *batch_page(batch *b, uint64_t pgno, uint32_t size)
{
    for (; b->at < b->count; b->at++)
        if (b->pgnos[b->at] == pgno)
            return b->memory + (size_t)b->at * size;
    return NULL;
}

/* Leaves `*page` NULL when the page was not read ahead. */
static int ahead_find(lio_cursor *c, uint64_t pgno, const uint8_t **page, lio_error *error)
{
    ahead *a = c->ahead;
    batch *b;
    const uint8_t *found = NULL;
    int code;
    if (a->started && a->pid == getpid())
        for (uint32_t turn = 0; turn < 2 && found == NULL; turn++) {
            if (turn == 1) {
                batch_drop(&a->batches[a->current]);
                a->current ^= 1;
            }
            found = batch_page(&a->batches[a->current], pgno, c->main.layout.page_size);
        }
    if (found == NULL)
        return ahead_start(c, error);
    b = &a->batches[a->current];
    if (b->ticket != NULL) {
        code = lio_ticket_wait(b->ticket, -1, error);
        lio_ticket_free(b->ticket);
        b->ticket = NULL;
        if (code != LIO_OK) {
            batch_drop(b);
            return code;
        }
    }
    code = lio_page_check(&c->main.layout, found, pgno, LIO_P_LEAF, error);
    if (code == LIO_OK && a->batches[a->current ^ 1].count == 0 && !a->ended)
        code = batch_submit(c, &a->batches[a->current ^ 1], error);
    if (code == LIO_OK)
        *page = found;
    return code;
}

/* --- duplicates ----------------------------------------------------------------------- */

static int sub_page_check(const tree *sub, const uint8_t *page, lio_error *error)
{
    if (sub->layout.page_size < sub->layout.header_size + 2)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, sub->layout.header_size,
                        sub->layout.page_size, "a page of duplicates is cut short");
    return lio_page_check(&sub->layout, page, lio_load64(page), LIO_P_LEAF, error);
}

/* Flags that order duplicates, in the terms of keys. */
static uint16_t duplicate_flags(uint16_t flags)
{
    uint16_t out = 0;
    if (flags & LIO_DB_INTEGERDUP)
        out |= LIO_DB_INTEGERKEY;
    else if (flags & LIO_DB_REVERSEDUP)
        out |= LIO_DB_REVERSEKEY;
    return out;
}

/* Opens the duplicates of a node with DUPDATA. A sub-page leaves the sub tree placed on its
 * first value, a tree of its own leaves it unplaced, as in LMDB. */
static int sub_open(lio_cursor *c, const lio_node *node, lio_error *error)
{
    tree *sub = &c->sub;
    int code;
    tree_clear(sub);
    sub->state = 0;
    sub->run = 0;
    sub->layout = c->main.layout;
    if (node->flags & LIO_N_SUBDATA) {
        code = lio_db_parse(&sub->layout, node->data, node->data_size, 0, &sub->db, error);
        sub->db.flags = duplicate_flags(c->main.db.flags);
        return code;
    }
    sub->layout.page_size = node->data_size;
    code = sub_page_check(sub, node->data, error);
    if (code != LIO_OK)
        return code;
    memset(&sub->db, 0, sizeof sub->db);
    sub->db.flags = duplicate_flags(c->main.db.flags);
    sub->db.depth = 1;
    sub->db.entries = lio_page_count(&sub->layout, node->data);
    if (sub->db.entries == 0)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, 1, 0, "a page of duplicates holds none");
    sub->stack[0] = (level){node->data, NULL, lio_load64(node->data), 0,
                            (uint32_t)sub->db.entries};
    sub->height = 1;
    sub->state = PLACED;
    return LIO_OK;
}

/* --- moves within one tree, as seen from its leaf --------------------------------------
 *
 * Each moves the tree alone; the duplicates of where it lands are the caller's. */

static int tree_edge(lio_cursor *c, tree *t, enum descent how, lio_error *error)
{
    level *l;
    int code = LIO_OK;
    if (!(t->state & PLACED) || t->height > 1)
        code = tree_descend(c, t, how, NULL, 0, error);
    if (code != LIO_OK)
        return code;
    l = leaf_of(t);
    l->index = how == TO_LAST ? l->count - 1 : 0;
    t->run = 0;
    t->state |= PLACED;
    if (how == TO_LAST)
        t->state |= AT_END;
    else
        t->state &= ~(uint32_t)AT_END;
    return LIO_OK;
}

static int tree_next(lio_cursor *c, tree *t, lio_error *error)
{
    level *l = leaf_of(t);
    int code = count_run(t, 1, error);
    if (code != LIO_OK)
        return code;
    if (l->index + 1 < l->count) {
        l->index++;
        return LIO_OK;
    }
    code = tree_sibling(c, t, 1, error);
    if (code == LIO_NOTFOUND) {
        t->state |= AT_END;
        t->run = 0;
    }
    return code;
}

static int tree_prev(lio_cursor *c, tree *t, lio_error *error)
{
    level *l = leaf_of(t);
    int code = count_run(t, -1, error);
    t->state &= ~(uint32_t)AT_END;
    if (code != LIO_OK)
        return code;
    if (l->index > 0) {
        l->index--;
        return LIO_OK;
    }
    code = tree_sibling(c, t, -1, error);
    if (code == LIO_NOTFOUND)
        t->run = 0;
    return code;
}

/* Compares `key` with node `index` of the leaf. */
static int leaf_order(const tree *t, const level *leaf, uint32_t index, const uint8_t *key,
                      size_t key_size, int *order, lio_error *error)
{
    level l = *leaf;
    lio_node node;
    int code;
    l.index = index;
    code = level_node(t, &l, &node, error);
    if (code == LIO_OK)
        *order = lio_key_compare(t->db.flags, key, key_size, node.key, node.key_size);
    return code;
}

enum nearby { NEARBY_NO, NEARBY_HERE, NEARBY_LEAF, NEARBY_NONE };

/* Looks whether the key belongs to the leaf the tree stands on. What a miss leaves as index
 * is LMDB's choice, and visible through later moves. */
static int search_nearby(tree *t, const uint8_t *key, size_t key_size, enum nearby *found,
                         lio_error *error)
{
    level *l = leaf_of(t);
    uint32_t i;
    int order, code = leaf_order(t, l, 0, key, key_size, &order, error);
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
            code = leaf_order(t, l, l->count - 1, key, key_size, &order, error);
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

/* Places the tree on `key` (exact), or on the first key not below it. */
static int tree_set(lio_cursor *c, tree *t, const uint8_t *key, size_t key_size, int want_exact,
                    lio_error *error)
{
    enum nearby near = NEARBY_NO;
    int exact = 0, code = LIO_OK;
    if (key_size == 0)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 1, 0, "an empty key");
    t->run = 0; /* a search ends a run of steps, also when it finds nothing */
    if (t->state & PLACED)
        code = search_nearby(t, key, key_size, &near, error);
    if (code != LIO_OK || near == NEARBY_NONE)
        return code != LIO_OK ? code : LIO_NOTFOUND;
    if (near == NEARBY_HERE)
        goto placed;
    if (near == NEARBY_NO && (t->state & PLACED) && t->height == 1) {
        leaf_of(t)->index = 0; /* below the only page's first key */
        if (want_exact)
            return LIO_NOTFOUND;
        goto placed;
    }
    if (near == NEARBY_NO)
        code = tree_descend(c, t, TO_KEY, key, key_size, error);
    if (code == LIO_OK) {
        t->state &= ~(uint32_t)AT_END;
        code = level_search(t, leaf_of(t), key, key_size, &exact, error);
    }
    if (code != LIO_OK)
        return code;
    if (want_exact && !exact)
        return LIO_NOTFOUND;
    if (leaf_of(t)->index >= leaf_of(t)->count) {
        code = tree_sibling(c, t, 1, error);
        if (code == LIO_NOTFOUND)
            t->state |= AT_END;
        if (code != LIO_OK)
            return code;
    }
placed:
    t->state |= PLACED;
    t->state &= ~(uint32_t)AT_END;
    return LIO_OK;
}

/* --- items ---------------------------------------------------------------------------- */

/* The current value of the sub tree. */
static int sub_item(lio_cursor *c, lio_item *out, lio_error *error)
{
    lio_node value;
    int code = level_node(&c->sub, leaf_of(&c->sub), &value, error);
    if (code != LIO_OK)
        return code;
    out->data = value.key;
    out->data_size = value.key_size;
    return LIO_OK;
}

static int node_item(lio_cursor *c, const lio_node *node, lio_item *out, lio_error *error)
{
    const level *l = leaf_of(&c->main);
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
        return code == LIO_OK ? lio_value_check(c->pages, &out->where, error) : code;
    }
    out->data = node->data;
    return LIO_OK;
}

/* Fills the item of the place the main tree has just moved to, entering its duplicates from
 * the front or the back. */
static int enter(lio_cursor *c, enum descent side, lio_item *out, lio_error *error)
{
    lio_node node;
    int code = level_node(&c->main, leaf_of(&c->main), &node, error);
    if (code == LIO_OK)
        code = node_item(c, &node, out, error);
    if (code != LIO_OK || !(node.flags & LIO_N_DUPDATA))
        return code;
    if (!c->has_sub)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, 0, node.flags,
                        "a key holds duplicates in a database without them");
    code = sub_open(c, &node, error);
    if (code == LIO_OK)
        code = tree_edge(c, &c->sub, side, error);
    return code == LIO_OK ? sub_item(c, out, error) : code;
}

/* The node under the main tree, and whether it has duplicates. */
static int here(lio_cursor *c, lio_node *node, lio_item *out, lio_error *error)
{
    int code = level_node(&c->main, leaf_of(&c->main), node, error);
    return code == LIO_OK ? node_item(c, node, out, error) : code;
}

static void sub_unplace(lio_cursor *c)
{
    c->sub.state = 0;
}

/* --- the moves ------------------------------------------------------------------------ */

static int move_edge(lio_cursor *c, enum descent side, lio_item *out, lio_error *error)
{
    int code;
    sub_unplace(c);
    code = tree_edge(c, &c->main, side, error);
    return code == LIO_OK ? enter(c, side, out, error) : code;
}

/* Moves among the duplicates of one key, which ends with LIO_NOTFOUND. */
static int sub_step(lio_cursor *c, int32_t direction, lio_item *out, lio_error *error)
{
    tree *sub = &c->sub;
    int code;
    if (!(sub->state & PLACED))
        code = tree_edge(c, sub, direction > 0 ? TO_FIRST : TO_LAST, error);
    else if (direction > 0 && (sub->state & AT_END) &&
             leaf_of(sub)->index + 1 >= leaf_of(sub)->count)
        code = LIO_NOTFOUND;
    else {
        if (direction > 0)
            sub->state &= ~(uint32_t)AT_END;
        code = direction > 0 ? tree_next(c, sub, error) : tree_prev(c, sub, error);
    }
    return code == LIO_OK ? sub_item(c, out, error) : code;
}

static int move_next(lio_cursor *c, uint32_t move, lio_item *out, lio_error *error)
{
    tree *t = &c->main;
    lio_node node;
    int code;
    if (!(t->state & PLACED))
        return move_edge(c, TO_FIRST, out, error);
    if (t->state & AT_END) {
        if (leaf_of(t)->index + 1 >= leaf_of(t)->count)
            return LIO_NOTFOUND;
        t->state &= ~(uint32_t)AT_END;
    }
    if (c->has_sub && leaf_of(t)->index < leaf_of(t)->count) {
        code = here(c, &node, out, error);
        if (code != LIO_OK)
            return code;
        if (node.flags & LIO_N_DUPDATA) {
            if (move != LIO_MOVE_NEXT_NODUP) {
                code = sub_step(c, 1, out, error);
                if (move == LIO_MOVE_NEXT_DUP || code != LIO_NOTFOUND)
                    return code;
            }
        } else {
            sub_unplace(c);
            if (move == LIO_MOVE_NEXT_DUP)
                return LIO_NOTFOUND;
        }
    }
    code = tree_next(c, t, error);
    return code == LIO_OK ? enter(c, TO_FIRST, out, error) : code;
}

static int move_prev(lio_cursor *c, uint32_t move, lio_item *out, lio_error *error)
{
    tree *t = &c->main;
    lio_node node;
    int code;
    if (!(t->state & PLACED)) {
        code = move_edge(c, TO_LAST, out, error);
        if (code != LIO_OK)
            return code;
        leaf_of(t)->index++; /* so that the step below lands on it */
    }
    if (c->has_sub && leaf_of(t)->index < leaf_of(t)->count) {
        code = here(c, &node, out, error);
        if (code != LIO_OK)
            return code;
        if (node.flags & LIO_N_DUPDATA) {
            if (move != LIO_MOVE_PREV_NODUP) {
                code = sub_step(c, -1, out, error);
                if (code == LIO_OK)
                    t->state &= ~(uint32_t)AT_END;
                if (move == LIO_MOVE_PREV_DUP || code != LIO_NOTFOUND)
                    return code;
            }
        } else {
            sub_unplace(c);
            if (move == LIO_MOVE_PREV_DUP)
                return LIO_NOTFOUND;
        }
    }
    code = tree_prev(c, t, error);
    return code == LIO_OK ? enter(c, TO_LAST, out, error) : code;
}

/* First or last duplicate of the current key. */
static int move_dup_edge(lio_cursor *c, enum descent side, lio_item *out, lio_error *error)
{
    tree *t = &c->main;
    lio_node node;
    int code;
    if (!(t->state & PLACED))
        return LIO_ERR_UNPLACED;
    if (!c->has_sub)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0, "the database has no duplicates");
    if (leaf_of(t)->index >= leaf_of(t)->count) {
        leaf_of(t)->index = leaf_of(t)->count;
        return LIO_NOTFOUND;
    }
    if (t->layout.version == LIO_FORMAT_V1) /* LMDB 1.0 stays at the end until it moves away */
        t->state &= ~(uint32_t)AT_END;
    code = here(c, &node, out, error);
    if (code != LIO_OK || !(node.flags & LIO_N_DUPDATA))
        return code;
    if (!(c->sub.state & PLACED))
        return LIO_ERR_UNPLACED;
    code = tree_edge(c, &c->sub, side, error);
    return code == LIO_OK ? sub_item(c, out, error) : code;
}

static int move_current(lio_cursor *c, lio_item *out, lio_error *error)
{
    tree *t = &c->main;
    lio_node node;
    int code;
    if (!(t->state & PLACED))
        return LIO_ERR_UNPLACED;
    if (leaf_of(t)->index >= leaf_of(t)->count)
        return LIO_NOTFOUND;
    code = here(c, &node, out, error);
    if (code != LIO_OK || !(node.flags & LIO_N_DUPDATA))
        return code;
    if (!(c->sub.state & PLACED))
        return LIO_ERR_UNPLACED;
    if (leaf_of(&c->sub)->index >= leaf_of(&c->sub)->count)
        return LIO_NOTFOUND;
    return sub_item(c, out, error);
}

/* The whole page of duplicates under the sub tree, whose last value becomes current. */
static int whole_page(lio_cursor *c, lio_item *out, lio_error *error)
{
    level *l = leaf_of(&c->sub);
    lio_node first;
    int code;
    if (!(lio_page_flags(&c->sub.layout, l->page) & LIO_P_LEAF2))
        return lio_fail(error, LIO_ERR_CORRUPT, 0, LIO_P_LEAF2, 0,
                        "fixed-size duplicates in a page for others");
    l->index = 0;
    code = level_node(&c->sub, l, &first, error);
    if (code != LIO_OK)
        return code;
    out->data = first.key;
    out->data_size = (uint64_t)first.key_size * l->count;
    l->index = l->count - 1;
    return LIO_OK;
}

static int move_multiple(lio_cursor *c, int next, lio_item *out, lio_error *error)
{
    lio_node node;
    int code;
    if (!next && !(c->main.state & PLACED))
        return LIO_ERR_UNPLACED;
    if (!c->has_sub || !(c->main.db.flags & LIO_DB_DUPFIXED))
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0,
                        "the database has no duplicates of fixed size");
    if (next) {
        code = move_next(c, LIO_MOVE_NEXT_DUP, out, error);
        if (code != LIO_OK)
            return code;
        if (!(c->sub.state & PLACED))
            return LIO_NOTFOUND;
        return whole_page(c, out, error);
    }
    if (leaf_of(&c->main)->index >= leaf_of(&c->main)->count)
        return LIO_NOTFOUND;
    code = here(c, &node, out, error);
    if (code != LIO_OK || !(node.flags & LIO_N_DUPDATA) || !(c->sub.state & PLACED) ||
        (c->sub.state & AT_END))
        return code;
    return whole_page(c, out, error);
}

/* Places the sub tree, or compares a lone value. */
static int match_value(lio_cursor *c, int exact, const uint8_t *data, size_t data_size,
                       const lio_node *node, lio_item *out, lio_error *error)
{
    int code, order;
    if (node->flags & LIO_N_DUPDATA) {
        code = sub_open(c, node, error);
        if (code == LIO_OK)
            code = tree_set(c, &c->sub, data, data_size, exact, error);
        return code == LIO_OK ? sub_item(c, out, error) : code;
    }
    if (out->data == NULL)
        return lio_fail(error, LIO_ERR_CORRUPT, out->where.offset, 0, out->where.length,
                        "a database of duplicates holds a value in overflow pages");
    order = lio_key_compare(duplicate_flags(c->main.db.flags), data, data_size, out->data,
                            (size_t)out->data_size);
    return order != 0 && (exact || order > 0) ? LIO_NOTFOUND : LIO_OK;
}

static int move_set(lio_cursor *c, uint32_t move, const uint8_t *key, size_t key_size,
                    const uint8_t *data, size_t data_size, lio_item *out, lio_error *error)
{
    int both = move == LIO_MOVE_BOTH || move == LIO_MOVE_BOTH_RANGE, code;
    lio_node node;
    if (both && !c->has_sub)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0, "the database has no duplicates");
    if (key_size == 0)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 1, 0, "an empty key");
    sub_unplace(c);
    code = tree_set(c, &c->main, key, key_size, move != LIO_MOVE_SET_RANGE, error);
    if (code != LIO_OK)
        return code;
    if (!both)
        return enter(c, TO_FIRST, out, error);
    code = here(c, &node, out, error);
    if (code == LIO_OK)
        code = match_value(c, move == LIO_MOVE_BOTH, data, data_size, &node, out, error);
    return code;
}

static int dispatch(lio_cursor *c, uint32_t move, const uint8_t *key, size_t key_size,
                    const uint8_t *data, size_t data_size, lio_item *out, lio_error *error)
{
    switch (move) {
    case LIO_MOVE_FIRST:
        return move_edge(c, TO_FIRST, out, error);
    case LIO_MOVE_LAST:
        return move_edge(c, TO_LAST, out, error);
    case LIO_MOVE_FIRST_DUP:
        return move_dup_edge(c, TO_FIRST, out, error);
    case LIO_MOVE_LAST_DUP:
        return move_dup_edge(c, TO_LAST, out, error);
    case LIO_MOVE_NEXT:
    case LIO_MOVE_NEXT_DUP:
    case LIO_MOVE_NEXT_NODUP:
        return move_next(c, move, out, error);
    case LIO_MOVE_PREV:
    case LIO_MOVE_PREV_DUP:
    case LIO_MOVE_PREV_NODUP:
        return move_prev(c, move, out, error);
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

int lio_cursor_move(lio_cursor *cursor, uint32_t move, const uint8_t *key, size_t key_size,
                    const uint8_t *data, size_t data_size, lio_item *out, lio_error *error)
{
    lio_item item;
    int code;
    memset(&item, 0, sizeof item);
    lio_pages_lock(cursor->pages);
    code = dispatch(cursor, move, key, key_size, data, data_size, &item, error);
    if (code == LIO_ERR_UNPLACED)
        (void)lio_fail(error, code, 0, 0, 0, "the cursor is not positioned");
    cursor->has_item = code == LIO_OK;
    cursor->item = item;
    if (code == LIO_OK && out != NULL)
        *out = item;
    lio_pages_unlock(cursor->pages);
    return code;
}

const lio_item *lio_cursor_item(const lio_cursor *cursor)
{
    return cursor->has_item ? &cursor->item : NULL;
}

static int count_values(lio_cursor *c, uint64_t *out, lio_error *error)
{
    tree *t = &c->main;
    lio_node node;
    int code;
    if (!c->has_sub)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, 0, 0, 0, "the database has no duplicates");
    if (!(t->state & PLACED))
        return lio_fail(error, LIO_ERR_UNPLACED, 0, 0, 0, "the cursor is not positioned");
    if (leaf_of(t)->index >= leaf_of(t)->count)
        return LIO_NOTFOUND;
    t->state &= ~(uint32_t)AT_END;
    code = level_node(t, leaf_of(t), &node, error);
    if (code != LIO_OK)
        return code;
    if ((node.flags & LIO_N_DUPDATA) && !(c->sub.state & PLACED))
        return lio_fail(error, LIO_ERR_UNPLACED, 0, 0, 0, "the cursor is not positioned");
    *out = node.flags & LIO_N_DUPDATA ? c->sub.db.entries : 1;
    return LIO_OK;
}

int lio_cursor_count(lio_cursor *cursor, uint64_t *out, lio_error *error)
{
    int code;
    lio_pages_lock(cursor->pages);
    code = count_values(cursor, out, error);
    lio_pages_unlock(cursor->pages);
    return code;
}

/* --- life ----------------------------------------------------------------------------- */

int lio_cursor_open(lio_pages *pages, const lio_db *db, lio_cursor **out, lio_error *error)
{
    lio_cursor *c = calloc(1, sizeof *c);
    if (c == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *c, 0, "no memory for a cursor");
    c->pages = pages;
    c->main.layout = *lio_pages_layout(pages);
    c->main.db = *db;
    c->has_sub = (db->flags & LIO_DB_DUPSORT) != 0;
    lio_pages_share(pages);
    *out = c;
    return LIO_OK;
}

static void tree_pin(tree *t)
{
    for (uint32_t i = 0; i < t->height; i++)
        if (t->stack[i].pin != NULL)
            lio_pin_add(t->stack[i].pin);
}

int lio_cursor_copy(lio_cursor *cursor, lio_cursor **out, lio_error *error)
{
    lio_cursor *c;
    int code = lio_cursor_open(cursor->pages, &cursor->main.db, &c, error);
    if (code != LIO_OK)
        return code;
    lio_pages_lock(cursor->pages);
    if (cursor->ahead != NULL) {
        code = lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0,
                        "a cursor that reads ahead is not copied");
    } else {
        c->main = cursor->main;
        c->sub = cursor->sub;
        tree_pin(&c->main);
        tree_pin(&c->sub);
    }
    lio_pages_unlock(cursor->pages);
    if (code != LIO_OK) {
        lio_cursor_close(c);
        return code;
    }
    *out = c;
    return LIO_OK;
}

void lio_cursor_close(lio_cursor *cursor)
{
    lio_pages *pages;
    if (cursor == NULL)
        return;
    pages = cursor->pages;
    lio_pages_lock(pages);
    ahead_free(cursor);
    tree_clear(&cursor->main);
    tree_clear(&cursor->sub);
    free(cursor);
    lio_pages_unlock(pages);
    lio_pages_close(pages);
}

lio_pages *lio_cursor_pages(lio_cursor *cursor)
{
    return cursor->pages;
}

const lio_layout *lio_cursor_layout(const lio_cursor *cursor)
{
    return &cursor->main.layout;
}
