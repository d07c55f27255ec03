#include "bookmark.h"

#include <inttypes.h>

enum { HEAD_BYTES = 2, STEP_BYTES = 12 };

_Static_assert(LIO_BOOKMARK_BYTES_MAX == HEAD_BYTES + 2 * LIO_DEPTH_MAX * STEP_BYTES,
               "room for two trees of full depth");

/* --- writing --------------------------------------------------------------------------- */

static void store(uint8_t *out, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static uint8_t *write_steps(const lio_tree *tree, uint32_t levels, uint8_t *out)
{
    for (uint32_t i = 0; i < levels; i++, out += STEP_BYTES) {
        store(out, tree->stack[i].pgno, 8);
        store(out + 8, tree->stack[i].index, 4);
    }
    return out;
}

/* How many levels the tree of the current key's values has that the cursor stands in. A tree left
 * over from an earlier key does not count. */
static int levels_below(lio_tree *main, const lio_tree *sub, uint32_t *levels, lio_error *error)
{
    lio_node node;
    int code;
    *levels = 0;
    if (sub == NULL || !sub->placed)
        return LIO_OK;
    code = lio_tree_node(main, &node, error);
    if (code == LIO_OK && node.flags & LIO_N_DUPDATA)
        *levels = sub->height;
    return code;
}

static int write_place(lio_cursor *cursor, uint8_t *out, size_t *size, lio_error *error)
{
    lio_tree *main, *sub;
    uint32_t below;
    uint8_t *end;
    int code;
    lio_cursor_trees(cursor, &main, &sub);
    if (!main->placed || main->height == 0)
        return lio_fail(error, LIO_ERR_UNPLACED, 0, 0, 0, "the cursor is not positioned");
    code = levels_below(main, sub, &below, error);
    if (code != LIO_OK)
        return code;
    out[0] = (uint8_t)main->height;
    out[1] = (uint8_t)below;
    end = write_steps(main, main->height, out + HEAD_BYTES);
    if (below != 0)
        end = write_steps(sub, below, end);
    *size = (size_t)(end - out);
    return LIO_OK;
}

int lio_bookmark_write(lio_cursor *cursor, uint8_t *out, size_t *size, lio_error *error)
{
    lio_pages *pages = lio_cursor_pages(cursor);
    int code;
    lio_pages_lock(pages);
    code = write_place(cursor, out, size, error);
    lio_pages_unlock(pages);
    return code;
}

/* --- going there ----------------------------------------------------------------------- */

static void read_steps(const uint8_t *from, uint32_t levels, lio_step *out)
{
    for (uint32_t i = 0; i < levels; i++, from += STEP_BYTES)
        out[i] = (lio_step){lio_load64(from), lio_load32(from + 8)};
}

int lio_bookmark_go(lio_cursor *cursor, const uint8_t *bookmark, size_t size, lio_error *error)
{
    lio_step steps[2 * LIO_DEPTH_MAX];
    uint32_t levels, below;
    if (size < HEAD_BYTES)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, HEAD_BYTES, size, "a bookmark is cut short");
    levels = bookmark[0];
    below = bookmark[1];
    if (levels == 0 || levels > LIO_DEPTH_MAX || below > LIO_DEPTH_MAX ||
        size != HEAD_BYTES + (size_t)(levels + below) * STEP_BYTES)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, levels, below,
                        "a bookmark of %" PRIu32 " and %" PRIu32 " levels in %zu bytes", levels,
                        below, size);
    read_steps(bookmark + HEAD_BYTES, levels + below, steps);
    return lio_cursor_go(cursor, steps, levels, steps + levels, below, error);
}

/* --- records that it comes by ---------------------------------------------------------- */

/* Where the value lies that the cursor has just come to. */
static int extent_of(lio_cursor *cursor, lio_extent *out, lio_error *error)
{
    const lio_item *item = lio_cursor_item(cursor);
    lio_tree *main, *sub, *at;
    const lio_level *leaf;
    if (item->data == NULL) {
        *out = item->where;
        return LIO_OK;
    }
    lio_cursor_trees(cursor, &main, &sub);
    /* A page of duplicates inside a node is part of the key's own leaf. */
    at = item->node_flags & LIO_N_DUPDATA && item->node_flags & LIO_N_SUBDATA ? sub : main;
    leaf = &at->stack[at->height - 1];
    if (item->data < leaf->page || item->data_size > main->layout.page_size ||
        (size_t)(item->data - leaf->page) > main->layout.page_size - item->data_size)
        return lio_fail(error, LIO_ERR_CORRUPT, leaf->pgno * main->layout.page_size,
                        main->layout.page_size, item->data_size,
                        "a value on page %" PRIu64 " lies beside it", leaf->pgno);
    out->offset = leaf->pgno * main->layout.page_size + (uint64_t)(item->data - leaf->page);
    out->length = item->data_size;
    return LIO_OK;
}

int lio_bookmark_walk(lio_cursor *cursor, size_t count, lio_extent *out, size_t *made,
                      lio_error *error)
{
    lio_pages *pages = lio_cursor_pages(cursor);
    int code = LIO_OK;
    *made = 0;
    lio_pages_lock(pages);
    while (code == LIO_OK && *made < count) {
        code = lio_cursor_move(cursor, LIO_MOVE_NEXT, NULL, 0, NULL, 0, error);
        if (code == LIO_OK && out != NULL)
            code = extent_of(cursor, &out[*made], error);
        if (code == LIO_OK)
            ++*made;
    }
    lio_pages_unlock(pages);
    return code;
}
