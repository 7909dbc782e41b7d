// A call that residual code leaves to the dispatcher: it returns what to call instead of calling it, so
// that a loop which breaks the graph in each round does not go one level deeper each time.
#pragma once

#include "python.h"

namespace pliant {

struct TailCall {
  PyObject_HEAD
  PyObject* target;
  PyObject* args;  // a tuple
};

extern PyTypeObject tail_call_type;

inline bool is_tail_call(PyObject* object) { return Py_TYPE(object) == &tail_call_type; }

// A new TailCall; null, with a Python error, if it fails.
PyObject* make_tail_call(PyObject* target, PyObject* const* args, Py_ssize_t nargs);

PyTypeObject* init_tail_call_type();

}  // namespace pliant
