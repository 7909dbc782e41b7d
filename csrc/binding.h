// The parameters of a Python function, and how the arguments of a call are bound to them.
#pragma once

#include "python.h"

namespace pliant {

class Signature {
 public:
  bool is_of(PyObject* function) const { return code_.get() == PyFunction_GET_CODE(function); }

  // False, with a Python error, if it fails.
  bool read(PyObject* function);

  // The number of parameters: positional, keyword-only, *args, **kwargs, in this order.
  Py_ssize_t count() const { return count_; }

  // The arguments are already the parameters, one for one.
  bool is_exact(Py_ssize_t nargs, PyObject* kwnames) const {
    return simple_ && nargs == positional_ && kwnames == nullptr;
  }

  // Owned values for all parameters; false if Python would refuse the call. Defaults are read from
  // the function as it is now.
  bool bind(PyObject* function, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
            PyObject** out) const;

  PyObject* code() const { return code_.get(); }

 private:
  bool bind_keywords(PyObject* const* values, PyObject* kwnames, PyObject** out) const;
  bool fill_defaults(PyFunctionObject* function, PyObject** out) const;
  Py_ssize_t parameter(PyObject* name) const;

  Ref code_;
  Ref names_;
  bool simple_ = false;
  bool has_args_ = false;
  bool has_kwargs_ = false;
  Py_ssize_t positional_ = 0;
  Py_ssize_t positional_only_ = 0;
  Py_ssize_t named_ = 0;  // positional and keyword-only
  Py_ssize_t count_ = 0;
};

}  // namespace pliant
