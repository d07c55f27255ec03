#include "items.h"

#include <stddef.h>
#include <structmember.h>
#include <unistd.h>

#include "position.h"

/* Views that are lent before the snapshot is asked again. */
enum { LIO_ITEMS_LENT = 16 };

/* Values that are copied out of a mapping before it is asked: so many, of so many bytes together,
 * stay in a core's cache, and to ask takes a fifth of the time of copying one of 3 KB. */
enum { LIO_ITEMS_COPIED = 8, LIO_ITEMS_COPIED_BYTES = 24 << 10 };

typedef struct {
    PyObject_HEAD PyObject *cursor; /* a lio_stands */
    uint32_t move, wanted;          /* of a step; LIO_WANT_* */
    uint32_t steps, scan_after;     /* done since the last scan; see above */
    char is_started, has_waited;    /* an item has been handed out; a step had to wait */
    char has_stalled;               /* at its last step, which is to be made again */
    char is_advancing;              /* a thread is in `advance`, and steps the cursor there */
    lio_scan *scan;                 /* NULL: none; then nothing is left either */
    lio_guard guard;
    size_t at, end;  /* of the block: the next record; all */
    size_t ready;    /* up to here records are in memory, */
    size_t in_place; /* and up to here, where they lie, to be copied by the handful */
    uint64_t run;    /* counts the scans */
    uint32_t buffers;
    pid_t loader;                       /* the process of which a thread loads now; 0: none does */
    size_t first;                       /* the record whose value is copied[0] */
    PyObject *copied[LIO_ITEMS_COPIED]; /* NULL: handed out, or not copied */
} lio_items;

/* Objects that a thread uses while others may end the run. */
typedef struct {
    lio_scan *scan;
    lio_guard guard;
} lio_items_held;

/* Lent values are not read: only where they lie is asked for. */
static bool lio_items_lend(lio_items *s, const lio_items_held *h)
{
    size_t rest = s->end - s->at, count = rest < LIO_ITEMS_LENT ? rest : LIO_ITEMS_LENT;
    uint64_t run = s->run, bytes = 0;
    lio_record record;
    for (size_t i = 0; i < count; i++)
        if (lio_scan_record(h->scan, s->at + i, &record, NULL) == LIO_OK)
            bytes += record.value_size;
    lio_snapshot_doubt(h->guard.snapshot);
    if (!lio_guard_vouch(&h->guard))
        return false;
    if (s->run == run && s->end - s->at >= count) {
        s->ready = s->at + count;
        lio_engine_count_records(lio_pages_engine(h->guard.pages), 0, count, bytes);
    }
    return true;
}

/* Another thread changes what is in memory; what a parent process had begun, nobody ends here. */
static bool lio_items_is_loading(const lio_items *s)
{
    return s->loader != 0 && s->loader == getpid();
}

/* The thread that loads has that lock meanwhile. */
static void lio_items_wait(const lio_items_held *h)
{
    Py_BEGIN_ALLOW_THREADS lio_pages_lock(h->guard.pages);
    lio_pages_unlock(h->guard.pages);
    Py_END_ALLOW_THREADS
}

static void lio_items_drop_copied(lio_items *s)
{
    for (size_t i = 0; i < LIO_ITEMS_COPIED; i++)
        Py_CLEAR(s->copied[i]);
}

/* Copies the values of the next records, which lio_scan_load has left where they are, up to `end`.
 * Returns how many records are in memory then: none, where the first is to be read by itself. */
static size_t lio_items_copy(lio_items *s, size_t end)
{
    uint64_t bytes = 0;
    lio_error error;
    lio_record r;
    size_t done = 0;
    lio_items_drop_copied(s);
    s->first = s->at;
    for (; s->at + done < end && done < LIO_ITEMS_COPIED; done++) {
        PyObject *value = NULL;
        if (lio_scan_record(s->scan, s->at + done, &r, &error) != LIO_OK)
            break;
        if (r.value != NULL || r.value_size == 0)
            continue;
        bytes += r.value_size;
        if (bytes > LIO_ITEMS_COPIED_BYTES && done > 0)
            break;
        if (r.value_size <= LIO_HELD_BYTES_MAX)
            value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)r.value_size);
        if (value == NULL ||
            lio_value_try_read(lio_scan_pages(s->scan), &r.where,
                               (uint8_t *)PyBytes_AsString(value), &error) != LIO_OK) {
            Py_XDECREF(value);
            PyErr_Clear(); /* read by itself, it says what is wrong */
            break;
        }
        s->copied[done] = value;
    }
    return done;
}

/* Has the next records in memory, of those that are in place; true also when that is to be looked at anew. */
static bool lio_items_bring(lio_items *s, const lio_items_held *h)
{
    size_t first = s->at, ready = first + lio_items_copy(s, s->in_place);
    uint64_t run = s->run;
    bool fine = lio_guard_is_intact(&h->guard, false);
    if (!fine) {
        /* Until these are vouched for no other thread copies: it would have bytes of later on. */
        s->loader = getpid();
        fine = lio_guard_vouch(&h->guard);
        s->loader = 0;
    }
    if (fine && s->run == run && s->at == first)
        s->ready = ready > first ? ready : first + 1;
    return fine;
}

/* Has the next records in memory or in place; true also when that is to be looked at anew. */
static bool lio_items_load(lio_items *s, const lio_items_held *h)
{
    size_t first = s->at, count = s->end - s->at;
    uint64_t run = s->run;
    bool fine;
    lio_error error;
    int code;
    s->loader = getpid();
    Py_BEGIN_ALLOW_THREADS code = lio_scan_load(h->scan, first, &count, &error);
    Py_END_ALLOW_THREADS fine = code == LIO_OK ? lio_guard_vouch(&h->guard)
                                               : lio_guard_raise(&h->guard, code, &error);
    s->loader = 0;
    if (fine && s->run == run && s->at == first) {
        if (lio_scan_is_in_place(h->scan))
            s->in_place = first + count;
        else
            s->ready = first + count;
    }
    return fine;
}

/* Reads a value into an object of its own. */
static PyObject *lio_items_read(const lio_items_held *h, const lio_record *record)
{
    PyObject *value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)record->value_size);
    lio_error error;
    uint8_t *room;
    int code;
    if (value == NULL)
        return NULL;
    room = (uint8_t *)PyBytes_AsString(value);
    Py_BEGIN_ALLOW_THREADS uint64_t begun = lio_now_ns();
    code = lio_value_read(h->guard.pages, &record->where, room, &error);
    lio_engine_count_stage(lio_pages_engine(h->guard.pages), LIO_STAGE_WAIT, begun,
                           record->value_size);
    Py_END_ALLOW_THREADS if (code == LIO_OK
                                 ? lio_guard_vouch(&h->guard)
                                 : lio_guard_raise(&h->guard, code, &error)) return value;
    Py_DECREF(value);
    return NULL;
}

/* A value as the user gets it. */
static PyObject *lio_items_value(const lio_items_held *h, const lio_record *record)
{
    const uint8_t *lent = NULL, *map;
    uint64_t size;
    lio_error error;
    int code;
    if (h->guard.map != NULL && record->where.length != 0) {
        code = lio_value_lend(h->guard.pages, &record->where, &lent, &error);
        if (code != LIO_OK) {
            (void)lio_guard_raise(&h->guard, code, &error);
            return NULL;
        }
    }
    if (lent != NULL) {
        map = lio_engine_map(lio_pages_engine(h->guard.pages), &size);
        return lio_lookup_slice(h->guard.map, (uint64_t)(lent - map), record->where.length);
    }
    if (record->value == NULL && record->value_size != 0)
        return lio_items_read(h, record);
    return lio_glue_bytes(record->value, record->value_size);
}

/* Makes the item that is wanted of a key and a value, which it takes over; NULL: not wanted. */
static PyObject *lio_items_pack(uint32_t wanted, uint32_t buffers, PyObject *key, PyObject *value)
{
    PyObject *item = NULL;
    bool fine = !buffers || (lio_lookup_view(&key) == LIO_OK && lio_lookup_view(&value) == LIO_OK);
    if (fine && wanted == LIO_WANT_KEY)
        return key;
    if (fine && wanted == LIO_WANT_VALUE)
        return value;
    if (fine)
        item = PyTuple_Pack(2, key, value);
    Py_XDECREF(key);
    Py_XDECREF(value);
    return item;
}

/* The value of record `index` where nothing needs to be read for it; NULL: else. */
static PyObject *lio_items_at_hand(lio_items *s, size_t index, const lio_record *record)
{
    PyObject *value = NULL;
    if (index >= s->first && index - s->first < LIO_ITEMS_COPIED)
        value = s->copied[index - s->first];
    if (value != NULL)
        s->copied[index - s->first] = NULL;
    else if (record->value != NULL || record->value_size == 0)
        value = PyBytes_FromStringAndSize((const char *)record->value,
                                          (Py_ssize_t)record->value_size);
    return value;
}

/* The next record, which is in memory, without a reference to what it comes from: bytes are made
 * before anything (a tuple, by the garbage collector) can let others end the run. NULL without an
 * error: the other way must be gone. */
static PyObject *lio_items_quick(lio_items *s)
{
    PyObject *key = NULL, *value = NULL, *item;
    uint64_t run = s->run;
    size_t index = s->at;
    lio_record record;
    lio_error error;
    if (s->guard.map != NULL || lio_scan_record(s->scan, index, &record, &error) != LIO_OK)
        return NULL;
    if (s->wanted & LIO_WANT_VALUE) {
        value = lio_items_at_hand(s, index, &record);
        if (value == NULL)
            return NULL;
    }
    if (s->wanted & LIO_WANT_KEY) {
        key = PyBytes_FromStringAndSize((const char *)record.key, (Py_ssize_t)record.key_size);
        if (key == NULL) {
            Py_XDECREF(value);
            return NULL;
        }
    }
    s->at++;
    item = lio_items_pack(s->wanted, s->buffers, key, value);
    if (item == NULL && s->run == run && s->at == index + 1)
        s->at = index; /* nobody got it, and nobody has gone on: it comes again */
    return item;
}

/* Key and value of a record in memory, or the one that is wanted. Memory that is used again
 * (all but large values) is copied before anything can let another thread run. */
static PyObject *lio_items_make(const lio_items_held *h, uint32_t wanted, uint32_t buffers,
                                const lio_record *record)
{
    PyObject *key = NULL, *value = NULL;
    if (wanted & LIO_WANT_KEY) {
        key = PyBytes_FromStringAndSize((const char *)record->key, (Py_ssize_t)record->key_size);
        if (key == NULL)
            return NULL;
    }
    if (wanted & LIO_WANT_VALUE) {
        value = lio_items_value(h, record);
        if (value == NULL) {
            Py_XDECREF(key);
            return NULL;
        }
    }
    return lio_items_pack(wanted, buffers, key, value);
}

/* Whether no thread has closed the cursor. */
static bool lio_items_is_open(const lio_items *s)
{
    return s->cursor == NULL || ((const lio_stands *)s->cursor)->lookup != NULL;
}

/* The next record in memory. */
static PyObject *lio_items_take(lio_items *s, const lio_items_held *h)
{
    uint64_t run = s->run;
    size_t index = s->at;
    lio_record record;
    lio_error error;
    PyObject *item;
    int code = lio_scan_record(h->scan, index, &record, &error);
    if (code != LIO_OK) {
        (void)lio_guard_raise(&h->guard, code, &error);
        return NULL;
    }
    s->at++;
    item = lio_items_make(h, s->wanted, s->buffers, &record);
    if (item != NULL && !lio_items_is_open(s))
        item = lio_refuse(s->cursor, item);
    if (item == NULL && s->run == run && s->at == index + 1)
        s->at = index; /* nobody got it, and nobody has gone on: it comes again */
    return item;
}

/* Whether the cursor can be stepped: it stands on a record, and that is its own position. */
static lio_lookup *lio_items_lookup(const lio_items *s)
{
    const lio_stands *p = (const lio_stands *)s->cursor;
    return p != NULL && p->placed && !p->keyless && lio_is_none(p->unproved) ? lio_stands_lookup(p)
                                                                             : NULL;
}

/* Hands out the record that the cursor stands on, at first, then the one that it steps to, where that
 * takes no waiting and a scan does not pay. NULL without an error: the other way must be gone.
 * Threads that share the iterator get one item each: the GIL is kept until the step is done, and
 * what is read without it after that, the cursor's next step leaves alone. */
static PyObject *lio_items_step(lio_items *s)
{
    lio_stands *p = (lio_stands *)s->cursor;
    lio_lookup *l = s->is_advancing ? NULL : lio_items_lookup(s);
    uint32_t move = s->is_started ? s->move : LIO_STAY, steps = s->steps + 1;
    lio_found found = {0};
    lio_error error;
    PyObject *lookup, *item = NULL;
    int code;
    if (l == NULL || (s->has_waited && s->steps >= s->scan_after))
        return NULL;
    code = lio_lookup_try(l, move, NULL, 0, s->wanted, &found, &error);
    s->has_waited |= found.has_waited;
    if (code == LIO_PENDING) {
        s->has_stalled = 1; /* the cursor may stand between two records, where no scan can begin */
        return NULL;
    }
    s->is_started = 1;
    s->steps = steps;
    p->placed = code == LIO_OK;
    lookup = p->lookup;
    Py_INCREF(lookup); /* another thread may close the cursor meanwhile */
    code = lio_lookup_finish(l, move, s->wanted, code, &found, &error);
    s->has_waited |= found.has_waited;
    if (code == LIO_OK)
        item = lio_items_pack(s->wanted, 0, found.key, found.value);
    if (item == NULL && code != LIO_NOTFOUND && s->steps == steps) {
        /* Nobody got it, and nobody has gone on: it comes again. */
        if (move == LIO_STAY)
            s->is_started = 0;
        else
            lio_stands_fail(p, move, lio_cursor_item(l->cursor) != NULL);
    }
    if (item != NULL && (s->wanted & LIO_WANT_VALUE) && found.where.length != 0)
        /* Most often the next value begins on the next page. */
        lio_engine_approach(lio_pages_engine(l->guard.pages),
                            lio_round_up(found.where.offset + found.where.length,
                                         lio_pages_layout(l->guard.pages)->page_size),
                            found.where.length);
    Py_DECREF(lookup);
    return item == NULL || p->lookup != NULL ? item : lio_refuse((PyObject *)p, item);
}

static PyObject *lio_items_next(PyObject *self)
{
    lio_items *s = (lio_items *)self;
    PyObject *item = NULL;
    while (s->at < s->end && lio_items_is_open(s)) {
        lio_items_held h;
        bool fine = true;
        if (s->at < s->ready && s->loader == 0) {
            item = lio_items_quick(s);
            if (item != NULL || PyErr_Occurred())
                return item;
        }
        h = (lio_items_held){s->scan, s->guard};
        lio_guard_hold(&h.guard);
        if (lio_items_is_loading(s))
            lio_items_wait(&h);
        else if (s->at < s->ready)
            item = lio_items_take(s, &h);
        else if (s->at < s->in_place)
            fine = lio_items_bring(s, &h);
        else
            fine = h.guard.map != NULL ? lio_items_lend(s, &h) : lio_items_load(s, &h);
        lio_guard_drop(&h.guard);
        if (item != NULL || !fine || PyErr_Occurred())
            return item;
    }
    item = lio_items_step(s);
    return item != NULL || PyErr_Occurred() ? item : PyObject_CallMethod(self, "advance", NULL);
}

/* _walk(cursor, move, wanted, scan_after): the records from `cursor` on. */
static PyObject *lio_items_walk(PyObject *self, PyObject *args)
{
    lio_items *s = (lio_items *)self;
    PyObject *cursor, *before = s->cursor;
    if (!PyArg_ParseTuple(args, "OIII", &cursor, &s->move, &s->wanted, &s->scan_after))
        return NULL;
    Py_INCREF(cursor);
    s->cursor = cursor;
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static void lio_items_clear(lio_items *s)
{
    s->scan = NULL;
    s->at = s->ready = s->in_place = s->end = 0;
    s->run++;
    lio_items_drop_copied(s);
    lio_guard_drop(&s->guard);
}

static int lio_items_traverse(PyObject *self, visitproc visit, void *arg)
{
    lio_items *s = (lio_items *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(s->cursor);
    Py_VISIT(s->guard.keep);
    Py_VISIT(s->guard.failed);
    Py_VISIT(s->guard.verify);
    Py_VISIT(s->guard.map);
    return 0;
}

static int lio_items_let_all_go(PyObject *self)
{
    lio_items_clear((lio_items *)self);
    Py_CLEAR(((lio_items *)self)->cursor);
    return 0;
}

static void lio_items_free(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    lio_glue_free(self, lio_items_let_all_go);
}

static int lio_items_type(uintptr_t list)
{
    static PyMethodDef methods[] = {{"_walk", lio_items_walk, METH_VARARGS, NULL},
                                    {NULL, NULL, 0, NULL}};
    static PyMemberDef members[] = {
        {"_cursor", T_OBJECT, offsetof(lio_items, cursor), READONLY, NULL},
        {"_move", T_UINT, offsetof(lio_items, move), READONLY, NULL},
        {"_wanted", T_UINT, offsetof(lio_items, wanted), READONLY, NULL},
        {"_steps", T_UINT, offsetof(lio_items, steps), 0, NULL},
        {"_scan_after", T_UINT, offsetof(lio_items, scan_after), 0, NULL},
        {"_is_started", T_BOOL, offsetof(lio_items, is_started), 0, NULL},
        {"_has_waited", T_BOOL, offsetof(lio_items, has_waited), 0, NULL},
        {"_has_stalled", T_BOOL, offsetof(lio_items, has_stalled), 0, NULL},
        {"_is_advancing", T_BOOL, offsetof(lio_items, is_advancing), 0, NULL},
        {NULL, 0, 0, 0, NULL}};
    static PyType_Slot slots[] = {{Py_tp_iter, PyObject_SelfIter},
                                  {Py_tp_iternext, lio_items_next},
                                  {Py_tp_methods, methods},
                                  {Py_tp_members, members},
                                  {Py_tp_traverse, lio_items_traverse},
                                  {Py_tp_clear, lio_items_let_all_go},
                                  {Py_tp_dealloc, lio_items_free},
                                  {0, NULL}};
    return lio_glue_type("lmdbio.Items", sizeof(lio_items), Py_TPFLAGS_HAVE_GC, slots, list);
}

static void lio_items_begin(uintptr_t items, lio_scan *scan, lio_snapshot *snapshot,
                            uintptr_t keep, uintptr_t failed, uintptr_t verify, uintptr_t map,
                            uint32_t buffers)
{
    PyGILState_STATE state = PyGILState_Ensure();
    lio_items *s = (lio_items *)items;
    lio_items_clear(s);
    s->scan = scan;
    s->guard = (lio_guard){.pages = lio_scan_pages(scan),
                           .snapshot = snapshot,
                           .keep = (PyObject *)keep,
                           .failed = (PyObject *)failed,
                           .verify = (PyObject *)verify,
                           .map = (PyObject *)map == Py_None ? NULL : (PyObject *)map};
    s->buffers = buffers;
    lio_guard_hold(&s->guard);
    PyGILState_Release(state);
}

static void lio_items_block(uintptr_t items, size_t count)
{
    PyGILState_STATE state = PyGILState_Ensure();
    lio_items *s = (lio_items *)items;
    s->at = s->ready = s->in_place = 0;
    s->end = s->scan != NULL ? count : 0;
    s->run++;
    lio_items_drop_copied(s);
    PyGILState_Release(state);
}

static size_t lio_items_left(uintptr_t items)
{
    PyGILState_STATE state = PyGILState_Ensure();
    const lio_items *s = (const lio_items *)items;
    size_t left = s->end - s->at;
    PyGILState_Release(state);
    return left;
}

static void lio_items_end(uintptr_t items)
{
    PyGILState_STATE state = PyGILState_Ensure();
    lio_items_clear((lio_items *)items);
    PyGILState_Release(state);
}
