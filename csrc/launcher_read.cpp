// Programs of the launcher are read here. That every slot and value is there before it is used is
// found out now, so that nothing has to be asked when they run.
#include "launcher.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace pliant {

namespace {

constexpr int64_t kMost = 1 << 20;  // slots or values: more is a mistake

using Need = LaunchProgram::Need;

template <typename T>
using Table = std::unordered_map<std::string_view, T>;

const Table<Number::Kind> kNumbers = {{"size", Number::Size},     {"stride", Number::Stride},
                                      {"offset", Number::Offset}, {"int", Number::Int},
                                      {"float", Number::Float}};
const Table<Item::Kind> kItems = {
    {"slot", Item::Slot},      {"value", Item::Int},       {"float", Item::Float},
    {"bool", Item::Bool},      {"drop", Item::Drop},       {"list", Item::List},
    {"const", Item::Constant}, {"object", Item::Constant}, {"none", Item::Constant}};

template <typename T>
T named(const Table<T>& table, py::handle name) {
  auto found = table.find(name.cast<std::string_view>());
  TORCH_CHECK_VALUE(found != table.end(), "there is no ", py::repr(name).cast<std::string>());
  return found->second;
}

// An item of a tuple or list.
py::handle at(const py::sequence& items, size_t i) {
  TORCH_CHECK_VALUE(i < items.size(), "too few items in ", py::repr(items).cast<std::string>());
  return py::object(items[i]);  // the sequence holds it
}

py::sequence sequence(py::handle object) {
  TORCH_CHECK_TYPE(PyTuple_Check(object.ptr()) || PyList_Check(object.ptr()),
                   "expected a tuple or list, got ", py::repr(object).cast<std::string>());
  return py::reinterpret_borrow<py::sequence>(object);
}

c10::ScalarType dtype(py::handle object) {
  TORCH_CHECK_TYPE(THPDtype_Check(object.ptr()), "expected a torch.dtype");
  return reinterpret_cast<THPDtype*>(object.ptr())->scalar_type;
}

Ref callable(py::handle object) {
  TORCH_CHECK_TYPE(PyCallable_Check(object.ptr()), "expected something that can be called");
  return Ref::borrowed(object.ptr());
}

c10::TypePtr without_optional(const c10::TypePtr& type) {
  auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

// Slots or values, as far as they are known at some step.
class Known {
 public:
  explicit Known(const char* what) : what_(what) {}

  int32_t use(py::handle object) const {
    auto i = object.cast<int64_t>();
    TORCH_CHECK_VALUE(has(i), what_, " ", i, " is not there");
    return static_cast<int32_t>(i);
  }
  Indices use_all(py::handle objects) const {
    Indices indices;
    for (py::handle object : sequence(objects)) indices.push_back(use(object));
    return indices;
  }
  int32_t make(int64_t i) {
    TORCH_CHECK_VALUE(i >= 0 && i < kMost, "there is no ", what_, " ", i);
    if (there_.size() <= static_cast<size_t>(i)) there_.resize(i + 1);
    there_[i] = true;
    return static_cast<int32_t>(i);
  }
  int32_t make(py::handle object) { return make(object.cast<int64_t>()); }
  void drop(int32_t i) { there_[i] = false; }
  bool has(int64_t i) const { return i >= 0 && i < std::ssize(there_) && there_[i]; }
  size_t count() const { return there_.size(); }

 private:
  const char* what_;
  std::vector<bool> there_;
};

class Reader {
 public:
  explicit Reader(LaunchProgram& program) : program_(program) {}
  void inputs(Py_ssize_t count);
  void symbol(const py::sequence& items);
  void step(const py::sequence& items);
  int32_t input(py::handle object);
  std::vector<Item> python_items(py::handle objects);
  void finish();

 private:
  static const Table<Step (Reader::*)(const py::sequence&)> kSteps;

  Step compute(const py::sequence& items);
  Step allocate(const py::sequence& items);
  Step view(const py::sequence& items);
  Step kernel(const py::sequence& items);
  Step call(const py::sequence& items);
  Step python(const py::sequence& items);
  Step read(const py::sequence& items);
  Step check(const py::sequence&) { return CheckErrors{}; }
  Step wrote(const py::sequence& items) { return Wrote{input(at(items, 1))}; }
  Step free(const py::sequence& items);

  bool is_input(int32_t slot) const { return slot < std::ssize(program_.inputs); }
  int32_t slot(py::handle object, Need need);
  int32_t new_slot(py::handle object);
  Item item(py::handle object, const c10::TypePtr& type, std::optional<int32_t> length);
  void list(Item& item, py::handle objects, const c10::TypePtr& type);
  std::vector<Item> results(py::handle objects);

  LaunchProgram& program_;
  Known slots_{"slot"};
  Known values_{"value"};
  Indices roots_;  // by slot: what it is a view of
};

const Table<Step (Reader::*)(const py::sequence&)> Reader::kSteps = {
    {"compute", &Reader::compute}, {"empty", &Reader::allocate}, {"view", &Reader::view},
    {"kernel", &Reader::kernel},   {"call", &Reader::call},      {"python", &Reader::python},
    {"read", &Reader::read},       {"check", &Reader::check},    {"wrote", &Reader::wrote},
    {"free", &Reader::free}};

void Reader::inputs(Py_ssize_t count) {
  TORCH_CHECK_VALUE(count >= 0 && count < kMost, "a wrong number of inputs: ", count);
  program_.inputs.resize(count, Need::Anything);
  for (Py_ssize_t i = 0; i < count; ++i) roots_.push_back(slots_.make(i));
}

void Reader::symbol(const py::sequence& items) {
  Number::Kind kind = named(kNumbers, at(items, 1));
  int32_t from = slot(at(items, 0), kind <= Number::Offset ? Need::Tensor : Need::Anything);
  values_.make(std::ssize(program_.symbols));
  program_.symbols.push_back({kind, from, at(items, 2).cast<int64_t>()});
}

void Reader::step(const py::sequence& items) {
  try {
    program_.steps.push_back((this->*named(kSteps, at(items, 0)))(items));
  } catch (c10::Error& error) {
    error.add_context("in the step " + py::repr(items).cast<std::string>());
    throw;
  }
}

void Reader::finish() {
  program_.slot_count = slots_.count();
  program_.value_count = values_.count();
  for (Step& step : program_.steps) {
    auto* view = std::get_if<View>(&step);
    if (view == nullptr) continue;
    view->tracked = is_input(view->root);
    for (const Item& output : program_.outputs) {
      view->tracked |= output.kind == Item::Slot && output.index == view->root;
    }
  }
}

int32_t Reader::slot(py::handle object, Need need) {
  int32_t i = slots_.use(object);
  if (is_input(i)) program_.inputs[i] = std::max(program_.inputs[i], need);
  return i;
}

int32_t Reader::new_slot(py::handle object) {
  int32_t i = slots_.make(object);
  TORCH_CHECK_VALUE(!is_input(i), "slot ", i, " is an input");
  roots_.resize(slots_.count());
  return roots_[i] = i;
}

int32_t Reader::input(py::handle object) {
  int32_t i = slot(object, Need::Plain);
  TORCH_CHECK_VALUE(is_input(i), "slot ", i, " is no input");
  return i;
}

// The steps ---------------------------------------------------------------------------------------

Step Reader::compute(const py::sequence& items) {
  StackProgram program(at(items, 2).cast<std::vector<int64_t>>());
  bool good = program.is_valid(values_.count());
  for (int64_t load : good ? program.loads() : std::vector<int64_t>()) good &= values_.has(load);
  TORCH_CHECK_VALUE(good, "no program for the stack machine");
  return Compute{values_.make(at(items, 1)), std::move(program)};
}

Step Reader::allocate(const py::sequence& items) {
  Indices sizes = values_.use_all(at(items, 3)), strides = values_.use_all(at(items, 4));
  TORCH_CHECK_VALUE(sizes.size() == strides.size(), "as many strides as sizes are needed");
  return Allocate{new_slot(at(items, 1)), dtype(at(items, 2)), std::move(sizes),
                  std::move(strides)};
}

Step Reader::view(const py::sequence& items) {
  View step;
  step.of = slot(at(items, 2), Need::Plain);
  step.root = roots_[step.of];
  step.sizes = values_.use_all(at(items, 3));
  step.strides = values_.use_all(at(items, 4));
  TORCH_CHECK_VALUE(step.sizes.size() == step.strides.size(),
                    "as many strides as sizes are needed");
  step.offset = values_.use(at(items, 5));
  if (items.size() > 6 && !at(items, 6).is_none()) step.dtype = dtype(at(items, 6));
  step.slot = new_slot(at(items, 1));
  roots_[step.slot] = step.root;
  return step;
}

Step Reader::kernel(const py::sequence& items) {
  RunKernel step;
  step.function = reinterpret_cast<RunKernel::Function>(at(items, 1).cast<uintptr_t>());
  TORCH_CHECK_VALUE(step.function != nullptr, "a kernel without an address");
  for (py::handle buffer : sequence(at(items, 2))) {
    step.slots.push_back(buffer.cast<int64_t>() == -1 ? -1 : slot(buffer, Need::Plain));
  }
  step.values = values_.use_all(at(items, 3));
  step.extent = at(items, 4).cast<int64_t>() == -1 ? -1 : values_.use(at(items, 4));
  step.cost = at(items, 5).cast<double>();
  step.keep = Ref::borrowed(at(items, 6).ptr());
  return step;
}

Step Reader::call(const py::sequence& items) {
  auto name = at(items, 1).cast<std::string>(), overload = at(items, 2).cast<std::string>();
  if (overload == "default") overload.clear();
  auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  TORCH_CHECK_VALUE(op.has_value(), "there is no operator ", name, ".", overload);
  const auto& parameters = op->schema().arguments();
  py::sequence given = sequence(at(items, 3));
  TORCH_CHECK_VALUE(given.size() == parameters.size(), "all arguments are needed of ",
                    op->schema());
  CallOperator step{*op, {}, {}};
  for (size_t i = 0; i < parameters.size(); ++i) {
    step.args.push_back(item(at(given, i), parameters[i].real_type(), parameters[i].N()));
  }
  step.results = results(at(items, 4));
  return step;
}

Step Reader::python(const py::sequence& items) {
  Ref function = callable(at(items, 1));
  std::vector<Item> args = python_items(at(items, 2));
  return CallPython{std::move(function), std::move(args), results(at(items, 3))};
}

Step Reader::read(const py::sequence& items) {
  Number::Kind kind = named(kNumbers, at(items, 3));
  TORCH_CHECK_VALUE(kind <= Number::Offset, "only arguments can be numbers");
  Number number{kind, slot(at(items, 2), Need::Tensor), at(items, 4).cast<int64_t>()};
  return ReadNumber{values_.make(at(items, 1)), number};
}

Step Reader::free(const py::sequence& items) {
  Indices slots = slots_.use_all(at(items, 1));
  for (int32_t i : slots) slots_.drop(i);
  return Free{std::move(slots)};
}

// Arguments and results ---------------------------------------------------------------------------

// `type` is what an operator wants; without one the item is for Python.
Item Reader::item(py::handle object, const c10::TypePtr& type, std::optional<int32_t> length) {
  py::sequence items = sequence(object);
  Item made;
  made.kind = named(kItems, at(items, 0));
  TORCH_CHECK_VALUE(made.kind != Item::Drop, "only results can be dropped");
  if (made.kind == Item::Slot) {
    made.index = slot(at(items, 1), type ? Need::Tensor : Need::Anything);
  } else if (made.kind == Item::List) {
    list(made, at(items, 1), type);
  } else if (made.kind == Item::Constant) {
    py::handle constant = items.size() > 1 ? at(items, 1) : py::handle(Py_None);
    if (type) made.constant = torch::jit::toIValue(constant, type, length);
    if (!type) made.object = Ref::borrowed(constant.ptr());
  } else {
    made.index = values_.use(at(items, 1));
    bool as_float = type && without_optional(type)->kind() == c10::TypeKind::FloatType;
    if (made.kind == Item::Int && as_float) made.kind = Item::IntAsFloat;
  }
  return made;
}

void Reader::list(Item& item, py::handle objects, const c10::TypePtr& type) {
  auto list_type = type ? without_optional(type)->cast<c10::ListType>() : nullptr;
  TORCH_CHECK_VALUE(!type || list_type, "a list where the operator wants ", type->str());
  c10::TypePtr item_type = list_type ? list_type->getElementType() : nullptr;
  bool constant = true;
  for (py::handle object : sequence(objects)) {
    item.items.push_back(this->item(object, item_type, std::nullopt));
    constant &= item.items.back().kind == Item::Constant;
  }
  if (!type) return;
  // Where the operator would take symbolic ints it also takes ints.
  bool symbolic = item_type->kind() == c10::TypeKind::SymIntType;
  item.item_type = symbolic ? c10::TypePtr(c10::IntType::get()) : item_type;
  if (!constant) return;
  c10::impl::GenericList made(item.item_type);
  for (const Item& part : item.items) made.push_back(part.constant);
  item.constant = std::move(made);
  item.kind = Item::Constant;
}

std::vector<Item> Reader::python_items(py::handle objects) {
  std::vector<Item> items;
  for (py::handle object : sequence(objects)) items.push_back(item(object, nullptr, std::nullopt));
  return items;
}

// Each is a slot, -1 for none, or a kind with an index.
std::vector<Item> Reader::results(py::handle objects) {
  std::vector<Item> results;
  for (py::handle object : sequence(objects)) {
    Item& made = results.emplace_back();
    bool is_slot = PyLong_Check(object.ptr());
    bool is_dropped = is_slot && object.cast<int64_t>() == -1;
    made.kind = is_dropped ? Item::Drop
                : is_slot  ? Item::Slot
                           : named(kItems, at(sequence(object), 0));
    TORCH_CHECK_VALUE(made.kind <= Item::Drop, "no place for a result");
    if (made.kind == Item::Drop) continue;
    py::handle index = is_slot ? object : at(sequence(object), 1);
    made.index = made.kind == Item::Slot ? new_slot(index) : values_.make(index);
  }
  return results;
}

int traverse_items(const std::vector<Item>& items, visitproc visit, void* arg) {
  for (const Item& item : items) {
    Py_VISIT(item.object.get());
    if (int stop = traverse_items(item.items, visit, arg)) return stop;
  }
  return 0;
}

}  // namespace

int LaunchProgram::traverse(visitproc visit, void* arg) const {
  Py_VISIT(fallback.get());
  for (const Step& step : steps) {
    if (const auto* kernel = std::get_if<RunKernel>(&step)) Py_VISIT(kernel->keep.get());
    const auto* call = std::get_if<CallPython>(&step);
    if (call == nullptr) continue;
    Py_VISIT(call->function.get());
    if (int stop = traverse_items(call->args, visit, arg)) return stop;
  }
  return traverse_items(outputs, visit, arg);
}

std::unique_ptr<LaunchProgram> read_program(Py_ssize_t inputs, PyObject* symbols, PyObject* steps,
                                            PyObject* outputs, PyObject* written,
                                            PyObject* fallback) {
  auto program = std::make_unique<LaunchProgram>();
  Reader reader(*program);
  reader.inputs(inputs);
  for (py::handle symbol : sequence(symbols)) reader.symbol(sequence(symbol));
  for (py::handle input : sequence(written)) program->written.push_back(reader.input(input));
  for (py::handle step : sequence(steps)) reader.step(sequence(step));
  program->outputs = reader.python_items(outputs);
  program->fallback = callable(fallback);
  reader.finish();
  return program;
}

}  // namespace pliant
