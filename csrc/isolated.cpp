// Calls after which the interpreter and PyTorch are as before, however they end. A signal can raise
// an exception between any two steps of Python code, in a `finally` too, but not in here.
#include "isolated.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>

#include <system_error>
#include <thread>

namespace pliant {

namespace {

// An exception that was raised and is looked at later.
class Raised : Pinned {
 public:
  Raised() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~Raised() {
    Py_XDECREF(type_);
    Py_XDECREF(value_);
    Py_XDECREF(traceback_);
  }

  // What is raised in the end: this, unless cleaning up was interrupted or nothing else failed.
  void restore() {
    if (type_ == nullptr || (PyErr_Occurred() != nullptr && must_propagate())) return;
    PyErr_Restore(std::exchange(type_, nullptr), std::exchange(value_, nullptr),
                  std::exchange(traceback_, nullptr));
  }

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

int autocast_nesting() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

// The exception that is being handled: `sys.exception()`. Python 3.11 forgets to put it back where a
// tracer raises as a `with` is left by an exception. Later ones would have that as their context.
class Handled {
 public:
  Handled() : exception_(Ref::owned(PyErr_GetHandledException())) {}

  void restore() const {
    if (is_current()) return;
    PyErr_SetHandledException(nullptr);  // it may be that of the caller of a generator
    if (!is_current()) PyErr_SetHandledException(exception_.get());
  }

 private:
  bool is_current() const {
    return Ref::owned(PyErr_GetHandledException()).get() == exception_.get();
  }

  Ref exception_;
};

// The state of this thread.
class Saved {
 public:
  Saved()
      : nesting_(autocast_nesting()),
        caching_(at::autocast::is_autocast_cache_enabled()),
        collecting_(PyGC_IsEnabled()),
        recursion_limit_(Py_GetRecursionLimit()) {}

  void restore() const {
    at::ThreadLocalState::setThreadLocalState(torch_);
    at::autocast::set_autocast_cache_enabled(caching_);
    const int nesting = autocast_nesting();
    for (int i = nesting; i > nesting_; --i) at::autocast::decrement_nesting();
    for (int i = nesting; i < nesting_; ++i) at::autocast::increment_nesting();
    // The cache is emptied when the outermost autocast is left, which may not have happened.
    if (nesting != nesting_ && nesting_ == 0) at::autocast::clear_cache();
    collecting_ ? PyGC_Enable() : PyGC_Disable();
    if (Py_GetRecursionLimit() != recursion_limit_) Py_SetRecursionLimit(recursion_limit_);
    handled_.restore();
  }

 private:
  at::ThreadLocalState torch_;
  int nesting_;
  bool caching_;
  int collecting_;
  int recursion_limit_;
  Handled handled_;
};

// Call `cleanups`, the last one first, and empty the list: those that were added meanwhile too. An
// error is raised in the end, and keeps none of the others from being called.
void clean_up(PyObject* cleanups) {
  while (PyList_GET_SIZE(cleanups) > 0) {
    Raised before;
    Py_ssize_t last = PyList_GET_SIZE(cleanups) - 1;
    Ref cleanup = Ref::borrowed(PyList_GET_ITEM(cleanups, last));
    if (PyList_SetSlice(cleanups, last, last + 1, nullptr) < 0) return;
    Ref done = Ref::owned(PyObject_CallNoArgs(cleanup.get()));
    before.restore();
  }
}

bool call_lock(PyObject* lock, const char* method) {
  if (lock == Py_None) return true;
  return static_cast<bool>(Ref::owned(PyObject_CallMethod(lock, method, nullptr)));
}

PyObject* isolated(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  constexpr Py_ssize_t kOwn = 3;
  if (nargs < kOwn || !PyList_Check(args[1])) {
    return PyErr_Format(PyExc_TypeError, "isolated(lock, cleanups: list, function, *args)");
  }
  Ref cleanups = Ref::borrowed(args[1]);
  if (!call_lock(args[0], "acquire")) return nullptr;
  Saved saved;  // part of it belongs to all threads: not while another one changes it
  PyObject* result =
      PyObject_Vectorcall(args[2], args + kOwn, static_cast<size_t>(nargs - kOwn), nullptr);
  clean_up(cleanups.get());
  {
    Raised raised;
    saved.restore();
    call_lock(args[0], "release");
    raised.restore();
  }
  if (PyErr_Occurred() == nullptr) return result;
  Py_XDECREF(result);
  return nullptr;
}

// The state is left alone: this is for short functions, beside which others may change it.
PyObject* locked(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs < 2) return PyErr_Format(PyExc_TypeError, "locked(lock, function, *args)");
  if (!call_lock(args[0], "acquire")) return nullptr;
  PyObject* result =
      PyObject_Vectorcall(args[1], args + 2, static_cast<size_t>(nargs - 2), nullptr);
  Raised raised;
  call_lock(args[0], "release");
  raised.restore();
  return result;
}

// Call with neither modes nor subclasses that see functions.
PyObject* without_torch_function(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs < 1) return PyErr_Format(PyExc_TypeError, "without_torch_function(function, *args)");
  WithoutTorchFunction off;
  return PyObject_Vectorcall(args[0], args + 1, static_cast<size_t>(nargs - 1), nullptr);
}

thread_local bool is_helper_thread = false;

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

// What a thread of its own calls, and how that ended.
struct ThreadCall {
  PyObject* const* args;
  Py_ssize_t nargs;
  PyObject *result = nullptr, *type = nullptr, *value = nullptr, *traceback = nullptr;

  void run() {
    is_helper_thread = true;
    PyGILState_STATE state = PyGILState_Ensure();
    result = PyObject_Vectorcall(args[0], args + 1, static_cast<size_t>(nargs - 1), nullptr);
    if (result == nullptr) PyErr_Fetch(&type, &value, &traceback);
    PyGILState_Release(state);
  }
};

// Python raises what signals raise in the main thread alone, so the function runs in another one.
// A call from within such a function stays in its thread, which may hold locks.
PyObject* uninterrupted(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  if (nargs < 1) return PyErr_Format(PyExc_TypeError, "uninterrupted(function, *args)");
  ThreadCall call{args, nargs};
  bool started = false;
  if (!is_helper_thread && !is_finalizing()) {  // no thread gets the GIL after that
    Py_BEGIN_ALLOW_THREADS;
    try {
      std::thread thread(&ThreadCall::run, &call);
      started = true;
      thread.join();
    } catch (const std::system_error&) {  // the system has no more threads
    }
    Py_END_ALLOW_THREADS;
  }
  if (!started) {
    return PyObject_Vectorcall(args[0], args + 1, static_cast<size_t>(nargs - 1), nullptr);
  }
  if (call.result == nullptr) PyErr_Restore(call.type, call.value, call.traceback);
  return call.result;
}

// Drop what nobody else has from a dictionary, from the latest on: earlier values may be parts of
// later ones. No other thread can get hold of a value meanwhile.
PyObject* drop_unused(PyObject*, PyObject* dict) {
  if (!PyDict_Check(dict)) return PyErr_Format(PyExc_TypeError, "expected a dict, got %R", dict);
  Ref keys = Ref::owned(PyDict_Keys(dict));
  if (!keys) return nullptr;
  Py_ssize_t dropped = 0;
  for (Py_ssize_t i = PyList_GET_SIZE(keys.get()) - 1; i >= 0; --i) {
    PyObject* key = PyList_GET_ITEM(keys.get(), i);
    PyObject* value = PyDict_GetItemWithError(dict, key);
    // The one reference is that of the dictionary.
    if (value != nullptr && Py_REFCNT(value) == 1 && PyDict_DelItem(dict, key) == 0) ++dropped;
    if (PyErr_Occurred() != nullptr) return nullptr;
    PyList_SetItem(keys.get(), i, Py_NewRef(Py_None));  // the key may have parts of its own
  }
  return PyLong_FromSsize_t(dropped);
}

}  // namespace

PyMethodDef isolated_methods[] = {  // described in the stub
    {"isolated", method(isolated), METH_FASTCALL, "(lock, cleanups, function, *args)"},
    {"locked", method(locked), METH_FASTCALL, "(lock, function, *args)"},
    {"without_torch_function", method(without_torch_function), METH_FASTCALL, "(function, *args)"},
    {"uninterrupted", method(uninterrupted), METH_FASTCALL, "(function, *args)"},
    {"drop_unused", drop_unused, METH_O, "drop_unused(dict): how many values were dropped."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace pliant
