// The Python types of the extension.
#pragma once

#include "python.h"
#include "tree.h"

namespace pliant {

struct GuardTree {
  PyObject_HEAD
  Tree* tree;
};

// One compilation of a function: `residual` is called with the slots of `tree` if its guards hold.
struct Entry {
  PyObject_HEAD
  GuardTree* tree;
  PyObject* residual;
  PyObject* info;
  unsigned long long hits;
  unsigned long long used;  // the larger the later, among the entries of an index
};

bool is_guard_tree(PyObject* object);
bool is_entry(PyObject* object);

// Each returns null, with a Python error, if it fails.
PyTypeObject* init_guard_tree_type();
PyTypeObject* init_entry_type();
PyTypeObject* init_tail_call_type();
PyTypeObject* init_dispatcher_type();

extern PyMethodDef bypass_methods[];

}  // namespace pliant
