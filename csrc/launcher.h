// A compiled graph as data: a list of steps over an array of tensors (slots) and one of numbers
// (values). `launcher_read.cpp` reads it from Python and checks that it makes sense, once;
// `launcher.cpp` runs it. What they mean is said in pliant/_native.pyi.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "arithmetic.h"
#include "cuda.h"
#include "python.h"
#include "stack_machine.h"

namespace pliant {

using Indices = std::vector<int32_t>;

// A number that is read from an argument of the call, or from a tensor.
struct Number {
  enum Kind : uint8_t { Size, Stride, Offset, Int, Float };
  Kind kind;
  int32_t from;  // the slot
  int64_t dim;
};

// An argument of a step, or an output; where a result goes is one of the first five.
struct Item {
  enum Kind : uint8_t { Slot, Int, Float, Bool, Drop, IntAsFloat, Constant, List };
  explicit Item(Kind kind = Constant, int32_t index = -1) : kind(kind), index(index) {}
  Kind kind;
  int32_t index;               // the slot or value
  c10::IValue constant;        // for an operator
  PyObject* object = nullptr;  // the constant for Python
  std::vector<Item> items;     // of a list
  c10::TypePtr item_type;      // of a list for an operator
};

struct Compute { int32_t value; StackProgram program; };

struct Layout { Indices sizes, strides; };

struct CpuEmpty {
  int32_t slot;
  c10::ScalarType dtype;
  Layout layout;
};

struct Empty : CpuEmpty { c10::Device device; };

// What a call must have given: other strides are made these, anything else is a failure.
struct LaidOut : CpuEmpty {};

struct View {
  int32_t slot, of;
  Layout layout;
  int32_t offset;
  std::optional<c10::ScalarType> dtype;
  bool inner = false;    // only operators that return new tensors see it
  bool tracked = false;  // by autograd: it shares memory with an input or another output
};

struct CpuKernel {
  using Function = void (*)(void** buffers, int64_t* sizes, int64_t start, int64_t stop);
  Function function;
  Indices slots;   // -1: the error flag
  Indices values;
  int32_t extent;  // -1: there is no grid
  double cost;     // nanoseconds for an iteration
  bool writes;     // to an input
};

// Kernels none of which reads or writes what another one writes: they share the threads.
struct CpuBatch { std::vector<CpuKernel> kernels; };

struct LaunchCuda {
  std::shared_ptr<CudaKernel> kernel;
  Indices slots, values;
  bool writes = false;  // to an input
};

struct CallOperator {
  c10::OperatorHandle op;
  std::vector<Item> args, results;
};

struct CallPython {
  PyObject* function;
  std::vector<Item> args, results;
  bool writes;  // to what was read of an input
};

// An operation on floats. Where that needs Python, `python` is called with the operands.
struct Calculate {
  Arithmetic function;
  CallPython python;
};

// A number that must not be 0; if it is, `python` is called.
struct Require {
  int32_t value;
  CallPython python;
};

struct ReadNumber { int32_t value; Number number; };
struct ReadItem { int32_t slot; Item result; };  // of a tensor with one element
// Tensors in one memory that must have no element in common; alone, one that must have no two
// elements in one place. Otherwise the fallback runs.
struct Apart {
  Layout one, other;
  int32_t offset, other_offset;
  bool alone, elementwise;
};

// A number that must lie in a range, which is one of floats if `least` is; otherwise the fallback
// runs.
struct InRange {
  int32_t value;
  std::variant<int64_t, double> least, most;
  bool infinite;  // or nan: in the range, too
};

// An argument that nobody else has, or a copy of it, to be overwritten.
struct Take { int32_t slot, argument; };

// What is drawn from here on, on the CPU and on this device, is drawn again by the fallback.
struct KeepRandom { c10::Device device; };
struct Save { int32_t slot; };  // put back before the fallback runs
struct CheckErrors {};
struct Wrote { int32_t input; };
struct Free { Indices slots; };

// Sizes for which PyTorch may lay tensors out in another way: those that are at most their limit.
// `first` is called with such sizes once: with the launcher, which it tells what is called from then
// on (`settled`), the sizes, and the arguments.
struct CheckSizes {
  std::vector<std::pair<int32_t, int64_t>> limits;  // by value
  PyObject* first;
};

using Step = std::variant<Compute, CpuEmpty, Empty, LaidOut, View, CpuKernel, CpuBatch, LaunchCuda,
                          CallOperator, CallPython, Calculate, Require, ReadNumber, ReadItem, Apart,
                          InRange, Save, Take, KeepRandom,
                          CheckErrors, CheckSizes, Wrote, Free>;

// A generator of PyTorch's as it is now: the copy takes half of what its state takes as a tensor.
struct RandomState {
  explicit RandomState(c10::Device device)
      : generator(at::globalContext().defaultGenerator(device)) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    copy = generator.clone();
  }
  void restore() {
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(copy.get_state());
  }
  at::Generator generator, copy;
};

struct LaunchProgram {
  // What an input has to be: a tensor, and one of those that kernels can work on.
  enum Need : uint8_t { Anything, Tensor, Plain };

  std::vector<Need> inputs;
  std::vector<Number> symbols;
  std::vector<Step> steps;
  std::vector<Indices> touched;  // by step: the tensors that it is about
  std::vector<Item> outputs;
  Indices written;
  PyObject *fallback, *info;  // the owner of what is measured
  size_t slot_count = 0;
  size_t value_count = 0;
  std::map<std::string, PyObject*> settled;  // by sizes: what is called instead, null for nothing
  std::vector<Ref> held;  // all Python objects in here, and what keeps machine code alive
};

// The arguments of `Launcher` in Python: a program, which is plain data, and what its numbers stand
// for in this process.
struct Arguments {
  Py_ssize_t inputs = 0;
  PyObject *symbols, *steps, *outputs, *written;             // the program
  PyObject *fallback, *objects = nullptr, *kernels = nullptr, *info = Py_None;  // the bindings
};

// Throws what torch knows how to translate, or a pybind11::cast_error for what is of the wrong type.
std::unique_ptr<LaunchProgram> read_program(const Arguments& arguments);

// A tensor in plain memory of the CPU or a GPU: no subclass, no bit that says that it is to be
// negated.
bool is_plain(const at::Tensor& tensor);

// A call that makes Python objects of tensors only if Python gets to see them.
struct NativeCall {
  std::vector<at::Tensor> arguments;  // where there is no object; gone if the program frees them
  PyObject** objects = nullptr;       // owned by the caller
  // The results from here on are tensors, as many as there is place for; in the tuple they are None.
  Py_ssize_t first = 0;
  std::vector<at::Tensor> results;

  bool takes(Py_ssize_t result) const {
    return result >= first && result < first + std::ssize(results);
  }
};

// Of a launcher, or anything else that can be called. What it returns, usually a tuple, has those
// results in it that are not in `native`; null with a Python error. May throw, too.
PyObject* call_natively(PyObject* callable, PyObject** objects, size_t count, NativeCall& native);

PyTypeObject* init_launcher_type();       // null, with a Python error, if it fails
PyTypeObject* init_autograd_step_type();  // as well

}  // namespace pliant
