/* glue_fetch: reads a record whose place is known, in one call that is quick while nothing waits.
 *
 * Objects and failures are as in glue_lookup.
 */

/* cdef: skip */
#ifndef LIO_GLUE_FETCH_H
#define LIO_GLUE_FETCH_H
#include <sys/uio.h>

#include "lookup.h"
/* cdef: resume */

/* Puts the callable fetch(offset, length) into the list at address `list`, at 0: the bytes of the
 * file there, by `engine`, which takes any offset. Asks `snapshot`, of `pages`, after each read.
 * The other arguments are as for lio_glue_lookup. 0, or -1 when memory ran out. */
static int lio_glue_fetch(lio_engine *engine, lio_pages *pages, lio_snapshot *snapshot,
                          uintptr_t keep, uintptr_t failed, uintptr_t verify, uintptr_t list);

/* Whether lio_engine_gather got all of it, and it belonged to `snapshot`, of `pages`. If not,
 * `into` may hold anything. */
static bool lio_glue_gather(lio_engine *engine, lio_pages *pages, lio_snapshot *snapshot,
                            const lio_extent *extents, const uint64_t *offsets, size_t count,
                            uint8_t *into, uint64_t room);

/* cdef: skip */
typedef struct {
    lio_engine *engine;
    lio_pages *pages;
    lio_snapshot *snapshot;
    PyObject *keep, *failed, *verify;
} lio_fetch;

static const char LIO_FETCH[] = "lmdbio.fetch";

static void lio_fetch_free(PyObject *capsule)
{
    lio_fetch *f = PyCapsule_GetPointer(capsule, LIO_FETCH);
    Py_DECREF(f->verify);
    Py_DECREF(f->failed);
    Py_DECREF(f->keep);
    PyMem_Free(f);
}

/* Fills `room`: at once where that is possible and short, else without the GIL. LIO_PENDING: it
 * would have to wait, and is not to. */
static int lio_glue_read(lio_engine *engine, uint64_t offset, uint64_t size, uint8_t *room,
                         bool waits, lio_error *error)
{
    struct iovec into = {.iov_base = room, .iov_len = (size_t)size};
    lio_read read = {offset, size, size, room};
    int code = LIO_OK;
    if (size > LIO_HELD_BYTES_MAX || !lio_engine_try_read_checked(engine, offset, &into, 1)) {
        Py_BEGIN_ALLOW_THREADS if (!lio_engine_try_read_checked(engine, offset, &into, 1))
            code = waits ? lio_engine_read(engine, &read, 1, error) : LIO_PENDING;
        Py_END_ALLOW_THREADS
    }
    return code;
}

static PyObject *lio_fetch_call(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    lio_fetch *f = PyCapsule_GetPointer(self, LIO_FETCH);
    unsigned long long offset, size;
    PyObject *value, *done;
    lio_error error;
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
                         &error);
    if (code == LIO_OK && lio_glue_is_still_intact(f->snapshot, f->pages))
        return value;
    done = code == LIO_OK ? PyObject_CallObject(f->verify, NULL)
                          : lio_glue_fail(f->failed, code, &error);
    if (done != NULL && code == LIO_OK) {
        Py_DECREF(done);
        return value;
    }
    if (done != NULL)
        PyErr_SetString(PyExc_SystemError, "a failure that raises nothing");
    Py_XDECREF(done);
    Py_DECREF(value);
    return NULL;
}

static bool lio_glue_gather(lio_engine *engine, lio_pages *pages, lio_snapshot *snapshot,
                            const lio_extent *extents, const uint64_t *offsets, size_t count,
                            uint8_t *into, uint64_t room)
{
    PyGILState_STATE state;
    bool intact;
    if (!lio_engine_gather(engine, extents, offsets, count, into, room))
        return false;
    state = PyGILState_Ensure();
    intact = lio_glue_is_still_intact(snapshot, pages);
    PyGILState_Release(state);
    return intact;
}

static PyMethodDef LIO_FETCH_METHOD = {"fetch", (PyCFunction)(void (*)(void))lio_fetch_call,
                                       METH_FASTCALL, NULL};

static int lio_glue_fetch(lio_engine *engine, lio_pages *pages, lio_snapshot *snapshot,
                          uintptr_t keep, uintptr_t failed, uintptr_t verify, uintptr_t list)
{
    PyGILState_STATE state = PyGILState_Ensure();
    lio_fetch *f = PyMem_Malloc(sizeof *f);
    PyObject *capsule = NULL, *callable = NULL;
    int result = -1;
    if (f != NULL) {
        *f = (lio_fetch){
            engine, pages, snapshot, (PyObject *)keep, (PyObject *)failed, (PyObject *)verify};
        capsule = PyCapsule_New(f, LIO_FETCH, lio_fetch_free);
    }
    if (capsule != NULL) {
        Py_INCREF(f->keep);
        Py_INCREF(f->failed);
        Py_INCREF(f->verify);
        callable = PyCFunction_NewEx(&LIO_FETCH_METHOD, capsule, NULL);
        Py_DECREF(capsule);
    } else {
        PyMem_Free(f);
    }
    if (callable != NULL && PyList_SetItem((PyObject *)list, 0, callable) == 0)
        result = 0;
    PyErr_Clear();
    PyGILState_Release(state);
    return result;
}
#endif
/* cdef: resume */
