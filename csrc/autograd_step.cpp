// `AutogradStep`: a compiled graph as one step of autograd. Called, it runs the compiled forward and
// gives its outputs a node whose backward is compiled too. All else (hooks, accumulation, version
// checks, the order of backward passes) is PyTorch's. Python is asked to compile a backward that is
// not there yet, and for gradients that have gradients themselves.
#include <ATen/ops/empty_strided.h>
#include <c10/core/AutogradState.h>
#include <c10/util/hash.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "isolated.h"
#include "launcher.h"

namespace pliant {

namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using NodePointer = decltype(torch::autograd::Edge::function);

// PyTorch's nodes are counted by std::shared_ptr up to some version, by themselves from then on.
template <typename N>
std::shared_ptr<N> own(N* node, const std::shared_ptr<N>&) {
  return {node, [](N* dead) { deleteNode(dead); }};
}
template <typename N>
c10::intrusive_ptr<N> own(N* node, const c10::intrusive_ptr<N>&) {
  return c10::intrusive_ptr<N>::unsafe_steal_from_new(node);
}

// A backward for some tangents and gradients; without code PyTorch has to compute them.
struct Backward {
  std::string key;
  Ref code;
  Indices gradients;  // by result: which of the `wanted`
  std::unordered_set<size_t> succeeded;  // with arguments of these sizes
};

// What Python said of the graph: see the stub.
struct Plan {
  Ref forward, eager, refused, accepts, make_backward, run_again;
  Py_ssize_t inputs = 0, outputs = 0, numbers = 0;
  std::vector<std::pair<bool, int32_t>> saved;  // whether of an input, and its number
  Indices differentiable, wanted, copied;
  std::vector<bool> contiguous;
  std::vector<std::pair<int32_t, int32_t>> returned;
  std::vector<c10::Device> draws;  // random numbers of these devices
  std::deque<Backward> backwards;  // those in use stay where they are
};

struct AutogradStep {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Plan* plan;
};

AutogradStep* self_of(PyObject* object) { return reinterpret_cast<AutogradStep*>(object); }

Plan& plan_of(PyObject* object) {
  TORCH_CHECK(self_of(object)->plan != nullptr, "the step is gone");
  return *self_of(object)->plan;
}

// The error leaves the interpreter's lock behind, so it has to be taken along.
[[noreturn]] void throw_error() {
  python_error error;
  error.persist();
  throw error;
}

Ref checked(PyObject* object) {
  if (object == nullptr) throw_error();
  return Ref::owned(object);
}

uint32_t version_of(const at::Tensor& tensor) {
  const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}

// The results of a call as they are asked for, whoever made them.
Ref results_of(PyObject* returned, Py_ssize_t count, NativeCall& native) {
  Ref tuple = checked(returned);
  TORCH_CHECK(PyTuple_Check(tuple.get()) && PyTuple_GET_SIZE(tuple.get()) >= count,
              "a compiled graph returned too little");
  for (size_t i = 0; i < native.results.size(); ++i) {
    if (native.results[i].defined()) continue;
    PyObject* object = PyTuple_GET_ITEM(tuple.get(), native.first + static_cast<Py_ssize_t>(i));
    TORCH_CHECK(THPVariable_Check(object), "a saved tensor or gradient that is no tensor");
    native.results[i] = THPVariable_Unpack(object);
  }
  return tuple;
}

// What a node keeps of the forward until its variables are released. Python objects are in it: it
// is made and dropped with the interpreter's lock.
struct Kept {
  std::vector<SavedVariable> tensors;
  Ref numbers;                                         // a tuple
  std::vector<std::optional<c10::DimVector>> strides;  // by tangent; none: contiguous
  // For gradients of gradients, where the graph runs again.
  Ref inputs;  // a tuple
  std::vector<uint32_t> versions;
  std::vector<RandomState> random;  // of the generators, by device

  bool is_unchanged(size_t i) const {
    PyObject* input = PyTuple_GET_ITEM(inputs.get(), static_cast<Py_ssize_t>(i));
    return !THPVariable_Check(input) || version_of(THPVariable_Unpack(input)) == versions[i];
  }
  bool is_unchanged() const {
    bool unchanged = true;
    for (size_t i = 0; i < versions.size(); ++i) unchanged &= is_unchanged(i);
    return unchanged;
  }
  void check_versions() const {
    for (size_t i = 0; i < versions.size(); ++i) {
      TORCH_CHECK(is_unchanged(i),
                  "one of the variables needed for gradient computation has been modified by an "
                  "inplace operation: input ", i, " of a compiled graph, which create_graph=True "
                  "runs again");
    }
  }
};

// The node ----------------------------------------------------------------------------------------

struct PliantBackward : Node {
  explicit PliantBackward(PyObject* step) : step_(Ref::borrowed(step)) {}
  // The last owner may be any thread, and may outlive Python, which then can free nothing.
  ~PliantBackward() override {
    release_variables();
    if (Py_IsInitialized() != 0) {
      py::gil_scoped_acquire gil;
      step_ = Ref();
    }
    step_.release();
  }

  std::string name() const override { return "PliantBackward"; }
  void release_variables() override {
    if (Py_IsInitialized() != 0) {
      py::gil_scoped_acquire gil;
      kept_.reset();
    } else if (kept_) {
      // Leaked on purpose: freeing Python objects without an interpreter would crash.
      new std::shared_ptr<Kept>(std::move(kept_));
    }
  }
  void keep(std::shared_ptr<Kept> kept) { kept_ = std::move(kept); }

  // Another thread may release it meanwhile: the interpreter's lock is not held all the time.
  std::shared_ptr<Kept> kept() const {
    TORCH_CHECK(kept_ != nullptr, torch::autograd::ERR_BACKWARD_TWICE);
    return kept_;
  }

 protected:
  variable_list apply(variable_list&& tangents) override;

 private:
  Backward* find(Plan& plan, const variable_list& tangents) const;
  void drop_saved(const std::shared_ptr<Kept>& kept);
  variable_list run(const std::shared_ptr<Kept>& kept, Plan& plan, Backward& backward,
                    variable_list& tangents);
  variable_list run_again(const Kept& kept, Plan& plan, const variable_list& tangents,
                          const py::object& error) const;

  Ref step_;
  std::shared_ptr<Kept> kept_;
};

variable_list PliantBackward::apply(variable_list&& tangents) {
  py::gil_scoped_acquire gil;  // the engine calls without it
  std::shared_ptr<Kept> kept = this->kept();
  bool any = false, plain = true;
  for (const at::Tensor& tangent : tangents) {
    any |= tangent.defined();
    plain &= !tangent.defined() || is_plain(tangent);
  }
  // No tangents, no gradients; running the code on zeros would make tensors of them.
  if (!any) return variable_list(num_outputs());
  Plan& plan = plan_of(step_.get());
  // Sparse and batched tangents, for example, are for PyTorch.
  // With grad mode (`create_graph=True`) gradients need a history, which compiled code doesn't
  // make.
  bool compiled = plain && !at::GradMode::is_enabled();
  Backward* backward = compiled ? find(plan, tangents) : nullptr;
  if (backward != nullptr && backward->code) return run(kept, plan, *backward, tangents);
  kept->check_versions();
  return run_again(*kept, plan, tangents, py::none());
}

// The backward for these tangents and the gradients that the engine wants.
Backward* PliantBackward::find(Plan& plan, const variable_list& tangents) const {
  std::string key;
  for (const at::Tensor& tangent : tangents) key += tangent.defined() ? '1' : '0';
  for (uint32_t i = 0; i < num_outputs(); ++i) key += task_should_compute_output(i) ? '1' : '0';
  for (Backward& backward : plan.backwards) {
    if (backward.key == key) return &backward;
  }
  py::tuple present(tangents.size());
  py::set wanted;
  for (size_t i = 0; i < tangents.size(); ++i) present[i] = py::bool_(tangents[i].defined());
  for (size_t i = 0; i < plan.wanted.size(); ++i) {
    if (key[tangents.size() + i] == '1') wanted.add(plan.wanted[i]);
  }
  Backward made{std::move(key), {}, {}, {}};
  PyObject* args[] = {present.ptr(), wanted.ptr()};
  Ref result = checked(PyObject_Vectorcall(plan.make_backward.get(), args, 2, nullptr));
  if (result.get() != Py_None) {
    auto pair = py::handle(result.get()).cast<std::pair<py::object, std::vector<int32_t>>>();
    made.code = Ref::owned(pair.first.release().ptr());
    for (int32_t input : pair.second) {
      auto place = std::find(plan.wanted.begin(), plan.wanted.end(), input);
      TORCH_CHECK(place != plan.wanted.end(), "a gradient of an input that wants none");
      made.gradients.push_back(static_cast<int32_t>(place - plan.wanted.begin()));
    }
  }
  return &plan.backwards.emplace_back(std::move(made));
}

// With the strides of the output, which the code expects.
at::Tensor laid_out(const at::Tensor& tangent, const std::optional<c10::DimVector>& strides) {
  if (!strides) return tangent.contiguous();
  if (tangent.strides() == c10::IntArrayRef(*strides)) return tangent;
  return at::empty_strided(tangent.sizes(), *strides, tangent.options()).copy_(tangent);
}

// Calls the code; null with a Python error, whatever was thrown.
PyObject* call_backward(const Backward& backward, PyObject** objects, NativeCall& call) {
  try {
    return call_natively(backward.code.get(), objects, call.arguments.size(), call);
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

// If this is the last backward, the code frees what was saved as it goes. Whoever reads it after
// the node ran, as a hook may, is let to.
void PliantBackward::drop_saved(const std::shared_ptr<Kept>& kept) {
  if (torch::autograd::get_current_graph_task_keep_graph() || !post_hooks().empty()) return;
  if (kept_ == kept) kept_.reset();
  if (kept.use_count() == 1) kept->tensors.clear();
}

variable_list PliantBackward::run(const std::shared_ptr<Kept>& held, Plan& plan, Backward& backward,
                                  variable_list& tangents) {
  const Kept& kept = *held;
  auto numbers = static_cast<size_t>(PyTuple_GET_SIZE(kept.numbers.get()));
  size_t most = kept.tensors.size() + numbers + tangents.size();
  Values objects(most);
  NativeCall call;
  call.arguments.reserve(most);
  // `unpack` raises if the tensor was written to since, and calls hooks, as eager PyTorch does.
  NodePointer self = getptr();
  for (const SavedVariable& saved : kept.tensors) call.arguments.push_back(saved.unpack(self));
  WithoutTorchFunction off;
  for (size_t i = 0; i < numbers; ++i) {
    PyObject* number = PyTuple_GET_ITEM(kept.numbers.get(), static_cast<Py_ssize_t>(i));
    objects[call.arguments.size()] = Py_NewRef(number);
    call.arguments.emplace_back();
  }
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (tangents[i].defined()) call.arguments.push_back(laid_out(tangents[i], kept.strides[i]));
  }
  call.results.resize(backward.gradients.size());
  size_t sizes = 0;
  for (const at::Tensor& argument : call.arguments) {
    if (!argument.defined()) continue;
    for (int64_t size : argument.sizes()) sizes = c10::hash_combine(sizes, size);
  }
  const bool repeatable = backward.succeeded.count(sizes) == 0 && kept.is_unchanged();
  if (!repeatable) tangents.clear();  // the code frees them, too
  drop_saved(held);
  PyObject* returned = call_backward(backward, objects.data(), call);
  if (returned == nullptr) {
    if (!repeatable || must_propagate()) throw_error();
    // PyTorch tells what is wrong; or it isn't, and the code is of no use.
    py::error_already_set error;
    variable_list gradients = run_again(kept, plan, tangents, error.value());
    // PyTorch could do it, so the mistake is ours: this backward runs by PyTorch from now on.
    backward.code = Ref();
    return gradients;
  }
  backward.succeeded.insert(sizes);
  results_of(returned, std::ssize(call.results), call);
  variable_list gradients(num_outputs());
  for (size_t i = 0; i < call.results.size(); ++i) {
    gradients[backward.gradients[i]] = std::move(call.results[i]);
  }
  return gradients;
}

// Gradients that have gradients themselves, or for which there is no code, or where it failed with
// this error.
variable_list PliantBackward::run_again(const Kept& kept, Plan& plan,
                                        const variable_list& tangents,
                                        const py::object& error) const {
  WithoutTorchFunction off;
  py::list given, needed;
  std::vector<size_t> edges;
  for (const at::Tensor& tangent : tangents) {
    given.append(tangent.defined() ? py::cast(tangent) : py::none());
  }
  for (size_t i = 0; i < plan.wanted.size(); ++i) {
    if (!task_should_compute_output(i)) continue;
    edges.push_back(i);
    needed.append(plan.wanted[i]);
  }
  std::vector<at::Tensor> states;
  for (const RandomState& state : kept.random) states.push_back(state.copy.get_state());
  py::object random = py::cast(states);
  PyObject* args[] = {kept.inputs.get(), random.ptr(), given.ptr(), needed.ptr(), error.ptr()};
  Ref results = checked(PyObject_Vectorcall(plan.run_again.get(), args, 5, nullptr));
  auto found = py::handle(results.get()).cast<std::vector<std::optional<at::Tensor>>>();
  TORCH_CHECK(found.size() == edges.size(), "not as many gradients as are needed");
  variable_list gradients(num_outputs());
  for (size_t i = 0; i < edges.size(); ++i) gradients[edges[i]] = found[i].value_or(at::Tensor());
  return gradients;
}

// The forward -------------------------------------------------------------------------------------

bool requires_grad(PyObject* object) {
  return THPVariable_Check(object) && THPVariable_Unpack(object).requires_grad();
}

// A node with an edge for each input that gets a gradient; null where there is nothing to track.
NodePointer make_node(PyObject* step, const Plan& plan, PyObject* const* args) {
  bool any = false;
  for (int32_t input : plan.wanted) any |= requires_grad(args[input]);
  if (!any || !at::GradMode::is_enabled()) return nullptr;
  NodePointer node = own(static_cast<Node*>(new PliantBackward(step)), NodePointer());
  torch::autograd::edge_list edges(plan.wanted.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    PyObject* input = args[plan.wanted[i]];
    if (!requires_grad(input)) continue;
    edges[i] = torch::autograd::impl::gradient_edge(THPVariable_Unpack(input));
  }
  node->set_next_edges(std::move(edges));
  return node;
}

// Makes an output one of the node. A view of what is saved, which autograd would let nobody write
// to, becomes a tensor of its own; the version, which tells of writes, stays the common one.
void track(PyObject* outputs, int32_t index, const NodePointer& node) {
  PyObject* object = PyTuple_GET_ITEM(outputs, index);
  TORCH_CHECK(THPVariable_Check(object), "a differentiable output that is no tensor");
  at::Tensor output = THPVariable_Unpack(object);
  if (output.requires_grad()) {  // an input, which was written to: it has a history
    return torch::autograd::impl::rebase_history(output, {node, node->add_input_metadata(output)});
  }
  if (output.is_view()) {
    output = output.tensor_data();
    Ref plain = checked(THPVariable_Wrap(output));
    if (PyTuple_SetItem(outputs, index, plain.release()) < 0) throw_error();
  }
  torch::autograd::set_history(output, node);
}

// What the graph needs to run again, as it is before the forward.
std::shared_ptr<Kept> keep_inputs(const Plan& plan, PyObject* const* args) {
  auto kept = std::make_shared<Kept>();
  for (c10::Device device : plan.draws) kept->random.emplace_back(device);
  kept->inputs = checked(tuple_of(args, plan.inputs));
  for (int32_t i : plan.copied) {  // with their history, if they have one
    Ref copy = checked(THPVariable_Wrap(THPVariable_Unpack(args[i]).clone()));
    if (PyTuple_SetItem(kept->inputs.get(), i, copy.release()) < 0) throw_error();
  }
  return kept;
}

void keep(Kept* kept, const Plan& plan, PyObject* const* args, PyObject* results,
          const std::vector<at::Tensor>& more, PyObject* outputs, const NodePointer& node) {
  kept->tensors.reserve(plan.saved.size());
  for (auto [of_input, index] : plan.saved) {
    if (!of_input && index >= plan.outputs) {
      kept->tensors.emplace_back(more[index - plan.outputs], false);
      continue;
    }
    PyObject* object = of_input ? args[index] : PyTuple_GET_ITEM(outputs, index);
    TORCH_CHECK(THPVariable_Check(object), "no tensor to be saved");
    const at::Tensor& tensor = THPVariable_Unpack(object);
    kept->tensors.emplace_back(tensor, tensor.grad_fn() == node);
  }
  Py_ssize_t end = PyTuple_GET_SIZE(results);
  kept->numbers = checked(PyTuple_GetSlice(results, plan.numbers, end));
  for (size_t i = 0; i < plan.differentiable.size(); ++i) {
    PyObject* output = PyTuple_GET_ITEM(outputs, plan.differentiable[i]);
    auto& strides = kept->strides.emplace_back();
    if (!plan.contiguous[i]) strides.emplace(THPVariable_Unpack(output).strides());
  }
  for (Py_ssize_t i = 0; i < plan.inputs; ++i) {
    PyObject* input = PyTuple_GET_ITEM(kept->inputs.get(), i);
    kept->versions.push_back(THPVariable_Check(input) ? version_of(THPVariable_Unpack(input)) : 0);
  }
}

// Sizes for which the backward was compiled, and no forward-mode gradients, which are PyTorch's.
bool accepts(const Plan& plan, PyObject* const* args) {
  const bool forward_mode = torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr;
  for (Py_ssize_t i = 0; forward_mode && i < plan.inputs; ++i) {
    if (!THPVariable_Check(args[i])) continue;
    if (torch::autograd::isFwGradDefined(THPVariable_Unpack(args[i]))) return false;
  }
  if (plan.accepts.get() == Py_None) return true;
  Ref inputs = checked(tuple_of(args, plan.inputs));
  Ref accepted = checked(PyObject_CallOneArg(plan.accepts.get(), inputs.get()));
  return accepted.get() == Py_True;
}

PyObject* step_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  HANDLE_TH_ERRORS
  Ref held = Ref::borrowed(object);  // what runs may drop the last other reference
  Plan& plan = plan_of(object);
  auto nargs = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  TORCH_CHECK_TYPE(plan.inputs == static_cast<Py_ssize_t>(nargs) && kwnames == nullptr,
                   "the graph takes ", plan.inputs, " arguments by position");
  if (!accepts(plan, args)) return PyObject_Vectorcall(plan.eager.get(), args, nargs, nullptr);
  NodePointer node = make_node(object, plan, args);
  std::shared_ptr<Kept> kept = node ? keep_inputs(plan, args) : nullptr;
  NativeCall call;
  call.first = plan.outputs;
  call.results.resize(plan.numbers - plan.outputs);
  PyObject* returned = nullptr;
  {
    WithoutTorchFunction off;
    at::AutoGradMode no_grad(false);
    c10::AutoFwGradMode no_forward_grad(false);
    // All arguments are objects, so none is replaced.
    auto** objects = const_cast<PyObject**>(args);
    returned = call_natively(plan.forward.get(), objects, nargs, call);
  }
  if (returned == nullptr) {
    if (PyErr_ExceptionMatches(plan.refused.get()) == 0) return nullptr;
    PyErr_Clear();
    return PyObject_Vectorcall(plan.eager.get(), args, nargs, nullptr);
  }
  Ref results = results_of(returned, plan.numbers, call);
  // A tuple of its own: a slice of all of it would be the very tuple, which can't be changed.
  Ref outputs = checked(tuple_of(&PyTuple_GET_ITEM(results.get(), 0), plan.outputs));
  for (auto [output, input] : plan.returned) {  // the very objects
    if (PyTuple_SetItem(outputs.get(), output, Py_NewRef(args[input])) < 0) return nullptr;
  }
  if (node) {
    for (int32_t output : plan.differentiable) track(outputs.get(), output, node);
    keep(kept.get(), plan, args, results.get(), call.results, outputs.get(), node);
    static_cast<PliantBackward&>(*node).keep(std::move(kept));
  }
  return outputs.release();
  END_HANDLE_TH_ERRORS
}

// The types ---------------------------------------------------------------------------------------

PyTypeObject step_type = blank_type();
PyTypeObject node_type = blank_type();

std::unique_ptr<Plan> read_plan(const py::dict& given) {
  auto plan = std::make_unique<Plan>();
  auto object = [&](const char* name) { return Ref::borrowed(py::object(given[name]).ptr()); };
  auto number = [&](const char* name) { return given[name].cast<Py_ssize_t>(); };
  plan->forward = object("forward");
  plan->eager = object("eager");
  plan->refused = object("refused");
  plan->accepts = object("accepts");
  plan->make_backward = object("make_backward");
  plan->run_again = object("run_again");
  plan->inputs = number("inputs");
  plan->outputs = number("outputs");
  plan->numbers = number("numbers");
  plan->draws = given["draws"].cast<std::vector<c10::Device>>();
  plan->saved = given["saved"].cast<decltype(plan->saved)>();
  plan->differentiable = given["differentiable"].cast<Indices>();
  plan->wanted = given["wanted"].cast<Indices>();
  plan->copied = given["copied"].cast<Indices>();
  plan->contiguous = given["contiguous"].cast<std::vector<bool>>();
  plan->returned = given["returned"].cast<decltype(plan->returned)>();

  auto check = [](int64_t index, int64_t end) {
    TORCH_CHECK_VALUE(index >= 0 && index < end, "there is no ", index, " of ", end);
  };
  check(plan->outputs, plan->numbers + 1);
  for (auto [of_input, i] : plan->saved) check(i, of_input ? plan->inputs : plan->numbers);
  for (int32_t i : plan->differentiable) check(i, plan->outputs);
  for (int32_t i : plan->wanted) check(i, plan->inputs);
  for (int32_t i : plan->copied) check(i, plan->inputs);
  for (auto [output, input] : plan->returned) {
    check(output, plan->outputs);
    check(input, plan->inputs);
  }
  TORCH_CHECK_VALUE(plan->contiguous.size() == plan->differentiable.size(), "not all tangents");
  return plan;
}

PyObject* step_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(PyTuple_GET_SIZE(args) == 0 && kwargs != nullptr, "arguments by name only");
  try {
    auto plan = read_plan(py::reinterpret_borrow<py::dict>(kwargs));
    PyObject* object = type->tp_alloc(type, 0);
    if (object == nullptr) return nullptr;
    self_of(object)->vectorcall = step_call;
    self_of(object)->plan = plan.release();
    return object;
  } catch (const py::cast_error& error) {
    return PyErr_Format(PyExc_TypeError, "not a step of autograd: %s", error.what());
  }
  END_HANDLE_TH_ERRORS
}

int step_traverse(PyObject* object, visitproc visit, void* arg) {
  const Plan* plan = self_of(object)->plan;
  if (plan == nullptr) return 0;
  for (const Ref* held : {&plan->forward, &plan->eager, &plan->refused, &plan->accepts,
                          &plan->make_backward, &plan->run_again}) {
    Py_VISIT(held->get());
  }
  for (const Backward& backward : plan->backwards) Py_VISIT(backward.code.get());
  return 0;
}

int step_clear(PyObject* object) {
  delete std::exchange(self_of(object)->plan, nullptr);
  return 0;
}

PyObject* saved_tensors(PyObject* object, void*) {
  HANDLE_TH_ERRORS
  auto* base = reinterpret_cast<torch::autograd::THPCppFunction*>(object)->cdata.get();
  auto& node = static_cast<PliantBackward&>(*base);
  std::shared_ptr<Kept> kept = node.kept();
  py::tuple tensors(kept->tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i] = kept->tensors[i].unpack(node.getptr());
  return tensors.release().ptr();
  END_HANDLE_TH_ERRORS
}

using namespace torch::autograd;  // for the names in this macro

PyGetSetDef node_properties[] = {
    THP_FUNCTION_DEFAULT_PROPERTIES,
    {"saved_tensors", saved_tensors, nullptr, "What the backward reads of the forward.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

PyTypeObject* init_autograd_step_type() {
  torch::autograd::_initFunctionPyTypeObject(node_type, "PliantBackward", node_properties, nullptr);
  torch::autograd::registerCppFunction(typeid(PliantBackward), &node_type);
  PyTypeObject& type = step_type;
  type.tp_flags = Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_vectorcall_offset = offsetof(AutogradStep, vectorcall);
  type.tp_call = PyVectorcall_Call;
  type.tp_new = step_new;
  type.tp_doc = "AutogradStep(*, ...): a compiled graph as one step of autograd; see the stub.";
  return ready(type, "pliant._native.AutogradStep", sizeof(AutogradStep), step_traverse,
               step_clear);
}

}  // namespace pliant
