// The extension module `pliant._native`.
#include "objects.h"
#include "state.h"
#include "tensor.h"

namespace {

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "pliant._native",
                          "Guards and calls in native code. It holds no policy: Python decides.",
                          -1,
                          pliant::bypass_methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

bool add_types(PyObject* module) {
  PyTypeObject* types[] = {pliant::init_state_type(), pliant::init_guard_tree_type(),
                           pliant::init_entry_type(), pliant::init_dispatcher_type()};
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
  pliant::init_tensors();
  return module.release();
}
