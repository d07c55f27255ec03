/* sources: which root brings each row of a block, where roots bring them for each other. Pure.
 *
 * In an epoch that comes in windows:
 *
 *   place -> round                  a run of places; its records are those of one window
 *   round, root -> records          a slice of them, which the root reads
 *   record -> root                  that reads it in its round
 *   place -> team, block            that use it
 *
 * Where each record has a home, which is a root that keeps it in all epochs:
 *
 *   place -> record -> home
 *   block, root -> records          those of its home, which teams use in the block
 *
 * Where roots keep some records, several of them perhaps the same one:
 *
 *   record, epoch, team -> root    that has it: the team's own, or the next one after it
 *
 * lmdbio/placement/sources.py says what for. The numbers of rounds and places go on over all epochs;
 * `scratch` is memory for the caller to give.
 */
#ifndef LIO_SOURCES_H
#define LIO_SOURCES_H

#include <stddef.h>
#include <stdint.h>

#include "order.h"

/* The rounds of one epoch. The last chunk of the file may be shorter than others, and with it the
 * round in which it comes. */
typedef struct {
    lio_shuffle shuffle;
    uint64_t rounds, size;         /* of the epoch; places of a round that is full */
    uint64_t short_round, lacking; /* as many as there are: none is short; places that it lacks */
} lio_rounds;

/* Places that recur: runs (first and length, from the beginning) that begin anew `repeats` times,
 * `step` places apart. */
typedef struct {
    uint64_t first, step, repeats;
    const uint64_t *runs;
    size_t count;
} lio_places;

/* The team, and the block, that use each place. */
typedef struct {
    uint64_t start, end; /* places that are used; they count from `start` */
    uint64_t batch_size, block_iterations;
    uint64_t length; /* of all places from `start` on: the last batch may be short */
    uint64_t last_block;
    uint32_t ranks, teams;
    const uint64_t
        *chunks; /* blocked: where each team's begins in a block, then in the last one */
    const uint32_t *team_of; /* strided: of each rank; NULL: blocked */
} lio_seats;

size_t lio_places_count(const lio_places *places, size_t count);

/* Finds the rows of a block: `records` in the order of their places; and `order`, the rows by round
 * and root, within them in the order of their places. Of each run of one round and root: `rounds`,
 * `roots`, and where it `begins` in `order`, and the end. All have room for one number a row and one
 * more; `scratch` for 4 a row. `epochs` are those of the places, from number `epoch` on. Returns the
 * number of runs. */
size_t lio_sources_block(const lio_rounds *epochs, uint64_t epoch, uint32_t root_count,
                         const lio_places *places, size_t places_count, int64_t *records,
                         int64_t *order, int64_t *rounds, int64_t *roots, int64_t *begins,
                         uint64_t *scratch);

/* How many records a root reads for a round of an epoch. */
size_t lio_sources_slice(const lio_rounds *rounds, uint64_t round, uint32_t root,
                         uint32_t root_count);

/* Finds them, ascending, and what becomes of them: `order` are the places in `records` of those that
 * other teams use, by team and then by place. Of each run of one team and block: `teams`, `blocks`,
 * and where it `begins` in `order`, and the end; `used` is how many its own team uses. All have room
 * for one number a record and one more; `scratch` for 5 a record. Returns the number of runs. */
size_t lio_sources_uses(const lio_rounds *rounds, uint64_t epoch, uint64_t round, uint32_t root,
                        uint32_t root_count, const lio_seats *seats, int64_t *records,
                        int64_t *order, int64_t *teams, int64_t *blocks, int64_t *begins,
                        uint64_t *used, uint64_t *scratch);

/* --- homes -------------------------------------------------------------------------------------- */

enum { LIO_NO_HOME = 65535 }; /* of a record that no root keeps */

/* Finds the records at places, in their order. `epochs` are those of the places, from number `epoch`
 * on. */
void lio_sources_records(const lio_shuffle *epochs, uint64_t epoch, const lio_places *places,
                         size_t places_count, int64_t *records);

/* Sorts the rows of a block by home, within it in their order: `order`. Of each run of one home:
 * `roots` (-1: none), and where it `begins` in `order`, and the end. All have room for one number a
 * row and one more; `scratch` for 2 a row. Returns the number of runs. */
size_t lio_sources_at_home(const uint16_t *homes, const int64_t *records, size_t rows,
                           int64_t *order, int64_t *roots, int64_t *begins, uint64_t *scratch);

/* Finds what becomes of the records of a root's home at a run of places, `first` and those behind it
 * (from seats->start on) and whose `records` these are. `takers` are the teams of these
 * places; NULL: those that the seats say. `held` are the records of the home, `held_count` of them,
 * ascending; the rest as of lio_sources_uses(). */
size_t lio_sources_home_uses(const uint16_t *homes, uint32_t root, const lio_seats *seats,
                             uint64_t first, const int64_t *records, const uint32_t *takers,
                             size_t count, int64_t *held, int64_t *order, int64_t *teams,
                             int64_t *blocks, int64_t *begins, uint64_t *held_count,
                             uint64_t *used, uint64_t *scratch);

/* --- owners ------------------------------------------------------------------------------------- */

/* The roots that keep each record: roots[begins[record]] up to roots[begins[record + 1]]. Its own team
 * has a record all the time, others have it `since` an epoch of the same index. */
typedef struct {
    const uint32_t *begins;
    const uint16_t *roots;
    const uint32_t *since;
    uint32_t root_count;
} lio_owners;

/* Finds the team that uses each place; they count from seats->start. */
void lio_sources_teams(const lio_seats *seats, const int64_t *places, size_t count,
                       uint32_t *teams);

/* Finds the root that each record comes from in an epoch, or LIO_NO_HOME: that of the team that uses
 * it, where that keeps it; else the first one after that, counted round, from which others have it.
 * `teams` are those of the records; NULL: `team` is that of all. */
void lio_sources_owners(const lio_owners *owners, uint32_t epoch, const int64_t *records,
                        size_t count, const uint32_t *teams, uint32_t team, uint16_t *roots);

#endif
