#include "state.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/PyInterpreter.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "facts.h"

// ATen/autocast_mode.h declares these, but includes every operator.
namespace at::autocast {
TORCH_API bool is_autocast_enabled(at::DeviceType device_type);
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device_type);
TORCH_API bool is_autocast_cache_enabled();
}  // namespace at::autocast

namespace pliant {

namespace {

using FunctionModes = at::impl::PythonTorchFunctionTLS;
using DispatchModes = c10::impl::TorchDispatchModeTLS;

enum class Shown { Bool, Int, Dtype };

struct Field {
  const char* name;
  int32_t Snapshot::*number;
  Shown shown;
  int32_t usual;  // not worth printing
};

const Field kFields[] = {
#define PLIANT_FIELD(name, shown, usual) {#name, &Snapshot::name, Shown::shown, usual},
    PLIANT_STATE_FIELDS(PLIANT_FIELD)
#undef PLIANT_FIELD
};

PyTypeObject state_type = blank_type();

State* self_of(PyObject* object) { return reinterpret_cast<State*>(object); }

int32_t autocast_dtype(c10::DeviceType device) {
  return static_cast<int32_t>(at::autocast::get_autocast_dtype(device));
}

Snapshot take_snapshot() {
  Snapshot s;
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  s.included_keys = keys.included_.raw_repr();
  s.excluded_keys = keys.excluded_.raw_repr();
  s.functorch = keys.included_.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  s.jit_tracing = keys.included_.has(c10::DispatchKey::Tracer);
  const auto& autograd = c10::AutogradState::get_tls_state();
  s.grad_enabled = autograd.get_grad_mode();
  s.inference = autograd.get_inference_mode();
  s.forward_grad_enabled = autograd.get_fw_grad_mode();
  s.autocast_cpu = at::autocast::is_autocast_enabled(c10::DeviceType::CPU);
  s.autocast_cuda = at::autocast::is_autocast_enabled(c10::DeviceType::CUDA);
  s.autocast_cpu_dtype = s.autocast_cpu ? autocast_dtype(c10::DeviceType::CPU) : -1;
  s.autocast_cuda_dtype = s.autocast_cuda ? autocast_dtype(c10::DeviceType::CUDA) : -1;
  s.autocast_cache = at::autocast::is_autocast_cache_enabled();
  s.default_dtype = static_cast<int32_t>(c10::get_default_dtype_as_scalartype());
  const auto& context = at::globalContext();
  s.deterministic = context.deterministicAlgorithms();
  s.deterministic_warn_only = context.deterministicAlgorithmsWarnOnly();
  s.function_disabled = static_cast<int32_t>(FunctionModes::get_disabled_state());
  s.function_modes = static_cast<int32_t>(FunctionModes::stack_len());
  s.dispatch_modes = static_cast<int32_t>(DispatchModes::stack_len());
  return s;
}

bool same_snapshot(const Snapshot& a, const Snapshot& b) {
  static_assert(sizeof(Snapshot) == 2 * sizeof(uint64_t) + 16 * sizeof(int32_t));
  return std::memcmp(&a, &b, sizeof a) == 0;
}

PyObject* active_mode(int64_t i, int64_t function_modes) {
  if (i < function_modes) return FunctionModes::get_stack_at(i)->ptr(getPyInterpreter());
  return DispatchModes::get_stack_at(i - function_modes)->ptr(getPyInterpreter());
}

PyObject* device_of(PyObject* mode) {
  static PyObject* const name = PyUnicode_InternFromString("device");
  PyObject* dict = instance_dict(mode);
  bool odd = false;
  return dict != nullptr ? plain_lookup(dict, name, odd) : nullptr;
}

// Modes are the same objects; but `with torch.device(...)` makes a new one each time.
bool same_mode(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b) || std::strcmp(Py_TYPE(a)->tp_name, "DeviceContext") != 0) {
    return false;
  }
  PyObject* device = device_of(a);
  PyObject* other = device_of(b);
  return device != nullptr && other != nullptr && same_constant(device, other);
}

bool same_modes(const State& a, const State& b) {
  auto same = [](const Ref& x, const Ref& y) { return same_mode(x.get(), y.get()); };
  return std::equal(a.modes->begin(), a.modes->end(), b.modes->begin(), b.modes->end(), same);
}

bool same_state(const State& a, const State& b) {
  return same_snapshot(a.snapshot, b.snapshot) && same_modes(a, b);
}

PyObject* shown_value(const Snapshot& snapshot, const Field& field) {
  int32_t number = snapshot.*field.number;
  if (field.shown == Shown::Bool) return PyBool_FromLong(number);
  if (field.shown == Shown::Int) return PyLong_FromLong(number);
  if (number < 0) Py_RETURN_NONE;
  auto* dtype = torch::getTHPDtype(static_cast<c10::ScalarType>(number));
  return Py_NewRef(reinterpret_cast<PyObject*>(dtype));
}

PyObject* get_field(PyObject* self, void* closure) {
  return shown_value(self_of(self)->snapshot, *static_cast<const Field*>(closure));
}

// The fields of a state that are unusual; or, given another one, those that differ.
PyObject* text_of(const Snapshot& snapshot, const Snapshot* other) {
  Ref text = Ref::owned(PyUnicode_FromString(""));
  for (const Field& field : kFields) {
    int32_t usual = other != nullptr ? other->*field.number : field.usual;
    if (snapshot.*field.number == usual) continue;
    Ref value = Ref::owned(shown_value(snapshot, field));
    Ref got = Ref::owned(other != nullptr ? shown_value(*other, field) : Py_NewRef(Py_None));
    if (!text || !value || !got) return nullptr;
    const char* format = other != nullptr ? "%U%s%s == %S, got %S" : "%U%s%s=%S";
    const char* comma = PyUnicode_GET_LENGTH(text.get()) != 0 ? ", " : "";
    text = Ref::owned(PyUnicode_FromFormat(format, text.get(), comma, field.name, value.get(),
                                           got.get()));
  }
  return text.release();
}

PyObject* state_str(PyObject* self) { return text_of(self_of(self)->snapshot, nullptr); }

PyObject* state_diff(PyObject* self, PyObject* other) {
  if (!is_state(other)) return PyErr_Format(PyExc_TypeError, "expected a State, got %R", other);
  const State &a = *self_of(self), &b = *self_of(other);
  Ref text = Ref::owned(text_of(a.snapshot, &b.snapshot));
  if (!text || PyUnicode_GET_LENGTH(text.get()) != 0) return text.release();
  if (!same_modes(a, b)) return PyUnicode_FromString("other torch modes are active");
  return PyUnicode_FromString(
      same_snapshot(a.snapshot, b.snapshot) ? "" : "other dispatch keys are active");
}

PyObject* state_richcompare(PyObject* a, PyObject* b, int op) {
  if (!is_state(b) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong(same_state(*self_of(a), *self_of(b)) == (op == Py_EQ));
}

PyObject* state_current(PyObject*, PyObject*) {
  PyObject* object = state_type.tp_alloc(&state_type, 0);
  if (object == nullptr) return nullptr;
  State* self = self_of(object);
  new (&self->snapshot) Snapshot(take_snapshot());
  self->modes = new std::vector<Ref>();
  const int64_t functions = self->snapshot.function_modes;
  for (int64_t i = 0; i < functions + self->snapshot.dispatch_modes; ++i) {
    self->modes->push_back(Ref::borrowed(active_mode(i, functions)));
  }
  return object;
}

int state_traverse(PyObject* self, visitproc visit, void* arg) {
  if (self_of(self)->modes == nullptr) return 0;
  for (const Ref& mode : *self_of(self)->modes) Py_VISIT(mode.get());
  return 0;
}

int state_clear(PyObject* self) {
  std::vector<Ref> old;
  std::swap(old, *self_of(self)->modes);
  return 0;
}

void state_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  delete self_of(self)->modes;
  Py_TYPE(self)->tp_free(self);
}

PyMethodDef state_methods[] = {
    {"current", state_current, METH_NOARGS | METH_STATIC, "The state of this thread, now."},
    {"diff", state_diff, METH_O, "What differs in another state, as text; empty if nothing does."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef state_getset[std::size(kFields) + 1];

}  // namespace

bool State::holds() const noexcept {
  if (!same_snapshot(snapshot, take_snapshot())) return false;
  for (size_t i = 0; i < modes->size(); ++i) {
    PyObject* got = active_mode(static_cast<int64_t>(i), snapshot.function_modes);
    if (!same_mode((*modes)[i].get(), got)) return false;
  }
  return true;
}

bool is_state(PyObject* object) { return Py_TYPE(object) == &state_type; }

PyTypeObject* init_state_type() {
  for (size_t i = 0; i < std::size(kFields); ++i) {
    auto* field = const_cast<Field*>(&kFields[i]);
    state_getset[i] = {field->name, get_field, nullptr, nullptr, field};
  }
  state_type.tp_flags = Py_TPFLAGS_DISALLOW_INSTANTIATION;
  state_type.tp_doc = "PyTorch's global state as far as capture depends on it.";
  state_type.tp_hash = PyObject_HashNotImplemented;
  state_type.tp_str = state_str;
  state_type.tp_richcompare = state_richcompare;
  state_type.tp_methods = state_methods;
  state_type.tp_getset = state_getset;
  return ready(state_type, "pliant._native.State", sizeof(State), state_traverse, state_clear,
               state_dealloc);
}

}  // namespace pliant
