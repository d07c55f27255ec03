/* traffic_state: the nodes, tiers and threads of a simulated cluster. Private to traffic. */
#ifndef LIO_TRAFFIC_STATE_H
#define LIO_TRAFFIC_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "traffic.h"

/* Sums of sizes may be off by a little. */
#define LIO_TRAFFIC_ROUNDING 1e-8

/* Of a use: no thread has come to it; its record is not read ahead; its node took it out of the
 * buffer; a thread reads it; it is staged. */
enum { UNSEEN, LEFT_OUT, TAKEN, UNDER_WAY, STAGED };

/* An actor does one of these. */
enum { NOTHING, STAGES, PREPARES, KEEPS, FETCHES, COMPUTES, FILLS, COPIES };

/* Of a node's actors the first one computes, and fetches what was not read ahead; those that stage
 * follow, then those of each tier. */
typedef struct {
    uint64_t use;
    uint64_t entry;      /* that it fills or keeps */
    double size;         /* of what it has to do with, M */
    uint32_t node, tier; /* its own */
    uint32_t does;
    uint32_t source; /* of what it stages */
} actor;

typedef struct {
    const uint32_t *access;
    uint8_t *uses;              /* how each one stands                        */
    uint64_t next;              /* the first one that no thread has come to   */
    uint64_t use;               /* the one that it computes with, or asks for */
    bool waits;                 /* for that                                   */
    double used;                /* of the buffer                              */
    uint64_t buffered;          /* records there, or on their way             */
    uint32_t *idle, idle_count; /* actors that may stage                      */
} node;

/* A tier of a node. */
typedef struct {
    double held;     /* M, also what is on its way            */
    uint64_t filled; /* records whose fetching has begun      */
    uint32_t shift;  /* the node that it copies from, counted from its own */
    uint64_t copied; /* records of that                       */
    bool full;       /* no further copy has room              */
} store;

struct lio_traffic {
    const lio_traffic_site *site;
    lio_transfers *transfers;
    node *nodes;
    store *stores; /* nodes x tiers */
    actor *actors;
    lio_traffic_result *result;
    uint64_t limit;   /* uses before it may be staged              */
    uint32_t arrived; /* nodes at the end of this iteration        */
    uint32_t filling; /* actors that fill or copy                  */
    uint32_t keeping; /* actors that write what they have read     */
    enum { NOT_BEGUN, PRELOADING, COPYING, ITERATING, SETTLING } phase;
    const char *overfull; /* what holds more than it has room for, and whose it is */
    uint32_t overfull_node;
};

static inline bool may(const lio_traffic *t, uint32_t flag)
{
    return (t->site->cluster.may & flag) != 0;
}

static inline uint32_t number_of(const lio_traffic *t, const node *n)
{
    return (uint32_t)(n - t->nodes);
}

/* --- tiers ------------------------------------------------------------------------------------ */

/* Notes what holds more than it has room for, and whose it is. */
void lio_traffic_note_overfull(lio_traffic *traffic, const char *what, uint32_t node);

/* All threads of tiers begin to fill, or to copy. */
void lio_traffic_begin_filling(lio_traffic *traffic, bool copies);

/* A thread of a tier has brought what it fetched, and goes on. */
void lio_traffic_brought(lio_traffic *traffic, uint32_t who);

/* Lets a thread write the record that it has staged into the next tier that is to hold it. False:
 * there is none. */
bool lio_traffic_keep(lio_traffic *traffic, uint32_t who);

/* --- checks ----------------------------------------------------------------------------------- */

/* Holds all nodes, tiers and transfers against the invariants. LIO_ERR_ARGUMENT. */
int lio_traffic_check(const lio_traffic *traffic, lio_error *error);

/* Says what holds more than it has room for. LIO_ERR_ARGUMENT. */
int lio_traffic_fail_full(const lio_traffic *traffic, const char *what, uint32_t node,
                          lio_error *error);

#endif
