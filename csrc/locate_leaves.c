/* Records of leaves, and the databases that have a name on one. */
#include "locate.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "buffer.h"
#include "engine_stats.h"

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

static bool is_named_database(uint32_t node_flags)
{
    return (node_flags & (LIO_N_SUBDATA | LIO_N_DUPDATA | LIO_N_BIGDATA)) == LIO_N_SUBDATA;
}

/* Reads and checks one page into `page`, for the descent to a named database. */
static int read_page(lio_engine *engine, const lio_layout *layout, uint64_t pgno, int type,
                     uint8_t *page, lio_error *error)
{
    lio_read read = {.offset = pgno * layout->page_size,
                     .length = layout->page_size,
                     .needed = layout->page_size,
                     .into = page};
    int code;
    if (pgno < 2 || pgno >= layout->page_limit)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, layout->page_limit, pgno,
                        "a branch leads to page %" PRIu64 ", outside the %" PRIu64 " pages in use",
                        pgno, layout->page_limit);
    code = lio_engine_read(engine, &read, 1, error);
    lio_engine_count(engine, &(lio_tally){.page_requests = 1, .page_bytes = layout->page_size});
    return code != LIO_OK ? code : lio_page_check(layout, page, pgno, type, error);
}

int lio_db_find(lio_engine *engine, const lio_meta *meta, const uint8_t *name, size_t length,
                lio_db *out, lio_error *error)
{
    const lio_layout *layout = &meta->layout;
    uint64_t pgno = meta->main_db.root;
    uint8_t *page = aligned_alloc(LIO_BUFFER_ALIGNMENT, LIO_PAGE_SIZE_MAX);
    lio_node node;
    int code = LIO_NOTFOUND, exact = 0;
    if (page == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, LIO_PAGE_SIZE_MAX, 0, "no memory for a page");
    for (uint32_t depth = 0; depth < meta->main_db.depth; depth++) {
        bool leaf = depth + 1u == meta->main_db.depth;
        uint32_t index = 0;
        code = read_page(engine, layout, pgno, leaf ? LIO_P_LEAF : LIO_P_BRANCH, page, error);
        if (code == LIO_OK)
            code = lio_page_search(layout, page, pgno, meta->main_db.flags, name, length, &index,
                                   &exact, error);
        if (code == LIO_OK && leaf && !exact)
            code = LIO_NOTFOUND;
        if (code == LIO_OK)
            code = lio_page_node(layout, page, pgno, index, &node, error);
        if (code != LIO_OK)
            goto done;
        if (!leaf)
            pgno = node.child;
    }
    if (code != LIO_OK) /* an empty main database */
        goto done;
    code = is_named_database(node.flags)
               ? node_database(layout, page, pgno, &node, out, error)
               : lio_fail(error, LIO_ERR_UNSUPPORTED, pgno * layout->page_size, 0, node.flags,
                          "the name is the key of a record, not of a database");
done:
    free(page);
    return code;
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
            if (!is_named_database(lio_page_node_flags(layout, at, number)))
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
