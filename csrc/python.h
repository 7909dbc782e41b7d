// What every file here shares about Python: owned references and the supported versions.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <memory>
#include <utility>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000
#error "pliant knows how CPython 3.11 to 3.14 lay out dictionaries and classes"
#endif
#ifdef Py_GIL_DISABLED
#error "pliant needs the global interpreter lock: this is the free-threaded build of Python"
#endif

// From 3.13 on the number in a dictionary is not what it was; 3.14 has none.
#define PLIANT_WATCHES_DICTS (PY_VERSION_HEX >= 0x030D0000)

namespace pliant {

// What stays in its place.
struct Pinned {
  Pinned() = default;
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
};

// An owned reference.
class Ref {
 public:
  Ref() = default;
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    // The old object goes last: its destructor may look at us.
    PyObject* old = std::exchange(object_, std::exchange(other.object_, nullptr));
    Py_XDECREF(old);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  static Ref owned(PyObject* object) { return Ref(object); }
  static Ref borrowed(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit Ref(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

// Owned values, of a number known at run time, on the stack unless there are many. One cell is
// spare in front, for PY_VECTORCALL_ARGUMENTS_OFFSET.
class Values : Pinned {
 public:
  explicit Values(size_t count) : count_(count) {
    if (count >= kInline) {
      heap_ = std::make_unique_for_overwrite<PyObject*[]>(count + 1);
      cells_ = heap_.get() + 1;
    } else {
      cells_ = inline_ + 1;
    }
    for (size_t i = 0; i < count; ++i) cells_[i] = nullptr;
  }
  ~Values() { clear(); }

  PyObject** data() { return cells_; }
  PyObject*& operator[](size_t i) { return cells_[i]; }
  void clear() {
    for (size_t i = 0; i < count_; ++i) Py_CLEAR(cells_[i]);
  }

 private:
  static constexpr size_t kInline = 64;
  size_t count_;
  PyObject** cells_;
  PyObject* inline_[kInline];
  std::unique_ptr<PyObject*[]> heap_;
};

// Clears the fields of a garbage-collected object in any order that is safe.
template <typename T>
void clear_field(T*& field) {
  PyObject* old = reinterpret_cast<PyObject*>(std::exchange(field, nullptr));
  Py_XDECREF(old);
}

// A static type to be filled in, field by field, and readied when the module is made.
inline PyTypeObject blank_type() {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  return type;
}

// Frees an object that has nothing left once it is cleared.
inline void dealloc_cleared(PyObject* object) {
  PyObject_GC_UnTrack(object);
  Py_TYPE(object)->tp_clear(object);
  Py_TYPE(object)->tp_free(object);
}

// What all our types have; null, with a Python error, if it fails.
inline PyTypeObject* ready(PyTypeObject& type, const char* name, size_t size, traverseproc traverse,
                           inquiry clear, destructor dealloc = dealloc_cleared) {
  type.tp_name = name;
  type.tp_basicsize = static_cast<Py_ssize_t>(size);
  type.tp_flags |= Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  type.tp_dealloc = dealloc;
  type.tp_traverse = traverse;
  type.tp_clear = clear;
  return PyType_Ready(&type) == 0 ? &type : nullptr;
}

// Of functions that take their arguments in other ways than the type says.
template <typename Function>
PyCFunction method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// Sets a Python error; false.
template <typename... Args>
bool fail(PyObject* type, const char* format, Args... args) {
  PyErr_Format(type, format, args...);
  return false;
}

inline PyObject* tuple_of(PyObject* const* values, Py_ssize_t count) {
  PyObject* tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple != nullptr && i < count; ++i) {
    PyTuple_SET_ITEM(tuple, i, Py_NewRef(values[i]));
  }
  return tuple;
}

}  // namespace pliant
