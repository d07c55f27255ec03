#include "lookup.h"

#include <string.h>

static void lio_glue_untrack(uintptr_t object)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject_GC_UnTrack((PyObject *)object);
    PyGILState_Release(state);
}

static PyObject *lio_glue_bytes(const uint8_t *bytes, uint64_t size)
{
    PyObject *object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (object != NULL && size > 0)
        lio_copy(PyBytes_AsString(object), bytes, (size_t)size);
    return object;
}

/* The lock of the pages is held while the GIL is waited for here. That cannot block: nobody
 * waits for the lock with the GIL in hand (cffi lets go of it before each call), and making
 * bytes runs no other Python code. */
static int lio_glue_put(uintptr_t list, Py_ssize_t at, const uint8_t *bytes, uint64_t size,
                        char **room, lio_error *error)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *object = PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)size);
    if (object != NULL && room != NULL)
        *room = PyBytes_AsString(object);
    if (object == NULL || PyList_SetItem((PyObject *)list, at, object) < 0) {
        PyErr_Clear();
        PyGILState_Release(state);
        return lio_fail(error, LIO_ERR_NOMEM, 0, size, 0, "no memory for a record");
    }
    PyGILState_Release(state);
    return LIO_OK;
}

/* Gives a record to a list, as it is wanted; a value that is not in memory is read into its object. The
 * caller holds the lock. */
static int lio_glue_give(lio_pages *pages, const lio_record *record, uint32_t wanted,
                         uintptr_t list, lio_error *error)
{
    char *room;
    int code = LIO_OK;
    if (wanted & LIO_WANT_KEY)
        code = lio_glue_put(list, 0, record->key, record->key_size, NULL, error);
    if (code != LIO_OK || !(wanted & LIO_WANT_VALUE))
        return code;
    code = lio_glue_put(list, 1, record->value, record->value_size, &room, error);
    if (code == LIO_OK && record->value == NULL && record->value_size != 0)
        code = lio_value_read(pages, &record->where, (uint8_t *)room, error);
    return code;
}

static int lio_glue_item(lio_cursor *cursor, uint32_t wanted, uintptr_t list, lio_error *error)
{
    lio_pages *pages = lio_cursor_pages(cursor);
    const lio_item *item;
    int code = LIO_NOTFOUND;
    lio_pages_lock(pages);
    item = lio_cursor_item(cursor);
    if (item != NULL)
        code = lio_glue_give(
            pages,
            &(lio_record){item->key, item->data, item->key_size, item->data_size, item->where},
            wanted, list, error);
    if (code == LIO_OK && (wanted & LIO_WANT_VALUE))
        lio_engine_count_records(lio_pages_engine(pages), 0, 1, item->data_size);
    lio_pages_unlock(pages);
    return code;
}

static int lio_glue_record(const lio_scan *scan, size_t index, uint32_t wanted, uintptr_t list,
                           lio_error *error)
{
    lio_pages *pages = lio_scan_pages(scan);
    lio_record record;
    uint64_t begun;
    int code;
    lio_pages_lock(pages);
    begun = lio_now_ns();
    code = lio_scan_record(scan, index, &record, error);
    if (code == LIO_OK)
        code = lio_glue_give(pages, &record, wanted, list, error);
    lio_engine_count_stage(lio_pages_engine(pages), LIO_STAGE_COPY, begun,
                           code == LIO_OK && (wanted & LIO_WANT_VALUE) ? record.value_size : 0);
    lio_pages_unlock(pages);
    return code;
}

static int lio_glue_move(lio_cursor *cursor, uint32_t move, const uint8_t *key, size_t key_size,
                         const uint8_t *data, size_t data_size, lio_error *error)
{
    int code = lio_cursor_move(cursor, move, key, key_size, data, data_size, error);
    if (code == LIO_OK)
        lio_engine_count_records(lio_pages_engine(lio_cursor_pages(cursor)), 1, 0, 0);
    return code;
}

static int lio_glue_hand(PyObject *object, uintptr_t list)
{
    int result = object != NULL ? PyList_SetItem((PyObject *)list, 0, object) : -1;
    PyErr_Clear();
    return result;
}

static int lio_glue_type(const char *name, size_t size, unsigned flags, PyType_Slot *slots,
                         uintptr_t list)
{
    PyType_Spec spec = {.name = name,
                        .basicsize = (int)size,
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | flags,
                        .slots = slots};
    PyGILState_STATE state = PyGILState_Ensure();
    int result = lio_glue_hand(PyType_FromSpec(&spec), list);
    PyGILState_Release(state);
    return result;
}

static void lio_glue_free(PyObject *self, inquiry clear)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    (void)clear(self);
    release(self);
    Py_DECREF(type);
}

/* --- guards ---------------------------------------------------------------------------- */

static void lio_guard_hold(const lio_guard *guard)
{
    Py_XINCREF(guard->keep);
    Py_XINCREF(guard->failed);
    Py_XINCREF(guard->verify);
    Py_XINCREF(guard->map);
    Py_XINCREF(guard->waited);
    Py_XINCREF(guard->as_key);
    Py_XINCREF(guard->type);
}

static void lio_guard_drop(lio_guard *guard)
{
    lio_guard held = *guard;
    *guard = (lio_guard){0}; /* whoever is called below finds it empty */
    Py_XDECREF(held.type);
    Py_XDECREF(held.as_key);
    Py_XDECREF(held.waited);
    Py_XDECREF(held.map);
    Py_XDECREF(held.verify);
    Py_XDECREF(held.failed);
    Py_XDECREF(held.keep);
}

static bool lio_guard_raise(const lio_guard *guard, int code, const lio_error *error)
{
    PyObject *done = NULL;
    if (!PyErr_Occurred())
        done = PyObject_CallFunction(guard->failed, "iiKKKy", code, (int)error->sys_errno,
                                     (unsigned long long)error->offset,
                                     (unsigned long long)error->wanted,
                                     (unsigned long long)error->got, error->reason);
    if (done != NULL)
        PyErr_SetString(PyExc_SystemError, "a failure that raises nothing");
    Py_XDECREF(done);
    return false;
}

static bool lio_guard_is_intact(const lio_guard *guard, bool anew)
{
    bool intact = lio_snapshot_intact(guard->snapshot, guard->pages, anew, false);
    if (!intact) {
        Py_BEGIN_ALLOW_THREADS intact = lio_snapshot_intact(guard->snapshot, guard->pages, anew,
                                                            true);
        Py_END_ALLOW_THREADS
    }
    return intact;
}

static bool lio_guard_verify(const lio_guard *guard)
{
    PyObject *done = PyObject_CallObject(guard->verify, NULL);
    Py_XDECREF(done);
    return done != NULL;
}

static bool lio_guard_tell_wait(const lio_guard *guard, uint64_t offset)
{
    PyObject *done;
    if (guard->waited == NULL)
        return true;
    done = PyObject_CallFunction(guard->waited, "K", (unsigned long long)offset);
    Py_XDECREF(done);
    return done != NULL;
}

static bool lio_guard_vouch(const lio_guard *guard)
{
    return lio_guard_is_intact(guard, false) || lio_guard_verify(guard);
}

static bool lio_guard_vouch_anew(const lio_guard *guard)
{
    return lio_guard_is_intact(guard, true) || lio_guard_verify(guard);
}

static PyObject *lio_guard_capsule(const char *name, const void *state, size_t size,
                                   PyCapsule_Destructor end)
{
    void *copy = PyMem_Malloc(size);
    PyObject *capsule = copy != NULL ? PyCapsule_New(copy, name, end) : NULL;
    if (capsule == NULL) {
        PyMem_Free(copy);
        return PyErr_NoMemory();
    }
    memcpy(copy, state, size);
    lio_guard_hold(copy);
    return capsule;
}

static void lio_guard_end(PyObject *capsule)
{
    lio_guard *guard = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    lio_guard_drop(guard);
    PyMem_Free(guard);
}

static PyObject *lio_guard_method(PyMethodDef *method, PyObject *capsule)
{
    PyObject *callable = capsule != NULL ? PyCFunction_NewEx(method, capsule, NULL) : NULL;
    Py_XDECREF(capsule);
    return callable;
}

static int lio_guard_callable(PyMethodDef *method, const char *name, const void *state,
                              size_t size, uintptr_t list)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *capsule = lio_guard_capsule(name, state, size, lio_guard_end);
    int result = lio_glue_hand(lio_guard_method(method, capsule), list);
    PyGILState_Release(gil);
    return result;
}

/* --- searches by key ------------------------------------------------------------------- */

static const char LIO_LOOKUP[] = "lmdbio.lookup";

/* A thread waits for the lock of the pages without the GIL: see lio_glue_put. */
static void lio_lookup_close(lio_lookup *l)
{
    if (lio_pages_try_lock(l->guard.pages)) {
        lio_cursor_close(l->cursor);
        lio_pages_unlock_tried(l->guard.pages);
    } else {
        Py_BEGIN_ALLOW_THREADS lio_cursor_close(l->cursor);
        Py_END_ALLOW_THREADS
    }
}

static void lio_lookup_free(PyObject *capsule)
{
    lio_lookup *l = PyCapsule_GetPointer(capsule, LIO_LOOKUP);
    if (l->is_apart)
        lio_lookup_close(l);
    lio_guard_end(capsule);
}

/* Takes what the cursor's last move found out of its pages, under their lock and the GIL: making
 * bytes runs no other Python code. Where another thread has moved it on to nothing, all is empty.
 * LIO_ERR_NOMEM: with a MemoryError raised. */
static int lio_lookup_take(const lio_lookup *l, uint32_t wanted, lio_found *found)
{
    const lio_item nothing = {0}, *item = lio_cursor_item(l->cursor);
    if (item == NULL)
        item = &nothing;
    if (wanted & LIO_WANT_KEY) {
        found->key = PyBytes_FromStringAndSize((const char *)item->key,
                                               (Py_ssize_t)item->key_size);
        if (found->key == NULL)
            return LIO_ERR_NOMEM;
    }
    found->where = item->where;
    found->size = wanted & LIO_WANT_VALUE ? item->data_size : 0;
    if ((wanted & LIO_WANT_VALUE) && (item->data != NULL || item->data_size == 0)) {
        found->value = PyBytes_FromStringAndSize((const char *)item->data,
                                                 (Py_ssize_t)item->data_size);
        if (found->value == NULL)
            return LIO_ERR_NOMEM;
    }
    return LIO_OK;
}

static int lio_lookup_try(const lio_lookup *l, uint32_t move, const char *key, Py_ssize_t key_size,
                          uint32_t wanted, lio_found *found, lio_error *error)
{
    uint64_t late = lio_engine_late_tries();
    int code;
    if (!lio_pages_try_lock(l->guard.pages))
        return LIO_PENDING;
    code = move == LIO_STAY ? LIO_OK
                            : lio_cursor_move_locked(l->cursor, move, (const uint8_t *)key,
                                                     (size_t)key_size, NULL, 0, error);
    if (code == LIO_OK && wanted != 0)
        code = lio_lookup_take(l, wanted, found);
    lio_pages_unlock_tried(l->guard.pages);
    found->has_waited = code == LIO_PENDING || lio_engine_late_tries() != late;
    return code;
}

/* The same, without the GIL where something is to be waited for. */
static int lio_lookup_move(const lio_lookup *l, uint32_t move, const char *key,
                           Py_ssize_t key_size, uint32_t wanted, lio_found *found,
                           lio_error *error)
{
    PyThreadState *state;
    int code = lio_lookup_try(l, move, key, key_size, wanted, found, error);
    if (code != LIO_PENDING)
        return code;
    state = PyEval_SaveThread();
    lio_pages_lock(l->guard.pages);
    code = move == LIO_STAY ? LIO_OK
                            : lio_cursor_move_locked(l->cursor, move, (const uint8_t *)key,
                                                     (size_t)key_size, NULL, 0, error);
    PyEval_RestoreThread(state); /* with the lock: see lio_glue_put */
    if (code == LIO_OK && wanted != 0)
        code = lio_lookup_take(l, wanted, found);
    lio_pages_unlock(l->guard.pages);
    return code;
}

static PyObject *lio_lookup_slice(PyObject *map, uint64_t at, uint64_t size)
{
    PyObject *start = PyLong_FromUnsignedLongLong(at), *slice = NULL, *view = NULL;
    PyObject *stop = PyLong_FromUnsignedLongLong(at + size);
    if (start != NULL && stop != NULL)
        slice = PySlice_New(start, stop, NULL);
    if (slice != NULL)
        view = PyObject_GetItem(map, slice);
    Py_XDECREF(slice);
    Py_XDECREF(stop);
    Py_XDECREF(start);
    return view;
}

/* Lends the value from the mapping, where it reaches so far; `found->value` stays NULL else. */
static int lio_lookup_lend(const lio_lookup *l, lio_found *found, lio_error *error)
{
    const uint8_t *bytes;
    uint64_t size;
    const uint8_t *map = lio_engine_map(lio_pages_engine(l->guard.pages), &size);
    int code = lio_value_lend(l->guard.pages, &found->where, &bytes, error);
    if (code != LIO_OK || bytes == NULL)
        return code;
    lio_snapshot_doubt(l->guard.snapshot);
    found->value = lio_lookup_slice(l->guard.map, (uint64_t)(bytes - map), found->where.length);
    return found->value != NULL ? LIO_OK : LIO_ERR_NOMEM;
}

/* Reads a value in overflow pages into a bytes object of its own. */
static int lio_lookup_value(const lio_lookup *l, lio_found *found, lio_error *error)
{
    uint64_t size = found->where.length, late = lio_engine_late_tries();
    uint8_t *room;
    int code = LIO_PENDING;
    if (l->guard.map != NULL)
        code = lio_lookup_lend(l, found, error);
    if (found->value != NULL || (code != LIO_OK && code != LIO_PENDING))
        return code;
    found->value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (found->value == NULL)
        return LIO_ERR_NOMEM;
    room = (uint8_t *)PyBytes_AsString(found->value);
    code = size > LIO_HELD_BYTES_MAX
               ? LIO_PENDING
               : lio_value_try_read(l->guard.pages, &found->where, room, error);
    found->has_waited |= lio_engine_late_tries() != late;
    if (code == LIO_PENDING) {
        found->has_waited |= size <= LIO_HELD_BYTES_MAX ||
                             !lio_engine_is_mapped(lio_pages_engine(l->guard.pages), &found->where,
                                                   1);
        Py_BEGIN_ALLOW_THREADS code = lio_value_read(l->guard.pages, &found->where, room, error);
        Py_END_ALLOW_THREADS
    }
    return code;
}

static int lio_lookup_view(PyObject **object)
{
    PyObject *view;
    if (*object == NULL || !PyBytes_CheckExact(*object))
        return LIO_OK;
    view = PyMemoryView_FromObject(*object);
    if (view == NULL)
        return LIO_ERR_NOMEM;
    Py_DECREF(*object);
    *object = view;
    return LIO_OK;
}

static int lio_lookup_finish(const lio_lookup *l, uint32_t move, uint32_t wanted, int code,
                             lio_found *found, lio_error *error)
{
    if (code == LIO_OK && (wanted & LIO_WANT_VALUE) && found->value == NULL)
        code = lio_lookup_value(l, found, error);
    if (code == LIO_OK && l->buffers)
        code = lio_lookup_view(&found->key);
    if (code == LIO_OK && l->buffers)
        code = lio_lookup_view(&found->value);
    if (code == LIO_OK)
        lio_engine_count_records(lio_pages_engine(l->guard.pages), move != LIO_STAY ? 1 : 0,
                                 wanted & LIO_WANT_VALUE ? 1 : 0, found->size);
    if (code == LIO_OK || code == LIO_NOTFOUND) {
        /* First: a call of waited() may take seconds, and a writer moves the file on meanwhile. */
        if (lio_guard_vouch(&l->guard) && (code != LIO_OK || !found->has_waited ||
                                           lio_guard_tell_wait(&l->guard, found->where.offset)))
            return code;
    } else {
        (void)lio_guard_raise(&l->guard, code, error);
    }
    Py_CLEAR(found->key);
    Py_CLEAR(found->value);
    return LIO_ERR_ARGUMENT;
}

static int lio_lookup_get(const lio_lookup *l, uint32_t move, const char *key, Py_ssize_t key_size,
                          uint32_t wanted, lio_found *found)
{
    lio_error error;
    int code = lio_lookup_move(l, move, key, key_size, wanted, found, &error);
    return lio_lookup_finish(l, move, wanted, code, found, &error);
}

/* The key as bytes, which the caller owns. */
static PyObject *lio_lookup_key(const lio_lookup *l, PyObject *given)
{
    if (!PyBytes_CheckExact(given))
        return PyObject_CallFunctionObjArgs(l->guard.as_key, given, NULL);
    Py_INCREF(given);
    return given;
}

static int lio_lookup_get_key(const lio_lookup *l, PyObject *given, uint32_t wanted,
                              lio_found *found)
{
    PyObject *key = lio_lookup_key(l, given);
    int code = LIO_ERR_ARGUMENT;
    char *bytes;
    Py_ssize_t size;
    if (key != NULL && PyBytes_AsStringAndSize(key, &bytes, &size) == 0)
        code = lio_lookup_get(l, LIO_MOVE_SET, bytes, size, wanted, found);
    Py_XDECREF(key);
    return code;
}

static PyObject *lio_lookup_find(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    lio_found found = {0};
    int code;
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "find takes a key and a default");
    code = lio_lookup_get_key(PyCapsule_GetPointer(self, LIO_LOOKUP), args[0], LIO_WANT_VALUE,
                              &found);
    if (code != LIO_NOTFOUND)
        return found.value;
    Py_INCREF(args[1]);
    return args[1];
}

static PyObject *lio_lookup_item(const lio_lookup *l, uint32_t wanted)
{
    lio_found found = {0};
    PyObject *item;
    if (lio_lookup_get(l, LIO_STAY, NULL, 0, wanted, &found) != LIO_OK)
        return NULL;
    if (wanted == LIO_WANT_KEY)
        return found.key;
    if (wanted == LIO_WANT_VALUE)
        return found.value;
    item = PyTuple_Pack(2, found.key, found.value);
    Py_DECREF(found.key);
    Py_DECREF(found.value);
    return item;
}

static PyMethodDef LIO_LOOKUP_METHOD = {"find", (PyCFunction)(void (*)(void))lio_lookup_find,
                                        METH_FASTCALL, NULL};

static lio_lookup *lio_lookup_in(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, LIO_LOOKUP);
}

static lio_cursor *lio_glue_lookup_cursor(uintptr_t lookup)
{
    PyGILState_STATE state = PyGILState_Ensure();
    lio_cursor *cursor = lio_lookup_in((PyObject *)lookup)->cursor;
    PyGILState_Release(state);
    return cursor;
}

static lio_lookup *lio_lookup_of(PyObject *find)
{
    PyObject *capsule = find != NULL && PyCFunction_Check(find) ? PyCFunction_GetSelf(find) : NULL;
    return capsule != NULL && PyCapsule_IsValid(capsule, LIO_LOOKUP)
               ? PyCapsule_GetPointer(capsule, LIO_LOOKUP)
               : NULL;
}

static PyObject *lio_lookup_apart(const lio_lookup *like)
{
    lio_lookup l = *like;
    lio_tree *main, *sub;
    lio_error error;
    PyObject *capsule;
    int code;
    lio_cursor_trees(like->cursor, &main, &sub);
    l.is_apart = true;
    if (lio_pages_try_lock(l.guard.pages)) {
        code = lio_cursor_open(l.guard.pages, &main->db, &l.cursor, &error);
        lio_pages_unlock_tried(l.guard.pages);
    } else {
        Py_BEGIN_ALLOW_THREADS code = lio_cursor_open(l.guard.pages, &main->db, &l.cursor, &error);
        Py_END_ALLOW_THREADS
    }
    if (code != LIO_OK)
        return PyErr_NoMemory();
    capsule = lio_guard_capsule(LIO_LOOKUP, &l, sizeof l, lio_lookup_free);
    if (capsule == NULL)
        lio_lookup_close(&l);
    return capsule;
}

static int lio_glue_lookup(lio_cursor *cursor, lio_snapshot *snapshot, uintptr_t keep,
                           uintptr_t as_key, uintptr_t failed, uintptr_t verify, uintptr_t map,
                           uintptr_t waited, uint32_t buffers, uintptr_t list)
{
    lio_lookup l = {.cursor = cursor, .buffers = buffers};
    l.guard = (lio_guard){.pages = lio_cursor_pages(cursor),
                          .snapshot = snapshot,
                          .keep = (PyObject *)keep,
                          .failed = (PyObject *)failed,
                          .verify = (PyObject *)verify,
                          .map = (PyObject *)map == Py_None ? NULL : (PyObject *)map,
                          .waited = (PyObject *)waited == Py_None ? NULL : (PyObject *)waited,
                          .as_key = (PyObject *)as_key};
    return lio_guard_callable(&LIO_LOOKUP_METHOD, LIO_LOOKUP, &l, sizeof l, list);
}
