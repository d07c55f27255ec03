/* glue_names: handles of databases, as far as C looks at them.
 *
 *   class _Database(Names):   the environment, and the name of a database in it
 */

/* cdef: skip */
#ifndef LIO_GLUE_NAMES_H
#define LIO_GLUE_NAMES_H
#include <stddef.h>
#include <structmember.h>

#include "lookup.h"
/* cdef: resume */

/* Puts the type into the list at address `list`, at 0. 0, or -1 when memory ran out. */
static int lio_names_type(uintptr_t list);

/* cdef: skip */
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
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    (void)lio_names_clear(self);
    release(self);
    Py_DECREF(type);
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
    static PyType_Spec spec = {.name = "lmdbio.Names",
                               .basicsize = sizeof(lio_names),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE |
                                        Py_TPFLAGS_HAVE_GC,
                               .slots = slots};
    return lio_glue_type(&spec, list);
}
#endif
/* cdef: resume */
