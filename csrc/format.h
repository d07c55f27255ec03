/* format: LMDB's pages, parsed with bounds. Pure: no file, no allocation.
 *
 *   page v1:  pgno u64 | pad u16 | flags u16 | lower u16 | upper u16 ........ 16 bytes
 *   page v3:  pgno u64 | txnid u64 | pad u16 | flags u16 | lower u16 | upper u16 24 bytes
 *             (on overflow pages lower+upper hold the page count as u32)
 *   branch, leaf:  header | u16 node offsets ... lower | free | upper ... nodes | end
 *             v3 counts `lower`, `upper` and node offsets from the end of the header
 *   LEAF2:    header | fixed-size keys of `pad` bytes each
 *   node:     lo u16 | hi u16 | flags u16 | ksize u16 | key | data
 *             branch: child = lo | hi<<16 | flags<<32;  leaf: data size = lo | hi<<16
 *             (v3: data begins at key + even(ksize))
 *   BIGDATA:  v1 pgno u64;  v3 pgno u64 | txnid u64 | pages u64
 *             the value lies at pgno * page size + header size
 *
 * Every multi-byte field is little-endian and read by byte loads. Node and page pointers
 * returned here borrow the caller's page and live as long as it does.
 */
#ifndef LIO_FORMAT_H
#define LIO_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

#include "extent.h"
#include "status.h"

enum {
    LIO_FORMAT_V1 = 1, /* LMDB 0.9 */
    LIO_FORMAT_V3 = 3, /* LMDB 1.0 */
    LIO_PAGE_SIZE_MIN = 256,
    LIO_PAGE_SIZE_MAX = 65536,
    LIO_DEPTH_MAX = 32,
    LIO_META_BODY_BYTES = 136, /* magic, version, address, mapsize, databases, last_pg, txnid */
    LIO_META_BYTES = 2 * 65536 /* reading this much of the head always covers both metas */
};

enum lio_page_flag {
    LIO_P_BRANCH = 0x01,
    LIO_P_LEAF = 0x02,
    LIO_P_OVERFLOW = 0x04,
    LIO_P_META = 0x08,
    LIO_P_DIRTY = 0x10,
    LIO_P_LEAF2 = 0x20,
    LIO_P_SUBP = 0x40
};

enum lio_node_flag { LIO_N_BIGDATA = 0x01, LIO_N_SUBDATA = 0x02, LIO_N_DUPDATA = 0x04 };

enum lio_db_flag {
    LIO_DB_REVERSEKEY = 0x02,
    LIO_DB_DUPSORT = 0x04,
    LIO_DB_INTEGERKEY = 0x08,
    LIO_DB_DUPFIXED = 0x10,
    LIO_DB_INTEGERDUP = 0x20,
    LIO_DB_REVERSEDUP = 0x40
};

/* The facts about a file that reading any of its pages takes. */
typedef struct {
    uint32_t version;     /* LIO_FORMAT_V1 or LIO_FORMAT_V3                      */
    uint32_t page_size;   /* bytes                                               */
    uint32_t header_size; /* bytes: 16 or 24                                     */
    uint32_t env_flags;   /* the persistent environment flags                    */
    uint64_t page_limit;  /* first page number that may not be used              */
} lio_layout;

/* One database record (48 bytes on disk). */
typedef struct {
    uint32_t pad;   /* key size on LEAF2 pages */
    uint16_t flags; /* enum lio_db_flag */
    uint16_t depth; /* 0: empty */
    uint64_t branch_pages, leaf_pages, overflow_pages, entries;
    uint64_t root; /* page number, UINT64_MAX: empty */
} lio_db;

/* One of the two meta pages, checked. */
typedef struct {
    lio_layout layout;
    lio_db free_db, main_db;
    uint64_t map_size, last_pgno, txnid;
    uint64_t mark; /* lio_meta_mark */
    uint32_t slot; /* 0 or 1: which meta page */
} lio_meta;

/* A node of a branch or leaf page. Leaf: `data` and `data_size` are the bytes in the page
 * (a page number when BIGDATA, a database record when SUBDATA). Branch: `child`. */
typedef struct {
    const uint8_t *key;
    const uint8_t *data;
    uint64_t child;
    uint32_t data_size;
    uint16_t key_size;
    uint16_t flags; /* enum lio_node_flag; 0 on branch pages */
} lio_node;

/* Parses the head of a file and chooses a meta page.
 * `head`, `length`: the first min(file_size, LIO_META_BYTES) bytes of the file.
 * `txnid`: UINT64_MAX for the newest state, else exactly this transaction's.
 * LIO_ERR_INVALID: not LMDB; LIO_ERR_VERSION: LMDB, but 32-bit, of the other byte order,
 * or of an unknown data format; LIO_ERR_SHORT: cut; LIO_ERR_CORRUPT; LIO_NOTFOUND: neither
 * meta holds `txnid`. */
int lio_meta_parse(const uint8_t *head, uint64_t length, uint64_t file_size, uint64_t txnid,
                   lio_meta *out, lio_error *error);

/* The newest transaction by `head`, which holds both meta pages whole. Looks at magic, version
 * and transaction only: a writer may be in the middle of writing the rest. */
int lio_meta_txnid(const lio_layout *layout, const uint8_t *head, uint64_t *txnid,
                   lio_error *error);

/* Whether `body`, the LIO_META_BODY_BYTES behind the header of a meta page, is the record of
 * transaction `txnid`. Looks at magic, version and transaction only. */
bool lio_meta_is(const lio_layout *layout, const uint8_t *body, uint64_t txnid);

/* A number for the state that `body` describes (its databases and last page): another database
 * whose writer has counted as far has another, unless its meta page is the same. */
uint64_t lio_meta_mark(const uint8_t *body);

/* Decodes and checks a 48-byte database record found at byte `offset` of the file (used in
 * messages alone). */
int lio_db_parse(const lio_layout *layout, const uint8_t *record, uint64_t size, uint64_t offset,
                 lio_db *out, lio_error *error);

/* Checks the header and every node pointer of a branch or leaf page. `type`: LIO_P_BRANCH or
 * LIO_P_LEAF. A page that passes can be indexed with lio_page_node without further thought.
 * (Page size bytes are read at `page`.) */
int lio_page_check(const lio_layout *layout, const uint8_t *page, uint64_t pgno, int type,
                   lio_error *error);

/* Number of nodes (LEAF2: keys) of a checked page. */
uint32_t lio_page_count(const lio_layout *layout, const uint8_t *page);

/* Page flags, enum lio_page_flag. */
uint32_t lio_page_flags(const lio_layout *layout, const uint8_t *page);

/* Node `index` of a checked branch or leaf page; checks that the node lies inside the page.
 * On LEAF2 pages data is empty. */
int lio_page_node(const lio_layout *layout, const uint8_t *page, uint64_t pgno, uint32_t index,
                  lio_node *out, lio_error *error);

/* The flags of node `index`, which is there, of a checked leaf page that is no LEAF2. */
uint32_t lio_page_node_flags(const lio_layout *layout, const uint8_t *page, uint32_t index);

/* Orders two keys of a database with `db_flags` (enum lio_db_flag) as LMDB does: memcmp then
 * length, from the last byte for REVERSEKEY, as native integers for INTEGERKEY.
 * Negative, 0 or positive. */
int lio_key_compare(uint32_t db_flags, const uint8_t *a, size_t a_size, const uint8_t *b,
                    size_t b_size);

/* Searches a checked page for `key`. Leaf: the first node whose key is not smaller (the count
 * of nodes when all are), and whether it is equal. Branch: the child under which the key
 * belongs; its first key counts as smaller than all. */
int lio_page_search(const lio_layout *layout, const uint8_t *page, uint64_t pgno,
                    uint32_t db_flags, const uint8_t *key, size_t key_size, uint32_t *index,
                    int *exact, lio_error *error);

/* Where the value of a leaf node lies in the file. `node` must come from page `pgno`.
 * LIO_ERR_UNSUPPORTED when the node holds duplicates (DUPDATA). A SUBDATA node gives the
 * place of its database record, as py-lmdb's get() does. `pages`, when not NULL, receives
 * the number of overflow pages the value owns (0: it lies in the leaf); in format 1, where
 * only their header knows, the number that it needs. */
int lio_node_extent(const lio_layout *layout, const uint8_t *page, uint64_t pgno,
                    const lio_node *node, lio_extent *out, uint64_t *pages, lio_error *error);

/* Checks the header of an overflow page that holds a value of `length` bytes. */
int lio_overflow_check(const lio_layout *layout, const uint8_t *header, uint64_t pgno,
                       uint64_t length, lio_error *error);

/* cdef: skip */
static inline uint16_t lio_load16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t lio_load32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t lio_load64(const uint8_t *at)
{
    return (uint64_t)lio_load32(at) | (uint64_t)lio_load32(at + 4) << 32;
}
/* cdef: resume */

#endif
