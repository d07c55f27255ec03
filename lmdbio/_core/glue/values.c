#include "values.h"

#include <string.h>
#include <sys/uio.h>

enum {
    LIO_VALUES_PIECE = 192 << 10,
    LIO_VALUES_GAP_MAX = 16 << 10, /* between values: headers, leaves; not worth a call */
    LIO_VALUES_ALONE_MIN = 32 << 10,
    LIO_VALUES_GROUP = 32, /* values that are copied together */
    LIO_VALUES_GROUP_BYTES = 128 << 10,
    LIO_VALUES_COUNTED = 64, /* records that are counted together */
    LIO_VALUES_AHEAD = 2048  /* bytes of the next value that are brought nearer */
};

/* --- one of them ------------------------------------------------------------------------- */

typedef struct {
    lio_guard guard; /* first */
    lio_engine *engine;
    const lio_extent *table; /* of a holder */
    size_t records;
} lio_fetch;

static const char LIO_FETCH[] = "lmdbio.fetch";

/* Fills `room`: at once where that is possible and short, else without the GIL. LIO_PENDING: it
 * would have to wait, and is not to. `has_waited`: for the storage, or would have to. */
static int lio_glue_read(lio_engine *engine, uint64_t offset, uint64_t size, uint8_t *room,
                         bool waits, bool *has_waited, lio_error *error)
{
    struct iovec into = {.iov_base = room, .iov_len = (size_t)size};
    lio_read read = {offset, size, size, room};
    uint64_t late = lio_engine_late_tries();
    bool is_short = size <= LIO_HELD_BYTES_MAX;
    int code = LIO_OK;
    *has_waited = false;
    if (!is_short || !lio_engine_try_read(engine, offset, &into, 1, true)) {
        *has_waited = is_short;
        Py_BEGIN_ALLOW_THREADS if (!lio_engine_try_read(engine, offset, &into, 1, true))
        {
            *has_waited = true;
            code = waits ? lio_engine_read(engine, &read, 1, error) : LIO_PENDING;
        }
        Py_END_ALLOW_THREADS
    }
    *has_waited |= lio_engine_late_tries() != late;
    return code;
}

static PyObject *lio_fetch_call(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    lio_fetch *f = PyCapsule_GetPointer(self, LIO_FETCH);
    unsigned long long offset, size;
    PyObject *value;
    lio_error error;
    bool has_waited;
    int code;
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "fetch takes an offset and a length");
    offset = PyLong_AsUnsignedLongLong(args[0]);
    size = PyLong_AsUnsignedLongLong(args[1]);
    if (PyErr_Occurred() || size > PY_SSIZE_T_MAX)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (value == NULL)
        return NULL;
    code = lio_glue_read(f->engine, offset, size, (uint8_t *)PyBytes_AsString(value), true,
                         &has_waited, &error);
    if (code == LIO_OK ? lio_guard_vouch_anew(&f->guard) &&
                             (!has_waited || lio_guard_tell_wait(&f->guard, offset))
                       : lio_guard_raise(&f->guard, code, &error))
        return value;
    Py_DECREF(value);
    return NULL;
}

static PyMethodDef LIO_FETCH_METHOD = {"fetch", (PyCFunction)(void (*)(void))lio_fetch_call,
                                       METH_FASTCALL, NULL};

static int lio_glue_fetch(lio_engine *engine, lio_pages *pages, lio_snapshot *snapshot,
                          uintptr_t keep, uintptr_t failed, uintptr_t verify, uintptr_t waited,
                          uintptr_t list)
{
    const lio_fetch f = {
        .guard = {.pages = pages,
                  .snapshot = snapshot,
                  .keep = (PyObject *)keep,
                  .failed = (PyObject *)failed,
                  .verify = (PyObject *)verify,
                  .waited = (PyObject *)waited == Py_None ? NULL : (PyObject *)waited},
        .engine = engine};
    return lio_guard_callable(&LIO_FETCH_METHOD, LIO_FETCH, &f, sizeof f, list);
}

/* --- a batch of them --------------------------------------------------------------------- */

static bool lio_glue_gather(lio_engine *engine, lio_pages *pages, lio_snapshot *snapshot,
                            const lio_extent *extents, const uint64_t *offsets, size_t count,
                            uint8_t *into, uint64_t room)
{
    return lio_engine_gather(engine, extents, offsets, count, into, room) &&
           lio_snapshot_intact(snapshot, pages, true, true);
}

typedef struct {
    PyObject_HEAD lio_engine *engine;
    lio_guard guard; /* without pages, of memory: nothing is asked */
    const lio_extent *extents;
    lio_extent *own;       /* the extents, where nobody else owns them */
    size_t at, ready, end; /* the next value; up to here in memory; all */
    size_t apart;          /* up to here one by one: not all between them is at hand */
    const uint8_t *memory; /* the byte at `begin` of the file, or of the memory given */
    uint64_t begin;
    uint8_t *piece;
    PyObject *made[LIO_VALUES_GROUP]; /* the next values, from `at` on */
    size_t made_count, made_at;
    uint64_t records, bytes; /* handed out, and not yet counted */
    bool waits;
} lio_values;

static void lio_values_count(lio_values *s)
{
    if (s->records > 0)
        lio_engine_count_records(s->engine, 0, s->records, s->bytes);
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
    lio_error error;
    bool has_waited;
    int code = lio_glue_read(s->engine, offset, length, into, s->waits, &has_waited, &error);
    if (code == LIO_PENDING)
        return false;
    lio_engine_count_stage(s->engine, LIO_STAGE_WAIT, begun, length);
    return code == LIO_OK ? lio_guard_vouch_anew(&s->guard)
                          : lio_guard_raise(&s->guard, code, &error);
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
    if (value == NULL) {
        lio_values_count(s); /* this may be the end */
        return NULL;
    }
    lio_engine_count_planned(s->engine, e->length, 0);
    return lio_values_done(s, value);
}

/* Brings the next `count` values to memory; false as for lio_values_read. */
static bool lio_values_load(lio_values *s, size_t count)
{
    const lio_extent *first = &s->extents[s->at], *last = &s->extents[s->at + count - 1];
    lio_extent all = {first->offset, last->offset + last->length - first->offset};
    uint64_t span = all.length, wanted = 0;
    for (const lio_extent *e = first; e <= last; e++)
        wanted += e->length;
    /* To try would have the kernel fetch what lies between, too. */
    if (!s->waits && wanted < span && !lio_engine_is_cached(s->engine, &all, 1))
        return false;
    if (s->piece == NULL)
        s->piece = PyMem_Malloc(LIO_VALUES_PIECE);
    if (s->piece == NULL) {
        PyErr_NoMemory();
        return false;
    }
    if (!lio_values_read(s, first->offset, span, s->piece))
        return false;
    lio_engine_count_planned(s->engine, span, span - wanted);
    s->memory = s->piece;
    s->begin = first->offset;
    s->ready = s->at + count;
    return true;
}

/* Lets go of what was made and not handed out. */
static void lio_values_unmake(lio_values *s)
{
    while (s->made_at < s->made_count)
        Py_DECREF(s->made[s->made_at++]);
    s->made_at = s->made_count = 0;
}

/* Copies the next values out of a mapping of the file, each once, and makes sure of all at once; false:
 * raised. None may be there afterwards: they must be read another way. */
static bool lio_values_make(lio_values *s)
{
    lio_read reads[LIO_VALUES_GROUP];
    size_t count = 0, copied;
    uint64_t bytes = 0;
    for (size_t i = s->at; i < s->end && count < LIO_VALUES_GROUP; i++) {
        const lio_extent *e = &s->extents[i];
        if (e->length == 0 || e->length >= LIO_VALUES_ALONE_MIN ||
            bytes + e->length > LIO_VALUES_GROUP_BYTES)
            break;
        bytes += e->length;
        reads[count++] = (lio_read){e->offset, e->length, e->length, NULL};
    }
    if (count < 2 || !lio_engine_is_mapped(s->engine, &s->extents[s->at], 1))
        return true;
    for (s->made_at = s->made_count = 0; s->made_count < count; s->made_count++) {
        lio_read *read = &reads[s->made_count];
        PyObject *value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)read->length);
        if (value == NULL) {
            lio_values_unmake(s);
            return false;
        }
        read->into = (uint8_t *)PyBytes_AsString(value);
        s->made[s->made_count] = value;
    }
    copied = lio_engine_copy_each(s->engine, reads, count);
    while (s->made_count > copied) {
        Py_DECREF(s->made[--s->made_count]);
        bytes -= reads[s->made_count].length;
    }
    lio_engine_count_planned(s->engine, bytes, 0);
    if (copied == 0 || lio_guard_vouch_anew(&s->guard))
        return true;
    lio_values_unmake(s);
    return false;
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
    if (s->made_at == s->made_count && s->guard.pages != NULL && s->at >= s->ready &&
        !lio_values_make(s))
        return NULL;
    if (s->made_at < s->made_count)
        return lio_values_done(s, s->made[s->made_at++]);
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

/* New objects for values, in a list, and where their bytes belong; NULL: raised. */
static PyObject *lio_values_room(const lio_extent *e, size_t count, char **into)
{
    PyObject *list = PyList_New((Py_ssize_t)count), *value;
    for (size_t i = 0; i < count && list != NULL; i++) {
        value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)e[i].length);
        if (value != NULL)
            into[i] = PyBytes_AsString(value);
        if (value == NULL || PyList_SetItem(list, (Py_ssize_t)i, value) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* Of memory: other threads run while the bytes are copied, which nobody else can see yet. */
static PyObject *lio_values_take(PyObject *self, PyObject *Py_UNUSED(none))
{
    lio_values *s = (lio_values *)self;
    const lio_extent *e = s->extents + s->at;
    size_t count = s->end - s->at;
    char **into;
    PyObject *list;
    if (s->guard.pages != NULL)
        return PySequence_List(self);
    into = PyMem_Malloc((count > 0 ? count : 1) * sizeof *into);
    if (into == NULL)
        return PyErr_NoMemory();
    list = lio_values_room(e, count, into);
    if (list != NULL) {
        Py_BEGIN_ALLOW_THREADS for (size_t i = 0; i < count; i++)
        {
            if (i + 1 < count) /* it lies anywhere: nothing else would bring it nearer */
                for (uint64_t at = 0; at < e[i + 1].length && at < LIO_VALUES_AHEAD; at += 64)
                    __builtin_prefetch(s->memory + e[i + 1].offset + at);
            lio_copy(into[i], s->memory + e[i].offset, (size_t)e[i].length);
            s->bytes += e[i].length;
        }
        Py_END_ALLOW_THREADS s->records += count;
        s->at = s->end;
        lio_values_count(s);
    }
    PyMem_Free(into);
    return list;
}

static int lio_values_clear(PyObject *self)
{
    lio_values *s = (lio_values *)self;
    lio_values_count(s);
    lio_values_unmake(s);
    PyMem_Free(s->piece);
    PyMem_Free(s->own);
    lio_guard_drop(&s->guard);
    return 0;
}

static void lio_values_free(PyObject *self)
{
    lio_glue_free(self, lio_values_clear);
}

static int lio_values_type(uintptr_t list)
{
    static PyMethodDef methods[] = {{"take", lio_values_take, METH_NOARGS,
                                     "Return a list of those that are left: list(), but faster."},
                                    {NULL, NULL, 0, NULL}};
    static PyType_Slot slots[] = {{Py_tp_iter, PyObject_SelfIter},
                                  {Py_tp_iternext, lio_values_next},
                                  {Py_tp_methods, methods},
                                  {Py_tp_dealloc, lio_values_free},
                                  {0, NULL}};
    return lio_glue_type("lmdbio.Values", sizeof(lio_values), 0, slots, list);
}

static void lio_values_begin(lio_values *s, lio_engine *engine, const lio_extent *extents,
                             size_t count, lio_guard guard)
{
    s->engine = engine;
    s->extents = extents;
    s->end = count;
    s->guard = guard;
    lio_guard_hold(&s->guard);
}

static void lio_values_of_memory(uintptr_t values, lio_engine *engine, const uint8_t *memory,
                                 const lio_extent *extents, size_t count, uintptr_t keep)
{
    PyGILState_STATE state = PyGILState_Ensure();
    lio_values *s = (lio_values *)values;
    lio_values_begin(s, engine, extents, count, (lio_guard){.keep = (PyObject *)keep});
    s->memory = memory;
    s->ready = count;
    PyGILState_Release(state);
}

static void lio_values_of_file(uintptr_t values, lio_engine *engine, const lio_extent *extents,
                               size_t count, lio_pages *pages, lio_snapshot *snapshot, bool waits,
                               uintptr_t keep, uintptr_t failed, uintptr_t verify)
{
    PyGILState_STATE state = PyGILState_Ensure();
    lio_values *s = (lio_values *)values;
    lio_values_begin(s, engine, extents, count,
                     (lio_guard){.pages = pages,
                                 .snapshot = snapshot,
                                 .keep = (PyObject *)keep,
                                 .failed = (PyObject *)failed,
                                 .verify = (PyObject *)verify});
    s->waits = waits;
    PyGILState_Release(state);
}

static size_t lio_values_left(uintptr_t values)
{
    const lio_values *s = (const lio_values *)values;
    return s->end - s->at;
}

static void lio_values_rest(uintptr_t values, lio_extent *out)
{
    const lio_values *s = (const lio_values *)values;
    memcpy(out, s->extents + s->at, (s->end - s->at) * sizeof *out);
}

/* --- of records that nobody need wait for ------------------------------------------------ */

static const char LIO_GETTER[] = "lmdbio.getter";

/* The record of an object that is an index; `records` where it is none. */
static size_t lio_getter_record(PyObject *index, size_t records)
{
    int overflow = 0;
    long long number;
    if (!PyLong_CheckExact(index))
        return records;
    number = PyLong_AsLongLongAndOverflow(index, &overflow);
    if (overflow != 0 || number < -(long long)records || number >= (long long)records)
        return records;
    return (size_t)(number < 0 ? number + (long long)records : number);
}

/* Where the records of a list lie, in memory of their own; NULL: one is no record, or no memory. */
static lio_extent *lio_getter_find(const lio_fetch *h, PyObject *indices, size_t count)
{
    lio_extent *found = PyMem_Malloc(count * sizeof *found);
    for (size_t i = 0; i < count && found != NULL; i++) {
        size_t record = lio_getter_record(PyList_GetItem(indices, (Py_ssize_t)i), h->records);
        if (record < h->records) {
            found[i] = h->table[record];
        } else {
            PyMem_Free(found);
            found = NULL;
        }
    }
    return found;
}

static PyObject *lio_getter_call(PyObject *self, PyObject *indices)
{
    lio_fetch *h = PyCapsule_GetPointer(self, LIO_GETTER);
    PyObject *values = NULL;
    lio_extent *found = NULL;
    size_t count = 0;
    bool held = false;
    if (PyList_CheckExact(indices)) {
        count = (size_t)PyList_Size(indices);
        found = count > 0 ? lio_getter_find(h, indices, count) : NULL;
    }
    if (found != NULL) {
        Py_BEGIN_ALLOW_THREADS held = lio_engine_is_cached(h->engine, found, count);
        if (held)
            lio_engine_prefault(h->engine, found, count);
        Py_END_ALLOW_THREADS
    }
    if (!held) {
        PyMem_Free(found);
        Py_INCREF(Py_None);
        return Py_None;
    }
    values = PyObject_CallObject(h->guard.type, NULL);
    if (values == NULL) {
        PyMem_Free(found);
        return NULL;
    }
    ((lio_values *)values)->own = found;
    lio_values_begin((lio_values *)values, h->engine, found, count, h->guard);
    return values;
}

static PyMethodDef LIO_GETTER_METHOD = {"getter", lio_getter_call, METH_O, NULL};

static int lio_values_getter(lio_engine *engine, const lio_extent *table, size_t records,
                             lio_pages *pages, lio_snapshot *snapshot, uintptr_t type,
                             uintptr_t keep, uintptr_t failed, uintptr_t verify, uintptr_t list)
{
    const lio_fetch h = {.guard = {.pages = pages,
                                   .snapshot = snapshot,
                                   .keep = (PyObject *)keep,
                                   .failed = (PyObject *)failed,
                                   .verify = (PyObject *)verify,
                                   .type = (PyObject *)type},
                         .engine = engine,
                         .table = table,
                         .records = records};
    return lio_guard_callable(&LIO_GETTER_METHOD, LIO_GETTER, &h, sizeof h, list);
}
