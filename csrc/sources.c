#include "sources.h"

#include <stdbool.h>
#include <string.h>

/* --- sorting ------------------------------------------------------------------------------- */

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* Sorts `rows` by keys[row], keeping the order of equal ones; by as many digits as differ.
 * `spare` has room for as many. */
static void sort_rows(const uint64_t *keys, uint64_t *rows, uint64_t *spare, size_t count)
{
    uint64_t differing = 0;
    for (size_t i = 1; i < count; i++)
        differing |= keys[rows[i]] ^ keys[rows[0]];
    for (unsigned shift = 0; shift < 64 && differing >> shift != 0; shift += DIGIT_BITS) {
        size_t begins[DIGITS] = {0}, before = 0;
        if ((differing >> shift & (DIGITS - 1)) == 0)
            continue;
        for (size_t i = 0; i < count; i++)
            begins[keys[rows[i]] >> shift & (DIGITS - 1)]++;
        for (size_t digit = 0; digit < DIGITS; digit++) {
            size_t here = begins[digit];
            begins[digit] = before;
            before += here;
        }
        for (size_t i = 0; i < count; i++)
            spare[begins[keys[rows[i]] >> shift & (DIGITS - 1)]++] = rows[i];
        memcpy(rows, spare, count * sizeof *rows);
    }
}

static void count_up(uint64_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        rows[i] = i;
}

/* --- rounds -------------------------------------------------------------------------------- */

/* The first place of a round in its epoch; of the one behind the last, the epoch's end. */
static uint64_t round_begin(const lio_rounds *r, uint64_t round)
{
    uint64_t begin = round * r->size - (round > r->short_round ? r->lacking : 0);
    return begin < r->shuffle.count ? begin : r->shuffle.count;
}

static uint64_t round_of(const lio_rounds *r, uint64_t place)
{
    uint64_t next = r->short_round < r->rounds ? r->short_round + 1 : r->rounds;
    return (place + (place >= round_begin(r, next) ? r->lacking : 0)) / r->size;
}

/* Of the epoch in which windows are not shuffled inside. */
static lio_shuffle chunk_order(const lio_rounds *r)
{
    lio_shuffle shuffle = r->shuffle;
    shuffle.keeps_inner = 1;
    return shuffle;
}

/* The first number of a share, as lmdbio/planning/order.py deals them. */
static uint64_t share_begin(uint64_t length, uint64_t parts, uint64_t part)
{
    return length / parts * part + length % parts * part / parts;
}

/* The last share that begins at a number or before it. */
static uint64_t share_of(uint64_t length, uint64_t parts, uint64_t number)
{
    return ((number + 1) * parts - 1) / length;
}

/* --- the rows of a block ---------------------------------------------------------------------- */

size_t lio_places_count(const lio_places *places, size_t count)
{
    size_t rows = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t run = 0; run < places[i].count; run++)
            rows += (size_t)(places[i].repeats * places[i].runs[2 * run + 1]);
    return rows;
}

static size_t list_places(const lio_places *places, size_t count, uint64_t *out)
{
    size_t rows = 0;
    for (size_t i = 0; i < count; i++)
        for (uint64_t repeat = 0; repeat < places[i].repeats; repeat++)
            for (size_t run = 0; run < places[i].count; run++) {
                uint64_t first = places[i].first + repeat * places[i].step +
                                 places[i].runs[2 * run];
                for (uint64_t j = 0; j < places[i].runs[2 * run + 1]; j++)
                    out[rows++] = first + j;
            }
    return rows;
}

size_t lio_sources_block(const lio_rounds *epochs, uint64_t epoch, uint32_t root_count,
                         const lio_places *places, size_t places_count, int64_t *records,
                         int64_t *order, int64_t *rounds, int64_t *roots, int64_t *begins,
                         uint64_t *scratch)
{
    size_t rows = lio_places_count(places, places_count), runs = 0;
    uint64_t *round = scratch, *root = scratch + rows, *spare = scratch + 2 * rows;
    (void)list_places(places, places_count, (uint64_t *)records);
    for (size_t from = 0, to; from < rows; from = to) { /* of one epoch after the other */
        uint64_t number = (uint64_t)records[from] / epochs->shuffle.count;
        const lio_rounds *r = &epochs[number - epoch];
        uint64_t first = number * r->shuffle.count;
        lio_shuffle in_chunks = chunk_order(r);
        for (to = from; to < rows && (uint64_t)records[to] - first < r->shuffle.count; to++) {
            records[to] -= (int64_t)first;
            round[to] = number * r->rounds + round_of(r, (uint64_t)records[to]);
        }
        lio_shuffle_records(&r->shuffle, (uint64_t *)records + from, to - from);
        memcpy(root + from, records + from, (to - from) * sizeof *root);
        lio_shuffle_places(&in_chunks, root + from, to - from);
        for (size_t i = from; i < to; i++) {
            uint64_t own = round[i] - number * r->rounds, begin = round_begin(r, own);
            root[i] = share_of(round_begin(r, own + 1) - begin, root_count, root[i] - begin);
        }
    }
    count_up((uint64_t *)order, rows);
    sort_rows(root, (uint64_t *)order, spare, rows);
    sort_rows(round, (uint64_t *)order, spare, rows);
    for (size_t i = 0; i < rows; i++) {
        uint64_t row = (uint64_t)order[i];
        if (i > 0 && round[row] == (uint64_t)rounds[runs - 1] &&
            root[row] == (uint64_t)roots[runs - 1])
            continue;
        rounds[runs] = (int64_t)round[row];
        roots[runs] = (int64_t)root[row];
        begins[runs++] = (int64_t)i;
    }
    begins[runs] = (int64_t)rows;
    return runs;
}

/* --- the uses of a slice ----------------------------------------------------------------------- */

size_t lio_sources_slice(const lio_rounds *r, uint64_t round, uint32_t root, uint32_t root_count)
{
    uint64_t length = round_begin(r, round + 1) - round_begin(r, round);
    return (size_t)(share_begin(length, root_count, root + 1) -
                    share_begin(length, root_count, root));
}

/* The team whose chunk of the block a place lies in; an empty chunk begins where the next does. */
static uint32_t team_of_chunk(const lio_seats *s, uint64_t block, uint64_t within)
{
    const uint64_t *chunks = s->chunks + (block == s->last_block ? s->teams : 0);
    uint32_t low = 0, high = s->teams;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (chunks[middle] <= within)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint32_t team_of_place(const lio_seats *s, uint64_t place, uint64_t block)
{
    if (s->team_of == NULL)
        return team_of_chunk(s, block, place - block * s->block_iterations * s->batch_size);
    uint64_t first = place / s->batch_size * s->batch_size, left = s->length - first,
             size = left < s->batch_size ? left : s->batch_size;
    return s->team_of[share_of(size, s->ranks, place - first)];
}

/* Lists the rows of other teams by team and place, as lio_sources_uses() says; `order` are those rows,
 * and is sorted. Returns the number of runs. */
static size_t list_uses(const lio_seats *s, const uint64_t *place, const uint64_t *team,
                        uint64_t *spare, size_t count, int64_t *order, int64_t *teams,
                        int64_t *blocks, int64_t *begins)
{
    size_t runs = 0;
    sort_rows(place, (uint64_t *)order, spare, count);
    sort_rows(team, (uint64_t *)order, spare, count);
    for (size_t i = 0; i < count; i++) {
        int64_t here = (int64_t)team[order[i]];
        int64_t block = (int64_t)(place[order[i]] / (s->block_iterations * s->batch_size));
        if (i > 0 && here == teams[runs - 1] && block == blocks[runs - 1])
            continue;
        teams[runs] = here;
        blocks[runs] = block;
        begins[runs++] = (int64_t)i;
    }
    begins[runs] = (int64_t)count;
    return runs;
}

size_t lio_sources_uses(const lio_rounds *r, uint64_t epoch, uint64_t round, uint32_t root,
                        uint32_t root_count, const lio_seats *s, int64_t *records, int64_t *order,
                        int64_t *teams, int64_t *blocks, int64_t *begins, uint64_t *used,
                        uint64_t *scratch)
{
    size_t count = lio_sources_slice(r, round, root, root_count), others = 0;
    uint64_t *place = scratch, *team = scratch + count, *spare = scratch + 2 * count,
             *row = scratch + 3 * count, *found = scratch + 4 * count;
    uint64_t begin = round_begin(r, round), length = round_begin(r, round + 1) - begin,
             first = begin + share_begin(length, root_count, root);
    lio_shuffle in_chunks = chunk_order(r);
    for (size_t i = 0; i < count; i++)
        found[i] = first + i;
    lio_shuffle_records(&in_chunks, found, count);
    count_up(row, count);
    sort_rows(found, row, spare, count);
    for (size_t i = 0; i < count; i++)
        records[i] = (int64_t)found[row[i]];
    memcpy(place, records, count * sizeof *place);
    lio_shuffle_places(&r->shuffle, place, count);
    *used = 0;
    for (size_t i = 0; i < count; i++) {
        place[i] += epoch * r->shuffle.count;
        if (place[i] < s->start || place[i] >= s->end)
            continue;
        place[i] -= s->start;
        team[i] = team_of_place(s, place[i], place[i] / (s->block_iterations * s->batch_size));
        if (team[i] == root)
            ++*used;
        else
            order[others++] = (int64_t)i;
    }
    return list_uses(s, place, team, spare, others, order, teams, blocks, begins);
}

/* --- homes ------------------------------------------------------------------------------------ */

void lio_sources_records(const lio_shuffle *epochs, uint64_t epoch, const lio_places *places,
                         size_t places_count, int64_t *records)
{
    size_t rows = list_places(places, places_count, (uint64_t *)records);
    for (size_t from = 0, to; from < rows; from = to) {
        uint64_t count = epochs->count, number = (uint64_t)records[from] / count;
        for (to = from; to < rows && (uint64_t)records[to] - number * count < count; to++)
            records[to] -= (int64_t)(number * count);
        lio_shuffle_records(&epochs[number - epoch], (uint64_t *)records + from, to - from);
    }
}

size_t lio_sources_at_home(const uint16_t *homes, const int64_t *records, size_t rows,
                           int64_t *order, int64_t *roots, int64_t *begins, uint64_t *scratch)
{
    uint64_t *home = scratch, *spare = scratch + rows;
    size_t runs = 0;
    for (size_t row = 0; row < rows; row++)
        home[row] = homes[records[row]];
    count_up((uint64_t *)order, rows);
    sort_rows(home, (uint64_t *)order, spare, rows);
    for (size_t i = 0; i < rows; i++) {
        uint64_t here = home[order[i]];
        if (i > 0 && here == home[order[i - 1]])
            continue;
        roots[runs] = here == LIO_NO_HOME ? -1 : (int64_t)here;
        begins[runs++] = (int64_t)i;
    }
    begins[runs] = (int64_t)rows;
    return runs;
}

size_t lio_sources_home_uses(const uint16_t *homes, uint32_t root, const lio_seats *s,
                             uint64_t first, const int64_t *records, const uint32_t *takers,
                             size_t count, int64_t *held, int64_t *order, int64_t *teams,
                             int64_t *blocks, int64_t *begins, uint64_t *held_count,
                             uint64_t *used, uint64_t *scratch)
{
    uint64_t block_size = s->block_iterations * s->batch_size, *found = scratch,
             *place = scratch + count, *team = scratch + 2 * count, *row = scratch + 3 * count,
             *spare = scratch + 4 * count;
    size_t here = 0, others = 0;
    for (size_t i = 0; i < count; i++)
        if (homes[records[i]] == root) {
            found[here] = (uint64_t)records[i];
            place[here++] = first + i;
        }
    count_up(row, here);
    sort_rows(found, row, spare, here);
    for (size_t i = 0; i < here; i++) {
        held[i] = (int64_t)found[row[i]];
        spare[i] = place[row[i]];
    }
    memcpy(place, spare, here * sizeof *place);
    *held_count = here;
    *used = 0;
    for (size_t i = 0; i < here; i++) {
        team[i] = takers == NULL ? team_of_place(s, place[i], place[i] / block_size)
                                 : takers[place[i] - first];
        if (team[i] == root)
            ++*used;
        else
            order[others++] = (int64_t)i;
    }
    return list_uses(s, place, team, spare, others, order, teams, blocks, begins);
}

/* --- owners ----------------------------------------------------------------------------------- */

void lio_sources_teams(const lio_seats *seats, const int64_t *places, size_t count,
                       uint32_t *teams)
{
    uint64_t size = seats->block_iterations * seats->batch_size;
    for (size_t i = 0; i < count; i++)
        teams[i] = team_of_place(seats, (uint64_t)places[i], (uint64_t)places[i] / size);
}

void lio_sources_owners(const lio_owners *k, uint32_t epoch, const int64_t *records, size_t count,
                        const uint32_t *teams, uint32_t team, uint16_t *roots)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t user = teams == NULL ? team : teams[i], nearest = k->root_count;
        roots[i] = LIO_NO_HOME;
        for (uint32_t j = k->begins[records[i]]; j < k->begins[records[i] + 1]; j++) {
            uint32_t root = k->roots[j], after = root < user ? k->root_count : 0;
            if ((root == user || k->since[j] <= epoch) && root + after - user < nearest) {
                nearest = root + after - user;
                roots[i] = (uint16_t)root;
            }
        }
    }
}
