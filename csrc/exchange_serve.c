#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "exchange_part.h"

void lio_exchange_tell_end(lio_exchange *x, uint32_t to)
{
    peer *p = &x->peer[to];
    if (!p->is_told_end && to != x->own) {
        p->is_told_end = true;
        lio_exchange_say(x, to, END, p->sent);
    }
}

static void drop_part(lio_exchange *x, peer *p)
{
    part *first = p->parts;
    p->parts = first->next;
    x->parts--;
    if (!first->is_missing)
        first->shipment->left--;
    free(first);
    (void)pthread_cond_broadcast(&x->moved);
}

void lio_exchange_drop_parts(lio_exchange *x, peer *p)
{
    while (p->parts != NULL)
        drop_part(x, p);
}

void lio_exchange_drop_word(peer *p)
{
    word *first = p->words;
    p->words = first->next;
    free(first);
}

static void *take_buffer(lio_exchange *x)
{
    if (x->buffers > 0)
        return x->buffer[--x->buffers];
    if (x->buffers_made == x->buffers_max)
        return NULL;
    return x->memory + (size_t)x->buffers_made++ * LIO_MESSAGE_BYTES;
}

static uint64_t rounded(uint64_t length)
{
    return (length + LIO_ROW_ALIGNMENT - 1) / LIO_ROW_ALIGNMENT * LIO_ROW_ALIGNMENT;
}

/* Packs the next `bytes` of a part. */
static void pack(part *p, uint8_t *into, uint64_t bytes)
{
    p->left -= bytes;
    while (bytes > 0) {
        uint64_t length = *p->lengths, whole = rounded(length), here = whole - p->packed;
        here = here < bytes ? here : bytes;
        uint64_t of_row = p->packed < length ? length - p->packed : 0;
        of_row = of_row < here ? of_row : here;
        if (of_row > 0)
            lio_copy(into, (const uint8_t *)(uintptr_t)*p->from + p->packed, (size_t)of_row);
        memset(into + of_row, 0, (size_t)(here - of_row));
        into += here;
        bytes -= here;
        p->packed += here;
        if (p->packed == whole) {
            p->from++;
            p->lengths++;
            p->packed = 0;
        }
    }
}

/* Whether the first part of a root is wanted now; parts that are not wanted at all are dropped. */
static bool is_wanted(lio_exchange *x, peer *p)
{
    while (p->parts != NULL) {
        if (p->is_done || p->is_told_end) {
            lio_exchange_drop_parts(x, p);
            break;
        }
        while (p->words != NULL && p->words->said[1] < p->parts->block)
            lio_exchange_drop_word(p);
        if (p->words == NULL)
            return false;
        if (p->words->said[1] == p->parts->block && p->words->said[0] == ASK)
            return true;
        drop_part(x, p);
    }
    return false;
}

bool lio_exchange_send_rows(lio_exchange *x, uint32_t to)
{
    peer *p = &x->peer[to];
    bool moved = false;
    while (x->error.code == LIO_OK && is_wanted(x, p) && p->in_flight < x->in_flight_max) {
        int bytes = p->parts->is_missing ? 0 : message_bytes(p->parts->left);
        void *buffer = lio_exchange_make_place(x) ? take_buffer(x) : NULL;
        if (buffer == NULL)
            break;
        pack(p->parts, buffer, (uint64_t)bytes);
        p->parts->has_begun = true;
        int code = lio_mpi_isend(&x->mpi, buffer, bytes, p->rank, x->data_tag,
                                 lio_exchange_next_request(x));
        if (code != 0) {
            x->buffer[x->buffers++] = buffer;
            lio_exchange_fail(x, LIO_ERR_IO, "MPI_Isend failed", code);
            break;
        }
        lio_exchange_under_way(x, (operation){.kind = SENDS_ROWS, .peer = to, .memory = buffer});
        p->in_flight++;
        p->sent++;
        p->all_sent++;
        x->counts.sent_messages++;
        x->counts.sent_bytes += (uint64_t)bytes;
        if (p->parts->left == 0 || p->parts->is_missing)
            drop_part(x, p);
        moved = true;
    }
    return moved;
}

/* The rows of a part are taken back; who asks for them hears so. */
static void miss(part *one)
{
    one->is_missing = true;
    one->shipment->left--;
}

static void append_part(lio_exchange *x, peer *p, part *one)
{
    x->parts++;
    if (p->parts == NULL)
        p->parts = one;
    else
        p->last_part->next = one;
    p->last_part = one;
}

int lio_exchange_serve(lio_exchange *x, const lio_serving *parts, size_t count,
                       const uint64_t *from, const uint64_t *lengths, lio_shipment **out,
                       lio_error *error)
{
    int code = LIO_OK;
    part *made = NULL;
    lio_shipment *shipment = malloc(sizeof *shipment);
    if (shipment == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory for rows to send");
    *shipment = (lio_shipment){x, count};
    for (size_t i = count; i > 0 && code == LIO_OK; i--) { /* the first one ends up in front */
        const lio_serving *given = &parts[i - 1];
        part *one = malloc(sizeof *one);
        if (one == NULL || given->peer >= x->peers || given->peer == x->own) {
            free(one);
            code = one == NULL
                       ? lio_fail(error, LIO_ERR_NOMEM, 0, 0, 0, "no memory for rows to send")
                       : lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, given->peer, "no such root");
            break;
        }
        *one = (part){.next = made,
                      .shipment = shipment,
                      .block = given->block,
                      .from = from + given->first,
                      .lengths = lengths + given->first};
        for (uint64_t row = 0; row < given->count; row++)
            one->left += rounded(one->lengths[row]);
        made = one;
    }
    lio_exchange_enter(x);
    for (size_t i = 0; i < count && code == LIO_OK; i++) {
        part *one = made;
        made = one->next;
        one->next = NULL;
        peer *p = &x->peer[parts[i].peer];
        p->is_behind = p->is_behind && p->heard <= one->block;
        if (one->left == 0 || p->is_done || p->is_told_end) { /* nobody asks for it */
            shipment->left--;
            free(one);
        } else {
            append_part(x, p, one);
            if (p->is_behind)
                miss(one);
        }
    }
    (void)pthread_cond_signal(&x->work);
    lio_exchange_leave(x);
    while (made != NULL) {
        part *one = made;
        made = one->next;
        free(one);
    }
    if (code != LIO_OK)
        free(shipment);
    else
        *out = shipment;
    return code;
}

void lio_exchange_end(lio_exchange *x)
{
    lio_exchange_enter(x);
    for (uint32_t i = 0; i < x->peers; i++) {
        lio_exchange_drop_parts(x, &x->peer[i]);
        lio_exchange_tell_end(x, i);
    }
    lio_exchange_leave(x);
}

size_t lio_shipment_left(const lio_shipment *shipment)
{
    lio_exchange *x = shipment->exchange;
    lio_exchange_enter(x);
    size_t left = shipment->left;
    lio_exchange_leave(x);
    return left;
}

void lio_shipment_expire(lio_shipment *shipment)
{
    lio_exchange *x = shipment->exchange;
    lio_exchange_enter(x);
    for (uint32_t i = 0; i < x->peers && shipment->left > 0; i++) {
        peer *p = &x->peer[i];
        for (part *one = p->parts; one != NULL; one = one->next) {
            if (one->shipment != shipment || one->is_missing || one->has_begun ||
                p->heard > one->block)
                continue;
            miss(one);
            p->is_behind = true;
        }
    }
    lio_exchange_leave(x);
}

void lio_shipment_close(lio_shipment *shipment)
{
    if (shipment == NULL || shipment->exchange->pid != getpid())
        return;
    if (lio_shipment_left(shipment) > 0)
        lio_exchange_end(shipment->exchange);
    free(shipment);
}
