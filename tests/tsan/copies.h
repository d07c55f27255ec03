/* copies: threads that have rows copied, and close copies in any order while they wait or run.
 *
 * Part of exchange.c. Rows are compared where a copy was waited for. After a copy is closed its
 * memory is overwritten and freed at once, so that a copy that goes on is seen.
 */
#ifndef COPIES_H
#define COPIES_H

#include "copier.h"
#include "rows.h"

enum { COPYING_THREADS = 3, COPIES_MAX = 4, RECORDS = 24 };

typedef struct {
    lio_copying *copying;
    uint64_t bytes, lengths[RECORDS], offsets[RECORDS];
    int64_t rows[RECORDS], records[RECORDS]; /* numbers of records are threefold their places */
    size_t count;
    uint8_t *data;
} copy;

/* A block of `RECORDS` rows, of which some are copied. */
static void copy_start(lio_copier *copier, uint64_t *state, const lio_loaded *loaded, copy *one)
{
    uint64_t offsets[RECORDS];
    int64_t records[RECORDS];
    lio_error error;
    one->bytes = one->count = 0;
    for (int64_t row = 0; row < RECORDS; row++) {
        uint64_t place = draw(state, RECORDS);
        one->records[row] = 3 * (int64_t)place;
        one->lengths[row] = loaded->slices[place + 1] - loaded->slices[place];
        one->offsets[row] = one->bytes;
        one->bytes += lio_row_room(one->lengths[row]);
        if (draw(state, 3) != 0)
            one->rows[one->count++] = row;
    }
    one->data = memory_make(one->bytes);
    memcpy(offsets, one->offsets, sizeof offsets);
    memcpy(records, one->records, sizeof records);
    if (one->count > 0 && draw(state, 10) == 0) {
        records[one->rows[one->count - 1]] = 3 * (int64_t)draw(state, RECORDS) + 1;
        MUST(lio_copier_start(copier, loaded, one->rows, one->count, records, one->lengths,
                              offsets, (uint64_t)(uintptr_t)one->data, &one->copying,
                              &error) == LIO_ERR_ARGUMENT);
        memcpy(records, one->records, sizeof records);
    }
    MUST_BE_OK(lio_copier_start(copier, loaded, one->rows, one->count, records, one->lengths,
                                offsets, (uint64_t)(uintptr_t)one->data, &one->copying, &error),
               &error);
    memset(offsets, 0xff, sizeof offsets); /* they are the caller's again */
    memset(records, 0xff, sizeof records);
}

static void copy_end(uint64_t *state, const lio_loaded *loaded, copy *one)
{
    uint64_t way = draw(state, 4);
    int code = LIO_PENDING;
    if (way == 0)
        nap(state, 300);
    else
        while (code == LIO_PENDING)
            code = way == 1 ? lio_copying_wait(one->copying, 0)
                            : lio_copying_wait(one->copying, (int)draw(state, 5));
    for (size_t i = 0; code == LIO_OK && i < one->count; i++) {
        int64_t row = one->rows[i];
        const uint8_t *from = (const uint8_t *)(uintptr_t)loaded->base;
        MUST(memcmp(one->data + one->offsets[row], from + loaded->slices[one->records[row] / 3],
                    (size_t)one->lengths[row]) == 0);
    }
    lio_copying_close(one->copying);
    memory_end(one->data, one->bytes);
}

typedef struct {
    lio_copier *copier;
    uint64_t seed;
} copying_thread;

static void *copy_much(void *argument)
{
    copying_thread *t = argument;
    uint64_t state = t->seed;
    for (uint32_t turn = 0; turn < 12; turn++) {
        int64_t records[RECORDS];
        uint64_t slices[RECORDS + 1] = {0};
        copy copies[COPIES_MAX];
        size_t count = 1 + (size_t)draw(&state, COPIES_MAX);
        for (int64_t i = 0; i < RECORDS; i++) {
            records[i] = 3 * i;
            slices[i + 1] = slices[i] + draw(&state, i % 8 == 0 ? 50000 : 400);
        }
        uint8_t *memory = memory_make(slices[RECORDS]);
        memcpy(memory, table + draw(&state, STARTS), (size_t)slices[RECORDS]);
        lio_loaded loaded = {records, slices, RECORDS, (uint64_t)(uintptr_t)memory};
        for (size_t i = 0; i < count; i++)
            copy_start(t->copier, &state, &loaded, &copies[i]);
        for (; count > 0; count--) {
            size_t chosen = (size_t)draw(&state, count);
            copy_end(&state, &loaded, &copies[chosen]);
            copies[chosen] = copies[count - 1];
        }
        memory_end(memory, slices[RECORDS]);
    }
    return NULL;
}

static void copy_rows(uint64_t seed)
{
    pthread_t threads[COPYING_THREADS];
    copying_thread each[COPYING_THREADS];
    lio_copier *copier;
    lio_error error;
    MUST_BE_OK(lio_copier_open(&copier, &error), &error);
    for (uint64_t i = 0; i < COPYING_THREADS; i++) {
        each[i] = (copying_thread){copier, seed * 7 + i};
        start(&threads[i], copy_much, &each[i]);
    }
    for (int i = 0; i < COPYING_THREADS; i++)
        finish(threads[i]);
    lio_copier_close(copier);
}

#endif
