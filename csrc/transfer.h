/* transfer: bytes on their way through what they share, each as quick as its scarcest part. Pure.
 *
 *   file system --> link of a node -----------------------------------\
 *   memory of a node, or a tier's reads --> out of it --> into another --+--> a tier's writes
 *
 * A transfer uses up to four parts at once. A part divides its rate evenly by the transfers that use
 * it; a transfer is as quick as the least of its shares, and no other one takes what it leaves. The
 * file system's clients are the nodes that read from it now: each has an even share, no more than
 * its link carries, and divides that by its own transfers.
 *
 * Invariant, checked at each event for what changed there: the transfers of a part get no more than
 * it has. Where a part's share changed, the rates of its transfers are added up; where a transfer's
 * rate changed, or was to change with the clients, it is held against its share of each of its parts.
 *
 * Ends are known in advance, for as long as no share changes. A client's share changes with any
 * node's first and last transfer; so a transfer that the file system alone holds back is timed by the
 * work that a client is given since the beginning, not by seconds: then no end moves where only the
 * number of clients does.
 */
#ifndef LIO_TRANSFER_H
#define LIO_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

/* Rates of all parts, in M per second; all nodes are alike. The last column of a table stands for all
 * numbers beyond it. */
typedef struct {
    uint32_t nodes, tiers;
    uint32_t actors;           /* of a node; each does one thing at a time            */
    double network;            /* of a node, each way                                 */
    double file_network;       /* of a node's link to the file system                 */
    const double *file_system; /* of all clients together, by their number, from 1 on */
    uint32_t columns;
    const double *reads, *writes; /* tiers x columns: by how many use it at once      */
} lio_shares;

/* cdef: skip */
typedef struct lio_transfers lio_transfers;

/* Where bytes come from and go to; they stay in memory where no tier is named. */
typedef struct {
    bool file; /* they come from the file system, else from `node`      */
    uint32_t node;
    bool reads;      /* there from a tier                                     */
    uint32_t read;   /* that one                                              */
    uint32_t target; /* the node that they go to                              */
    bool writes;     /* there into a tier                                     */
    uint32_t written;
} lio_path;

/* `shares` and its tables are borrowed until close. LIO_ERR_NOMEM. */
int lio_transfers_open(const lio_shares *shares, lio_transfers **out, lio_error *error);

/* Seconds since the beginning. */
double lio_transfers_now(const lio_transfers *transfers);

/* Lets an actor transfer `size` M from now on. Actors are numbered over all nodes. */
void lio_transfer_begin(lio_transfers *transfers, uint32_t actor, double size,
                        const lio_path *path);

/* Lets it transfer as much again on the same path, right when it came to its end. */
void lio_transfer_again(lio_transfers *transfers, uint32_t actor, double size);

/* Takes a transfer that came to its end off its path. */
void lio_transfer_end(lio_transfers *transfers, uint32_t actor);

/* Takes a transfer off its path before its end. */
void lio_transfer_stop(lio_transfers *transfers, uint32_t actor);

/* Seconds that it would still take if no share changed. */
double lio_transfer_left(const lio_transfers *transfers, uint32_t actor);

/* Keeps an actor busy with nothing that is shared. */
void lio_transfer_wait(lio_transfers *transfers, uint32_t actor, double seconds);

/* Goes on to the moment when the next actor is done with what it did, and names it.
 * LIO_NOTFOUND: nobody does anything. LIO_ERR_ARGUMENT: a part gave more than it has. */
int lio_transfers_next(lio_transfers *transfers, uint32_t *actor, lio_error *error);

/* Holds all parts and transfers against the invariant and against one another.
 * LIO_ERR_ARGUMENT. */
int lio_transfers_check(const lio_transfers *transfers, lio_error *error);

/* NULL is fine. */
void lio_transfers_close(lio_transfers *transfers);
/* cdef: resume */

#endif
