#include "duplicates.h"

#include <string.h>

/* Flags that order duplicates, in the terms of keys. */
static uint16_t key_flags(uint32_t db_flags)
{
    if (db_flags & LIO_DB_INTEGERDUP)
        return LIO_DB_INTEGERKEY;
    return db_flags & LIO_DB_REVERSEDUP ? LIO_DB_REVERSEKEY : 0;
}

int lio_duplicates_compare(uint32_t db_flags, const uint8_t *a, size_t a_size, const uint8_t *b,
                           size_t b_size)
{
    return lio_key_compare(key_flags(db_flags), a, a_size, b, b_size);
}

static int sub_page_check(const lio_tree *sub, const uint8_t *page, lio_error *error)
{
    if (sub->layout.page_size < sub->layout.header_size + 2)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, sub->layout.header_size, sub->layout.page_size,
                        "a page of duplicates is cut short");
    return lio_page_check(&sub->layout, page, lio_load64(page), LIO_P_LEAF, error);
}

static int open_sub_page(lio_tree *sub, uint16_t flags, const lio_node *node, lio_error *error)
{
    const uint8_t *page = node->data;
    uint32_t count;
    int code;
    sub->layout.page_size = node->data_size;
    code = sub_page_check(sub, page, error);
    if (code != LIO_OK)
        return code;
    count = lio_page_count(&sub->layout, page);
    memset(&sub->db, 0, sizeof sub->db);
    sub->db.flags = flags;
    sub->db.depth = 1;
    sub->db.entries = count;
    if (count == 0)
        return lio_fail(error, LIO_ERR_CORRUPT, 0, 1, 0, "a page of duplicates holds none");
    sub->stack[0] = (lio_level){page, NULL, lio_load64(page), 0, count};
    sub->height = 1;
    sub->placed = true;
    return LIO_OK;
}

int lio_duplicates_open(lio_tree *sub, const lio_tree *main, const lio_node *node,
                        lio_error *error)
{
    uint16_t flags = key_flags(main->db.flags);
    int code;
    lio_tree_clear(sub);
    sub->layout = main->layout;
    if (node->flags & LIO_N_BIGDATA) /* of which only the place was checked to lie on the page */
        return lio_fail(error, LIO_ERR_CORRUPT, 0, 0, node->flags,
                        "duplicates that say that they are a large value");
    if (!(node->flags & LIO_N_SUBDATA))
        return open_sub_page(sub, flags, node, error);
    code = lio_db_parse(&sub->layout, node->data, node->data_size, 0, &sub->db, error);
    sub->db.flags = flags;
    return code;
}

int lio_duplicates_step(lio_tree *sub, int32_t direction, lio_error *error)
{
    if (direction < 0)
        return lio_tree_prev(sub, error);
    if (sub->at_end && lio_tree_is_last(sub))
        return LIO_NOTFOUND;
    sub->at_end = false;
    return lio_tree_next(sub, error);
}

int lio_duplicates_page(lio_tree *sub, const uint8_t **values, uint64_t *size, lio_error *error)
{
    lio_level *l = lio_tree_leaf(sub);
    lio_node first;
    int code;
    if (!(lio_page_flags(&sub->layout, l->page) & LIO_P_LEAF2))
        return lio_fail(error, LIO_ERR_CORRUPT, 0, LIO_P_LEAF2, 0,
                        "fixed-size duplicates in a page for others");
    l->index = 0;
    code = lio_tree_node(sub, &first, error);
    if (code != LIO_OK)
        return code;
    *values = first.key;
    *size = (uint64_t)first.key_size * l->count;
    l->index = l->count - 1;
    return LIO_OK;
}
