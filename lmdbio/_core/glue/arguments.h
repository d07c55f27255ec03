/* glue_arguments: what Python passes to a call, and calls of Python's methods with it. */

/* cdef: skip */
#ifndef LIO_GLUE_ARGUMENTS_H
#define LIO_GLUE_ARGUMENTS_H
#include <Python.h>
#include <stdbool.h>

static PyObject *lio_call(PyObject *self, const char *method, PyObject *arguments,
                          PyObject *keywords)
{
    PyObject *bound = PyObject_GetAttrString(self, method), *result = NULL;
    if (bound != NULL)
        result = PyObject_Call(bound, arguments, keywords);
    Py_XDECREF(bound);
    return result;
}

/* The same, with arguments as METH_FASTCALL | METH_KEYWORDS passes them. */
static PyObject *lio_call_fast(PyObject *self, const char *method, PyObject *const *args,
                               Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    PyObject *arguments = PyTuple_New(count), *keywords = NULL, *result = NULL;
    bool failed = arguments == NULL;
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        Py_INCREF(args[i]);
        failed = PyTuple_SetItem(arguments, i, args[i]) < 0;
    }
    if (!failed && named > 0)
        failed = (keywords = PyDict_New()) == NULL;
    for (Py_ssize_t i = 0; i < named && !failed; i++)
        failed = PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]) < 0;
    if (!failed)
        result = lio_call(self, method, arguments, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    return result;
}

/* Sorts arguments by their names, of which there are `many`; `given` has what each is when it is not said.
 * False: there are too many, or others. */
static bool lio_sort(PyObject *const *args, Py_ssize_t count, PyObject *names,
                     const char *const *known, Py_ssize_t many, PyObject **given)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    if (count > many)
        return false;
    for (Py_ssize_t i = 0; i < count; i++)
        given[i] = args[i];
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        Py_ssize_t at = 0;
        while (at < many && PyUnicode_CompareWithASCIIString(name, known[at]) != 0)
            at++;
        if (at == many || at < count)
            return false;
        given[at] = args[count + i];
    }
    return true;
}

/* 0 or 1 as `value` says no or yes at once; -1: it is another object. */
static int lio_said(PyObject *value)
{
    return value == Py_True ? 1 : value == Py_False || value == Py_None ? 0 : -1;
}
#endif
/* cdef: resume */
