/* replay_space: which pages a writer of LMDB takes, and which it leaves behind. Private to replay.
 *
 *   allocate  the lowest fitting pages out of records of the free list that no reader can need any
 *             more, else new ones at the end of the file
 *   release   pages of the state before, which go into the free list with the commit
 *   save      the free list itself: a tree, of one leaf here, whose pages come and go likewise
 */
#ifndef LIO_REPLAY_SPACE_H
#define LIO_REPLAY_SPACE_H

#include <stdbool.h>
#include <stddef.h>

#include "format.h"
#include "status.h"

#define LIO_NO_PAGE UINT64_MAX

enum {
    LIO_NODE_BYTES = 8,   /* of a node before its key */
    LIO_POINTER_BYTES = 2 /* to a node */
};

/* --- memory ---------------------------------------------------------------------------- */

/* `items` of `bytes` each, moved to where there is room for `wanted` of them: `first` if there was
 * none, doubled until they fit. NULL: no memory, and nothing has changed. */
void *lio_grown(void *items, size_t *room, size_t wanted, size_t first, size_t bytes);

/* --- sizes of nodes -------------------------------------------------------------------- */

typedef struct {
    uint64_t page_size, header; /* bytes */
    uint64_t node_max;          /* bytes of a leaf's node; larger values go to overflow pages */
    uint64_t in_overflow;       /* bytes of such a node in place of the value */
    bool is_v3;
} lio_sizes;

void lio_sizes_of(uint32_t version, uint32_t page_size, lio_sizes *out);

static inline uint64_t lio_even(uint64_t size)
{
    return (size + 1) & ~UINT64_C(1);
}

static inline uint64_t lio_in_node(const lio_sizes *z, uint64_t size)
{
    return z->is_v3 ? lio_even(size) : size;
}

static inline uint64_t lio_overflow_pages(const lio_sizes *z, uint64_t length)
{
    return (z->header - 1 + length) / z->page_size + 1;
}

static inline bool lio_overflows(const lio_sizes *z, uint64_t key_size, uint64_t length)
{
    return LIO_NODE_BYTES + lio_in_node(z, key_size) + length > z->node_max;
}

/* Of a leaf's node, without its pointer. */
static inline uint64_t lio_leaf_node_bytes(const lio_sizes *z, uint64_t key_size, uint64_t length)
{
    uint64_t inside = lio_overflows(z, key_size, length) ? z->in_overflow : lio_in_node(z, length);
    return lio_even(LIO_NODE_BYTES + lio_in_node(z, key_size) + inside);
}

/* Bytes that LMDB thinks a new one needs, with its pointer: in format 3 two bytes too much for a
 * value of odd length in overflow pages. */
static inline uint64_t lio_leaf_wants_bytes(const lio_sizes *z, uint64_t key_size, uint64_t length)
{
    bool odd = z->is_v3 && length % 2 != 0 && lio_overflows(z, key_size, length);
    return lio_leaf_node_bytes(z, key_size, length) + LIO_POINTER_BYTES + (odd ? 2 : 0);
}

static inline uint64_t lio_branch_node_bytes(const lio_sizes *z, uint64_t key_size)
{
    return lio_even(LIO_NODE_BYTES + lio_in_node(z, key_size));
}

/* --- pages ----------------------------------------------------------------------------- */

/* A record of the free list: pages that a transaction released. */
typedef struct {
    uint64_t id;            /* of the transaction */
    uint64_t *pages;        /* rising */
    size_t count, reserved; /* pages; how many it has room for in the file */
    uint64_t pgno, txnid;   /* of its overflow pages */
    uint32_t overflow;      /* how many of these */
} lio_freed;

typedef struct {
    uint64_t *at;
    size_t first, end, room; /* of `at`, those in use */
} lio_numbers;

typedef struct {
    lio_sizes sizes;
    lio_error *error;
    uint64_t txnid, next_pgno;

    /* the free list */
    uint64_t root, root_txnid; /* its only leaf, and the last transaction that wrote to it */
    uint64_t root_left;        /* free bytes */
    uint64_t overflow_pages;
    uint64_t per_page;  /* page numbers in a record on one page */
    lio_freed *records; /* rising */
    size_t record_count, record_room;

    /* of this transaction */
    lio_numbers pool;     /* taken out of the free list, for use */
    bool has_pool;        /* a record was taken, were it an empty one */
    uint64_t pool_last;   /* the newest that was */
    lio_numbers released; /* to go in */
} lio_space;

/* All that follow fail by LIO_ERR_NOMEM and LIO_ERR_UNSUPPORTED. */
int lio_not_modelled(lio_error *error, const char *what);

void lio_space_open(const lio_sizes *sizes, lio_error *error, lio_space *out);
void lio_space_close(lio_space *s);

/* The next transaction. */
void lio_space_begin(lio_space *s);

/* `count` pages in a row. */
int lio_space_allocate(lio_space *s, uint64_t count, uint64_t *pgno);
int lio_space_release(lio_space *s, uint64_t pgno, uint64_t count);

/* Copies a page of an older transaction, as its first change does. */
int lio_space_touch(lio_space *s, uint64_t *pgno, uint64_t *txnid);

/* Writes the pages that this transaction released, and what it did not use of older ones. */
int lio_space_save(lio_space *s);

/* The free list's database record. */
void lio_space_record(const lio_space *s, lio_db *out);

#endif
