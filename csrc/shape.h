// Conditions on sizes of tensors and on ints: programs for the stack machine.
#pragma once

#include <cstdint>
#include <vector>

#include "python.h"
#include "stack_machine.h"
#include "tensor.h"

namespace pliant {

class ShapeCondition {
 public:
  struct Load {
    int32_t cell;  // of the frame; while the tree is built: the node
    Measure what;
    int64_t dim;
  };

  ShapeCondition(std::vector<Load>&& loads, std::vector<int64_t>&& code)
      : loads_(std::move(loads)), program_(std::move(code)), values_(loads_.size()) {}

  // Whether the program can be run, on a stack of this depth. It has to be asked once.
  bool fits(size_t depth);

  std::vector<Load>& loads() { return loads_; }

  // Runs no Python code. What is not there, or not a number, fails the condition.
  bool holds(PyObject* const* frame) noexcept;

  // What `holds` found, with None for what was not there. Null, with a Python error, if it fails.
  PyObject* found() const;

 private:
  std::vector<Load> loads_;
  StackProgram program_;
  std::vector<int64_t> values_;
  std::vector<int64_t> stack_;
};

}  // namespace pliant
