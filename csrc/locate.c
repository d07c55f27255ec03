#include "locate.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "contract.h"
#include "engine_stats.h"

enum {
    CHUNK_PAGES_DEFAULT = 1024,
    CHUNK_PAGES_MAX = 65536,
    MEMORY_ALIGNMENT = 4096,
    META_LOOKS_MAX = 1000,   /* each takes as long as what a writer does to the page      */
    META_FIRST_BYTES = 8192, /* both metas of the usual pages of 4 KiB                    */
    READ_BYTES_MAX = 1 << 20 /* pages that happen to be neighbours share a read up to here */
};

/* Pages of one level, read or being read. */
typedef struct {
    uint8_t *pages;
    uint64_t *pgnos;
    uint32_t *trees; /* which each belongs to */
    uint32_t count;
    lio_ticket *ticket; /* NULL: all there */
} batch;

typedef struct {
    batch current, ahead;
    uint32_t page, index; /* the next child to follow, in `current` */
    uint32_t tree;        /* whose pages come next on this level */
} level;

/* Counts that a tree should hold, and those seen of it. */
typedef struct {
    lio_db db;
    uint64_t branch_pages, leaf_pages, entries;
} tree;

struct lio_walk {
    lio_engine *engine; /* borrowed */
    lio_layout layout;
    tree *trees;
    uint32_t tree_count, ended; /* trees that were seen whole */
    uint32_t chunk_pages, depth;
    uint64_t limit;   /* first page number past the file or the pages in use */
    uint8_t *visited; /* a bit per page below `limit` */
    bool shares;      /* `visited` is another walk's */
    lio_read *reads;  /* chunk_pages, scratch of submit */
    level levels[LIO_DEPTH_MAX];
};

/* --- meta ---------------------------------------------------------------------------- */

/* The first `length` bytes hold both metas unless pages are larger than half of that. */
static int read_head(lio_engine *engine, uint8_t *head, uint64_t length, uint64_t txnid,
                     lio_meta *out, lio_error *error)
{
    uint64_t size = 0;
    lio_read read = {.offset = 0, .length = length, .into = head};
    int code = lio_engine_size(engine, &size, error);
    if (code != LIO_OK)
        return code;
    /* The file may shrink between stat and read; then the read says so. */
    read.needed = size < length ? size : length;
    code = lio_engine_read(engine, &read, 1, error);
    lio_engine_count(engine, &(lio_tally){.page_requests = 1, .page_bytes = length});
    if (code == LIO_OK)
        code = lio_meta_parse(head, read.needed, size, txnid, out, error);
    return code;
}

static bool same_meta(const lio_meta *meta, const uint8_t *one, const uint8_t *other)
{
    uint64_t at = meta->slot * (uint64_t)meta->layout.page_size + meta->layout.header_size;
    return memcmp(one + at, other + at, LIO_META_BODY_BYTES) == 0;
}

/* A read of the kernel's and a writer's write are not ordered: databases of before and a transaction
 * of after may come together. LMDB writes the transaction last, so that who sees it and then looks
 * again sees its databases, too. Together they may look damaged; what is damaged is so twice. */
static int read_metas(lio_engine *engine, uint64_t length, uint64_t txnid, lio_meta *out,
                      lio_error *error)
{
    uint8_t *head = aligned_alloc(MEMORY_ALIGNMENT, 2 * length), *again = head + length;
    lio_meta found;
    int code = LIO_OK;
    if (head == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, length, 0, "no memory for meta pages");
    memset(head, 0, 2 * length);
    for (int look = 0; look < META_LOOKS_MAX && code == LIO_OK; look++) {
        code = read_head(engine, head, length, txnid, &found, error);
        if (code == LIO_ERR_CORRUPT && memcmp(head, again, length) != 0) {
            memcpy(again, head, length);
            code = LIO_OK;
            continue;
        }
        if (code == LIO_OK && found.layout.page_size > length / 2)
            code = lio_fail(error, LIO_ERR_CORRUPT, 0, length, 0,
                            "its pages are larger than that");
        bool again_is_due = code == LIO_OK && !lio_engine_keeps_state(engine);
        if (again_is_due)
            code = lio_meta_newest(engine, &found.layout, again, NULL, error);
        if (code == LIO_OK && (!again_is_due || same_meta(&found, head, again))) {
            *out = found;
            goto done;
        }
    }
    if (code == LIO_OK)
        code = lio_fail(error, LIO_ERR_CHANGED, 0, 0, 0,
                        "was committed to while it was opened, %d times; open it again",
                        META_LOOKS_MAX);
done:
    free(head);
    return code;
}

/* Little is read for the usual page sizes: a whole tree may be smaller than the rest, and memory for
 * the rest takes the kernel longer than the reads. */
int lio_meta_read(lio_engine *engine, uint64_t txnid, lio_meta *out, lio_error *error)
{
    lio_error first;
    int code = read_metas(engine, META_FIRST_BYTES, txnid, out, &first);
    if (code != LIO_OK)
        code = read_metas(engine, LIO_META_BYTES, txnid, out, error);
    return code;
}

int lio_meta_newest(lio_engine *engine, const lio_layout *layout, uint8_t *into, uint64_t *txnid,
                    lio_error *error)
{
    uint64_t bytes = 2 * (uint64_t)layout->page_size;
    uint64_t span = lio_round_up(bytes, lio_engine_alignment(engine));
    uint8_t *head = aligned_alloc(MEMORY_ALIGNMENT, lio_round_up(span, MEMORY_ALIGNMENT));
    lio_read read = {.offset = 0, .length = span, .needed = bytes, .into = head};
    int code;
    if (head == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, span, 0, "no memory for meta pages");
    code = lio_engine_read(engine, &read, 1, error);
    lio_engine_count(engine, &(lio_tally){.page_requests = 1, .page_bytes = span});
    if (code == LIO_OK && txnid != NULL)
        code = lio_meta_txnid(layout, head, txnid, error);
    if (code == LIO_OK && into != NULL)
        memcpy(into, head, bytes);
    free(head);
    return code;
}

/* --- the walk ------------------------------------------------------------------------ */

static void batch_free(batch *pages)
{
    lio_ticket_free(pages->ticket);
    free(pages->pages);
    free(pages->pgnos);
    free(pages->trees);
}

static int batch_make(batch *out, const lio_walk *walk, uint32_t capacity, lio_error *error)
{
    size_t bytes = lio_round_up((uint64_t)capacity * walk->layout.page_size, MEMORY_ALIGNMENT);
    out->pages = aligned_alloc(MEMORY_ALIGNMENT, bytes);
    out->pgnos = calloc(capacity, sizeof *out->pgnos);
    out->trees = calloc(capacity, sizeof *out->trees);
    if (out->pages == NULL || out->pgnos == NULL || out->trees == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, bytes, 0, "no memory to walk a tree");
    return LIO_OK;
}

static uint32_t level_capacity(const lio_walk *walk, uint32_t depth)
{
    return depth == 0 && walk->tree_count == 1 ? 1 : walk->chunk_pages;
}

void lio_walk_close(lio_walk *walk)
{
    if (walk == NULL)
        return;
    for (uint32_t i = 0; i < walk->depth; i++) {
        batch_free(&walk->levels[i].current);
        batch_free(&walk->levels[i].ahead);
    }
    free(walk->reads);
    if (!walk->shares)
        free(walk->visited);
    free(walk->trees);
    free(walk);
}

static uint32_t tree_depth(const lio_db *db)
{
    return db->root == UINT64_MAX ? 0 : db->depth;
}

static int plant(lio_walk *walk, const lio_db *dbs, uint32_t count, lio_error *error)
{
    walk->trees = calloc((size_t)count + 1, sizeof *walk->trees);
    if (walk->trees == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory to walk %" PRIu32 " trees",
                        count);
    walk->tree_count = count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t depth = tree_depth(&dbs[i]);
        if (depth > LIO_DEPTH_MAX)
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, LIO_DEPTH_MAX, depth,
                            "impossible depth of a tree to walk");
        walk->trees[i].db = dbs[i];
        walk->depth = depth > walk->depth ? depth : walk->depth;
    }
    return LIO_OK;
}

/* No chunk need hold more pages than there are: small databases stay small. */
static uint32_t clip_chunk(const lio_walk *walk, uint32_t chunk_pages)
{
    uint64_t branches = 0, leaves = 0, pages;
    for (uint32_t i = 0; i < walk->tree_count; i++) {
        branches = lio_add_saturated(branches, walk->trees[i].db.branch_pages);
        leaves = lio_add_saturated(leaves, walk->trees[i].db.leaf_pages);
    }
    pages = leaves > branches ? leaves : branches;
    pages = pages < walk->limit ? pages : walk->limit;
    pages = pages > 0 ? pages : 1;
    return pages < chunk_pages ? (uint32_t)pages : chunk_pages;
}

static int walk_allocate(lio_walk *walk, const lio_walk *beside, lio_error *error)
{
    int code = LIO_OK;
    walk->shares = beside != NULL;
    walk->visited = beside != NULL ? beside->visited : calloc((size_t)(walk->limit / 8 + 1), 1);
    walk->reads = calloc(walk->chunk_pages, sizeof *walk->reads);
    if (walk->visited == NULL || walk->reads == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, walk->limit / 8, 0, "no memory to walk a tree");
    for (uint32_t i = 0; i < walk->depth && code == LIO_OK; i++) {
        code = batch_make(&walk->levels[i].current, walk, level_capacity(walk, i), error);
        if (code == LIO_OK)
            code = batch_make(&walk->levels[i].ahead, walk, level_capacity(walk, i), error);
    }
    return code;
}

int lio_walk_open(lio_engine *engine, const lio_meta *meta, const lio_db *dbs, uint32_t count,
                  const lio_walk *beside, uint32_t chunk_pages, lio_walk **out, lio_error *error)
{
    const lio_layout *layout = &meta->layout;
    lio_walk *walk = NULL;
    uint64_t size = 0;
    int code;
    if (chunk_pages > CHUNK_PAGES_MAX || layout->page_size < LIO_PAGE_SIZE_MIN ||
        layout->page_size > LIO_PAGE_SIZE_MAX)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, CHUNK_PAGES_MAX, chunk_pages,
                        "impossible arguments for a walk");
    if (layout->page_size % lio_engine_alignment(engine) != 0)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, lio_engine_alignment(engine),
                        layout->page_size,
                        "pages of %" PRIu32 " bytes cannot be read through an aligned engine",
                        layout->page_size);
    code = lio_engine_size(engine, &size, error);
    if (code != LIO_OK)
        return code;
    walk = calloc(1, sizeof *walk);
    if (walk == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, sizeof *walk, 0, "no memory to walk a tree");
    walk->engine = engine;
    walk->layout = *layout;
    walk->limit = beside != NULL ? beside->limit : size / layout->page_size + 1;
    if (walk->limit > layout->page_limit)
        walk->limit = layout->page_limit;
    code = plant(walk, dbs, count, error);
    walk->chunk_pages = clip_chunk(walk, chunk_pages > 0 ? chunk_pages : CHUNK_PAGES_DEFAULT);
    if (code == LIO_OK)
        code = walk_allocate(walk, beside, error);
    else
        walk->depth = 0;
    if (code != LIO_OK) {
        lio_walk_close(walk);
        return code;
    }
    *out = walk;
    return LIO_OK;
}

/* Notes that `pgno` is visited, once. */
static int visit(lio_walk *walk, uint64_t pgno, lio_error *error)
{
    uint64_t offset = pgno < walk->layout.page_limit ? pgno * walk->layout.page_size : 0;
    if (pgno < 2 || pgno >= walk->layout.page_limit)
        return lio_fail(error, LIO_ERR_CORRUPT, offset, walk->layout.page_limit, pgno,
                        "a branch leads to page %" PRIu64 ", outside the %" PRIu64 " pages in use",
                        pgno, walk->layout.page_limit);
    if (pgno >= walk->limit)
        return lio_fail(error, LIO_ERR_SHORT, offset, walk->layout.page_size, 0,
                        "the file ends before page %" PRIu64, pgno);
    if (walk->visited[pgno / 8] & (1u << (pgno % 8)))
        return lio_fail(error, LIO_ERR_CORRUPT, offset, 0, pgno,
                        "page %" PRIu64 " is reached twice", pgno);
    walk->visited[pgno / 8] |= (uint8_t)(1u << (pgno % 8));
    return LIO_OK;
}

/* The next page that `parent` names for `number`, the tree whose children are wanted.
 * LIO_NOTFOUND: it has none left. LIO_PENDING: the parent's next pages will say. */
static int next_child(const lio_walk *walk, level *parent, uint32_t number, uint64_t *pgno,
                      lio_error *error)
{
    const batch *from = &parent->current;
    for (; parent->page < from->count; parent->page++, parent->index = 0) {
        const uint8_t *page = from->pages + (size_t)parent->page * walk->layout.page_size;
        lio_node node;
        int code;
        if (from->trees[parent->page] != number)
            return LIO_NOTFOUND;
        if (parent->index >= lio_page_count(&walk->layout, page))
            continue;
        code = lio_page_node(&walk->layout, page, from->pgnos[parent->page], parent->index++,
                             &node, error);
        *pgno = node.child;
        return code;
    }
    return parent->tree > number && parent->ahead.ticket == NULL ? LIO_NOTFOUND : LIO_PENDING;
}

/* Collects a level's next pages: in the order of the trees the roots of those that begin here, and
 * of deeper ones what the level above names. As many as it knows of, and none is no error. */
static int gather(lio_walk *walk, uint32_t depth, lio_error *error)
{
    level *at = &walk->levels[depth];
    batch *into = &at->ahead;
    LIO_ASSERT(into->ticket == NULL); /* nobody fills it any more */
    into->count = 0;
    while (at->tree < walk->tree_count && into->count < level_capacity(walk, depth)) {
        const lio_db *db = &walk->trees[at->tree].db;
        uint32_t number = at->tree, below = walk->depth - depth;
        uint64_t pgno = db->root;
        int code = LIO_NOTFOUND;
        LIO_ASSERT(depth > 0 || tree_depth(db) <= below); /* a level above names children */
        if (tree_depth(db) > below)
            code = next_child(walk, at - 1, number, &pgno, error);
        else if (tree_depth(db) == below)
            code = LIO_OK;
        if (code == LIO_PENDING)
            return LIO_OK;
        if (code == LIO_NOTFOUND || tree_depth(db) == below)
            at->tree++;
        if (code == LIO_NOTFOUND)
            continue;
        if (code == LIO_OK)
            code = visit(walk, pgno, error);
        if (code != LIO_OK)
            return code;
        LIO_ASSERT(into->count == 0 || into->trees[into->count - 1] <= number);
        into->trees[into->count] = number;
        into->pgnos[into->count++] = pgno;
    }
    return LIO_OK;
}

/* Requests all pages of a batch at once; neighbours in the file share a read. */
static int submit(lio_walk *walk, batch *pages, lio_error *error)
{
    uint32_t page_size = walk->layout.page_size;
    size_t count = 0;
    LIO_ASSERT(pages->ticket == NULL && pages->count <= walk->chunk_pages);
    for (uint32_t i = 0; i < pages->count; i++) {
        lio_read *last = count > 0 ? &walk->reads[count - 1] : NULL;
        uint64_t offset = pages->pgnos[i] * page_size;
        if (last != NULL && last->offset + last->length == offset &&
            last->length + page_size <= READ_BYTES_MAX) {
            last->length += page_size;
            last->needed = last->length;
        } else {
            walk->reads[count++] = (lio_read){.offset = offset,
                                              .length = page_size,
                                              .needed = page_size,
                                              .into = pages->pages + (size_t)i * page_size};
        }
    }
    lio_engine_count(walk->engine, &(lio_tally){.page_requests = count,
                                                .page_bytes = (uint64_t)pages->count * page_size});
    return lio_engine_submit(walk->engine, walk->reads, count, &pages->ticket, error);
}

/* A tree was seen whole: its totals must be its record's. A record with duplicates also counts
 * those of its keys, and their pages. */
static int check_totals(const tree *seen, lio_error *error)
{
    const lio_db *db = &seen->db;
    if (db->flags & LIO_DB_DUPSORT)
        return LIO_OK;
    if (seen->branch_pages != db->branch_pages || seen->leaf_pages != db->leaf_pages)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, db->branch_pages + db->leaf_pages,
                        seen->branch_pages + seen->leaf_pages,
                        "the tree has %" PRIu64 " branch and %" PRIu64
                        " leaf pages, its record says %" PRIu64 " and %" PRIu64,
                        seen->branch_pages, seen->leaf_pages, db->branch_pages, db->leaf_pages);
    if (seen->entries != db->entries)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, db->entries, seen->entries,
                        "the leaves hold %" PRIu64 " records, the database record says %" PRIu64,
                        seen->entries, db->entries);
    return LIO_OK;
}

/* All trees before `number` were seen whole. */
static int end_trees(lio_walk *walk, uint32_t number, lio_error *error)
{
    int code = LIO_OK;
    LIO_ASSERT(number <= walk->tree_count);
    for (; walk->ended < number && code == LIO_OK; walk->ended++)
        code = check_totals(&walk->trees[walk->ended], error);
    return code;
}

static int count_page(tree *seen, const lio_layout *layout, const uint8_t *page, bool leaf,
                      lio_error *error)
{
    uint64_t *counter = leaf ? &seen->leaf_pages : &seen->branch_pages;
    uint64_t allowed = leaf ? seen->db.leaf_pages : seen->db.branch_pages;
    if (++*counter > allowed)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, allowed, *counter,
                        "the tree has more than the %" PRIu64 " %s pages of its record", allowed,
                        leaf ? "leaf" : "branch");
    if (leaf)
        seen->entries += lio_page_count(layout, page);
    return LIO_OK;
}

/* Checks the pages that have arrived and keeps the totals. */
static int accept(lio_walk *walk, uint32_t depth, const batch *pages, lio_error *error)
{
    bool leaf = depth + 1 == walk->depth;
    for (uint32_t i = 0; i < pages->count; i++) {
        const uint8_t *page = pages->pages + (size_t)i * walk->layout.page_size;
        LIO_ASSERT(pages->trees[i] < walk->tree_count && walk->ended <= pages->trees[i]);
        int code = lio_page_check(&walk->layout, page, pages->pgnos[i],
                                  leaf ? LIO_P_LEAF : LIO_P_BRANCH, error);
        if (code == LIO_OK)
            code = count_page(&walk->trees[pages->trees[i]], &walk->layout, page, leaf, error);
        if (code == LIO_OK && leaf)
            code = end_trees(walk, pages->trees[i], error);
        if (code != LIO_OK)
            return code;
    }
    return LIO_OK;
}

/* Starts the next chunk of a level, if it is known what that is. */
static int begin(lio_walk *walk, uint32_t depth, lio_error *error)
{
    int code = gather(walk, depth, error);
    batch *ahead = &walk->levels[depth].ahead;
    return code != LIO_OK || ahead->count == 0 ? code : submit(walk, ahead, error);
}

/* Chooses what to read next, the deepest level that knows of something, and starts it unless it is
 * under way. `*depth` is the walk's when nothing is left. A level that has passed a tree may tell
 * those below it, with no page to read, that there is no more of it. */
static int start_next(lio_walk *walk, uint32_t *depth, lio_error *error)
{
    bool passed = true;
    while (passed) {
        passed = false;
        for (uint32_t i = walk->depth; i-- > 0;) {
            level *at = &walk->levels[i];
            uint32_t number = at->tree;
            int code = at->ahead.ticket != NULL ? LIO_OK : begin(walk, i, error);
            *depth = i;
            if (code != LIO_OK || at->ahead.ticket != NULL)
                return code;
            passed = passed || at->tree != number;
        }
    }
    *depth = walk->depth;
    return LIO_OK;
}

/* Waits for what is under way on a level and makes it the level's current chunk. */
static int finish(lio_walk *walk, uint32_t depth, int timeout_ms, lio_error *error)
{
    level *at = &walk->levels[depth];
    batch arrived;
    LIO_ASSERT(at->ahead.ticket != NULL); /* start_next has begun it */
    int code = lio_ticket_wait(at->ahead.ticket, timeout_ms, error);
    if (code != LIO_OK)
        return code;
    lio_ticket_free(at->ahead.ticket);
    at->ahead.ticket = NULL;
    code = accept(walk, depth, &at->ahead, error);
    if (code != LIO_OK)
        return code;
    arrived = at->ahead;
    at->ahead = at->current;
    at->current = arrived;
    at->page = at->index = 0;
    return LIO_OK;
}

int lio_walk_next(lio_walk *walk, int timeout_ms, lio_chunk *out, lio_error *error)
{
    uint32_t depth;
    const batch *arrived;
    int code = start_next(walk, &depth, error);
    if (code != LIO_OK)
        return code;
    if (depth == walk->depth) {
        code = end_trees(walk, walk->tree_count, error);
        if (code == LIO_OK)
            memset(out, 0, sizeof *out);
        return code;
    }
    code = finish(walk, depth, timeout_ms, error);
    if (code == LIO_OK && depth + 1 == walk->depth)
        code = begin(walk, depth, error); /* read on while these leaves are used */
    if (code != LIO_OK)
        return code;
    arrived = &walk->levels[depth].current;
    *out = (lio_chunk){.pages = arrived->pages,
                       .pgnos = arrived->pgnos,
                       .trees = arrived->trees,
                       .count = arrived->count,
                       .level = depth,
                       .height = walk->depth - depth - 1};
    return LIO_OK;
}

/* --- leaves -------------------------------------------------------------------------- */

size_t lio_leaves_entries(const lio_layout *layout, const uint8_t *pages, uint32_t count)
{
    size_t entries = 0;
    for (uint32_t i = 0; i < count; i++)
        entries += lio_page_count(layout, pages + (size_t)i * layout->page_size);
    return entries;
}

int lio_leaves_extents(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                       uint32_t count, lio_extent *out, uint32_t *overflow_pages, size_t capacity,
                       size_t *made, lio_error *error)
{
    size_t n = 0;
    if (capacity < lio_leaves_entries(layout, pages, count))
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, lio_leaves_entries(layout, pages, count),
                        capacity, "no room for the records of these leaves");
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *page = pages + (size_t)i * layout->page_size;
        uint32_t nodes = lio_page_count(layout, page);
        if (lio_page_flags(layout, page) & LIO_P_LEAF2)
            return lio_fail(error, LIO_ERR_CORRUPT, pgnos[i] * layout->page_size, 0, pgnos[i],
                            "page %" PRIu64 " holds fixed-size duplicates, not records", pgnos[i]);
        for (uint32_t j = 0; j < nodes; j++, n++) {
            lio_node node;
            uint64_t owned = 0;
            int code = lio_page_node(layout, page, pgnos[i], j, &node, error);
            if (code == LIO_OK)
                code = lio_node_extent(layout, page, pgnos[i], &node, &out[n], &owned, error);
            if (code != LIO_OK)
                return code;
            if (overflow_pages != NULL)
                overflow_pages[n] = owned > UINT32_MAX ? UINT32_MAX : (uint32_t)owned;
        }
    }
    *made = n;
    return LIO_OK;
}

/* --- named databases ----------------------------------------------------------------- */

static int node_database(const lio_layout *layout, const uint8_t *page, uint64_t pgno,
                         const lio_node *node, lio_db *out, lio_error *error)
{
    uint64_t offset = pgno * layout->page_size + (uint64_t)(node->data - page);
    return lio_db_parse(layout, node->data, node->data_size, offset, out, error);
}

int lio_leaves_database(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                        uint32_t count, uint32_t *page, uint32_t *index, lio_node *node,
                        lio_db *out, lio_error *error)
{
    for (; *page < count; ++*page, *index = 0) {
        const uint8_t *at = pages + (size_t)*page * layout->page_size;
        if (lio_page_flags(layout, at) & LIO_P_LEAF2)
            continue;
        while (*index < lio_page_count(layout, at)) {
            lio_node found;
            uint32_t number = (*index)++;
            int code;
            if (lio_page_node_flags(layout, at, number) != LIO_N_SUBDATA)
                continue;
            code = lio_page_node(layout, at, pgnos[*page], number, &found, error);
            if (code != LIO_OK)
                return code;
            code = node_database(layout, at, pgnos[*page], &found, out, error);
            if (code == LIO_OK)
                *node = found;
            return code;
        }
    }
    return LIO_NOTFOUND;
}
