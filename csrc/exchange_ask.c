#include <stdlib.h>
#include <unistd.h>

#include "exchange_part.h"

void lio_exchange_settle(lio_exchange *x, room *r, uint8_t answer)
{
    if (r->answer == LIO_ANSWER_AWAITED) {
        r->answer = answer;
        x->awaited--;
        (void)pthread_cond_broadcast(&x->moved);
    }
}

static bool is_settled(const lio_arrival *arrival)
{
    for (size_t i = 0; i < arrival->count; i++)
        if (arrival->rooms[i].answer == LIO_ANSWER_AWAITED || arrival->rooms[i].under_way > 0)
            return false;
    return true;
}

static bool is_unused(const lio_arrival *arrival)
{
    for (size_t i = 0; i < arrival->count; i++)
        if (arrival->rooms[i].is_queued || arrival->rooms[i].under_way > 0)
            return false;
    return arrival->is_closed;
}

void lio_exchange_leave_queue(peer *p)
{
    room *first = p->rooms;
    p->rooms = first->next;
    first->is_queued = false;
    if (is_unused(first->arrival))
        free(first->arrival);
}

void lio_exchange_find_gone(lio_exchange *x, peer *p)
{
    if (!p->has_ended || p->is_gone || p->taken != p->promised)
        return;
    p->is_gone = true;
    while (p->rooms != NULL) {
        lio_exchange_settle(x, p->rooms, LIO_ANSWER_GONE);
        lio_exchange_leave_queue(p);
    }
    (void)pthread_cond_broadcast(&x->moved);
}

void lio_exchange_room_filled(lio_exchange *x, room *r)
{
    r->under_way--;
    if (r->under_way == 0 && r->left == 0)
        lio_exchange_settle(x, r, LIO_ANSWER_ARRIVED);
    (void)pthread_cond_broadcast(&x->moved);
    if (is_unused(r->arrival))
        free(r->arrival);
}

bool lio_exchange_take_rows(lio_exchange *x, uint32_t from, int bytes, lio_handle *message)
{
    peer *p = &x->peer[from];
    room *r = p->rooms;
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
        lio_exchange_settle(x, r, LIO_ANSWER_LATE);
        r->left = 0;
    }
    if (r != NULL && r->answer == LIO_ANSWER_AWAITED) {
        taken.kind = FILLS_ROOM;
        taken.room = r;
        into = r->into;
    } else {
        into = taken.memory = malloc((size_t)(bytes > 0 ? bytes : 1));
    }
    if (into == NULL) {
        lio_exchange_fail(x, LIO_ERR_NOMEM, "no memory for a message of bytes", bytes);
        return false;
    }
    int code = lio_mpi_imrecv(&x->mpi, into, bytes, message, lio_exchange_next_request(x));
    if (code != 0) {
        free(taken.memory);
        lio_exchange_fail(x, LIO_ERR_IO, "MPI_Imrecv failed", code);
        return false;
    }
    lio_exchange_under_way(x, taken);
    p->taken++;
    p->all_taken++;
    x->counts.received_messages++;
    x->counts.received_bytes += (uint64_t)bytes;
    if (r != NULL) {
        r->under_way += taken.kind == FILLS_ROOM;
        r->into += bytes;
        r->left -= (uint64_t)bytes;
        if (r->left == 0)
            lio_exchange_leave_queue(p);
    }
    lio_exchange_find_gone(x, p);
    return true;
}

int lio_exchange_ask(lio_exchange *x, uint64_t block, const lio_asking *rooms, size_t count,
                     lio_arrival **out, lio_error *error)
{
    lio_arrival *arrival = calloc(1, sizeof *arrival + count * sizeof arrival->rooms[0]);
    if (arrival == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory for answers");
    arrival->exchange = x;
    arrival->count = count;
    for (size_t i = 0; i < count; i++) {
        if (rooms[i].peer >= x->peers || rooms[i].peer == x->own || rooms[i].bytes == 0) {
            free(arrival);
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, rooms[i].peer, "no such root");
        }
        arrival->rooms[i] = (room){.arrival = arrival,
                                   .peer = rooms[i].peer,
                                   .into = (uint8_t *)(uintptr_t)rooms[i].into,
                                   .left = rooms[i].bytes};
    }
    lio_exchange_enter(x);
    x->awaited += count;
    for (size_t i = 0; i < count; i++) {
        room *r = &arrival->rooms[i];
        peer *p = &x->peer[r->peer];
        if (p->is_gone || x->is_done) {
            lio_exchange_settle(x, r, p->is_gone ? LIO_ANSWER_GONE : LIO_ANSWER_LATE);
            continue;
        }
        if (p->rooms == NULL)
            p->rooms = r;
        else
            p->last_room->next = r;
        p->last_room = r;
        r->is_queued = true;
        if (p->asked <= block) { /* once for all of its rooms */
            p->asked = block + 1;
            lio_exchange_say(x, r->peer, ASK, block);
        }
    }
    lio_exchange_leave(x);
    *out = arrival;
    return LIO_OK;
}

int lio_exchange_skip(lio_exchange *x, uint64_t block, const uint32_t *peers, size_t count,
                      lio_error *error)
{
    for (size_t i = 0; i < count; i++)
        if (peers[i] >= x->peers || peers[i] == x->own)
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, peers[i], "no such root");
    lio_exchange_enter(x);
    for (size_t i = 0; i < count; i++)
        if (!x->peer[peers[i]].has_ended && !x->is_done)
            lio_exchange_say(x, peers[i], SKIP, block);
    lio_exchange_leave(x);
    return LIO_OK;
}

int lio_arrival_wait(lio_arrival *arrival, int timeout_ms, lio_error *error)
{
    lio_exchange *x = arrival->exchange;
    uint64_t deadline = lio_exchange_deadline_after(timeout_ms);
    lio_exchange_enter(x);
    bool in_time = true;
    while (!is_settled(arrival) && x->error.code == LIO_OK && in_time)
        in_time = timeout_ms > 0 && lio_exchange_wait_until(&x->moved, &x->lock, deadline);
    int code = is_settled(arrival)       ? LIO_OK
               : x->error.code != LIO_OK ? x->error.code
                                         : LIO_PENDING;
    if (code != LIO_OK && code != LIO_PENDING)
        *error = x->error;
    lio_exchange_leave(x);
    return code;
}

static void give_up(lio_exchange *x, lio_arrival *arrival)
{
    for (size_t i = 0; i < arrival->count; i++)
        lio_exchange_settle(x, &arrival->rooms[i], LIO_ANSWER_LATE);
}

void lio_arrival_give_up(lio_arrival *arrival)
{
    lio_exchange *x = arrival->exchange;
    lio_exchange_enter(x);
    give_up(x, arrival);
    lio_exchange_leave(x);
}

void lio_arrival_answers(const lio_arrival *arrival, uint8_t *out)
{
    lio_exchange *x = arrival->exchange;
    lio_exchange_enter(x);
    for (size_t i = 0; i < arrival->count; i++)
        out[i] = arrival->rooms[i].answer;
    lio_exchange_leave(x);
}

int lio_arrival_close(lio_arrival *arrival, int timeout_ms)
{
    lio_exchange *x;
    if (arrival == NULL)
        return LIO_OK;
    x = arrival->exchange;
    if (x->pid != getpid())
        return LIO_OK;
    uint64_t deadline = lio_exchange_deadline_after(timeout_ms);
    bool in_time = true;
    lio_exchange_enter(x);
    give_up(x, arrival);
    while (!is_settled(arrival) && x->has_thread && x->error.code == LIO_OK && in_time)
        in_time = timeout_ms > 0 && lio_exchange_wait_until(&x->moved, &x->lock, deadline);
    int code = is_settled(arrival) ? LIO_OK : LIO_PENDING;
    arrival->is_closed = true;
    if (is_unused(arrival))
        free(arrival);
    lio_exchange_leave(x);
    return code;
}

void lio_arrival_drop(lio_arrival *arrival)
{
    (void)lio_arrival_close(arrival, 0);
}
