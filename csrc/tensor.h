// What is expected of a tensor, compared without running Python code.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "python.h"

namespace pliant {

struct ExpectedTensor {
  static constexpr int64_t kAny = std::numeric_limits<int64_t>::min();

  PyObject* type = nullptr;  // the exact class, or null
  int8_t dtype = 0;          // c10::ScalarType
  int8_t device_type = 0;
  int8_t device_index = 0;
  bool requires_grad = false;
  bool has_strides = true;
  uint64_t dispatch_keys = 0;
  int64_t storage_offset = kAny;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;

  // From a `pliant.guards.guard.ExpectedTensor`. False, with a Python error, if it is wrong.
  bool read(PyObject* spec);

  void set_type(PyObject* type);  // unless it is no class of tensors

  // Reading sizes of a tensor with the Python dispatch key may run the user's `__torch_dispatch__`.
  bool may_run_python() const;

  bool matches(PyObject* value) const noexcept;

  // Ask for the memory that `matches` will need.
  void prefetch(PyObject* value) const noexcept;

  bool operator==(const ExpectedTensor&) const = default;
};

// A number: a size or stride of a tensor in a dimension, its storage offset, or an int itself.
enum class Measure : uint8_t { Size, Stride, Offset, Value };

// One of a tensor's; `kAny` if there is none, or if Python code would have to say.
int64_t measure(PyObject* value, Measure what, int64_t dim) noexcept;

// What a tensor is, whatever its sizes.
struct TensorTraits {
  uint64_t dispatch_keys;
  size_t dims;
  int8_t dtype;
  bool requires_grad;
};

// False if it is no tensor, or if Python code would have to say.
bool traits_of(PyObject* value, TensorTraits& traits) noexcept;

void init_tensors();

}  // namespace pliant
