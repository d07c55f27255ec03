/* scan_block: the records that a scan collects before it reads their values together.
 *
 *   cursor -> lio_block_append -> [records] [arena: keys, short values] [extents: long values]
 *
 * A block owns its memory and the reads that fill it. Private to the scan, which plans and starts
 * those reads.
 */
#ifndef LIO_SCAN_BLOCK_H
#define LIO_SCAN_BLOCK_H

#include <stdbool.h>

#include "cursor.h"
#include "plan.h"

/* Bytes between two values that are worth reading: a leaf page or two. */
enum { LIO_BLOCK_GAP_BYTES_MAX = 32 << 10 };

/* A record of a block. Its key lies in the arena; its value in the arena or, when `extent` is not
 * LIO_NO_EXTENT, in the buffer at its extent's slice. */
typedef struct {
    uint64_t key_at, value_at, value_size;
    uint32_t key_size, extent;
    lio_spot spot; /* where it was found */
} lio_block_record;

#define LIO_NO_EXTENT UINT32_MAX

typedef struct {
    lio_block_record *records;
    uint8_t *arena;
    lio_extent *extents; /* with the header of the first overflow page */
    uint8_t *buffer;
    lio_ticket *ticket;
    lio_ticket *advice; /* what the kernel was told in advance; nobody waits for it */
    lio_plan *plan;     /* NULL: its values are read piece by piece */
    bool past;
    lio_extent awaited; /* the part of the file that must have come first (prefetch.h) */
    bool is_prefetched; /* and the leaves between its values are there too */
    size_t count, capacity, extent_count, extent_capacity;
    uint64_t arena_size, arena_capacity, buffer_capacity, value_bytes;
    uint64_t spread_bytes; /* what its extents add to a plan's buffer */
    enum { LIO_BLOCK_EMPTY, LIO_BLOCK_COLLECTED, LIO_BLOCK_HANDED_OUT } state;
} lio_block;

/* Appends a record that the cursor found at `spot`. `header_size`: bytes of the page's header before
 * a value in overflow pages, which is read with it. Unless `want_values`, its key alone.
 * LIO_ERR_NOMEM: the block has the records that it had. */
int lio_block_append(lio_block *block, const lio_item *item, lio_spot spot, uint64_t header_size,
                     bool want_values, lio_error *error);

/* Drops the records, and what is still being read for them; keeps the memory for the next ones. */
void lio_block_clear(lio_block *block);

/* Frees the memory, too. */
void lio_block_free(lio_block *block);

#endif
