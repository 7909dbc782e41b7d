// `Entry`: guards, and the residual code that is right when they hold.
#include "objects.h"

#include <structmember.h>

namespace pliant {

namespace {

PyTypeObject entry_type = blank_type();

Entry* self_of(PyObject* object) { return reinterpret_cast<Entry*>(object); }

PyObject* entry_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"tree", "residual", "info", nullptr};
  PyObject *tree = nullptr, *residual = nullptr, *info = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O", const_cast<char**>(names), &tree,
                                   &residual, &info)) {
    return nullptr;
  }
  if (!is_guard_tree(tree) || !reinterpret_cast<GuardTree*>(tree)->tree->finished()) {
    return PyErr_Format(PyExc_TypeError, "expected a finished GuardTree, got %R", tree);
  }
  if (!PyCallable_Check(residual)) {
    return PyErr_Format(PyExc_TypeError, "%R is not callable", residual);
  }
  PyObject* object = type->tp_alloc(type, 0);
  if (object == nullptr) return nullptr;
  self_of(object)->tree = reinterpret_cast<GuardTree*>(Py_NewRef(tree));
  self_of(object)->residual = Py_NewRef(residual);
  self_of(object)->info = Py_NewRef(info);
  return object;
}

int entry_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(self_of(object)->tree));
  Py_VISIT(self_of(object)->residual);
  Py_VISIT(self_of(object)->info);
  return 0;
}

// Not the tree, which clears itself: a call may still ask it.
int entry_clear(PyObject* object) {
  clear_field(self_of(object)->residual);
  clear_field(self_of(object)->info);
  return 0;
}

void entry_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  entry_clear(object);
  clear_field(self_of(object)->tree);
  Py_TYPE(object)->tp_free(object);
}

PyMemberDef entry_members[] = {
    {"tree", T_OBJECT, offsetof(Entry, tree), READONLY, "The guards."},
    {"residual", T_OBJECT, offsetof(Entry, residual), READONLY, "Called with the slots."},
    {"info", T_OBJECT, offsetof(Entry, info), 0, "Anything."},
    {"hits", T_ULONGLONG, offsetof(Entry, hits), 0, "How often the residual code was run."},
    {nullptr, 0, 0, 0, nullptr}};

}  // namespace

bool is_entry(PyObject* object) { return Py_TYPE(object) == &entry_type; }

PyTypeObject* init_entry_type() {
  entry_type.tp_doc = "Entry(tree, residual, info=None): one compilation of a function.";
  entry_type.tp_new = entry_new;
  entry_type.tp_members = entry_members;
  return ready(entry_type, "pliant._native.Entry", sizeof(Entry), entry_traverse, entry_clear,
               entry_dealloc);
}

}  // namespace pliant
