// `GuardTree`: the Python face of `Tree`.
#include "facts.h"
#include "objects.h"
#include "state.h"

namespace pliant {

namespace {

PyTypeObject guard_tree_type = blank_type();

Tree& tree_of(PyObject* self) { return *reinterpret_cast<GuardTree*>(self)->tree; }

// Building ---------------------------------------------------------------------------------------

bool can_build(PyObject* self) {
  if (!tree_of(self).finished()) return true;
  return fail(PyExc_RuntimeError, "the guard tree is finished");
}

bool valid_node(PyObject* self, Py_ssize_t node) {
  if (!can_build(self)) return false;
  if (node >= 0 && static_cast<size_t>(node) < tree_of(self).node_count()) return true;
  return fail(PyExc_IndexError, "no node %zd in this guard tree", node);
}

PyObject* number(int32_t id) { return id < 0 ? nullptr : PyLong_FromLong(id); }

PyObject* add_local(PyObject* self, PyObject* args) {
  Py_ssize_t index = 0;
  if (!PyArg_ParseTuple(args, "n", &index) || !can_build(self)) return nullptr;
  if (index < 0 || index >= tree_of(self).nlocals()) {
    return PyErr_Format(PyExc_IndexError, "no local %zd of %zd", index, tree_of(self).nlocals());
  }
  return number(tree_of(self).add_node(Access::Local, -1, nullptr, index));
}

PyObject* add_fixed(PyObject* self, PyObject* object) {
  return can_build(self) ? number(tree_of(self).add_node(Access::Fixed, -1, object, 0)) : nullptr;
}

// A child of another node. The format says what else is given: nothing, an index, a name, a key.
PyObject* add_child(PyObject* self, PyObject* args, Access access, const char* format) {
  Py_ssize_t parent = 0, index = 0;
  PyObject* key = nullptr;
  bool indexed = format[1] == 'n';
  void* second = indexed ? static_cast<void*>(&index) : &key;
  if (!PyArg_ParseTuple(args, format, &parent, second) || !valid_node(self, parent)) return nullptr;
  if (index < 0) return PyErr_Format(PyExc_ValueError, "an index counts from the start");
  if (key != nullptr && PyObject_Hash(key) == -1) return nullptr;
  return number(tree_of(self).add_node(access, static_cast<int32_t>(parent), key, index));
}

template <Access access>
PyObject* add_child(PyObject* self, PyObject* args) {
  bool indexed = access == Access::SeqItem || access == Access::ClosureCell;
  bool named = access == Access::Attr || access == Access::Member || access == Access::ClassAttr;
  const char* second = access == Access::DictItem ? "nO" : "n";
  return add_child(self, args, access, indexed ? "nn" : named ? "nU" : second);
}

bool read_length(Check& check, PyObject* expected) {
  check.number = PyNumber_AsSsize_t(expected, PyExc_OverflowError);
  return !PyErr_Occurred();
}

bool read_tensor(Check& check, PyObject* spec) {
  check.tensor = std::make_shared<ExpectedTensor>();
  return check.tensor->read(spec);
}

// The code and globals of a function; the name of a class attribute, and its value if it has one.
bool read_pair(Check& check, PyObject* pair) {
  PyObject *first = nullptr, *second = nullptr;
  const char* format = check.test == Test::Function ? "OO" : "U|O";
  Ref args = Ref::owned(PySequence_Tuple(pair));
  if (!args || !PyArg_ParseTuple(args.get(), format, &first, &second)) return false;
  check.extra = Ref::borrowed(first);
  check.expected = Ref::borrowed(second);
  return true;
}

bool read_object(Check& check, PyObject* expected) {
  check.expected = Ref::borrowed(expected);
  bool good = true;
  switch (check.test) {
    case Test::Type: good = PyType_Check(expected); break;
    case Test::Keys: good = PyTuple_Check(expected); break;
    case Test::Equal: good = is_constant(expected); break;
    case Test::Has: case Test::Lacks: return PyObject_Hash(expected) != -1;
    default: break;
  }
  return good || fail(PyExc_TypeError, "this check cannot be made against %R", expected);
}

template <Test test, bool (*read)(Check&, PyObject*) = read_object>
PyObject* add_check(PyObject* self, PyObject* args) {
  Py_ssize_t node = 0;
  PyObject *expected = nullptr, *guard = nullptr;
  if (!PyArg_ParseTuple(args, "nOO", &node, &expected, &guard) || !valid_node(self, node)) {
    return nullptr;
  }
  Check check{};
  check.test = test;
  check.guard = Ref::borrowed(guard);
  if (!read(check, expected)) return nullptr;
  if (!tree_of(self).add_check(static_cast<int32_t>(node), std::move(check))) return nullptr;
  Py_RETURN_NONE;
}

PyObject* add_state(PyObject* self, PyObject* args) {
  PyObject *state = nullptr, *guard = nullptr;
  if (!PyArg_ParseTuple(args, "OO", &state, &guard) || !can_build(self)) return nullptr;
  if (!is_state(state)) return PyErr_Format(PyExc_TypeError, "expected a State, got %R", state);
  Check check{};
  check.test = Test::State;
  check.expected = Ref::borrowed(state);
  check.guard = Ref::borrowed(guard);
  tree_of(self).add_state(std::move(check));
  Py_RETURN_NONE;
}

template <bool same>
PyObject* add_relation(PyObject* self, PyObject* args) {
  PyObject *nodes = nullptr, *guard = nullptr;
  if (!PyArg_ParseTuple(args, "OO", &nodes, &guard)) return nullptr;
  Ref sequence = Ref::owned(PySequence_Tuple(nodes));
  if (!sequence) return nullptr;
  Relation relation{same, {}, Ref::borrowed(guard), {}};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sequence.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(sequence.get(), i);
    Py_ssize_t node = PyNumber_AsSsize_t(item, PyExc_OverflowError);
    if (PyErr_Occurred() || !valid_node(self, node)) return nullptr;
    relation.cells.push_back(static_cast<int32_t>(node));
  }
  tree_of(self).add_relation(std::move(relation));
  Py_RETURN_NONE;
}

// A node, what of it, and the dimension.
bool read_load(PyObject* self, PyObject* item, ShapeCondition::Load& load) {
  Py_ssize_t node = 0;
  unsigned char what = 0;
  long long dim = 0;
  if (!PyArg_ParseTuple(item, "nbL", &node, &what, &dim) || !valid_node(self, node)) return false;
  load = {static_cast<int32_t>(node), static_cast<Measure>(what), dim};
  if (what > static_cast<unsigned char>(Measure::Value)) PyErr_BadArgument();
  return PyErr_Occurred() == nullptr;
}

PyObject* add_expression(PyObject* self, PyObject* args) {
  PyObject *items = nullptr, *numbers = nullptr, *guard = nullptr;
  Py_ssize_t depth = 0;
  if (!PyArg_ParseTuple(args, "O!O!nO", &PyList_Type, &items, &PyList_Type, &numbers, &depth,
                        &guard)) {
    return nullptr;
  }
  std::vector<ShapeCondition::Load> loads;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); ++i) {
    if (!read_load(self, PyList_GET_ITEM(items, i), loads.emplace_back())) return nullptr;
  }
  std::vector<int64_t> code;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(numbers); ++i) {
    code.push_back(PyLong_AsLongLong(PyList_GET_ITEM(numbers, i)));
    if (PyErr_Occurred()) return nullptr;
  }
  Shape shape{{std::move(loads), std::move(code)}, Ref::borrowed(guard)};
  if (!shape.condition.fits(depth)) {
    return PyErr_Format(PyExc_ValueError, "not a program for a stack of depth %zd", depth);
  }
  if (!can_build(self)) return nullptr;
  tree_of(self).add_shape(std::move(shape));
  Py_RETURN_NONE;
}

PyObject* add_slot(PyObject* self, PyObject* args) {
  Py_ssize_t node = 0;
  if (!PyArg_ParseTuple(args, "n", &node) || !valid_node(self, node)) return nullptr;
  return PyLong_FromLong(tree_of(self).add_slot(static_cast<int32_t>(node)));
}

PyObject* finish(PyObject* self, PyObject*) {
  if (!can_build(self)) return nullptr;
  tree_of(self).finish();
  Py_RETURN_NONE;
}

// Checking ---------------------------------------------------------------------------------------

bool match(PyObject* self, PyObject* locals, Values& frame, Report* report) {
  if (!PyTuple_Check(locals) || PyTuple_GET_SIZE(locals) != tree_of(self).nlocals()) {
    return fail(PyExc_TypeError, "expected a tuple of %zd values", tree_of(self).nlocals());
  }
  if (!tree_of(self).finished()) return fail(PyExc_RuntimeError, "the guard tree is not finished");
  return tree_of(self).match(&PyTuple_GET_ITEM(locals, 0), frame.data(), report);
}

PyObject* pair_of(const Failure& failure) {
  return PyTuple_Pack(2, failure.guard ? failure.guard.get() : Py_None, failure.value.get());
}

PyObject* check(PyObject* self, PyObject* locals) {
  Values frame(tree_of(self).frame_size());
  Report report;
  if (match(self, locals, frame, &report)) Py_RETURN_NONE;
  return PyErr_Occurred() ? nullptr : pair_of(report.failures.front());
}

PyObject* failures(PyObject* self, PyObject* locals) {
  Values frame(tree_of(self).frame_size());
  Report report;
  report.all = true;
  match(self, locals, frame, &report);
  Ref list = Ref::owned(PyErr_Occurred() ? nullptr : PyList_New(0));
  for (const Failure& failure : report.failures) {
    Ref pair = Ref::owned(list ? pair_of(failure) : nullptr);
    if (!pair || PyList_Append(list.get(), pair.get()) < 0) return nullptr;
  }
  return list.release();
}

PyObject* slots(PyObject* self, PyObject* locals) {
  Values frame(tree_of(self).frame_size());
  if (!match(self, locals, frame, nullptr)) {
    return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "the guards do not hold");
  }
  return tuple_of(frame.data(), static_cast<Py_ssize_t>(tree_of(self).slot_count()));
}

// The type ---------------------------------------------------------------------------------------

PyObject* tree_new(PyTypeObject* type, PyObject* args, PyObject*) {
  Py_ssize_t nlocals = 0;
  if (!PyArg_ParseTuple(args, "n", &nlocals)) return nullptr;
  if (nlocals < 0) return PyErr_Format(PyExc_ValueError, "not a number of locals: %zd", nlocals);
  PyObject* self = type->tp_alloc(type, 0);
  if (self != nullptr) reinterpret_cast<GuardTree*>(self)->tree = new Tree(nlocals);
  return self;
}

int tree_traverse(PyObject* self, visitproc visit, void* arg) {
  Tree* tree = reinterpret_cast<GuardTree*>(self)->tree;
  return tree == nullptr ? 0 : tree->traverse(visit, arg);
}

int tree_clear(PyObject* self) {
  tree_of(self).clear();
  return 0;
}

void tree_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  delete reinterpret_cast<GuardTree*>(self)->tree;
  Py_TYPE(self)->tp_free(self);
}

#define NODE(name, function, doc) {name, function, METH_VARARGS, doc}
#define CHECK(name, ...) \
  {name, add_check<__VA_ARGS__>, METH_VARARGS, name "(node, expected, guard)"}

PyMethodDef tree_methods[] = {
    NODE("local", add_local, "local(index): a parameter"),
    {"fixed", add_fixed, METH_O, "fixed(object): an object, which is kept alive"},
    NODE("instance_dict", add_child<Access::InstanceDict>, "the __dict__ of an instance"),
    NODE("dict_item", add_child<Access::DictItem>, "parent[key], of a dictionary"),
    NODE("seq_item", add_child<Access::SeqItem>, "parent[i], of a list or tuple"),
    NODE("attr", add_child<Access::Attr>, "getattr(parent, name)"),
    NODE("member", add_child<Access::Member>, "parent.name, a place in the object itself"),
    NODE("type_of", add_child<Access::TypeOf>, "type(parent)"),
    NODE("cell_contents", add_child<Access::CellContents>, "parent.cell_contents"),
    NODE("closure_cell", add_child<Access::ClosureCell>, "parent.__closure__[i]"),
    NODE("class_attr", add_child<Access::ClassAttr>, "what the MRO of a class has for a name"),
    CHECK("check_type", Test::Type),
    CHECK("check_is", Test::Is),
    CHECK("check_is_not", Test::IsNot),
    CHECK("check_equal", Test::Equal),
    CHECK("check_length", Test::Length, read_length),
    CHECK("check_keys", Test::Keys),
    CHECK("check_has", Test::Has),
    CHECK("check_lacks", Test::Lacks),
    CHECK("check_function", Test::Function, read_pair),
    CHECK("check_class_attr", Test::ClassAttr, read_pair),
    CHECK("check_tensor", Test::Tensor, read_tensor),
    CHECK("check_predicate", Test::Predicate),
    {"check_same", add_relation<true>, METH_VARARGS, "check_same(nodes, guard)"},
    {"check_distinct", add_relation<false>, METH_VARARGS, "check_distinct(nodes, guard)"},
    {"check_expression", add_expression, METH_VARARGS,
     "check_expression(loads, code, depth, guard)"},
    {"check_state", add_state, METH_VARARGS, "check_state(state, guard)"},
    NODE("slot", add_slot, "slot(node): hand the value to the residual code"),
    {"finish", finish, METH_NOARGS, "No more nodes and checks; from now on it can check."},
    {"check", check, METH_O, "check(locals): None, or the first failing guard and what it found"},
    {"failures", failures, METH_O, "failures(locals): every failing guard and what it found"},
    {"slots", slots, METH_O, "slots(locals): the values handed to the residual code"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool is_guard_tree(PyObject* object) { return Py_TYPE(object) == &guard_tree_type; }

PyTypeObject* init_guard_tree_type() {
  guard_tree_type.tp_doc = "GuardTree(nlocals): the guards of an entry. Built once, then fixed.";
  guard_tree_type.tp_new = tree_new;
  guard_tree_type.tp_methods = tree_methods;
  return ready(guard_tree_type, "pliant._native.GuardTree", sizeof(GuardTree), tree_traverse,
               tree_clear, tree_dealloc);
}

}  // namespace pliant
