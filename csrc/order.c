#include "order.h"

#include <stdbool.h>

/* --- division by a number that stays --------------------------------------------------------- */

typedef struct {
    uint64_t by;
    uint64_t reciprocal; /* of 2**64 - 1, rounded down */
} divisor;

static divisor divisor_of(uint64_t by)
{
    return (divisor){by, UINT64_MAX / by};
}

__extension__ typedef unsigned __int128 wide;

/* To multiply takes a fraction of a division. The estimate is often short by 1, for which no branch
 * is to be guessed, and hardly ever by more. */
static inline uint64_t quotient(uint64_t value, divisor d, uint64_t *rest)
{
    uint64_t found = (uint64_t)((wide)value * d.reciprocal >> 64), left = value - found * d.by,
             more = left >= d.by;
    left -= d.by & -more;
    found += more;
    while (left >= d.by) {
        left -= d.by;
        found++;
    }
    *rest = left;
    return found;
}

static inline uint64_t remainder_of(uint64_t value, divisor d)
{
    uint64_t rest;
    (void)quotient(value, d, &rest);
    return rest;
}

/* --- a permutation of the numbers below one ---------------------------------------------------- */

/* A Feistel network on the numbers below left * right, about as large as each other, which is
 * `below` or a little more; it is walked until it comes back. */
typedef struct {
    uint64_t below;
    divisor left, right;
    const uint64_t *keys;
} permutation;

/* On smaller sides a sum is hardly more than a turn: three numbers would only be rotated. */
enum { SIDE_MIN = 4 };

static uint64_t root_of(uint64_t square)
{
    uint64_t root = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit > 0; bit >>= 1)
        if ((root | bit) * (root | bit) <= square)
            root |= bit;
    return root;
}

static permutation permutation_of(uint64_t below, const uint64_t *keys)
{
    uint64_t root = root_of(below), left = root < SIDE_MIN ? SIDE_MIN : root,
             right = (below - 1) / left + 1;
    right = right < SIDE_MIN ? SIDE_MIN : right;
    return (permutation){below, divisor_of(left), divisor_of(right), keys};
}

/* Each bit of the result depends on all of the value's: the finaliser of SplitMix64. */
static inline uint64_t mixed(uint64_t value)
{
    value ^= value >> 30;
    value *= UINT64_C(0xBF58476D1CE4E5B9);
    value ^= value >> 27;
    value *= UINT64_C(0x94D049BB133111EB);
    return value ^ value >> 31;
}

/* A sum of numbers below `modulus`, or a little above where the sides differ, without a branch
 * that half of the time is guessed wrong. */
static inline uint64_t reduced(uint64_t sum, uint64_t modulus)
{
    sum -= modulus & -(uint64_t)(sum >= modulus);
    while (sum >= modulus) /* hardly ever */
        sum -= modulus;
    return sum;
}

/* `tweak` makes another permutation of the same keys; 0: their own. */
static uint64_t once(const permutation *p, uint64_t tweak, uint64_t number)
{
    uint64_t left, right = quotient(number, p->left, &left);
    for (size_t i = 0; i < LIO_ORDER_ROUNDS; i++) {
        divisor side = i % 2 == 0 ? p->left : p->right;
        uint64_t next = reduced(left + remainder_of(mixed(right + p->keys[i] + tweak), side),
                                side.by);
        left = right;
        right = next;
    }
    return right * p->left.by + left;
}

static uint64_t once_back(const permutation *p, uint64_t tweak, uint64_t number)
{
    uint64_t left, right = quotient(number, p->left, &left);
    for (size_t i = LIO_ORDER_ROUNDS; i-- > 0;) {
        divisor side = i % 2 == 0 ? p->left : p->right;
        uint64_t before = reduced(
            right + side.by - remainder_of(mixed(left + p->keys[i] + tweak), side), side.by);
        right = left;
        left = before;
    }
    return right * p->left.by + left;
}

static uint64_t permuted(const permutation *p, uint64_t tweak, uint64_t number)
{
    do
        number = once(p, tweak, number);
    while (number >= p->below);
    return number;
}

static uint64_t permuted_back(const permutation *p, uint64_t tweak, uint64_t number)
{
    do
        number = once_back(p, tweak, number);
    while (number >= p->below);
    return number;
}

/* --- chunks and windows ------------------------------------------------------------------------ */

/* Where the chunks and windows of an epoch lie. The chunks' positions are those after they were
 * permuted; a short chunk is at one of them, and what follows it lies that much earlier. */
typedef struct {
    const lio_shuffle *shuffle;
    bool keeps_inner;
    divisor chunk, window;
    permutation chunks;
    uint64_t short_position; /* as many as there are chunks: none is short */
    uint64_t short_length, missing;
    permutation inner; /* of the last window asked about; windows have three sizes at most */
    uint64_t position, found; /* the last one asked about, and its chunk */
} layout;

/* Where a window begins, how long it is, and what makes its permutation its own. */
typedef struct {
    uint64_t begin, size, tweak;
} window;

static uint64_t chunk_at(const layout *l, uint64_t position)
{
    return l->shuffle->keeps_chunks ? position : permuted(&l->chunks, 0, position);
}

static uint64_t position_of_chunk(const layout *l, uint64_t chunk)
{
    return l->shuffle->keeps_chunks ? chunk : permuted_back(&l->chunks, 0, chunk);
}

static layout layout_of(const lio_shuffle *s)
{
    layout l = {.shuffle = s, .keeps_inner = s->keeps_inner != 0};
    uint64_t chunk = s->chunk, rest, chunks;
    /* One window shuffled inside, and chunks of one record, come to the same: each record alone. */
    if (!l.keeps_inner && (wide)chunk * s->window >= s->count)
        chunk = 1;
    l.keeps_inner |= chunk == 1;
    rest = s->count % chunk;
    chunks = s->count / chunk + (rest > 0);
    l.chunk = divisor_of(chunk);
    l.window = divisor_of(s->window);
    l.chunks = permutation_of(chunks, s->chunk_keys);
    l.short_position = l.position = chunks; /* none */
    if (rest > 0) {
        l.short_length = rest;
        l.missing = chunk - rest;
        l.short_position = position_of_chunk(&l, chunks - 1);
    }
    return l;
}

static uint64_t begin_of(const layout *l, uint64_t position)
{
    return position * l->chunk.by - (position > l->short_position ? l->missing : 0);
}

/* The position of the chunk that has a place. */
static uint64_t position_of(const layout *l, uint64_t place, uint64_t *offset)
{
    uint64_t found = quotient(place, l->chunk, offset);
    if (found < l->short_position || (found == l->short_position && *offset < l->short_length))
        return found;
    return quotient(place + l->missing, l->chunk, offset);
}

static window window_of(layout *l, uint64_t position)
{
    uint64_t inside,
        number = quotient(position, l->window, &inside), first = position - inside,
        end = l->chunks.below - first < l->window.by ? l->chunks.below : first + l->window.by;
    window w = {.begin = begin_of(l, first), .tweak = mixed(number + 1)};
    w.size = begin_of(l, end) - w.begin;
    if (w.size != l->inner.below)
        l->inner = permutation_of(w.size, l->shuffle->inner_keys);
    return w;
}

static uint64_t record_at(layout *l, uint64_t place)
{
    uint64_t offset, position = position_of(l, place, &offset);
    if (!l->keeps_inner) {
        window w = window_of(l, position);
        position = position_of(l, w.begin + permuted(&l->inner, w.tweak, place - w.begin),
                               &offset);
    }
    if (position != l->position) {
        l->found = chunk_at(l, position);
        l->position = position;
    }
    return l->found * l->chunk.by + offset;
}

static uint64_t place_of(layout *l, uint64_t record)
{
    uint64_t offset, chunk = quotient(record, l->chunk, &offset),
                     position = position_of_chunk(l, chunk),
                     place = begin_of(l, position) + offset;
    if (!l->keeps_inner) {
        window w = window_of(l, position);
        place = w.begin + permuted_back(&l->inner, w.tweak, place - w.begin);
    }
    return place;
}

void lio_shuffle_records(const lio_shuffle *shuffle, uint64_t *numbers, size_t count)
{
    layout l;
    if (count == 0)
        return;
    l = layout_of(shuffle);
    for (size_t i = 0; i < count; i++)
        numbers[i] = record_at(&l, numbers[i]);
}

void lio_shuffle_places(const lio_shuffle *shuffle, uint64_t *numbers, size_t count)
{
    layout l;
    if (count == 0)
        return;
    l = layout_of(shuffle);
    for (size_t i = 0; i < count; i++)
        numbers[i] = place_of(&l, numbers[i]);
}
