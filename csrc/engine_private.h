/* engine_private: what an engine consists of, for its own parts: the queue, the page cache, and the
 * functions that open, read, close and count. Private to the engine. */
#ifndef LIO_ENGINE_PRIVATE_H
#define LIO_ENGINE_PRIVATE_H

#include "engine_meter.h"

enum { LIO_ENGINE_DEPTH_MAX = 256 };

typedef struct lio_queue lio_queue;

struct lio_engine {
    lio_file file;
    lio_meter meter;
    uint32_t depth;
    _Atomic(lio_queue *) queue; /* NULL until the first submit */
};

/* Serves a small request out of the page cache, if that takes no waiting. The caller compares the
 * file's size afterwards, once for all requests that were served by a call of the kernel. */
lio_cached lio_pagecache_serve(lio_engine *engine, const lio_read *read);

#endif
