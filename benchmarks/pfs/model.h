/* model: when a parallel file system would have answered a read.
 *
 * Arithmetic only: no clock, no thread, no file. Times are nanoseconds of the caller's clock,
 * which never goes backwards between calls; the caller serialises the calls.
 *
 *   a read, at t      cut at stripe borders into pieces; stripe k of a file lies on server
 *                     (first + k) % servers
 *   each piece        arrives  = t + request                 overlaps with everything
 *   at its server     sent     = max(arrives, server free)   FIFO in order of arrival
 *                                + out_of_order, if it does not follow the last piece of that
 *                                  file there
 *                                + bytes / server rate
 *                     server free = sent
 *   on its mount's    ready    = sent - min(bytes / server rate, bytes / client rate)
 *   link              carried  = max(ready, link free) + bytes / client rate
 *                     link free = carried                    FIFO in order of `ready`
 *   the answer        the last of its pieces' `carried`
 *
 * The link carries a piece while the server still sends it (packets, not store and forward):
 * `ready` is the earliest moment at which it can start and neither run dry nor end before the
 * server does. A piece alone on slow server and fast link thus takes the server's time.
 *
 * A server is FIFO in the order in which reads are handed over, so its part is known at once.
 * The link's part is known when the clock has passed `ready`: until then a later read from an
 * idle server may still overtake.
 */
#ifndef PFS_MODEL_H
#define PFS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t servers, mounts;
    uint64_t stripe_bytes;
    double server_bytes_s, client_bytes_s;
    uint64_t request_ns, out_of_order_ns;
} pfs_constants;

typedef struct {
    uint64_t requests, bytes, seeks, busy_ns;
} pfs_counts;

typedef struct pfs_model pfs_model;

/* A file's place on the servers, and what was last read there. */
typedef struct pfs_layout pfs_layout;

typedef struct pfs_piece {
    struct pfs_piece *later; /* next on the link, in order of `ready` */
    struct pfs_request *request;
    uint64_t ready, carrying_ns;
    bool waiting; /* for the link */
} pfs_piece;

/* One read on its way. Its owner gives it room for pfs_model_pieces pieces, and keeps both in
 * place until pfs_model_due says that its answer is known. */
typedef struct pfs_request {
    uint32_t mount, pieces_waiting;
    uint64_t done; /* of the pieces that no longer wait */
    uint64_t pieces;
    pfs_piece *piece;
} pfs_request;

typedef struct {
    uint64_t answer; /* when the model answers, if `known` is 0; it may still grow if not */
    uint64_t known;  /* above `now`: ask again then, and do not answer before */
} pfs_due;

/* NULL without memory. The layouts must not outlive the model. */
pfs_model *pfs_model_open(const pfs_constants *constants);
void pfs_model_close(pfs_model *model);

/* A file whose first stripe lies on server `first % servers`. NULL without memory. */
pfs_layout *pfs_layout_open(const pfs_model *model, uint64_t first);
void pfs_layout_close(pfs_layout *layout);

/* How many pieces a read is cut into. */
uint64_t pfs_model_pieces(const pfs_model *model, uint64_t offset, uint64_t length);

/* Hands a read over at time `now`. `length` is above 0 and offset + length does not wrap. */
void pfs_model_submit(pfs_model *model, uint64_t now, uint32_t mount, pfs_layout *layout,
                      uint64_t offset, uint64_t length, pfs_request *request);

/* When a read is answered, as far as can be said at `now`. */
pfs_due pfs_model_due(pfs_model *model, uint64_t now, const pfs_request *request);

/* Counts of one server for one mount: pieces, bytes, out-of-order pieces, time occupied. */
pfs_counts pfs_model_server_counts(const pfs_model *model, uint32_t mount, uint32_t server);

/* Counts of a mount's link: reads, bytes, no seeks, time occupied. */
pfs_counts pfs_model_link_counts(const pfs_model *model, uint32_t mount);

#endif
