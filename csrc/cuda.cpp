#include "cuda.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/SmallVector.h>
#include <dlfcn.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <bit>
#include <string>

namespace pliant {

namespace {

constexpr int kSharedMemory = 8;            // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr uint32_t kUsualShared = 48 << 10;  // what a kernel may have without asking
constexpr uint64_t kAtOnce = 16;  // bytes that a thread loads: `variants.AT_ONCE`
constexpr int64_t kNarrow = (int64_t{1} << 31) - (1 << 20);  // `index_text.NARROW`
constexpr int64_t kFewRows = 4096;  // `blocks.FEW_ROWS`

std::string driver_name = "libcuda.so.1";  // a test has one of its own

// The functions of the driver, by the names and types of its C interface.
struct Driver {
  template <typename T>
  struct Function {
    explicit Function(const char* name) {
      void* library = dlopen(driver_name.c_str(), RTLD_NOW);  // loaded once, whoever asks
      TORCH_CHECK(library != nullptr, "the CUDA driver can't be loaded: ", dlerror());
      call = reinterpret_cast<T*>(dlsym(library, name));
      TORCH_CHECK(call != nullptr, "the CUDA driver has no ", name);
    }
    T* call;
  };
  Function<int(void** module, const void* image)> load{"cuModuleLoadData"};
  Function<int(void** function, void* module, const char* name)> find{"cuModuleGetFunction"};
  Function<int(void* function, int attribute, int value)> set{"cuFuncSetAttribute"};
  Function<int(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
               unsigned, unsigned shared, void* stream, void** arguments, void** extra)>
      launch{"cuLaunchKernel"};
  Function<int(void** context)> get_context{"cuCtxGetCurrent"};
  Function<int(void* context)> set_context{"cuCtxSetCurrent"};
  Function<int(void** context, int device)> retain_context{"cuDevicePrimaryCtxRetain"};
  Function<int(void* stream, int* status)> is_capturing{"cuStreamIsCapturing"};
  Function<int(void** graph, unsigned flags)> create_graph{"cuGraphCreate"};
  Function<int(void** node, void* graph, const void* after, size_t, const CudaNode*)> add_node{
      "cuGraphAddKernelNode_v2"};
  Function<int(void** ready, void* graph, uint64_t flags)> instantiate{
      "cuGraphInstantiateWithFlags"};
  Function<int(void* ready, void* node, const CudaNode*)> set_node{
      "cuGraphExecKernelNodeSetParams_v2"};
  Function<int(void* ready, void* stream)> launch_graph{"cuGraphLaunch"};
  Function<int(void* ready)> drop_ready{"cuGraphExecDestroy"};
  Function<int(void* graph)> drop_graph{"cuGraphDestroy"};
};

const Driver& driver() {
  static const Driver loaded;
  return loaded;
}

void check(int result, const char* what) {
  TORCH_CHECK(result == 0, what, " failed with CUDA error ", result);
}

// A thread that PyTorch has not used for CUDA yet has no context.
void ensure_context(int device) {
  void* context = nullptr;
  check(driver().get_context.call(&context), "cuCtxGetCurrent");
  if (context != nullptr) return;
  check(driver().retain_context.call(&context, device), "cuDevicePrimaryCtxRetain");
  check(driver().set_context.call(context), "cuCtxSetCurrent");
}

// PyTorch's current stream. The default one has the number 0; of others only Python tells the
// address.
void* current_stream(c10::Device device) {
  if (device.is_cpu()) return nullptr;  // in tests
  c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  if (stream.id() == 0) return nullptr;
  py::gil_scoped_acquire lock;
  py::object raw = py::module_::import("torch._C").attr("_cuda_getCurrentRawStream");
  return reinterpret_cast<void*>(raw(device.index()).cast<uintptr_t>());
}

bool is_recorded(void* stream) {
  int capturing = 0;
  check(driver().is_capturing.call(stream, &capturing), "cuStreamIsCapturing");
  return capturing != 0;
}

}  // namespace

bool is_recording(c10::Device device) {
  return device.is_cuda() && is_recorded(current_stream(device));
}

CudaVariant::~CudaVariant() {
  // Results don't matter: at the end of a process the driver may be gone already.
  if (ready_ != nullptr) driver().drop_ready.call(ready_);
  if (graph_ != nullptr) driver().drop_graph.call(graph_);
}

void CudaVariant::launch(const CudaNode& node, void* stream) {
  std::lock_guard<std::mutex> held(mutex_);
  if (replay(node, stream)) return;
  check(driver().launch.call(node.function, node.programs[0], 1, 1, threads, 1, 1, shared, stream,
                             node.arguments, nullptr),
        "cuLaunchKernel");
}

// By the graph; false for the first launch, which need not be followed by others, on another stream
// than that one was on (a graph runs once at a time), and while PyTorch records the stream, because
// a recording takes kernels.
bool CudaVariant::replay(const CudaNode& node, void* stream) {
  if (is_recorded(stream)) return false;
  if (!stream_) stream_ = stream;
  else if (stream_ == stream && graph_ == nullptr) make_graph(node);
  if (ready_ == nullptr || stream_ != stream) return false;
  if (driver().set_node.call(ready_, node_, &node) != 0) return false;
  check(driver().launch_graph.call(ready_, stream), "cuGraphLaunch");
  return true;
}

void CudaVariant::make_graph(const CudaNode& node) {
  if (driver().create_graph.call(&graph_, 0) != 0 ||
      driver().add_node.call(&node_, graph_, nullptr, 0, &node) != 0 ||
      driver().instantiate.call(&ready_, graph_, 0) != 0) {
    ready_ = nullptr;  // it is launched without one
  }
}

CudaVariant& CudaKernel::variant(const Key& key) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto known = variants_.find(key); known != variants_.end()) return known->second;
  }
  py::gil_scoped_acquire lock;
  py::tuple made = py::handle(make_)(key.wide, key.multiples, int64_t{1} << key.columns, key.few);
  std::lock_guard<std::mutex> held(mutex_);
  auto [place, is_new] = variants_.try_emplace(key);
  CudaVariant& variant = place->second;
  if (!is_new) return variant;  // another thread made it meanwhile
  variant.function = reinterpret_cast<void*>(made[0].cast<uintptr_t>());
  variant.threads = made[1].cast<uint32_t>();
  variant.shared = made[2].cast<uint32_t>();
  variant.rows = made[3].cast<int64_t>();
  variant.columns = made[4].cast<int64_t>();
  variant.most = made[5].cast<int64_t>();
  variant.scratch = made[6].cast<int64_t>();
  return variant;
}

void CudaKernel::launch(c10::ArrayRef<const at::Tensor*> tensors,
                        c10::ArrayRef<int64_t> numbers) {
  int64_t outer = numbers[0], rows = numbers[1], columns = numbers[2];
  if (outer <= 0 || rows <= 0 || (columns <= 0 && !by_rows_)) return;
  auto last_column = static_cast<uint64_t>(std::max<int64_t>(columns - 1, 0));
  Key key{0, static_cast<uint8_t>(std::bit_width(last_column)), false, outer * rows < kFewRows};
  int64_t largest = std::max({outer, rows, columns});
  size_t count = tensors.size() + wide_.size();
  // Two more arguments: memory for each program, and for Triton's profiler, which is not used.
  c10::SmallVector<uint64_t, 24> cells(count + 2, 0);
  c10::SmallVector<void*, 24> arguments(count + 2);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = *tensors[i];
    cells[i] = reinterpret_cast<uint64_t>(tensor.mutable_data_ptr());
    auto item = static_cast<int64_t>(tensor.element_size());
    largest = std::max(largest, static_cast<int64_t>(tensor.storage().nbytes()) / item);
  }
  for (size_t i = 0; i < wide_.size(); ++i) {
    int64_t number = numbers[kExtents + i];
    cells[tensors.size() + i] = static_cast<uint64_t>(number);  // its lower half is that of 32 bits
    if (!wide_[i]) largest = std::max(largest, number < 0 ? -number : number);
  }
  for (int64_t bound : numbers.slice(kExtents + wide_.size())) largest = std::max(largest, bound);
  key.wide = largest >= kNarrow;
  for (size_t i = 0; i < arguments.size(); ++i) {
    arguments[i] = &cells[i];
    uint64_t multiple = i < tensors.size() ? kAtOnce : multiple_;
    if (i < std::min<size_t>(count, 64) && cells[i] % multiple == 0) key.multiples |= uint64_t{1} << i;
  }

  c10::Device device = tensors[0]->device();
  c10::OptionalDeviceGuard guard(device);
  ensure_context(device.is_cpu() ? 0 : device.index());
  CudaVariant& code = variant(key);
  auto blocks = [](int64_t extent, int64_t size) { return (extent + size - 1) / size; };
  int64_t programs = outer * blocks(rows, code.rows);
  if (!by_rows_) programs *= blocks(columns, code.columns);
  programs = std::min(programs, code.most);
  TORCH_CHECK(programs < int64_t{1} << 31, "a kernel with ", programs, " programs");
  at::Tensor scratch;  // freed behind the launch, in the order of the stream
  if (code.scratch > 0) {
    scratch = at::empty({programs * code.scratch}, tensors[0]->options().dtype(at::kByte));
    cells[count] = reinterpret_cast<uint64_t>(scratch.mutable_data_ptr());
  }
  CudaNode node{code.function,    {static_cast<uint32_t>(programs), 1, 1},
                {code.threads, 1, 1}, code.shared, arguments.data(), nullptr, nullptr, nullptr};
  code.launch(node, current_stream(device));
}

namespace {

// cuda_load(code, name, shared, device): the address of a function in machine code, which stays.
PyObject* cuda_load(PyObject*, PyObject* args) {
  HANDLE_TH_ERRORS
  const char *code = nullptr, *name = nullptr;
  Py_ssize_t length = 0;
  unsigned shared = 0;
  int device = 0;
  if (!PyArg_ParseTuple(args, "y#sIi", &code, &length, &name, &shared, &device)) return nullptr;
  ensure_context(device);
  void *module = nullptr, *function = nullptr;
  check(driver().load.call(&module, code), "cuModuleLoadData");
  check(driver().find.call(&function, module, name), "cuModuleGetFunction");
  if (shared > kUsualShared) {
    check(driver().set.call(function, kSharedMemory, static_cast<int>(shared)),
          "cuFuncSetAttribute");
  }
  return PyLong_FromVoidPtr(function);
  END_HANDLE_TH_ERRORS
}

// cuda_driver(path): the library to load, before it is needed.
PyObject* cuda_driver(PyObject*, PyObject* path) {
  const char* text = PyUnicode_AsUTF8(path);
  if (text == nullptr) return nullptr;
  driver_name = text;
  Py_RETURN_NONE;
}

}  // namespace

PyMethodDef cuda_methods[] = {
    {"cuda_load", cuda_load, METH_VARARGS,
     "cuda_load(code, name, shared, device): the address of a function in machine code."},
    {"cuda_driver", cuda_driver, METH_O, "cuda_driver(path): the library of the CUDA driver."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace pliant
