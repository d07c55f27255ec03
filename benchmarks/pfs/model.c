#include "model.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct {
    pfs_piece *first; /* in order of `ready` */
    uint64_t free;    /* when the last piece given to the link is over */
    pfs_counts counts;
} client_link;

struct pfs_model {
    pfs_constants constants;
    uint64_t *server_free;
    client_link *links;          /* of each mount */
    pfs_counts *counts;   /* of each mount and server */
};

struct pfs_layout {
    uint64_t first;
    uint64_t next[]; /* per server: where the last piece served ends in this file's object */
};

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t transfer_ns(uint64_t bytes, double bytes_s)
{
    return (uint64_t)((double)bytes * 1e9 / bytes_s + 0.5);
}

pfs_model *pfs_model_open(const pfs_constants *constants)
{
    pfs_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return NULL;
    model->constants = *constants;
    model->server_free = calloc(constants->servers, sizeof *model->server_free);
    model->links = calloc(constants->mounts, sizeof *model->links);
    model->counts =
        calloc((size_t)constants->mounts * constants->servers, sizeof *model->counts);
    if (model->server_free != NULL && model->links != NULL && model->counts != NULL)
        return model;
    pfs_model_close(model);
    return NULL;
}

void pfs_model_close(pfs_model *model)
{
    if (model == NULL)
        return;
    free(model->server_free);
    free(model->links);
    free(model->counts);
    free(model);
}

pfs_layout *pfs_layout_open(const pfs_model *model, uint64_t first)
{
    uint32_t servers = model->constants.servers;
    pfs_layout *layout = calloc(1, sizeof *layout + servers * sizeof layout->next[0]);
    if (layout != NULL)
        layout->first = first % servers;
    return layout;
}

void pfs_layout_close(pfs_layout *layout)
{
    free(layout);
}

uint64_t pfs_model_pieces(const pfs_model *model, uint64_t offset, uint64_t length)
{
    uint64_t stripe = model->constants.stripe_bytes;
    return (offset + length - 1) / stripe - offset / stripe + 1;
}

/* --- servers --------------------------------------------------------------------------- */

/* Returns when the server has sent the piece. */
static uint64_t serve(pfs_model *model, uint64_t arrives, uint32_t mount, pfs_layout *layout,
                      uint64_t offset, uint64_t bytes)
{
    const pfs_constants *constants = &model->constants;
    uint64_t stripe = offset / constants->stripe_bytes;
    size_t server = (size_t)((layout->first + stripe) % constants->servers);
    uint64_t place = stripe / constants->servers * constants->stripe_bytes +
                     offset % constants->stripe_bytes;
    bool follows = layout->next[server] == place;
    uint64_t occupied = transfer_ns(bytes, constants->server_bytes_s) +
                        (follows ? 0 : constants->out_of_order_ns);
    uint64_t sent = max_u64(arrives, model->server_free[server]) + occupied;
    pfs_counts *counts = &model->counts[(size_t)mount * constants->servers + server];

    model->server_free[server] = sent;
    layout->next[server] = place + bytes;
    counts->requests++;
    counts->bytes += bytes;
    counts->seeks += !follows;
    counts->busy_ns += occupied;
    return sent;
}

/* --- links ------------------------------------------------------------------------------ */

/* Pieces that are ready at the same time keep the order of their submission. */
static void queue_on_link(client_link *on, pfs_piece *piece)
{
    pfs_piece **at = &on->first;
    while (*at != NULL && (*at)->ready <= piece->ready)
        at = &(*at)->later;
    piece->later = *at;
    *at = piece;
}

/* Gives the link to every piece that is ready by `now`. */
static void advance(client_link *on, uint64_t now)
{
    while (on->first != NULL && on->first->ready <= now) {
        pfs_piece *piece = on->first;
        pfs_request *request = piece->request;
        on->first = piece->later;
        on->free = max_u64(on->free, piece->ready) + piece->carrying_ns;
        on->counts.busy_ns += piece->carrying_ns;
        piece->waiting = false;
        request->pieces_waiting--;
        request->done = max_u64(request->done, on->free);
    }
}

/* --- reads ------------------------------------------------------------------------------ */

void pfs_model_submit(pfs_model *model, uint64_t now, uint32_t mount, pfs_layout *layout,
                      uint64_t offset, uint64_t length, pfs_request *request)
{
    const pfs_constants *constants = &model->constants;
    client_link *on = &model->links[mount];
    assert(length > 0 && mount < constants->mounts);
    advance(on, now);
    request->mount = mount;
    request->done = now;
    request->pieces = pfs_model_pieces(model, offset, length);
    request->pieces_waiting = (uint32_t)request->pieces;
    on->counts.requests++;
    on->counts.bytes += length;
    for (uint64_t i = 0; i < request->pieces; i++) {
        pfs_piece *piece = &request->piece[i];
        uint64_t bytes =
            min_u64(length, constants->stripe_bytes - offset % constants->stripe_bytes);
        uint64_t sent =
            serve(model, now + constants->request_ns, mount, layout, offset, bytes);
        piece->request = request;
        piece->waiting = true;
        piece->carrying_ns = transfer_ns(bytes, constants->client_bytes_s);
        piece->ready = sent - min_u64(transfer_ns(bytes, constants->server_bytes_s),
                                      piece->carrying_ns);
        queue_on_link(on, piece);
        offset += bytes;
        length -= bytes;
    }
}

pfs_due pfs_model_due(pfs_model *model, uint64_t now, const pfs_request *request)
{
    pfs_due due = {0, 0};
    advance(&model->links[request->mount], now);
    due.answer = request->done;
    for (uint64_t i = 0; request->pieces_waiting > 0 && i < request->pieces; i++) {
        const pfs_piece *piece = &request->piece[i];
        if (piece->waiting) {
            due.answer = max_u64(due.answer, piece->ready + piece->carrying_ns);
            due.known = max_u64(due.known, piece->ready);
        }
    }
    return due;
}

/* --- counters --------------------------------------------------------------------------- */

pfs_counts pfs_model_server_counts(const pfs_model *model, uint32_t mount, uint32_t server)
{
    return model->counts[(size_t)mount * model->constants.servers + server];
}

pfs_counts pfs_model_link_counts(const pfs_model *model, uint32_t mount)
{
    return model->links[mount].counts;
}
