#include "transaction.h"

#include <stddef.h>
#include <structmember.h>

#include "arguments.h"
#include "position.h"
#include "monitor.h"

typedef struct lio_transacts lio_transacts;

/* The state on which the last transaction began, without and with buffers. All are NULL, or `opened`, `monitor`
 * and `finds` are there, and what the second is of. */
typedef struct {
    PyObject *opened;  /* the snapshot, an OpenSnapshot */
    PyObject *monitor; /* a callable of lio_glue_monitor */
    PyObject
        *finds; /* those of lio_glue_lookup, by the name of their database: a dict that grows */
    PyObject *find; /* the one in the main database; NULL: not known */
    PyObject *take; /* takes a reader slot: a transaction of py-lmdb's; NULL: none is wanted */
    const lio_monitor *monitored;
    lio_lookup *search; /* which `find` is of */
} lio_known;

typedef struct {
    PyObject_HEAD lio_transacts *first; /* of those that have not ended, borrowed */
    PyObject *transaction, *cursor;     /* the types of both; NULL: not said yet */
    PyObject *handle;                   /* that of databases, derived from Names */
    lio_known known[2];
    bool is_shut; /* nothing is known from now on, and no transaction begins */
} lio_begins;

struct lio_transacts {
    PyObject_HEAD PyObject *env;   /* NULL: has not begun */
    lio_transacts *next, **link;   /* `link`: what points here; NULL: it has ended */
    lio_stands *cursors;           /* that are open, borrowed */
    PyObject *opened, *db, *finds; /* `finds`: see lio_known */
    PyObject *slot;     /* its reader slot: a transaction of py-lmdb's, as long as that lives */
    PyObject *find;     /* of lio_glue_lookup, in its database; NULL: not known, or it has ended */
    lio_lookup *search; /* which `find` is of, as long as that is there */
    unsigned long long past;
};

/* --- a database's handle ------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD PyObject *env, *name; /* NULL: not said yet */
} lio_names;

/* The find of lio_glue_lookup, among those by name, in the database of a handle: an object of `type`, which
 * derives from Names, and of `env`. NULL: it is another object, or there is none yet. Borrowed. */
static PyObject *lio_names_find(PyObject *finds, PyObject *type, PyObject *env, PyObject *handle)
{
    const lio_names *n = (const lio_names *)handle;
    PyObject *find;
    if (finds == NULL || (PyObject *)Py_TYPE(handle) != type || n->env != env || n->name == NULL)
        return NULL;
    find = PyDict_GetItemWithError(finds, n->name);
    if (find == NULL)
        PyErr_Clear();
    return find;
}

static int lio_names_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((lio_names *)self)->env);
    Py_VISIT(((lio_names *)self)->name);
    return 0;
}

static int lio_names_clear(PyObject *self)
{
    Py_CLEAR(((lio_names *)self)->env);
    Py_CLEAR(((lio_names *)self)->name);
    return 0;
}

static void lio_names_free(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    lio_glue_free(self, lio_names_clear);
}

static int lio_names_type(uintptr_t list)
{
    static PyMemberDef members[] = {{"_env", T_OBJECT, offsetof(lio_names, env), 0, NULL},
                                    {"_name", T_OBJECT, offsetof(lio_names, name), 0, NULL},
                                    {NULL, 0, 0, 0, NULL}};
    static PyType_Slot slots[] = {{Py_tp_members, members},
                                  {Py_tp_traverse, lio_names_traverse},
                                  {Py_tp_clear, lio_names_clear},
                                  {Py_tp_dealloc, lio_names_free},
                                  {0, NULL}};
    return lio_glue_type("lmdbio.Names", sizeof(lio_names), Py_TPFLAGS_HAVE_GC, slots, list);
}

/* --- a transaction ----------------------------------------------------------------------- */

static void lio_transacts_unlink(lio_transacts *t)
{
    if (t->link == NULL)
        return;
    *t->link = t->next;
    if (t->next != NULL)
        t->next->link = t->link;
    t->link = NULL;
    t->next = NULL;
}

static void lio_transacts_link(lio_transacts *t)
{
    lio_begins *env = (lio_begins *)t->env;
    t->next = env->first;
    t->link = &env->first;
    if (t->next != NULL)
        t->next->link = &t->next;
    env->first = t;
}

/* The find in the database of a handle (NULL, None: its own); NULL: Python knows. Borrowed. */
static PyObject *lio_transacts_find_in(const lio_transacts *t, PyObject *db)
{
    PyObject *find;
    if (db == NULL || db == Py_None)
        return t->find;
    if (t->link == NULL)
        return NULL;
    find = lio_names_find(t->finds, ((lio_begins *)t->env)->handle, t->env, db);
    return lio_lookup_of(find) != NULL ? find : NULL;
}

static PyObject *lio_transacts_get(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names)
{
    static const char *const known[] = {"key", "default", "db"};
    PyObject *given[] = {NULL, Py_None, NULL}, *find = NULL, *found;
    const lio_lookup *search = ((lio_transacts *)self)->search;
    lio_found item = {0};
    int code;
    if (lio_sort(args, count, names, known, 3, given) && given[0] != NULL)
        find = lio_transacts_find_in((lio_transacts *)self, given[2]);
    if (find == NULL)
        return lio_call_fast(self, "_get", args, count, names);
    if (find != ((lio_transacts *)self)->find)
        search = lio_lookup_of(find);
    Py_INCREF(find); /* another thread may end the transaction meanwhile */
    code = lio_lookup_get_key(search, given[0], LIO_WANT_VALUE, &item);
    found = item.value;
    if (code == LIO_NOTFOUND) {
        found = given[1];
        Py_INCREF(found);
    }
    Py_DECREF(find);
    return found == NULL || ((lio_transacts *)self)->link != NULL ? found
                                                                  : lio_refuse(self, found);
}

/* Closes its cursors, also where to end the run of one raises. */
static bool lio_transacts_close(lio_transacts *t)
{
    bool fine = true;
    while (t->cursors != NULL) {
        lio_stands *s = t->cursors;
        Py_INCREF((PyObject *)s);
        fine = fine && lio_stands_end(s);
        lio_stands_let_go(s);
        Py_DECREF((PyObject *)s);
    }
    return fine;
}

/* Ends it: no other thread finds it alive from here on. Its slot goes last. */
static PyObject *lio_transacts_abort(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    lio_transacts *t = (lio_transacts *)self;
    bool fine = true;
    if (t->link != NULL) {
        lio_transacts_unlink(t);
        Py_CLEAR(t->find);
        fine = lio_transacts_close(t);
        Py_CLEAR(t->slot);
    }
    if (!fine)
        return NULL;
    Py_RETURN_NONE;
}

/* Makes a cursor over `db` (NULL: its own database), in which `find` finds. NULL without an error: it has
 * ended, since to make an object may have the garbage collector run any code. */
static PyObject *lio_transacts_stand(lio_transacts *t, PyObject *find, PyObject *db)
{
    PyTypeObject *type = (PyTypeObject *)((lio_begins *)t->env)->cursor;
    PyObject *lookup = lio_lookup_apart(lio_lookup_of(find)), *made = NULL;
    if (lookup != NULL)
        made = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (made != NULL && t->link != NULL) {
        lio_stands_begin((lio_stands *)made, lookup, (PyObject *)t, db, &t->cursors);
        return made;
    }
    Py_XDECREF(made);
    Py_XDECREF(lookup);
    return NULL;
}

static PyObject *lio_transacts_cursor(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                      PyObject *names)
{
    static const char *const known[] = {"db"};
    lio_transacts *t = (lio_transacts *)self;
    PyObject *db = Py_None, *find = NULL, *made;
    if (lio_sort(args, count, names, known, 1, &db))
        find = lio_transacts_find_in(t, db);
    if (find == NULL)
        return lio_call_fast(self, "_cursor", args, count, names);
    Py_INCREF(find);
    made = lio_transacts_stand(t, find, db == Py_None ? NULL : db);
    Py_DECREF(find);
    if (made == NULL && !PyErr_Occurred())
        return lio_call_fast(self, "_cursor", args, count, names);
    return made;
}

/* _stand(find, db): the same for Python; None where it has ended. */
static PyObject *lio_transacts_stand_in(PyObject *self, PyObject *args)
{
    lio_transacts *t = (lio_transacts *)self;
    PyObject *find, *db, *made;
    if (!PyArg_ParseTuple(args, "OO", &find, &db))
        return NULL;
    if (lio_lookup_of(find) == NULL || t->env == NULL || ((lio_begins *)t->env)->cursor == NULL)
        return PyErr_Format(PyExc_SystemError, "a cursor is of a search, in a transaction");
    made = lio_transacts_stand(t, find, db == Py_None ? NULL : db);
    if (made != NULL || PyErr_Occurred())
        return made;
    Py_RETURN_NONE;
}

/* _cursors(): those that are open. */
static PyObject *lio_transacts_cursors(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *list = PyList_New(0);
    for (lio_stands *s = ((lio_transacts *)self)->cursors; s != NULL && list != NULL; s = s->next)
        if (PyList_Append(list, (PyObject *)s) < 0)
            Py_CLEAR(list);
    return list;
}

static PyObject *lio_transacts_exit(PyObject *self, PyObject *const *Py_UNUSED(args),
                                    Py_ssize_t Py_UNUSED(count))
{
    return lio_transacts_abort(self, NULL);
}

static PyObject *lio_transacts_enter(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    if (((lio_transacts *)self)->link == NULL)
        return PyObject_CallMethod(self, "_check", NULL);
    Py_INCREF(self);
    return self;
}

/* _started(): it begins: its environment is there, and keeps it until it ends. False where that is shut. */
static PyObject *lio_transacts_started(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    lio_transacts *t = (lio_transacts *)self;
    if (t->env == NULL || t->link != NULL)
        return PyErr_Format(PyExc_SystemError, "a transaction begins once, in an environment");
    if (!((lio_begins *)t->env)->is_shut)
        lio_transacts_link(t);
    return PyBool_FromLong(t->link != NULL);
}

static PyObject *lio_transacts_has_ended(PyObject *self, void *Py_UNUSED(nothing))
{
    return PyBool_FromLong(((lio_transacts *)self)->link == NULL);
}

/* `_find`: a find of lio_glue_lookup; another callable, or None, is not kept. */
static PyObject *lio_transacts_find(PyObject *self, void *Py_UNUSED(nothing))
{
    PyObject *find = ((lio_transacts *)self)->find;
    find = find == NULL ? Py_None : find;
    Py_INCREF(find);
    return find;
}

static int lio_transacts_set_find(PyObject *self, PyObject *find, void *Py_UNUSED(nothing))
{
    lio_transacts *t = (lio_transacts *)self;
    PyObject *before = t->find;
    t->search = lio_lookup_of(find);
    t->find = t->search == NULL ? NULL : find;
    Py_XINCREF(t->find);
    Py_XDECREF(before);
    return 0;
}

/* A transaction that its program lets go of ends; so does one that the garbage collector finds. */
static void lio_transacts_finalize(PyObject *self)
{
    PyObject *type, *value, *trace, *done;
    if (((lio_transacts *)self)->link == NULL)
        return;
    PyErr_Fetch(&type, &value, &trace);
    done = lio_transacts_abort(self, NULL);
    if (done == NULL)
        PyErr_WriteUnraisable(self);
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace);
}

static int lio_transacts_traverse(PyObject *self, visitproc visit, void *arg)
{
    lio_transacts *t = (lio_transacts *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(t->env);
    Py_VISIT(t->opened);
    Py_VISIT(t->finds);
    Py_VISIT(t->db);
    Py_VISIT(t->slot);
    Py_VISIT(t->find);
    return 0;
}

static int lio_transacts_clear(PyObject *self)
{
    lio_transacts *t = (lio_transacts *)self;
    lio_transacts_unlink(t);
    Py_CLEAR(t->find);
    Py_CLEAR(t->slot);
    Py_CLEAR(t->db);
    Py_CLEAR(t->finds);
    Py_CLEAR(t->opened);
    Py_CLEAR(t->env);
    return 0;
}

static void lio_transacts_free(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    lio_glue_free(self, lio_transacts_clear);
}

static int lio_transacts_type(uintptr_t list)
{
    static PyMethodDef methods[] = {
        {"get", (PyCFunction)(void (*)(void))lio_transacts_get, METH_FASTCALL | METH_KEYWORDS,
         "get($self, /, key, default=None, db=None)\n--\n\n"
         "Return the first value of ``key``, or ``default``."},
        {"cursor", (PyCFunction)(void (*)(void))lio_transacts_cursor,
         METH_FASTCALL | METH_KEYWORDS,
         "cursor($self, /, db=None)\n--\n\n"
         "Return a cursor over ``db`` (None: the transaction's database)."},
        {"_stand", lio_transacts_stand_in, METH_VARARGS, NULL},
        {"_cursors", lio_transacts_cursors, METH_NOARGS, NULL},
        {"abort", lio_transacts_abort, METH_NOARGS,
         "abort($self, /)\n--\n\nEnd the transaction. May be called again."},
        {"_started", lio_transacts_started, METH_NOARGS, NULL},
        {"__enter__", lio_transacts_enter, METH_NOARGS, "__enter__($self, /)\n--\n\n"},
        {"__exit__", (PyCFunction)(void (*)(void))lio_transacts_exit, METH_FASTCALL,
         "__exit__($self, /, *_)\n--\n\n"},
        {NULL, NULL, 0, NULL}};
    static PyMemberDef members[] = {
        {"_env", T_OBJECT, offsetof(lio_transacts, env), 0, NULL},
        {"_opened", T_OBJECT, offsetof(lio_transacts, opened), 0, NULL},
        {"_finds", T_OBJECT, offsetof(lio_transacts, finds), 0, NULL},
        {"_db", T_OBJECT, offsetof(lio_transacts, db), 0, NULL},
        {"_slot", T_OBJECT, offsetof(lio_transacts, slot), 0, NULL},
        {"_reads_direct", T_ULONGLONG, offsetof(lio_transacts, past), 0, NULL},
        {NULL, 0, 0, 0, NULL}};
    static PyGetSetDef properties[] = {
        {"_ended", lio_transacts_has_ended, NULL, NULL, NULL},
        {"_find", lio_transacts_find, lio_transacts_set_find, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot slots[] = {{Py_tp_methods, methods},
                                  {Py_tp_members, members},
                                  {Py_tp_getset, properties},
                                  {Py_tp_finalize, lio_transacts_finalize},
                                  {Py_tp_traverse, lio_transacts_traverse},
                                  {Py_tp_clear, lio_transacts_clear},
                                  {Py_tp_dealloc, lio_transacts_free},
                                  {0, NULL}};
    return lio_glue_type("lmdbio.Transacts", sizeof(lio_transacts), Py_TPFLAGS_HAVE_GC, slots,
                         list);
}

/* --- an environment ---------------------------------------------------------------------- */

enum { LIO_BEGIN_DB, LIO_BEGIN_PARENT, LIO_BEGIN_WRITE, LIO_BEGIN_BUFFERS, LIO_BEGIN_ARGUMENTS };

/* Reads the arguments of begin(): whether a transaction is asked for that reads, with or without buffers, and
 * the handle of its database. -1: another one. */
static int lio_begins_plainly(PyObject *const *args, Py_ssize_t count, PyObject *names,
                              PyObject **db)
{
    static const char *const known[] = {"db", "parent", "write", "buffers"};
    PyObject *given[LIO_BEGIN_ARGUMENTS] = {Py_None, Py_None, Py_None, Py_None};
    if (!lio_sort(args, count, names, known, LIO_BEGIN_ARGUMENTS, given) ||
        given[LIO_BEGIN_PARENT] != Py_None || lio_said(given[LIO_BEGIN_WRITE]) != 0)
        return -1;
    *db = given[LIO_BEGIN_DB];
    return lio_said(given[LIO_BEGIN_BUFFERS]);
}

/* Gives a transaction that has not begun a reader slot. False: none can be had, which Python will find as
 * well, or Ctrl-C is raised. */
static bool lio_transacts_hold(lio_transacts *t, PyObject *take)
{
    Py_INCREF(take); /* which may let another thread run, that forgets all */
    t->slot = PyObject_CallObject(take, NULL);
    Py_DECREF(take);
    if (t->slot == NULL && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
    return t->slot != NULL;
}

/* Fills in a transaction that has not begun, with what is known, as long as that is of the snapshot `opened`;
 * false as for lio_begins_again. One look came before the slot: of a file that was cut py-lmdb would take none,
 * but end the process. Another comes after it, for it holds the newest snapshot: if that is still the known one,
 * no later one was there before, and no writer reuses its pages from now on. */
static bool lio_transacts_fill(lio_transacts *t, const lio_known *known, PyObject *opened,
                               PyObject *find)
{
    if (known->opened != opened)
        return false;
    Py_INCREF(opened);
    t->opened = opened;
    Py_INCREF(known->finds);
    t->finds = known->finds;
    Py_INCREF(find);
    t->find = find;
    t->search = lio_lookup_of(find);
    return known->take == NULL || (lio_transacts_hold(t, known->take) && known->opened == opened &&
                                   lio_monitor_is_unchanged(known->monitored, t->search));
}

/* Makes a transaction in the database of a handle, on what the last one knew. NULL without an error: the file
 * may have moved on, nobody searched there yet, or nothing is known any longer, since to make an object may
 * have the garbage collector run any code, close() of this environment, too. */
static PyObject *lio_begins_again(PyObject *self, const lio_known *known, PyObject *db)
{
    lio_begins *b = (lio_begins *)self;
    PyTypeObject *type = (PyTypeObject *)b->transaction;
    PyObject *opened = known->opened;
    PyObject *find = db == Py_None ? known->find
                                   : lio_names_find(known->finds, b->handle, self, db);
    const lio_lookup *search = find == known->find ? known->search : lio_lookup_of(find);
    lio_transacts *t = NULL;
    if (search == NULL || !lio_monitor_is_unchanged(known->monitored, search))
        return NULL;
    Py_INCREF(opened);
    Py_INCREF(find);
    t = (lio_transacts *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (t != NULL) {
        Py_INCREF(self);
        t->env = self;
        if (db != Py_None) {
            Py_INCREF(db);
            t->db = db;
        }
        if (lio_transacts_fill(t, known, opened, find))
            lio_transacts_link(t);
        else
            Py_CLEAR(t);
    }
    Py_DECREF(find);
    Py_DECREF(opened);
    return (PyObject *)t;
}

static PyObject *lio_begins_begin(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *names)
{
    PyObject *db;
    int buffers = lio_begins_plainly(args, count, names, &db);
    if (buffers >= 0) {
        PyObject *begun = lio_begins_again(self, &((lio_begins *)self)->known[buffers], db);
        if (begun != NULL || PyErr_Occurred())
            return begun;
    }
    return lio_call_fast(self, "_begin", args, count, names);
}

static void lio_known_clear(lio_known *known)
{
    Py_CLEAR(known->take);
    Py_CLEAR(known->find);
    Py_CLEAR(known->finds);
    Py_CLEAR(known->monitor);
    Py_CLEAR(known->opened);
    known->monitored = NULL;
    known->search = NULL;
}

/* _know(opened, monitor, finds, buffers, take=None): what later transactions may begin on. */
static PyObject *lio_begins_know(PyObject *self, PyObject *args)
{
    PyObject *opened, *monitor, *finds, *find, *take = Py_None;
    int buffers;
    lio_begins *b = (lio_begins *)self;
    lio_known *known, before;
    if (!PyArg_ParseTuple(args, "OOO!p|O", &opened, &monitor, &PyDict_Type, &finds, &buffers,
                          &take))
        return NULL;
    find = PyDict_GetItemWithError(finds, Py_None);
    known = &b->known[buffers];
    before = *known;
    *known = (lio_known){0};
    if (lio_monitor_of(monitor) != NULL && b->transaction != NULL && !b->is_shut) {
        *known = (lio_known){
            opened, monitor, finds, NULL, NULL, lio_monitor_of(monitor), lio_lookup_of(find)};
        Py_INCREF(opened);
        Py_INCREF(monitor);
        Py_INCREF(finds);
        if (known->search != NULL) {
            Py_INCREF(find);
            known->find = find;
        }
        if (take != Py_None) {
            Py_INCREF(take);
            known->take = take;
        }
    }
    lio_known_clear(&before);
    Py_RETURN_NONE;
}

/* _make(transaction, cursor, handle): the types of what is made in it, derived from Transacts, Stands and
 * Names. Said once. */
static PyObject *lio_begins_make(PyObject *self, PyObject *args)
{
    lio_begins *b = (lio_begins *)self;
    PyObject *transaction, *cursor, *handle;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyType_Type, &transaction, &PyType_Type, &cursor,
                          &PyType_Type, &handle))
        return NULL;
    if (b->transaction != NULL)
        return PyErr_Format(PyExc_SystemError, "an environment makes what it has said");
    Py_INCREF(transaction);
    b->transaction = transaction;
    Py_INCREF(cursor);
    b->cursor = cursor;
    Py_INCREF(handle);
    b->handle = handle;
    Py_RETURN_NONE;
}

static int lio_begins_clear(PyObject *self)
{
    lio_known_clear(&((lio_begins *)self)->known[0]);
    lio_known_clear(&((lio_begins *)self)->known[1]);
    return 0;
}

static PyObject *lio_begins_forget(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    (void)lio_begins_clear(self);
    Py_RETURN_NONE;
}

static PyObject *lio_begins_shut(PyObject *self, PyObject *nothing)
{
    ((lio_begins *)self)->is_shut = true;
    return lio_begins_forget(self, nothing);
}

/* _living(): the transactions that have not ended. */
static PyObject *lio_begins_living(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *list = PyList_New(0);
    for (lio_transacts *t = ((lio_begins *)self)->first; t != NULL && list != NULL; t = t->next)
        if (PyList_Append(list, (PyObject *)t) < 0)
            Py_CLEAR(list);
    return list;
}

static int lio_begins_traverse(PyObject *self, visitproc visit, void *arg)
{
    lio_begins *b = (lio_begins *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(b->transaction);
    Py_VISIT(b->cursor);
    Py_VISIT(b->handle);
    for (int i = 0; i < 2; i++) {
        Py_VISIT(b->known[i].opened);
        Py_VISIT(b->known[i].monitor);
        Py_VISIT(b->known[i].finds);
        Py_VISIT(b->known[i].find);
        Py_VISIT(b->known[i].take);
    }
    return 0;
}

/* No transaction is left: each keeps its environment. */
static int lio_begins_clear_all(PyObject *self)
{
    (void)lio_begins_clear(self);
    Py_CLEAR(((lio_begins *)self)->transaction);
    Py_CLEAR(((lio_begins *)self)->cursor);
    Py_CLEAR(((lio_begins *)self)->handle);
    return 0;
}

static void lio_begins_free(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    lio_glue_free(self, lio_begins_clear_all);
}

static int lio_begins_type(uintptr_t list)
{
    static PyMethodDef methods[] = {
        {"begin", (PyCFunction)(void (*)(void))lio_begins_begin, METH_FASTCALL | METH_KEYWORDS,
         "begin($self, /, db=None, parent=None, write=False, buffers=False)\n--\n\n"
         "Begin a transaction on the newest snapshot."},
        {"_make", lio_begins_make, METH_VARARGS, NULL},
        {"_know", lio_begins_know, METH_VARARGS, NULL},
        {"_forget", lio_begins_forget, METH_NOARGS, NULL},
        {"_shut", lio_begins_shut, METH_NOARGS, NULL},
        {"_living", lio_begins_living, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL}};
    static PyType_Slot slots[] = {{Py_tp_methods, methods},
                                  {Py_tp_traverse, lio_begins_traverse},
                                  {Py_tp_clear, lio_begins_clear},
                                  {Py_tp_dealloc, lio_begins_free},
                                  {0, NULL}};
    return lio_glue_type("lmdbio.Begins", sizeof(lio_begins), Py_TPFLAGS_HAVE_GC, slots, list);
}
