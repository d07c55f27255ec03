/* plan: turns extents into a few large reads, and says where each record will lie.
 *
 *   extents (any order)  ->  sorted, coalesced over gaps <= gap_bytes_max, aligned
 *                        ->  placed one after another in one buffer
 *                        ->  split into requests <= request_bytes_max, where the file has
 *                            multiples of it
 *
 * Pure: no file, no clock, no chance. Coalesced regions never overlap, so each byte of the
 * file is read at most once per plan, also when records repeat or share a page.
 */
#ifndef LIO_PLAN_H
#define LIO_PLAN_H

#include <stddef.h>

#include "extent.h"
#include "status.h"

typedef struct {
    uint64_t gap_bytes_max;     /* unneeded bytes worth reading to save a request          */
    uint64_t request_bytes_max; /* a multiple of alignment                                 */
    uint64_t alignment;         /* power of two; of offsets, lengths and buffer positions  */
} lio_plan_options;

typedef struct {
    uint64_t offset;        /* in the file, aligned                                       */
    uint64_t length;        /* bytes, aligned                                             */
    uint64_t needed;        /* leading bytes that must exist (the rest is alignment)      */
    uint64_t buffer_offset; /* where `offset` lands in the buffer, aligned                */
} lio_request;

typedef struct {
    uint64_t buffer_bytes; /* size of the buffer to hand out: the sum of all lengths       */
    uint64_t record_bytes; /* sum of the extents' lengths, repeats counted                 */
    uint64_t needed_bytes; /* bytes of the file under at least one extent                  */
    uint64_t waste_bytes;  /* buffer_bytes - needed_bytes: gaps and alignment              */
    uint64_t regions;      /* runs of coalesced bytes                                      */
    uint64_t requests;     /* reads                                                        */
} lio_plan_totals;

typedef struct lio_plan lio_plan;

/* Plans the reads of `count` extents. A zero-length extent needs no read; its slice is 0. */
int lio_plan_make(const lio_extent *extents, size_t count, const lio_plan_options *options,
                  lio_plan **out, lio_error *error);
void lio_plan_free(lio_plan *plan);

/* Borrowed from the plan. */
void lio_plan_get_totals(const lio_plan *plan, lio_plan_totals *out);
const lio_request *lio_plan_requests(const lio_plan *plan);
/* One per extent, in the caller's order: where its first byte lies in the buffer. */
const uint64_t *lio_plan_slices(const lio_plan *plan);

#endif
