/* provenance: the columns of one block of a provenance file (provenance/FORMAT.md).
 *
 * A block holds the extents of up to LIO_BLOCK_RECORDS_MAX consecutive records, in one of
 * two exact forms, or the leaf pages of any number of them, where their extents are to be read.
 * All are varints and byte columns; the container compresses, checksums and stores them.
 *
 *   RUNS      lengths | runs | bytes of counts | counts ... | page jumps ...
 *             a run is a stretch of records of which each begins on the page after the
 *             previous record's last, so equal and varying sizes are both runs
 *   EXPLICIT  lengths | residuals ...
 *             residual: offset - guess from the record before, for values in leaf pages and
 *             whatever else RUNS cannot say
 *   lengths   smallest | width | `width` planes of one byte per record, low plane first
 *   LEAVES    leaves | page jumps ... | records of each ...
 *
 * Pure: bytes in, extents out; no file, no allocation. Decoding, of any bytes, reads
 * nothing beyond them, writes nothing beyond `count` extents, and gives only extents inside
 * the file's page_limit * page_size bytes.
 */
#ifndef LIO_PROVENANCE_H
#define LIO_PROVENANCE_H

#include <stddef.h>

#include "extent.h"
#include "format.h"
#include "status.h"

enum lio_block_form { LIO_BLOCK_RUNS = 1, LIO_BLOCK_EXPLICIT = 2, LIO_BLOCK_LEAVES = 3 };

enum {
    LIO_BLOCK_LEAVES_MAX = 4096,    /* of a LEAVES block: its pages are read at once    */
    LIO_BLOCK_RECORDS_MAX = 262144, /* so that a decoded block is at most 4 MiB         */
    LIO_BLOCK_RAW_MAX = 49152       /* bytes: so that finding one record decodes little */
};

/* The counts of a block. */
typedef struct {
    size_t count;    /* records; LEAVES: leaves                     */
    size_t raw_size; /* bytes, at most LIO_BLOCK_RAW_MAX            */
    uint64_t runs;   /* page runs; EXPLICIT: guesses that failed    */
    uint32_t form;   /* enum lio_block_form: the smaller one        */
} lio_block_size;

/* A leaf page, and how many records lie on it. */
typedef struct {
    uint64_t pgno, records;
} lio_leaf;

/* Encodes as many of the `count` extents (1 or more) as the next block takes: all that fit
 * LIO_BLOCK_RECORDS_MAX and LIO_BLOCK_RAW_MAX, and so at least one. `form`: LIO_BLOCK_RUNS or
 * LIO_BLOCK_EXPLICIT; 0: the smaller one. `out` has room for LIO_BLOCK_RAW_MAX bytes, of which
 * `size->raw_size` are written.
 * `layout`: page_size, header_size and page_limit are used. LIO_ERR_ARGUMENT when an extent
 * lies outside the file; LIO_ERR_UNSUPPORTED when runs cannot say where one lies. */
int lio_block_encode(const lio_layout *layout, const lio_extent *extents, size_t count,
                     uint32_t form, lio_block_size *size, uint8_t *out, lio_error *error);

/* Decodes a block of exactly `count` extents (1..LIO_BLOCK_RECORDS_MAX). On
 * LIO_ERR_SIDECAR the contents of `out` are undefined. */
int lio_block_decode(const lio_layout *layout, uint32_t form, const uint8_t *raw, size_t raw_size,
                     size_t count, lio_extent *out, lio_error *error);

/* The same of `count` leaves (1 or more). LIO_ERR_ARGUMENT when one lies outside the file, or has no
 * records. */
int lio_leaves_encode(const lio_layout *layout, const lio_leaf *leaves, size_t count,
                      lio_block_size *size, uint8_t *out, lio_error *error);

/* Decodes the leaves of a block of `records` records: at most LIO_BLOCK_LEAVES_MAX, to `out`. On
 * LIO_ERR_SIDECAR its contents are undefined. */
int lio_leaves_decode(const lio_layout *layout, const uint8_t *raw, size_t raw_size,
                      uint64_t records, lio_leaf *out, size_t *count, lio_error *error);

/* The measures of `count` checked leaf pages, for lio_leaves_encode. */
void lio_leaves_of(const lio_layout *layout, const uint8_t *pages, const uint64_t *pgnos,
                   size_t count, lio_leaf *out);

/* Checks `count` pages of the file that are to be these leaves: that they are leaves at all, with so
 * many records each. LIO_ERR_CORRUPT: one is not. */
int lio_leaves_check(const lio_layout *layout, const uint8_t *pages, const lio_leaf *leaves,
                     size_t count, lio_error *error);

#endif
