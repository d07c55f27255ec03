/* replay: where LMDB puts the records of a database that was only ever put to, computed.
 *
 *   history -> model of LMDB's writer -> extents, database records
 *
 * LMDB's page allocation is deterministic: given how a database was made, every page number and
 * every place in a page follows. The model has trees, splits, copy on write, overflow pages and the
 * free list, and of keys and values nothing but sizes.
 *
 * A history that was not exactly this one gives other places, often only a few: what comes out is
 * worth nothing until every record was compared with the file.
 *
 * Pure: no file, no clock. Memory beside the extents: some 60 bytes for each leaf; where records
 * were not put in key order 20 bytes more for each record, and what its page has room for.
 *
 * Source: the provenance of LMDBIO (Pumma et al., section 4.4.2), whose six items do not suffice
 * (provenance/FORMAT.md says what else is needed); the rules of LMDB 0.9.6
 * to 0.9.36 and 1.0.2.
 */
#ifndef LIO_REPLAY_H
#define LIO_REPLAY_H

#include <stddef.h>

#include "extent.h"
#include "format.h"
#include "status.h"

/* The pages that are split by the sizes of their nodes and not in the middle. Large nodes always do
 * that; so do all pages whose new node is the last one, but for the oldest rule: what is put in key
 * order is split alike by all others. LMDB 0.9.24 to 0.9.29 does it to pages of less than 32 nodes;
 * that is one of these rules on pages of 4,096 bytes, and where pages have more nodes than 32. */
enum lio_split_rule {
    LIO_SPLIT_BY_PAGE = 0,   /* pages of less than page size / 128 nodes; LMDB 0.9.31 and later */
    LIO_SPLIT_BY_TWENTY = 1, /* pages of less than 20; 0.9.9 to 0.9.22                           */
    LIO_SPLIT_OLDEST = 2     /* leaves of less than 20 of which a half would be too large with the
                                new node; 0.9.6 and 0.9.7                                       */
};

/* How a database was made: all records put once, a commit after each `commit_every` of them. */
typedef struct {
    uint32_t version;          /* LIO_FORMAT_V1 or LIO_FORMAT_V3 */
    uint32_t page_size;        /* bytes */
    uint32_t split;            /* enum lio_split_rule */
    uint32_t append;           /* 1: put with MDB_APPEND */
    uint32_t named;            /* 1: in a named database, the only one; 0: in the main one */
    uint32_t apart;            /* 1: the named database was made in a transaction of its own */
    uint64_t count;            /* records, 1 or more */
    uint64_t commit_every;     /* records, 1 or more; the last transaction may have less */
    uint32_t key_size;         /* bytes of each key, unless `key_sizes` */
    uint64_t length;           /* bytes of each value, unless `lengths` */
    const uint16_t *key_sizes; /* in key order; NULL: all equal */
    const uint64_t *lengths;   /* in key order; NULL: all equal */
    const uint32_t *order;     /* the records, by their places in key order, as they were put;
                                  NULL: in key order */
} lio_history;

/* The result of a replay. */
typedef struct {
    uint64_t right; /* records, as they were put, before the first seen not to be where expected:
                       a value in overflow pages at once, one in a leaf when all was put        */
    uint64_t txnid, last_pgno;   /* as the meta page says                                     */
    lio_db free_db, main_db, db; /* `db`: the one with the records. Of `main_db`, where that
                                    holds the named one, pages, entries and root              */
} lio_replayed;

typedef struct lio_replay lio_replay;

/* Begins to write the extents of all `history->count` records to `out`, in key order. With
 * `expected`, the extents of the same records in the file, it ends early, with `right` below the
 * count, once it is sure that they differ; `out` and what else it ended in then mean nothing.
 * The arrays are borrowed until it is closed.
 * LIO_ERR_ARGUMENT: no history, or an order that is no permutation. LIO_ERR_NOMEM. */
int lio_replay_open(const lio_history *history, const lio_extent *expected, lio_extent *out,
                    lio_replay **replay, lio_error *error);

/* Puts so many more records at most; `left` are then to come, 0 where it is known to differ.
 * LIO_ERR_UNSUPPORTED: a history that is not modelled (whose free list takes more than a page).
 * LIO_ERR_NOMEM. After a failure it can only be closed. */
int lio_replay_run(lio_replay *replay, uint64_t records, uint64_t *left, lio_error *error);

/* Gives its result, once nothing is left; `out` is complete with it. Once only. */
void lio_replay_end(lio_replay *replay, lio_replayed *end);

/* NULL is fine. */
void lio_replay_close(lio_replay *replay);

/* How many records a leaf page can hold, and how many children a branch page, with keys of
 * `key_size` and values of `length` bytes. */
void lio_replay_capacities(const lio_history *history, uint64_t *leaf, uint64_t *branch);

#endif
