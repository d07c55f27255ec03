/* glue_values: an iterator over values whose places are known, which makes one object at a time
 * (see glue_items for why).
 *
 *   in memory    cut out of a block that was read
 *   in the file  by pieces that stay in a core's cache, a large value straight into its object
 *
 * For one thread at a time. What raises has been handed out to nobody, and comes again.
 */

/* cdef: skip */
#ifndef LIO_GLUE_VALUES_H
#define LIO_GLUE_VALUES_H
#include "_glue.h"
/* cdef: resume */

/* Puts the type into the list at address `list`, at 0. 0, or -1 when memory ran out. */
static int lio_values_type(uintptr_t list);

/* `values`, the address of an object of that type, hands out what lies at `extents` of `memory`,
 * and counts it for `engine`. `keep` owns all three. */
static void lio_values_of_memory(uintptr_t values, lio_engine *engine, const uint8_t *memory,
                                 const lio_extent *extents, size_t count, uintptr_t keep);

/* The same for extents of the file of `engine`, which takes any offset. After each read `snapshot`,
 * of `pages`, is asked; `verify` makes sure where it cannot say. Objects are as for
 * lio_glue_lookup. Unless it `waits`, it ends before the first value that has to be waited for. */
static void lio_values_of_file(uintptr_t values, lio_engine *engine, const lio_extent *extents,
                               size_t count, lio_pages *pages, lio_snapshot *snapshot,
                               bool waits, uintptr_t keep, uintptr_t failed, uintptr_t verify);

/* How many values are not yet handed out. */
static size_t lio_values_left(uintptr_t values);

/* cdef: skip */

enum {
    LIO_VALUES_PIECE = 192 << 10,
    LIO_VALUES_GAP_MAX = 16 << 10,  /* between values: headers, leaves; not worth a call */
    LIO_VALUES_ALONE_MIN = 32 << 10,
    LIO_VALUES_COUNTED = 64 /* records that are counted together */
};

typedef struct {
    PyObject_HEAD
    lio_engine *engine;
    lio_pages *pages;
    lio_snapshot *snapshot;
    PyObject *keep, *failed, *verify;
    const lio_extent *extents;
    size_t at, ready, end; /* the next value; up to here in memory; all */
    size_t apart;          /* up to here one by one: not all between them is at hand */
    const uint8_t *memory; /* the byte at `begin` of the file, or of the memory given */
    uint64_t begin;
    uint8_t *piece;
    uint64_t records, bytes; /* handed out, and not yet counted */
    bool waits;
} lio_values;

static void lio_values_count(lio_values *s)
{
    if (s->records > 0)
        lio_engine_handed_out(s->engine, 0, s->records, s->bytes);
    s->records = s->bytes = 0;
}

static PyObject *lio_values_done(lio_values *s, PyObject *value)
{
    if (value == NULL)
        return NULL;
    s->bytes += s->extents[s->at++].length;
    if (++s->records == LIO_VALUES_COUNTED)
        lio_values_count(s);
    return value;
}

/* How many values from the next one on lie close enough together for one piece. */
static size_t lio_values_near(const lio_values *s)
{
    const lio_extent *e = s->extents;
    uint64_t begin = e[s->at].offset, end = begin;
    size_t i = s->at;
    while (i < s->end && e[i].length < LIO_VALUES_ALONE_MIN && e[i].offset >= end &&
           e[i].offset - end <= LIO_VALUES_GAP_MAX &&
           lio_fits(e[i].offset - begin, e[i].length, LIO_VALUES_PIECE)) {
        end = e[i].offset + e[i].length;
        i++;
    }
    return i - s->at;
}

/* Reads [offset, offset + length); false: raised, or, if nothing was, it would have to wait. */
static bool lio_values_read(lio_values *s, uint64_t offset, uint64_t length, uint8_t *into)
{
    uint64_t begun = lio_now_ns();
    PyObject *done;
    lio_error error;
    bool fine;
    int code = lio_glue_read(s->engine, offset, length, into, s->waits, &error);
    if (code == LIO_PENDING)
        return false;
    lio_engine_stage(s->engine, LIO_STAGE_WAIT, begun, length);
    if (code != LIO_OK) {
        done = lio_glue_fail(s->failed, code, &error);
        if (done != NULL)
            PyErr_SetString(PyExc_SystemError, "a failure that raises nothing");
        Py_XDECREF(done);
        return false;
    }
    if (lio_glue_is_still_intact(s->snapshot, s->pages))
        return true;
    done = PyObject_CallObject(s->verify, NULL);
    fine = done != NULL;
    Py_XDECREF(done);
    return fine;
}

static PyObject *lio_values_alone(lio_values *s)
{
    const lio_extent *e = &s->extents[s->at];
    PyObject *value = NULL;
    if (e->length <= PY_SSIZE_T_MAX)
        value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)e->length);
    else
        PyErr_NoMemory();
    if (value != NULL && e->length > 0 &&
        !lio_values_read(s, e->offset, e->length, (uint8_t *)PyBytes_AsString(value)))
        Py_CLEAR(value);
    if (value == NULL)
        return NULL;
    lio_engine_planned(s->engine, e->length, 0);
    return lio_values_done(s, value);
}

/* Brings the next `count` values to memory; false as for lio_values_read. */
static bool lio_values_load(lio_values *s, size_t count)
{
    const lio_extent *first = &s->extents[s->at], *last = &s->extents[s->at + count - 1];
    uint64_t span = last->offset + last->length - first->offset, wanted = 0;
    for (const lio_extent *e = first; e <= last; e++)
        wanted += e->length;
    if (s->piece == NULL)
        s->piece = PyMem_Malloc(LIO_VALUES_PIECE);
    if (s->piece == NULL) {
        PyErr_NoMemory();
        return false;
    }
    if (!lio_values_read(s, first->offset, span, s->piece))
        return false;
    lio_engine_planned(s->engine, span, span - wanted);
    s->memory = s->piece;
    s->begin = first->offset;
    s->ready = s->at + count;
    return true;
}

static PyObject *lio_values_next(PyObject *self)
{
    lio_values *s = (lio_values *)self;
    const lio_extent *e = &s->extents[s->at];
    size_t near;
    if (s->at == s->end) {
        lio_values_count(s);
        return NULL;
    }
    if (s->at >= s->ready) {
        near = s->at < s->apart ? 1 : lio_values_near(s);
        if (near > 1 && !lio_values_load(s, near)) {
            if (PyErr_Occurred())
                return NULL;
            s->apart = s->at + near;
            near = 1;
        }
        if (near < 2)
            return lio_values_alone(s);
    }
    return lio_values_done(s, lio_glue_bytes(s->memory + (e->offset - s->begin), e->length));
}

static void lio_values_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    lio_values *s = (lio_values *)self;
    lio_values_count(s);
    PyMem_Free(s->piece);
    Py_XDECREF(s->verify);
    Py_XDECREF(s->failed);
    Py_XDECREF(s->keep);
    release(self);
    Py_DECREF(type);
}

static int lio_values_type(uintptr_t list)
{
    static PyType_Slot slots[] = {{Py_tp_iter, PyObject_SelfIter},
                                  {Py_tp_iternext, lio_values_next},
                                  {Py_tp_dealloc, lio_values_free},
                                  {0, NULL}};
    static PyType_Spec spec = {.name = "lmdbio.Values",
                               .basicsize = sizeof(lio_values),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               .slots = slots};
    return lio_glue_type(&spec, list);
}

static void lio_values_of_memory(uintptr_t values, lio_engine *engine, const uint8_t *memory,
                                 const lio_extent *extents, size_t count, uintptr_t keep)
{
    PyGILState_STATE state = PyGILState_Ensure();
    lio_values *s = (lio_values *)values;
    s->engine = engine;
    s->memory = memory;
    s->extents = extents;
    s->ready = s->end = count;
    s->keep = (PyObject *)keep;
    Py_INCREF(s->keep);
    PyGILState_Release(state);
}

static void lio_values_of_file(uintptr_t values, lio_engine *engine, const lio_extent *extents,
                               size_t count, lio_pages *pages, lio_snapshot *snapshot,
                               bool waits, uintptr_t keep, uintptr_t failed, uintptr_t verify)
{
    PyGILState_STATE state;
    lio_values *s = (lio_values *)values;
    lio_values_of_memory(values, engine, NULL, extents, count, keep);
    state = PyGILState_Ensure();
    s->ready = 0;
    s->waits = waits;
    s->pages = pages;
    s->snapshot = snapshot;
    s->failed = (PyObject *)failed;
    s->verify = (PyObject *)verify;
    Py_INCREF(s->failed);
    Py_INCREF(s->verify);
    PyGILState_Release(state);
}

static size_t lio_values_left(uintptr_t values)
{
    const lio_values *s = (const lio_values *)values;
    return s->end - s->at;
}
#endif
/* cdef: resume */
