#include "tensor.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "facts.h"

namespace pliant {

namespace {

// `isinstance` could run a metaclass's Python code.
bool is_tensor_class(PyTypeObject* type) {
  auto* tensor_class = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  return THPVariable_CheckTypeExact(type) ||
         (tensor_class != nullptr && PyType_IsSubtype(type, tensor_class));
}

// Null for anything that is not a tensor, of exactly this class if one is given.
const c10::TensorImpl* tensor_of(PyObject* value, PyObject* type = nullptr) {
  bool good = type != nullptr ? reinterpret_cast<PyObject*>(Py_TYPE(value)) == type
                              : is_tensor_class(Py_TYPE(value));
  const at::Tensor* tensor = good ? &THPVariable_Unpack(value) : nullptr;
  return good && tensor->defined() ? tensor->unsafeGetTensorImpl() : nullptr;
}

// One whose sizes are numbers, and no business of Python code.
const c10::TensorImpl* measurable(PyObject* value) {
  const c10::TensorImpl* impl = tensor_of(value);
  bool good = impl != nullptr && !impl->key_set().has(c10::DispatchKey::Python) &&
              !impl->has_symbolic_sizes_strides();
  return good ? impl : nullptr;
}

// What `TensorImpl::requires_grad` says, without a call of a virtual function unless it is a view:
// one that was made without grad requires it if its base does.
bool needs_grad(const c10::TensorImpl* impl) {
  const auto* meta = static_cast<const torch::autograd::AutogradMeta*>(impl->autograd_meta());
  if (meta == nullptr) return false;
  return meta->requires_grad_ || meta->grad_fn_ != nullptr ||
         (meta->is_view_ && meta->requires_grad());
}

bool same_numbers(c10::IntArrayRef got, const std::vector<int64_t>& expected) {
  if (got.size() != expected.size()) return false;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (got[i] != expected[i] && expected[i] != ExpectedTensor::kAny) return false;
  }
  return true;
}

int64_t read_number(PyObject* number) {
  return number == Py_None ? ExpectedTensor::kAny : PyLong_AsLongLong(number);
}

bool read_numbers(PyObject* tuple, std::vector<int64_t>& out) {
  if (!PyTuple_Check(tuple)) {
    return fail(PyExc_TypeError, "sizes and strides must be tuples of int or None");
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    out.push_back(read_number(PyTuple_GET_ITEM(tuple, i)));
    if (PyErr_Occurred()) return false;
  }
  return true;
}

}  // namespace

bool ExpectedTensor::read(PyObject* spec) {
  auto field = [spec](const char* name) { return Ref::owned(PyObject_GetAttrString(spec, name)); };
  Ref dtype_object = field("dtype"), device_object = field("device"), grad = field("requires_grad");
  Ref size_tuple = field("sizes"), stride_tuple = field("strides");
  Ref offset = field("storage_offset"), keys = field("dispatch_keys");
  if (PyErr_Occurred()) return false;
  if (!THPDtype_Check(dtype_object.get()) || !THPDevice_Check(device_object.get())) {
    return fail(PyExc_TypeError, "expected a torch.dtype and a torch.device");
  }
  const c10::Device device = reinterpret_cast<THPDevice*>(device_object.get())->device;
  dtype = static_cast<int8_t>(reinterpret_cast<THPDtype*>(dtype_object.get())->scalar_type);
  device_type = static_cast<int8_t>(device.type());
  device_index = device.index();
  requires_grad = PyObject_IsTrue(grad.get()) == 1;
  dispatch_keys = PyLong_AsUnsignedLongLong(keys.get());
  storage_offset = read_number(offset.get());
  has_strides = stride_tuple.get() != Py_None;
  if (PyErr_Occurred() || !read_numbers(size_tuple.get(), sizes)) return false;
  return !has_strides || read_numbers(stride_tuple.get(), strides);
}

void ExpectedTensor::set_type(PyObject* known) {
  if (is_tensor_class(reinterpret_cast<PyTypeObject*>(known))) type = known;
}

bool ExpectedTensor::may_run_python() const {
  c10::DispatchKeySet keys(c10::DispatchKeySet::RAW, dispatch_keys);
  return keys.has(c10::DispatchKey::Python);
}

bool ExpectedTensor::matches(PyObject* value) const noexcept {
  const c10::TensorImpl* impl = tensor_of(value, type);
  if (impl == nullptr) return false;
  // The key set comes first: it says which of the other questions are safe to ask.
  if (impl->key_set().raw_repr() != dispatch_keys) return false;
  if (impl->has_symbolic_sizes_strides()) return false;
  try {
    const c10::Device device = impl->device();
    if (!same_numbers(impl->sizes(), sizes) ||
        c10::typeMetaToScalarType(impl->dtype()) != static_cast<c10::ScalarType>(dtype) ||
        static_cast<int8_t>(device.type()) != device_type || device.index() != device_index ||
        needs_grad(impl) != requires_grad) {
      return false;
    }
    if (!has_strides) return true;
    if (!same_numbers(impl->strides(), strides)) return false;
    return storage_offset == kAny || impl->storage_offset() == storage_offset;
  } catch (...) {  // a tensor that has no sizes, or a subclass that fails to say
    PyErr_Clear();
    return false;
  }
}

void ExpectedTensor::prefetch(PyObject* value) const noexcept {
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != type) return;
  const auto* impl = reinterpret_cast<const char*>(THPVariable_Unpack(value).unsafeGetTensorImpl());
  for (size_t i = 0; i < sizeof(c10::TensorImpl); i += 64) __builtin_prefetch(impl + i);
}

int64_t measure(PyObject* value, Measure what, int64_t dim) noexcept {
  const c10::TensorImpl* impl = measurable(value);
  if (impl == nullptr) return ExpectedTensor::kAny;
  try {
    if (what == Measure::Offset) return impl->storage_offset();
    const c10::IntArrayRef numbers = what == Measure::Size ? impl->sizes() : impl->strides();
    if (static_cast<size_t>(dim) < numbers.size()) return numbers[dim];
  } catch (...) {  // a layout that has no strides
    PyErr_Clear();
  }
  return ExpectedTensor::kAny;
}

bool traits_of(PyObject* value, TensorTraits& traits) noexcept {
  const c10::TensorImpl* impl = measurable(value);
  if (impl == nullptr) return false;
  try {
    auto dtype = static_cast<int8_t>(c10::typeMetaToScalarType(impl->dtype()));
    traits = {impl->key_set().raw_repr(), impl->sizes().size(), dtype, needs_grad(impl)};
    return true;
  } catch (...) {  // a tensor that has no sizes
    PyErr_Clear();
    return false;
  }
}

void init_tensors() { set_extra_comparable(&THPDeviceType); }

}  // namespace pliant
