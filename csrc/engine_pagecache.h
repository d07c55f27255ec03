/* engine_pagecache: what the page cache holds of a file, and reading that without waiting.
 *
 *   kind.page_cache -> try_read, gather        the calling thread copies
 *                   -> find_missing, is_cached it asks alone
 *                   -> prefault, populate      another thread makes ready
 *
 * engine.h has all of these but the one below, which is private to the engine.
 */
#ifndef LIO_ENGINE_PAGECACHE_H
#define LIO_ENGINE_PAGECACHE_H

#include "engine_private.h"

/* Serves a small request out of the page cache, if that takes no waiting. The caller compares the
 * file's size afterwards, once for all requests that were served by a call of the kernel. */
lio_cached lio_pagecache_serve(lio_engine *engine, const lio_read *read);

#endif
