// `Launcher`: runs a compiled graph. All that belongs to one call is on the stack of that call, so
// that several threads can be in the same launcher, and a step in Python may call it again.
#include "launcher.h"
#include "overlap.h"

#include "isolated.h"
#include "profile.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/MaybeOwned.h>
#include <c10/util/SmallVector.h>
#include <pthread.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

namespace pliant {

bool is_plain(const at::Tensor& tensor) {
  // The keys of an ordinary tensor: whatever has others (a subclass, functorch, lazy conjugation)
  // is not plain memory.
  static const uint64_t usual = [] {
    c10::InferenceMode off(false);
    return at::detail::empty_cpu({0}, c10::ScalarType::Float).key_set().raw_repr();
  }();
  static const uint64_t on_gpu = usual |
                                 c10::DispatchKeySet(c10::BackendComponent::CUDABit).raw_repr() |
                                 c10::DispatchKeySet(c10::DispatchKey::AutocastCUDA).raw_repr();
  c10::DispatchKeySet keys = tensor.key_set();
  if (keys.has_backend(c10::BackendComponent::CPUBit)) return (keys.raw_repr() & ~usual) == 0;
  return keys.has_backend(c10::BackendComponent::CUDABit) && (keys.raw_repr() & ~on_gpu) == 0;
}

namespace {

// Work, in nanoseconds: what is worth sharing among threads, the least that one of them gets, and
// what is worth letting other Python threads run meanwhile.
constexpr double kParallel = 20'000;
constexpr double kGrain = 10'000;
constexpr double kRelease = 50'000;

// OpenMP's threads do not survive a fork, and it would wait for them.
std::atomic<bool> forked{false};

using Slot = c10::MaybeOwned<at::Tensor>;

// Where the elements of a tensor begin and end in memory.
std::pair<const char*, const char*> memory_of(const at::Tensor& t) {
  if (!t.defined() || !t.has_storage()) return {nullptr, nullptr};
  auto* start = static_cast<const char*>(t.storage().data()) + t.storage_offset() * t.itemsize();
  return {start, start + at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.itemsize())};
}

int64_t read(const at::Tensor& tensor, const Number& number) {
  if (number.kind == Number::Offset) return tensor.storage_offset();
  c10::IntArrayRef all = number.kind == Number::Size ? tensor.sizes() : tensor.strides();
  TORCH_CHECK(number.dim >= 0 && number.dim < std::ssize(all), "a tensor of ", all.size(),
              " dimensions has no dimension ", number.dim);
  return all[number.dim];
}

// A view that nobody sees beside the tensor it is a view of, so that autograd need not know.
at::Tensor inner_view(const at::Tensor& of, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      int64_t offset, c10::ScalarType dtype) {
  auto item = static_cast<int64_t>(c10::elementSize(dtype));
  int64_t start = of.storage_offset() * static_cast<int64_t>(of.element_size());
  TORCH_CHECK(start % item == 0, "a view as ", dtype, " has to start at a multiple of its size");
  offset += start / item;
  TORCH_CHECK(offset >= 0 && at::detail::computeStorageNbytes(sizes, strides, item, offset) <=
                                 of.storage().nbytes(),
              "a view beyond the memory of the tensor");
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(of.storage()), of.key_set(),
      c10::scalarTypeToTypeMeta(dtype));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return made;
}

// Adds what a call returned; a tuple or list stands for its items. What is no tensor or number is
// none, which can be dropped.
void flatten(PyObject* value, torch::jit::Stack& flat) {
  int overflow = 0;
  if (PyTuple_Check(value) || PyList_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      flatten(PySequence_Fast_GET_ITEM(value, i), flat);
    }
  } else if (THPVariable_Check(value)) {
    flat.emplace_back(THPVariable_Unpack(value));
  } else if (PyFloat_Check(value)) {
    flat.emplace_back(PyFloat_AS_DOUBLE(value));
  } else {
    int64_t number = PyLong_Check(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    flat.push_back(PyLong_Check(value) && overflow == 0 ? c10::IValue(number) : c10::IValue());
  }
}

class Run {
 public:
  Run(PyObject* launcher, const LaunchProgram& program, PyObject* const* args, NativeCall* native)
      : launcher_(launcher),
        program_(program),
        args_(args),
        native_(native),
        values_(program.value_count),
        slots_(program.slot_count) {}

  // A tuple, or what the fallback returned; null with a Python error.
  PyObject* run();

 private:
  // Each is false if the graph cannot run.
  bool take_inputs();
  bool read_symbols();
  bool may_write() const;
  bool may_give_up() const { return !wrote_ && program_.fallback != Py_None; }

  void step(const Compute& step) {
    c10::SmallVector<int64_t, 32> stack(step.program.stack_size());
    int64_t result = step.program.run(values_.data(), stack.data());
    give_up_ = result == StackProgram::kNone && may_give_up();  // Python can compute it
    TORCH_CHECK(give_up_ || result != StackProgram::kNone, "a size is beyond 64 bits, or x / 0");
    values_[step.value] = result;
  }
  void step(const CpuEmpty& step) {
    auto made = at::detail::empty_strided_cpu(numbers(step.layout.sizes),
                                              numbers(step.layout.strides), step.dtype);
    set(step.slot, at::Tensor(std::move(made)));
  }
  void step(const Empty& step) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto options = at::TensorOptions().dtype(step.dtype).device(step.device);
    set(step.slot,
        at::empty_strided(numbers(step.layout.sizes), numbers(step.layout.strides), options));
  }
  void step(const LaidOut& step);
  void step(const View& step);
  void step(const CpuKernel& step);
  void step(const CpuBatch& step);
  void step(const LaunchCuda& step);
  void step(const CallOperator& step);
  void step(const CallPython& step);
  void step(const Calculate& step);
  void step(const Require& step) {
    if (values_[step.value] == 0) this->step(step.python);
  }
  void step(const ReadItem& step);
  void step(const ReadNumber& step) {
    values_[step.value] = read(tensor(step.number.from), step.number);
  }
  void step(const Apart& step) {
    c10::DimVector sizes = numbers(step.one.sizes), strides = numbers(step.one.strides);
    Strided one{sizes, strides, values_[step.offset]};
    if (step.alone) {
      give_up_ = may_overlap_itself(one);
      return;
    }
    c10::DimVector others = numbers(step.other.sizes), theirs = numbers(step.other.strides);
    give_up_ = may_overlap(one, {others, theirs, values_[step.other_offset]}, step.elementwise);
  }
  void step(const InRange& step) {
    if (const auto* least = std::get_if<double>(&step.least)) {
      const double number = real(step.value);
      const bool inside = *least <= number && number <= std::get<double>(step.most);
      give_up_ = !inside && !(step.infinite && !std::isfinite(number));
      return;
    }
    const int64_t number = values_[step.value];
    give_up_ = number < std::get<int64_t>(step.least) || number > std::get<int64_t>(step.most);
  }
  void step(const KeepRandom& step) {
    // While a CUDA graph is recorded, the state is on the device, and can't be put back.
    give_up_ = is_recording(step.device);
    if (give_up_) return;
    random_.assign(1, RandomState(c10::kCPU));
    if (!step.device.is_cpu()) random_.emplace_back(step.device);
  }
  void step(const Save& step) {
    const at::Tensor& part = tensor(step.slot);
    at::AutoDispatchBelowADInplaceOrView below;
    saved_.emplace_back(part, part.clone());
  }
  void step(const Take& step);
  void step(const CheckErrors&) { give_up_ = failed_ != 0; }
  void step(const CheckSizes& step);
  void step(const Wrote& step) {
    const at::Tensor& input = tensor(step.input);
    if (!input.is_inference()) input.unsafeGetTensorImpl()->bump_version();
  }
  // An argument that is no object is nobody else's, or it is held elsewhere.
  void step(const Free& step) {
    for (int32_t slot : step.slots) {
      slots_[slot] = Slot();
      if (native_ != nullptr && slot < std::ssize(native_->arguments)) {
        native_->arguments[slot].reset();
      }
    }
  }

  // With a Python error if a step failed, of which the fallback is told.
  PyObject* fall_back() {
    unlocked_.reset();
    std::optional<py::error_already_set> error;
    if (PyErr_Occurred() != nullptr) error.emplace();
    {
      at::AutoDispatchBelowADInplaceOrView below;
      for (; !saved_.empty(); saved_.pop_back()) saved_.back().first.copy_(saved_.back().second);
    }
    slots_.clear();
    for (RandomState& state : random_) state.restore();
    if (instead_ != nullptr) return call_instead();
    TORCH_CHECK(program_.fallback != Py_None, "the graph can't run on these inputs");
    if (!show_arguments()) return nullptr;
    py::handle fallback(program_.fallback);
    if (error && py::hasattr(fallback, "failed")) fallback.attr("failed")(error->value());
    return PyObject_Vectorcall(program_.fallback, args_, program_.inputs.size(), nullptr);
  }
  PyObject* call_instead();
  bool show_arguments() const;
  const at::Tensor& tensor(int32_t slot) const { return *slots_[slot]; }
  void set(int32_t slot, at::Tensor&& tensor) { slots_[slot] = Slot::owned(std::move(tensor)); }
  double real(int32_t value) const { return std::bit_cast<double>(values_[value]); }
  c10::DimVector numbers(const Indices& values) const {
    c10::DimVector found(values.size());
    for (size_t i = 0; i < values.size(); ++i) found[i] = values_[values[i]];
    return found;
  }
  // What a step took, and the bytes of the tensors that it was about.
  void measure(const Step& step, int64_t start) {
    const int64_t number = &step - program_.steps.data(), stop = now();
    if (program_.touched[number].empty()) return;
    Span& span = spans_.emplace_back(Span{number, start, stop, 0});
    for (int32_t slot : program_.touched[number]) {
      if (tensor(slot).defined()) span.detail += static_cast<int64_t>(tensor(slot).nbytes());
    }
  }
  template <typename Buffers>
  void add_buffers(const CpuKernel& kernel, Buffers& buffers) {
    for (int32_t slot : kernel.slots) {
      TORCH_CHECK(slot < 0 || (is_plain(tensor(slot)) && tensor(slot).is_cpu()),
                  "a kernel's tensor is not plain CPU memory");
      buffers.push_back(slot < 0 ? &failed_ : tensor(slot).mutable_data_ptr());
    }
  }
  // A tensor that was made here.
  bool is_own(const Item& item) const {
    return item.kind == Item::Slot && item.index >= std::ssize(program_.inputs);
  }
  c10::IValue ivalue(const Item& item) const;
  PyObject* object(const Item& item) const;
  bool operand(const Item& item, double& number) const;
  void put(const Item& place, const at::Scalar& number);
  void store(const std::vector<Item>& places, torch::jit::Stack& results);
  void release_lock() {
    if (!unlocked_) unlocked_.emplace();
  }

  PyObject* launcher_;
  const LaunchProgram& program_;
  PyObject* const* args_;
  NativeCall* native_;  // null: Python calls
  bool give_up_ = false;
  bool wrote_ = false;  // to an input
  PyObject* instead_ = nullptr;  // to be called with these sizes, which `sizes_` are if it is new
  std::string sizes_;
  int64_t failed_ = 0;  // the error flag
  std::vector<RandomState> random_;  // before the first random number was drawn
  c10::SmallVector<int64_t, 64> values_;
  c10::SmallVector<Slot, 24> slots_;
  std::vector<Span> spans_;  // of steps, if they are measured
  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;  // parts of inputs, and what was in them
  // The interpreter's lock is given up for long work, until Python is needed.
  std::optional<py::gil_scoped_release> unlocked_;
};

PyObject* Run::run() {
  if (!take_inputs() || !read_symbols() || !may_write()) return fall_back();
  const bool measured = is_profiling();
  try {
    for (const Step& step : program_.steps) {
      const int64_t start = measured ? now() : 0;
      std::visit([this](const auto& step) { this->step(step); }, step);
      if (measured) measure(step, start);
      if (give_up_) return fall_back();
    }
  } catch (...) {
    unlocked_.reset();
    torch::translate_exception_to_python(std::current_exception());
    // As long as the inputs are what they were, the graph itself can tell what is wrong, and where.
    if (!may_give_up() || must_propagate()) return nullptr;
    return fall_back();
  }
  unlocked_.reset();
  if (measured) record(program_.info, spans_);
  auto count = static_cast<Py_ssize_t>(program_.outputs.size());
  Ref tuple = Ref::owned(PyTuple_New(count));
  for (Py_ssize_t i = 0; tuple && i < count; ++i) {
    const Item& item = program_.outputs[i];
    bool is_native = native_ != nullptr && native_->takes(i) && is_own(item);
    if (is_native) native_->results[i - native_->first] = tensor(item.index);
    PyObject* output = is_native ? Py_NewRef(Py_None) : object(item);
    if (output == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), i, output);
  }
  return tuple.release();
}

// The caller holds the arguments, so they need not be owned.
bool Run::take_inputs() {
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    LaunchProgram::Need need = program_.inputs[i];
    // With writes, all tensors are looked at: one that is only passed on may share the memory.
    if (need == LaunchProgram::Anything && program_.written.empty()) continue;
    if (args_[i] == nullptr) {
      slots_[i] = Slot::borrowed(native_->arguments[i]);
      if (need == LaunchProgram::Plain && !is_plain(*slots_[i])) return false;
      continue;
    }
    bool is_tensor = THPVariable_Check(args_[i]);
    TORCH_CHECK_TYPE(is_tensor || need == LaunchProgram::Anything, "argument ", i,
                     " must be a tensor, not ", Py_TYPE(args_[i])->tp_name);
    if (!is_tensor) continue;
    slots_[i] = Slot::borrowed(THPVariable_Unpack(args_[i]));
    if (need == LaunchProgram::Plain && !is_plain(*slots_[i])) return false;
  }
  return true;
}

bool Run::read_symbols() {
  for (size_t i = 0; i < program_.symbols.size(); ++i) {
    const Number& symbol = program_.symbols[i];
    if (symbol.kind <= Number::Offset) {
      values_[i] = read(tensor(symbol.from), symbol);
      continue;
    }
    if (args_[symbol.from] == nullptr && !show_arguments()) throw python_error();
    PyObject* arg = args_[symbol.from];
    bool is_int = symbol.kind == Number::Int;
    TORCH_CHECK_TYPE(is_int ? PyLong_Check(arg) : PyFloat_Check(arg), "argument ", symbol.from,
                     " must be ", is_int ? "an int" : "a float", ", not ", Py_TYPE(arg)->tp_name);
    int overflow = 0;
    values_[i] = is_int ? PyLong_AsLongLongAndOverflow(arg, &overflow)
                        : std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(arg));
    // Python's integers have no limit; `kNone` is the one number that stands for "no value".
    if (is_int && (overflow != 0 || values_[i] == StackProgram::kNone)) return false;
  }
  return true;
}

bool Run::may_write() const {
  if (program_.written.empty()) return true;
  struct Memory { const char *start, *stop; bool written; };
  c10::SmallVector<Memory, 32> memory;
  for (const Slot& input : std::span(slots_.data(), program_.inputs.size())) {
    auto [start, stop] = memory_of(*input);
    memory.push_back({start, stop, false});
  }
  for (int32_t written : program_.written) {
    const at::Tensor& input = tensor(written);
    // PyTorch keeps this as a flag; the exact answer takes sorting.
    bool plain = input.is_non_overlapping_and_dense();
    if (!plain && may_overlap_itself({input.sizes(), input.strides(), 0})) return false;
    memory[written].written = true;
  }
  // From the first element to the last: parts of a storage that interleave count as overlapping,
  // which PyTorch then sorts out.
  std::sort(memory.begin(), memory.end(), [](auto& a, auto& b) { return a.start < b.start; });
  const char *stop = nullptr, *written = nullptr;  // of what starts before
  for (const Memory& one : memory) {
    if (one.start == one.stop) continue;
    if (one.start < written || (one.written && one.start < stop)) return false;
    stop = std::max(stop, one.stop);
    if (one.written) written = std::max(written, one.stop);
  }
  return true;
}

// Steps -------------------------------------------------------------------------------------------

void Run::step(const CheckSizes& step) {
  std::string sizes;
  for (auto [value, limit] : step.limits) {
    if (values_[value] <= limit) {
      sizes += std::to_string(value) + (values_[value] == 1 ? "=1 " : "=0 ");
    }
  }
  if (sizes.empty()) return;
  auto found = program_.settled.find(sizes);
  bool is_new = found == program_.settled.end();
  instead_ = is_new ? step.first : found->second;
  if (is_new) sizes_ = std::move(sizes);
  give_up_ = instead_ != nullptr;
}

// Arguments that are no Python objects yet become such; false with a Python error.
bool Run::show_arguments() const {
  for (size_t i = 0; native_ != nullptr && i < program_.inputs.size(); ++i) {
    if (args_[i] != nullptr) continue;
    native_->objects[i] = THPVariable_Wrap(native_->arguments[i]);
    if (args_[i] == nullptr) return false;
  }
  return true;
}

PyObject* Run::call_instead() {
  if (!show_arguments()) return nullptr;
  if (sizes_.empty()) {
    return PyObject_Vectorcall(instead_, args_, program_.inputs.size(), nullptr);
  }
  Ref key = Ref::owned(PyUnicode_FromStringAndSize(sizes_.data(), std::ssize(sizes_)));
  if (!key) return nullptr;
  std::vector<PyObject*> all{launcher_, key.get()};
  all.insert(all.end(), args_, args_ + program_.inputs.size());
  return PyObject_Vectorcall(instead_, all.data(), all.size(), nullptr);
}

// The argument itself, if there is no other tensor in its memory, which PyTorch has allocated.
void Run::step(const Take& step) {
  at::Tensor given = tensor(step.argument);
  this->step(Free{{step.argument}});
  const c10::Storage& storage = given.storage();
  bool alone = given.use_count() == 1 && storage.use_count() == 1 &&
               storage.nbytes() == given.nbytes() &&
               storage.data_ptr().get_deleter() == c10::GetAllocator(storage.device_type())->raw_deleter();
  at::AutoDispatchBelowADInplaceOrView below;
  set(step.slot, alone ? std::move(given) : given.clone());
}

void Run::step(const LaidOut& step) {
  const at::Tensor& made = tensor(step.slot);
  // An undefined result is one that nobody wants.
  if (!made.defined()) return;
  c10::DimVector sizes = numbers(step.layout.sizes), strides = numbers(step.layout.strides);
  TORCH_CHECK(made.scalar_type() == step.dtype && made.sizes() == c10::IntArrayRef(sizes),
              "an operator gave something else than was foreseen");
  bool alike = made.numel() == 0;
  for (size_t i = 0; !alike && i < sizes.size(); ++i) {
    // The stride of a single element is never used.
    if (sizes[i] != 1 && made.stride(i) != strides[i]) break;
    alike = i + 1 == sizes.size();
  }
  if (alike || sizes.empty()) return;
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor copy = made.is_cpu() ? at::detail::empty_strided_cpu(sizes, strides, step.dtype)
                                  : at::empty_strided(sizes, strides, made.options());
  set(step.slot, std::move(copy.copy_(made)));
}

void Run::step(const View& step) {
  const at::Tensor& of = tensor(step.of);
  c10::DimVector sizes = numbers(step.layout.sizes), strides = numbers(step.layout.strides);
  int64_t offset = values_[step.offset], from = of.element_size();
  c10::ScalarType dtype = step.dtype.value_or(of.scalar_type());
  if (!step.tracked) return set(step.slot, inner_view(of, sizes, strides, offset, dtype));
  // By PyTorch's own operators, which autograd knows. Of another dtype, the memory is a view.
  bool as_real = of.is_complex() && dtype == c10::toRealValueType(of.scalar_type());
  int64_t to = c10::elementSize(dtype), most = std::max(from, to), bytes = of.storage().nbytes();
  auto whole = [&] { return at::as_strided(of, {bytes / most * most / from}, {1}, 0); };
  auto base = as_real ? at::view_as_real(of) : dtype == of.scalar_type() ? of : whole().view(dtype);
  set(step.slot, at::as_strided(base, sizes, strides, of.storage_offset() * from / to + offset));
}

void Run::step(const CpuKernel& step) {
  c10::SmallVector<void*, 16> buffers;
  c10::SmallVector<int64_t, 16> sizes(step.values.size());
  add_buffers(step, buffers);
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = values_[step.values[i]];
  int64_t extent = step.extent < 0 ? 1 : values_[step.extent];
  if (extent <= 0) return;
  wrote_ |= step.writes;
  double work = static_cast<double>(extent) * step.cost;
  if (work > kRelease) release_lock();
  auto part = [&](int64_t start, int64_t stop) {
    step.function(buffers.data(), sizes.data(), start, stop);
  };
  if (work > kParallel && !forked.load(std::memory_order_relaxed)) {
    at::parallel_for(0, extent, static_cast<int64_t>(std::ceil(kGrain / step.cost)), part);
  } else {
    part(0, extent);
  }
}

void Run::step(const CpuBatch& step) {
  struct Part {
    const CpuKernel* kernel;
    size_t buffers, sizes;  // where its own begin
    int64_t extent;
    double start;  // nanoseconds of work before it
  };
  c10::SmallVector<Part, 32> parts;
  c10::SmallVector<void*, 128> buffers;
  c10::SmallVector<int64_t, 64> sizes;
  double work = 0;
  for (const CpuKernel& kernel : step.kernels) {
    int64_t extent = kernel.extent < 0 ? 1 : values_[kernel.extent];
    if (extent <= 0) continue;
    parts.push_back({&kernel, buffers.size(), sizes.size(), extent, work});
    add_buffers(kernel, buffers);
    for (int32_t value : kernel.values) sizes.push_back(values_[value]);
    wrote_ |= kernel.writes;
    work += static_cast<double>(extent) * kernel.cost;
  }
  if (work > kRelease) release_lock();
  // The iterations that begin in this piece of the work.
  auto run = [&](int64_t start, int64_t stop) {
    auto after = [](double time, const Part& part) { return time < part.start; };
    auto* part = std::upper_bound(parts.begin(), parts.end(), static_cast<double>(start), after);
    for (part -= part != parts.begin(); part != parts.end() && part->start < stop; ++part) {
      auto until = [&](int64_t time) {
        double count = std::ceil((static_cast<double>(time) - part->start) / part->kernel->cost);
        return std::clamp<int64_t>(static_cast<int64_t>(count), 0, part->extent);
      };
      int64_t first = until(start), last = until(stop);
      if (first == last) continue;
      part->kernel->function(&buffers[part->buffers], sizes.data() + part->sizes, first, last);
    }
  };
  // One nanosecond more, so that an iteration that begins at the very end is in some piece.
  auto end = static_cast<int64_t>(std::ceil(work)) + 1;
  if (work > kParallel && !forked.load(std::memory_order_relaxed)) {
    at::parallel_for(0, end, static_cast<int64_t>(kGrain), run);
  } else {
    run(0, end);
  }
}

void Run::step(const LaunchCuda& step) {
  c10::SmallVector<const at::Tensor*, 16> tensors;
  for (int32_t slot : step.slots) {
    TORCH_CHECK(is_plain(tensor(slot)), "a kernel's tensor is not plain memory");
    tensors.push_back(&tensor(slot));
  }
  c10::SmallVector<int64_t, 16> numbers;
  for (int32_t value : step.values) numbers.push_back(values_[value]);
  wrote_ |= step.writes;
  step.kernel->launch(tensors, numbers);
}

void Run::step(const CallOperator& step) {
  torch::jit::Stack stack;
  stack.reserve(step.args.size());
  for (const Item& item : step.args) stack.push_back(ivalue(item));
  release_lock();
  {
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard uncast(c10::autocast_dispatch_keyset);  // it was recorded
    step.op.callBoxed(stack);
  }
  for (size_t i = 0; i < stack.size(); ++i) {
    // Places are counted by tensor, as the program has them.
    if (!stack[i].isTensorList()) continue;
    std::vector<at::Tensor> tensors = stack[i].toTensorVector();
    auto place = stack.erase(stack.begin() + static_cast<ptrdiff_t>(i));
    stack.insert(place, tensors.begin(), tensors.end());
    i += tensors.size() - 1;
  }
  store(step.results, stack);
}

void Run::step(const CallPython& step) {
  unlocked_.reset();
  Values args(step.args.size());
  for (size_t i = 0; i < step.args.size(); ++i) {
    args[i] = object(step.args[i]);
    if (args[i] == nullptr) throw python_error();
  }
  wrote_ |= step.writes;
  size_t nargs = step.args.size() | PY_VECTORCALL_ARGUMENTS_OFFSET;
  Ref result = Ref::owned(PyObject_Vectorcall(step.function, args.data(), nargs, nullptr));
  if (!result) throw python_error();
  torch::jit::Stack flat;
  flatten(result.get(), flat);
  store(step.results, flat);
}

void Run::step(const Calculate& step) {
  const std::vector<Item>& args = step.python.args;
  double a = 0, b = 0, number = 0;
  if (operand(args[0], a) && (args.size() < 2 || operand(args[1], b)) &&
      step.function(a, b, number)) {
    put(step.python.results[0], number);
  } else {
    this->step(step.python);
  }
}

void Run::step(const ReadItem& step) {
  const at::Tensor& of = tensor(step.slot);
  const bool at_hand = of.is_cpu() && is_plain(of) && of.numel() == 1;
  c10::ScalarType dtype = at_hand ? of.scalar_type() : c10::ScalarType::Bool;
  if (dtype == c10::ScalarType::Float) return put(step.result, *of.const_data_ptr<float>());
  if (dtype == c10::ScalarType::Double) return put(step.result, *of.const_data_ptr<double>());
  if (dtype == c10::ScalarType::Long) return put(step.result, *of.const_data_ptr<int64_t>());
  at::AutoDispatchBelowADInplaceOrView below;
  put(step.result, at::_local_scalar_dense(of));
}

// Arguments and results ---------------------------------------------------------------------------

// The number as a double; false if it isn't exactly one.
bool Run::operand(const Item& item, double& number) const {
  constexpr int64_t kExact = int64_t{1} << 53;
  if (item.kind == Item::Constant) {
    number = PyFloat_AS_DOUBLE(item.object);
    return true;
  }
  int64_t value = values_[item.index];
  number = item.kind == Item::Float ? real(item.index) : static_cast<double>(value);
  return item.kind == Item::Float || (-kExact <= value && value <= kExact);
}

c10::IValue Run::ivalue(const Item& item) const {
  switch (item.kind) {
    case Item::Slot: return tensor(item.index);
    case Item::Int: return values_[item.index];
    case Item::IntAsFloat: return static_cast<double>(values_[item.index]);
    case Item::Float: return real(item.index);
    case Item::Bool: return values_[item.index] != 0;
    case Item::List: break;
    default: return item.constant;
  }
  c10::impl::GenericList list(item.item_type);
  list.reserve(item.items.size());
  for (const Item& part : item.items) list.push_back(ivalue(part));
  return list;
}

// A new reference; null with a Python error.
PyObject* Run::object(const Item& item) const {
  bool is_input = item.index < std::ssize(program_.inputs);
  switch (item.kind) {
    case Item::Slot:
      if (!is_input) return THPVariable_Wrap(tensor(item.index));
      return show_arguments() ? Py_NewRef(args_[item.index]) : nullptr;
    case Item::Int: return PyLong_FromLongLong(values_[item.index]);
    case Item::Float: return PyFloat_FromDouble(real(item.index));
    case Item::Bool: return PyBool_FromLong(values_[item.index] != 0);
    case Item::List: break;
    default: return Py_NewRef(item.object);
  }
  Ref list = Ref::owned(PyList_New(std::ssize(item.items)));
  for (Py_ssize_t i = 0; list && i < std::ssize(item.items); ++i) {
    PyObject* part = object(item.items[i]);
    if (part == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), i, part);
  }
  return list.release();
}

void Run::store(const std::vector<Item>& places, torch::jit::Stack& results) {
  TORCH_CHECK(results.size() == places.size(), "a call returned ", results.size(),
              " results instead of ", places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    auto [kind, index] = std::pair(places[i].kind, places[i].index);
    if (kind == Item::Drop) continue;
    bool good = kind == Item::Slot ? results[i].isTensor() : results[i].isScalar();
    give_up_ = !good && kind != Item::Slot && may_give_up();  // an int beyond 64 bits
    if (give_up_) return;
    TORCH_CHECK_TYPE(good, "a call returned no ", kind == Item::Slot ? "tensor" : "number");
    if (kind == Item::Slot) set(index, std::move(results[i]).toTensor());
    if (kind != Item::Slot) put(places[i], results[i].toScalar());
  }
}

void Run::put(const Item& place, const at::Scalar& number) {
  if (place.kind == Item::Drop) return;
  values_[place.index] = place.kind == Item::Float  ? std::bit_cast<int64_t>(number.toDouble())
                         : place.kind == Item::Bool ? number.toBool()
                                                    : number.toLong();
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
  Ref held = Ref::borrowed(object);  // a step may drop the last other reference
  const LaunchProgram* program = self_of(object)->program;
  TORCH_CHECK(program != nullptr, "the launcher is gone");
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  TORCH_CHECK_TYPE(nargs == std::ssize(program->inputs) && kwnames == nullptr, "the graph takes ",
                   program->inputs.size(), " arguments by position");
  return Run(object, *program, args, nullptr).run();
  END_HANDLE_TH_ERRORS
}

PyObject* launcher_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  static const char* names[] = {"inputs",  "symbols",  "steps",   "outputs", "written",
                                "fallback", "objects", "kernels", "info", nullptr};
  Arguments a;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nOOOOO|OOO", const_cast<char**>(names), &a.inputs,
                                   &a.symbols, &a.steps, &a.outputs, &a.written, &a.fallback,
                                   &a.objects, &a.kernels, &a.info)) {
    return nullptr;
  }
  try {
    auto program = read_program(a);
    PyObject* object = type->tp_alloc(type, 0);
    if (object == nullptr) return nullptr;
    self_of(object)->vectorcall = launcher_vectorcall;
    self_of(object)->program = program.release();
    return object;
  } catch (const py::cast_error& error) {
    return PyErr_Format(PyExc_TypeError, "not a program for the launcher: %s", error.what());
  }
  END_HANDLE_TH_ERRORS
}

// settle(sizes, instead): what a call with sizes like these does from now on.
PyObject* launcher_settle(PyObject* object, PyObject* args) {
  HANDLE_TH_ERRORS
  const char* sizes = nullptr;
  PyObject* instead = nullptr;
  if (!PyArg_ParseTuple(args, "sO", &sizes, &instead)) return nullptr;
  LaunchProgram* program = self_of(object)->program;
  TORCH_CHECK(program != nullptr, "the launcher is gone");
  if (program->settled.count(sizes) == 0) {  // what runs now may use what there is
    bool as_usual = instead == Py_None;
    if (!as_usual) program->held.push_back(Ref::borrowed(instead));
    program->settled.emplace(sizes, as_usual ? nullptr : instead);
  }
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyMethodDef launcher_methods[] = {
    {"settle", launcher_settle, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

int launcher_traverse(PyObject* object, visitproc visit, void* arg) {
  const LaunchProgram* program = self_of(object)->program;
  if (program == nullptr) return 0;
  for (const Ref& held : program->held) Py_VISIT(held.get());
  return 0;
}

int launcher_clear(PyObject* object) {
  delete std::exchange(self_of(object)->program, nullptr);
  return 0;
}

}  // namespace

PyObject* call_natively(PyObject* callable, PyObject** objects, size_t count, NativeCall& native) {
  native.objects = objects;
  if (Py_TYPE(callable) != &launcher_type) {
    for (size_t i = 0; i < count; ++i) {
      if (objects[i] == nullptr) objects[i] = THPVariable_Wrap(native.arguments[i]);
      if (objects[i] == nullptr) return nullptr;
    }
    return PyObject_Vectorcall(callable, objects, count, nullptr);
  }
  Ref held = Ref::borrowed(callable);
  const LaunchProgram* program = self_of(callable)->program;
  TORCH_CHECK(program != nullptr && count == program->inputs.size(), "the graph takes other inputs");
  return Run(callable, *program, objects, &native).run();
}

PyTypeObject* init_launcher_type() {
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  PyTypeObject& type = launcher_type;
  type.tp_flags = Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_vectorcall_offset = offsetof(Launcher, vectorcall);
  type.tp_call = PyVectorcall_Call;
  type.tp_new = launcher_new;
  type.tp_methods = launcher_methods;
  type.tp_doc =
      "Launcher(inputs, symbols, steps, outputs, written, fallback, objects=(), kernels=(), "
      "info=None): a compiled graph.";
  return ready(type, "pliant._native.Launcher", sizeof(Launcher), launcher_traverse,
               launcher_clear);
}

}  // namespace pliant
