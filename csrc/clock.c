#include "clock.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* The state of one node. */
typedef struct {
    const uint32_t *access;
    double *staged;   /* when each record that it will use is in the buffer */
    double *threads;  /* when each is free again: the buffer's, then the tiers' */
    uint64_t *filled; /* by tier: records whose fetching has begun */
    uint64_t next;    /* the first use that was not staged yet */
    double used;      /* of the buffer */
    double asked;     /* when its latest known read from the file system began */
    bool blocked;     /* the buffer was full when it was looked at last */
} node;

struct lio_clock {
    const lio_cluster *c;
    node *nodes;
    uint64_t *counts; /* by epoch and source */
    uint64_t limit;   /* uses before it may be staged */
    uint64_t done;    /* iterations */
    double now;       /* when the last one ended */
};

/* A way to a record: how long it takes, and whence. */
typedef struct {
    double seconds;
    uint32_t source;
} way;

/* --- the file system ------------------------------------------------------------------------- */

/* Another node is a client if its latest known read began at `moment` or later. */
static double file_rate(const lio_clock *clock, const node *self, double moment)
{
    uint32_t clients = 1;
    if (clock->c->may & LIO_CLOCK_ALL_ARE_CLIENTS)
        return clock->c->file_rates[clock->c->nodes - 1];
    for (uint32_t i = 0; i < clock->c->nodes; i++)
        clients += &clock->nodes[i] != self && clock->nodes[i].asked >= moment;
    return clock->c->file_rates[clients - 1];
}

static void count_read(const lio_clock *clock, uint64_t use, uint32_t source)
{
    uint64_t epoch = use / (clock->c->epoch_iterations * clock->c->batch);
    clock->counts[epoch * LIO_SOURCES + source]++;
}

/* To read a record and to make it ready. */
static double seconds_at(const lio_clock *clock, double size, double rate)
{
    return size / rate + size / clock->c->prepare;
}

static double file_seconds(const lio_clock *clock, const node *self, double moment,
                           uint32_t record)
{
    return seconds_at(clock, clock->c->sizes[record], file_rate(clock, self, moment));
}

static void note_file_read(node *n, double moment)
{
    n->asked = moment > n->asked ? moment : n->asked;
}

/* --- tiers ------------------------------------------------------------------------------------ */

/* The threads of a tier take its records in turn. */
static void fill_tier(lio_clock *clock, node *n, uint64_t list, uint32_t tier, double *threads,
                      double moment)
{
    const lio_cluster *c = clock->c;
    for (uint64_t *at = &n->filled[tier]; *at < c->fetches[list + 1] - c->fetches[list]; ++*at) {
        uint64_t entry = c->fetch[c->fetches[list] + *at];
        double *thread = &threads[*at % c->tier_threads[tier]], begun = *thread;
        if (begun > moment)
            return;
        *thread += file_seconds(clock, n, begun, c->entry_record[entry]);
        note_file_read(n, begun);
        c->ready[entry] = *thread;
    }
}

/* Begins to fetch what a node's tiers come to until `moment`. */
static void fill_tiers(lio_clock *clock, node *n, double moment)
{
    const lio_cluster *c = clock->c;
    double *threads = n->threads + c->threads;
    for (uint32_t tier = 0; tier < c->tiers; tier++) {
        fill_tier(clock, n, (uint64_t)(n - clock->nodes) * c->tiers + tier, tier, threads, moment);
        threads += c->tier_threads[tier];
    }
}

/* The quickest of those that hold a record at `moment`: the node itself, or any. */
static way held_way(const lio_clock *clock, const node *n, uint32_t record, double moment,
                    bool peers)
{
    const lio_cluster *c = clock->c;
    way best = {INFINITY, LIO_FROM_FILE};
    for (uint64_t e = c->holders[record]; e < c->holders[record + 1]; e++) {
        bool own = &clock->nodes[c->entry_node[e]] == n;
        double seconds;
        if (c->ready[e] > moment || !(own || peers))
            continue;
        seconds = seconds_at(clock, c->sizes[record],
                             (own ? c->own_rates : c->peer_rates)[c->entry_tier[e]]);
        if (seconds < best.seconds)
            best = (way){seconds, own ? LIO_FROM_OWN : LIO_FROM_PEER};
    }
    return best;
}

/* Gives a record that was read to all that are to hold it. */
static void keep_staged(const lio_cluster *c, uint32_t record, double moment)
{
    for (uint64_t e = c->holders[record]; e < c->holders[record + 1]; e++)
        if (c->ready[e] > moment)
            c->ready[e] = moment;
}

/* --- the staging buffer ----------------------------------------------------------------------- */

/* Whether a record is read ahead; and if, how. The file system is the last choice, as it is the
 * slowest where a record is held. */
static bool staging_way(lio_clock *clock, node *n, uint32_t record, double moment, way *found)
{
    *found = held_way(clock, n, record, moment, (clock->c->may & LIO_CLOCK_STAGES_PEERS) != 0);
    if (found->source != LIO_FROM_FILE)
        return true;
    if (!(clock->c->may & LIO_CLOCK_STAGES_FILE))
        return false;
    found->seconds = file_seconds(clock, n, moment, record);
    note_file_read(n, moment);
    return true;
}

/* Reads ahead as far as the buffer has room, at least up to the use `wanted`, unless that is asked
 * for on demand before its turn has come. */
static void stage(lio_clock *clock, node *n, double now, uint64_t wanted)
{
    const lio_cluster *c = clock->c;
    for (; n->next < clock->limit; n->next++) {
        uint32_t record = n->access[n->next];
        double *thread = &n->threads[n->next % c->threads], begun = *thread;
        way found;
        if (n->used + c->sizes[record] > c->capacity && n->next > wanted) {
            n->blocked = true;
            return;
        }
        if (n->blocked && begun < now)
            begun = now;
        n->blocked = false;
        fill_tiers(clock, n, begun);
        if ((c->may & LIO_CLOCK_ON_DEMAND) && begun > now && n->next == wanted)
            return;
        if (!staging_way(clock, n, record, begun, &found)) {
            n->staged[n->next] = INFINITY;
            continue;
        }
        *thread = n->staged[n->next] = begun + found.seconds;
        n->used += c->sizes[record];
        count_read(clock, n->next, found.source);
        if (c->may & LIO_CLOCK_KEEPS_STAGED)
            keep_staged(c, record, *thread);
    }
}

/* The quickest way at `now`, for which nothing was done before. */
static way demanded_way(lio_clock *clock, node *n, uint32_t record, double now)
{
    way best = held_way(clock, n, record, now, true);
    double seconds = file_seconds(clock, n, now, record);
    if (seconds < best.seconds)
        best = (way){seconds, LIO_FROM_FILE};
    return best;
}

/* When a record is there that a node asks for at `now`. */
static double served(lio_clock *clock, node *n, double now, uint64_t use)
{
    const lio_cluster *c = clock->c;
    uint32_t record = n->access[use];
    bool is_staged;
    double at;
    if (c->may & LIO_CLOCK_STAGES)
        stage(clock, n, now, use);
    else
        fill_tiers(clock, n, now);
    is_staged = n->next > use && n->staged[use] < INFINITY;
    at = is_staged ? n->staged[use] : INFINITY;
    if (at > now && (!is_staged || (c->may & LIO_CLOCK_ON_DEMAND))) {
        way found = demanded_way(clock, n, record, now);
        if (now + found.seconds < at) {
            at = now + found.seconds;
            count_read(clock, use, found.source);
            if (found.source == LIO_FROM_FILE)
                note_file_read(n, now);
        }
    }
    if (is_staged)
        n->used -= c->sizes[record];
    if (n->next <= use)
        n->next = use + 1;
    return at > now ? at : now;
}

/* --- iterations ------------------------------------------------------------------------------- */

static double iterate(lio_clock *clock, node *n, double now, uint64_t first)
{
    for (uint64_t use = first; use < first + clock->c->batch; use++)
        now = served(clock, n, now, use) + clock->c->sizes[n->access[use]] / clock->c->compute;
    return now;
}

static void nodes_free(node *nodes, uint32_t count)
{
    for (uint32_t i = 0; nodes != NULL && i < count; i++) {
        free(nodes[i].staged);
        free(nodes[i].threads);
        free(nodes[i].filled);
    }
    free(nodes);
}

static node *nodes_make(const lio_cluster *c, uint64_t length)
{
    node *nodes = calloc(c->nodes, sizeof *nodes);
    size_t threads = c->threads;
    for (uint32_t tier = 0; tier < c->tiers; tier++)
        threads += c->tier_threads[tier];
    for (uint32_t i = 0; nodes != NULL && i < c->nodes; i++) {
        node *n = &nodes[i];
        n->access = c->access + i * length;
        n->staged = malloc((length + 1) * sizeof *n->staged);
        n->threads = calloc(threads, sizeof *n->threads);
        n->filled = calloc(c->tiers + 1, sizeof *n->filled);
        n->asked = -1;
        if (n->staged == NULL || n->threads == NULL || n->filled == NULL) {
            nodes_free(nodes, c->nodes);
            return NULL;
        }
    }
    return nodes;
}

/* A node knows where records are held once all have read an epoch, and stages the next one then. */
static void begin_epoch(lio_clock *clock, uint64_t epoch, double now)
{
    clock->limit = (epoch + 1) * clock->c->epoch_iterations * clock->c->batch;
    for (uint32_t i = 0; i < clock->c->nodes; i++)
        for (uint32_t k = 0; k < clock->c->threads; k++)
            if (clock->nodes[i].threads[k] < now)
                clock->nodes[i].threads[k] = now;
}

int lio_clock_open(const lio_cluster *cluster, lio_clock **out, lio_error *error)
{
    uint64_t length = cluster->iterations * cluster->batch;
    lio_clock *clock = calloc(1, sizeof *clock);
    node *nodes = clock == NULL ? NULL : nodes_make(cluster, length);
    if (nodes == NULL) {
        free(clock);
        return lio_fail(error, LIO_ERR_NOMEM, 0, length, 0, "no memory for the nodes");
    }
    *clock = (lio_clock){.c = cluster, .nodes = nodes, .limit = length, .now = cluster->start};
    *out = clock;
    return LIO_OK;
}

uint64_t lio_clock_run(lio_clock *clock, uint64_t count, double *ends, uint64_t *counts)
{
    const lio_cluster *c = clock->c;
    clock->counts = counts;
    for (; count > 0 && clock->done < c->iterations; count--, clock->done++) {
        double end = clock->now;
        if ((c->may & LIO_CLOCK_KEEPS_STAGED) && clock->done % c->epoch_iterations == 0)
            begin_epoch(clock, clock->done / c->epoch_iterations, clock->now);
        for (uint32_t i = 0; i < c->nodes; i++) {
            double own = iterate(clock, &clock->nodes[i], clock->now, clock->done * c->batch);
            end = own > end ? own : end;
        }
        ends[clock->done] = clock->now = end;
    }
    return c->iterations - clock->done;
}

void lio_clock_close(lio_clock *clock)
{
    if (clock == NULL)
        return;
    nodes_free(clock->nodes, clock->c->nodes);
    free(clock);
}
