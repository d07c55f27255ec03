/* Program: roots that exchange rows, and threads that have rows copied, for ThreadSanitizer.
 *
 *   exchange SEED SECONDS
 *
 * exchange  several roots in this process, over an MPI that is made up (fake_mpi.h), with a
 *           thread that serves and one or two that take rows each. Callers ask, skip, poll, wait,
 *           give up, close and drop at any moment; roots take back rows that nobody asks for,
 *           serve or take no more before the others, leave, or vanish without a word
 * copier    threads start copies, poll, wait, and close them in any order while they wait or run;
 *           its thread ends as soon as the last of them is closed (copies.h)
 *
 * Both sides draw the same plan of a job (job.h). Rows that arrive are compared with it, and so are the
 * bytes between them; memory is overwritten and freed as soon as the headers allow. An answer that
 * nothing excuses must arrive. At the end nothing is under way, and the messages that were sent
 * were received, or drained at a root that had stopped. A job that lasts too long says what its
 * threads do. Runs under AddressSanitizer too. Ends with 0, or says what is wrong.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "fake_mpi.h"
#include "job.h"
#include "lmdbio.h"

static uint64_t job_seed;
static atomic_uint answered[LIO_ANSWER_GONE + 1];
static _Atomic(const char *) doing[NODES_MAX * CALLERS];
static _Thread_local uint32_t seat;

/* `line`: negative in fake_mpi.h. */
static void give_up(int line, const char *what, const lio_error *error)
{
    (void)fprintf(stderr, "%s:%d: %s: %s (job of seed %" PRIu64 ")\n",
                  line < 0 ? "fake_mpi.h" : "exchange.c", line < 0 ? -line : line, what,
                  error != NULL ? error->reason : "wrong", job_seed);
    _exit(1);
}

static void nap(uint64_t *state, uint64_t us_max)
{
    (void)usleep((useconds_t)draw(state, us_max));
}

/* Memory whose last byte is the last that may be touched. */
static uint8_t *memory_make(uint64_t bytes)
{
    uint8_t *memory = malloc(bytes > 0 ? (size_t)bytes : 1);
    MUST(memory != NULL);
    return memory;
}

/* A thread that still reads or writes it is seen, by the sanitizer or by what it finds. */
static void memory_end(uint8_t *memory, uint64_t bytes)
{
    memset(memory, 0x5a, (size_t)bytes);
    free(memory);
}

/* --- a thread that takes -------------------------------------------------------------- */

typedef struct {
    uint32_t block, number[NODES_MAX * PIECES]; /* of the piece in each room */
    size_t count;
    lio_asking rooms[NODES_MAX * PIECES];
    uint64_t bytes;
    uint8_t *memory;
    lio_arrival *arrival;
    bool is_given_up;
} flight;

/* Keeps memory that may still be read or written until the exchange is closed. */
static void keep(root *r, uint8_t *memory)
{
    kept *one = malloc(sizeof *one);
    MUST(one != NULL);
    (void)pthread_mutex_lock(&r->turn);
    *one = (kept){r->kept, memory};
    r->kept = one;
    (void)pthread_mutex_unlock(&r->turn);
}

/* Chooses roots to ask, and returns how many are left out. */
static size_t draw_rooms(const root *r, uint64_t *state, flight *f, uint32_t *skipped)
{
    bool is_asked[NODES_MAX];
    uint8_t known[NODES_MAX];
    size_t skips = 0;
    f->bytes = f->count = 0;
    lio_exchange_peers(r->exchange, known);
    for (uint32_t i = 0; i < r->job->roots; i++) {
        is_asked[i] = i != r->own && draw(state, 10) != 0 &&
                      ((known[i] & LIO_PEER_OWES) == 0 || draw(state, 2) == 0);
        if (i != r->own && !is_asked[i])
            skipped[skips++] = i;
    }
    for (uint32_t number = 0; number < PIECES; number++)
        for (uint32_t i = 0; i < r->job->roots; i++) {
            piece p = piece_of(r->job, i, r->own, f->block, number);
            if (!is_asked[i] || p.room == 0)
                continue;
            f->number[f->count] = number;
            f->rooms[f->count++] = (lio_asking){i, f->bytes, p.room};
            f->bytes += p.room;
        }
    f->memory = memory_make(f->bytes);
    for (size_t i = 0; i < f->count; i++)
        f->rooms[i].into += (uint64_t)(uintptr_t)f->memory;
    return skips;
}

/* Asks for the next block; returns whether there is one. */
static bool ask(root *r, uint64_t *state, flight *f)
{
    uint32_t skipped[NODES_MAX];
    lio_error error;
    bool is_one;
    f->arrival = NULL;
    f->is_given_up = false;
    (void)pthread_mutex_lock(&r->turn);
    f->block = r->next;
    is_one = f->block < r->takes && !r->is_leaving;
    if (is_one) {
        size_t skips = draw_rooms(r, state, f, skipped);
        r->next++;
        if (f->count > 0)
            MUST_BE_OK(
                lio_exchange_ask(r->exchange, f->block, f->rooms, f->count, &f->arrival, &error),
                &error);
        if (skips > 0)
            MUST_BE_OK(lio_exchange_skip(r->exchange, f->block, skipped, skips, &error), &error);
    }
    (void)pthread_mutex_unlock(&r->turn);
    return is_one;
}

/* Rooms that have arrived are whole, also while others are awaited. */
static void compare_answers(const root *r, const flight *f, bool is_over)
{
    uint8_t answers[NODES_MAX * PIECES];
    lio_arrival_answers(f->arrival, answers);
    for (size_t i = 0; i < f->count; i++) {
        const root *holder = &r->job->root[f->rooms[i].peer];
        piece p = piece_of(r->job, f->rooms[i].peer, r->own, f->block, f->number[i]);
        MUST(!is_over || answers[i] != LIO_ANSWER_AWAITED);
        if (is_over)
            answered[answers[i]]++;
        if (answers[i] == LIO_ANSWER_ARRIVED)
            piece_compare(&p, (const uint8_t *)(uintptr_t)f->rooms[i].into);
        else if (answers[i] != LIO_ANSWER_AWAITED)
            MUST(f->is_given_up || r->is_done || holder->expires || holder->way != STAYS ||
                 holder->serves < r->job->blocks * PIECES || r->job->has_vanishing);
    }
}

/* Waits for a block, or not to the end. */
static void take_block(root *r, uint64_t *state, flight *f)
{
    enum { CLOSES, GIVES_UP, POLLS, WAITS = 9 } way = (unsigned)draw(state, WAITS + 1);
    uint64_t patience = draw(state, 3);
    lio_error error;
    int code = f->arrival == NULL ? LIO_OK : LIO_PENDING;
    for (uint64_t turn = 0; code == LIO_PENDING; turn++) {
        bool is_enough = way <= GIVES_UP ? turn >= patience
                                         : r->job->has_vanishing && turn >= PATIENCE;
        if (r->is_leaving || (way == CLOSES && is_enough))
            break;
        if (draw(state, 8) == 0)
            compare_answers(r, f, false);
        if (is_enough && draw(state, 4) != 0) {
            f->is_given_up = true;
            lio_arrival_give_up(f->arrival);
        }
        if (way == POLLS)
            nap(state, 1000);
        code = way == POLLS ? lio_arrival_wait(f->arrival, 0, &error)
                            : lio_arrival_wait(f->arrival, (int)draw(state, 10), &error);
    }
    if (code != LIO_PENDING)
        MUST_BE_OK(code, &error);
    if (f->arrival != NULL && code == LIO_OK)
        compare_answers(r, f, true);
    if (f->arrival != NULL && draw(state, 2) == 0)
        code = lio_arrival_close(f->arrival, (int)draw(state, 20)); /* it may have ended since */
    else if (f->arrival != NULL)
        lio_arrival_drop(f->arrival);
    if (code == LIO_OK)
        memory_end(f->memory, f->bytes);
    else
        keep(r, f->memory);
}

typedef struct {
    root *root;
    uint32_t seat;
    uint64_t seed;
} caller;

static void *take(void *argument)
{
    caller *c = argument;
    root *r = c->root;
    uint64_t state = c->seed;
    size_t depth = 1 + (size_t)draw(&state, FLIGHTS_MAX), count = 0, first = 0;
    flight flights[FLIGHTS_MAX];
    lio_exchanged counts;
    seat = c->seat;
    for (bool has_more = true;;) {
        doing[seat] = "asks";
        if (has_more && count < depth) {
            has_more = ask(r, &state, &flights[(first + count) % depth]);
            count += has_more;
            continue;
        }
        if (count == 0)
            break;
        doing[seat] = "takes a block";
        take_block(r, &state, &flights[first]);
        first = (first + 1) % depth;
        count--;
        lio_exchange_counts(r->exchange, &counts);
    }
    if (r->takes < r->job->blocks || draw(&state, 2) == 0) { /* the other one may still wait */
        r->is_done = true;
        lio_exchange_done(r->exchange);
    }
    doing[seat] = "has taken";
    return NULL;
}

/* --- a thread that serves ------------------------------------------------------------- */

typedef struct {
    lio_shipment *shipment;
    uint8_t *memory;
    uint64_t bytes;
} handed;

/* Hands over `steps` pieces of each root, from the `step`th on; the last row lies first. */
static void hand_over(const root *r, uint32_t step, uint32_t steps, handed *h)
{
    enum { PARTS = STEPS_MAX * NODES_MAX, ROWS = PARTS * ROWS_MAX };
    lio_serving parts[PARTS];
    lio_extent extents[ROWS];
    const uint8_t *content[ROWS];
    int64_t order[ROWS], records[ROWS];
    uint64_t slices[ROWS];
    size_t count = 0, rows = 0;
    lio_error error;
    for (uint32_t s = step; s < step + steps; s++)
        for (uint32_t to = 0; to < r->job->roots; to++) {
            if (to == r->own)
                continue;
            piece p = piece_of(r->job, r->own, to, s / PIECES, s % PIECES);
            parts[count++] = (lio_serving){to, s / PIECES, rows, p.count};
            for (size_t i = 0; i < p.count; i++, rows++) {
                extents[ROWS - 1 - rows].length = p.lengths[i];
                content[ROWS - 1 - rows] = p.content[i];
            }
        }
    lio_extent *lengths = extents + ROWS - rows;
    h->bytes = 0;
    for (size_t i = 0; i < rows; i++) {
        order[i] = (int64_t)(rows - 1 - i);
        records[i] = (int64_t)i;
        slices[i] = h->bytes;
        h->bytes += lengths[i].length;
    }
    h->memory = memory_make(h->bytes);
    for (size_t i = 0; i < rows; i++)
        memcpy(h->memory + slices[i], content[ROWS - rows + i], (size_t)lengths[i].length);
    lio_loaded loaded = {records, slices, rows, (uint64_t)(uintptr_t)h->memory};
    MUST_BE_OK(lio_exchange_serve(r->exchange, parts, count, &loaded, lengths, order, rows,
                                  &h->shipment, &error),
               &error);
}

static void wait_for_shipment(root *r, uint64_t *state, handed *h)
{
    uint64_t patience = draw(state, PATIENCE);
    lio_error error;
    for (uint64_t turn = 0; lio_shipment_left(h->shipment) > 0 && !r->has_stopped; turn++) {
        bool takes_back = r->expires ? turn >= patience
                                     : r->job->has_vanishing && turn >= 2 * PATIENCE;
        if (takes_back)
            lio_shipment_expire(h->shipment);
        if (draw(state, 2) == 0)
            nap(state, 2000);
        else
            MUST(lio_shipment_wait(h->shipment, (int)draw(state, 10), &error) <= LIO_PENDING);
    }
    lio_shipment_close(h->shipment);
    memory_end(h->memory, h->bytes);
}

static void *serve(void *argument)
{
    caller *c = argument;
    root *r = c->root;
    uint64_t state = c->seed;
    size_t depth = 1 + (size_t)draw(&state, SHIPMENTS_MAX), count = 0, first = 0;
    handed shipments[SHIPMENTS_MAX];
    seat = c->seat;
    for (uint32_t step = 0, steps; step < r->serves && !r->is_leaving; step += steps) {
        doing[seat] = "serves";
        steps = 1 + (uint32_t)draw(&state, STEPS_MAX);
        steps = steps < r->serves - step ? steps : r->serves - step;
        if (count == depth) {
            doing[seat] = "waits for a shipment";
            wait_for_shipment(r, &state, &shipments[first]);
            first = (first + 1) % depth;
            count--;
        }
        hand_over(r, step, steps, &shipments[(first + count++) % depth]);
    }
    doing[seat] = "ends shipments";
    bool is_early = r->serves < r->job->blocks * PIECES, closes = draw(&state, 2) == 0;
    if (is_early && !closes)
        lio_exchange_end(r->exchange);
    for (; count > 0; count--, first = (first + 1) % depth)
        if (is_early && closes) { /* which ends all, and may still be read until the thread ends */
            lio_shipment_close(shipments[first].shipment);
            keep(r, shipments[first].memory);
        } else {
            wait_for_shipment(r, &state, &shipments[first]);
        }
    if (is_early)
        lio_exchange_end(r->exchange);
    doing[seat] = "has served";
    return NULL;
}

/* --- a root --------------------------------------------------------------------------- */

static void stop(root *r)
{
    doing[seat] = "stops";
    lio_exchange_stop(r->exchange);
    r->has_stopped = true;
}

/* Ends while callers are at work. */
static void leave(root *r, uint64_t *state)
{
    doing[seat] = "goes on for a while";
    nap(state, 40000);
    r->is_leaving = true;
    if (r->way == LEAVES) {
        bool ends_first = draw(state, 2) == 0;
        r->is_done = true;
        if (ends_first)
            lio_exchange_end(r->exchange);
        lio_exchange_done(r->exchange);
        lio_exchange_end(r->exchange);
    }
    stop(r);
    for (uint64_t i = draw(state, 4); i > 0; i--) { /* and carries out what they leave */
        (void)lio_exchange_step(r->exchange);
        nap(state, 500);
    }
}

static void end(root *r, uint64_t *state)
{
    lio_error error;
    int code = r->job->has_vanishing ? LIO_OK : LIO_PENDING;
    r->is_done = true;
    lio_exchange_done(r->exchange);
    if (r->job->has_vanishing || draw(state, 2) == 0)
        lio_exchange_end(r->exchange);
    doing[seat] = "waits until all is over";
    while (code == LIO_PENDING)
        code = lio_exchange_wait_over(r->exchange, (int)draw(state, 20), &error);
    MUST_BE_OK(code, &error);
    stop(r);
}

static void *live(void *argument)
{
    root *r = argument;
    uint64_t state = r->seed;
    pthread_t threads[CALLERS];
    caller callers[CALLERS];
    bool is_over = false;
    for (uint32_t i = 1; i < 2 + r->takers; i++) {
        callers[i] = (caller){r, r->own * CALLERS + i, r->seed * 31 + i};
        start(&threads[i], i == 1 ? serve : take, &callers[i]);
    }
    seat = r->own * CALLERS;
    if (r->way != STAYS)
        leave(r, &state);
    doing[seat] = "waits for its callers";
    for (uint32_t i = 1; i < 2 + r->takers; i++)
        finish(threads[i]);
    if (r->way == STAYS)
        end(r, &state);
    doing[seat] = "carries on what is under way";
    while (r->job->over < r->job->roots) {
        node_drain(&nodes[r->own]);
        bool has_ended = lio_exchange_step(r->exchange) != 0;
        MUST(has_ended || !is_over);
        if (has_ended && !is_over)
            r->job->over++;
        is_over = is_over || has_ended;
        nap(&state, 500);
    }
    r->job->ended++;
    return NULL;
}

/* --- a job ---------------------------------------------------------------------------- */

/* After all have ended: counts messages, and frees. */
static void settle(job *j)
{
    int64_t sent[NODES_MAX][NODES_MAX], received[NODES_MAX][NODES_MAX];
    lio_exchanged all = {0}, one;
    bool has_drained = false;
    for (uint32_t i = 0; i < j->roots; i++) {
        lio_exchange_messages(j->root[i].exchange, sent[i], received[i]);
        lio_exchange_counts(j->root[i].exchange, &one);
        all.sent_messages += one.sent_messages;
        all.sent_bytes += one.sent_bytes;
        all.received_messages += one.received_messages;
        all.received_bytes += one.received_bytes;
        node_drain(&nodes[i]); /* copies, whose senders were told at once that they are away */
    }
    for (uint32_t from = 0; from < j->roots; from++)
        for (uint32_t to = 0; to < j->roots; to++) {
            MUST(sent[from][to] == received[to][from] + nodes[to].drained[from]);
            has_drained = has_drained || nodes[to].drained[from] > 0;
            MUST(nodes[to].drained[from] == 0 || j->has_vanishing || j->root[to].way != STAYS);
        }
    MUST(has_drained ||
         (all.sent_messages == all.received_messages && all.sent_bytes == all.received_bytes));
    for (uint32_t i = 0; i < j->roots; i++) {
        root *r = &j->root[i];
        lio_exchange_close(r->exchange);
        for (kept *first; (first = r->kept) != NULL;) {
            r->kept = first->next;
            free(first->memory);
            free(first);
        }
        (void)pthread_mutex_destroy(&r->turn);
    }
    nodes_end();
}

static void exchange_rows(uint64_t seed)
{
    static job j;
    int32_t ranks[NODES_MAX];
    pthread_t threads[NODES_MAX];
    uint64_t state = ~seed;
    double began = now();
    lio_error error;
    draw_job(&j, seed, ranks);
    nodes_make(j.roots, seed, ranks);
    for (uint32_t i = 0; i < j.roots; i++) {
        lio_mpi mpi = fake_mpi(i);
        MUST_BE_OK(lio_exchange_open(&mpi, ranks, j.roots, i, 7, 8, (uint32_t)draw(&state, 12),
                                     &j.root[i].exchange, &error),
                   &error);
    }
    for (uint32_t i = 0; i < NODES_MAX * CALLERS; i++)
        doing[i] = NULL;
    for (uint32_t i = 0; i < j.roots; i++)
        start(&threads[i], live, &j.root[i]);
    while (j.ended < j.roots) {
        (void)usleep(1000);
        if (now() - began < HANG_S)
            continue;
        for (uint32_t i = 0; i < j.roots * CALLERS; i++)
            if (doing[i] != NULL)
                (void)fprintf(stderr, "root %u, thread %u: %s\n", i / CALLERS, i % CALLERS,
                              doing[i]);
        give_up(__LINE__, "a job does not end", NULL);
    }
    for (uint32_t i = 0; i < j.roots; i++)
        finish(threads[i]);
    settle(&j);
}

static void probe(uint64_t seed)
{
    lio_error error;
    lio_mpi mpi = fake_mpi(0);
    nodes_make(1, seed, &(int32_t){0});
    MUST_BE_OK(lio_exchange_probe(&mpi, &error), &error);
    nodes_end();
}

#include "copies.h"

int main(int argc, char **argv)
{
    double began = now(), seconds;
    uint64_t jobs = 0, state = 1;
    MUST(argc == 3);
    job_seed = strtoull(argv[1], NULL, 10);
    seconds = strtod(argv[2], NULL);
    for (size_t i = 0; i < sizeof table; i++)
        table[i] = (uint8_t)draw(&state, 256);
    do {
        probe(job_seed);
        exchange_rows(job_seed);
        copy_rows(job_seed);
        job_seed += 1000003;
        jobs++;
    } while (now() - began < seconds);
    (void)printf("no race, %" PRIu64 " jobs, rooms: %u arrived, %u late, %u gone, %.1f s\n", jobs,
                 answered[LIO_ANSWER_ARRIVED], answered[LIO_ANSWER_LATE],
                 answered[LIO_ANSWER_GONE], now() - began);
    return 0;
}
