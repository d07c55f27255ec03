#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract.h"
#include "exchange_part.h"

/* Says how an answer ended, if it is awaited. */
static void settle(lio_exchange *x, receive_buffer *r, uint8_t answer)
{
    peer *p = &x->peer[r->peer];
    LIO_ASSERT(lio_exchange_is_carrier(x));
    if (r->answer != LIO_ANSWER_AWAITED)
        return;
    LIO_ASSERT(x->awaited > 0);
    x->awaited--;
    if (answer == LIO_ANSWER_LATE && r->is_queued && p->late++ == 0)
        lio_exchange_note(p, LIO_PEER_OWES);
    r->answer = answer; /* callers read it, and then what is known of the root */
    x->has_news = true;
}

static void free_unused(lio_arrival *arrival)
{
    bool is_used = !arrival->is_closed;
    for (size_t i = 0; i < arrival->count && !is_used; i++)
        is_used = arrival->buffers[i].is_queued || arrival->buffers[i].under_way > 0;
    if (!is_used)
        free(arrival);
}

/* After a receive buffer has changed: tells callers that nothing is written to it any more. */
static void look_after(lio_exchange *x, receive_buffer *r)
{
    if (r->is_open && r->answer != LIO_ANSWER_AWAITED && r->under_way == 0) {
        r->is_open = false;
        (void)atomic_fetch_sub(&r->arrival->open, 1);
        x->has_news = true;
    }
}

void lio_exchange_leave_queue(lio_exchange *x, peer *p)
{
    receive_buffer *first = p->buffers;
    LIO_ASSERT(first != NULL && first->is_queued);
    p->buffers = first->next;
    first->is_queued = false;
    if (first->answer == LIO_ANSWER_LATE && --p->late == 0)
        (void)atomic_fetch_and(&p->known, (uint8_t)~LIO_PEER_OWES);
    look_after(x, first);
    free_unused(first->arrival);
}

void lio_exchange_find_gone(lio_exchange *x, peer *p)
{
    if (!p->has_ended || p->is_gone || p->taken != p->promised)
        return;
    p->is_gone = true;
    lio_exchange_note(p, LIO_PEER_GONE);
    while (p->buffers != NULL) {
        settle(x, p->buffers, LIO_ANSWER_GONE);
        lio_exchange_leave_queue(x, p);
    }
    x->has_news = true;
}

void lio_exchange_buffer_filled(lio_exchange *x, receive_buffer *r)
{
    LIO_ASSERT(r->under_way > 0);
    r->under_way--;
    if (r->under_way == 0 && r->left == 0)
        settle(x, r, LIO_ANSWER_ARRIVED);
    look_after(x, r);
    free_unused(r->arrival);
}

bool lio_exchange_take_rows(lio_exchange *x, uint32_t from, int bytes, lio_handle *message)
{
    peer *p = &x->peer[from];
    receive_buffer *r = p->buffers;
    operation taken = {.kind = DRAINS, .peer = from};
    void *into;
    if (!lio_exchange_make_place(x))
        return false;
    if (r != NULL && bytes != 0 && bytes != message_bytes(r->left)) {
        lio_exchange_fail(x, LIO_ERR_CORRUPT, "a root has sent a message of another length",
                          bytes);
        return false;
    }
    if (r != NULL && bytes == 0) { /* the rows are missing: this was all of the answer */
        settle(x, r, LIO_ANSWER_LATE);
        r->left = 0;
    }
    if (r != NULL && r->answer == LIO_ANSWER_AWAITED) {
        taken.kind = FILLS_BUFFER;
        taken.buffer = r;
        into = r->into;
    } else {
        into = taken.memory = malloc((size_t)(bytes > 0 ? bytes : 1));
    }
    if (into == NULL) {
        lio_exchange_fail(x, LIO_ERR_NOMEM, "no memory for a message of bytes", bytes);
        return false;
    }
    int code = lio_mpi_imrecv(&x->mpi, into, bytes, message, lio_exchange_next_handle(x));
    if (code != 0) {
        free(taken.memory);
        lio_exchange_fail(x, LIO_ERR_IO, "MPI_Imrecv failed", code);
        return false;
    }
    lio_exchange_under_way(x, taken);
    p->taken++;
    p->all_taken++;
    x->received_messages++;
    x->received_bytes += (uint64_t)bytes;
    if (r != NULL) {
        r->under_way += taken.kind == FILLS_BUFFER;
        LIO_ASSERT((uint64_t)bytes <= r->left);
        r->into += bytes;
        r->left -= (uint64_t)bytes;
        if (r->left == 0)
            lio_exchange_leave_queue(x, p);
    }
    lio_exchange_find_gone(x, p);
    return true;
}

/* --- what callers want ---------------------------------------------------------------------- */

static void ask_for(lio_exchange *x, void *subject)
{
    lio_arrival *arrival = subject;
    x->awaited += arrival->count;
    for (size_t i = 0; i < arrival->count; i++) {
        receive_buffer *r = &arrival->buffers[i];
        peer *p = &x->peer[r->peer];
        if (p->is_gone || x->is_done) {
            settle(x, r, p->is_gone ? LIO_ANSWER_GONE : LIO_ANSWER_LATE);
            look_after(x, r);
            continue;
        }
        if (p->buffers == NULL)
            p->buffers = r;
        else
            p->last_buffer->next = r;
        p->last_buffer = r;
        r->is_queued = true;
        LIO_ASSERT(p->asked <= arrival->block + 1); /* blocks ascend */
        if (p->asked <= arrival->block) {           /* once for all of its buffers */
            p->asked = arrival->block + 1;
            lio_exchange_say(x, r->peer, ASK, arrival->block);
        }
    }
}

static void give_up(lio_exchange *x, void *subject)
{
    lio_arrival *arrival = subject;
    for (size_t i = 0; i < arrival->count; i++) {
        settle(x, &arrival->buffers[i], LIO_ANSWER_LATE);
        look_after(x, &arrival->buffers[i]);
    }
}

static void end_arrival(lio_exchange *x, void *subject)
{
    lio_arrival *arrival = subject;
    give_up(x, arrival);
    arrival->is_closed = true;
    free_unused(arrival);
}

static void skip_block(lio_exchange *x, void *subject)
{
    skipping *one = subject;
    for (size_t i = 0; i < one->count; i++)
        if (!x->peer[one->peers[i]].has_ended && !x->is_done)
            lio_exchange_say(x, one->peers[i], SKIP, one->block);
    free(one);
}

static void take_no_more(lio_exchange *x, void *subject)
{
    (void)subject;
    x->is_done = true;
    for (uint32_t i = 0; i < x->peers; i++) {
        peer *p = &x->peer[i];
        for (receive_buffer *r = p->buffers; r != NULL; r = r->next) {
            settle(x, r, LIO_ANSWER_LATE);
            look_after(x, r);
        }
        if (i != x->own && !p->is_told_done) {
            p->is_told_done = true;
            lio_exchange_say(x, i, DONE, 0);
        }
    }
}

/* --- callers -------------------------------------------------------------------------------- */

int lio_exchange_ask(lio_exchange *x, uint64_t block, const lio_asking *buffers, size_t count,
                     lio_arrival **out, lio_error *error)
{
    lio_arrival *arrival = calloc(1, sizeof *arrival + count * sizeof arrival->buffers[0]);
    if (arrival == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory for answers");
    arrival->exchange = x;
    arrival->block = block;
    arrival->count = count;
    atomic_init(&arrival->open, count);
    for (size_t i = 0; i < count; i++) {
        receive_buffer *r = &arrival->buffers[i];
        if (buffers[i].peer >= x->peers || buffers[i].peer == x->own || buffers[i].bytes == 0) {
            free(arrival);
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, buffers[i].peer, "no such root");
        }
        r->arrival = arrival;
        r->peer = buffers[i].peer;
        r->is_open = true;
        r->into = (uint8_t *)(uintptr_t)buffers[i].into;
        r->left = buffers[i].bytes;
    }
    lio_exchange_post(x, &arrival->asks, ask_for, arrival);
    *out = arrival;
    return LIO_OK;
}

int lio_exchange_skip(lio_exchange *x, uint64_t block, const uint32_t *peers, size_t count,
                      lio_error *error)
{
    skipping *one;
    for (size_t i = 0; i < count; i++)
        if (peers[i] >= x->peers || peers[i] == x->own)
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, peers[i], "no such root");
    one = malloc(sizeof *one + count * sizeof one->peers[0]);
    if (one == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory for a message");
    one->block = block;
    one->count = count;
    memcpy(one->peers, peers, count * sizeof one->peers[0]);
    lio_exchange_post(x, &one->request, skip_block, one);
    return LIO_OK;
}

int lio_arrival_wait(lio_arrival *arrival, int timeout_ms, lio_error *error)
{
    return lio_exchange_wait_none(arrival->exchange, &arrival->open, timeout_ms, error);
}

void lio_arrival_give_up(lio_arrival *arrival)
{
    if (!arrival->is_given_up)
        lio_exchange_post(arrival->exchange, &arrival->gives_up, give_up, arrival);
    arrival->is_given_up = true;
}

void lio_arrival_answers(const lio_arrival *arrival, uint8_t *out)
{
    for (size_t i = 0; i < arrival->count; i++)
        out[i] = atomic_load(&arrival->buffers[i].answer);
}

int lio_arrival_close(lio_arrival *arrival, int timeout_ms)
{
    int code;
    if (arrival == NULL || arrival->exchange->pid != getpid())
        return LIO_OK;
    lio_arrival_give_up(arrival);
    code = lio_exchange_wait_none(arrival->exchange, &arrival->open, timeout_ms, NULL);
    lio_exchange_post(arrival->exchange, &arrival->ends, end_arrival, arrival);
    return code;
}

void lio_arrival_drop(lio_arrival *arrival)
{
    (void)lio_arrival_close(arrival, 0);
}

void lio_exchange_done(lio_exchange *x)
{
    if (!atomic_exchange(&x->is_done_posted, true))
        lio_exchange_post(x, &x->done, take_no_more, NULL);
}
