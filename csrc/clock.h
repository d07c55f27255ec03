/* clock: when each node of a simulated cluster has each record of its batches. Pure.
 *
 *   access strings, holders, rates -> iterations of all nodes, one after the other
 *
 * Nodes read ahead into a staging buffer, in the order of their access, from the source that takes
 * least; meanwhile they fill their tiers from the file system. All wait for the slowest one after
 * each iteration. Inside an iteration nodes are simulated one after the other; the file system's
 * clients at a moment are those whose latest known read began then or later.
 *
 * Source: the HDMLP thesis, sections 3.1.3 and 4.1.4; lmdbio/simulate says which readings of it.
 */
#ifndef LIO_CLOCK_H
#define LIO_CLOCK_H

#include <stdint.h>

#include "status.h"

/* Where a record came from. */
enum { LIO_FROM_OWN, LIO_FROM_PEER, LIO_FROM_FILE, LIO_SOURCES };

/* A node may do this. */
enum {
    LIO_CLOCK_STAGES = 1,          /* read ahead into the staging buffer; else when asked for    */
    LIO_CLOCK_STAGES_PEERS = 2,    /* also from other nodes                                      */
    LIO_CLOCK_STAGES_FILE = 4,     /* also from the file system                                  */
    LIO_CLOCK_ON_DEMAND = 8,       /* take what is not there yet from the best source when asked */
    LIO_CLOCK_KEEPS_STAGED = 16,   /* what one has read is held from then on where it is to be   */
    LIO_CLOCK_ALL_ARE_CLIENTS = 32 /* of the file system, at any moment                          */
};

/* All nodes are alike. Sizes are in M, rates in M per second, of one thread. */
typedef struct {
    uint32_t nodes, tiers, may;
    uint32_t batch; /* records of a node in an iteration */
    uint64_t iterations, epoch_iterations;
    const double *sizes;    /* of records                                         */
    const uint32_t *access; /* record numbers: nodes x iterations x batch         */
    double start;           /* seconds before the first iteration; threads begin before, at 0 */
    double compute, prepare;
    double capacity; /* of the staging buffer                              */
    uint32_t threads;
    const double *file_rates;             /* by the number of clients, from 1 on      */
    const double *own_rates, *peer_rates; /* by tier                                  */
    const uint32_t *tier_threads;         /* by tier                                  */
    /* Entries: one for each record and node that is to hold it, or holds it. */
    const uint64_t *holders; /* records + 1: where a record's entries begin */
    const uint32_t *entry_record, *entry_node, *entry_tier;
    double *ready;           /* from when on it is held; INFINITY: not yet */
    const uint64_t *fetches; /* nodes x tiers + 1: where their entries begin */
    const uint64_t *fetch;   /* entries, in the order of their fetching */
} lio_cluster;

typedef struct lio_clock lio_clock;

/* Begins. `cluster`, and all that it points to, are borrowed until close; all numbers must be in range.
 * LIO_ERR_NOMEM. */
int lio_clock_open(const lio_cluster *cluster, lio_clock **out, lio_error *error);

/* Runs the next `count` iterations, fewer where so many are not left. `ends`: when each one of all
 * iterations ends, for all nodes. `counts`: epochs x LIO_SOURCES, added to. Returns how many
 * iterations are left. */
uint64_t lio_clock_run(lio_clock *clock, uint64_t count, double *ends, uint64_t *counts);

/* NULL is fine. */
void lio_clock_close(lio_clock *clock);

#endif
