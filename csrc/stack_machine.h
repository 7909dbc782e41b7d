// The stack machine of 64-bit integers of `pliant/sym/program.py`, which defines what a program is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace pliant {

class StackProgram {
 public:
  // What has no value: a division by 0, an overflow, what is computed from that.
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::min();

  explicit StackProgram(std::vector<int64_t>&& code) : code_(std::move(code)) {}

  // Whether the program can be run, if `has` says which values are there. To be asked before `run`.
  bool is_valid(const std::function<bool(int64_t)>& has);

  size_t depth() const { return depth_; }        // of values it leaves on the stack
  // An operation on one value is shown three. Registers lie behind them.
  size_t stack_size() const { return depth_ + 2 + registers_; }

  int64_t run(const int64_t* values, int64_t* stack) const noexcept;

 private:
  std::vector<int64_t> code_;  // operation and operand in turn
  size_t depth_ = 0;
  size_t registers_ = 0;
};

}  // namespace pliant
