#include <math.h>

#include "traffic_state.h"

int lio_traffic_fail_full(const lio_traffic *t, const char *what, uint32_t number,
                          lio_error *error)
{
    return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0,
                    "at %g s %s of node %u holds more than it has room for",
                    lio_transfers_now(t->transfers), what, number);
}

/* Adds up what a node's buffer holds, and what is on its way there. */
static bool is_buffer_right(const lio_traffic *t, const node *n)
{
    const lio_cluster *c = &t->site->cluster;
    double used = 0.0;
    uint64_t count = 0;
    for (uint64_t use = n->use; use < n->next; use++)
        if (n->uses[use] >= UNDER_WAY) {
            used += c->sizes[n->access[use]];
            count++;
        }
    return count == n->buffered &&
           (count <= 1 || used <= c->capacity * (1 + LIO_TRAFFIC_ROUNDING));
}

/* Adds up what a node's tier holds; of copies, and of what is on its way, there is a note only. */
static bool is_tier_right(const lio_traffic *t, uint32_t list)
{
    const lio_cluster *c = &t->site->cluster;
    double held = 0.0, noted = t->stores[list].held;
    for (uint64_t e = 0; e < t->site->entries; e++)
        if (c->entry_node[e] * c->tiers + c->entry_tier[e] == list && isfinite(c->ready[e]))
            held += c->sizes[c->entry_record[e]];
    return held <= noted * (1 + LIO_TRAFFIC_ROUNDING) &&
           noted <= t->site->capacities[list % c->tiers] * (1 + LIO_TRAFFIC_ROUNDING);
}

int lio_traffic_check(const lio_traffic *t, lio_error *error)
{
    const lio_cluster *c = &t->site->cluster;
    for (uint32_t i = 0; i < c->nodes; i++)
        if (!is_buffer_right(t, &t->nodes[i]))
            return lio_traffic_fail_full(t, "the staging buffer", i, error);
    for (uint32_t list = 0; list < c->nodes * c->tiers; list++)
        if (!is_tier_right(t, list))
            return lio_traffic_fail_full(t, "a tier", list / c->tiers, error);
    return lio_transfers_check(t->transfers, error);
}
