#include "binding.h"

#include <algorithm>

namespace pliant {

bool Signature::read(PyObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  Ref names = Ref::owned(PyCode_GetVarnames(code));
  if (!names) return false;
  code_ = Ref::borrowed(reinterpret_cast<PyObject*>(code));
  names_ = std::move(names);
  has_args_ = (code->co_flags & CO_VARARGS) != 0;
  has_kwargs_ = (code->co_flags & CO_VARKEYWORDS) != 0;
  positional_ = code->co_argcount;
  positional_only_ = code->co_posonlyargcount;
  named_ = positional_ + code->co_kwonlyargcount;
  count_ = named_ + has_args_ + has_kwargs_;
  simple_ = count_ == positional_;
  return true;
}

Py_ssize_t Signature::parameter(PyObject* name) const {
  for (Py_ssize_t i = positional_only_; i < named_; ++i) {
    if (PyUnicode_Compare(PyTuple_GET_ITEM(names_.get(), i), name) == 0) return i;
  }
  return -1;
}

bool Signature::bind_keywords(PyObject* const* values, PyObject* kwnames, PyObject** out) const {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); ++k) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    if (!PyUnicode_Check(name)) return false;
    Py_ssize_t i = parameter(name);
    if (i >= 0) {
      if (out[i] != nullptr) return false;
      out[i] = Py_NewRef(values[k]);
    } else if (!has_kwargs_ || PyDict_SetItem(out[count_ - 1], name, values[k]) < 0) {
      return false;
    }
  }
  return true;
}

bool Signature::fill_defaults(PyFunctionObject* function, PyObject** out) const {
  PyObject* defaults = function->func_defaults;
  Py_ssize_t first = positional_ - (defaults != nullptr ? PyTuple_GET_SIZE(defaults) : 0);
  for (Py_ssize_t i = 0; i < positional_; ++i) {
    if (out[i] != nullptr) continue;
    if (i < first) return false;
    out[i] = Py_NewRef(PyTuple_GET_ITEM(defaults, i - first));
  }
  for (Py_ssize_t i = positional_; i < named_; ++i) {
    if (out[i] != nullptr) continue;
    if (function->func_kwdefaults == nullptr) return false;
    PyObject* name = PyTuple_GET_ITEM(names_.get(), i);
    out[i] = Py_XNewRef(PyDict_GetItemWithError(function->func_kwdefaults, name));
    if (out[i] == nullptr) return false;
  }
  return true;
}

bool Signature::bind(PyObject* function, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                     PyObject** out) const {
  if (nargs > positional_ && !has_args_) return false;
  Py_ssize_t given = std::min(nargs, positional_);
  for (Py_ssize_t i = 0; i < given; ++i) out[i] = Py_NewRef(args[i]);
  if (has_args_) {
    out[named_] = tuple_of(args + given, nargs - given);
    if (out[named_] == nullptr) return false;
  }
  if (has_kwargs_ && (out[count_ - 1] = PyDict_New()) == nullptr) return false;
  if (kwnames != nullptr && !bind_keywords(args + nargs, kwnames, out)) return false;
  return fill_defaults(reinterpret_cast<PyFunctionObject*>(function), out);
}

}  // namespace pliant
