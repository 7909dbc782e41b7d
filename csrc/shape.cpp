#include "shape.h"

namespace pliant {

namespace {

constexpr int64_t kNone = StackProgram::kNone;
static_assert(kNone == ExpectedTensor::kAny);  // what `measure` gives for a number that is not there

int64_t number_of(PyObject* value) {
  if (!PyLong_CheckExact(value)) return kNone;
  int overflow = 0;
  int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow != 0 ? kNone : number;
}

}  // namespace

bool ShapeCondition::fits(size_t depth) {
  auto has = [this](int64_t i) { return i >= 0 && i < std::ssize(loads_); };
  if (!program_.is_valid(has)) return false;
  stack_.resize(program_.stack_size());
  return program_.depth() <= depth;
}

bool ShapeCondition::holds(PyObject* const* frame) noexcept {
  bool complete = true;
  for (size_t i = 0; i < loads_.size(); ++i) {
    const auto& [cell, what, dim] = loads_[i];
    values_[i] = what == Measure::Value ? number_of(frame[cell]) : measure(frame[cell], what, dim);
    complete &= values_[i] != kNone;
  }
  if (!complete) return false;
  int64_t result = program_.run(values_.data(), stack_.data());
  return result != kNone && result != 0;
}

PyObject* ShapeCondition::found() const {
  Ref tuple = Ref::owned(PyTuple_New(static_cast<Py_ssize_t>(values_.size())));
  for (size_t i = 0; tuple && i < values_.size(); ++i) {
    bool there = values_[i] != kNone;
    PyObject* number = there ? PyLong_FromLongLong(values_[i]) : Py_NewRef(Py_None);
    if (number == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), number);
  }
  return tuple.release();
}

}  // namespace pliant
