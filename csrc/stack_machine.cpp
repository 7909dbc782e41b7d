#include "stack_machine.h"

#include <algorithm>

namespace pliant {

namespace {

constexpr int64_t kNone = StackProgram::kNone;

// In the order of `OPERATIONS` in pliant/sym/program.py.
enum Operation : int64_t {
  Const, Symbol, Select,
  Abs, IsNotPositive, IsZero, IsNotZero,
  Add, Mul, Pow, FloorDiv, Mod, Min, Max, BitAnd, BitOr, BitXor, And, Or,
  Keep, Kept,
  kOperations,
};

// How many values an operation takes from the stack.
size_t taken(int64_t operation) {
  if (operation <= Symbol || operation == Kept) return 0;
  if (operation == Select) return 3;
  return operation < Add || operation == Keep ? 1 : 2;
}

int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? kNone : result;
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = exponent < 0 ? kNone : 1;
  while (exponent > 0 && result != kNone) {
    if (exponent % 2 == 1) result = product(result, base);
    exponent /= 2;
    if (exponent > 0) base = product(base, base);
    if (base == kNone) return kNone;
  }
  return result;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) return kNone;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// All operations but those on symbols and registers, on what they take.
int64_t compute(int64_t operation, int64_t a, int64_t b, int64_t c) {
  if (operation == Select) return a == kNone ? kNone : a != 0 ? b : c;
  if (a == kNone || (operation >= Add && b == kNone)) return kNone;
  int64_t sum = 0;
  switch (operation) {
    case Abs: return a < 0 ? -a : a;
    case IsNotPositive: return a <= 0;
    case IsZero: return a == 0;
    case IsNotZero: return a != 0;
    case Add: return __builtin_add_overflow(a, b, &sum) ? kNone : sum;
    case Mul: return product(a, b);
    case Pow: return power(a, b);
    case FloorDiv: return floor_divide(a, b);
    case Mod: return b == 0 ? kNone : a - b * floor_divide(a, b);
    case Min: return std::min(a, b);
    case Max: return std::max(a, b);
    case BitAnd: case And: return a & b;
    case BitOr: case Or: return a | b;
    case BitXor: return a ^ b;
    default: return kNone;
  }
}

}  // namespace

bool StackProgram::is_valid(const std::function<bool(int64_t)>& has) {
  size_t height = 0;
  for (size_t i = 0; i + 1 < code_.size(); i += 2) {
    int64_t operation = code_[i];
    if (operation < 0 || operation >= kOperations || height < taken(operation)) return false;
    if (operation == Symbol && !has(code_[i + 1])) return false;
    if (operation == Keep && code_[i + 1] != static_cast<int64_t>(registers_++)) return false;
    if (operation == Kept && (code_[i + 1] < 0 || code_[i + 1] >= static_cast<int64_t>(registers_))) {
      return false;
    }
    height += 1 - taken(operation);
    depth_ = std::max(depth_, height);
  }
  return code_.size() % 2 == 0 && height == 1;
}

int64_t StackProgram::run(const int64_t* values, int64_t* stack) const noexcept {
  int64_t* top = stack;  // above the last value
  int64_t* registers = stack + depth_ + 2;
  for (size_t i = 0; i < code_.size(); i += 2) {
    int64_t operation = code_[i];
    int64_t operand = code_[i + 1];
    top -= taken(operation);
    if (operation <= Symbol) {
      *top = operation == Const ? operand : values[operand];
    } else if (operation == Keep) {
      registers[operand] = *top;
    } else if (operation == Kept) {
      *top = registers[operand];
    } else {
      *top = compute(operation, top[0], top[1], top[2]);
    }
    ++top;
  }
  return stack[0];
}

}  // namespace pliant
