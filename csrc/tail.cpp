#include "tail.h"

namespace pliant {

PyTypeObject tail_call_type = blank_type();

namespace {

TailCall* self_of(PyObject* object) { return reinterpret_cast<TailCall*>(object); }

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(self_of(object)->target);
  Py_VISIT(self_of(object)->args);
  return 0;
}

int clear(PyObject* object) {
  clear_field(self_of(object)->target);
  clear_field(self_of(object)->args);
  return 0;
}

void dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  clear(object);
  Py_TYPE(object)->tp_free(object);
}

}  // namespace

PyObject* make_tail_call(PyObject* target, PyObject* const* args, Py_ssize_t nargs) {
  Ref tuple = Ref::owned(PyTuple_New(nargs));
  Ref object = Ref::owned(tail_call_type.tp_alloc(&tail_call_type, 0));
  if (!tuple || !object) return nullptr;
  for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(args[i]));
  self_of(object.get())->target = Py_NewRef(target);
  self_of(object.get())->args = tuple.release();
  return object.release();
}

PyTypeObject* init_tail_call_type() {
  return ready(tail_call_type, "pliant._native.TailCall", sizeof(TailCall), dealloc, traverse, clear);
}

}  // namespace pliant
