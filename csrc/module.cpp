// The extension module `pliant._native`.
#include "cuda.h"
#include "facts.h"
#include "isolated.h"
#include "launcher.h"
#include "objects.h"
#include "profile.h"
#include "state.h"
#include "tensor.h"
#include <torch/version.h>

namespace {

// Classes that a class statement made share the function that frees their instances.
PyObject* is_python_class(PyObject*, PyObject* arg) {
  if (!PyType_Check(arg)) return PyErr_Format(PyExc_TypeError, "expected a class, got %R", arg);
  static const destructor dealloc = [] {
    pliant::Ref made = pliant::Ref::owned(
        PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "Example"));
    return made ? reinterpret_cast<PyTypeObject*>(made.get())->tp_dealloc : nullptr;
  }();
  return PyBool_FromLong(reinterpret_cast<PyTypeObject*>(arg)->tp_dealloc == dealloc);
}

PyObject* is_member(PyObject*, PyObject* args) {
  PyObject *object = nullptr, *name = nullptr;
  if (!PyArg_ParseTuple(args, "OU", &object, &name)) return nullptr;
  pliant::Place place;
  return PyBool_FromLong(pliant::plain_member(object, name, place) != nullptr);
}

PyMethodDef class_methods[] = {
    {"is_member", is_member, METH_VARARGS,
     "is_member(object, name): whether the attribute is a place in the object itself."},
    {"is_python_class", is_python_class, METH_O,
     "is_python_class(cls): whether a class statement made it, rather than C code."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "pliant._native",
    "Guards and calls in native code. It holds no policy: Python decides.", -1,
    pliant::bypass_methods, nullptr, nullptr, nullptr, nullptr};

bool add_types(PyObject* module) {
  PyTypeObject* types[] = {pliant::init_state_type(), pliant::init_guard_tree_type(),
                           pliant::init_entry_type(), pliant::init_tail_call_type(),
                           pliant::init_dispatcher_type(), pliant::init_launcher_type(),
                           pliant::init_autograd_step_type()};
  for (PyTypeObject* type : types) {
    if (type == nullptr || PyModule_AddType(module, type) < 0) return false;
  }
  return PyModule_AddObjectRef(module, "UNREACHABLE", pliant::unreachable_marker()) == 0;
}

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  // The classes of tensors and dtypes are found through torch.
  pliant::Ref torch = pliant::Ref::owned(PyImport_ImportModule("torch"));
  pliant::Ref module = pliant::Ref::owned(torch ? PyModule_Create(&definition) : nullptr);
  if (!module || !add_types(module.get())) return nullptr;
  if (PyModule_AddStringConstant(module.get(), "built_for", TORCH_VERSION) < 0) return nullptr;
  for (PyMethodDef* methods : {class_methods, pliant::isolated_methods, pliant::cuda_methods,
                               pliant::profile_methods}) {
    if (PyModule_AddFunctions(module.get(), methods) < 0) return nullptr;
  }
  pliant::init_tensors();
  pliant::init_dict_versions();
  return module.release();
}
