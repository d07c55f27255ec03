/* glue: builds Python objects in blocks, for lmdbio/_core alone.
 *
 * Uses the limited API. cffi calls these without the GIL, so each takes it; objects come and
 * go as addresses (`id(object)` on the Python side) and stay owned by the caller.
 */

/* cdef: skip */
#ifndef LIO_GLUE_H
#define LIO_GLUE_H
#include <Python.h>
/* cdef: resume */

/* Fills the list at address `list` (length >= count, filled with None) with bytes objects cut
 * from `buffer`: object i is buffer[offsets[i] : offsets[i] + lengths[i]]. The caller has
 * checked the bounds. 0, or -1 when memory ran out. */
static int lio_glue_bytes(uintptr_t list, const uint8_t *buffer, const uint64_t *offsets,
                          const uint64_t *lengths, size_t count);

/* Fills the list at address `list` (length >= first + count, filled with None) from `first` on
 * with bytes objects into which these extents of the file are read, by lio_engine_scatter. */
static int lio_glue_read(lio_engine *engine, const lio_extent *extents, size_t first, size_t count,
                         uintptr_t list, lio_error *error);

/* Hides the object at address `object` from the garbage collector, which then neither visits nor
 * finalizes it: its reference count alone says when it ends. It must be tracked. */
static void lio_glue_untrack(uintptr_t object);

/* What of an item is wanted, in lio_glue_item and lio_glue_move. */
enum { LIO_WANT_KEY = 1, LIO_WANT_VALUE = 2 };

/* Puts the key and the value (which is read if need be) of the cursor's last move into the
 * list at address `list`, at 0 and 1. LIO_NOTFOUND when that move failed. */
static int lio_glue_item(lio_cursor *cursor, uint32_t wanted, uintptr_t list, lio_error *error);

/* lio_cursor_move, and lio_glue_item where it ends. */
static int lio_glue_move(lio_cursor *cursor, uint32_t move, const uint8_t *key, size_t key_size,
                         const uint8_t *data, size_t data_size, uint32_t wanted,
                         uintptr_t list, lio_error *error);

/* Fills the lists `keys` and `values` (length `count`; 0: not wanted) with the loaded records
 * [first, first + count) of the scan; large values are read here. */
static int lio_glue_scan(const lio_scan *scan, size_t first, size_t count, uintptr_t keys,
                         uintptr_t values, lio_error *error);

/* lio_scan_load, and the same for what is loaded then: appends to the lists (empty ones, made for
 * this; 0: not wanted). `*count` as in lio_scan_load. */
static int lio_glue_load(lio_scan *scan, size_t first, size_t *count, uintptr_t keys,
                         uintptr_t values, lio_error *error);

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

/* As many of the objects as one call of the kernel serves. */
enum { LIO_GLUE_READS = 32 };

/* Makes the objects, and says where they are to be filled. Returns how many it could make. */
static size_t lio_glue_rooms(const lio_extent *extents, size_t count, uintptr_t list,
                             size_t first, lio_read *reads)
{
    PyGILState_STATE state = PyGILState_Ensure();
    size_t made = 0;
    for (; made < count; made++) {
        const lio_extent *e = &extents[made];
        PyObject *item = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)e->length);
        if (item == NULL)
            break;
        reads[made] = (lio_read){e->offset, e->length, e->length,
                                 (uint8_t *)PyBytes_AsString(item)};
        if (PyList_SetItem((PyObject *)list, (Py_ssize_t)(first + made), item) < 0)
            break;
    }
    if (made < count)
        PyErr_Clear();
    PyGILState_Release(state);
    return made;
}

/* The list is nobody else's until this returns, so no one sees the objects half filled. */
static int lio_glue_read(lio_engine *engine, const lio_extent *extents, size_t first, size_t count,
                         uintptr_t list, lio_error *error)
{
    lio_read reads[LIO_GLUE_READS];
    int code = LIO_OK;
    while (count > 0 && code == LIO_OK) {
        size_t now = count < LIO_GLUE_READS ? count : LIO_GLUE_READS;
        if (lio_glue_rooms(extents, now, list, first, reads) < now)
            return lio_fail(error, LIO_ERR_NOMEM, 0, 0, 0, "no memory for a record");
        code = lio_engine_scatter(engine, reads, now, error);
        extents += now;
        first += now;
        count -= now;
    }
    return code;
}

static void lio_glue_untrack(uintptr_t object)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject_GC_UnTrack((PyObject *)object);
    PyGILState_Release(state);
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

static int lio_glue_item(lio_cursor *cursor, uint32_t wanted, uintptr_t list, lio_error *error)
{
    lio_pages *pages = lio_cursor_pages(cursor);
    const lio_item *item;
    char *room;
    int code = LIO_OK;
    lio_pages_lock(pages);
    item = lio_cursor_item(cursor);
    if (item == NULL)
        code = LIO_NOTFOUND;
    if (code == LIO_OK && (wanted & LIO_WANT_KEY))
        code = lio_glue_put(list, 0, item->key, item->key_size, NULL, error);
    if (code == LIO_OK && (wanted & LIO_WANT_VALUE)) {
        code = lio_glue_put(list, 1, item->data, item->data_size, &room, error);
        if (code == LIO_OK && item->data == NULL && item->data_size != 0)
            code = lio_value_read(pages, &item->where, (uint8_t *)room, error);
        if (code == LIO_OK)
            lio_engine_handed_out(lio_pages_engine(pages), 0, 1, item->data_size);
    }
    lio_pages_unlock(pages);
    return code;
}

static int lio_glue_move(lio_cursor *cursor, uint32_t move, const uint8_t *key, size_t key_size,
                         const uint8_t *data, size_t data_size, uint32_t wanted,
                         uintptr_t list, lio_error *error)
{
    lio_pages *pages = lio_cursor_pages(cursor);
    int code;
    lio_pages_lock(pages);
    code = lio_cursor_move(cursor, move, key, key_size, data, data_size, NULL, error);
    if (code == LIO_OK)
        lio_engine_handed_out(lio_pages_engine(pages), 1, 0, 0);
    if (code == LIO_OK && wanted != 0)
        code = lio_glue_item(cursor, wanted, list, error);
    lio_pages_unlock(pages);
    return code;
}

/* Makes one bytes object in a list. A value that is not in memory is read into it, and `*begun`,
 * when the copying began, becomes the end of that. */
static int lio_glue_record(const lio_scan *scan, const lio_record *record, int is_value,
                           uintptr_t list, size_t at, uint64_t *begun, lio_error *error)
{
    const uint8_t *bytes = is_value ? record->value : record->key;
    uint64_t size = is_value ? record->value_size : record->key_size;
    PyObject *item = PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)size);
    int code = LIO_OK;
    if (item != NULL && bytes == NULL && size != 0) {
        uint8_t *room = (uint8_t *)PyBytes_AsString(item);
        Py_BEGIN_ALLOW_THREADS
        *begun = lio_now_ns();
        code = lio_value_read(lio_scan_pages(scan), &record->where, room, error);
        lio_engine_stage(lio_pages_engine(lio_scan_pages(scan)), LIO_STAGE_WAIT, *begun, size);
        *begun = lio_now_ns();
        Py_END_ALLOW_THREADS
    }
    if (code != LIO_OK) {
        Py_XDECREF(item);
        return code;
    }
    if (item == NULL || PyList_SetItem((PyObject *)list, (Py_ssize_t)at, item) < 0) {
        PyErr_Clear();
        return lio_fail(error, LIO_ERR_NOMEM, 0, size, 0, "no memory for a record");
    }
    return LIO_OK;
}

static int lio_glue_scan(const lio_scan *scan, size_t first, size_t count, uintptr_t keys,
                         uintptr_t values, lio_error *error)
{
    PyGILState_STATE state;
    uint64_t begun, bytes = 0;
    int code = LIO_OK;
    lio_pages_lock(lio_scan_pages(scan)); /* before the GIL, see lio_glue_put */
    state = PyGILState_Ensure();
    begun = lio_now_ns();
    for (size_t i = 0; i < count && code == LIO_OK; i++) {
        lio_record record;
        code = lio_scan_record(scan, first + i, &record, error);
        if (keys != 0 && code == LIO_OK)
            code = lio_glue_record(scan, &record, 0, keys, i, &begun, error);
        if (values != 0 && code == LIO_OK)
            code = lio_glue_record(scan, &record, 1, values, i, &begun, error);
        bytes += values != 0 && code == LIO_OK ? record.value_size : 0;
    }
    lio_engine_stage(lio_pages_engine(lio_scan_pages(scan)), LIO_STAGE_COPY, begun, bytes);
    PyGILState_Release(state);
    lio_pages_unlock(lio_scan_pages(scan));
    return code;
}

/* Lengthens a list by `count` times None. */
static int lio_glue_lengthen(uintptr_t list, size_t count)
{
    for (size_t i = 0; list != 0 && i < count; i++)
        if (PyList_Append((PyObject *)list, Py_None) < 0)
            return -1;
    return 0;
}

static int lio_glue_load(lio_scan *scan, size_t first, size_t *count, uintptr_t keys,
                         uintptr_t values, lio_error *error)
{
    lio_pages *pages = lio_scan_pages(scan);
    PyGILState_STATE state;
    int code, made;
    lio_pages_lock(pages); /* before the GIL, see lio_glue_put */
    code = lio_scan_load(scan, first, count, error);
    if (code == LIO_OK) {
        state = PyGILState_Ensure();
        made = lio_glue_lengthen(keys, *count);
        if (made == 0)
            made = lio_glue_lengthen(values, *count);
        if (made < 0)
            PyErr_Clear();
        PyGILState_Release(state);
        code = made < 0 ? lio_fail(error, LIO_ERR_NOMEM, 0, 0, *count, "no memory for records")
                        : lio_glue_scan(scan, first, *count, keys, values, error);
    }
    lio_pages_unlock(pages);
    return code;
}
#endif
/* cdef: resume */
