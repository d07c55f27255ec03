/* job: what the roots of a job do, and the rows that each sends to each other one, by a seed.
 *
 *   seed -> roots: how long each takes and serves, whether it leaves, vanishes, takes rows back
 *   seed, two roots, block, number -> a piece: lengths and content of its rows
 */
#ifndef JOB_H
#define JOB_H

#include "exchange.h"
#include "fake_mpi.h"
#include "rows.h"
#include "threads.h"

enum {
    BLOCKS_MAX = 12,
    PIECES = 2, /* of a block's rows, between two roots: rooms of one root, filled in order */
    ROWS_MAX = 5,
    LONG_MAX = 5 << 19,
    STARTS = 65536,
    STEPS_MAX = 5, /* pieces of each root, in one shipment */
    SHIPMENTS_MAX = 3,
    FLIGHTS_MAX = 3,
    TAKERS_MAX = 2,
    CALLERS = TAKERS_MAX + 2, /* of a root: it itself, that which serves, and those that take */
    PATIENCE = 20,            /* slices of a wait, where a root may have vanished */
    HANG_S = 20
};

static uint8_t table[LONG_MAX + STARTS]; /* of which all rows are parts */

typedef struct kept {
    struct kept *next;
    uint8_t *memory;
} kept;

typedef struct {
    struct job *job;
    uint32_t own;
    lio_exchange *exchange;
    uint64_t seed;
    enum { STAYS, LEAVES, VANISHES } way;
    bool expires;           /* it takes back rows that nobody asks for */
    uint32_t takes, serves; /* blocks, and pieces of each root, before it does so no more */
    uint32_t takers;
    atomic_bool is_leaving, has_stopped, is_done;
    pthread_mutex_t turn; /* of callers that ask: blocks ascend */
    uint32_t next;        /* block */
    kept *kept;           /* until the exchange is closed; under `turn` */
} root;

typedef struct job {
    uint64_t seed;
    uint32_t roots, blocks;
    bool has_vanishing;
    atomic_uint over, ended; /* roots */
    root root[NODES_MAX];
} job;

typedef struct {
    size_t count;
    uint64_t lengths[ROWS_MAX];
    const uint8_t *content[ROWS_MAX];
    uint64_t room;
} piece;

static piece piece_of(const job *j, uint32_t from, uint32_t to, uint32_t block, uint32_t number)
{
    piece p;
    uint64_t key = (((uint64_t)from * NODES_MAX + to) * BLOCKS_MAX + block) * PIECES + number + 1;
    uint64_t state = j->seed + key * UINT64_C(0x9e3779b97f4a7c15);
    (void)draw(&state, 2);
    p.count = (size_t)draw(&state, ROWS_MAX + 1);
    for (size_t i = 0; i < p.count; i++) {
        uint64_t kind = draw(&state, 60);
        p.lengths[i] = draw(&state, kind == 0   ? LONG_MAX
                                    : kind < 4  ? 300000
                                    : kind < 12 ? 1
                                                : 300);
        p.content[i] = table + draw(&state, STARTS);
    }
    p.room = lio_rows_room(p.lengths, p.count);
    return p;
}

static void piece_compare(const piece *p, const uint8_t *room)
{
    static const uint8_t zeros[LIO_ROW_ALIGNMENT];
    for (size_t i = 0; i < p->count; i++) {
        uint64_t whole = lio_row_room(p->lengths[i]);
        MUST(memcmp(room, p->content[i], (size_t)p->lengths[i]) == 0);
        MUST(memcmp(room + p->lengths[i], zeros, (size_t)(whole - p->lengths[i])) == 0);
        room += whole;
    }
}

static void draw_job(job *j, uint64_t seed, int32_t *ranks)
{
    uint64_t state = seed;
    bool is_calm = draw(&state, 3) == 0; /* everything must arrive */
    *j = (job){.seed = seed,
               .roots = 2 + (uint32_t)draw(&state, NODES_MAX - 1),
               .blocks = 1 + (uint32_t)draw(&state, BLOCKS_MAX)};
    for (uint32_t i = 0; i < j->roots; i++) {
        root *r = &j->root[i];
        uint32_t steps = j->blocks * PIECES;
        uint64_t way = is_calm ? 9 : draw(&state, 10);
        ranks[i] = (int32_t)(3 * i + 1);
        r->job = j;
        r->own = i;
        r->seed = seed + 1000 * (i + 1);
        r->way = way == 0 ? VANISHES : way <= 2 ? LEAVES : STAYS;
        r->expires = !is_calm && draw(&state, 4) == 0;
        r->takers = 1 + (uint32_t)draw(&state, TAKERS_MAX);
        r->takes = !is_calm && draw(&state, 5) == 0 ? (uint32_t)draw(&state, j->blocks)
                                                    : j->blocks;
        r->serves = !is_calm && draw(&state, 5) == 0 ? (uint32_t)draw(&state, steps) : steps;
        j->has_vanishing = j->has_vanishing || r->way == VANISHES;
        MUST(pthread_mutex_init(&r->turn, NULL) == 0);
    }
}

#endif
