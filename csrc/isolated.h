// Exceptions that nothing may hold up, and calls that leave no trace in the state of a thread.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>

#include "python.h"

namespace pliant {

// Whether the exception that is set is for the caller whatever happens: an interrupt, an exit, no
// memory.
inline bool must_propagate() {
  return PyErr_ExceptionMatches(PyExc_Exception) == 0 ||
         PyErr_ExceptionMatches(PyExc_MemoryError) != 0;
}

// Forget an exception that means "no", unless nobody may forget it.
inline void clear_harmless() {
  if (PyErr_Occurred() != nullptr && !must_propagate()) PyErr_Clear();
}

// The program's modes see nothing of what we call.
struct WithoutTorchFunction : Pinned {
  using State = at::impl::PythonTorchFunctionTLS;
  WithoutTorchFunction() { State::set_disabled_state(at::impl::ALL_DISABLED); }
  ~WithoutTorchFunction() { State::set_disabled_state(before); }

  const at::impl::TorchFunctionDisabledState before = State::get_disabled_state();
};

extern PyMethodDef isolated_methods[];

}  // namespace pliant
