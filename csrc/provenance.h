/* provenance: the columns of one block of a provenance file (provenance/FORMAT.md).
 *
 * A block holds the extents of up to LIO_BLOCK_RECORDS_MAX consecutive records, in one of
 * two exact forms. Both are varints and byte columns; the container compresses, checksums
 * and stores them.
 *
 *   RUNS      lengths | runs | bytes of counts | counts ... | page jumps ...
 *             a run is a stretch of records of which each begins on the page after the
 *             previous record's last, so equal and varying sizes are both runs
 *   EXPLICIT  lengths | residuals ...
 *             residual: offset - guess from the record before, for values in leaf pages and
 *             whatever else RUNS cannot say
 *   lengths   smallest | width | `width` planes of one byte per record, low plane first
 *
 * Pure: bytes in, extents out; no file, no allocation. Whatever the bytes, decoding reads
 * nothing beyond them, writes nothing beyond `count` extents, and gives only extents inside
 * the file's page_limit * page_size bytes.
 */
#ifndef LIO_PROVENANCE_H
#define LIO_PROVENANCE_H

#include <stddef.h>

#include "extent.h"
#include "format.h"
#include "status.h"

enum lio_block_form { LIO_BLOCK_RUNS = 1, LIO_BLOCK_EXPLICIT = 2 };

enum {
    LIO_BLOCK_RECORDS_MAX = 262144, /* so that a decoded block is at most 4 MiB         */
    LIO_BLOCK_RAW_MAX = 49152       /* bytes: so that finding one record decodes little */
};

/* What a block holds, known before it is encoded. */
typedef struct {
    size_t count;    /* records                                     */
    size_t raw_size; /* bytes, at most LIO_BLOCK_RAW_MAX            */
    uint64_t runs;   /* page runs; EXPLICIT: guesses that failed    */
    uint32_t form;   /* enum lio_block_form: the smaller one        */
} lio_block_size;

/* How many of the `count` extents (1 or more) the next block takes: all that fit
 * LIO_BLOCK_RECORDS_MAX and LIO_BLOCK_RAW_MAX, and so at least one.
 * `layout`: page_size, header_size and page_limit are used. LIO_ERR_ARGUMENT when an extent
 * lies outside the file. */
int lio_block_measure(const lio_layout *layout, const lio_extent *extents, size_t count,
                      lio_block_size *out, lio_error *error);

/* Encodes the first `size->count` extents in `size->form`, as measured from these very
 * extents; writes exactly `size->raw_size` bytes. LIO_ERR_ARGUMENT when they differ. */
int lio_block_encode(const lio_layout *layout, const lio_extent *extents,
                     const lio_block_size *size, uint8_t *out, lio_error *error);

/* Decodes a block of exactly `count` extents (1..LIO_BLOCK_RECORDS_MAX). On
 * LIO_ERR_SIDECAR the contents of `out` are undefined. */
int lio_block_decode(const lio_layout *layout, uint32_t form, const uint8_t *raw,
                     size_t raw_size, size_t count, lio_extent *out, lio_error *error);

#endif
