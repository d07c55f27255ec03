/* scan: the records from a cursor on, read ahead in blocks.
 *
 *   block n      handed out, record by record
 *   block n + 1  its values are being read
 *
 * Blocks begin with a few records and grow, so that whoever stops early has read little.
 * The values of a block that lie in overflow pages are read by one plan (coalesced, several
 * requests in flight); keys and values inside leaves are copied. The leaves are read ahead
 * as well. A scan that wants keys alone reads no value.
 */
#ifndef LIO_SCAN_H
#define LIO_SCAN_H

#include "cursor.h"

typedef struct lio_scan lio_scan;

typedef struct {
    const uint8_t *key;
    const uint8_t *value; /* NULL: not wanted, or to be read at `where` (lio_value_read) */
    uint64_t key_size;
    uint64_t value_size;
    lio_extent where; /* of a value in overflow pages */
} lio_record;

typedef struct {
    uint32_t move; /* one of the NEXT or PREV kinds */
    uint32_t want_values;
    /* An engine that goes through the page cache asks the kernel for each block ahead; for
     * file systems whose own readahead is small. */
    uint32_t advised;
    /* and where values lie dense for the file around and after them, leaves included, in the
     * order of the file: single pages picked out of a stream cost a server a seek each. */
    uint32_t dense;
    /* A file that is no larger is brought to the page cache whole, in its order, once values have
     * turned out to lie all over it (prefetch.h). 0: never. */
    uint64_t sweep_bytes_max;
    uint64_t block_bytes_max; /* what one block's values take, unless a single one is larger */
} lio_scan_options;

/* Begins at the record after the one `cursor` stands on (the first when it stands nowhere);
 * the cursor itself stays. */
int lio_scan_open(lio_cursor *cursor, const lio_scan_options *options, lio_scan **out,
                  lio_error *error);
lio_pages *lio_scan_pages(const lio_scan *scan);

/* From the next block on `engine` reads the values of large blocks (NULL: the cursor's engine
 * does again). It must live until the scan is closed. */
void lio_scan_bypass(lio_scan *scan, lio_engine *engine);

/* How many bytes such engines have read, and how long it took. */
void lio_scan_bypassed(const lio_scan *scan, uint64_t *bytes, uint64_t *duration_ns);

/* Makes the next block current and tells its number of records. LIO_NOTFOUND: the end.
 * LIO_PENDING: not all there after `timeout_ms`, ask again. An error in the middle of a
 * block comes after the records before it. */
int lio_scan_next(lio_scan *scan, int timeout_ms, size_t *count, lio_error *error);

/* Has records [first, first + *count) of the current block in memory, or the first few of
 * them as fit a core's cache, and says how many. */
int lio_scan_load(lio_scan *scan, size_t first, size_t *count, lio_error *error);

/* Whether that left values in the file, since lio_value_try_read copies them out of a mapping. */
bool lio_scan_is_in_place(const lio_scan *scan);

/* Record `index` of the current block; borrowed until others are loaded (hold the lock of
 * lio_scan_pages while other threads may do that). */
int lio_scan_record(const lio_scan *scan, size_t index, lio_record *out, lio_error *error);

/* Puts `cursor`, from which the scan was begun, on the scan's record `number`, counted from 1: one of
 * the current block, or the last one before it. It has this key and, where keys may have many
 * (`both`), this value, by which it is searched for; where that leads elsewhere, because keys are
 * not in the order of bytes, its place is gone to step by step. On failure `cursor` stays. */
int lio_scan_settle(lio_scan *scan, lio_cursor *cursor, uint64_t number, uint32_t both,
                    const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size,
                    lio_error *error);
void lio_scan_close(lio_scan *scan);

#endif
