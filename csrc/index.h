// Which of many entries a call can fit, by what their guards have in common.
//
// A few questions about the arguments (the value of a number, a size, a class) are asked of the
// call; each entry is filed under the answers that its guards demand. The others need not be tried.
// What demands nothing in particular stands in `rest` and is always tried.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "objects.h"

namespace pliant {

// One question: the way to a value from a parameter, and what is asked of it.
struct Question {
  enum Mode : uint8_t { Equal, Is, Type, Length, Tensor, Size, kModes };
  struct Step {
    Access access;  // InstanceDict, DictItem or SeqItem
    Ref key;
    Py_ssize_t index = 0;
  };

  Py_ssize_t local = 0;
  std::vector<Step> steps;
  Mode mode = Equal;
  int64_t dim = 0;

  // From (local, steps, mode, dim); a step is None (the instance's dictionary), a str (a key) or an
  // int (an index). False, with a Python error, if it is wrong.
  bool read(PyObject* question);

  // What a call answers, as a number; false if nobody knows. Runs no Python code.
  bool ask(PyObject* const* locals, uint64_t& answer) const noexcept;

  // What a guard demands: the constant, object, class or length, the size, or the `ExpectedTensor`.
  bool demanded(PyObject* expected, uint64_t& answer) const;
};

class Index {
 public:
  std::vector<Question> questions;
  Ref text;  // the questions as Python has given them

  // Entries are held by whoever has the index. New ones are in `rest` at first.
  void add(Entry* entry);
  // False, with a Python error, if the answers are wrong.
  bool file(Entry* entry, PyObject* answers);

  // The entries that the call can fit, the most recently used first; false if that is not known.
  bool candidates(PyObject* const* locals, std::vector<Ref>& out) const;
  void touch(Entry* entry) { entry->used = ++clock_; }

 private:
  std::unordered_map<uint64_t, std::vector<Entry*>> buckets_;
  std::vector<Entry*> rest_;
  unsigned long long clock_ = 0;
};

// Sorted by when they were used, the last one first.
void sort_by_use(std::vector<Ref>& entries);

}  // namespace pliant
