// How long calls and steps take, for `pliant.profile()` and reports: spans of time in a buffer that
// Python empties.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

#include "python.h"

namespace pliant {

// What a span is of: a call of a dispatcher, the residual code of an entry, or else the step of a
// launcher that has this number.
enum : int64_t { kCall = -1, kResidual = -2 };

struct Span {
  int64_t what, start, stop;  // nanoseconds of the clock that Python's `monotonic_ns` reads
  int64_t detail;  // of a step: bytes of its tensors; of an entry: when its guards began
};

inline std::atomic<bool> profiling{false};

inline bool is_profiling() { return profiling.load(std::memory_order_relaxed); }

inline int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// With the interpreter's lock. Nothing fails here, and a Python error stays as it is.
void record(PyObject* owner, std::span<const Span> spans) noexcept;

// Measures from here to the end of the block, in which somebody holds the owner.
struct Timer : Pinned {
  Timer(PyObject* owner, int64_t what, int64_t detail = 0)
      : owner(owner), span{what, is_profiling() ? now() : 0, 0, detail} {}
  ~Timer() {
    if (span.start == 0) return;
    span.stop = now();
    record(owner, {&span, 1});
  }
  PyObject* owner;
  Span span;
};

extern PyMethodDef profile_methods[];

}  // namespace pliant
