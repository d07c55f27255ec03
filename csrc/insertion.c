#include "insertion.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"

typedef struct {
    uint32_t db_flags;
    const uint8_t *keys;
    const uint64_t *ends;
} events;

static int compare(const events *all, uint64_t a, uint64_t b)
{
    uint64_t a_at = a > 0 ? all->ends[a - 1] : 0, b_at = b > 0 ? all->ends[b - 1] : 0;
    return lio_key_compare(all->db_flags, all->keys + a_at, (size_t)(all->ends[a] - a_at),
                           all->keys + b_at, (size_t)(all->ends[b] - b_at));
}

/* Merges two sorted neighbours; of equal keys the earlier event stays first. */
static void merge(const events *all, const uint64_t *from, size_t first, size_t middle, size_t end,
                  uint64_t *to)
{
    size_t left = first, right = middle;
    /* Keys were mostly put in order. */
    if (middle >= end || compare(all, from[middle - 1], from[middle]) <= 0) {
        memcpy(to + first, from + first, (end - first) * sizeof *to);
        return;
    }
    for (size_t i = first; i < end; i++) {
        bool of_left = right >= end ||
                       (left < middle && compare(all, from[left], from[right]) <= 0);
        to[i] = of_left ? from[left++] : from[right++];
    }
}

/* `*sorted` is one of the two, which are as long. */
static void sort(const events *all, uint64_t *one, uint64_t *other, size_t count,
                 uint64_t **sorted)
{
    for (size_t i = 0; i < count; i++)
        one[i] = i;
    for (size_t width = 1; width < count; width *= 2) {
        uint64_t *swapped = one;
        for (size_t first = 0; first < count; first += 2 * width) {
            size_t middle = first + width < count ? first + width : count;
            size_t end = middle + width < count ? middle + width : count;
            merge(all, one, first, middle, end, other);
        }
        one = other;
        other = swapped;
    }
    *sorted = one;
}

/* The events of one key, in the order in which they came. */
static void settle_key(const uint64_t *of, size_t count, const uint8_t *gone, uint64_t *kept,
                       size_t *kept_count, uint64_t *again)
{
    uint64_t put = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (gone[of[i]])
            put = UINT64_MAX;
        else if (put == UINT64_MAX)
            put = of[i];
        else if (*again == UINT64_MAX)
            *again = of[i];
    }
    if (put != UINT64_MAX)
        kept[(*kept_count)++] = put;
}

int lio_insertion_settle(uint32_t db_flags, const uint8_t *keys, size_t keys_size,
                         const uint64_t *ends, const uint8_t *gone, size_t count, uint64_t *kept,
                         size_t *kept_count, uint64_t *again, lio_error *error)
{
    const events all = {db_flags, keys, ends};
    uint64_t *room, *sorted;
    *kept_count = 0;
    *again = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        if (ends[i] > keys_size || (i > 0 && ends[i] < ends[i - 1]))
            return lio_fail(error, LIO_ERR_ARGUMENT, i, keys_size, ends[i],
                            "a key ends where it cannot");
    room = count <= SIZE_MAX / 2 / sizeof *room ? malloc((2 * count + 1) * sizeof *room) : NULL;
    if (room == NULL)
        return lio_fail(error, LIO_ERR_NOMEM, 0, count, 0, "no memory to sort keys");
    sort(&all, room, room + count, count, &sorted);
    for (size_t first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count; next++)
            if (compare(&all, sorted[first], sorted[next]) != 0)
                break;
        settle_key(sorted + first, next - first, gone, kept, kept_count, again);
    }
    free(room);
    return LIO_OK;
}
