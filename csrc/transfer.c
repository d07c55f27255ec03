#include "transfer.h"

#include <math.h>
#include <stdlib.h>

#include "contract.h"
#include "transfer_heap.h"

/* Parts of a node. */
enum { LINK, OUT, IN, TIERS };
enum { PARTS_MAX = 4, NOWHERE = -1 };
/* An actor is timed by nothing, by seconds, or by the work that a client is given. */
enum { IDLE, BY_SECONDS, BY_WORK, TIMES };

static const double one = 1.0;
/* Shares are quotients, their sums may be off by a little. */
static const double rounding = 1e-9;

/* Something that transfers share. A link's rates are shares of what a client is given. */
typedef struct {
    const double *rates; /* by the number of its transfers */
    uint32_t columns;
    uint32_t count;
    int64_t first; /* of its transfers: actor * PARTS_MAX + which of its parts it is */
    double share;
} part;

typedef struct {
    double left; /* M, at `since` */
    double since, rate;
    uint32_t parts;
    uint32_t timed;
    bool file;
    uint32_t part[PARTS_MAX];
    int64_t next[PARTS_MAX], last[PARTS_MAX];
    uint32_t contested_at; /* its place among the contested */
} transfer;

struct lio_transfers {
    const lio_shares *s;
    uint32_t stride; /* parts of a node */
    part *parts;
    transfer *all;
    lio_heap heaps[TIMES];
    /* Transfers that either the file system or a tier holds back, as the clients are. */
    uint32_t *contested, contested_count;
    bool *holds_back; /* by tier */
    double now;
    uint32_t clients;
    double given;        /* to a client, a second          */
    double work, moment; /* given to it until that moment  */
    int64_t broken;      /* a part that gave too much      */
};

/* fmin and fmax would need libm, which a library that is loaded cannot count on. */
static double lesser(double a, double b)
{
    return a < b ? a : b;
}

static double greater(double a, double b)
{
    return a > b ? a : b;
}

/* --- shares ----------------------------------------------------------------------------------- */

static bool is_link(const part *p)
{
    return p->rates == &one;
}

static double rate_of(const part *p)
{
    return p->rates[(p->count < p->columns ? p->count : p->columns) - 1];
}

static double clock_of(const lio_transfers *t, uint32_t timed)
{
    return timed == BY_WORK ? t->work + (t->now - t->moment) * t->given : t->now;
}

static double rate_now(const lio_transfers *t, const transfer *f)
{
    return f->timed == BY_WORK ? f->rate * t->given : f->rate;
}

/* Returns the rate of a transfer, by seconds or by a client's work: `timed`. */
static double least_share(const lio_transfers *t, const transfer *f, uint32_t *timed)
{
    double least = INFINITY;
    for (uint32_t i = f->file; i < f->parts; i++)
        least = lesser(least, t->parts[f->part[i]].share);
    *timed = BY_SECONDS;
    if (f->file && t->parts[f->part[0]].share * t->given <= least) {
        *timed = BY_WORK;
        least = t->parts[f->part[0]].share;
    }
    return least;
}

/* Returns M a second that a part gives to each of its transfers. */
static double share_of(const lio_transfers *t, const part *p)
{
    return is_link(p) ? p->share * t->given : p->share;
}

/* Notes the part of which a transfer gets more than its share. */
static void note_excess(lio_transfers *t, const transfer *f)
{
    double rate = rate_now(t, f);
    for (uint32_t i = 0; i < f->parts; i++)
        if (rate > share_of(t, &t->parts[f->part[i]]) * (1 + rounding))
            t->broken = f->part[i];
}

/* Gives a transfer its rate, and moves its end where that is another one. */
static void rate_again(lio_transfers *t, uint32_t actor)
{
    transfer *f = &t->all[actor];
    uint32_t timed, was = f->timed;
    double rate = least_share(t, f, &timed), key;
    if (timed == was && rate == f->rate)
        return;
    if (was != IDLE)
        f->left = greater(0.0, f->left - f->rate * (clock_of(t, was) - f->since));
    f->rate = rate;
    f->timed = timed;
    f->since = clock_of(t, timed);
    note_excess(t, f);
    key = f->since + f->left / rate;
    if (was == timed) {
        lio_heap_move(&t->heaps[timed], actor, key);
        return;
    }
    if (was != IDLE)
        lio_heap_remove(&t->heaps[was], actor);
    lio_heap_put(&t->heaps[timed], actor, key);
}

static bool is_overused(const lio_transfers *t, const part *p)
{
    double sum = 0.0, most;
    if (p->count == 0)
        return false;
    for (int64_t at = p->first; at != NOWHERE;) {
        const transfer *f = &t->all[at / PARTS_MAX];
        sum += rate_now(t, f);
        at = f->next[at % PARTS_MAX];
    }
    most = is_link(p) ? t->given : rate_of(p);
    return sum > most * (1 + rounding);
}

static bool is_file_overused(const lio_transfers *t)
{
    const lio_shares *s = t->s;
    return t->clients > 0 &&
           (t->given * t->clients > s->file_system[t->clients - 1] * (1 + rounding) ||
            t->given > s->file_network * (1 + rounding));
}

/* A client more or less: all get another share from now on. */
static void count_clients(lio_transfers *t, uint32_t clients)
{
    t->work = clock_of(t, BY_WORK);
    t->moment = t->now;
    t->clients = clients;
    t->given = clients == 0 ? 0.0
                            : lesser(t->s->file_network, t->s->file_system[clients - 1] / clients);
    for (uint32_t i = 0; clients > 0 && i < t->contested_count; i++)
        rate_again(t, t->contested[i]);
    for (uint32_t i = 0; clients > 0 && i < t->contested_count; i++)
        note_excess(t, &t->all[t->contested[i]]);
}

/* --- joining and leaving ---------------------------------------------------------------------- */

static void join(lio_transfers *t, uint32_t actor, uint32_t i)
{
    transfer *f = &t->all[actor];
    part *p = &t->parts[f->part[i]];
    int64_t self = (int64_t)actor * PARTS_MAX + i;
    f->last[i] = NOWHERE;
    f->next[i] = p->first;
    if (p->first != NOWHERE)
        t->all[p->first / PARTS_MAX].last[p->first % PARTS_MAX] = self;
    p->first = self;
    p->count++;
    p->share = rate_of(p) / p->count;
}

static void leave(lio_transfers *t, uint32_t actor, uint32_t i)
{
    const transfer *f = &t->all[actor];
    part *p = &t->parts[f->part[i]];
    LIO_ASSERT(p->count > 0);
    if (f->last[i] != NOWHERE)
        t->all[f->last[i] / PARTS_MAX].next[f->last[i] % PARTS_MAX] = f->next[i];
    else
        p->first = f->next[i];
    if (f->next[i] != NOWHERE)
        t->all[f->next[i] / PARTS_MAX].last[f->next[i] % PARTS_MAX] = f->last[i];
    if (--p->count > 0)
        p->share = rate_of(p) / p->count;
}

/* All that share a part with a transfer have other shares now. */
static void rate_all(lio_transfers *t, const transfer *f)
{
    for (uint32_t i = 0; i < f->parts; i++)
        for (int64_t at = t->parts[f->part[i]].first; at != NOWHERE;) {
            uint32_t actor = (uint32_t)(at / PARTS_MAX);
            rate_again(t, actor);
            at = t->all[actor].next[at % PARTS_MAX];
        }
    for (uint32_t i = 0; i < f->parts && t->broken == NOWHERE; i++)
        if (is_overused(t, &t->parts[f->part[i]]) || (f->file && is_file_overused(t)))
            t->broken = f->part[i];
}

static void add_contested(lio_transfers *t, uint32_t actor)
{
    t->all[actor].contested_at = t->contested_count;
    t->contested[t->contested_count++] = actor;
}

static void remove_contested(lio_transfers *t, uint32_t actor)
{
    LIO_ASSERT(t->contested_count > 0);
    uint32_t place = t->all[actor].contested_at, last = t->contested[--t->contested_count];
    LIO_ASSERT(t->contested[place] == actor);
    t->contested[place] = last;
    t->all[last].contested_at = place;
}

static bool is_contested(const lio_transfers *t, const transfer *f)
{
    return f->file && f->parts > 1 && t->holds_back[(f->part[1] % t->stride - TIERS) / 2];
}

void lio_transfer_begin(lio_transfers *t, uint32_t actor, double size, const lio_path *path)
{
    transfer *f = &t->all[actor];
    uint32_t n = 0, from = path->node * t->stride, to = path->target * t->stride;
    LIO_ASSERT(f->parts == 0); /* it has ended before */
    f->left = size;
    f->timed = IDLE;
    f->file = path->file;
    if (path->file)
        f->part[n++] = to + LINK;
    if (path->reads)
        f->part[n++] = from + TIERS + 2 * path->read;
    if (!path->file && from != to) {
        f->part[n++] = from + OUT;
        f->part[n++] = to + IN;
    }
    if (path->writes)
        f->part[n++] = to + TIERS + 2 * path->written + 1;
    f->parts = n;
    for (uint32_t i = 0; i < n; i++)
        join(t, actor, i);
    if (path->file && t->parts[f->part[0]].count == 1)
        count_clients(t, t->clients + 1);
    if (is_contested(t, f))
        add_contested(t, actor);
    rate_all(t, f);
}

void lio_transfer_again(lio_transfers *t, uint32_t actor, double size)
{
    transfer *f = &t->all[actor];
    LIO_ASSERT(f->timed != IDLE && f->parts > 0);
    f->left = size;
    f->since = clock_of(t, f->timed);
    lio_heap_put(&t->heaps[f->timed], actor, f->since + size / f->rate);
}

void lio_transfer_end(lio_transfers *t, uint32_t actor)
{
    transfer *f = &t->all[actor];
    if (is_contested(t, f))
        remove_contested(t, actor);
    for (uint32_t i = 0; i < f->parts; i++)
        leave(t, actor, i);
    if (f->file && t->parts[f->part[0]].count == 0)
        count_clients(t, t->clients - 1);
    rate_all(t, f);
    f->timed = IDLE;
    f->parts = 0;
}

void lio_transfer_stop(lio_transfers *t, uint32_t actor)
{
    lio_heap_remove(&t->heaps[t->all[actor].timed], actor);
    lio_transfer_end(t, actor);
}

double lio_transfer_left(const lio_transfers *t, uint32_t actor)
{
    const transfer *f = &t->all[actor];
    double left = f->left - f->rate * (clock_of(t, f->timed) - f->since);
    return greater(0.0, left) / rate_now(t, f);
}

void lio_transfer_wait(lio_transfers *t, uint32_t actor, double seconds)
{
    t->all[actor].timed = IDLE;
    lio_heap_put(&t->heaps[BY_SECONDS], actor, t->now + seconds);
}

/* --- events ----------------------------------------------------------------------------------- */

static int fail_overused(const lio_transfers *t, uint32_t which, lio_error *error)
{
    static const char *const names[] = {"file system or its link to", "network out of",
                                        "network into"};
    uint32_t kind = which % t->stride, node = which / t->stride;
    if (kind < TIERS)
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0,
                        "at %g s the %s node %u gives more than it has", t->now, names[kind],
                        node);
    return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, 0,
                    "at %g s tier %u of node %u is %s faster than it can be", t->now,
                    (kind - TIERS) / 2 + 1, node, (kind - TIERS) % 2 ? "written" : "read");
}

double lio_transfers_now(const lio_transfers *transfers)
{
    return transfers->now;
}

int lio_transfers_next(lio_transfers *t, uint32_t *actor, lio_error *error)
{
    lio_heap *seconds = &t->heaps[BY_SECONDS], *work = &t->heaps[BY_WORK], *heap = seconds;
    double next = INFINITY;
    if (t->broken != NOWHERE)
        return fail_overused(t, (uint32_t)t->broken, error);
    if (seconds->count + work->count == 0)
        return LIO_NOTFOUND;
    if (seconds->count > 0)
        next = seconds->items[0].key;
    if (work->count > 0) {
        double at = t->moment + (work->items[0].key - t->work) / t->given;
        heap = at < next || seconds->count == 0 ? work : seconds;
        next = lesser(at, next);
    }
    t->now = greater(t->now, next);
    *actor = heap->items[0].actor;
    lio_heap_remove(heap, *actor);
    return LIO_OK;
}

/* Whether a part's transfers are as many and as quick as noted; counts clients, and adds up what they
 * read. */
static bool is_part_right(const lio_transfers *t, uint32_t which, uint32_t *clients, double *file)
{
    const part *p = &t->parts[which];
    uint32_t count = 0;
    for (int64_t at = p->first; at != NOWHERE; count++) {
        const transfer *f = &t->all[at / PARTS_MAX];
        uint32_t timed;
        double rate = least_share(t, f, &timed);
        if (f->part[at % PARTS_MAX] != which || f->timed != timed || f->rate != rate)
            return false;
        *file += which % t->stride == LINK ? rate_now(t, f) : 0.0;
        at = f->next[at % PARTS_MAX];
    }
    *clients += which % t->stride == LINK && count > 0;
    return count == p->count && !is_overused(t, p);
}

int lio_transfers_check(const lio_transfers *t, lio_error *error)
{
    uint32_t clients = 0;
    double file = 0.0;
    for (uint32_t which = 0; which < t->s->nodes * t->stride; which++)
        if (!is_part_right(t, which, &clients, &file))
            return fail_overused(t, which, error);
    if (clients != t->clients || is_file_overused(t) ||
        (clients > 0 && file > t->s->file_system[clients - 1] * (1 + rounding)))
        return lio_fail(error, LIO_ERR_ARGUMENT, 0, t->clients, clients,
                        "at %g s the file system gives %g M/s to %u nodes", t->now, file, clients);
    return LIO_OK;
}

/* --- open and close --------------------------------------------------------------------------- */

static void make_parts(lio_transfers *t)
{
    const lio_shares *s = t->s;
    for (uint32_t which = 0; which < s->nodes * t->stride; which++) {
        uint32_t kind = which % t->stride;
        part p = {.rates = &s->network, .columns = 1, .first = NOWHERE};
        if (kind == LINK) {
            p.rates = &one;
        } else if (kind >= TIERS) {
            const double *table = (kind - TIERS) % 2 ? s->writes : s->reads;
            p.rates = table + (size_t)((kind - TIERS) / 2) * s->columns;
            p.columns = s->columns;
        }
        t->parts[which] = p;
    }
}

/* Whether a tier may be slower than the file system is to those that fill it, which are of its own
 * node. */
static bool may_hold_back(const lio_shares *s, uint32_t tier)
{
    const double *writes = s->writes + (size_t)tier * s->columns;
    double most = 0.0, least = INFINITY;
    for (uint32_t n = 1; n <= s->nodes; n++)
        most = greater(most, lesser(s->file_network, s->file_system[n - 1] / n));
    for (uint32_t n = 1; n <= s->actors; n++)
        least = lesser(least, writes[(n < s->columns ? n : s->columns) - 1] / n);
    return least < most;
}

static bool make(lio_transfers *t)
{
    const lio_shares *s = t->s;
    size_t actors = (size_t)s->nodes * s->actors;
    uint32_t *places = malloc(actors * sizeof *places);
    t->parts = malloc((size_t)s->nodes * t->stride * sizeof *t->parts);
    t->all = calloc(actors, sizeof *t->all);
    t->contested = malloc(actors * sizeof *t->contested);
    t->holds_back = malloc(s->tiers + 1);
    for (uint32_t i = BY_SECONDS; i < TIMES; i++) {
        t->heaps[i].items = malloc(actors * sizeof *t->heaps[i].items);
        t->heaps[i].places = places;
    }
    if (places == NULL || t->parts == NULL || t->all == NULL || t->contested == NULL ||
        t->holds_back == NULL || t->heaps[BY_SECONDS].items == NULL ||
        t->heaps[BY_WORK].items == NULL)
        return false;
    make_parts(t);
    for (uint32_t i = 0; i < s->tiers; i++)
        t->holds_back[i] = may_hold_back(s, i);
    return true;
}

int lio_transfers_open(const lio_shares *shares, lio_transfers **out, lio_error *error)
{
    lio_transfers *t = calloc(1, sizeof *t);
    uint64_t actors = (uint64_t)shares->nodes * shares->actors;
    uint64_t parts = shares->nodes * (TIERS + 2 * (uint64_t)shares->tiers);
    if (t != NULL) {
        t->s = shares;
        t->stride = TIERS + 2 * shares->tiers;
        t->broken = NOWHERE;
        if (actors < UINT32_MAX && parts < UINT32_MAX && make(t)) {
            *out = t;
            return LIO_OK;
        }
        lio_transfers_close(t);
    }
    return lio_fail(error, LIO_ERR_NOMEM, 0, actors, 0, "no memory for the threads of all nodes");
}

void lio_transfers_close(lio_transfers *transfers)
{
    if (transfers == NULL)
        return;
    free(transfers->parts);
    free(transfers->all);
    free(transfers->contested);
    free(transfers->holds_back);
    free(transfers->heaps[BY_SECONDS].places);
    free(transfers->heaps[BY_SECONDS].items);
    free(transfers->heaps[BY_WORK].items);
    free(transfers);
}
