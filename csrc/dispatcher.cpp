// `Dispatcher`: a compiled function. A call binds its arguments, looks for an entry whose guards
// hold, most recently used first, and runs its residual code. Python decides what to do otherwise.
#include "binding.h"
#include "facts.h"
#include "index.h"
#include "objects.h"
#include "profile.h"

#include <structmember.h>

#include <algorithm>
#include <vector>

namespace pliant {

namespace {

enum Mode { kCompile = 0, kEagerOnMiss = 1, kEager = 2 };

struct Dispatcher {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* fn;
  PyObject* on_miss;
  PyObject* on_error;
  PyObject* entries;  // a tuple, replaced when it changes
  PyObject* dict;
  PyObject* weakrefs;
  Signature* signature;
  Index* index;  // of the entries, where there are many; null if they are tried in order
  int mode;
};

// A call that residual code leaves to the dispatcher: it returns what to call instead of calling
// it, so that a loop which breaks the graph in each round does not go one level deeper each time.
struct TailCall {
  PyObject_HEAD
  PyObject* target;
  PyObject* args;  // a tuple
};

PyTypeObject dispatcher_type = blank_type();
PyTypeObject tail_call_type = blank_type();

thread_local bool bypass = false;
thread_local int64_t call_start = 0;  // of the latest call that is measured

Dispatcher* self_of(PyObject* object) { return reinterpret_cast<Dispatcher*>(object); }

// The call as it was made, for running the function itself.
struct Call { PyObject* const* args; size_t nargsf; PyObject* kwnames; };

PyObject* run_eagerly(Dispatcher* self, const Call& call) {
  // `fn` may be replaced while it runs, if the object is cleared.
  Ref fn = Ref::borrowed(self->fn);
  return PyObject_Vectorcall(fn.get(), call.args, call.nargsf, call.kwnames);
}

// Entries ----------------------------------------------------------------------------------------

Py_ssize_t position_of(PyObject* entries, PyObject* entry) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); ++i) {
    if (PyTuple_GET_ITEM(entries, i) == entry) return i;
  }
  return -1;
}

// A new tuple without the item at `skip` (if not negative), with `first` (if not null) in front.
bool replace_entries(Dispatcher* self, PyObject* first, Py_ssize_t skip) {
  PyObject* old = self->entries;
  Py_ssize_t count = PyTuple_GET_SIZE(old) - (skip >= 0) + (first != nullptr);
  PyObject* entries = PyTuple_New(count);
  if (entries == nullptr) return false;
  Py_ssize_t to = 0;
  if (first != nullptr) PyTuple_SET_ITEM(entries, to++, Py_NewRef(first));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(old); ++i) {
    if (i != skip) PyTuple_SET_ITEM(entries, to++, Py_NewRef(PyTuple_GET_ITEM(old, i)));
  }
  self->entries = entries;
  Py_DECREF(old);
  return true;
}

std::vector<Ref> all_entries(Dispatcher* self) {
  std::vector<Ref> found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->entries); ++i) {
    found.push_back(Ref::borrowed(PyTuple_GET_ITEM(self->entries, i)));
  }
  // With an index entries aren't moved when they are used; they have the time of their last use.
  if (self->index != nullptr) sort_by_use(found);
  return found;
}

PyObject* list_of(const std::vector<Ref>& items) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(items.size()));
  for (size_t i = 0; list != nullptr && i < items.size(); ++i) {
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Py_NewRef(items[i].get()));
  }
  return list;
}

// Back to trying in order, which is that of use from now on.
bool drop_index(Dispatcher* self) {
  if (self->index == nullptr) return true;
  Ref list = Ref::owned(list_of(all_entries(self)));
  Ref entries = Ref::owned(list ? PyList_AsTuple(list.get()) : nullptr);
  if (!entries) return false;
  delete std::exchange(self->index, nullptr);
  PyObject* old = std::exchange(self->entries, entries.release());
  Py_DECREF(old);
  return true;
}

// The entries that a call can fit, in the order in which they are to be tried.
std::vector<Ref> candidates(Dispatcher* self, PyObject* const* locals) {
  std::vector<Ref> found;
  if (self->index == nullptr || !self->index->candidates(locals, found)) {
    found = all_entries(self);
  }
  return found;
}

void move_to_front(Dispatcher* self, PyObject* entry) {
  Py_ssize_t i = position_of(self->entries, entry);
  if (i <= 0) return;
  if (Py_REFCNT(self->entries) > 1) {  // a call on another level is reading this tuple
    if (!replace_entries(self, entry, i)) PyErr_Clear();
    return;
  }
  for (; i > 0; --i) PyTuple_SET_ITEM(self->entries, i, PyTuple_GET_ITEM(self->entries, i - 1));
  PyTuple_SET_ITEM(self->entries, 0, entry);
}

bool is_installable(Dispatcher* self, PyObject* object) {
  if (!is_entry(object)) return fail(PyExc_TypeError, "expected an Entry, got %R", object);
  Tree* tree = reinterpret_cast<Entry*>(object)->tree->tree;
  if (tree->finished() && tree->nlocals() == self->signature->count()) return true;
  return fail(PyExc_ValueError, "the guards of this entry are not for the %zd parameters of %R",
               self->signature->count(), self->fn);
}

// Calls ------------------------------------------------------------------------------------------

Ref take_raised() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return Ref::owned(value);
}

PyObject* handle_error(Dispatcher* self, Entry* entry, PyObject* const* locals) {
  if (self->on_error == nullptr || self->on_error == Py_None) return nullptr;
  Ref error = take_raised();
  Ref handler = Ref::borrowed(self->on_error);
  Ref values = Ref::owned(tuple_of(locals, self->signature->count()));
  if (!values) return nullptr;
  return PyObject_CallFunctionObjArgs(handler.get(), self, entry, values.get(), error.get(),
                                      nullptr);
}

// An entry that the garbage collector has cleared has no residual code.
bool matches(Entry* entry, PyObject* const* locals, Values& frame) {
  return entry->residual != nullptr && entry->tree->tree->match(locals, frame.data());
}

PyObject* run_entry(Dispatcher* self, Entry* entry, PyObject* const* locals, Values& frame) {
  ++entry->hits;
  Timer timer(reinterpret_cast<PyObject*>(entry), kResidual, call_start);
  size_t nargs = entry->tree->tree->slot_count() | PY_VECTORCALL_ARGUMENTS_OFFSET;
  PyObject* result = PyObject_Vectorcall(entry->residual, frame.data(), nargs, nullptr);
  return result != nullptr ? result : handle_error(self, entry, locals);
}

PyObject* handle_miss(Dispatcher* self, PyObject* const* locals, const Call& call) {
  if (self->mode != kCompile || self->on_miss == nullptr || self->on_miss == Py_None) {
    return run_eagerly(self, call);
  }
  Ref handler = Ref::borrowed(self->on_miss);
  Ref values = Ref::owned(tuple_of(locals, self->signature->count()));
  if (!values) return nullptr;
  Ref made =
      Ref::owned(PyObject_CallFunctionObjArgs(handler.get(), self, values.get(), nullptr));
  if (!made) return nullptr;
  if (made.get() == Py_None) return run_eagerly(self, call);
  if (!is_installable(self, made.get())) return nullptr;
  auto* entry = reinterpret_cast<Entry*>(made.get());
  Values frame(entry->tree->tree->frame_size());
  call_start = 0;  // it was compiled: that time is not one of guards
  if (matches(entry, locals, frame)) return run_entry(self, entry, locals, frame);
  if (PyErr_Occurred() != nullptr) return nullptr;
  frame.clear();
  return run_eagerly(self, call);
}

PyObject* dispatch_by_index(Dispatcher* self, PyObject* const* locals, const Call& call) {
  std::vector<Ref> tried = candidates(self, locals);
  for (const Ref& held : tried) {
    auto* entry = reinterpret_cast<Entry*>(held.get());
    Values frame(entry->tree->tree->frame_size());
    if (!matches(entry, locals, frame)) {
      if (PyErr_Occurred() != nullptr) return nullptr;  // a check was interrupted
      continue;
    }
    Ref kept = Ref::borrowed(held.get());
    tried.clear();
    if (self->index != nullptr) self->index->touch(entry);  // guards may have run Python code
    return run_entry(self, entry, locals, frame);
  }
  tried.clear();
  return handle_miss(self, locals, call);
}

PyObject* dispatch(Dispatcher* self, PyObject* const* locals, const Call& call) {
  if (self->index != nullptr) return dispatch_by_index(self, locals, call);
  Ref entries = Ref::borrowed(self->entries);
  Py_ssize_t count = PyTuple_GET_SIZE(entries.get());
  for (Py_ssize_t i = 0; i < count; ++i) {
    // Guards may run Python code, which may remove the entry.
    Ref held = Ref::borrowed(PyTuple_GET_ITEM(entries.get(), i));
    auto* entry = reinterpret_cast<Entry*>(held.get());
    Values frame(entry->tree->tree->frame_size());
    if (!matches(entry, locals, frame)) {
      if (PyErr_Occurred() != nullptr) return nullptr;  // a check was interrupted
      continue;
    }
    entries = Ref();
    if (i > 0) move_to_front(self, held.get());
    return run_entry(self, entry, locals, frame);
  }
  entries = Ref();
  return handle_miss(self, locals, call);
}

// A function whose `__code__` was replaced is another function: what was compiled is void.
bool renew_signature(Dispatcher* self) {
  if (!self->signature->read(self->fn) || !drop_index(self)) return false;
  PyObject* empty = PyTuple_New(0);
  Py_SETREF(self->entries, empty);
  return true;
}

PyObject* call_once(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Dispatcher* self = self_of(object);
  if (self->fn == nullptr) return PyErr_Format(PyExc_RuntimeError, "the compiled function is gone");
  Timer timer(object, kCall);
  if (timer.span.start != 0) call_start = timer.span.start;
  Call call{args, nargsf, kwnames};
  if (self->mode == kEager || bypass) return run_eagerly(self, call);
  Signature& signature = *self->signature;
  if (!signature.is_of(self->fn) && !renew_signature(self)) return nullptr;
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  // The usual call: positional arguments only, which are the locals as they stand.
  if (signature.is_exact(nargs, kwnames)) return dispatch(self, args, call);
  Values locals(static_cast<size_t>(signature.count()));
  if (!signature.bind(self->fn, args, nargs, kwnames, locals.data())) {
    PyErr_Clear();
    locals.clear();
    return run_eagerly(self, call);  // raises Python's own error
  }
  return dispatch(self, locals.data(), call);
}

PyObject* call_and_tails(PyObject* object, PyObject* const* args, size_t nargsf,
                         PyObject* kwnames) {
  PyObject* result = call_once(object, args, nargsf, kwnames);
  while (result != nullptr && Py_TYPE(result) == &tail_call_type) {
    Ref call = Ref::owned(result);
    auto* tail = reinterpret_cast<TailCall*>(result);
    result = call_once(tail->target, &PyTuple_GET_ITEM(tail->args, 0),
                       static_cast<size_t>(PyTuple_GET_SIZE(tail->args)), nullptr);
  }
  return result;
}

// Other compilers that evaluate frames ------------------------------------------------------------

// PyTorch's own compiler replaces the function by which Python evaluates frames.
bool frames_are_intercepted() {
  return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) !=
         &_PyEval_EvalFrameDefault;
}

// Sets the callback of PyTorch's compiler in this thread; the one before it. None turns it off.
Ref set_frame_callback(PyObject* callback) {
  static PyObject* const set = [] {
    Ref module = Ref::owned(PyImport_ImportModule("torch._C._dynamo.eval_frame"));
    return module ? PyObject_GetAttrString(module.get(), "set_eval_frame") : nullptr;
  }();
  if (set == nullptr) return Ref();
  return Ref::owned(PyObject_CallOneArg(set, callback));
}

// As `torch.compiler.disable` does: neither our own frames nor those of the user's function below
// are PyTorch's to compile.
PyObject* call_hidden(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Ref callback = set_frame_callback(Py_None);
  if (!callback) {
    PyErr_Clear();
    return call_and_tails(object, args, nargsf, kwnames);
  }
  Ref result = Ref::owned(call_and_tails(object, args, nargsf, kwnames));
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!set_frame_callback(callback.get())) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return result.release();
}

PyObject* dispatcher_vectorcall(PyObject* object, PyObject* const* args, size_t nargsf,
                                PyObject* kwnames) {
  if (frames_are_intercepted()) return call_hidden(object, args, nargsf, kwnames);
  return call_and_tails(object, args, nargsf, kwnames);
}

PyObject* tail(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  Ref values = Ref::owned(tuple_of(args, nargs));
  Ref object = Ref::owned(tail_call_type.tp_alloc(&tail_call_type, 0));
  if (!values || !object) return nullptr;
  auto* call = reinterpret_cast<TailCall*>(object.get());
  call->target = Py_NewRef(self);
  call->args = values.release();
  return object.release();
}

int tail_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<TailCall*>(object)->target);
  Py_VISIT(reinterpret_cast<TailCall*>(object)->args);
  return 0;
}

int tail_clear(PyObject* object) {
  clear_field(reinterpret_cast<TailCall*>(object)->target);
  clear_field(reinterpret_cast<TailCall*>(object)->args);
  return 0;
}

// The type ---------------------------------------------------------------------------------------

PyObject* dispatcher_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"fn", "on_miss", "on_error", nullptr};
  PyObject *fn = nullptr, *on_miss = Py_None, *on_error = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OO", const_cast<char**>(names),
                                   &PyFunction_Type, &fn, &on_miss, &on_error)) {
    return nullptr;
  }
  auto signature = std::make_unique<Signature>();
  if (!signature->read(fn)) return nullptr;
  Ref entries = Ref::owned(PyTuple_New(0));
  Ref object = Ref::owned(type->tp_alloc(type, 0));
  if (!object || !entries) return nullptr;
  Dispatcher* self = self_of(object.get());
  self->vectorcall = dispatcher_vectorcall;
  self->fn = Py_NewRef(fn);
  self->on_miss = Py_NewRef(on_miss);
  self->on_error = Py_NewRef(on_error);
  self->entries = entries.release();
  self->signature = signature.release();
  // The one attribute that the type itself has, and which would therefore not be the function's.
  Ref doc = Ref::owned(PyObject_GetAttrString(fn, "__doc__"));
  if (!doc || PyObject_SetAttrString(object.get(), "__doc__", doc.get()) < 0) return nullptr;
  return object.release();
}

int dispatcher_traverse(PyObject* object, visitproc visit, void* arg) {
  Dispatcher* self = self_of(object);
  Py_VISIT(self->fn);
  Py_VISIT(self->on_miss);
  Py_VISIT(self->on_error);
  Py_VISIT(self->entries);
  Py_VISIT(self->dict);
  if (self->signature != nullptr) Py_VISIT(self->signature->code());
  return 0;
}

int dispatcher_clear(PyObject* object) {
  Dispatcher* self = self_of(object);
  clear_field(self->fn);
  clear_field(self->on_miss);
  clear_field(self->on_error);
  clear_field(self->dict);
  delete std::exchange(self->index, nullptr);
  PyObject* old = std::exchange(self->entries, PyTuple_New(0));
  Py_XDECREF(old);
  return 0;
}

void dispatcher_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  Dispatcher* self = self_of(object);
  if (self->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
  dispatcher_clear(object);
  clear_field(self->entries);
  delete self->signature;
  Py_TYPE(object)->tp_free(object);
}

PyObject* dispatcher_get(PyObject* self, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

PyObject* dispatcher_repr(PyObject* self) {
  if (self_of(self)->fn == nullptr) return PyUnicode_FromString("<pliant-compiled>");
  auto* fn = reinterpret_cast<PyFunctionObject*>(self_of(self)->fn);
  return PyUnicode_FromFormat("<pliant-compiled %U>", fn->func_qualname);
}

// Whatever the dispatcher does not have is the function's: `__name__`, attributes of the user, ...
PyObject* dispatcher_getattro(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  PyObject* fn = self_of(self)->fn;
  if (found != nullptr || fn == nullptr) return found;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
  PyErr_Clear();
  if (PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0) return Py_NewRef(fn);
  return PyObject_GetAttr(fn, name);
}

PyObject* get_entries(PyObject* self, void*) { return list_of(all_entries(self_of(self))); }

PyObject* get_questions(PyObject* self, void*) {
  Index* index = self_of(self)->index;
  return index == nullptr ? PyTuple_New(0) : Py_NewRef(index->text.get());
}

PyObject* install(PyObject* object, PyObject* entry) {
  Dispatcher* self = self_of(object);
  if (!is_installable(self, entry)) return nullptr;
  Py_ssize_t place = position_of(self->entries, entry);
  if (!replace_entries(self, entry, place)) return nullptr;
  auto* installed = reinterpret_cast<Entry*>(entry);
  if (self->index != nullptr) place < 0 ? self->index->add(installed) : self->index->touch(installed);
  Py_RETURN_NONE;
}

// The entry whose guards hold for a call, or None.
PyObject* find_entry(PyObject* object, PyObject* values) {
  Dispatcher* self = self_of(object);
  if (!PyTuple_Check(values) || PyTuple_GET_SIZE(values) != self->signature->count()) {
    return PyErr_Format(PyExc_TypeError, "expected a tuple of %zd values",
                        self->signature->count());
  }
  PyObject* const* locals = &PyTuple_GET_ITEM(values, 0);
  for (Ref& held : candidates(self, locals)) {
    auto* entry = reinterpret_cast<Entry*>(held.get());
    Values frame(entry->tree->tree->frame_size());
    if (matches(entry, locals, frame)) return held.release();
    if (PyErr_Occurred() != nullptr) return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* set_index(PyObject* object, PyObject* questions) {
  Dispatcher* self = self_of(object);
  if (!drop_index(self)) return nullptr;
  Ref items = Ref::owned(PySequence_Tuple(questions));
  if (!items) return nullptr;
  auto index = std::make_unique<Index>();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
    Question& question = index->questions.emplace_back();
    if (!question.read(PyTuple_GET_ITEM(items.get(), i))) return nullptr;
    if (question.local < 0 || question.local >= self->signature->count()) {
      return PyErr_Format(PyExc_IndexError, "no parameter %zd", question.local);
    }
  }
  if (index->questions.empty()) Py_RETURN_NONE;
  index->text = std::move(items);
  for (Py_ssize_t i = PyTuple_GET_SIZE(self->entries) - 1; i >= 0; --i) {  // the first one last
    index->add(reinterpret_cast<Entry*>(PyTuple_GET_ITEM(self->entries, i)));
  }
  self->index = index.release();
  Py_RETURN_NONE;
}

PyObject* file_entry(PyObject* object, PyObject* args) {
  PyObject *entry = nullptr, *answers = nullptr;
  if (!PyArg_ParseTuple(args, "OO", &entry, &answers)) return nullptr;
  Index* index = self_of(object)->index;
  if (index == nullptr || !is_entry(entry)) {
    return PyErr_Format(PyExc_ValueError, "there is no index, or this is no entry");
  }
  if (!index->file(reinterpret_cast<Entry*>(entry), answers)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* remove_entry(PyObject* object, PyObject* entry) {
  Dispatcher* self = self_of(object);
  if (!drop_index(self)) return nullptr;
  Py_ssize_t i = position_of(self->entries, entry);
  if (i >= 0 && !replace_entries(self, nullptr, i)) return nullptr;
  return PyBool_FromLong(i >= 0);
}

PyObject* clear_entries(PyObject* object, PyObject*) {
  if (!drop_index(self_of(object))) return nullptr;
  PyObject* empty = PyTuple_New(0);
  Py_SETREF(self_of(object)->entries, empty);
  Py_RETURN_NONE;
}

// By name, as functions are: so copies of an object that has a compiled function share it.
PyObject* reduce(PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__qualname__"); }

// Asked by `torch.jit.script`: what it compiles instead.
PyObject* prepare_scriptable(PyObject* self, PyObject*) {
  if (self_of(self)->fn != nullptr) return Py_NewRef(self_of(self)->fn);
  return PyErr_Format(PyExc_RuntimeError, "the compiled function is gone");
}

// A copy of a function is the function.
PyObject* copy(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyMethodDef dispatcher_methods[] = {
    {"install", install, METH_O, "Add an entry, to be tried first."},
    {"find", find_entry, METH_O, "find(locals): the entry whose guards hold, or None."},
    {"index", set_index, METH_O, "index(questions): ask these to see which entries a call fits."},
    {"file", file_entry, METH_VARARGS, "file(entry, answers): it fits no call of other answers."},
    {"remove", remove_entry, METH_O, "Take an entry away; whether it was there."},
    {"clear", clear_entries, METH_NOARGS, "Take all entries away."},
    {"tail", method(tail), METH_FASTCALL, "tail(*args): a call, for residual code to return."},
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {"__copy__", copy, METH_NOARGS, nullptr},
    {"__deepcopy__", copy, METH_O, nullptr},
    {"__prepare_scriptable__", prepare_scriptable, METH_NOARGS, "The function itself."},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef dispatcher_members[] = {  // described in the stub
    {"fn", T_OBJECT, offsetof(Dispatcher, fn), READONLY, nullptr},
    {"on_miss", T_OBJECT, offsetof(Dispatcher, on_miss), 0, nullptr},
    {"on_error", T_OBJECT, offsetof(Dispatcher, on_error), 0, nullptr},
    {"mode", T_INT, offsetof(Dispatcher, mode), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef dispatcher_getset[] = {
    {"entries", get_entries, nullptr, "A list of the entries, in order.", nullptr},
    {"questions", get_questions, nullptr, "What `index` was given; empty without it.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

// A call of an object that stands for another: `_dispatcher(_orig_mod, ...)`.
PyObject* call_through(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static PyObject* const target_name = PyUnicode_InternFromString("_dispatcher");
  static PyObject* const owner_name = PyUnicode_InternFromString("_orig_mod");
  PyObject* own = instance_dict(self);
  Ref target = Ref::borrowed(own ? PyDict_GetItemWithError(own, target_name) : nullptr);
  Ref owner = Ref::borrowed(own ? PyDict_GetItemWithError(own, owner_name) : nullptr);
  if (!target || !owner) return PyErr_Format(PyExc_TypeError, "%R stands for nothing", self);
  auto given = static_cast<size_t>(nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
  std::vector<PyObject*> stack(given + 2);  // the first cell is the callee's to use
  stack[1] = owner.get();
  std::copy(args, args + given, stack.begin() + 2);
  size_t count = static_cast<size_t>(nargs + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET;
  return PyObject_Vectorcall(target.get(), stack.data() + 1, count, kwnames);
}

PyMethodDef call_through_method = {
    "__call__", method(call_through), METH_FASTCALL | METH_KEYWORDS,
    "Calls the compiled function for the object it belongs to."};

PyObject* calls_through(PyObject*, PyObject* cls) {
  if (!PyType_Check(cls)) return PyErr_Format(PyExc_TypeError, "expected a class, got %R", cls);
  auto* type = reinterpret_cast<PyTypeObject*>(cls);
  Ref method = Ref::owned(PyDescr_NewMethod(type, &call_through_method));
  if (!method || PyObject_SetAttrString(cls, "__call__", method.get()) < 0) return nullptr;
  return Py_NewRef(cls);
}

PyObject* set_bypass(PyObject*, PyObject* arg) {
  int on = PyObject_IsTrue(arg);
  if (on < 0) return nullptr;
  return PyBool_FromLong(std::exchange(bypass, on != 0));
}

// Sets `bypass` for a while.
struct Bypassed : Pinned {
  bool before = std::exchange(bypass, true);
  ~Bypassed() { bypass = before; }
};

PyObject* call_bypassed(PyObject*, PyObject* args, PyObject* kwargs) {
  if (PyTuple_GET_SIZE(args) == 0) return PyErr_Format(PyExc_TypeError, "expected a function");
  Ref rest = Ref::owned(PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args)));
  if (!rest) return nullptr;
  Bypassed guard;
  return PyObject_Call(PyTuple_GET_ITEM(args, 0), rest.get(), kwargs);
}

}  // namespace

PyMethodDef bypass_methods[] = {
    {"calls_through", calls_through, METH_O, "calls_through(cls): see the stub."},
    {"set_bypass", set_bypass, METH_O, "set_bypass(on): see the stub."},
    {"call_bypassed", method(call_bypassed), METH_VARARGS | METH_KEYWORDS, "see the stub"},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject* init_tail_call_type() {
  return ready(tail_call_type, "pliant._native.TailCall", sizeof(TailCall), tail_traverse,
               tail_clear);
}

PyTypeObject* init_dispatcher_type() {
  PyTypeObject& type = dispatcher_type;
  type.tp_flags = Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  type.tp_vectorcall_offset = offsetof(Dispatcher, vectorcall);
  type.tp_dictoffset = offsetof(Dispatcher, dict);
  type.tp_weaklistoffset = offsetof(Dispatcher, weakrefs);
  type.tp_call = PyVectorcall_Call;
  type.tp_new = dispatcher_new;
  type.tp_descr_get = dispatcher_get;
  type.tp_repr = dispatcher_repr;
  type.tp_getattro = dispatcher_getattro;
  type.tp_methods = dispatcher_methods;
  type.tp_members = dispatcher_members;
  type.tp_getset = dispatcher_getset;
  return ready(type, "pliant._native.Dispatcher", sizeof(Dispatcher), dispatcher_traverse,
               dispatcher_clear, dispatcher_dealloc);
}

}  // namespace pliant
