/* traffic: when each node of a simulated cluster has each record of its batches, if nothing that the
 * nodes share gives more than it has. Pure.
 *
 *   access strings, holders, shares -> all events of all nodes, in the order of time
 *
 * A node's threads read ahead into its staging buffer: a free thread takes the next record of the
 * node's access string, once the buffer has room for it, from the source that is predicted to take
 * least, and then prepares it, for which it needs nothing that is shared. Threads of the tiers fill these
 * from the file system, meanwhile or before the first iteration. A node computes with one record
 * after the other as they are staged, and takes each out of the buffer when it begins with it. All
 * nodes wait for the slowest one after each iteration.
 *
 * Where what was read is kept, the thread that has staged a record then writes it into the tiers
 * that are to hold it, over the network where they are another node's, and reads on after that; it
 * has the record in hand meanwhile, beside the buffer. `clock` takes no time for this. An epoch
 * begins when the last one's records are where they are to be, so that none is read again.
 *
 * `clock` tells the same by the HDMLP thesis' model, in which each thread has a client's whole share
 * of the file system; transfers share here (`transfer`). A use counts where its record came from,
 * once: a node that may ask on demand stops a read that would take longer than another way.
 *
 * Invariants, checked at each event for what changed there: those of `transfer`; what a tier or a
 * staging buffer holds, or will hold when all that is on its way has come, fits it, but for one
 * record that is larger than the whole buffer.
 */
#ifndef LIO_TRAFFIC_H
#define LIO_TRAFFIC_H

#include <stdint.h>

#include "clock.h"
#include "status.h"
#include "transfer.h"

/* More that a node may do, and what is to be checked. */
enum {
    LIO_TRAFFIC_PRELOADS = 64,  /* the tiers are filled before the first iteration               */
    LIO_TRAFFIC_COPIES = 128,   /* their rest then takes what other nodes hold                   */
    LIO_TRAFFIC_REORDERS = 256, /* for each use it reads as much of what it holds itself        */
    LIO_TRAFFIC_CHECKS = 512    /* hold all against the invariants at each event; this is slow   */
};

/* Rates of `cluster` are predictions, which choose the source of a record; its `start` is not used.
 * No entry is ready at first. Where what was read is kept, there is nothing to fetch. */
typedef struct {
    lio_cluster cluster;
    lio_shares shares;        /* `actors` is filled in */
    const double *capacities; /* by tier               */
    uint64_t entries;
} lio_traffic_site;

/* All zeros at first. */
typedef struct {
    double start;     /* when the first iteration began                   */
    uint64_t done;    /* iterations                                       */
    double *ends;     /* when each of all iterations ended, for all nodes */
    uint64_t *counts; /* of uses: epochs x LIO_SOURCES                    */
} lio_traffic_result;

typedef struct lio_traffic lio_traffic;

/* Begins. `site`, `result` and all that they point to are borrowed until close; all numbers must be
 * in range. LIO_ERR_NOMEM. */
int lio_traffic_open(lio_traffic_site *site, lio_traffic_result *result, lio_traffic **out,
                     lio_error *error);

/* Goes through the next `count` events, fewer where all iterations have come to their end: LIO_OK
 * then, else LIO_PENDING. LIO_ERR_ARGUMENT: an invariant does not hold; names part, node, time. */
int lio_traffic_run(lio_traffic *traffic, uint64_t count, lio_error *error);

/* NULL is fine. */
void lio_traffic_close(lio_traffic *traffic);

#endif
