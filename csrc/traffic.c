#include "traffic.h"

#include <stdlib.h>

#include "traffic_state.h"

/* A way to a record. */
typedef struct {
    double rate; /* predicted */
    uint32_t source, node, tier;
} way;

static uint64_t use_count(const lio_cluster *c)
{
    return c->iterations * c->batch;
}

/* --- where a record comes from ---------------------------------------------------------------- */

/* A node that reorders uses one after the other of what it holds; if that is nothing, the file. */
static way own_way(const lio_traffic *t, const node *n, uint64_t use)
{
    const lio_cluster *c = &t->site->cluster;
    const uint64_t *lists = c->fetches + (size_t)number_of(t, n) * c->tiers;
    uint64_t held = lists[c->tiers] - lists[0];
    way found = {0.0, LIO_FROM_OWN, number_of(t, n), 0};
    if (held == 0)
        return (way){0.0, LIO_FROM_FILE, 0, 0};
    while (lists[0] + use % held >= lists[found.tier + 1])
        found.tier++;
    return found;
}

/* The quickest of those that have a record now, by prediction; of equals the node itself, then the
 * first node. False: none has it. */
static bool find_way(const lio_traffic *t, const node *n, uint64_t use, bool peers, bool file,
                     way *found)
{
    const lio_cluster *c = &t->site->cluster;
    uint32_t record = n->access[use];
    double now = lio_transfers_now(t->transfers);
    if (may(t, LIO_TRAFFIC_REORDERS)) {
        *found = own_way(t, n, use);
        return true;
    }
    *found = (way){0.0, LIO_SOURCES, 0, 0};
    for (uint64_t e = c->holders[record]; e < c->holders[record + 1]; e++) {
        bool own = c->entry_node[e] == number_of(t, n);
        double rate;
        if (c->ready[e] > now || !(own || peers))
            continue;
        rate = (own ? c->own_rates : c->peer_rates)[c->entry_tier[e]];
        if (rate > found->rate || (own && rate >= found->rate))
            *found = (way){rate, own ? LIO_FROM_OWN : LIO_FROM_PEER, c->entry_node[e],
                           c->entry_tier[e]};
    }
    if (file && c->file_rates[c->nodes - 1] > found->rate)
        *found = (way){c->file_rates[c->nodes - 1], LIO_FROM_FILE, 0, 0};
    return found->source != LIO_SOURCES;
}

static uint64_t *count_of(const lio_traffic *t, uint64_t use, uint32_t source)
{
    const lio_cluster *c = &t->site->cluster;
    return &t->result->counts[use / (c->epoch_iterations * c->batch) * LIO_SOURCES + source];
}

static void begin_read(lio_traffic *t, const node *n, uint32_t who, uint64_t use, uint32_t does,
                       const way *from)
{
    const lio_cluster *c = &t->site->cluster;
    lio_path path = {.file = from->source == LIO_FROM_FILE,
                     .node = from->node,
                     .reads = from->source != LIO_FROM_FILE,
                     .read = from->tier,
                     .target = number_of(t, n)};
    actor *a = &t->actors[who];
    a->use = use;
    a->size = c->sizes[n->access[use]];
    a->does = does;
    a->source = from->source;
    lio_transfer_begin(t->transfers, who, a->size, &path);
    ++*count_of(t, use, from->source);
}

/* --- computing -------------------------------------------------------------------------------- */

static uint32_t first_actor(const lio_traffic *t, const node *n)
{
    return number_of(t, n) * t->site->shares.actors;
}

static void compute(lio_traffic *t, node *n, double seconds, double size)
{
    uint32_t who = first_actor(t, n);
    t->actors[who].does = COMPUTES;
    lio_transfer_wait(t->transfers, who, seconds + size / t->site->cluster.compute);
}

/* A node fetches what it asks for, which no thread reads. */
static void demand(lio_traffic *t, node *n)
{
    way found;
    n->waits = false;
    (void)find_way(t, n, n->use, true, true, &found);
    begin_read(t, n, first_actor(t, n), n->use, FETCHES, &found);
}

/* Lets a thread read what its node waits for from a quicker source, if there is one by now. */
static void read_elsewhere(lio_traffic *t, const node *n)
{
    uint32_t who = first_actor(t, n) + 1, last = who + t->site->cluster.threads - 1;
    const actor *a;
    way found;
    while (who < last && (t->actors[who].does != STAGES || t->actors[who].use != n->use))
        who++;
    a = &t->actors[who];
    if (a->does != STAGES || a->use != n->use || !find_way(t, n, n->use, true, false, &found) ||
        a->size / found.rate >= lio_transfer_left(t->transfers, who))
        return;
    --*count_of(t, n->use, a->source);
    lio_transfer_stop(t->transfers, who);
    begin_read(t, n, who, n->use, STAGES, &found);
}

/* Whether the buffer has room for a record; a larger one may be in it alone. */
static bool has_room(const lio_traffic *t, const node *n, double size)
{
    return n->buffered == 0 || n->used + size <= t->site->cluster.capacity;
}

/* A thread begins to read ahead what a node uses next. */
static void begin_staging(lio_traffic *t, node *n, const way *found)
{
    double capacity = t->site->cluster.capacity;
    n->used += t->site->cluster.sizes[n->access[n->next]];
    n->buffered++;
    if (n->buffered > 1 && n->used > capacity * (1 + LIO_TRAFFIC_ROUNDING))
        lio_traffic_note_overfull(t, "the staging buffer", number_of(t, n));
    n->uses[n->next] = UNDER_WAY;
    begin_read(t, n, n->idle[--n->idle_count], n->next, STAGES, found);
}

/* Free threads read ahead as far as the buffer has room. */
static void stage(lio_traffic *t, node *n)
{
    bool peers = may(t, LIO_CLOCK_STAGES_PEERS), file = may(t, LIO_CLOCK_STAGES_FILE);
    for (; n->idle_count > 0 && n->next < t->limit; n->next++) {
        way found;
        if (!has_room(t, n, t->site->cluster.sizes[n->access[n->next]]))
            return;
        if (find_way(t, n, n->next, peers, file, &found)) {
            begin_staging(t, n, &found);
            continue;
        }
        n->uses[n->next] = LEFT_OUT;
        if (n->waits && n->use == n->next)
            demand(t, n);
    }
}

/* A node takes a record out of the buffer. */
static void take(lio_traffic *t, node *n)
{
    double size = t->site->cluster.sizes[n->access[n->use]];
    n->waits = false;
    n->uses[n->use] = TAKEN;
    n->buffered--;
    n->used = n->buffered > 0 ? n->used - size : 0.0;
    compute(t, n, 0.0, size);
    stage(t, n);
}

/* A node asks for its next record, unless the iteration is over for it. */
static void ask(lio_traffic *t, node *n)
{
    if (n->use == (t->result->done + 1) * t->site->cluster.batch) {
        t->arrived++;
        return;
    }
    if (n->uses[n->use] == STAGED) {
        take(t, n);
    } else if (!may(t, LIO_CLOCK_STAGES) || n->uses[n->use] == LEFT_OUT) {
        demand(t, n);
    } else {
        n->waits = true;
        if (may(t, LIO_CLOCK_ON_DEMAND) && n->uses[n->use] == UNDER_WAY)
            read_elsewhere(t, n);
    }
}

/* A thread is free again. */
static void free_thread(lio_traffic *t, node *n, uint32_t who)
{
    t->actors[who].does = NOTHING;
    n->idle[n->idle_count++] = who;
    stage(t, n);
}

/* A thread has staged a record. */
static void put_down(lio_traffic *t, node *n, uint32_t who)
{
    uint64_t use = t->actors[who].use;
    n->uses[use] = STAGED;
    if (n->waits && n->use == use)
        take(t, n);
    if (may(t, LIO_CLOCK_KEEPS_STAGED) && lio_traffic_keep(t, who))
        t->keeping++;
    else
        free_thread(t, n, who);
}

/* A record is in a tier that is to hold it. */
static void kept(lio_traffic *t, node *n, uint32_t who)
{
    lio_transfer_end(t->transfers, who);
    t->site->cluster.ready[t->actors[who].entry] = lio_transfers_now(t->transfers);
    if (lio_traffic_keep(t, who))
        return;
    t->keeping--;
    free_thread(t, n, who);
}

/* --- iterations ------------------------------------------------------------------------------- */

/* Nodes know where records are held once all have read an epoch, and stage the next one then. */
static void begin_iteration(lio_traffic *t)
{
    const lio_cluster *c = &t->site->cluster;
    uint64_t done = t->result->done;
    bool further = done == 0;
    if (done == c->iterations)
        return;
    if (may(t, LIO_CLOCK_KEEPS_STAGED) && done % c->epoch_iterations == 0) {
        t->limit = (done / c->epoch_iterations + 1) * c->epoch_iterations * c->batch;
        further = true;
    }
    t->phase = ITERATING;
    t->arrived = 0;
    for (uint32_t i = 0; i < c->nodes && further && may(t, LIO_CLOCK_STAGES); i++)
        stage(t, &t->nodes[i]);
    for (uint32_t i = 0; i < c->nodes; i++)
        ask(t, &t->nodes[i]);
}

/* All nodes are at the end of an iteration. */
static void end_iteration(lio_traffic *t)
{
    lio_traffic_result *found = t->result;
    found->ends[found->done++] = lio_transfers_now(t->transfers);
    if (found->done % t->site->cluster.epoch_iterations == 0)
        t->phase = SETTLING;
    else
        begin_iteration(t);
}

/* Goes on to the next phase where nothing of this one is left to be done. */
static void begin_phases(lio_traffic *t)
{
    const lio_cluster *c = &t->site->cluster;
    if (t->phase == NOT_BEGUN) {
        t->phase = may(t, LIO_TRAFFIC_PRELOADS) ? PRELOADING : SETTLING;
        lio_traffic_begin_filling(t, false);
    }
    if (t->phase == PRELOADING && t->filling == 0) {
        t->phase = COPYING;
        if (may(t, LIO_TRAFFIC_COPIES))
            lio_traffic_begin_filling(t, true);
    }
    if (t->phase == COPYING && t->filling == 0) {
        t->result->start = lio_transfers_now(t->transfers);
        t->phase = SETTLING;
    }
    if (t->phase == ITERATING && t->arrived == c->nodes)
        end_iteration(t);
    if (t->phase == SETTLING && t->keeping == 0)
        begin_iteration(t);
}

/* An actor is done with what it did. */
static void go_on(lio_traffic *t, uint32_t who)
{
    actor *a = &t->actors[who];
    node *n = &t->nodes[a->node];
    switch (a->does) {
    case STAGES:
        lio_transfer_end(t->transfers, who);
        a->does = PREPARES;
        lio_transfer_wait(t->transfers, who, a->size / t->site->cluster.prepare);
        break;
    case PREPARES:
        put_down(t, n, who);
        break;
    case KEEPS:
        kept(t, n, who);
        break;
    case FETCHES:
        lio_transfer_end(t->transfers, who);
        compute(t, n, a->size / t->site->cluster.prepare, a->size);
        break;
    case COMPUTES:
        n->use++;
        ask(t, n);
        break;
    default:
        lio_traffic_brought(t, who);
    }
}

/* Looks at what the last event has changed. */
static int check(const lio_traffic *t, lio_error *error)
{
    if (t->overfull != NULL)
        return lio_traffic_fail_full(t, t->overfull, t->overfull_node, error);
    return may(t, LIO_TRAFFIC_CHECKS) ? lio_traffic_check(t, error) : LIO_OK;
}

int lio_traffic_run(lio_traffic *traffic, uint64_t count, lio_error *error)
{
    uint64_t iterations = traffic->site->cluster.iterations;
    int code = LIO_OK;
    for (begin_phases(traffic); code == LIO_OK && traffic->result->done < iterations; count--) {
        uint32_t who = 0;
        if (count == 0)
            return LIO_PENDING;
        code = lio_transfers_next(traffic->transfers, &who, error);
        if (code == LIO_NOTFOUND)
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, iterations, traffic->result->done,
                            "nothing happens any more after %g s",
                            lio_transfers_now(traffic->transfers));
        if (code != LIO_OK)
            return code;
        go_on(traffic, who);
        begin_phases(traffic);
        code = check(traffic, error);
    }
    return code;
}

/* --- open and close --------------------------------------------------------------------------- */

static bool make_nodes(lio_traffic *t)
{
    const lio_cluster *c = &t->site->cluster;
    uint64_t length = use_count(c);
    bool stages = may(t, LIO_CLOCK_STAGES);
    for (uint32_t i = 0; i < c->nodes; i++) {
        node *n = &t->nodes[i];
        n->access = c->access + i * length;
        n->uses = calloc(length + 1, sizeof *n->uses);
        n->idle = malloc(((size_t)c->threads + 1) * sizeof *n->idle);
        if (n->uses == NULL || n->idle == NULL)
            return false;
        for (uint32_t k = c->threads; stages && k > 0; k--)
            n->idle[n->idle_count++] = i * t->site->shares.actors + k;
    }
    return true;
}

static void make_actors(lio_traffic *t)
{
    const lio_cluster *c = &t->site->cluster;
    actor *a = t->actors;
    for (uint32_t i = 0; i < c->nodes; i++) {
        for (uint32_t k = 0; k <= c->threads; k++)
            *a++ = (actor){.node = i};
        for (uint32_t tier = 0; tier < c->tiers; tier++) {
            t->stores[(size_t)i * c->tiers + tier].shift = 1;
            for (uint32_t k = 0; k < c->tier_threads[tier]; k++)
                *a++ = (actor){.node = i, .tier = tier};
        }
    }
}

int lio_traffic_open(lio_traffic_site *site, lio_traffic_result *result, lio_traffic **out,
                     lio_error *error)
{
    const lio_cluster *c = &site->cluster;
    lio_traffic *t = calloc(1, sizeof *t);
    int code;
    site->shares.nodes = c->nodes;
    site->shares.tiers = c->tiers;
    site->shares.actors = 1 + c->threads;
    for (uint32_t tier = 0; tier < c->tiers; tier++)
        site->shares.actors += c->tier_threads[tier];
    if (t == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, 0, 0, "no memory for the nodes");
    t->site = site;
    t->result = result;
    t->limit = use_count(c);
    code = lio_transfers_open(&site->shares, &t->transfers, error);
    if (code != LIO_OK) {
        free(t);
        return code;
    }
    t->nodes = calloc(c->nodes, sizeof *t->nodes);
    t->stores = calloc((size_t)c->nodes * c->tiers + 1, sizeof *t->stores);
    t->actors = malloc((size_t)c->nodes * site->shares.actors * sizeof *t->actors);
    if (t->nodes == NULL || t->stores == NULL || t->actors == NULL || !make_nodes(t)) {
        lio_traffic_close(t);
        return lio_fail(error, LIO_ERR_NOMEM, 0, t->limit, 0, "no memory for the nodes");
    }
    make_actors(t);
    *out = t;
    return LIO_OK;
}

void lio_traffic_close(lio_traffic *traffic)
{
    if (traffic == NULL)
        return;
    for (uint32_t i = 0; traffic->nodes != NULL && i < traffic->site->cluster.nodes; i++) {
        free(traffic->nodes[i].uses);
        free(traffic->nodes[i].idle);
    }
    lio_transfers_close(traffic->transfers);
    free(traffic->nodes);
    free(traffic->stores);
    free(traffic->actors);
    free(traffic);
}
