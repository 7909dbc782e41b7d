// Kernels of GPUs, launched through the CUDA driver, which is found when it is first needed: one
// build works with and without it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "python.h"

namespace pliant {

// What the driver wants to know of a launch: `CUDA_KERNEL_NODE_PARAMS` of its C interface.
struct CudaNode {
  void* function;
  uint32_t programs[3], threads[3], shared;
  void** arguments;
  void *extra, *kernel, *context;
};

// Machine code for some arguments, and the tile that one of its programs works on. It is launched by
// a graph whose one node it is: the driver takes half as long to give that other arguments and
// launch it as to launch the kernel.
struct CudaVariant {
  void* function;
  uint32_t threads, shared;
  int64_t rows, columns, most;  // most: programs of a launch
  int64_t scratch;              // bytes of memory for each program

  CudaVariant() = default;
  CudaVariant(const CudaVariant&) = delete;
  ~CudaVariant();
  void launch(const CudaNode& node, void* stream);

 private:
  bool replay(const CudaNode& node, void* stream);
  void make_graph(const CudaNode& node);

  std::mutex mutex_;
  std::optional<void*> stream_;  // of the first launch
  void *graph_ = nullptr, *node_ = nullptr, *ready_ = nullptr;
};

// A kernel in all variants that were needed so far. Python makes others: `make(wide, bits,
// columns, few)`, as `pliant.targets.triton.launch` says.
class CudaKernel {
 public:
  CudaKernel(PyObject* make, bool by_rows, std::vector<bool> wide, uint64_t multiple)
      : make_(make), by_rows_(by_rows), wide_(std::move(wide)), multiple_(multiple) {}

  // The numbers are the extents (outer iterations, rows, columns), the arguments of the kernel, and
  // bounds of its indices.
  void launch(c10::ArrayRef<const at::Tensor*> tensors, c10::ArrayRef<int64_t> numbers);
  size_t arguments() const { return wide_.size(); }

  static constexpr size_t kExtents = 3;

 private:
  struct Key {
    uint64_t multiples;
    uint8_t columns;  // as a power of two
    bool wide;
    bool few;  // rows
    auto operator<=>(const Key&) const = default;
  };
  CudaVariant& variant(const Key& key);

  PyObject* make_;  // held by the program
  bool by_rows_;
  std::vector<bool> wide_;  // arguments that have 64 bits in any case
  uint64_t multiple_;       // that numbers may be
  std::mutex mutex_;
  std::map<Key, CudaVariant> variants_;
};

// Whether the program records PyTorch's current stream of a device as a CUDA graph.
bool is_recording(c10::Device device);

extern PyMethodDef cuda_methods[];

}  // namespace pliant
