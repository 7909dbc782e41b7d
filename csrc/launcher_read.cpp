// Programs of the launcher are read here. That every slot and value is there before it is used is
// found out now, so that nothing has to be asked when they run.
#include "launcher.h"

#include <torch/csrc/Device.h>
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
    {"const", Item::Constant}, {"bound", Item::Constant}, {"none", Item::Constant}};

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

struct Reader {
  Reader(LaunchProgram& made, py::sequence bound, py::sequence compiled)
      : program(made), objects(std::move(bound)), kernels(std::move(compiled)) {}

  LaunchProgram& program;
  py::sequence objects, kernels;  // what numbers in the program stand for
  Known slots{"slot"};
  Known values{"value"};
  Indices roots;  // by slot: what it is a view of
  Indices touched;  // slots of the step that is being read

  bool is_input(int32_t slot) const { return slot < std::ssize(program.inputs); }

  PyObject* hold(py::handle object) {
    program.held.push_back(Ref::borrowed(object.ptr()));
    return object.ptr();
  }
  PyObject* callable(py::handle object) {
    TORCH_CHECK_TYPE(PyCallable_Check(object.ptr()), "expected something that can be called");
    return hold(object);
  }
  py::handle bound(py::handle number) const { return at(objects, number.cast<size_t>()); }
  int32_t slot(py::handle object, Need need) {
    int32_t i = slots.use(object);
    if (is_input(i)) program.inputs[i] = std::max(program.inputs[i], need);
    touched.push_back(i);
    return i;
  }
  int32_t new_slot(py::handle object) {
    int32_t i = slots.make(object);
    TORCH_CHECK_VALUE(!is_input(i), "slot ", i, " is an input");
    roots.resize(slots.count());
    touched.push_back(i);
    return roots[i] = i;
  }
  int32_t input(py::handle object) {
    int32_t i = slot(object, Need::Plain);
    TORCH_CHECK_VALUE(is_input(i), "slot ", i, " is no input");
    return i;
  }
  Number number(py::handle from, py::handle kind_name, py::handle dim) {
    Number::Kind kind = named(kNumbers, kind_name);
    bool of_tensor = kind <= Number::Offset;
    return {kind, slot(from, of_tensor ? Need::Tensor : Need::Anything), dim.cast<int64_t>()};
  }

  // `type` is what an operator wants; without one the item is for Python.
  Item item(py::handle object, const c10::TypePtr& type, std::optional<int32_t> length);
  void list(Item& item, py::handle objects, const c10::TypePtr& type);
  std::vector<Item> python_items(py::handle objects);
  std::vector<Item> results(py::handle objects);
};

// Arguments and results ---------------------------------------------------------------------------

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
    if (at(items, 0).cast<std::string_view>() == "bound") constant = bound(constant);
    if (type) made.constant = torch::jit::toIValue(constant, type, length);
    if (!type) made.object = hold(constant);
  } else {
    made.index = values.use(at(items, 1));
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
    made.kind = is_slot ? Item::Slot : named(kItems, at(sequence(object), 0));
    if (is_slot && object.cast<int64_t>() == -1) made.kind = Item::Drop;
    TORCH_CHECK_VALUE(made.kind <= Item::Drop, "no place for a result");
    if (made.kind == Item::Drop) continue;
    py::handle index = is_slot ? object : at(sequence(object), 1);
    made.index = made.kind == Item::Slot ? new_slot(index) : values.make(index);
  }
  return results;
}

// The steps ---------------------------------------------------------------------------------------

Step compute(Reader& reader, const py::sequence& items) {
  StackProgram program(at(items, 2).cast<std::vector<int64_t>>());
  bool good = program.is_valid([&](int64_t i) { return reader.values.has(i); });
  TORCH_CHECK_VALUE(good, "no program for the stack machine");
  return Compute{reader.values.make(at(items, 1)), std::move(program)};
}

Layout layout(Reader& reader, const py::sequence& items, size_t i = 3) {
  Layout made{reader.values.use_all(at(items, i)), reader.values.use_all(at(items, i + 1))};
  TORCH_CHECK_VALUE(made.sizes.size() == made.strides.size(), "not as many strides as sizes");
  return made;
}

Step allocate(Reader& reader, const py::sequence& items) {
  Layout made = layout(reader, items);
  return CpuEmpty{reader.new_slot(at(items, 1)), dtype(at(items, 2)), std::move(made)};
}

Step allocate_on(Reader& reader, const py::sequence& items) {
  Layout made = layout(reader, items);
  py::handle device = at(items, 5);
  TORCH_CHECK_TYPE(THPDevice_Check(device.ptr()), "expected a torch.device");
  return Empty{{reader.new_slot(at(items, 1)), dtype(at(items, 2)), std::move(made)},
               reinterpret_cast<THPDevice*>(device.ptr())->device};
}

Step laid_out(Reader& reader, const py::sequence& items) {
  Layout wanted = layout(reader, items);
  int32_t slot = reader.slots.use(at(items, 1));
  return LaidOut{{slot, dtype(at(items, 2)), std::move(wanted)}};
}

Step view(Reader& reader, const py::sequence& items) {
  View step;
  step.of = reader.slot(at(items, 2), Need::Plain);
  step.layout = layout(reader, items);
  step.offset = reader.values.use(at(items, 5));
  if (items.size() > 6 && !at(items, 6).is_none()) step.dtype = dtype(at(items, 6));
  step.inner = items.size() > 7 && at(items, 7).cast<bool>();
  step.slot = reader.new_slot(at(items, 1));
  reader.roots[step.slot] = reader.roots[step.of];
  return step;
}

Step kernel(Reader& reader, const py::sequence& items) {
  CpuKernel step;
  py::sequence compiled = sequence(at(reader.kernels, at(items, 1).cast<size_t>()));
  step.function = reinterpret_cast<CpuKernel::Function>(at(compiled, 0).cast<uintptr_t>());
  TORCH_CHECK_VALUE(step.function != nullptr, "a kernel without an address");
  reader.hold(at(compiled, 1));  // its code lives as long as this
  for (py::handle buffer : sequence(at(items, 2))) {
    bool is_flag = buffer.cast<int64_t>() == -1;
    step.slots.push_back(is_flag ? -1 : reader.slot(buffer, Need::Plain));
  }
  step.values = reader.values.use_all(at(items, 3));
  step.extent = at(items, 4).cast<int64_t>() == -1 ? -1 : reader.values.use(at(items, 4));
  step.cost = at(items, 5).cast<double>();
  step.writes = at(items, 6).cast<bool>();
  return step;
}

Step batch(Reader& reader, const py::sequence& items) {
  CpuBatch step;
  for (py::handle one : sequence(at(items, 1))) {
    step.kernels.push_back(std::get<CpuKernel>(kernel(reader, sequence(one))));
  }
  return step;
}

// The handle of a kernel that works on tiles; reads what it is launched with.
py::sequence tile_kernel(Reader& reader, const py::sequence& items, Indices& slots, Indices& values) {
  for (py::handle buffer : sequence(at(items, 2))) {
    if (buffer.cast<int64_t>() != -1) slots.push_back(reader.slot(buffer, Need::Plain));
  }
  for (size_t i = 4; i + 1 < items.size(); ++i) values.push_back(reader.values.use(at(items, i)));
  return sequence(at(reader.kernels, at(items, 1).cast<size_t>()));
}

Step python_kernel(Reader& reader, const py::sequence& items) {
  Indices slots, values;
  py::sequence compiled = tile_kernel(reader, items, slots, values);
  bool writes = at(items, items.size() - 1).cast<bool>();
  CallPython step{reader.callable(at(compiled, 0)), {}, {Item{Item::Drop}}, writes};
  for (int32_t slot : slots) step.args.push_back(Item{Item::Slot, slot});
  for (int32_t value : values) step.args.push_back(Item{Item::Int, value});
  return step;
}

Step cuda_kernel(Reader& reader, const py::sequence& items) {
  LaunchCuda step;
  py::sequence compiled = tile_kernel(reader, items, step.slots, step.values);
  step.kernel = std::make_shared<CudaKernel>(reader.callable(at(compiled, 2)),
                                             at(compiled, 0).cast<bool>(),
                                             at(compiled, 1).cast<std::vector<bool>>(),
                                             at(compiled, 3).cast<uint64_t>());
  size_t numbers = CudaKernel::kExtents + step.kernel->arguments();
  TORCH_CHECK_VALUE(step.values.size() >= numbers && !step.slots.empty(), "too little for a kernel");
  step.writes = at(items, items.size() - 1).cast<bool>();
  return step;
}

Step call(Reader& reader, const py::sequence& items) {
  auto name = at(items, 1).cast<std::string>(), overload = at(items, 2).cast<std::string>();
  if (overload == "default") overload.clear();
  auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  TORCH_CHECK_VALUE(op.has_value(), "there is no operator ", name, ".", overload);
  const auto& parameters = op->schema().arguments();
  py::sequence given = sequence(at(items, 3));
  TORCH_CHECK_VALUE(given.size() == parameters.size(), "not all arguments of ", op->schema());
  CallOperator step{*op, {}, {}};
  for (size_t i = 0; i < parameters.size(); ++i) {
    step.args.push_back(reader.item(at(given, i), parameters[i].real_type(), parameters[i].N()));
  }
  step.results = reader.results(at(items, 4));
  return step;
}

py::sequence rest(const py::sequence& items, size_t first) {
  return py::reinterpret_steal<py::sequence>(PySequence_GetSlice(items.ptr(), first, items.size()));
}

Step python(Reader& reader, const py::sequence& items) {
  std::vector<Item> args = reader.python_items(at(items, 2));
  bool writes = items.size() > 4 && at(items, 4).cast<bool>();
  PyObject* function = reader.callable(reader.bound(at(items, 1)));
  return CallPython{function, std::move(args), reader.results(at(items, 3)), writes};
}

Step calculate(Reader& reader, const py::sequence& items) {
  Arithmetic function = arithmetic(at(items, 1).cast<std::string_view>());
  TORCH_CHECK_VALUE(function != nullptr, "there is no such operation on floats");
  CallPython call = std::get<CallPython>(python(reader, rest(items, 1)));
  TORCH_CHECK_VALUE(call.results.size() == 1 && call.results[0].kind != Item::Slot &&
                        !call.args.empty() && call.args.size() <= 2,
                    "an operation takes one or two numbers, and gives one");
  for (const Item& item : call.args) {
    bool good = item.kind == Item::Constant ? PyFloat_Check(item.object)
                                            : item.kind >= Item::Int && item.kind <= Item::Bool;
    TORCH_CHECK_TYPE(good, "an operation on floats takes numbers");
  }
  return Calculate{function, std::move(call)};
}

Step require(Reader& reader, const py::sequence& items) {
  int32_t value = reader.values.use(at(items, 1));
  return Require{value, std::get<CallPython>(python(reader, rest(items, 1)))};
}

Step read_item(Reader& reader, const py::sequence& items) {
  int32_t slot = reader.slot(at(items, 1), Need::Tensor);
  std::vector<Item> results = reader.results(at(items, 2));
  TORCH_CHECK_VALUE(results.size() == 1, "an element is one result");
  return ReadItem{slot, std::move(results[0])};
}

Step read(Reader& reader, const py::sequence& items) {
  Number number = reader.number(at(items, 2), at(items, 3), at(items, 4));
  TORCH_CHECK_VALUE(number.kind <= Number::Offset, "only arguments can be numbers");
  return ReadNumber{reader.values.make(at(items, 1)), number};
}

Step apart(Reader& reader, const py::sequence& items) {
  Apart step{};
  step.one = layout(reader, items, 1);
  step.offset = reader.values.use(at(items, 3));
  step.alone = items.size() == 4;
  if (step.alone) return step;
  step.other = layout(reader, items, 4);
  step.other_offset = reader.values.use(at(items, 6));
  step.elementwise = at(items, 7).cast<bool>();
  return step;
}

Step in_range(Reader& reader, const py::sequence& items) {
  using Bound = std::variant<int64_t, double>;
  auto bound = [&](size_t i) {
    py::handle object = at(items, i);
    return PyFloat_Check(object.ptr()) ? Bound(object.cast<double>())
                                       : Bound(object.cast<int64_t>());
  };
  InRange step{reader.values.use(at(items, 1)), bound(2), bound(3), at(items, 4).cast<bool>()};
  TORCH_CHECK_VALUE(step.least.index() == step.most.index(), "bounds of two types");
  return step;
}

Step save(Reader& reader, const py::sequence& items) {
  return Save{reader.slot(at(items, 1), Need::Tensor)};
}

Step take(Reader& reader, const py::sequence& items) {
  int32_t argument = reader.input(at(items, 2));
  reader.slots.drop(argument);
  return Take{reader.new_slot(at(items, 1)), argument};
}

Step check(Reader&, const py::sequence&) { return CheckErrors{}; }

Step random(Reader&, const py::sequence& items) {
  return KeepRandom{at(items, 1).cast<c10::Device>()};
}

Step sizes(Reader& reader, const py::sequence& items) {
  CheckSizes step{{}, reader.callable(reader.bound(at(items, 1)))};
  for (py::handle object : sequence(at(items, 2))) {
    py::sequence pair = sequence(object);
    step.limits.emplace_back(reader.values.use(at(pair, 0)), at(pair, 1).cast<int64_t>());
  }
  return step;
}

Step wrote(Reader& reader, const py::sequence& items) {
  return Wrote{reader.slot(at(items, 1), Need::Plain)};
}

Step free(Reader& reader, const py::sequence& items) {
  Indices slots = reader.slots.use_all(at(items, 1));
  for (int32_t i : slots) reader.slots.drop(i);
  return Free{std::move(slots)};
}

const Table<Step (*)(Reader&, const py::sequence&)> kSteps = {
    {"compute", compute}, {"cpu_empty", allocate}, {"view", view},   {"cpu_kernel", kernel},
    {"call", call},       {"python", python},      {"read", read},   {"check", check},
    {"wrote", wrote},     {"free", free},          {"apart", apart}, {"laid_out", laid_out},
    {"sizes", sizes},     {"random", random},      {"save", save},   {"take", take},
    {"in_range", in_range}, {"cpu_batch", batch},  {"item", read_item},
    {"require", require}, {"calculate", calculate}, {"python_kernel", python_kernel},
    {"empty", allocate_on}, {"cuda_kernel", cuda_kernel}};

Step read_step(Reader& reader, const py::sequence& items) {
  try {
    return named(kSteps, at(items, 0))(reader, items);
  } catch (c10::Error& error) {
    error.add_context("in the step " + py::repr(items).cast<std::string>());
    throw;
  }
}

}  // namespace

std::unique_ptr<LaunchProgram> read_program(const Arguments& arguments) {
  auto program = std::make_unique<LaunchProgram>();
  Py_ssize_t inputs = arguments.inputs;
  TORCH_CHECK_VALUE(inputs >= 0 && inputs < kMost, "a wrong number of inputs: ", inputs);
  program->inputs.resize(inputs, Need::Anything);
  auto table = [](PyObject* items) { return items ? sequence(items) : py::sequence(py::tuple(0)); };
  Reader reader(*program, table(arguments.objects), table(arguments.kernels));
  for (Py_ssize_t i = 0; i < inputs; ++i) reader.roots.push_back(reader.slots.make(i));
  for (py::handle object : sequence(arguments.symbols)) {
    py::sequence items = sequence(object);
    reader.values.make(std::ssize(program->symbols));
    program->symbols.push_back(reader.number(at(items, 0), at(items, 1), at(items, 2)));
  }
  for (py::handle input : sequence(arguments.written)) {
    program->written.push_back(reader.input(input));
  }
  for (py::handle step : sequence(arguments.steps)) {
    reader.touched.clear();
    program->steps.push_back(read_step(reader, sequence(step)));
    program->touched.push_back(reader.touched);
  }
  program->outputs = reader.python_items(arguments.outputs);
  PyObject* fallback = arguments.fallback;
  program->fallback = fallback == Py_None ? Py_None : reader.callable(fallback);
  program->info = reader.hold(arguments.info);
  program->slot_count = reader.slots.count();
  program->value_count = reader.values.count();
  for (Step& step : program->steps) {
    auto* view = std::get_if<View>(&step);
    if (view == nullptr || view->inner) continue;
    int32_t root = reader.roots[view->slot];
    view->tracked = reader.is_input(root);
    for (const Item& output : program->outputs) {
      if (output.kind != Item::Slot || output.index == view->slot) continue;
      view->tracked |= reader.roots[output.index] == root;
    }
  }
  return program;
}

}  // namespace pliant
