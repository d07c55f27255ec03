/* glue_position: the moves and reads of a cursor that programs make for each record.
 *
 *   class Position(Stands):     first() last() next() prev() next_nodup() prev_nodup() set_key()
 *                               set_range() get() key() value() item() are C where the position
 *                               is that of the C core's cursor; else they call _move(),
 *                               _seek_key(), _seek_range() and _item_here(), of Python
 *
 *   transaction  --first-->  position <--> position <--> ...   those that are open
 *                <---------- each keeps its transaction
 *
 * The position is another one while records are handed out of a run that was read ahead
 * (`run`), after a refused write (`is_stale`) and when a move has to be made again (`unproved`).
 */

/* cdef: skip */
#ifndef LIO_GLUE_POSITION_H
#define LIO_GLUE_POSITION_H

#include "lookup.h"
/* cdef: resume */

/* Puts the type into the list at address `list`, at 0. 0, or -1 when memory ran out. */
static int lio_stands_type(uintptr_t list);

/* cdef: skip */
typedef struct lio_stands lio_stands;

struct lio_stands {
    PyObject_HEAD PyObject *lookup; /* a capsule of lio_lookup, with a cursor; NULL: closed */
    lio_stands *next, **link;       /* `link`: what points here; NULL: nothing does */
    PyObject *txn, *db;
    PyObject *made;     /* what Python has made of the cursor */
    PyObject *guard;    /* of the run; NULL or None: none was needed yet */
    PyObject *run;      /* NULL or None: none */
    PyObject *unproved; /* the move that could not be proved; NULL or None: none */
    char placed, keyless, is_stale, failed, has_duplicates;
};

/* Whether there is no object, or it is None. */
static bool lio_is_none(const PyObject *object);

/* The search of a position that is its own; NULL: the slow way knows. */
static lio_lookup *lio_stands_lookup(const lio_stands *s);

/* Lets go of what was read for an object that another thread has ended meanwhile: its reader slot did
 * not hold it. Raises what _check() of the object raises. */
static PyObject *lio_refuse(PyObject *self, PyObject *found);

/* A move has failed, with an error raised: it can be made again. `moved`: the position is another all
 * the same, and could not be proved. */
static void lio_stands_fail(lio_stands *s, uint32_t move, bool moved);

/* A position that has not begun is one of `txn` from now on, to whose list `*first` it goes. Takes
 * over `lookup`. */
static void lio_stands_begin(lio_stands *s, PyObject *lookup, PyObject *txn, PyObject *db,
                             lio_stands **first);

/* Closed from now on, though a run goes on. */
static void lio_stands_let_go(lio_stands *s);

/* False: with an error raised. */
static bool lio_stands_end(lio_stands *s);
#endif
/* cdef: resume */
