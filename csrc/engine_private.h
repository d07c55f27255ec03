/* engine_private: what an engine consists of, for its own parts: the queue, the page cache, and the
 * functions that open, read and close. */
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

#endif
