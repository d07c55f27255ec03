#include "format.h"

#include <inttypes.h>
#include <string.h>

#include "contract.h"
#include "stranger.h"

/* Offsets inside a page header; v3 puts a transaction id between pgno and the rest. */
enum { NODE_HEADER = 8, DB_BYTES = 48, V1_HEADER = 16, V3_HEADER = 24 };
enum { MAGIC_SIZE = 4, META_FIXED = 24, META_BYTES = META_FIXED + 2 * DB_BYTES + 16 };

/* Of LMDB 0.9.90, which was never released, and of lmdb-js, which is made of it. */
enum { FORMAT_OF_LMDB_JS = 2 };

static const uint32_t MAGIC = 0xBEEFC0DEu;
static const uint32_t MAGIC_SWAPPED = 0xDEC0EFBEu;

_Static_assert((int)META_BYTES == (int)LIO_META_BODY_BYTES,
               "magic, version, address, mapsize, two databases, last_pg, txnid");
_Static_assert(LIO_META_BYTES >= 2 * LIO_PAGE_SIZE_MAX, "both metas lie in the head");

/* --- meta pages ---------------------------------------------------------------------- */

int lio_db_parse(const lio_layout *layout, const uint8_t *record, uint64_t size, uint64_t offset,
                 lio_db *out, lio_error *error)
{
    lio_db db;
    uint64_t pages;
    if (size != DB_BYTES)
        return lio_fail(error, LIO_ERR_CORRUPT, offset, DB_BYTES, size,
                        "a database record of %" PRIu64 " bytes instead of 48", size);
    db.pad = lio_load32(record);
    db.flags = lio_load16(record + 4);
    db.depth = lio_load16(record + 6);
    db.branch_pages = lio_load64(record + 8);
    db.leaf_pages = lio_load64(record + 16);
    db.overflow_pages = lio_load64(record + 24);
    db.entries = lio_load64(record + 32);
    db.root = lio_load64(record + 40);
    pages = lio_add_saturated(lio_add_saturated(db.branch_pages, db.leaf_pages),
                              db.overflow_pages);
    if (db.depth > LIO_DEPTH_MAX)
        return lio_fail(error, LIO_ERR_CORRUPT, offset, LIO_DEPTH_MAX, db.depth,
                        "a database record claims a tree of depth %u", (unsigned)db.depth);
    if ((db.root == UINT64_MAX) != (db.depth == 0) || (db.depth == 0 && db.entries != 0))
        return lio_fail(error, LIO_ERR_CORRUPT, offset, 0, db.entries,
                        "a database record of depth %u contradicts its root page",
                        (unsigned)db.depth);
    if (db.root != UINT64_MAX && (db.root < 2 || db.root >= layout->page_limit))
        return lio_fail(error, LIO_ERR_CORRUPT, offset, layout->page_limit, db.root,
                        "a database's root page %" PRIu64 " lies outside the %" PRIu64
                        " pages in use",
                        db.root, layout->page_limit);
    /* LMDB miscounts where trees of duplicates come and go: the branch pages of one that is emptied
     * stay in the sum. */
    if (!(db.flags & LIO_DB_DUPSORT) && pages > layout->page_limit)
        return lio_fail(error, LIO_ERR_CORRUPT, offset, layout->page_limit, pages,
                        "a database record claims %" PRIu64 " pages of %" PRIu64 " in use", pages,
                        layout->page_limit);
    *out = db;
    return LIO_OK;
}

/* Refuses what is recognisably LMDB's but not readable here, by what stands at the magic's
 * usual places. `at` is where 64-bit files keep it. */
static int refuse_magic(const uint8_t *head, uint64_t length, lio_error *error)
{
    const unsigned places[] = {V1_HEADER, V3_HEADER};
    if (length >= 12 + MAGIC_SIZE && lio_load32(head + 12) == MAGIC)
        return lio_fail(error, LIO_ERR_VERSION, 12, 0, 0,
                        "an LMDB file written on a 32-bit machine; copy it with mdb_dump there "
                        "and mdb_load here");
    for (size_t i = 0; i < 2; i++)
        if (length >= places[i] + MAGIC_SIZE && lio_load32(head + places[i]) == MAGIC_SWAPPED)
            return lio_fail(error, LIO_ERR_VERSION, places[i], 0, 0,
                            "an LMDB file of the other byte order; copy it with mdb_dump there "
                            "and mdb_load here");
    if (length >= 12 + MAGIC_SIZE && lio_load32(head + 12) == MAGIC_SWAPPED)
        return lio_fail(error, LIO_ERR_VERSION, 12, 0, 0,
                        "an LMDB file written on a 32-bit machine of the other byte order");
    return lio_fail(error, LIO_ERR_INVALID, V1_HEADER, MAGIC,
                    length >= V1_HEADER + MAGIC_SIZE ? lio_load32(head + V1_HEADER) : 0,
                    "not an LMDB database: the magic number is missing");
}

/* The data format by where the magic stands and the version beside it. */
static int parse_version(const uint8_t *page, uint64_t length, uint32_t *version,
                         uint32_t *header_size, lio_error *error)
{
    uint32_t header, found;
    if (length >= V1_HEADER + META_FIXED && lio_load32(page + V1_HEADER) == MAGIC)
        header = V1_HEADER;
    else if (length >= V3_HEADER + META_FIXED && lio_load32(page + V3_HEADER) == MAGIC)
        header = V3_HEADER;
    else
        return refuse_magic(page, length, error);
    found = lio_load32(page + header + 4);
    if (found == LIO_FORMAT_V1 && header == V1_HEADER)
        *version = LIO_FORMAT_V1;
    else if (found == LIO_FORMAT_V3 && header == V3_HEADER)
        *version = LIO_FORMAT_V3;
    else if ((found & 0xFFFFu) == FORMAT_OF_LMDB_JS)
        return lio_fail(
            error, LIO_ERR_VERSION, header + 4u, 0, found,
            "LMDB data format 2, which lmdb-js writes (npm's lmdb): formats 1 and 3 are "
            "read; built with --use_data_v1=true it writes format 1");
    else
        return lio_fail(error, LIO_ERR_VERSION, header + 4u, 0, found,
                        "LMDB data format %" PRIu32 " (0x%08" PRIx32 "); formats 1 and 3 are read",
                        found & 0xFFFFu, found);
    *header_size = header;
    return LIO_OK;
}

/* Persistent environment flag of LMDB 1.0: pages are encrypted. */
enum { ENV_ENCRYPT = 0x2000 };

static bool is_page_size(uint64_t value)
{
    return lio_is_power_of_two(value) && value >= LIO_PAGE_SIZE_MIN && value <= LIO_PAGE_SIZE_MAX;
}

/* A 32-bit build with 64-bit page numbers (VL32) keeps a 4-byte address, so the page size
 * stands 4 bytes earlier. */
static int refuse_page_size(const uint8_t *body, uint64_t base, uint32_t slot, uint32_t found,
                            lio_error *error)
{
    if (is_page_size(lio_load32(body + META_FIXED - 4)))
        return lio_fail(error, LIO_ERR_VERSION, base, 0, 0,
                        "an LMDB file of the VL32 variant, written on a 32-bit machine");
    return lio_fail(error, LIO_ERR_CORRUPT, base, 4096, found,
                    "meta page %" PRIu32 " claims a page size of %" PRIu32 " bytes", slot, found);
}

static int parse_one_meta(const uint8_t *page, uint64_t length, uint64_t base, uint64_t file_size,
                          uint32_t slot, lio_meta *out, lio_error *error)
{
    lio_meta meta = {0};
    const uint8_t *body;
    uint32_t flags;
    int code = parse_version(page, length, &meta.layout.version, &meta.layout.header_size, error);
    if (code != LIO_OK)
        return code;
    body = page + meta.layout.header_size;
    if (length < meta.layout.header_size + META_BYTES)
        return lio_fail(error, LIO_ERR_SHORT, base, meta.layout.header_size + META_BYTES, length,
                        "the file ends inside meta page %" PRIu32, slot);
    flags = lio_load16(page + meta.layout.header_size - 6);
    if ((flags & LIO_P_META) == 0)
        return lio_fail(error, LIO_ERR_INVALID, base, LIO_P_META, flags,
                        "page %" PRIu32 " is not a meta page (flags 0x%x)", slot, flags);
    if (lio_load64(page) != slot)
        return lio_fail(error, LIO_ERR_CORRUPT, base, slot, lio_load64(page),
                        "meta page %" PRIu32 " claims to be page %" PRIu64, slot,
                        lio_load64(page));
    meta.slot = slot;
    meta.map_size = lio_load64(body + 16);
    meta.layout.page_size = lio_load32(body + META_FIXED);
    meta.layout.env_flags = lio_load16(body + META_FIXED + 4);
    if (!is_page_size(meta.layout.page_size))
        return refuse_page_size(body, base, slot, meta.layout.page_size, error);
    meta.last_pgno = lio_load64(body + META_FIXED + 2 * DB_BYTES);
    meta.txnid = lio_load64(body + META_FIXED + 2 * DB_BYTES + 8);
    meta.mark = lio_meta_mark(body);
    if (meta.last_pgno < 1 || meta.last_pgno >= UINT64_MAX / LIO_PAGE_SIZE_MAX)
        return lio_fail(error, LIO_ERR_CORRUPT, base, file_size / meta.layout.page_size,
                        meta.last_pgno, "meta page %" PRIu32 " claims %" PRIu64 " as last page",
                        slot, meta.last_pgno);
    /* Pages in use may lie past the end of a file that was cut: reading them then fails as
     * short. The limit that matters for memory is the file's. */
    meta.layout.page_limit = meta.last_pgno + 1;
    if (meta.layout.version == LIO_FORMAT_V3 && (meta.layout.env_flags & ENV_ENCRYPT) != 0)
        return lio_fail(error, LIO_ERR_VERSION, base, 0, meta.layout.env_flags,
                        "an encrypted LMDB file; it can only be read with its key, by LMDB");
    /* md_pad of FREE is the page size and of no concern to its parser. */
    code = lio_db_parse(&meta.layout, body + META_FIXED, DB_BYTES, base, &meta.free_db, error);
    if (code == LIO_OK)
        code = lio_db_parse(&meta.layout, body + META_FIXED + DB_BYTES, DB_BYTES, base,
                            &meta.main_db, error);
    if (code == LIO_OK)
        *out = meta;
    return code;
}

/* Chooses between two sound metas: the wanted transaction, else the newer one. */
static int choose_meta(const lio_meta metas[2], uint64_t txnid, lio_meta *out, lio_error *error)
{
    const lio_meta *newer = metas[0].txnid >= metas[1].txnid ? &metas[0] : &metas[1];
    if (txnid == UINT64_MAX) {
        *out = *newer;
        return LIO_OK;
    }
    for (int i = 0; i < 2; i++)
        if (metas[i].txnid == txnid) {
            *out = metas[i];
            return LIO_OK;
        }
    return lio_fail(error, LIO_NOTFOUND, 0, txnid, newer->txnid,
                    "no meta page holds transaction %" PRIu64, txnid);
}

int lio_meta_parse(const uint8_t *head, uint64_t length, uint64_t file_size, uint64_t txnid,
                   lio_meta *out, lio_error *error)
{
    lio_meta metas[2];
    uint64_t page_size;
    const char *other;
    int code;
    if (file_size == 0)
        return lio_fail(error, LIO_ERR_INVALID, 0, LIO_PAGE_SIZE_MIN, 0,
                        "not an LMDB database: the file is empty");
    code = parse_one_meta(head, length, 0, file_size, 0, &metas[0], error);
    if (code == LIO_ERR_INVALID && (other = lio_stranger_name(head, length)) != NULL)
        return lio_fail(error, code, 0, 0, 0, "not an LMDB database, but %s", other);
    if (code != LIO_OK)
        return code;
    page_size = metas[0].layout.page_size;
    if (length < 2 * page_size)
        return lio_fail(error, LIO_ERR_SHORT, page_size, page_size,
                        length > page_size ? length - page_size : 0,
                        "the file ends inside meta page 1");
    code = parse_one_meta(head + page_size, length - page_size, page_size, file_size, 1, &metas[1],
                          error);
    if (code != LIO_OK)
        return code;
    if (metas[1].layout.page_size != page_size ||
        metas[1].layout.version != metas[0].layout.version)
        return lio_fail(error, LIO_ERR_CORRUPT, page_size, page_size, metas[1].layout.page_size,
                        "the two meta pages disagree on format or page size");
    return choose_meta(metas, txnid, out, error);
}

bool lio_meta_is(const lio_layout *layout, const uint8_t *body, uint64_t txnid)
{
    return lio_load32(body) == MAGIC && lio_load32(body + 4) == layout->version &&
           lio_load64(body + META_FIXED + 2 * DB_BYTES + 8) == txnid;
}

/* FNV-1a over words. */
uint64_t lio_meta_mark(const uint8_t *body)
{
    uint64_t mark = 0xCBF29CE484222325u;
    for (int at = META_FIXED; at < META_FIXED + 2 * DB_BYTES + 8; at += 8)
        mark = (mark ^ lio_load64(body + at)) * 0x100000001B3u;
    return mark;
}

int lio_meta_txnid(const lio_layout *layout, const uint8_t *head, uint64_t *txnid,
                   lio_error *error)
{
    uint64_t newest = 0;
    for (uint64_t slot = 0; slot < 2; slot++) {
        const uint8_t *page = head + slot * layout->page_size;
        uint32_t version, header_size;
        uint64_t found;
        int code = parse_version(page, layout->page_size, &version, &header_size, error);
        if (code != LIO_OK)
            return code;
        if (version != layout->version)
            return lio_fail(error, LIO_ERR_CORRUPT, slot * layout->page_size, layout->version,
                            version, "meta page %" PRIu64 " is of another data format now", slot);
        found = lio_load64(page + header_size + META_FIXED + 2 * DB_BYTES + 8);
        newest = found > newest ? found : newest;
    }
    *txnid = newest;
    return LIO_OK;
}

/* --- pages --------------------------------------------------------------------------- */

static const uint8_t *tail(const lio_layout *layout, const uint8_t *page)
{
    return page + layout->header_size - 8; /* pad, flags, lower, upper */
}

uint32_t lio_page_flags(const lio_layout *layout, const uint8_t *page)
{
    return lio_load16(tail(layout, page) + 2);
}

/* Where v3 counts from. */
static uint32_t pointer_base(const lio_layout *layout)
{
    return layout->version == LIO_FORMAT_V3 ? layout->header_size : 0;
}

uint32_t lio_page_count(const lio_layout *layout, const uint8_t *page)
{
    uint32_t lower = lio_load16(tail(layout, page) + 4) + pointer_base(layout);
    return (lower - layout->header_size) / 2;
}

/* Bytes of each key; 0: the page contradicts itself. Before LMDB 0.9.17 a page that a split made does
 * not say them, or says what was in its memory before. But each key takes its size, less that of a
 * pointer, off `upper`. */
static uint32_t leaf2_key_size(const lio_layout *layout, const uint8_t *page)
{
    uint32_t said = lio_load16(tail(layout, page)), count = lio_page_count(layout, page);
    uint32_t upper = lio_load16(tail(layout, page) + 6) + pointer_base(layout);
    uint16_t taken = (uint16_t)(layout->page_size - upper); /* below 0 by keys of one byte */
    if (count == 0 || taken == (uint16_t)(count * (said - 2)))
        return said;
    return (int16_t)taken % (int32_t)count == 0 ? (uint32_t)(2 + (int16_t)taken / (int32_t)count)
                                                : 0;
}

static int check_leaf2(const lio_layout *layout, const uint8_t *page, uint64_t offset,
                       lio_error *error)
{
    uint64_t key_size = leaf2_key_size(layout, page);
    uint64_t bytes = key_size * lio_page_count(layout, page);
    if (key_size == 0 || bytes > layout->page_size - layout->header_size)
        return lio_fail(error, LIO_ERR_CORRUPT, offset, layout->page_size, bytes,
                        "a page of fixed-size keys holds more than fits it");
    return LIO_OK;
}

int lio_page_check(const lio_layout *layout, const uint8_t *page, uint64_t pgno, int type,
                   lio_error *error)
{
    uint64_t offset = pgno * layout->page_size;
    uint32_t base = pointer_base(layout);
    uint32_t flags = lio_page_flags(layout, page);
    uint32_t lower = lio_load16(tail(layout, page) + 4) + base;
    uint32_t upper = lio_load16(tail(layout, page) + 6) + base;
    LIO_ASSERT(layout->header_size < layout->page_size); /* which may be a page within a page */
    uint32_t kind = flags & (LIO_P_BRANCH | LIO_P_LEAF | LIO_P_OVERFLOW | LIO_P_META);
    if (lio_load64(page) != pgno)
        return lio_fail(error, LIO_ERR_CORRUPT, offset, pgno, lio_load64(page),
                        "page %" PRIu64 " claims to be page %" PRIu64, pgno, lio_load64(page));
    if (kind != (uint32_t)type)
        return lio_fail(error, LIO_ERR_CORRUPT, offset, (uint64_t)type, flags,
                        "page %" PRIu64 " is no %s page (flags 0x%x)", pgno,
                        type == LIO_P_BRANCH ? "branch" : "leaf", flags);
    /* Fixed-size keys have no table, but LMDB counts them by one: it is larger than keys of a byte. */
    if (lower < layout->header_size || (lower - layout->header_size) % 2 != 0 ||
        (!(flags & LIO_P_LEAF2) && lower > layout->page_size))
        return lio_fail(error, LIO_ERR_CORRUPT, offset, layout->header_size, lower,
                        "page %" PRIu64 " has a node table that ends at byte %" PRIu32, pgno,
                        lower);
    if (flags & LIO_P_LEAF2)
        return check_leaf2(layout, page, offset, error);
    if (lower > upper || upper > layout->page_size)
        return lio_fail(error, LIO_ERR_CORRUPT, offset, layout->page_size, upper,
                        "page %" PRIu64 " has nodes from byte %" PRIu32
                        " and a table up to %" PRIu32,
                        pgno, upper, lower);
    for (uint32_t i = 0, count = lio_page_count(layout, page); i < count; i++) {
        uint32_t at = lio_load16(page + layout->header_size + 2 * i) + base;
        if (at < upper || at % 2 != 0 || at > layout->page_size - NODE_HEADER)
            return lio_fail(error, LIO_ERR_CORRUPT, offset, upper, at,
                            "page %" PRIu64 " has node %" PRIu32 " at byte %" PRIu32, pgno, i, at);
    }
    return LIO_OK;
}

static int leaf2_node(const lio_layout *layout, const uint8_t *page, uint32_t index, lio_node *out)
{
    uint32_t key_size = leaf2_key_size(layout, page);
    out->key = page + layout->header_size + (size_t)index * key_size;
    out->key_size = (uint16_t)key_size;
    out->data = out->key + key_size;
    out->data_size = 0;
    out->child = 0;
    out->flags = 0;
    return LIO_OK;
}

int lio_page_node(const lio_layout *layout, const uint8_t *page, uint64_t pgno, uint32_t index,
                  lio_node *out, lio_error *error)
{
    uint32_t flags = lio_page_flags(layout, page), at, room;
    uint64_t data_at, data_size, offset = pgno * layout->page_size;
    const uint8_t *node;
    uint16_t key_size, node_flags;
    if (index >= lio_page_count(layout, page))
        return lio_fail(error, LIO_ERR_ARGUMENT, offset, lio_page_count(layout, page), index,
                        "page %" PRIu64 " has no node %" PRIu32, pgno, index);
    if (flags & LIO_P_LEAF2)
        return leaf2_node(layout, page, index, out);
    at = lio_load16(page + layout->header_size + 2 * (size_t)index) + pointer_base(layout);
    LIO_ASSERT(at >= layout->header_size && at <= layout->page_size - NODE_HEADER);
    node = page + at;
    room = layout->page_size - at - NODE_HEADER; /* lio_page_check has looked at `at` */
    node_flags = lio_load16(node + 4);
    key_size = lio_load16(node + 6);
    if (key_size > room)
        return lio_fail(error, LIO_ERR_CORRUPT, offset + at, room, key_size,
                        "node %" PRIu32 " of page %" PRIu64 " has a key of %u bytes", index, pgno,
                        (unsigned)key_size);
    if (flags & LIO_P_BRANCH) {
        out->child = (uint64_t)lio_load32(node) | (uint64_t)node_flags << 32;
        out->data = NULL;
        out->data_size = 0;
        out->flags = 0;
    } else {
        data_at = layout->version == LIO_FORMAT_V3 ? lio_round_up(key_size, 2) : key_size;
        data_size = node_flags & LIO_N_BIGDATA ? (layout->version == LIO_FORMAT_V3 ? 24u : 8u)
                                               : lio_load32(node);
        if (!lio_fits(data_at, data_size, room))
            return lio_fail(error, LIO_ERR_CORRUPT, offset + at, room, data_size,
                            "node %" PRIu32 " of page %" PRIu64 " has a value of %" PRIu64
                            " bytes",
                            index, pgno, data_size);
        out->child = 0;
        out->data = node + NODE_HEADER + data_at;
        out->data_size = lio_load32(node);
        out->flags = node_flags;
    }
    out->key = node + NODE_HEADER;
    out->key_size = key_size;
    return LIO_OK;
}

uint32_t lio_page_node_flags(const lio_layout *layout, const uint8_t *page, uint32_t index)
{
    LIO_ASSERT(index < lio_page_count(layout, page));
    uint32_t at = lio_load16(page + layout->header_size + 2 * (size_t)index) +
                  pointer_base(layout);
    LIO_ASSERT(at >= layout->header_size && at <= layout->page_size - NODE_HEADER);
    return lio_load16(page + at + 4);
}

/* --- values -------------------------------------------------------------------------- */

static int overflow_extent(const lio_layout *layout, uint64_t node_offset, const lio_node *node,
                           lio_extent *out, uint64_t *pages, lio_error *error)
{
    uint64_t first = lio_load64(node->data);
    uint64_t bytes = (uint64_t)layout->header_size + node->data_size;
    uint64_t needed = (bytes + layout->page_size - 1) / layout->page_size;
    /* A value that was replaced by a shorter one keeps its pages, so there may be more. */
    uint64_t count = layout->version == LIO_FORMAT_V3 ? lio_load64(node->data + 16) : needed;
    if (count < needed)
        return lio_fail(error, LIO_ERR_CORRUPT, node_offset, needed, count,
                        "a value of %" PRIu32 " bytes claims %" PRIu64 " overflow pages",
                        node->data_size, count);
    if (first < 2 || !lio_fits(first, count, layout->page_limit))
        return lio_fail(error, LIO_ERR_CORRUPT, node_offset, layout->page_limit, first,
                        "a value's overflow pages %" PRIu64 " + %" PRIu64
                        " lie outside the %" PRIu64 " pages in use",
                        first, count, layout->page_limit);
    out->offset = first * layout->page_size + layout->header_size;
    out->length = node->data_size;
    if (pages != NULL)
        *pages = count;
    return LIO_OK;
}

int lio_node_extent(const lio_layout *layout, const uint8_t *page, uint64_t pgno,
                    const lio_node *node, lio_extent *out, uint64_t *pages, lio_error *error)
{
    uint64_t offset = pgno * layout->page_size + (uint64_t)(node->key - page) - NODE_HEADER;
    if (node->flags & LIO_N_DUPDATA)
        return lio_fail(error, LIO_ERR_UNSUPPORTED, offset, 0, node->flags,
                        "the key holds sorted duplicates (DUPSORT)");
    if (node->flags & LIO_N_BIGDATA)
        return overflow_extent(layout, offset, node, out, pages, error);
    out->offset = pgno * layout->page_size + (uint64_t)(node->data - page);
    out->length = node->data_size;
    if (pages != NULL)
        *pages = 0;
    return LIO_OK;
}

int lio_overflow_check(const lio_layout *layout, const uint8_t *header, uint64_t pgno,
                       uint64_t length, lio_error *error)
{
    uint32_t flags = lio_page_flags(layout, header);
    uint64_t pages = lio_load32(tail(layout, header) + 4); /* where others have lower, upper */
    uint64_t wanted = (length + layout->header_size + layout->page_size - 1) / layout->page_size;
    uint64_t offset = pgno * layout->page_size;
    if (lio_load64(header) != pgno)
        return lio_fail(error, LIO_ERR_CORRUPT, offset, pgno, lio_load64(header),
                        "overflow page %" PRIu64 " claims to be page %" PRIu64, pgno,
                        lio_load64(header));
    if (!(flags & LIO_P_OVERFLOW) || pages < wanted)
        return lio_fail(error, LIO_ERR_CORRUPT, offset, wanted, pages,
                        "a value of %" PRIu64 " bytes does not begin at page %" PRIu64, length,
                        pgno);
    return LIO_OK;
}

/* --- keys ---------------------------------------------------------------------------- */

static int compare_bytes(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
    size_t common = a_size < b_size ? a_size : b_size;
    int order = common == 0 ? 0 : memcmp(a, b, common);
    if (order != 0)
        return order;
    return (a_size > b_size) - (a_size < b_size);
}

static int compare_reversed(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
    while (a_size > 0 && b_size > 0) {
        int order = (int)a[--a_size] - (int)b[--b_size];
        if (order != 0)
            return order;
    }
    return (a_size > b_size) - (a_size < b_size);
}

/* Integers of the machine's own (little) order: 4 or 8 bytes, all keys of one size. */
static int compare_integers(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
    if (a_size != b_size)
        return (a_size > b_size) - (a_size < b_size);
    while (a_size > 0) {
        a_size--;
        if (a[a_size] != b[a_size])
            return (int)a[a_size] - (int)b[a_size];
    }
    return 0;
}

int lio_key_compare(uint32_t db_flags, const uint8_t *a, size_t a_size, const uint8_t *b,
                    size_t b_size)
{
    if (db_flags & LIO_DB_INTEGERKEY)
        return compare_integers(a, a_size, b, b_size);
    if (db_flags & LIO_DB_REVERSEKEY)
        return compare_reversed(a, a_size, b, b_size);
    return compare_bytes(a, a_size, b, b_size);
}

static uint64_t load64_ordered(const uint8_t *at)
{
    return __builtin_bswap64(lio_load64(at));
}

/* lio_key_compare; most keys differ in their first eight bytes, and need no call. */
static inline int search_compare(uint32_t db_flags, const uint8_t *a, size_t a_size,
                                 const uint8_t *b, size_t b_size)
{
    uint64_t left, right;
    if ((db_flags & (LIO_DB_INTEGERKEY | LIO_DB_REVERSEKEY)) || a_size < 8 || b_size < 8)
        return lio_key_compare(db_flags, a, a_size, b, b_size);
    left = load64_ordered(a);
    right = load64_ordered(b);
    if (left != right)
        return left < right ? -1 : 1;
    return compare_bytes(a + 8, a_size - 8, b + 8, b_size - 8);
}

/* Asks for the node that a search will look at next if `low` and `high` are its bounds then. The
 * page is in no core's cache as often as not: waiting for one node after the other was a third
 * of a search. */
static inline void prefetch_middle(const uint8_t *page, const uint8_t *table, uint32_t base,
                                   uint32_t low, uint32_t high)
{
    if (low < high)
        __builtin_prefetch(page + lio_load16(table + 2 * (size_t)(low + (high - low) / 2)) + base);
}

/* The key alone of a node, which is all that a search looks at; false when it does not fit, which
 * lio_page_node tells in words. */
static inline bool table_key(const lio_layout *layout, const uint8_t *page, const uint8_t *table,
                             uint32_t base, uint32_t index, lio_node *out)
{
    uint32_t at = lio_load16(table + 2 * (size_t)index) + base;
    out->key_size = lio_load16(page + at + 6);
    out->key = page + at + NODE_HEADER;
    return out->key_size <= layout->page_size - at - NODE_HEADER;
}

int lio_page_search(const lio_layout *layout, const uint8_t *page, uint64_t pgno,
                    uint32_t db_flags, const uint8_t *key, size_t key_size, uint32_t *index,
                    int *exact, lio_error *error)
{
    uint32_t flags = lio_page_flags(layout, page), base = pointer_base(layout);
    bool branch = (flags & LIO_P_BRANCH) != 0, has_table = (flags & LIO_P_LEAF2) == 0;
    uint32_t low = branch ? 1 : 0, high = lio_page_count(layout, page);
    const uint8_t *table = page + layout->header_size;
    int equal = 0;
    while (low < high) { /* the first node in [low, high) that is not smaller */
        uint32_t middle = low + (high - low) / 2;
        lio_node node;
        int order, code;
        if (has_table) {
            prefetch_middle(page, table, base, low, middle);
            prefetch_middle(page, table, base, middle + 1, high);
        }
        if (!has_table || !table_key(layout, page, table, base, middle, &node)) {
            code = lio_page_node(layout, page, pgno, middle, &node, error);
            if (code != LIO_OK)
                return code;
        }
        order = search_compare(db_flags, node.key, node.key_size, key, key_size);
        if (order == 0) { /* keys are unique */
            low = middle;
            equal = 1;
            break;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    /* A branch's key is the smallest of its child: an equal key belongs there, a greater one
     * to the child before. */
    *index = branch && !equal && low > 0 ? low - 1 : low;
    *exact = equal;
    return LIO_OK;
}
