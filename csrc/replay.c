#include "replay.h"

#include <stdlib.h>
#include <string.h>

#include "replay_space.h"

enum {
    KEY_BYTES_MAX = 511,
    NODES_FIRST = 4, /* that a page has memory for, doubled as need be */
    PAGES_FIRST = 64
};

/* --- the model ------------------------------------------------------------------------- */

typedef struct {
    uint32_t record; /* leaf: this; branch: the one whose key it has, unless it is the first */
    uint32_t child;  /* branch: a page of the model */
    uint16_t size;   /* bytes, even */
    uint16_t key_size;
    uint16_t at; /* bytes from the beginning of the page */
} node;

typedef struct {
    uint64_t pgno;
    uint64_t txnid; /* the last transaction that wrote to it */
    node *nodes;
    uint16_t count, room; /* nodes; how many there is memory for */
    uint32_t left;        /* free bytes */
    uint32_t upper;       /* where the lowest node begins */
    bool leaf;
} page;

struct lio_replay {
    lio_history how;
    const lio_extent *expected;
    lio_extent *out; /* until the end `offset` is a value's first page, NO_PAGE: it is in a leaf */
    lio_error *error;
    lio_sizes sizes;
    lio_space space;

    /* the tree with the records */
    lio_db db;
    page *pages;
    size_t page_room;
    uint32_t page_count;
    uint32_t root, path[LIO_DEPTH_MAX], index[LIO_DEPTH_MAX];
    uint64_t done, commit_at; /* records put, and those at the end of this transaction */
    bool db_dirty;            /* put to in this transaction */
    bool differs;             /* a value is not where it is expected */

    /* the one leaf of the main database, which holds the named one */
    uint64_t main_pgno, main_txnid;
};

typedef lio_replay writer;

static int no_memory(const writer *w)
{
    return lio_fail(w->error, LIO_ERR_NOMEM, 0, 0, 0, "no memory to replay a database");
}

static uint64_t length_of(const writer *w, uint64_t record)
{
    return w->how.lengths != NULL ? w->how.lengths[record] : w->how.length;
}

static uint16_t key_size_of(const writer *w, uint64_t record)
{
    return w->how.key_sizes != NULL ? w->how.key_sizes[record] : (uint16_t)w->how.key_size;
}

/* --- the tree -------------------------------------------------------------------------- */

static int page_make(writer *w, bool leaf, uint32_t *out)
{
    page made = {.leaf = leaf, .txnid = w->space.txnid};
    int code = lio_space_allocate(&w->space, 1, &made.pgno);
    if (code != LIO_OK)
        return code;
    made.left = (uint32_t)(w->sizes.page_size - w->sizes.header);
    made.upper = (uint32_t)w->sizes.page_size;
    if (w->page_count == w->page_room) {
        page *grown = lio_grown(w->pages, &w->page_room, w->page_count + 1u, PAGES_FIRST,
                                sizeof *grown);
        if (grown == NULL)
            return no_memory(w);
        w->pages = grown;
    }
    *out = w->page_count;
    w->pages[w->page_count++] = made;
    if (leaf)
        w->db.leaf_pages++;
    else
        w->db.branch_pages++;
    return LIO_OK;
}

/* Puts a node into a page that has room for it. */
static int node_add(writer *w, uint32_t where, uint32_t index, node added)
{
    page *p = &w->pages[where];
    if (added.size + (uint32_t)LIO_POINTER_BYTES > p->left)
        return lio_not_modelled(w->error, "a node does not fit where its page was split");
    if (p->count == p->room) {
        size_t room = p->room;
        node *grown = lio_grown(p->nodes, &room, p->count + 1u, NODES_FIRST, sizeof *grown);
        if (grown == NULL)
            return no_memory(w);
        p->nodes = grown;
        p->room = (uint16_t)room;
    }
    memmove(p->nodes + index + 1, p->nodes + index, (p->count - index) * sizeof *p->nodes);
    p->upper -= added.size;
    p->left -= added.size + (uint32_t)LIO_POINTER_BYTES;
    added.at = (uint16_t)p->upper;
    p->nodes[index] = added;
    p->count++;
    return LIO_OK;
}

/* The same for a record that is new: its overflow pages come with its node. */
static int record_add(writer *w, uint32_t where, uint32_t index, node added)
{
    uint64_t length = length_of(w, added.record), pages;
    lio_extent *value = &w->out[added.record];
    int code;
    if (!lio_overflows(&w->sizes, added.key_size, length))
        return node_add(w, where, index, added);
    pages = lio_overflow_pages(&w->sizes, length);
    code = lio_space_allocate(&w->space, pages, &value->offset);
    w->db.overflow_pages += pages;
    w->differs = w->expected != NULL && w->expected[added.record].offset !=
                                            value->offset * w->sizes.page_size + w->sizes.header;
    return code == LIO_OK ? node_add(w, where, index, added) : code;
}

static int any_add(writer *w, uint32_t where, uint32_t index, node added, bool fresh)
{
    return fresh && w->pages[where].leaf ? record_add(w, where, index, added)
                                         : node_add(w, where, index, added);
}

/* Bytes that a node takes on its page. */
static uint32_t taken(const node *n)
{
    return n->size + (uint32_t)LIO_POINTER_BYTES;
}

/* Pages of less nodes are split by the sizes of these. */
static uint32_t few_nodes(const writer *w)
{
    return w->how.split == LIO_SPLIT_BY_PAGE ? (uint32_t)w->sizes.page_size >> 7 : 20;
}

/* Where a page is split: the index, among its nodes and the new one, which takes `size` bytes, of the
 * right page's first. */
static uint32_t split_index(const writer *w, const page *p, uint32_t index, uint32_t size)
{
    const uint32_t space = (uint32_t)(w->sizes.page_size - w->sizes.header), count = p->count;
    uint32_t middle = (count + 1) / 2, bytes = 0, i, end;
    bool last = index >= count, forward = index <= middle || last;
    if (!(count < few_nodes(w) || size > space / 16 || last))
        return middle;
    end = !forward ? middle - 1 : last ? count : middle + 1 + (p->leaf ? 1 : 0);
    for (i = forward ? 0 : count; i != end; i = forward ? i + 1 : i - 1) {
        bytes += i == index ? size : taken(&p->nodes[i < index ? i : i - 1]);
        if (bytes > space || i == (forward ? end - 1 : end + 1))
            return forward ? i : i + 1;
    }
    return middle;
}

/* The same by the oldest rule: sizes decide only where the half that gets the new node of a leaf
 * would be too large with it. */
static uint32_t split_index_oldest(const writer *w, const page *p, uint32_t index, uint32_t size)
{
    const uint32_t space = (uint32_t)(w->sizes.page_size - w->sizes.header), count = p->count;
    const uint32_t middle = count / 2;
    const bool by_sizes = p->leaf && (count < few_nodes(w) || size > space / 16);
    uint32_t bytes = size, i;
    if (index > middle) {
        for (i = count; by_sizes && i-- > middle;)
            if ((bytes += taken(&p->nodes[i])) > space)
                return i >= index ? index + 1 : i + 1;
        return middle;
    }
    for (i = 0; by_sizes && i < middle; i++)
        if ((bytes += taken(&p->nodes[i])) > space)
            return i < index ? index : i + 1;
    return index < middle || by_sizes ? middle + 1 : middle;
}

/* Nothing more is put to a leaf: what it holds gets places in the file. */
static void settle(writer *w, page *p)
{
    for (uint32_t k = 0; k < p->count; k++) {
        const node *n = &p->nodes[k];
        lio_extent *e = &w->out[n->record];
        e->length = length_of(w, n->record);
        if (e->offset == LIO_NO_PAGE)
            e->offset = p->pgno * w->sizes.page_size + n->at + LIO_NODE_BYTES +
                        lio_in_node(&w->sizes, n->key_size);
        else
            e->offset = e->offset * w->sizes.page_size + w->sizes.header;
    }
    free(p->nodes);
    p->nodes = NULL;
    p->count = p->room = 0;
}

static int split(writer *w, uint32_t level, node added, bool append);

/* Makes the separator known to the parent, which is split itself where it is full. */
static int parent_add(writer *w, uint32_t level, node separator)
{
    uint32_t parent = level - 1, index = w->index[parent] + 1;
    uint64_t size = LIO_NODE_BYTES + (uint64_t)separator.key_size + LIO_POINTER_BYTES;
    separator.size = (uint16_t)lio_branch_node_bytes(&w->sizes, separator.key_size);
    if (w->pages[w->path[parent]].left >= (w->sizes.is_v3 ? lio_even(size) : size))
        return node_add(w, w->path[parent], index, separator);
    w->index[parent] = index;
    return split(w, parent, separator, false);
}

/* A new root above the page that is split. */
static int root_grow(writer *w)
{
    uint32_t made;
    int code = page_make(w, false, &made);
    if (code != LIO_OK)
        return code;
    if (w->db.depth == LIO_DEPTH_MAX)
        return lio_not_modelled(w->error, "the tree is too deep");
    code = node_add(w, made, 0, (node){.child = w->root, .size = LIO_NODE_BYTES});
    memmove(w->path + 1, w->path, w->db.depth * sizeof w->path[0]);
    memmove(w->index + 1, w->index, w->db.depth * sizeof w->index[0]);
    w->path[0] = w->root = made;
    w->index[0] = 0;
    w->db.depth++;
    return code;
}

/* Moves the nodes from `at` on, `added` among them at `index`, to the page `right`; what stays is
 * packed anew. */
static int nodes_move(writer *w, uint32_t from, uint32_t right, uint32_t at, uint32_t index,
                      node added)
{
    page old = w->pages[from];
    page *left = &w->pages[from];
    int code = LIO_OK;
    left->nodes = NULL;
    left->count = left->room = 0;
    left->left = (uint32_t)(w->sizes.page_size - w->sizes.header);
    left->upper = (uint32_t)w->sizes.page_size;
    /* The right page first: LMDB allocates what is new in this order. */
    for (uint32_t half = 0; half < 2 && code == LIO_OK; half++) {
        uint32_t begin = half == 0 ? at : 0, end = half == 0 ? old.count + 1u : at;
        for (uint32_t i = begin; i < end && code == LIO_OK; i++) {
            bool fresh = i == index;
            node moved = fresh ? added : old.nodes[i < index ? i : i - 1];
            if (!old.leaf && i == begin) { /* needs no key */
                moved.key_size = 0;
                moved.size = LIO_NODE_BYTES;
            }
            code = any_add(w, half == 0 ? right : from, i - begin, moved, fresh);
        }
    }
    free(old.nodes);
    return code;
}

/* Splits the page at `level` of the path, to which `added` is to go at the index there. */
static int split(writer *w, uint32_t level, node added, bool append)
{
    uint32_t depth = w->db.depth, index = w->index[level], from = w->path[level];
    uint32_t right, size, at;
    node separator;
    int code = page_make(w, w->pages[from].leaf, &right);
    if (code == LIO_OK && level == 0)
        code = root_grow(w);
    if (code != LIO_OK)
        return code;
    level += (uint32_t)w->db.depth - depth;
    size = w->pages[from].leaf ? (uint32_t)lio_leaf_wants_bytes(&w->sizes, added.key_size,
                                                                length_of(w, added.record))
                               : taken(&added);
    if (append)
        at = index;
    else if (w->how.split == LIO_SPLIT_OLDEST)
        at = split_index_oldest(w, &w->pages[from], index, size);
    else
        at = split_index(w, &w->pages[from], index, size);
    separator = at == index ? added : w->pages[from].nodes[at < index ? at : at - 1];
    separator.child = right;
    if (w->pages[from].leaf)
        separator.key_size = key_size_of(w, separator.record);
    code = parent_add(w, level, separator);
    if (code != LIO_OK)
        return code;
    code = append ? any_add(w, right, 0, added, true)
                  : nodes_move(w, from, right, at, index, added);
    if (code == LIO_OK && w->how.order == NULL && w->pages[from].leaf)
        settle(w, &w->pages[from]); /* in key order what comes goes to its right */
    return code;
}

/* Descends to where `record` belongs, copying on write; the index there. */
static int descend(writer *w, uint32_t record, uint32_t *index)
{
    uint32_t at = w->root;
    for (uint32_t level = 0;; level++) {
        page *p = &w->pages[at];
        uint32_t low = p->leaf ? 0 : 1, high = p->count;
        int code = lio_space_touch(&w->space, &p->pgno, &p->txnid);
        if (code != LIO_OK)
            return code;
        if (high > 0 && p->nodes[high - 1].record < record) /* most often */
            low = high;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (p->nodes[middle].record <= record)
                low = middle + 1;
            else
                high = middle;
        }
        w->path[level] = at;
        w->index[level] = p->leaf ? low : low - 1;
        if (p->leaf) {
            *index = low;
            return LIO_OK;
        }
        at = p->nodes[low - 1].child;
    }
}

static int put(writer *w, uint32_t record)
{
    uint16_t key_size = key_size_of(w, record);
    uint64_t size = lio_leaf_node_bytes(&w->sizes, key_size, length_of(w, record));
    node added = {.record = record, .size = (uint16_t)size, .key_size = key_size};
    uint32_t index = 0;
    int code = LIO_OK;
    w->out[record].offset = LIO_NO_PAGE;
    if (w->db.depth == 0) {
        code = page_make(w, true, &w->root);
        w->path[0] = w->root;
        w->index[0] = 0;
        w->db.depth = 1;
    } else {
        if (w->how.named && !w->db_dirty)
            code = lio_space_touch(&w->space, &w->main_pgno, &w->main_txnid);
        if (code == LIO_OK)
            code = descend(w, record, &index);
    }
    w->db_dirty = true;
    if (code != LIO_OK)
        return code;
    w->db.entries++;
    if (w->pages[w->path[w->db.depth - 1]].left <
        lio_leaf_wants_bytes(&w->sizes, key_size, length_of(w, record)))
        return split(w, w->db.depth - 1u, added, w->how.append != 0);
    return record_add(w, w->path[w->db.depth - 1], index, added);
}

/* --- transactions ---------------------------------------------------------------------- */

/* Makes the named database in the first one. */
static int begin(writer *w)
{
    lio_space_begin(&w->space);
    w->db_dirty = false;
    if (!w->how.named || w->space.txnid > 1)
        return LIO_OK;
    w->main_txnid = w->space.txnid;
    return lio_space_allocate(&w->space, 1, &w->main_pgno);
}

static int commit(writer *w)
{
    int code = LIO_OK;
    if (w->how.named)
        code = lio_space_touch(&w->space, &w->main_pgno, &w->main_txnid);
    return code == LIO_OK ? lio_space_save(&w->space) : code;
}

/* The record that is put as number `turn`. */
static uint32_t record_of(const writer *w, uint64_t turn)
{
    return w->how.order != NULL ? w->how.order[turn] : (uint32_t)turn;
}

/* The next transaction that records are put in. */
static int begin_puts(writer *w)
{
    uint64_t rest = w->how.count - w->done;
    int code = LIO_OK;
    w->commit_at = w->done + (rest < w->how.commit_every ? rest : w->how.commit_every);
    if (w->how.named && w->how.apart && w->space.txnid == 0) {
        code = begin(w);
        if (code == LIO_OK)
            code = commit(w);
    }
    return code == LIO_OK ? begin(w) : code;
}

int lio_replay_run(lio_replay *replay, uint64_t records, uint64_t *left, lio_error *error)
{
    writer *w = replay;
    const uint64_t rest = w->how.count - w->done;
    const uint64_t end = w->done + (rest < records ? rest : records);
    int code = LIO_OK;
    w->error = w->space.error = error;
    while (w->done < end && code == LIO_OK && !w->differs) {
        if (w->done == w->commit_at)
            code = begin_puts(w);
        if (code == LIO_OK)
            code = put(w, record_of(w, w->done));
        w->done += !w->differs;
        if (code == LIO_OK && w->done == w->commit_at)
            code = commit(w);
    }
    if (code == LIO_OK)
        *left = w->differs ? 0 : w->how.count - w->done;
    return code;
}

/* --- before and after ------------------------------------------------------------------ */

static int check(const writer *w)
{
    const lio_history *how = &w->how;
    uint8_t *seen;
    bool fine = true;
    if ((how->version != LIO_FORMAT_V1 && how->version != LIO_FORMAT_V3) ||
        how->page_size < LIO_PAGE_SIZE_MIN || how->page_size > LIO_PAGE_SIZE_MAX ||
        (how->page_size & (how->page_size - 1)) != 0 || how->count == 0 ||
        how->count >= UINT32_MAX || how->commit_every == 0 || how->split > LIO_SPLIT_OLDEST)
        return lio_fail(w->error, LIO_ERR_ARGUMENT, 0, 0, 0, "no history of an LMDB database");
    if (how->key_sizes == NULL && how->key_size > KEY_BYTES_MAX)
        fine = false;
    for (uint64_t i = 0; i < how->count && fine; i++) {
        uint64_t key = key_size_of(w, i), length = length_of(w, i);
        fine = key > 0 && key <= KEY_BYTES_MAX && length < UINT32_MAX &&
               LIO_NODE_BYTES + lio_even(key) + w->sizes.in_overflow <= w->sizes.node_max;
        if (how->key_sizes == NULL && how->lengths == NULL)
            break;
    }
    if (!fine)
        return lio_fail(w->error, LIO_ERR_ARGUMENT, 0, 0, 0, "a key or value of impossible size");
    if (how->order == NULL)
        return LIO_OK;
    seen = calloc((size_t)how->count, 1);
    if (seen == NULL)
        return no_memory(w);
    for (uint64_t i = 0; i < how->count && fine; i++) {
        fine = how->order[i] < how->count && seen[how->order[i]] == 0;
        if (fine)
            seen[how->order[i]] = 1;
    }
    free(seen);
    return fine ? LIO_OK
                : lio_fail(w->error, LIO_ERR_ARGUMENT, 0, 0, 0, "an order that is no permutation");
}

static void places(writer *w)
{
    for (uint32_t i = 0; i < w->page_count; i++)
        if (w->pages[i].leaf)
            settle(w, &w->pages[i]);
}

static void tell(const writer *w, lio_replayed *end)
{
    memset(end, 0, sizeof *end);
    end->txnid = w->space.txnid;
    end->last_pgno = w->space.next_pgno - 1;
    end->db = w->db;
    end->db.root = w->pages[w->root].pgno;
    end->main_db = end->db;
    if (w->how.named)
        end->main_db = (lio_db){.depth = 1, .leaf_pages = 1, .entries = 1, .root = w->main_pgno};
    lio_space_record(&w->space, &end->free_db);
}

/* How many puts, from the first on, were to where they are expected. */
static uint64_t count_right(const writer *w)
{
    uint64_t right = 0;
    while (w->expected != NULL && right < w->how.count) {
        const lio_extent *is = &w->out[record_of(w, right)], *was = &w->expected[is - w->out];
        if (is->offset != was->offset || is->length != was->length)
            return right;
        right++;
    }
    return w->how.count;
}

int lio_replay_open(const lio_history *history, const lio_extent *expected, lio_extent *out,
                    lio_replay **replay, lio_error *error)
{
    writer *w = malloc(sizeof *w);
    int code;
    if (w == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, 0, 0, "no memory to replay a database");
    *w = (writer){.how = *history, .expected = expected, .out = out, .error = error};
    lio_sizes_of(history->version, history->page_size, &w->sizes);
    lio_space_open(&w->sizes, error, &w->space);
    code = check(w);
    if (code == LIO_OK)
        *replay = w;
    else
        lio_replay_close(w);
    return code;
}

void lio_replay_end(lio_replay *replay, lio_replayed *end)
{
    writer *w = replay;
    uint64_t right = w->done;
    if (!w->differs) {
        places(w);
        tell(w, end);
        right = count_right(w);
    }
    end->right = right;
}

void lio_replay_close(lio_replay *replay)
{
    if (replay == NULL)
        return;
    for (uint32_t i = 0; i < replay->page_count; i++)
        free(replay->pages[i].nodes);
    free(replay->pages);
    lio_space_close(&replay->space);
    free(replay);
}

void lio_replay_capacities(const lio_history *history, uint64_t *leaf, uint64_t *branch)
{
    lio_sizes z;
    uint64_t space, each;
    lio_sizes_of(history->version, history->page_size, &z);
    space = z.page_size - z.header;
    each = lio_leaf_node_bytes(&z, history->key_size, history->length) + LIO_POINTER_BYTES;
    *leaf = space / each;
    each = lio_branch_node_bytes(&z, history->key_size) + LIO_POINTER_BYTES;
    *branch = 1 + (space - LIO_NODE_BYTES - LIO_POINTER_BYTES) / each;
}
