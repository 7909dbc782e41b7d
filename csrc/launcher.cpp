// `Launcher`: runs a compiled graph. All that belongs to one call is on the stack of that call, so
// that several threads can be in the same launcher, and a step in Python may call it again.
#include "launcher.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <c10/util/MaybeOwned.h>
#include <c10/util/SmallVector.h>
#include <pthread.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace pliant {

namespace {

// Work, in nanoseconds: what is worth to be shared among threads, the least that one of them gets,
// and what is worth to let other Python threads run meanwhile.
constexpr double kParallel = 20'000;
constexpr double kGrain = 10'000;
constexpr double kRelease = 50'000;

// The threads of OpenMP's pool do not survive a fork, and it would wait for them.
std::atomic<bool> forked{false};

// The interpreter's lock, given up for long work and kept so until Python is needed.
class Lock {
 public:
  Lock() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { take(); }
  void release() {
    if (state_ == nullptr) state_ = PyEval_SaveThread();
  }
  void take() {
    if (state_ != nullptr) PyEval_RestoreThread(std::exchange(state_, nullptr));
  }

 private:
  PyThreadState* state_ = nullptr;
};

// A tensor in plain memory of the CPU: no subclass, no bit that says that it is to be negated.
bool is_plain(const at::Tensor& tensor) {
  static const uint64_t usual =
      at::detail::empty_cpu({0}, c10::ScalarType::Float).key_set().raw_repr();
  c10::DispatchKeySet keys = tensor.key_set();
  return (keys.raw_repr() & ~usual) == 0 && keys.has_backend(c10::BackendComponent::CPUBit);
}

// Whether a kernel that writes one could change the other.
bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  const c10::Storage &x = a.storage(), &y = b.storage();
  auto start = [](const c10::Storage& s) { return reinterpret_cast<uintptr_t>(s.data()); };
  return x.is_alias_of(y) ||
         (start(x) < start(y) + y.nbytes() && start(y) < start(x) + x.nbytes());
}

double as_double(int64_t bits) { return std::bit_cast<double>(bits); }

class Run {
 public:
  Run(const LaunchProgram& program, PyObject* const* args)
      : program_(program), args_(args), values_(program.value_count), slots_(program.slot_count) {}

  // A tuple, or what the fallback returned; null with a Python error.
  PyObject* run();

 private:
  bool take_inputs();
  bool read_symbols();
  bool may_write() const;
  PyObject* fall_back();
  PyObject* outputs();

  // The steps: false to give up and fall back.
  bool step(const Compute& step);
  bool step(const Allocate& step);
  bool step(const View& step);
  bool step(const RunKernel& step);
  bool step(const CallOperator& step);
  bool step(const CallPython& step);
  bool step(const ReadNumber& step);
  bool step(const CheckErrors&) { return failed_ == 0; }
  bool step(const Wrote& step);
  bool step(const Free& step);

  const at::Tensor& tensor(int32_t slot) const { return *slots_[slot]; }
  void set(int32_t slot, at::Tensor&& tensor) {
    slots_[slot] = c10::MaybeOwned<at::Tensor>::owned(std::move(tensor));
  }
  c10::DimVector numbers(const Indices& values) const;
  int64_t number(const at::Tensor& tensor, const Number& number) const;
  c10::IValue ivalue(const Argument& argument) const;
  PyObject* object(const Argument& argument) const;
  void store(const std::vector<Result>& results, size_t i, c10::IValue value);
  void store_all(const std::vector<Result>& results, size_t& i, PyObject* value);

  const LaunchProgram& program_;
  PyObject* const* args_;
  int64_t failed_ = 0;  // the error flag
  c10::SmallVector<int64_t, 64> values_;
  c10::SmallVector<c10::MaybeOwned<at::Tensor>, 24> slots_;
  Lock lock_;
};

PyObject* Run::run() {
  if (!take_inputs() || !read_symbols() || !may_write()) return fall_back();
  for (const Step& step : program_.steps) {
    bool good = std::visit([this](const auto& step) { return this->step(step); }, step);
    if (!good) return fall_back();
  }
  return outputs();
}

PyObject* Run::fall_back() {
  slots_.clear();
  lock_.take();
  return PyObject_Vectorcall(program_.fallback.get(), args_, program_.inputs.size(), nullptr);
}

// Inputs ------------------------------------------------------------------------------------------

// The caller holds the arguments, so they need not be owned.
bool Run::take_inputs() {
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    LaunchProgram::Need need = program_.inputs[i];
    if (need == LaunchProgram::Anything) continue;
    TORCH_CHECK_TYPE(THPVariable_Check(args_[i]), "argument ", i, " must be a tensor, not ",
                     Py_TYPE(args_[i])->tp_name);
    const at::Tensor& tensor = THPVariable_Unpack(args_[i]);
    if (need == LaunchProgram::Plain && !is_plain(tensor)) return false;
    slots_[i] = c10::MaybeOwned<at::Tensor>::borrowed(tensor);
  }
  return true;
}

int64_t Run::number(const at::Tensor& tensor, const Number& number) const {
  if (number.kind == Number::Offset) return tensor.storage_offset();
  c10::IntArrayRef all = number.kind == Number::Size ? tensor.sizes() : tensor.strides();
  TORCH_CHECK(number.dim >= 0 && static_cast<size_t>(number.dim) < all.size(),
              "a tensor of ", all.size(), " dimensions has no dimension ", number.dim);
  return all[number.dim];
}

// False for an int beyond 64 bits.
bool Run::read_symbols() {
  for (size_t i = 0; i < program_.symbols.size(); ++i) {
    const Number& symbol = program_.symbols[i];
    if (symbol.kind <= Number::Offset) {
      values_[i] = number(tensor(symbol.from), symbol);
      continue;
    }
    PyObject* arg = args_[symbol.from];
    bool wants_int = symbol.kind == Number::Int;
    TORCH_CHECK_TYPE(wants_int ? PyLong_Check(arg) : PyFloat_Check(arg), "argument ", symbol.from,
                     " must be ", wants_int ? "an int" : "a float", ", not ",
                     Py_TYPE(arg)->tp_name);
    int overflow = 0;
    values_[i] = wants_int ? PyLong_AsLongLongAndOverflow(arg, &overflow)
                           : std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(arg));
    if (wants_int && (overflow != 0 || values_[i] == StackProgram::kNone)) return false;
  }
  return true;
}

bool Run::may_write() const {
  for (int32_t written : program_.written) {
    if (at::has_internal_overlap(tensor(written)) == at::MemOverlap::Yes) return false;
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      bool other = static_cast<int32_t>(i) != written && slots_[i]->defined();
      if (other && share_memory(tensor(written), *slots_[i])) return false;
    }
  }
  return true;
}

// Steps -------------------------------------------------------------------------------------------

c10::DimVector Run::numbers(const Indices& values) const {
  c10::DimVector found(values.size());
  for (size_t i = 0; i < values.size(); ++i) found[i] = values_[values[i]];
  return found;
}

bool Run::step(const Compute& step) {
  c10::SmallVector<int64_t, 32> stack(step.program.stack_size());
  int64_t result = step.program.run(values_.data(), stack.data());
  TORCH_CHECK(result != StackProgram::kNone,
              "a size of this graph is beyond 64 bits, or a division by zero");
  values_[step.value] = result;
  return true;
}

bool Run::step(const Allocate& step) {
  at::TensorBase made =
      at::detail::empty_strided_cpu(numbers(step.sizes), numbers(step.strides), step.dtype);
  set(step.slot, at::Tensor(std::move(made)));
  return true;
}

// Nobody but this graph sees the tensor it is a view of, so that autograd need not know.
at::Tensor inner_view(const at::Tensor& of, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      int64_t offset, c10::ScalarType dtype) {
  size_t item = c10::elementSize(dtype);
  size_t start = of.storage_offset() * of.element_size();
  TORCH_CHECK(start % item == 0, "a view as ", dtype, " has to start at a multiple of its size");
  offset += static_cast<int64_t>(start / item);
  size_t end = at::detail::computeStorageNbytes(sizes, strides, item, offset);
  TORCH_CHECK(offset >= 0 && end <= of.storage().nbytes(), "a view beyond the tensor's memory");
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(of.storage()), of.key_set(),
      c10::scalarTypeToTypeMeta(dtype));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return made;
}

bool Run::step(const View& step) {
  const at::Tensor& of = tensor(step.of);
  c10::DimVector sizes = numbers(step.sizes), strides = numbers(step.strides);
  int64_t offset = values_[step.offset];
  c10::ScalarType dtype = step.dtype.value_or(of.scalar_type());
  if (!step.of_input) {
    set(step.slot, inner_view(of, sizes, strides, offset, dtype));
    return true;
  }
  at::Tensor base = dtype == of.scalar_type() ? of : of.view(dtype);
  set(step.slot, at::as_strided(base, sizes, strides, base.storage_offset() + offset));
  return true;
}

bool Run::step(const RunKernel& step) {
  c10::SmallVector<void*, 16> buffers(step.slots.size());
  c10::SmallVector<int64_t, 16> sizes(step.values.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (step.slots[i] < 0) {
      buffers[i] = &failed_;
      continue;
    }
    const at::Tensor& buffer = tensor(step.slots[i]);
    TORCH_CHECK(is_plain(buffer), "a kernel got a tensor that is not plain memory of the CPU");
    buffers[i] = buffer.mutable_data_ptr();
  }
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = values_[step.values[i]];
  int64_t extent = step.extent < 0 ? 1 : values_[step.extent];
  if (extent <= 0) return true;
  double work = static_cast<double>(extent) * step.cost;
  if (work > kRelease) lock_.release();
  if (work > kParallel && !forked.load(std::memory_order_relaxed)) {
    auto grain = static_cast<int64_t>(std::ceil(kGrain / step.cost));
    at::parallel_for(0, extent, grain, [&](int64_t start, int64_t stop) {
      step.function(buffers.data(), sizes.data(), start, stop);
    });
  } else {
    step.function(buffers.data(), sizes.data(), 0, extent);
  }
  return true;
}

bool Run::step(const CallOperator& step) {
  torch::jit::Stack stack;
  stack.reserve(step.args.size());
  for (const Argument& argument : step.args) stack.push_back(ivalue(argument));
  lock_.release();
  {
    at::AutoDispatchBelowADInplaceOrView below;
    step.op.callBoxed(stack);
  }
  size_t count = 0;
  for (c10::IValue& value : stack) {
    if (!value.isTensorList()) {
      store(step.results, count++, std::move(value));
      continue;
    }
    for (const at::Tensor& tensor : value.toTensorVector()) store(step.results, count++, tensor);
  }
  TORCH_CHECK(count == step.results.size(), step.op.operator_name(), " returned ", count,
              " results instead of ", step.results.size());
  return true;
}

bool Run::step(const CallPython& step) {
  lock_.take();
  Values args(step.args.size());
  for (size_t i = 0; i < step.args.size(); ++i) {
    args[i] = object(step.args[i]);
    if (args[i] == nullptr) throw python_error();
  }
  size_t nargs = step.args.size() | PY_VECTORCALL_ARGUMENTS_OFFSET;
  Ref result =
      Ref::owned(PyObject_Vectorcall(step.function.get(), args.data(), nargs, nullptr));
  if (!result) throw python_error();
  size_t count = 0;
  store_all(step.results, count, result.get());
  TORCH_CHECK(count == step.results.size(), "a call returned ", count, " results instead of ",
              step.results.size());
  return true;
}

bool Run::step(const ReadNumber& step) {
  values_[step.value] = number(tensor(step.number.from), step.number);
  return true;
}

bool Run::step(const Wrote& step) {
  const at::Tensor& input = tensor(step.input);
  if (!input.is_inference()) input.unsafeGetTensorImpl()->bump_version();
  return true;
}

bool Run::step(const Free& step) {
  for (int32_t slot : step.slots) slots_[slot] = c10::MaybeOwned<at::Tensor>();
  return true;
}

// Arguments and results ---------------------------------------------------------------------------

c10::IValue Run::ivalue(const Argument& argument) const {
  switch (argument.kind) {
    case Argument::Slot: return tensor(argument.index);
    case Argument::Int: return values_[argument.index];
    case Argument::IntAsFloat: return static_cast<double>(values_[argument.index]);
    case Argument::Float: return as_double(values_[argument.index]);
    case Argument::Bool: return values_[argument.index] != 0;
    case Argument::Constant: return argument.constant;
    case Argument::List: break;
  }
  c10::impl::GenericList list(argument.item_type);
  list.reserve(argument.items.size());
  for (const Argument& item : argument.items) list.push_back(ivalue(item));
  return list;
}

// A new reference; null with a Python error.
PyObject* Run::object(const Argument& argument) const {
  switch (argument.kind) {
    case Argument::Slot:
      if (static_cast<size_t>(argument.index) < program_.inputs.size()) {
        return Py_NewRef(args_[argument.index]);
      }
      return THPVariable_Wrap(tensor(argument.index));
    case Argument::Int: return PyLong_FromLongLong(values_[argument.index]);
    case Argument::IntAsFloat:
    case Argument::Float: return PyFloat_FromDouble(as_double(values_[argument.index]));
    case Argument::Bool: return PyBool_FromLong(values_[argument.index] != 0);
    case Argument::Constant: return Py_NewRef(argument.object.get());
    case Argument::List: break;
  }
  auto count = static_cast<Py_ssize_t>(argument.items.size());
  Ref list = Ref::owned(PyList_New(count));
  for (Py_ssize_t i = 0; list && i < count; ++i) {
    PyObject* item = object(argument.items[i]);
    if (item == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), i, item);
  }
  return list.release();
}

PyObject* Run::outputs() {
  lock_.take();
  auto count = static_cast<Py_ssize_t>(program_.outputs.size());
  Ref tuple = Ref::owned(PyTuple_New(count));
  for (Py_ssize_t i = 0; tuple && i < count; ++i) {
    PyObject* output = object(program_.outputs[i]);
    if (output == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), i, output);
  }
  return tuple.release();
}

void Run::store(const std::vector<Result>& results, size_t i, c10::IValue value) {
  if (i >= results.size()) return;  // counted by the caller
  const Result& result = results[i];
  switch (result.kind) {
    case Result::Slot:
      set(result.index, value.isNone() ? at::Tensor() : std::move(value).toTensor());
      break;
    case Result::Int: values_[result.index] = value.toScalar().toLong(); break;
    case Result::Bool: values_[result.index] = value.toScalar().toBool(); break;
    case Result::Float:
      values_[result.index] = std::bit_cast<int64_t>(value.toScalar().toDouble());
      break;
    case Result::Drop: break;
  }
}

// A tuple or list stands for its items.
void Run::store_all(const std::vector<Result>& results, size_t& i, PyObject* value) {
  if (PyTuple_Check(value) || PyList_Check(value)) {
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(value); ++k) {
      Ref item = Ref::borrowed(PySequence_Fast_GET_ITEM(value, k));
      store_all(results, i, item.get());
    }
    return;
  }
  size_t place = i++;
  if (place >= results.size() || results[place].kind == Result::Drop) return;
  if (THPVariable_Check(value)) {
    store(results, place, THPVariable_Unpack(value));
    return;
  }
  bool wants_number = results[place].kind != Result::Slot;
  TORCH_CHECK_TYPE(wants_number && (PyLong_Check(value) || PyFloat_Check(value)),
                   "a call returned ", Py_TYPE(value)->tp_name, " where ",
                   wants_number ? "a number" : "a tensor", " was expected");
  if (PyFloat_Check(value)) {
    store(results, place, PyFloat_AS_DOUBLE(value));
    return;
  }
  int64_t number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred()) throw python_error();
  store(results, place, number);
}

// The type ----------------------------------------------------------------------------------------

struct Launcher {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  LaunchProgram* program;
};

PyTypeObject launcher_type = blank_type();

Launcher* self_of(PyObject* object) { return reinterpret_cast<Launcher*>(object); }

PyObject* launcher_vectorcall(PyObject* object, PyObject* const* args, size_t nargsf,
                              PyObject* kwnames) {
  HANDLE_TH_ERRORS
  const LaunchProgram* program = self_of(object)->program;
  TORCH_CHECK(program != nullptr, "the launcher is gone");
  auto nargs = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  TORCH_CHECK_TYPE(nargs == program->inputs.size(), "the graph takes ", program->inputs.size(),
                   " arguments, not ", nargs);
  TORCH_CHECK_TYPE(kwnames == nullptr || PyTuple_GET_SIZE(kwnames) == 0,
                   "the graph takes no keyword arguments");
  return Run(*program, args).run();
  END_HANDLE_TH_ERRORS
}

PyObject* launcher_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  static const char* names[] = {"inputs",  "symbols",  "steps", "outputs",
                                "written", "fallback", nullptr};
  LaunchSource source{};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nOOOOO", const_cast<char**>(names),
                                   &source.inputs, &source.symbols, &source.steps, &source.outputs,
                                   &source.written, &source.fallback)) {
    return nullptr;
  }
  std::unique_ptr<LaunchProgram> program = read_program(source);
  PyObject* object = type->tp_alloc(type, 0);
  if (object == nullptr) return nullptr;
  self_of(object)->vectorcall = launcher_vectorcall;
  self_of(object)->program = program.release();
  return object;
  END_HANDLE_TH_ERRORS
}

int launcher_traverse(PyObject* object, visitproc visit, void* arg) {
  const LaunchProgram* program = self_of(object)->program;
  return program != nullptr ? program->traverse(visit, arg) : 0;
}

int launcher_clear(PyObject* object) {
  delete std::exchange(self_of(object)->program, nullptr);
  return 0;
}

void launcher_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  launcher_clear(object);
  Py_TYPE(object)->tp_free(object);
}

}  // namespace

PyTypeObject* init_launcher_type() {
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  PyTypeObject& type = launcher_type;
  type.tp_flags = Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_vectorcall_offset = offsetof(Launcher, vectorcall);
  type.tp_call = PyVectorcall_Call;
  type.tp_new = launcher_new;
  type.tp_doc = "Launcher(inputs, symbols, steps, outputs, written, fallback): a compiled graph.";
  return ready(type, "pliant._native.Launcher", sizeof(Launcher), launcher_dealloc,
               launcher_traverse, launcher_clear);
}

}  // namespace pliant
