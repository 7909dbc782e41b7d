// Questions about Python objects that are answered without running any Python code.
//
// The guard tree keeps borrowed pointers while it walks; that is only sound because nothing here
// calls back into Python: no `__eq__`, `__hash__` or `__len__` of the user, no descriptor.
#pragma once

#include <cstdint>

#include "python.h"

namespace pliant {

// `dict_version`: a version of the dictionary as it is now, 0 if it has none.
// `same_dict_version`: whether it is unchanged since it had this version, which is brought up to
// date. The dictionary may be gone, with another object in its place.
#if PLIANT_WATCHES_DICTS

// Python tells when a dictionary that is watched changes or goes. The number grows with each such
// event; a version is the number at some time.
extern uint64_t dict_epoch;

void init_dict_versions();
uint64_t dict_version(PyObject* dict);
bool unchanged_since(PyObject* dict, uint64_t& version);

inline bool same_dict_version(PyObject* dict, uint64_t& version) {
  return version == dict_epoch || unchanged_since(dict, version);
}

#else

// Python keeps a number in the dictionary, which changes with every modification of it and is
// never used twice.
inline void init_dict_versions() {}

inline uint64_t dict_version(PyObject* dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
}

inline bool same_dict_version(PyObject* dict, uint64_t& version) {
  return PyDict_Check(dict) && dict_version(dict) == version;
}

#endif

// Changes when an attribute of the class or of one of its bases does; 0 while there is none.
inline uint64_t type_version(PyObject* type) {
  auto* t = reinterpret_cast<PyTypeObject*>(type);
#if PY_VERSION_HEX >= 0x030D0000
  return t->tp_version_tag;
#else
  return PyType_HasFeature(t, Py_TPFLAGS_VALID_VERSION_TAG) ? t->tp_version_tag : 0;
#endif
}

// The `__dict__` of an instance, made if it is not there yet; borrowed; null if it cannot have one.
PyObject* make_instance_dict(PyObject* object);

inline PyObject* instance_dict(PyObject* object) {
  // Where instances of most classes keep it. An odd number is not a dictionary yet (3.12).
  if (PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) {
    PyObject* dict = reinterpret_cast<PyObject**>(object)[-3];
    if (dict != nullptr && (reinterpret_cast<uintptr_t>(dict) & 1) == 0) return dict;
  }
  return make_instance_dict(object);
}

// Where in instances of a class an attribute is kept, as long as the class has this version.
struct Place {
  PyTypeObject* type = nullptr;
  uint64_t version = 0;
  Py_ssize_t offset = 0;
  bool none_if_empty = false;
};

// `object.name` where that is a place in the object itself, as of `__slots__`, or the defaults of a
// function; borrowed; null if it is something else, or empty. The place is remembered.
PyObject* plain_member(PyObject* object, PyObject* name, Place& place);

// An instance of `type` stays one: its `__class__` cannot be assigned.
bool type_is_permanent(PyTypeObject* type);

// Hashing and comparing `key` runs no Python code.
bool is_plain_key(PyObject* key);

// `dict[key]` of a plain key, borrowed; null if it is not there. `odd` is set if that is not known,
// because the dictionary has another key, with an `__eq__` in Python, of the same hash.
PyObject* plain_lookup(PyObject* dict, PyObject* key, bool& odd);

// Whether the keys of `dict` are `keys`, of the same types, in order.
bool keys_are(PyObject* dict, PyObject* keys);

// `deque[i]`, borrowed; null if the object is no deque or has no such item.
PyObject* deque_item(PyObject* object, Py_ssize_t i);

// The length of a built-in container or of a subclass of one; -1 for anything else.
Py_ssize_t plain_length(PyObject* object);

// A type defined elsewhere, in C, whose `==` runs no Python code (torch.device).
void set_extra_comparable(PyTypeObject* type);

// A value that `same_constant` can compare: None, numbers, strings, ranges, objects that are equal
// only to themselves, and tuples, frozensets and slices of such values.
bool is_constant(PyObject* value);

// Whether two values have the same type and are equal, all the way down. Floats are compared by
// bits, but any NaN equals any NaN.
bool same_constant(PyObject* a, PyObject* b);

}  // namespace pliant
