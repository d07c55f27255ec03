#include "items.h"

#include <inttypes.h>

/* Where what is found goes; NULL: it is only counted. */
typedef struct {
    lio_extent *items;
    uint64_t *each, *trees;
    lio_db *records;
    lio_item_counts counts;
} sink;

/* A leaf page, and where in the file it lies: at its own place, or inside another's node. */
typedef struct {
    const lio_layout *layout;
    const uint8_t *page;
    uint64_t pgno, offset;
} leaf;

static void put_item(sink *to, uint64_t offset, uint64_t length)
{
    if (to->items != NULL)
        to->items[to->counts.items] = (lio_extent){offset, length};
    to->counts.items++;
}

/* The keys of a page are the values of one key. */
static int put_keys(const leaf *from, sink *to, lio_error *error)
{
    uint32_t count = lio_page_count(from->layout, from->page);
    for (uint32_t i = 0; i < count; i++) {
        lio_node node;
        int code = lio_page_node(from->layout, from->page, from->pgno, i, &node, error);
        if (code != LIO_OK)
            return code;
        put_item(to, from->offset + (uint64_t)(node.key - from->page), node.key_size);
    }
    return LIO_OK;
}

static int put_page(const leaf *from, const lio_node *node, sink *to, uint64_t *count,
                    lio_error *error)
{
    lio_layout inside = *from->layout;
    leaf page = {&inside, node->data, 0, from->offset + (uint64_t)(node->data - from->page)};
    int code;
    if (node->data_size < from->layout->header_size + 2u)
        return lio_fail(error, LIO_ERR_CORRUPT, page.offset, from->layout->header_size,
                        node->data_size, "a page of duplicates is cut short");
    inside.page_size = node->data_size;
    page.pgno = lio_load64(node->data);
    code = lio_page_check(&inside, node->data, page.pgno, LIO_P_LEAF, error);
    if (code == LIO_OK)
        code = put_keys(&page, to, error);
    *count = code == LIO_OK ? lio_page_count(&inside, node->data) : 0;
    return code;
}

static int put_tree(const leaf *from, const lio_node *node, sink *to, uint64_t *count,
                    lio_error *error)
{
    uint64_t at = from->offset + (uint64_t)(node->data - from->page);
    lio_db db;
    int code = lio_db_parse(from->layout, node->data, node->data_size, at, &db, error);
    if (code == LIO_OK && (db.flags & LIO_DB_DUPSORT))
        code = lio_fail(error, LIO_ERR_CORRUPT, at, 0, db.flags,
                        "the tree of a key's values says that its values have many, too");
    if (code != LIO_OK)
        return code;
    if (to->records != NULL) {
        to->records[to->counts.trees] = db;
        to->trees[to->counts.trees] = to->counts.keys;
    }
    to->counts.trees++;
    *count = db.entries;
    return LIO_OK;
}

static int put_node(const leaf *from, const lio_node *node, sink *to, lio_error *error)
{
    uint64_t count = 1;
    lio_extent only;
    int code;
    /* Of a large value only the place was checked to lie on the page. */
    if ((node->flags & LIO_N_DUPDATA) && (node->flags & LIO_N_BIGDATA))
        return lio_fail(error, LIO_ERR_CORRUPT, from->offset, 0, node->flags,
                        "a node of page %" PRIu64 " says that its duplicates are a large value",
                        from->pgno);
    if ((node->flags & LIO_N_DUPDATA) && (node->flags & LIO_N_SUBDATA)) {
        code = put_tree(from, node, to, &count, error);
    } else if (node->flags & LIO_N_DUPDATA) {
        code = put_page(from, node, to, &count, error);
    } else {
        code = lio_node_extent(from->layout, from->page, from->pgno, node, &only, NULL, error);
        if (code == LIO_OK)
            put_item(to, only.offset, only.length);
    }
    if (code == LIO_OK && count == 0)
        code = lio_fail(error, LIO_ERR_CORRUPT, from->offset, 1, 0, "a key has no value");
    if (code != LIO_OK)
        return code;
    if (to->each != NULL)
        to->each[to->counts.keys] = count;
    to->counts.keys++;
    return LIO_OK;
}

static int put_leaves(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                      uint32_t count, sink *to, lio_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *page = pages + (size_t)i * layout->page_size;
        leaf from = {layout, page, pgnos[i], pgnos[i] * layout->page_size};
        uint32_t nodes = lio_page_count(layout, page);
        if (lio_page_flags(layout, page) & LIO_P_LEAF2)
            return lio_fail(error, LIO_ERR_CORRUPT, from.offset, 0, pgnos[i],
                            "page %" PRIu64 " holds fixed-size duplicates, not keys", pgnos[i]);
        for (uint32_t j = 0; j < nodes; j++) {
            lio_node node;
            int code = lio_page_node(layout, page, pgnos[i], j, &node, error);
            if (code == LIO_OK)
                code = put_node(&from, &node, to, error);
            if (code != LIO_OK)
                return code;
        }
    }
    return LIO_OK;
}

int lio_items_count(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                    uint32_t count, lio_item_counts *out, lio_error *error)
{
    sink counter = {0};
    int code = put_leaves(layout, pages, pgnos, count, &counter, error);
    *out = counter.counts;
    return code;
}

int lio_items_find(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                   uint32_t count, lio_extent *items, uint64_t *each, uint64_t *trees,
                   lio_db *records, lio_error *error)
{
    sink to = {.items = items, .each = each, .trees = trees, .records = records};
    return put_leaves(layout, pages, pgnos, count, &to, error);
}

int lio_items_of_tree(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                      uint32_t count, lio_extent *out, size_t capacity, size_t *made,
                      lio_error *error)
{
    sink to = {.items = out};
    size_t all = 0;
    for (uint32_t i = 0; i < count; i++)
        all += lio_page_count(layout, pages + (size_t)i * layout->page_size);
    if (all > capacity)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, all, capacity,
                        "no room for the values of a key");
    for (uint32_t i = 0; i < count; i++) {
        leaf from = {layout, pages + (size_t)i * layout->page_size, pgnos[i],
                     pgnos[i] * layout->page_size};
        int code = put_keys(&from, &to, error);
        if (code != LIO_OK)
            return code;
    }
    *made = to.counts.items;
    return LIO_OK;
}
