#include "position.h"

#include <stddef.h>
#include <structmember.h>

#include "arguments.h"

static bool lio_is_none(const PyObject *object)
{
    return object == NULL || object == Py_None;
}

static lio_lookup *lio_stands_lookup(const lio_stands *s)
{
    return s->lookup != NULL && !s->is_stale && lio_is_none(s->run) ? lio_lookup_in(s->lookup)
                                                                    : NULL;
}

static PyObject *lio_refuse(PyObject *self, PyObject *found)
{
    PyObject *raised = PyObject_CallMethod(self, "_check", NULL);
    if (raised != NULL)
        PyErr_SetString(PyExc_SystemError, "a failure that raises nothing");
    Py_XDECREF(raised);
    Py_XDECREF(found);
    return NULL;
}

static PyObject *lio_stands_read(PyObject *self, uint32_t wanted)
{
    lio_stands *s = (lio_stands *)self;
    lio_lookup *l = s->placed && !s->keyless ? lio_stands_lookup(s) : NULL;
    PyObject *lookup = s->lookup, *item;
    if (l == NULL)
        return PyObject_CallMethod(self, "_item_here", "I", wanted);
    Py_INCREF(lookup); /* another thread may close the cursor meanwhile */
    item = lio_lookup_item(l, wanted);
    Py_DECREF(lookup);
    return item == NULL || s->lookup != NULL ? item : lio_refuse(self, item);
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
    PyObject *lookup = s->lookup;
    lio_found found = {0};
    char *bytes = NULL;
    Py_ssize_t size = 0;
    int code;
    if (key != NULL && PyBytes_AsStringAndSize(key, &bytes, &size) < 0)
        return LIO_ERR_ARGUMENT;
    s->placed = s->keyless = s->is_stale = 0;
    s->failed = 1;
    Py_CLEAR(s->unproved);
    Py_INCREF(lookup);
    code = lio_lookup_get(l, move, bytes, size, 0, &found);
    if (code == LIO_OK || code == LIO_NOTFOUND) {
        s->placed = code == LIO_OK;
        s->failed = 0;
    } else {
        lio_stands_fail(s, move, key == NULL && lio_cursor_item(l->cursor) != NULL);
    }
    Py_DECREF(lookup);
    if (s->lookup == NULL && s->failed == 0) {
        (void)lio_refuse((PyObject *)s, NULL);
        return LIO_ERR_ARGUMENT;
    }
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

/* Moves to a key, or to the first that is not below it. -1: with an error raised. */
static int lio_stands_to(PyObject *self, PyObject *key, uint32_t move)
{
    lio_stands *s = (lio_stands *)self;
    lio_lookup *l = PyBytes_CheckExact(key) && PyBytes_Size(key) > 0 ? lio_stands_lookup(s) : NULL;
    PyObject *found;
    int code;
    if (l == NULL) {
        found = PyObject_CallMethod(self, move == LIO_MOVE_SET ? "_seek_key" : "_seek_range", "O",
                                    key);
        code = found == NULL ? -1 : PyObject_IsTrue(found);
        Py_XDECREF(found);
        return code;
    }
    code = lio_stands_go(s, l, move, key);
    return code == LIO_OK ? 1 : code == LIO_NOTFOUND ? 0 : -1;
}

static PyObject *lio_stands_set_key(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *names)
{
    int found;
    if (count != 1 || names != NULL)
        return lio_call_fast(self, "_seek_key", args, count, names);
    found = lio_stands_to(self, args[0], LIO_MOVE_SET);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

static PyObject *lio_stands_set_range(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                      PyObject *names)
{
    int found;
    if (count != 1 || names != NULL)
        return lio_call_fast(self, "_seek_range", args, count, names);
    found = lio_stands_to(self, args[0], LIO_MOVE_SET_RANGE);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

static PyObject *lio_stands_get(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *names)
{
    PyObject *other;
    int found;
    if (count < 1 || count > 2 || names != NULL)
        return lio_call_fast(self, "_get_key", args, count, names);
    found = lio_stands_to(self, args[0], LIO_MOVE_SET);
    if (found < 0)
        return NULL;
    if (found > 0)
        return lio_stands_read(self, LIO_WANT_VALUE);
    other = count > 1 ? args[1] : Py_None;
    Py_INCREF(other);
    return other;
}

/* The search of a position that is open, which the caller then holds as `lookup`; NULL: with an error
 * raised. */
static lio_lookup *lio_stands_open(const lio_stands *s, PyObject **lookup)
{
    *lookup = s->lookup;
    if (s->lookup != NULL) {
        Py_INCREF(s->lookup);
        return lio_lookup_in(s->lookup);
    }
    (void)lio_refuse((PyObject *)s, NULL);
    return NULL;
}

/* _seek(key): moves the C core's cursor; whether it found the key, which need not be bytes. */
static PyObject *lio_stands_seek(PyObject *self, PyObject *key)
{
    lio_found found = {0};
    PyObject *lookup;
    lio_lookup *l = lio_stands_open((lio_stands *)self, &lookup);
    int code;
    if (l == NULL)
        return NULL;
    code = lio_lookup_get_key(l, key, 0, &found);
    Py_DECREF(lookup);
    if (code != LIO_OK && code != LIO_NOTFOUND)
        return NULL;
    return ((lio_stands *)self)->lookup != NULL ? PyBool_FromLong(code == LIO_OK)
                                                : lio_refuse(self, NULL);
}

/* _read(wanted): key, value, or both in a tuple, of where its last move ended. */
static PyObject *lio_stands_read_there(PyObject *self, PyObject *what)
{
    long wanted = PyLong_AsLong(what);
    PyObject *lookup, *item;
    lio_lookup *l;
    if (wanted == -1 && PyErr_Occurred())
        return NULL;
    if (wanted < LIO_WANT_KEY || wanted > (LIO_WANT_KEY | LIO_WANT_VALUE))
        return PyErr_Format(PyExc_ValueError, "nothing is known by the number %ld", wanted);
    l = lio_stands_open((lio_stands *)self, &lookup);
    if (l == NULL)
        return NULL;
    item = lio_lookup_item(l, (uint32_t)wanted);
    Py_DECREF(lookup);
    return item == NULL || ((lio_stands *)self)->lookup != NULL ? item : lio_refuse(self, item);
}

/* --- its life ------------------------------------------------------------------------------ */

static void lio_stands_unlink(lio_stands *s)
{
    if (s->link == NULL)
        return;
    *s->link = s->next;
    if (s->next != NULL)
        s->next->link = s->link;
    s->link = NULL;
    s->next = NULL;
}

static void lio_stands_begin(lio_stands *s, PyObject *lookup, PyObject *txn, PyObject *db,
                             lio_stands **first)
{
    lio_tree *main, *sub;
    lio_cursor_trees(lio_lookup_in(lookup)->cursor, &main, &sub);
    s->has_duplicates = sub != NULL;
    s->lookup = lookup;
    Py_INCREF(txn);
    s->txn = txn;
    Py_XINCREF(db);
    s->db = db;
    s->next = *first;
    s->link = first;
    if (s->next != NULL)
        s->next->link = &s->next;
    *first = s;
}

static void lio_stands_let_go(lio_stands *s)
{
    lio_stands_unlink(s);
    Py_CLEAR(s->made);
    Py_CLEAR(s->lookup);
}

static bool lio_stands_end(lio_stands *s)
{
    PyObject *done = NULL;
    if (!lio_is_none(s->run)) {
        done = PyObject_CallMethod((PyObject *)s, "_end_run", NULL);
        if (done == NULL)
            return false;
        Py_DECREF(done);
    }
    lio_stands_let_go(s);
    return true;
}

static PyObject *lio_stands_close(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    if (!lio_stands_end((lio_stands *)self))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *lio_stands_enter(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    Py_INCREF(self);
    return self;
}

static PyObject *lio_stands_exit(PyObject *self, PyObject *const *Py_UNUSED(args),
                                 Py_ssize_t Py_UNUSED(count))
{
    return lio_stands_close(self, NULL);
}

/* _set_guard_lock(guard): the guard, which is the first that any thread has brought. */
static PyObject *lio_stands_set_guard_lock(PyObject *self, PyObject *guard)
{
    lio_stands *s = (lio_stands *)self;
    if (lio_is_none(s->guard)) {
        Py_XDECREF(s->guard);
        Py_INCREF(guard);
        s->guard = guard;
    }
    Py_INCREF(s->guard);
    return s->guard;
}

static void lio_stands_finalize(PyObject *self)
{
    lio_stands_let_go((lio_stands *)self);
}

static int lio_stands_traverse(PyObject *self, visitproc visit, void *arg)
{
    lio_stands *s = (lio_stands *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(s->txn);
    Py_VISIT(s->db);
    Py_VISIT(s->made);
    Py_VISIT(s->run);
    Py_VISIT(s->unproved);
    return 0;
}

static int lio_stands_clear(PyObject *self)
{
    lio_stands *s = (lio_stands *)self;
    lio_stands_let_go(s);
    Py_CLEAR(s->unproved);
    Py_CLEAR(s->run);
    Py_CLEAR(s->guard);
    Py_CLEAR(s->db);
    Py_CLEAR(s->txn);
    return 0;
}

static void lio_stands_free(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    lio_glue_free(self, lio_stands_clear);
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
        LIO_NO_ARGUMENTS(close, "Close the cursor and free its pages. May be called twice."),
        {"__enter__", lio_stands_enter, METH_NOARGS, "__enter__($self, /)\n--\n\n"},
        {"__exit__", (PyCFunction)(void (*)(void))lio_stands_exit, METH_FASTCALL,
         "__exit__($self, /, *_)\n--\n\n"},
        {"_seek", lio_stands_seek, METH_O, NULL},
        {"_read", lio_stands_read_there, METH_O, NULL},
        {"_set_guard_lock", lio_stands_set_guard_lock, METH_O, NULL},
        {"set_key", (PyCFunction)(void (*)(void))lio_stands_set_key, METH_FASTCALL | METH_KEYWORDS,
         "set_key($self, /, key)\n--\n\nMove to exactly ``key``; return whether it is there."},
        {"set_range", (PyCFunction)(void (*)(void))lio_stands_set_range,
         METH_FASTCALL | METH_KEYWORDS,
         "set_range($self, /, key)\n--\n\n"
         "Move to the first key not below ``key``; the first of all, where that is empty."},
        {"get", (PyCFunction)(void (*)(void))lio_stands_get, METH_FASTCALL | METH_KEYWORDS,
         "get($self, /, key, default=None)\n--\n\n"
         "Move to ``key`` and return its value, else ``default``."},
        {NULL, NULL, 0, NULL}};
    static PyMemberDef members[] = {
        {"_lookup", T_OBJECT, offsetof(lio_stands, lookup), READONLY, NULL},
        {"_txn", T_OBJECT, offsetof(lio_stands, txn), READONLY, NULL},
        {"_db", T_OBJECT, offsetof(lio_stands, db), READONLY, NULL},
        {"_made", T_OBJECT, offsetof(lio_stands, made), 0, NULL},
        {"_guard_lock", T_OBJECT, offsetof(lio_stands, guard), 0, NULL},
        {"_run", T_OBJECT, offsetof(lio_stands, run), 0, NULL},
        {"_unproved", T_OBJECT, offsetof(lio_stands, unproved), 0, NULL},
        {"_placed", T_BOOL, offsetof(lio_stands, placed), 0, NULL},
        {"_keyless", T_BOOL, offsetof(lio_stands, keyless), 0, NULL},
        {"_is_stale", T_BOOL, offsetof(lio_stands, is_stale), 0, NULL},
        {"_failed", T_BOOL, offsetof(lio_stands, failed), 0, NULL},
        {"_dup", T_BOOL, offsetof(lio_stands, has_duplicates), READONLY, NULL},
        {NULL, 0, 0, 0, NULL}};
    static PyType_Slot slots[] = {{Py_tp_methods, methods},
                                  {Py_tp_members, members},
                                  {Py_tp_finalize, lio_stands_finalize},
                                  {Py_tp_traverse, lio_stands_traverse},
                                  {Py_tp_clear, lio_stands_clear},
                                  {Py_tp_dealloc, lio_stands_free},
                                  {0, NULL}};
    return lio_glue_type("lmdbio.Stands", sizeof(lio_stands), Py_TPFLAGS_HAVE_GC, slots, list);
}
