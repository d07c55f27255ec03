/* glue_items: an iterator over the records from a cursor on: step by step, or those that a scan has
 * read ahead.
 *
 *   class Iterator(Items):           C makes one object after another, in a loop of the
 *       def advance(self): ...       interpreter without a call of Python; `advance` is called
 *                                    where the block has ended, and where the cursor does not
 *                                    step: it returns the next item
 *
 * A step of what is in memory costs no more than a record of a scan. A scan pays after `scan_after`
 * steps, one of which had to wait for storage.
 *
 * Objects are made one at a time, when they are wanted: one that was let go of gives its memory,
 * still in the core's cache, to the next. Values are brought to memory by pieces
 * (lio_scan_load), a large one into the object itself; those that are in a mapping are copied by
 * the handful.
 *
 * Several threads may share one: while a piece is loaded without the GIL, others wait.
 */
#ifndef LIO_GLUE_ITEMS_H
#define LIO_GLUE_ITEMS_H

/* Puts the type into the list at address `list`, at 0. 0, or -1 when memory ran out. */
static int lio_items_type(uintptr_t list);

/* From now on `items`, the address of an object of that type, hands out records of `scan`. The objects
 * `keep` (which owns scan and snapshot), `failed`, `verify` and `map` are as for lio_glue_lookup;
 * and `buffers`. */
static void lio_items_begin(uintptr_t items, lio_scan *scan, lio_snapshot *snapshot,
                            uintptr_t keep, uintptr_t failed, uintptr_t verify, uintptr_t map,
                            uint32_t buffers);

/* The scan's block has just become current: hands out its `count` records. 0: what is handed out
 * already stays so, also where a thread fails to read it; to be said before the scan goes on. */
static void lio_items_block(uintptr_t items, size_t count);

/* How many of them are not yet handed out. */
static size_t lio_items_left(uintptr_t items);

/* Hands out nothing more, and lets go of the scan. */
static void lio_items_end(uintptr_t items);

#endif
