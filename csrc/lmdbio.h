/* lmdbio: reads LMDB databases by explicit, large, concurrent reads instead of mmap.
 *
 * The C core fills memory that it is handed; it needs neither MPI nor Python. Data flows one
 * way:   format -> locate -> plan -> engine -> memory of the caller's (a window slot).
 *
 * Each room has one header, which is its public surface; the Python binding is generated
 * from these very headers.
 */
#ifndef LMDBIO_H
#define LMDBIO_H

#include "contract.h"
#include "status.h"
#include "extent.h"
#include "stranger.h"
#include "format.h"
#include "buffer.h"
#include "trace.h"
#include "thread.h"
#include "plan.h"
#include "checksum.h"
#include "storage.h"
#include "engine_remote.h"
#include "engine.h"
#include "engine_stats.h"
#include "engine_pagecache.h"
#include "locate.h"
#include "datum.h"
#include "provenance.h"
#include "replay.h"
#include "keys.h"
#include "items.h"
#include "order.h"
#include "sources.h"
#include "clock.h"
#include "rows.h"
#include "copier.h"
#include "window.h"
#include "exchange.h"
#include "mesh.h"
#include "pages.h"
#include "tree.h"
#include "readahead.h"
#include "duplicates.h"
#include "cursor.h"
#include "bookmark.h"
#include "prefetch.h"
#include "scan.h"

#endif
