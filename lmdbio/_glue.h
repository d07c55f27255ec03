/* glue: builds Python objects in blocks, for lmdbio/_core.py alone.
 *
 * Uses the limited API. cffi calls these without the GIL, so each takes it; objects come and
 * go as addresses (`id(object)` on the Python side) and stay owned by the caller.
 */

/* cdef: skip */
#ifndef LIO_GLUE_H
#define LIO_GLUE_H
#include <Python.h>
#include <stdlib.h>
/* cdef: resume */

/* From the C library, for lmdbio/_core.py's Memory. */
void *aligned_alloc(size_t alignment, size_t size);
void free(void *pointer);

/* Fills the list at address `list` (length >= count, filled with None) with bytes objects cut
 * from `buffer`: object i is buffer[offsets[i] : offsets[i] + lengths[i]]. The caller has
 * checked the bounds. 0, or -1 when memory ran out. */
static int lio_glue_bytes(uintptr_t list, const uint8_t *buffer, const uint64_t *offsets,
                          const uint64_t *lengths, size_t count);

/* cdef: skip */
static int lio_glue_bytes(uintptr_t list, const uint8_t *buffer, const uint64_t *offsets,
                          const uint64_t *lengths, size_t count)
{
    PyGILState_STATE state = PyGILState_Ensure();
    int result = 0;
    for (size_t i = 0; i < count; i++) {
        PyObject *item = PyBytes_FromStringAndSize((const char *)buffer + offsets[i],
                                                   (Py_ssize_t)lengths[i]);
        if (item == NULL || PyList_SetItem((PyObject *)list, (Py_ssize_t)i, item) < 0) {
            PyErr_Clear();
            result = -1;
            break;
        }
    }
    PyGILState_Release(state);
    return result;
}
#endif
/* cdef: resume */
