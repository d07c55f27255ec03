/* checksum: CRC32C of pages of a file, by which a copy of them is told from a damaged one. Pure.
 *
 * Each page's sum begins with its number and a seed: a page at another's place does not match, nor
 * one that was kept for another state of the file. A sum is never 0, which stands for "none".
 *
 * Source: Castagnoli's polynomial, as in iSCSI (RFC 3720, appendix B.4) and in the instructions
 * of processors.
 */
#ifndef LIO_CHECKSUM_H
#define LIO_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#include "extent.h"

enum { LIO_CHECKSUM_PAGE_BYTES = 4096 };

/* Goes on with a CRC32C (0 at first) over more bytes. */
uint32_t lio_crc32c(uint32_t crc, const uint8_t *bytes, size_t size);

/* The same by tables, as on processors that have no instruction for it. */
uint32_t lio_crc32c_by_tables(uint32_t crc, const uint8_t *bytes, size_t size);

/* The sums of `count` pages in memory, the first of which is number `first`. */
void lio_checksum_pages(uint32_t seed, const uint8_t *memory, uint64_t first, size_t count,
                        uint32_t *sums);

/* Compares the pages under extents with their `sums`, those of `count` pages from number `first` on.
 * An extent begins in memory at base + slices[i], and its pages lie there whole. `wrong` says of each
 * whether one of its pages differs, or has no sum. Returns how many pages differ, neighbours that
 * extents share counted once; the numbers of the first `room` ones are in `differ`. */
size_t lio_checksum_compare(uint32_t seed, const lio_extent *extents, const uint64_t *slices,
                            size_t extent_count, uint64_t base, const uint32_t *sums,
                            uint64_t first, uint64_t count, uint8_t *wrong, uint64_t *differ,
                            size_t room);

#endif
