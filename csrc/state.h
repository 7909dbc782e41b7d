// PyTorch's global state that decides what a captured function does: grad mode, autocast, modes.
#pragma once

#include <cstdint>
#include <vector>

#include "python.h"

namespace pliant {

// One number for each thing compared; a dtype that is not in force is -1.
struct Snapshot {
  uint64_t included_keys = 0;
  uint64_t excluded_keys = 0;
  int32_t grad_enabled = 0;
  int32_t inference = 0;
  int32_t forward_grad_enabled = 0;
  int32_t autocast_cpu = 0;
  int32_t autocast_cuda = 0;
  int32_t autocast_cpu_dtype = -1;
  int32_t autocast_cuda_dtype = -1;
  int32_t autocast_cache = 0;
  int32_t default_dtype = 0;
  int32_t deterministic = 0;
  int32_t deterministic_warn_only = 0;
  int32_t function_disabled = 0;  // __torch_function__: 0 works, 1 not for subclasses, 2 not at all
  int32_t function_modes = 0;
  int32_t dispatch_modes = 0;
  int32_t functorch = 0;
  int32_t unused = 0;  // no padding: it is compared as bytes
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
