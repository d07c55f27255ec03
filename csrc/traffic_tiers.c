#include <math.h>

#include "traffic_state.h"

enum { COPIED_AT_ONCE = 64 }; /* records: a copy is long, and nobody waits for a part of it */

void lio_traffic_note_overfull(lio_traffic *t, const char *what, uint32_t number)
{
    t->overfull = what;
    t->overfull_node = number;
}

static void hold(lio_traffic *t, uint32_t number, uint32_t tier, double size)
{
    store *s = &t->stores[(size_t)number * t->site->cluster.tiers + tier];
    s->held += size;
    if (s->held > t->site->capacities[tier] * (1 + LIO_TRAFFIC_ROUNDING))
        lio_traffic_note_overfull(t, "a tier", number);
}

/* Lets a thread of a tier fetch the next record of its list. False: there is none. */
static bool fill(lio_traffic *t, uint32_t who, bool again)
{
    const lio_cluster *c = &t->site->cluster;
    actor *a = &t->actors[who];
    size_t list = (size_t)a->node * c->tiers + a->tier;
    uint64_t at = c->fetches[list] + t->stores[list].filled;
    lio_path path = {.file = true, .target = a->node, .writes = true, .written = a->tier};
    if (at >= c->fetches[list + 1])
        return false;
    t->stores[list].filled++;
    a->does = FILLS;
    a->entry = c->fetch[at];
    a->size = c->sizes[c->entry_record[a->entry]];
    hold(t, a->node, a->tier, a->size);
    if (again)
        lio_transfer_again(t->transfers, who, a->size);
    else
        lio_transfer_begin(t->transfers, who, a->size, &path);
    return true;
}

/* Takes the next records that a tier copies from the same tier of another node, as far as it has
 * room. False: there are none. */
static bool next_copy(lio_traffic *t, uint32_t number, uint32_t tier, uint32_t *source,
                      double *size)
{
    const lio_cluster *c = &t->site->cluster;
    store *s = &t->stores[(size_t)number * c->tiers + tier];
    double room = t->site->capacities[tier] - s->held;
    uint32_t n = 0;
    *size = 0.0;
    while (n < COPIED_AT_ONCE && s->shift < c->nodes && !s->full) {
        uint32_t other = (number + s->shift) % c->nodes;
        size_t list = (size_t)other * c->tiers + tier;
        uint64_t at = c->fetches[list] + s->copied;
        double more;
        if (at >= c->fetches[list + 1]) {
            if (n > 0)
                break;
            s->shift++;
            s->copied = 0;
            continue;
        }
        more = c->sizes[c->entry_record[c->fetch[at]]];
        s->full = *size + more > room;
        if (s->full)
            break;
        *source = other;
        *size += more;
        s->copied++;
        n++;
    }
    return n > 0;
}

/* Lets a thread of a tier copy; false: there is nothing left that has room. */
static bool copy(lio_traffic *t, uint32_t who)
{
    actor *a = &t->actors[who];
    lio_path path = {
        .reads = true, .read = a->tier, .target = a->node, .writes = true, .written = a->tier};
    double size;
    if (!next_copy(t, a->node, a->tier, &path.node, &size))
        return false;
    a->does = COPIES;
    a->size = size;
    hold(t, a->node, a->tier, size);
    lio_transfer_begin(t->transfers, who, size, &path);
    return true;
}

void lio_traffic_begin_filling(lio_traffic *t, bool copies)
{
    const lio_cluster *c = &t->site->cluster;
    uint32_t each = t->site->shares.actors;
    for (uint32_t who = 0; who < c->nodes * each; who++)
        if (who % each > c->threads)
            t->filling += copies ? copy(t, who) : fill(t, who, false);
}

bool lio_traffic_keep(lio_traffic *t, uint32_t who)
{
    const lio_cluster *c = &t->site->cluster;
    actor *a = &t->actors[who];
    uint32_t record = t->nodes[a->node].access[a->use];
    lio_path path = {.node = a->node, .writes = true};
    for (uint64_t e = c->holders[record]; e < c->holders[record + 1]; e++) {
        if (isfinite(c->ready[e]))
            continue;
        a->does = KEEPS;
        a->entry = e;
        path.target = c->entry_node[e];
        path.written = c->entry_tier[e];
        hold(t, path.target, path.written, a->size);
        lio_transfer_begin(t->transfers, who, a->size, &path);
        return true;
    }
    return false;
}

void lio_traffic_brought(lio_traffic *t, uint32_t who)
{
    actor *a = &t->actors[who];
    bool copies = a->does == COPIES, more;
    a->does = NOTHING;
    if (copies) {
        lio_transfer_end(t->transfers, who);
        more = copy(t, who);
    } else {
        t->site->cluster.ready[a->entry] = lio_transfers_now(t->transfers);
        more = fill(t, who, true);
        if (!more)
            lio_transfer_end(t->transfers, who);
    }
    t->filling -= !more;
}
