/* glue_monitor: says in one quick call whether a file still has the meta pages that are known.
 *
 * Objects are as in glue_lookup.
 */

/* cdef: skip */
#ifndef LIO_GLUE_MONITOR_H
#define LIO_GLUE_MONITOR_H
#include <string.h>
#include <sys/uio.h>

#include "lookup.h"
/* cdef: resume */

/* Of a meta page, its header included: all that a commit changes there (csrc/format.h). */
enum { LIO_MONITOR_BYTES = 256 };

/* Puts the callable is_unchanged() into the list at address `list`, at 0: whether the file that
 * `engine` reads begins with the `size` bytes at `known`, which `keep` owns with the engine. False
 * as well where that cannot be said at once. 0, or -1 when memory ran out. */
static int lio_glue_monitor(lio_engine *engine, const char *known, size_t size, uintptr_t keep,
                            uintptr_t list);

/* cdef: skip */
typedef struct {
    lio_guard guard; /* first; `keep` alone */
    lio_engine *engine;
    const char *known;
    size_t size;
} lio_monitor;

static const char LIO_MONITOR[] = "lmdbio.monitor";

/* Whether the file has the known bytes in [begin, end); false also where that cannot be said now. */
static bool lio_monitor_part(const lio_monitor *w, size_t begin, size_t end)
{
    char now[LIO_MONITOR_BYTES];
    struct iovec into = {.iov_base = now, .iov_len = end - begin};
    bool is_short = into.iov_len <= sizeof now, same;
    if (!is_short)
        into.iov_base = PyMem_Malloc(into.iov_len);
    same = into.iov_base != NULL && lio_engine_try_read(w->engine, begin, &into, 1, false) &&
           memcmp(into.iov_base, w->known + begin, into.iov_len) == 0;
    if (!is_short)
        PyMem_Free(into.iov_base);
    return same;
}

/* In how many requests it was seen to be the same; 0: it is not, or nothing can be said at once. Out of a
 * mapping the two meta pages are copied apart; one call of the kernel costs more than the bytes between
 * them. */
static unsigned lio_monitor_poll(const lio_monitor *w)
{
    const lio_extent all = {0, w->size};
    if (lio_engine_keeps_state(w->engine))
        return 1;
    if (w->size > 2 * LIO_MONITOR_BYTES && lio_engine_is_mapped(w->engine, &all, 1))
        return lio_monitor_part(w, 0, LIO_MONITOR_BYTES) &&
                       lio_monitor_part(w, w->size - LIO_MONITOR_BYTES, w->size)
                   ? 2
                   : 0;
    return lio_monitor_part(w, 0, w->size);
}

static PyObject *lio_monitor_call(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    return PyBool_FromLong(lio_monitor_poll(PyCapsule_GetPointer(self, LIO_MONITOR)) > 0);
}

/* The monitor of such a callable; NULL where it is another. */
static lio_monitor *lio_monitor_of(PyObject *callable)
{
    PyObject *capsule = PyCFunction_Check(callable) ? PyCFunction_GetSelf(callable) : NULL;
    return capsule != NULL && PyCapsule_IsValid(capsule, LIO_MONITOR)
               ? PyCapsule_GetPointer(capsule, LIO_MONITOR)
               : NULL;
}

/* Whether it is the same, for whom a trace need not be told of it. Then the snapshot of the known state, in
 * which `search` finds, is intact as well: what was read up to now was read before this look. Requests of
 * other threads meanwhile are none of its. */
static bool lio_monitor_is_unchanged(const lio_monitor *w, const lio_lookup *search)
{
    uint64_t before = lio_engine_requests(w->engine);
    unsigned looks;
    if (lio_engine_is_traced(w->engine))
        return false;
    looks = lio_monitor_poll(w);
    if (looks > 0 && w->engine == lio_pages_engine(search->guard.pages))
        __atomic_store_n(&search->guard.snapshot->seen, before + looks, __ATOMIC_RELAXED);
    return looks > 0;
}

static PyMethodDef LIO_MONITOR_METHOD = {"is_unchanged", lio_monitor_call, METH_NOARGS, NULL};

static int lio_glue_monitor(lio_engine *engine, const char *known, size_t size, uintptr_t keep,
                            uintptr_t list)
{
    const lio_monitor w = {{.keep = (PyObject *)keep}, engine, known, size};
    return lio_guard_callable(&LIO_MONITOR_METHOD, LIO_MONITOR, &w, sizeof w, list);
}
#endif
/* cdef: resume */
