#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "contract.h"
#include "exchange_part.h"

void lio_exchange_send_end(lio_exchange *x, uint32_t to)
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
    LIO_ASSERT(lio_exchange_is_carrier(x) && x->parts > 0);
    p->parts = first->next;
    x->parts--;
    if (!first->is_missing)
        (void)atomic_fetch_sub(&first->shipment->left, 1);
    free(first);
    x->has_news = true;
}

void lio_exchange_drop_parts(lio_exchange *x, peer *p)
{
    while (p->parts != NULL)
        drop_part(x, p);
}

void lio_exchange_drop_control(peer *p)
{
    control_message *first = p->controls;
    p->controls = first->next;
    free(first);
}

static void *take_send_buffer(lio_exchange *x)
{
    LIO_ASSERT(x->send_buffers <= x->send_buffers_made &&
               x->send_buffers_made <= x->send_buffers_max);
    if (x->send_buffers > 0)
        return x->send_buffer[--x->send_buffers];
    if (x->send_buffers_made == x->send_buffers_max)
        return NULL;
    return x->memory + (size_t)x->send_buffers_made++ * LIO_MESSAGE_BYTES;
}

/* Packs the next `bytes` of a part. */
static void pack(part *p, uint8_t *into, uint64_t bytes)
{
    LIO_ASSERT(bytes <= p->left);
    p->left -= bytes;
    while (bytes > 0) {
        uint64_t length = *p->lengths, whole = lio_row_room(length), here = whole - p->packed;
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
        while (p->controls != NULL && p->controls->said[1] < p->parts->block)
            lio_exchange_drop_control(p);
        if (p->controls == NULL)
            return false;
        if (p->controls->said[1] == p->parts->block && p->controls->said[0] == ASK)
            return true;
        drop_part(x, p);
    }
    return false;
}

bool lio_exchange_send_rows(lio_exchange *x, uint32_t to)
{
    peer *p = &x->peer[to];
    bool moved = false;
    while (!x->has_failed && is_wanted(x, p) && p->in_flight < x->in_flight_max) {
        int bytes = p->parts->is_missing ? 0 : message_bytes(p->parts->left);
        void *buffer = lio_exchange_make_place(x) ? take_send_buffer(x) : NULL;
        if (buffer == NULL)
            break;
        pack(p->parts, buffer, (uint64_t)bytes);
        /* First: the other root may count it, and be done, before this thread goes on. */
        x->sent_messages++;
        x->sent_bytes += (uint64_t)bytes;
        int code = lio_mpi_isend(&x->mpi, buffer, bytes, p->rank, x->data_tag,
                                 lio_exchange_next_handle(x));
        if (code != 0) {
            x->send_buffer[x->send_buffers++] = buffer;
            lio_exchange_fail(x, LIO_ERR_IO, "MPI_Isend failed", code);
            break;
        }
        lio_exchange_under_way(x, (operation){.kind = SENDS_ROWS, .peer = to, .memory = buffer});
        p->in_flight++;
        p->sent++;
        p->all_sent++;
        if (p->parts->left == 0 || p->parts->is_missing)
            drop_part(x, p);
        moved = true;
    }
    return moved;
}

/* --- what callers want ---------------------------------------------------------------------- */

/* The rows of a part are taken back; a root that asks for them hears so. */
static void miss(part *one)
{
    LIO_ASSERT(!one->is_missing && one->shipment->left > 0);
    one->is_missing = true;
    (void)atomic_fetch_sub(&one->shipment->left, 1);
}

static void append_part(lio_exchange *x, peer *p, part *one)
{
    LIO_ASSERT(p->parts == NULL || p->last_part->block <= one->block); /* handed over in order */
    one->next = NULL;
    x->parts++;
    if (p->parts == NULL)
        p->parts = one;
    else
        p->last_part->next = one;
    p->last_part = one;
}

static void take_parts(lio_exchange *x, void *subject)
{
    lio_shipment *shipment = subject;
    while (shipment->made != NULL) {
        part *one = shipment->made;
        peer *p = &x->peer[one->peer];
        shipment->made = one->next;
        p->is_behind = p->is_behind && p->heard <= one->block;
        if (one->left == 0 || p->is_done || p->is_told_end) { /* nobody asks for it */
            (void)atomic_fetch_sub(&shipment->left, 1);
            free(one);
        } else {
            append_part(x, p, one);
            if (p->is_behind)
                miss(one);
        }
    }
    x->has_news = true;
}

static void take_back(lio_exchange *x, void *subject)
{
    lio_shipment *shipment = subject;
    atomic_store(&shipment->is_asked_back, false);
    for (uint32_t i = 0; i < x->peers && shipment->left > 0; i++) {
        peer *p = &x->peer[i];
        for (part *one = p->parts; one != NULL; one = one->next) {
            if (one->shipment != shipment || one->is_missing || p->heard > one->block)
                continue;
            miss(one);
            p->is_behind = true;
        }
    }
    x->has_news = true;
}

static void end_all(lio_exchange *x, void *subject)
{
    (void)subject;
    for (uint32_t i = 0; i < x->peers; i++) {
        lio_exchange_drop_parts(x, &x->peer[i]);
        lio_exchange_send_end(x, i);
    }
}

static void free_shipment(lio_shipment *shipment)
{
    while (shipment->made != NULL) {
        part *one = shipment->made;
        shipment->made = one->next;
        free(one);
    }
    free(shipment->rows);
    free(shipment);
}

static void end_shipment(lio_exchange *x, void *subject)
{
    lio_shipment *shipment = subject;
    if (shipment->left > 0)
        end_all(x, NULL);
    free_shipment(shipment);
}

/* --- callers -------------------------------------------------------------------------------- */

/* Makes the parts of a shipment, in their order. */
static int make_parts(const lio_exchange *x, lio_shipment *shipment, const lio_serving *parts,
                      size_t count, size_t rows, lio_error *error)
{
    part **end = &shipment->made;
    for (size_t i = 0; i < count; i++) {
        const lio_serving *given = &parts[i];
        const uint64_t *lengths = shipment->rows + rows + given->first;
        if (given->peer >= x->peers || given->peer == x->own)
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, 0, given->peer, "no such root");
        if (given->first > rows || given->count > rows - given->first)
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, rows, given->count, "no such rows");
        *end = malloc(sizeof **end);
        if (*end == NULL)
            return lio_fail(error, LIO_ERR_NOMEM, 0, 0, 0, "no memory for rows to send");
        **end = (part){.shipment = shipment,
                       .peer = given->peer,
                       .block = given->block,
                       .from = shipment->rows + given->first,
                       .lengths = lengths,
                       .left = lio_rows_room(lengths, (size_t)given->count)};
        end = &(*end)->next;
    }
    return LIO_OK;
}

/* Notes where rows lie, and how long they are. */
static int find_rows(lio_shipment *shipment, const lio_loaded *loaded, const lio_extent *extents,
                     const int64_t *order, size_t rows, lio_error *error)
{
    for (size_t i = 0; i < rows; i++) {
        if (order[i] < 0 || (uint64_t)order[i] >= loaded->count)
            return lio_fail(error, LIO_ERR_ARGUMENT, 0, loaded->count, i, "no such row");
        shipment->rows[i] = loaded->base + loaded->slices[order[i]];
        shipment->rows[rows + i] = extents[order[i]].length;
    }
    return LIO_OK;
}

int lio_exchange_serve(lio_exchange *x, const lio_serving *parts, size_t count,
                       const lio_loaded *loaded, const lio_extent *extents, const int64_t *order,
                       size_t rows, lio_shipment **out, lio_error *error)
{
    int code;
    lio_shipment *shipment = calloc(1, sizeof *shipment);
    if (shipment != NULL)
        shipment->rows = calloc(2 * rows + 1, sizeof *shipment->rows);
    if (shipment == NULL || shipment->rows == NULL) {
        free(shipment);
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory for rows to send");
    }
    shipment->exchange = x;
    atomic_init(&shipment->left, count);
    code = find_rows(shipment, loaded, extents, order, rows, error);
    if (code == LIO_OK)
        code = make_parts(x, shipment, parts, count, rows, error);
    if (code != LIO_OK) {
        free_shipment(shipment);
        return code;
    }
    lio_exchange_post(x, &shipment->serves, take_parts, shipment);
    *out = shipment;
    return LIO_OK;
}

void lio_exchange_end(lio_exchange *x)
{
    if (!atomic_exchange(&x->is_end_posted, true))
        lio_exchange_post(x, &x->ends, end_all, NULL);
}

size_t lio_shipment_left(const lio_shipment *shipment)
{
    return atomic_load(&shipment->left);
}

int lio_shipment_wait(lio_shipment *shipment, int timeout_ms, lio_error *error)
{
    return lio_exchange_wait_none(shipment->exchange, &shipment->left, timeout_ms, error);
}

void lio_shipment_expire(lio_shipment *shipment)
{
    if (!atomic_exchange(&shipment->is_asked_back, true))
        lio_exchange_post(shipment->exchange, &shipment->takes_back, take_back, shipment);
}

void lio_shipment_close(lio_shipment *shipment)
{
    if (shipment == NULL || shipment->exchange->pid != getpid())
        return;
    lio_exchange_post(shipment->exchange, &shipment->ends, end_shipment, shipment);
}
