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
#endif
/* cdef: resume */
