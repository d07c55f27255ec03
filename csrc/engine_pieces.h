/* engine_pieces: what is known of each piece of a mapping. Private to the engine.
 *
 *              look: there
 *   UNKNOWN ----------------> HELD       the kernel has said that all of it is in the page cache
 *      |  ^                   |  ^
 *      |  | forget            |  | look
 *      v  |                   v  |
 *   MISSING <---look: not---- BELIEVED   it was counted, and nothing that was said of it counts now
 *
 * A piece that is counted stays so: BELIEVED and HELD are, and go to MISSING and back with it. Threads look
 * at the same piece at the same time, each on the word that it has read; the later one counts, which is
 * right for as long as what the kernel says is.
 */
#ifndef LIO_ENGINE_PIECES_H
#define LIO_ENGINE_PIECES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "contract.h"
#include "engine_mapped.h"

/* Bytes that the kernel maps around a fault, unless its fault_around_bytes were changed. */
enum { LIO_WINDOW_BYTES = 64 << 10, LIO_WINDOWS = LIO_PIECE_BYTES / LIO_WINDOW_BYTES };

/* Facts about a piece: that all of it was in the page cache; that its bytes are counted; of
 * each of its windows, that it was touched; and above these bits in which second the first was
 * said. 0: nothing. */
enum {
    LIO_THERE = 1,
    LIO_COUNTED = 2,
    LIO_WINDOW = 4,
    LIO_SECOND = LIO_WINDOW << LIO_WINDOWS,
    LIO_TOUCHED = LIO_SECOND - LIO_WINDOW /* all windows */
};

typedef enum {
    LIO_PIECE_UNKNOWN,
    LIO_PIECE_MISSING,
    LIO_PIECE_BELIEVED,
    LIO_PIECE_HELD,
    LIO_PIECE_STATES
} lio_piece_state;

static inline lio_piece_state lio_piece_state_of(uint32_t facts)
{
    if (facts & LIO_THERE)
        return LIO_PIECE_HELD;
    if (facts >= LIO_SECOND)
        return LIO_PIECE_MISSING;
    return facts & LIO_COUNTED ? LIO_PIECE_BELIEVED : LIO_PIECE_UNKNOWN;
}

/* Whether a piece may go from one state to the other, and keeps that it is counted. */
static inline bool lio_piece_may_become(uint32_t before, uint32_t after)
{
    static const bool allowed[LIO_PIECE_STATES][LIO_PIECE_STATES] = {
        [LIO_PIECE_UNKNOWN] =
            {[LIO_PIECE_MISSING] = true, [LIO_PIECE_BELIEVED] = true, [LIO_PIECE_HELD] = true},
        [LIO_PIECE_MISSING] = {[LIO_PIECE_UNKNOWN] = true, /* somebody has brought it */
                               [LIO_PIECE_MISSING] = true,
                               [LIO_PIECE_BELIEVED] = true,
                               [LIO_PIECE_HELD] = true},
        [LIO_PIECE_BELIEVED] =
            {[LIO_PIECE_MISSING] = true, [LIO_PIECE_BELIEVED] = true, [LIO_PIECE_HELD] = true},
        [LIO_PIECE_HELD] = {[LIO_PIECE_MISSING] = true, /* it has left the page cache */
                            [LIO_PIECE_BELIEVED] = true,
                            [LIO_PIECE_HELD] = true},
    };
    bool is_counted = !(before & LIO_COUNTED) || (after & LIO_COUNTED);
    return is_counted && allowed[lio_piece_state_of(before)][lio_piece_state_of(after)];
}

/* The facts of a piece after the kernel has said, in second `second`, whether all of it is there. */
static inline uint32_t lio_piece_said(uint32_t before, bool there, uint32_t second)
{
    uint32_t facts = there ? LIO_THERE | LIO_COUNTED | (before & LIO_TOUCHED)
                           : before & LIO_COUNTED;
    LIO_ASSERT(second > 0);
    LIO_ASSERT(lio_piece_may_become(before, second * LIO_SECOND + facts));
    return second * LIO_SECOND + facts;
}

/* The same after somebody has counted it and takes it to be there. */
static inline uint32_t lio_piece_believed(uint32_t before)
{
    uint32_t facts = LIO_COUNTED | (before & LIO_TOUCHED);
    LIO_ASSERT(lio_piece_may_become(before, facts));
    return facts;
}

/* The same of a piece that was missing, after somebody has brought bytes of it. */
static inline uint32_t lio_piece_forgotten(uint32_t before)
{
    uint32_t facts = before % LIO_SECOND;
    LIO_ASSERT(lio_piece_state_of(before) == LIO_PIECE_MISSING);
    LIO_ASSERT(lio_piece_may_become(before, facts));
    return facts;
}

#endif
