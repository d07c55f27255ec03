/* glue: builds Python objects in blocks, for lmdbio/_core alone.
 *
 * Uses the limited API. cffi calls these without the GIL, so each takes it; objects come and
 * go as addresses (`id(object)` on the Python side) and stay owned by the caller. A function that
 * Python calls for every record of a loop is a builtin one instead (lio_glue_lookup): cffi's way of
 * passing arguments, and giving up the GIL and taking it back, cost more than such a search.
 */

/* cdef: skip */
#ifndef LIO_GLUE_H
#define LIO_GLUE_H
#include <Python.h>
/* cdef: resume */

/* Hides the object at address `object` from the garbage collector, which then neither visits nor
 * finalizes it: its reference count alone says when it ends. It must be tracked. */
static void lio_glue_untrack(uintptr_t object);

/* The parts of an item that a caller wants. */
enum { LIO_WANT_KEY = 1, LIO_WANT_VALUE = 2 };

/* Puts the key and the value (which is read if need be) of the cursor's last move into the
 * list at address `list`, at 0 and 1. LIO_NOTFOUND when that move failed. */
static int lio_glue_item(lio_cursor *cursor, uint32_t wanted, uintptr_t list, lio_error *error);

/* The same of record `index` of the scan's block. */
static int lio_glue_record(const lio_scan *scan, size_t index, uint32_t wanted, uintptr_t list,
                           lio_error *error);

/* lio_cursor_move, which counts the record that it finds. */
static int lio_glue_move(lio_cursor *cursor, uint32_t move, const uint8_t *key, size_t key_size,
                         const uint8_t *data, size_t data_size, lio_error *error);

/* Puts the callable find(key, default) into the list at address `list`, at 0: the first value of
 * `key`, or `default`, in one call that keeps the GIL while nothing waits and the value is short.
 *
 * It holds the objects at these addresses: `keep` owns `cursor` and `snapshot`; as_key(key) makes
 * bytes of what is none; failed(code, sys_errno, offset, wanted, got, reason) raises what a code
 * means; verify() asks the meta pages, waiting, and raises when the snapshot is gone; `map` is a
 * memoryview over the engine's mapping, of which slices are lent (None: there is none);
 * waited(offset) follows each search that waited for the storage, for a value at `offset` or, with 0,
 * for pages (None: nobody asks). With `buffers` keys and values are memoryviews. 0, or -1 when memory ran out. */
static int lio_glue_lookup(lio_cursor *cursor, lio_snapshot *snapshot, uintptr_t keep,
                           uintptr_t as_key, uintptr_t failed, uintptr_t verify, uintptr_t map,
                           uintptr_t waited, uint32_t buffers, uintptr_t list);

/* The cursor of a search that is not of a callable: see glue_position. */
static lio_cursor *lio_glue_lookup_cursor(uintptr_t lookup);

/* cdef: skip */

/* `size` bytes of memory as an object; NULL: no memory for it. */
static PyObject *lio_glue_bytes(const uint8_t *bytes, uint64_t size);

/* Puts an object, which it takes over, into the list at address `list`, at 0. 0, or -1 when it is NULL or
 * memory ran out. The caller has the GIL. */
static int lio_glue_hand(PyObject *object, uintptr_t list);

/* Makes a type to derive from, whose objects have `size` bytes, and puts it there. `flags`: beside the
 * usual ones. */
static int lio_glue_type(const char *name, size_t size, unsigned flags, PyType_Slot *slots,
                         uintptr_t list);

/* Ends an object of such a type, whose own are cleared. */
static void lio_glue_free(PyObject *self, inquiry clear);

/* Reading more than this is worth letting others run meanwhile. */
enum { LIO_HELD_BYTES_MAX = 32 << 10 };

/* The guard of reads, and the objects that are held for it. `keep` owns what is borrowed; the others
 * are as for lio_glue_lookup. NULL: there is none. */
typedef struct {
    lio_pages *pages;
    lio_snapshot *snapshot;
    PyObject *keep, *failed, *verify, *map, *waited, *as_key, *type;
} lio_guard;

static void lio_guard_hold(const lio_guard *guard);
static void lio_guard_drop(lio_guard *guard);

/* Raises what a failure means; false. */
static bool lio_guard_raise(const lio_guard *guard, int code, const lio_error *error);

/* Whether what was read up to now belongs to the snapshot: by what is known, or by a look at the meta
 * pages without the GIL; `anew`: by that alone (lio_snapshot_intact). */
static bool lio_guard_is_intact(const lio_guard *guard, bool anew);

/* The same, or as verify() says. False: raised. */
static bool lio_guard_vouch(const lio_guard *guard);

/* The same after reads by another engine than that of the meta pages, whose requests do not tell
 * that more was read. By a look of its own: none of another thread's, made before these reads, passes
 * for one made after. */
static bool lio_guard_vouch_anew(const lio_guard *guard);

/* Calls waited(), where there is one, after a wait for bytes at `offset`, 0 if that is not known.
 * False: raised. */
static bool lio_guard_tell_wait(const lio_guard *guard, uint64_t offset);

/* A capsule of this name with a copy of `state`, which begins with a guard, whose objects it holds. NULL:
 * no memory, with an error raised. */
static PyObject *lio_guard_capsule(const char *name, const void *state, size_t size,
                                   PyCapsule_Destructor end);

/* Ends what is in such a capsule. */
static void lio_guard_end(PyObject *capsule);

/* Hands over a callable of `method` in the same way as lio_glue_hand, which has such a capsule. Takes the
 * GIL. */
static int lio_guard_callable(PyMethodDef *method, const char *name, const void *state,
                              size_t size, uintptr_t list);

typedef struct {
    lio_guard guard; /* first */
    lio_cursor *cursor;
    uint32_t buffers;
    bool is_apart; /* the cursor is its own, and not of `keep` */
} lio_lookup;

/* The result of a search. `value` is NULL when it is still to be read at `where`. */
typedef struct {
    PyObject *key, *value;
    lio_extent where;
    uint64_t size;   /* of the value, where that is wanted */
    bool has_waited; /* for bytes that were not at hand */
} lio_found;

/* Instead of a move. */
enum { LIO_STAY = UINT8_MAX };

/* Makes a move, which may take a key, and takes what is wanted there. LIO_PENDING: another thread has
 * the lock, or a page is not at hand; the move may be half made, and made again it ends the same. */
static int lio_lookup_try(const lio_lookup *l, uint32_t move, const char *key, Py_ssize_t key_size,
                          uint32_t wanted, lio_found *found, lio_error *error);

/* A slice of the mapping. `at` lies in it. */
static PyObject *lio_lookup_slice(PyObject *map, uint64_t at, uint64_t size);

/* Makes memoryviews of bytes, which these own. */
static int lio_lookup_view(PyObject **object);

/* After a move that ended with `code` and took what is wanted: reads what is to be read, and makes sure
 * of the snapshot. An error is raised for what it returns other than LIO_OK and LIO_NOTFOUND. */
static int lio_lookup_finish(const lio_lookup *l, uint32_t move, uint32_t wanted, int code,
                             lio_found *found, lio_error *error);

/* Moves and takes as lio_lookup_move, and finishes. */
static int lio_lookup_get(const lio_lookup *l, uint32_t move, const char *key, Py_ssize_t key_size,
                          uint32_t wanted, lio_found *found);

/* The same by key, which need not be bytes. */
static int lio_lookup_get_key(const lio_lookup *l, PyObject *given, uint32_t wanted,
                              lio_found *found);

/* Makes a key, a value, or both in a tuple, as it is wanted, of where the last move ended. */
static PyObject *lio_lookup_item(const lio_lookup *l, uint32_t wanted);

/* The search in a capsule. */
static lio_lookup *lio_lookup_in(PyObject *capsule);

/* The search of which a callable is; NULL where it is of none. */
static lio_lookup *lio_lookup_of(PyObject *find);

/* A capsule of a search like another one, in the same database, by a cursor of its own that stands
 * nowhere. NULL: no memory. */
static PyObject *lio_lookup_apart(const lio_lookup *like);
#endif
/* cdef: resume */
