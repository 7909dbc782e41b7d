#include "facts.h"

#include <structmember.h>

#include <cstring>
#include <unordered_map>

#if PY_VERSION_HEX >= 0x030D0000
// Exported by Python, but declared for Python's own use.
extern "C" PyAPI_FUNC(int) _PySet_NextEntry(PyObject*, Py_ssize_t*, PyObject**, Py_hash_t*);
#endif

namespace pliant {

namespace {

// CPython's own struct of a dictionary's keys, alike in 3.11 to 3.14. The hashes of keys are nowhere
// else to be had without running Python code.
struct Keys {
  Py_ssize_t refcount;
  uint8_t log2_size;
  uint8_t log2_index_bytes;
  uint8_t kind;  // 0 is "any keys"; the others are "only keys of type str"
  uint32_t version;
  Py_ssize_t usable;
  Py_ssize_t entry_count;
  char indices[];
};

struct KeysEntry {
  Py_hash_t hash;
  PyObject* key;  // null where one was removed
  PyObject* value;
};

const Keys* keys_of(PyObject* dict) {
  return reinterpret_cast<const Keys*>(reinterpret_cast<PyDictObject*>(dict)->ma_keys);
}

bool has_only_str_keys(PyObject* dict) { return keys_of(dict)->kind != 0; }

bool may_collide(PyObject* dict, PyObject* key, Py_hash_t key_hash) {
  if (has_only_str_keys(dict)) return false;
  const Keys* keys = keys_of(dict);
  const char* end_of_indices = keys->indices + (size_t{1} << keys->log2_index_bytes);
  auto* entries = reinterpret_cast<const KeysEntry*>(end_of_indices);
  for (Py_ssize_t i = 0; i < keys->entry_count; ++i) {
    PyObject* other = entries[i].key;
    if (other == nullptr || other == key || entries[i].hash != key_hash) continue;
    if (!is_plain_key(other)) return true;
  }
  return false;
}

bool same_bits(double a, double b) {
  if (a != a || b != b) return a != a && b != b;
  return std::memcmp(&a, &b, sizeof a) == 0;
}

bool same_complex(PyObject* a, PyObject* b) {
  Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
  return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
}

template <typename Predicate>
bool all_in_tuple(PyObject* tuple, Predicate holds) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    if (!holds(PyTuple_GET_ITEM(tuple, i))) return false;
  }
  return true;
}

template <typename Predicate>
bool all_in_set(PyObject* set, Predicate holds) {
  Py_ssize_t position = 0;
  PyObject* item = nullptr;
  Py_hash_t hash = 0;
  while (_PySet_NextEntry(set, &position, &item, &hash)) {
    if (!holds(item)) return false;
  }
  return true;
}

bool same_tuple(PyObject* a, PyObject* b) {
  Py_ssize_t size = PyTuple_GET_SIZE(a);
  if (size != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  }
  return true;
}

bool same_frozenset(PyObject* a, PyObject* b) {
  auto in_b = [b](PyObject* item) {
    return !all_in_set(b, [item](PyObject* other) { return !same_constant(other, item); });
  };
  return PySet_GET_SIZE(a) == PySet_GET_SIZE(b) && all_in_set(a, in_b);
}

PyTypeObject* extra_comparable = nullptr;

// Types without Python code, whose own comparison is what we want.
bool compares_itself(PyTypeObject* type) {
  return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBytes_Type ||
         type == &PyRange_Type || type == extra_comparable;
}

bool same_slice(PyObject* a, PyObject* b) {
  auto *x = reinterpret_cast<PySliceObject*>(a), *y = reinterpret_cast<PySliceObject*>(b);
  return same_constant(x->start, y->start) && same_constant(x->stop, y->stop) &&
         same_constant(x->step, y->step);
}

bool compares_by_identity(PyTypeObject* type) {
  // None has a comparison of its own in 3.12.
  return type == Py_TYPE(Py_None) || type->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

PyTypeObject* deque_type() {
  static PyObject* type = [] {
    Ref module = Ref::owned(PyImport_ImportModule("collections"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "deque") : nullptr;
    PyErr_Clear();
    return found;
  }();
  return reinterpret_cast<PyTypeObject*>(type);
}

bool ordered_keys_are(PyObject* dict, PyObject* keys) {
  // An OrderedDict keeps its order beside the dictionary, without a version.
  Ref iterator = Ref::owned(PyODict_Type.tp_iter(dict));
  for (Py_ssize_t i = 0; iterator && i < PyTuple_GET_SIZE(keys); ++i) {
    Ref key = Ref::owned(Py_TYPE(iterator.get())->tp_iternext(iterator.get()));
    if (!key || !(key.get() == PyTuple_GET_ITEM(keys, i) ||
                  same_constant(key.get(), PyTuple_GET_ITEM(keys, i)))) {
      PyErr_Clear();
      return false;
    }
  }
  PyErr_Clear();
  return static_cast<bool>(iterator);
}

// The defaults of a function are a place, although reading them is a function of Python's.
Py_ssize_t function_offset(PyTypeObject* type, PyObject* name) {
  static PyObject* defaults = PyUnicode_InternFromString("__defaults__");
  static PyObject* keyword_defaults = PyUnicode_InternFromString("__kwdefaults__");
  if (type != &PyFunction_Type) return 0;
  if (name == defaults) return offsetof(PyFunctionObject, func_defaults);
  return name == keyword_defaults ? offsetof(PyFunctionObject, func_kwdefaults) : 0;
}

Place find_place(PyTypeObject* type, PyObject* name) {
  // A bound method looks at its class first, as other objects do.
  bool usual = type->tp_getattro == PyObject_GenericGetAttr || type == &PyMethod_Type;
  PyObject* found = usual ? _PyType_Lookup(type, name) : nullptr;
  uint64_t version = type_version(reinterpret_cast<PyObject*>(type));
  Py_ssize_t offset = function_offset(type, name);
  if (found != nullptr && offset != 0) return {type, version, offset, true};
  if (found == nullptr || !Py_IS_TYPE(found, &PyMemberDescr_Type)) return {};
  const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(found)->d_member;
  bool plain = (member->type == T_OBJECT || member->type == T_OBJECT_EX) &&
               (member->flags & ~READONLY) == 0 && PyType_IsSubtype(type, PyDescr_TYPE(found));
  return plain ? Place{type, version, member->offset, member->type == T_OBJECT} : Place{};
}

#if PLIANT_WATCHES_DICTS

int watcher = -1;

// Since when each dictionary that is watched is unchanged. (Never freed: Python may still free
// dictionaries when the destructors of static objects have run.)
std::unordered_map<PyObject*, uint64_t>& watched() {
  static auto* dicts = new std::unordered_map<PyObject*, uint64_t>;
  return *dicts;
}

// Called before a dictionary changes or goes. It is not watched any more until someone asks again,
// so that many changes in a row cost no more than one.
int dict_changes(PyDict_WatchEvent event, PyObject* dict, PyObject*, PyObject*) {
  ++dict_epoch;
  watched().erase(dict);
  if (event != PyDict_EVENT_DEALLOCATED) PyDict_Unwatch(watcher, dict);
  return 0;
}

// Python 3.13.0 sets attributes that are kept inside their object without a word.
bool hears_of_attributes() {
  Ref type = Ref::owned(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "P"));
  Ref object = Ref::owned(type ? PyObject_CallNoArgs(type.get()) : nullptr);
  Ref dict = Ref::owned(object ? PyObject_GenericGetDict(object.get(), nullptr) : nullptr);
  if (!dict || dict_version(dict.get()) == 0) return false;
  uint64_t before = dict_epoch;
  return PyObject_SetAttrString(object.get(), "x", Py_None) == 0 && dict_epoch != before;
}

#endif

}  // namespace

#if PLIANT_WATCHES_DICTS

uint64_t dict_epoch = 1;

void init_dict_versions() {
  watcher = PyDict_AddWatcher(dict_changes);
  // Others have them all, or they miss changes: dictionaries have no versions then.
  if (watcher >= 0 && !hears_of_attributes()) {
    PyDict_ClearWatcher(watcher);
    watcher = -1;
  }
  PyErr_Clear();
}

uint64_t dict_version(PyObject* dict) {
  if (watcher < 0) return 0;
  auto [place, is_new] = watched().try_emplace(dict, dict_epoch);
  if (is_new && PyDict_Watch(watcher, dict) < 0) {
    PyErr_Clear();
    watched().erase(place);
    return 0;
  }
  return dict_epoch;
}

bool unchanged_since(PyObject* dict, uint64_t& version) {
  auto place = watched().find(dict);
  if (place == watched().end() || place->second > version) return false;
  version = dict_epoch;
  return true;
}

#endif

PyObject* make_instance_dict(PyObject* object) {
  PyObject** slot = _PyObject_GetDictPtr(object);
  if (slot != nullptr && *slot != nullptr) return *slot;
  if (slot == nullptr) return nullptr;
  Ref made = Ref::owned(PyObject_GenericGetDict(object, nullptr));
  PyErr_Clear();
  slot = _PyObject_GetDictPtr(object);
  return slot == nullptr ? nullptr : *slot;
}

PyObject* plain_member(PyObject* object, PyObject* name, Place& place) {
  PyTypeObject* type = Py_TYPE(object);
  bool known = place.type == type && place.version != 0 &&
               place.version == type_version(reinterpret_cast<PyObject*>(type));
  if (!known) place = find_place(type, name);
  if (place.type == nullptr) return nullptr;
  PyObject* held = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + place.offset);
  return held == nullptr && place.none_if_empty ? Py_None : held;
}

bool type_is_permanent(PyTypeObject* type) {
  return PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE) &&
         !PyType_IsSubtype(type, &PyModule_Type);
}

bool is_plain_key(PyObject* key) {
  PyTypeObject* type = Py_TYPE(key);
  if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBool_Type ||
      type == &PyFloat_Type || type == &PyBytes_Type || key == Py_None) {
    return true;
  }
  if (type == &PyTuple_Type) return all_in_tuple(key, is_plain_key);
  return compares_by_identity(type) && type->tp_hash == PyBaseObject_Type.tp_hash;
}

PyObject* plain_lookup(PyObject* dict, PyObject* key, bool& odd) {
  // Strings are compared by C code. Any other key could meet one with the same hash, whose `__eq__`
  // is Python code.
  if (!(PyUnicode_CheckExact(key) && has_only_str_keys(dict))) {
    Py_hash_t hash = PyObject_Hash(key);
    if (hash == -1 || may_collide(dict, key, hash)) {
      PyErr_Clear();
      odd = true;
      return nullptr;
    }
  }
  PyObject* found = PyDict_GetItemWithError(dict, key);
  if (found == nullptr) PyErr_Clear();
  return found;
}

bool keys_are(PyObject* dict, PyObject* keys) {
  if (PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return false;
  if (PyODict_Check(dict)) return ordered_keys_are(dict, keys);
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, nullptr); ++i) {
    PyObject* expected = PyTuple_GET_ITEM(keys, i);
    if (key != expected && !same_constant(key, expected)) return false;
  }
  return true;
}

PyObject* deque_item(PyObject* object, Py_ssize_t i) {
  PyTypeObject* deque = deque_type();
  if (deque == nullptr || !PyObject_TypeCheck(object, deque)) return nullptr;
  Ref item = Ref::owned(deque->tp_as_sequence->sq_item(object, i));
  if (!item) PyErr_Clear();
  return item.get();  // the deque holds it
}

Py_ssize_t plain_length(PyObject* object) {
  if (PyList_Check(object)) return PyList_GET_SIZE(object);
  if (PyTuple_Check(object)) return PyTuple_GET_SIZE(object);
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  if (PyUnicode_Check(object)) return PyUnicode_GET_LENGTH(object);
  if (PyBytes_Check(object)) return PyBytes_GET_SIZE(object);
  if (PyByteArray_Check(object)) return PyByteArray_GET_SIZE(object);
  if (PyRange_Check(object)) return PyRange_Type.tp_as_sequence->sq_length(object);
  PyTypeObject* deque = deque_type();
  if (deque != nullptr && PyObject_TypeCheck(object, deque)) {
    return deque->tp_as_sequence->sq_length(object);
  }
  return -1;
}

void set_extra_comparable(PyTypeObject* type) { extra_comparable = type; }

bool is_constant(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyBool_Type || type == &PyFloat_Type || type == &PyComplex_Type ||
      compares_itself(type) || compares_by_identity(type)) {
    return true;
  }
  if (PyTuple_Check(value)) return all_in_tuple(value, is_constant);
  if (type == &PySlice_Type) {
    auto* slice = reinterpret_cast<PySliceObject*>(value);
    return is_constant(slice->start) && is_constant(slice->stop) && is_constant(slice->step);
  }
  return type == &PyFrozenSet_Type && all_in_set(value, is_constant);
}

bool same_constant(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return false;
  if (type == &PyFloat_Type) return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (compares_itself(type)) {
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    if (same < 0) PyErr_Clear();
    return same == 1;
  }
  if (PyTuple_Check(a)) return same_tuple(a, b);
  if (type == &PyFrozenSet_Type) return same_frozenset(a, b);
  if (type == &PyComplex_Type) return same_complex(a, b);
  if (type == &PySlice_Type) return same_slice(a, b);
  return false;
}

}  // namespace pliant
