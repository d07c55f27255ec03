/* glue_position: the moves and reads of a cursor that programs make for each record.
 *
 *   class Position(Stands):     first() last() next() prev() next_nodup() prev_nodup() set_key()
 *                               get() key() value() item() are C where the position is that of
 *                               the C core's cursor; else they call _move(), _seek_key() and
 *                               _peek(), of Python
 *
 * The position is another one while records are handed out of a run that was read ahead
 * (`run`), after a refused write (`is_stale`) and when a move has to be made again (`unproved`).
 */

/* cdef: skip */
#ifndef LIO_GLUE_POSITION_H
#define LIO_GLUE_POSITION_H
#include <stddef.h>
#include <structmember.h>

#include "lookup.h"
/* cdef: resume */

/* Puts the type into the list at address `list`, at 0. 0, or -1 when memory ran out. */
static int lio_stands_type(uintptr_t list);

/* cdef: skip */
typedef struct {
    PyObject_HEAD PyObject *seek; /* of lio_glue_lookup; NULL: closed */
    PyObject *run;                /* NULL or None: none */
    PyObject *unproved;           /* the move that could not be proved; NULL or None: none */
    char placed, keyless, is_stale, failed;
} lio_stands;

static bool lio_is_none(const PyObject *object)
{
    return object == NULL || object == Py_None;
}

/* The search of a position that is its own; NULL: the slow way knows. */
static lio_lookup *lio_stands_lookup(const lio_stands *s)
{
    return s->seek != NULL && !s->is_stale && lio_is_none(s->run) ? lio_lookup_of(s->seek) : NULL;
}

static PyObject *lio_stands_read(PyObject *self, uint32_t wanted)
{
    lio_stands *s = (lio_stands *)self;
    lio_lookup *l = s->placed && !s->keyless ? lio_stands_lookup(s) : NULL;
    PyObject *seek = s->seek, *item;
    if (l == NULL)
        return PyObject_CallMethod(self, "_peek", "I", wanted);
    Py_INCREF(seek); /* another thread may close the cursor meanwhile */
    item = lio_lookup_item(l, wanted);
    Py_DECREF(seek);
    return item;
}

static PyObject *lio_stands_key(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return lio_stands_read(self, LIO_WANT_KEY);
}

static PyObject *lio_stands_value(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return lio_stands_read(self, LIO_WANT_VALUE);
}

static PyObject *lio_stands_item(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return lio_stands_read(self, LIO_WANT_KEY | LIO_WANT_VALUE);
}

/* A move has failed, with an error raised: it can be made again. `moved`: the position is another all
 * the same, and could not be proved. */
static void lio_stands_fail(lio_stands *s, uint32_t move, bool moved)
{
    PyObject *type, *value, *trace;
    s->placed = 0;
    s->failed = 1;
    if (!moved)
        return;
    PyErr_Fetch(&type, &value, &trace);
    s->unproved = PyLong_FromLong((long)move);
    PyErr_Restore(type, value, trace);
}

/* Makes a move, which may take a key. LIO_OK and LIO_NOTFOUND: as it ended; else with an error
 * raised, after which `failed` says that the move can be made again. */
static int lio_stands_go(lio_stands *s, const lio_lookup *l, uint32_t move, PyObject *key)
{
    PyObject *seek = s->seek;
    lio_found found = {0};
    char *bytes = NULL;
    Py_ssize_t size = 0;
    int code;
    if (key != NULL && PyBytes_AsStringAndSize(key, &bytes, &size) < 0)
        return LIO_ERR_ARGUMENT;
    s->placed = s->keyless = s->is_stale = 0;
    s->failed = 1;
    Py_CLEAR(s->unproved);
    Py_INCREF(seek);
    code = lio_lookup_get(l, move, bytes, size, 0, &found);
    if (code == LIO_OK || code == LIO_NOTFOUND) {
        s->placed = code == LIO_OK;
        s->failed = 0;
    } else {
        lio_stands_fail(s, move, key == NULL && lio_cursor_item(l->cursor) != NULL);
    }
    Py_DECREF(seek);
    return code;
}

static PyObject *lio_stands_step(PyObject *self, uint32_t move)
{
    lio_stands *s = (lio_stands *)self;
    lio_lookup *l = lio_is_none(s->unproved) ? lio_stands_lookup(s) : NULL;
    int code;
    if (l == NULL)
        return PyObject_CallMethod(self, "_move", "I", move);
    code = lio_stands_go(s, l, move, NULL);
    return code == LIO_OK || code == LIO_NOTFOUND ? PyBool_FromLong(code == LIO_OK) : NULL;
}

static PyObject *lio_stands_first(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return lio_stands_step(self, LIO_MOVE_FIRST);
}

static PyObject *lio_stands_last(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return lio_stands_step(self, LIO_MOVE_LAST);
}

static PyObject *lio_stands_next(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return lio_stands_step(self, LIO_MOVE_NEXT);
}

static PyObject *lio_stands_prev(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return lio_stands_step(self, LIO_MOVE_PREV);
}

static PyObject *lio_stands_next_nodup(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return lio_stands_step(self, LIO_MOVE_NEXT_NODUP);
}

static PyObject *lio_stands_prev_nodup(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return lio_stands_step(self, LIO_MOVE_PREV_NODUP);
}

/* Moves to a key. -1: with an error raised. */
static int lio_stands_to(PyObject *self, PyObject *key)
{
    lio_stands *s = (lio_stands *)self;
    lio_lookup *l = PyBytes_CheckExact(key) && PyBytes_Size(key) > 0 ? lio_stands_lookup(s) : NULL;
    PyObject *found;
    int code;
    if (l == NULL) {
        found = PyObject_CallMethod(self, "_seek_key", "O", key);
        code = found == NULL ? -1 : PyObject_IsTrue(found);
        Py_XDECREF(found);
        return code;
    }
    code = lio_stands_go(s, l, LIO_MOVE_SET, key);
    return code == LIO_OK ? 1 : code == LIO_NOTFOUND ? 0 : -1;
}

static PyObject *lio_stands_set_key(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *names)
{
    int found;
    if (count != 1 || names != NULL)
        return lio_call_fast(self, "_seek_key", args, count, names);
    found = lio_stands_to(self, args[0]);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

static PyObject *lio_stands_get(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *names)
{
    PyObject *other;
    int found;
    if (count < 1 || count > 2 || names != NULL)
        return lio_call_fast(self, "_get_key", args, count, names);
    found = lio_stands_to(self, args[0]);
    if (found < 0)
        return NULL;
    if (found > 0)
        return lio_stands_read(self, LIO_WANT_VALUE);
    other = count > 1 ? args[1] : Py_None;
    Py_INCREF(other);
    return other;
}

static int lio_stands_traverse(PyObject *self, visitproc visit, void *arg)
{
    lio_stands *s = (lio_stands *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(s->seek);
    Py_VISIT(s->run);
    Py_VISIT(s->unproved);
    return 0;
}

static int lio_stands_clear(PyObject *self)
{
    lio_stands *s = (lio_stands *)self;
    Py_CLEAR(s->unproved);
    Py_CLEAR(s->run);
    Py_CLEAR(s->seek);
    return 0;
}

static void lio_stands_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    (void)lio_stands_clear(self);
    release(self);
    Py_DECREF(type);
}

#define LIO_NO_ARGUMENTS(name, text)                                                              \
    {                                                                                             \
#name, lio_stands_##name, METH_NOARGS, #name "($self, /)\n--\n\n" text                    \
    }

static int lio_stands_type(uintptr_t list)
{
    static PyMethodDef methods[] = {
        LIO_NO_ARGUMENTS(first, "Move to the first record."),
        LIO_NO_ARGUMENTS(last, "Move to the last record, and to its last value."),
        LIO_NO_ARGUMENTS(next, "Move to the next value, or key."),
        LIO_NO_ARGUMENTS(prev, "Move to the value before, or key."),
        LIO_NO_ARGUMENTS(next_nodup, "Move to the first value of the next key."),
        LIO_NO_ARGUMENTS(prev_nodup, "Move to the last value of the key before."),
        LIO_NO_ARGUMENTS(key, "Return the current key; empty when the cursor stands nowhere."),
        LIO_NO_ARGUMENTS(value, "Return the current value; empty when it stands nowhere."),
        LIO_NO_ARGUMENTS(item, "Return the current key and value."),
        {"set_key", (PyCFunction)(void (*)(void))lio_stands_set_key, METH_FASTCALL | METH_KEYWORDS,
         "set_key($self, /, key)\n--\n\nMove to exactly ``key``; return whether it is there."},
        {"get", (PyCFunction)(void (*)(void))lio_stands_get, METH_FASTCALL | METH_KEYWORDS,
         "get($self, /, key, default=None)\n--\n\n"
         "Move to ``key`` and return its value, else ``default``."},
        {NULL, NULL, 0, NULL}};
    static PyMemberDef members[] = {
        {"_seek", T_OBJECT, offsetof(lio_stands, seek), 0, NULL},
        {"_run", T_OBJECT, offsetof(lio_stands, run), 0, NULL},
        {"_unproved", T_OBJECT, offsetof(lio_stands, unproved), 0, NULL},
        {"_placed", T_BOOL, offsetof(lio_stands, placed), 0, NULL},
        {"_keyless", T_BOOL, offsetof(lio_stands, keyless), 0, NULL},
        {"_is_stale", T_BOOL, offsetof(lio_stands, is_stale), 0, NULL},
        {"_failed", T_BOOL, offsetof(lio_stands, failed), 0, NULL},
        {NULL, 0, 0, 0, NULL}};
    static PyType_Slot slots[] = {{Py_tp_methods, methods},
                                  {Py_tp_members, members},
                                  {Py_tp_traverse, lio_stands_traverse},
                                  {Py_tp_clear, lio_stands_clear},
                                  {Py_tp_dealloc, lio_stands_free},
                                  {0, NULL}};
    static PyType_Spec spec = {.name = "lmdbio.Stands",
                               .basicsize = sizeof(lio_stands),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE |
                                        Py_TPFLAGS_HAVE_GC,
                               .slots = slots};
    return lio_glue_type(&spec, list);
}
#endif
/* cdef: resume */
