/* engine_joined: several files as one.
 *
 *   [file 0] zeros [file 1] zeros [file 2] ...     each from a multiple of LIO_PART_ALIGNMENT on
 *
 * So records of many files are read as those of one: planned together, in one queue, into one memory. A
 * read may go over the end of one file into the next; between files there are zeros.
 *
 * Few files are open at a time (engine_descriptors.h). Those whose bytes are in the page cache are
 * mapped, side by side as they lie here, and need no descriptor.
 *
 * Each file is read in the state of one transaction: after its bytes its meta page of that
 * transaction is read again, and if it is another one by then, the read fails with
 * LIO_ERR_CHANGED. So nobody need ask the meta pages again (lio_engine_keeps_state).
 *
 * In errors, the offset is one of this file; the caller knows which file that is. Private to the engine.
 */
#ifndef LIO_ENGINE_JOINED_H
#define LIO_ENGINE_JOINED_H

#include "engine_descriptors.h"
#include "engine_file.h"

/* A file over others, read through the page cache; see lio_engine_open_joined. */
int lio_file_joined(const char *names, const lio_part *parts, size_t count, uint32_t open_max,
                    lio_file *out, lio_error *error);

#endif
