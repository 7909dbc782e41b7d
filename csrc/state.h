// PyTorch's global state that decides what a captured function does: grad mode, autocast, modes.
#pragma once

#include <cstdint>
#include <vector>

#include "python.h"

namespace pliant {

// What is compared: name, how it is shown in Python, and the value that is not worth printing. A
// dtype that is not in force is -1.
#define PLIANT_STATE_FIELDS(FIELD)                                                                \
  FIELD(grad_enabled, Bool, -1)                                                                   \
  FIELD(inference, Bool, 0)                                                                       \
  FIELD(forward_grad_enabled, Bool, 1)                                                            \
  FIELD(autocast_cpu, Bool, 0)                                                                    \
  FIELD(autocast_cuda, Bool, 0)                                                                   \
  FIELD(autocast_cpu_dtype, Dtype, -1)                                                            \
  FIELD(autocast_cuda_dtype, Dtype, -1)                                                           \
  FIELD(autocast_cache, Bool, 1)                                                                  \
  FIELD(default_dtype, Dtype, -1)                                                                 \
  FIELD(deterministic, Bool, 0)                                                                   \
  FIELD(deterministic_warn_only, Bool, 0)                                                         \
  FIELD(function_disabled, Int, 0) /* __torch_function__: 1 not for subclasses, 2 not at all */   \
  FIELD(function_modes, Int, 0)                                                                   \
  FIELD(dispatch_modes, Int, 0)                                                                   \
  FIELD(functorch, Bool, 0)                                                                       \
  FIELD(jit_tracing, Bool, 0) /* torch.jit.trace records what operators do */

struct Snapshot {  // no padding: it is compared as bytes
#define PLIANT_MEMBER(name, shown, usual) int32_t name = 0;
  PLIANT_STATE_FIELDS(PLIANT_MEMBER)
#undef PLIANT_MEMBER
  uint64_t included_keys = 0;
  uint64_t excluded_keys = 0;
};

struct State {
  PyObject_HEAD
  Snapshot snapshot;
  std::vector<Ref>* modes;  // torch-function modes, then dispatch modes

  bool holds() const noexcept;  // runs no Python code
};

PyTypeObject* init_state_type();  // null, with a Python error, if it fails
bool is_state(PyObject* object);

}  // namespace pliant
