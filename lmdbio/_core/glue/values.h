/* glue_values: values whose places are known: one, in a call that is quick while nothing waits; or an
 * iterator, which makes one object at a time (see glue_items for why).
 *
 *   in memory    cut out of a block that was read
 *   in the file  by pieces that stay in a core's cache, a large value straight into its object
 *
 * For one thread at a time. A value that raises has been handed out to nobody, and comes again.
 */

/* cdef: skip */
#ifndef LIO_GLUE_VALUES_H
#define LIO_GLUE_VALUES_H

#include "lookup.h"
/* cdef: resume */

/* Puts the callable fetch(offset, length) into the list at address `list`, at 0: the bytes of the
 * file there, by `engine`, which takes any offset. Asks `snapshot`, of `pages`, after each read.
 * The other arguments are as for lio_glue_lookup. 0, or -1 when memory ran out. */
static int lio_glue_fetch(lio_engine *engine, lio_pages *pages, lio_snapshot *snapshot,
                          uintptr_t keep, uintptr_t failed, uintptr_t verify, uintptr_t waited,
                          uintptr_t list);

/* Whether lio_engine_gather got all of it, and it belonged to `snapshot`, of `pages`. If not,
 * `into` may hold anything. */
static bool lio_glue_gather(lio_engine *engine, lio_pages *pages, lio_snapshot *snapshot,
                            const lio_extent *extents, const uint64_t *offsets, size_t count,
                            uint8_t *into, uint64_t room);

/* Puts the type into the list at address `list`, at 0. 0, or -1 when memory ran out. */
static int lio_values_type(uintptr_t list);

/* `values`, the address of an object of that type, hands out what lies at `extents` of `memory`,
 * and counts it for `engine`. `keep` owns all three. */
static void lio_values_of_memory(uintptr_t values, lio_engine *engine, const uint8_t *memory,
                                 const lio_extent *extents, size_t count, uintptr_t keep);

/* The same for extents of the file of `engine`, which takes any offset. After each read `snapshot`,
 * of `pages`, is asked; `verify` makes sure where it cannot say. Objects are as for
 * lio_glue_lookup. Unless it `waits`, it ends before the first value that has to be waited for. */
static void lio_values_of_file(uintptr_t values, lio_engine *engine, const lio_extent *extents,
                               size_t count, lio_pages *pages, lio_snapshot *snapshot, bool waits,
                               uintptr_t keep, uintptr_t failed, uintptr_t verify);

/* Puts into the list at address `list`, at 0, a callable: of a list of indices, the values of these
 * records of `table`, of that type, where nobody need wait for any of them; else None, also where
 * one is no index of a record. One call for each small batch: what Python and cffi take to pass
 * arrays costs more than that. `keep` owns all that is borrowed. 0, or -1 when memory ran out. */
static int lio_values_getter(lio_engine *engine, const lio_extent *table, size_t records,
                             lio_pages *pages, lio_snapshot *snapshot, uintptr_t type,
                             uintptr_t keep, uintptr_t failed, uintptr_t verify, uintptr_t list);

/* How many values are not yet handed out; and where these lie. */
static size_t lio_values_left(uintptr_t values);
static void lio_values_rest(uintptr_t values, lio_extent *out);

/* cdef: skip */
#endif
/* cdef: resume */
