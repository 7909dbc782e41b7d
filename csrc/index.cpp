#include "index.h"

#include <algorithm>
#include <cmath>

#include "facts.h"
#include "tensor.h"

namespace pliant {

namespace {

uint64_t mixed(uint64_t seed, uint64_t next) {
  return (seed ^ next) * 0x9E3779B97F4A7C15ull + (seed >> 29);
}

uint64_t address_of(const void* object) { return reinterpret_cast<uintptr_t>(object); }

// Equal for constants that are the same (see `same_constant`); false for what is not of a class
// whose hash runs no Python code.
bool hash_constant(PyObject* value, uint64_t& hash) noexcept {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyFloat_Type && std::isnan(PyFloat_AS_DOUBLE(value))) {
    hash = 0;
    return true;
  }
  if (type != &PyLong_Type && type != &PyBool_Type && type != &PyFloat_Type &&
      type != &PyUnicode_Type && type != &PyBytes_Type && value != Py_None) {
    return false;
  }
  hash = static_cast<uint64_t>(PyObject_Hash(value));
  return true;
}

uint64_t hash_tensor(const TensorTraits& traits) {
  uint64_t hash = mixed(traits.dispatch_keys, traits.dims);
  return mixed(hash, static_cast<uint64_t>(traits.dtype) * 2 + traits.requires_grad);
}

// Borrowed; null if it is not there, or not to be had without Python code.
PyObject* follow(const Question::Step& step, PyObject* value) noexcept {
  if (step.access == Access::InstanceDict) return instance_dict(value);
  if (step.access == Access::DictItem) {
    bool odd = false;
    PyObject* found = PyDict_Check(value) ? plain_lookup(value, step.key.get(), odd) : nullptr;
    return odd ? nullptr : found;
  }
  if (PyList_Check(value)) {
    return step.index < PyList_GET_SIZE(value) ? PyList_GET_ITEM(value, step.index) : nullptr;
  }
  if (!PyTuple_Check(value)) return nullptr;
  return step.index < PyTuple_GET_SIZE(value) ? PyTuple_GET_ITEM(value, step.index) : nullptr;
}

bool read_step(PyObject* object, Question::Step& step) {
  if (object == Py_None) {
    step.access = Access::InstanceDict;
  } else if (PyUnicode_CheckExact(object)) {
    step.access = Access::DictItem;
    step.key = Ref::borrowed(object);
  } else {
    step.access = Access::SeqItem;
    step.index = PyNumber_AsSsize_t(object, PyExc_OverflowError);
    if (!PyErr_Occurred() && step.index < 0) PyErr_BadArgument();
  }
  return PyErr_Occurred() == nullptr;
}

}  // namespace

bool Question::read(PyObject* question) {
  PyObject* way = nullptr;
  unsigned char number = 0;
  long long dimension = 0;
  if (!PyArg_ParseTuple(question, "nO!bL", &local, &PyTuple_Type, &way, &number, &dimension)) {
    return false;
  }
  if (number >= kModes || dimension < 0) return fail(PyExc_ValueError, "no such question");
  mode = static_cast<Mode>(number);
  dim = dimension;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(way); ++i) {
    if (!read_step(PyTuple_GET_ITEM(way, i), steps.emplace_back())) return false;
  }
  return true;
}

bool Question::ask(PyObject* const* locals, uint64_t& answer) const noexcept {
  PyObject* value = locals[local];
  for (const Step& step : steps) {
    if (value != nullptr) value = follow(step, value);
  }
  if (value == nullptr) return false;
  switch (mode) {
    case Equal: return hash_constant(value, answer);
    case Is: answer = address_of(value); return true;
    case Type: answer = address_of(Py_TYPE(value)); return true;
    case Length: answer = static_cast<uint64_t>(plain_length(value)); return answer <= INT64_MAX;
    case Tensor: {
      TensorTraits traits{};
      bool known = traits_of(value, traits);
      answer = known ? hash_tensor(traits) : 0;
      return known;
    }
    case Size:
      answer = static_cast<uint64_t>(measure(value, Measure::Size, dim));
      return static_cast<int64_t>(answer) != ExpectedTensor::kAny;
    case kModes: break;
  }
  return false;
}

bool Question::demanded(PyObject* expected, uint64_t& answer) const {
  if (mode == Is || mode == Type) {
    answer = address_of(expected);
    return true;
  }
  if (mode == Length || mode == Size) {
    answer = static_cast<uint64_t>(PyLong_AsLongLong(expected));
    return PyErr_Occurred() == nullptr;
  }
  if (mode == Tensor) {
    ExpectedTensor spec;
    if (!spec.read(expected)) return false;
    answer = hash_tensor({spec.dispatch_keys, spec.sizes.size(), spec.dtype, spec.requires_grad});
    return true;
  }
  if (hash_constant(expected, answer)) return true;
  return fail(PyExc_TypeError, "%R has no hash that is known here", expected);
}

void Index::add(Entry* entry) {
  rest_.push_back(entry);
  touch(entry);
}

bool Index::file(Entry* entry, PyObject* answers) {
  if (!PyTuple_Check(answers) ||
      static_cast<size_t>(PyTuple_GET_SIZE(answers)) != questions.size()) {
    return fail(PyExc_ValueError, "expected %zu answers", questions.size());
  }
  auto place = std::find(rest_.begin(), rest_.end(), entry);
  if (place == rest_.end()) {
    return fail(PyExc_ValueError, "the entry is not there, or filed already");
  }
  uint64_t hash = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    uint64_t answer = 0;
    PyObject* expected = PyTuple_GET_ITEM(answers, static_cast<Py_ssize_t>(i));
    if (!questions[i].demanded(expected, answer)) return false;
    hash = mixed(hash, answer);
  }
  rest_.erase(place);
  buckets_[hash].push_back(entry);
  return true;
}

bool Index::candidates(PyObject* const* locals, std::vector<Ref>& out) const {
  uint64_t hash = 0;
  for (const Question& question : questions) {
    uint64_t answer = 0;
    if (!question.ask(locals, answer)) return false;
    hash = mixed(hash, answer);
  }
  auto hold = [&out](Entry* entry) {
    out.push_back(Ref::borrowed(reinterpret_cast<PyObject*>(entry)));
  };
  auto bucket = buckets_.find(hash);
  if (bucket != buckets_.end()) std::for_each(bucket->second.begin(), bucket->second.end(), hold);
  std::for_each(rest_.begin(), rest_.end(), hold);
  sort_by_use(out);
  return true;
}

void sort_by_use(std::vector<Ref>& entries) {
  auto used = [](const Ref& entry) { return reinterpret_cast<Entry*>(entry.get())->used; };
  std::sort(entries.begin(), entries.end(),
            [used](const Ref& a, const Ref& b) { return used(a) > used(b); });
}

}  // namespace pliant
