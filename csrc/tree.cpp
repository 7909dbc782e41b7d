#include "tree.h"

#include <algorithm>
#include <optional>

#include "facts.h"
#include "isolated.h"
#include "state.h"

namespace pliant {

namespace {

// In 3.11 an allocation may collect garbage, which runs Python code.
struct NoCollection : Pinned {
  const bool was_enabled = PyGC_Disable() != 0;
  ~NoCollection() {
    if (was_enabled) PyGC_Enable();
  }
};

// What fails often moves to the front, one place at a time.
template <typename T>
void promote(std::vector<T>& order, size_t i) {
  if (i > 0) std::swap(order[i - 1], order[i]);
}

bool is_function(const Check& check, PyObject* value) {
  if (!PyFunction_Check(value)) return false;
  auto* function = reinterpret_cast<PyFunctionObject*>(value);
  return function->func_code == check.extra.get() &&
         function->func_globals == check.expected.get();
}

PyObject* class_attr(PyObject* type, PyObject* name) {
  if (!PyType_Check(type)) return nullptr;
  return _PyType_Lookup(reinterpret_cast<PyTypeObject*>(type), name);
}

bool has_key(PyObject* dict, PyObject* key, bool expected) {
  if (!PyDict_Check(dict)) return false;
  bool odd = false;
  bool found = plain_lookup(dict, key, odd) != nullptr;
  return !odd && found == expected;
}

bool holds(const Check& check, PyObject* value) {
  PyObject* expected = check.expected.get();
  switch (check.test) {
    case Test::Type: return reinterpret_cast<PyObject*>(Py_TYPE(value)) == expected;
    case Test::Is: return value == expected;
    case Test::IsNot: return value != expected;
    case Test::Equal: return same_constant(value, expected);
    case Test::Length: return plain_length(value) == check.number;
    case Test::Function: return is_function(check, value);
    case Test::Tensor: return check.tensor->matches(value);
    case Test::Keys: return PyDict_Check(value) && keys_are(value, expected);
    case Test::Has: return has_key(value, expected, true);
    case Test::Lacks: return has_key(value, expected, false);
    case Test::ClassAttr: return class_attr(value, check.extra.get()) == expected;
    case Test::State: return reinterpret_cast<State*>(expected)->holds();
    case Test::Predicate: break;
  }
  return false;
}

// As `holds`, where Python code may run.
bool holds_late(const Check& check, PyObject* value) {
  int answer = 0;
  if (check.test == Test::Predicate) {
    Ref result = Ref::owned(PyObject_CallOneArg(check.expected.get(), value));
    answer = result ? PyObject_IsTrue(result.get()) : -1;
  } else if (check.test == Test::Has || check.test == Test::Lacks) {
    answer = PyDict_Check(value) ? PyDict_Contains(value, check.expected.get()) : -1;
    if (answer >= 0 && check.test == Test::Lacks) answer = !answer;
  } else {
    return holds(check, value);
  }
  if (answer < 0) clear_harmless();
  return answer == 1;
}

PyObject* sequence_item(PyObject* sequence, Py_ssize_t i) {
  if (PyTuple_Check(sequence)) {
    return i < PyTuple_GET_SIZE(sequence) ? PyTuple_GET_ITEM(sequence, i) : nullptr;
  }
  if (!PyList_Check(sequence)) return deque_item(sequence, i);
  return i < PyList_GET_SIZE(sequence) ? PyList_GET_ITEM(sequence, i) : nullptr;
}

PyObject* closure_cell(PyObject* function, Py_ssize_t i) {
  if (!PyFunction_Check(function)) return nullptr;
  PyObject* closure = reinterpret_cast<PyFunctionObject*>(function)->func_closure;
  return closure != nullptr ? sequence_item(closure, i) : nullptr;
}

// The value of a child, borrowed, without running Python code; null if there is none.
PyObject* fetch(const Node& node, PyObject* parent) {
  bool odd = false;
  switch (node.access) {
    case Access::InstanceDict: return instance_dict(parent);
    case Access::DictItem:
      return PyDict_Check(parent) ? plain_lookup(parent, node.key.get(), odd) : nullptr;
    case Access::SeqItem: return sequence_item(parent, node.index);
    case Access::Member: return plain_member(parent, node.key.get(), node.place);
    case Access::TypeOf: return reinterpret_cast<PyObject*>(Py_TYPE(parent));
    case Access::CellContents: return PyCell_Check(parent) ? PyCell_GET(parent) : nullptr;
    case Access::ClosureCell: return closure_cell(parent, node.index);
    case Access::ClassAttr: return class_attr(parent, node.key.get());
    case Access::Local: case Access::Fixed: case Access::Attr: break;
  }
  return nullptr;
}

// As `fetch`, where Python code may run.
Ref fetch_late(const Node& node, PyObject* parent) {
  Ref value;
  if (node.access == Access::Attr) {
    value = Ref::owned(PyObject_GetAttr(parent, node.key.get()));
  } else if (PyDict_Check(parent)) {
    value = Ref::borrowed(PyDict_GetItemWithError(parent, node.key.get()));
  }
  if (!value) clear_harmless();
  return value;
}

// What has to be seen again of checks that hold for a value.
void record(std::vector<Fact>& trace, uint16_t level, const std::vector<Check>& checks,
            PyObject* value) {
  for (size_t i = 0; i < checks.size(); ++i) {
    const Check& check = checks[i];
    const ExpectedTensor* next = i + 1 < checks.size() ? checks[i + 1].tensor.get() : nullptr;
    if (check.test == Test::Type && next != nullptr && next->type == check.expected.get()) continue;
    if (check.test == Test::Type) {
      auto* type = reinterpret_cast<PyTypeObject*>(check.expected.get());
      trace.push_back({Fact::Type, level, 0, value, {.type = type}});
    } else if (check.test == Test::Length && PyDict_Check(value)) {
      trace.push_back({Fact::DictLength, level, 0, value, {.length = check.number}});
    } else if (check.test == Test::Tensor) {
      trace.push_back({Fact::Tensor, level, 0, value, {.tensor = check.tensor.get()}});
    } else {
      trace.push_back({Fact::Holds, level, 0, value, {.check = &check}});
    }
  }
}

constexpr size_t kAhead = 12;  // as many facts follow any fact

void finish_trace(std::vector<Fact>& trace) {
  auto order = [](const Fact& fact) {
    bool last = fact.kind == Fact::Slot;  // when all else is known
    return std::pair<int, int>(last ? UINT16_MAX : fact.level, fact.kind);
  };
  auto before = [&](const Fact& a, const Fact& b) { return order(a) < order(b); };
  std::stable_sort(trace.begin(), trace.end(), before);
  trace.resize(trace.size() + kAhead, {Fact::End, 0, 0, nullptr, {0}});
}

bool is_late(const Node& node) { return node.access == Access::Attr || !node.plain_key; }

bool by_key(const Node& node) {
  return node.access == Access::DictItem || node.access == Access::ClassAttr;
}

// The positions of two equal addresses, if there are any.
std::optional<std::pair<size_t, size_t>> equal_pair(const std::vector<PyObject*>& addresses) {
  std::vector<std::pair<PyObject*, size_t>> sorted;
  for (size_t i = 0; i < addresses.size(); ++i) sorted.emplace_back(addresses[i], i);
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1].first == sorted[i].first) return {{sorted[i - 1].second, sorted[i].second}};
  }
  return std::nullopt;
}

std::vector<Check>& list_for(Node& node, const Check& check) {
  switch (check.test) {
    case Test::Type:
      return type_is_permanent(reinterpret_cast<PyTypeObject*>(check.expected.get())) ? node.pinned
                                                                                     : node.live;
    // Settled by the object itself: as long as its container has the same version, they need not be
    // asked again.
    case Test::Is: case Test::IsNot: case Test::Equal: return node.pinned;
    case Test::Tensor: return check.tensor->may_run_python() ? node.late : node.live;
    case Test::Has: case Test::Lacks:
      return is_plain_key(check.expected.get()) ? node.contents : node.late;
    case Test::Keys: case Test::ClassAttr: return node.contents;
    case Test::Predicate: return node.late;
    case Test::Length: case Test::Function: case Test::State: break;
  }
  return node.live;
}

bool same_key(const Node& node, PyObject* key) {
  PyObject* own = node.key.get();
  return own == key || (own != nullptr && key != nullptr && node.access != Access::Fixed &&
                        is_constant(key) && same_constant(own, key));
}

int visit_checks(const std::vector<Check>& checks, visitproc visit, void* arg) {
  for (const Check& check : checks) {
    Py_VISIT(check.expected.get());
    Py_VISIT(check.extra.get());
    Py_VISIT(check.guard.get());
  }
  return 0;
}

bool use_keyed(Node& node, bool on_class) {
  if (node.keyed && node.on_class != on_class) {
    return fail(PyExc_ValueError, "a node cannot be both a dictionary and a class");
  }
  node.keyed = true;
  node.on_class = on_class;
  return true;
}

}  // namespace

PyObject* unreachable_marker() {
  static PyObject* marker = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return marker;
}

// Building ---------------------------------------------------------------------------------------

Tree::Tree(Py_ssize_t nlocals) : nlocals_(nlocals), roots_(static_cast<size_t>(nlocals) + 1) {
  for (size_t i = 0; i < roots_.size(); ++i) roots_[i].local = static_cast<Py_ssize_t>(i);
}

int32_t Tree::add_node(Access access, int32_t parent, PyObject* key, Py_ssize_t index) {
  size_t root = static_cast<size_t>(access == Access::Local ? index : nlocals_);
  auto siblings = [&]() -> std::vector<int32_t>& {
    return parent < 0 ? roots_[root].nodes : nodes_[parent].children;
  };
  for (int32_t i : siblings()) {
    const Node& node = nodes_[i];
    if (node.access == access && node.index == index && same_key(node, key)) return i;
  }
  Node node{};
  node.access = access;
  node.parent = parent;
  node.index = index;
  node.key = Ref::borrowed(key);
  node.plain_key = access != Access::DictItem || is_plain_key(key);
  if (by_key(node) && node.plain_key && !use_keyed(nodes_[parent], access == Access::ClassAttr)) {
    return -1;
  }
  auto id = static_cast<int32_t>(nodes_.size());
  nodes_.push_back(std::move(node));
  siblings().push_back(id);
  return id;
}

bool Tree::add_check(int32_t id, Check&& check) {
  Node& node = nodes_[id];
  std::vector<Check>& list = list_for(node, check);
  bool on_class = check.test == Test::ClassAttr;
  if (&list == &node.contents && !use_keyed(node, on_class)) return false;
  if (check.tensor != nullptr) share_tensor(node, check);
  list.push_back(std::move(check));
  return true;
}

// Most parameters have a twin. The class is seen together with the rest, if it is known.
void Tree::share_tensor(const Node& node, Check& check) {
  if (!node.live.empty() && node.live.back().test == Test::Type) {
    check.tensor->set_type(node.live.back().expected.get());
  }
  for (const auto& known : tensors_) {
    if (*known == *check.tensor) check.tensor = known;
  }
  if (check.tensor.use_count() == 1) tensors_.push_back(check.tensor);
}

int32_t Tree::add_slot(int32_t node) {
  slots_.push_back(node);
  return static_cast<int32_t>(slots_.size()) - 1;
}

int32_t Tree::keep(int32_t id) {
  if (nodes_[id].slot < 0) nodes_[id].slot = static_cast<int32_t>(frame_size_++);
  return nodes_[id].slot;
}

void Tree::finish() {
  frame_size_ = slots_.size();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (nodes_[slots_[i]].slot < 0) nodes_[slots_[i]].slot = static_cast<int32_t>(i);
  }
  for (Relation& relation : relations_) {
    for (int32_t& cell : relation.cells) cell = keep(cell);
  }
  for (Shape& shape : shapes_) {
    for (auto& load : shape.condition.loads()) load.cell = keep(load.cell);
  }
  auto count = static_cast<int32_t>(nodes_.size());
  for (int32_t id = 0; id < count; ++id) {
    Node& node = nodes_[id];
    if (is_late(node)) {
      keep(node.parent);
      late_steps_.push_back({id, -1});
    } else if (node.parent >= 0) {
      Node& parent = nodes_[node.parent];
      (by_key(node) ? parent.items : parent.steps).push_back(id);
    }
    if (!node.late.empty()) keep(id);
    for (size_t i = 0; i < node.late.size(); ++i) {
      late_steps_.push_back({id, static_cast<int32_t>(i)});
    }
  }
  for (Root& root : roots_) {
    for (int32_t id : root.nodes) root.traced |= nodes_[id].keyed || !nodes_[id].steps.empty();
  }
  finished_ = true;
}

// Checking ---------------------------------------------------------------------------------------

bool Tree::fail(PyObject* guard, PyObject* value, Walk& walk) {
  if (walk.report == nullptr) return false;
  walk.report->failures.push_back({Ref::borrowed(guard), Ref::borrowed(value)});
  return walk.report->all;
}

PyObject* Tree::first_guard(const Node& node) const {
  for (const auto* checks : {&node.pinned, &node.live, &node.contents, &node.late}) {
    if (!checks->empty()) return checks->front().guard.get();
  }
  for (int32_t child : node.children) {
    if (PyObject* guard = first_guard(nodes_[child])) return guard;
  }
  return nullptr;
}

bool Tree::unreachable(const Node& node, Walk& walk) {
  return walk.report != nullptr && fail(first_guard(node), unreachable_marker(), walk);
}

bool Tree::all_hold(const std::vector<Check>& checks, PyObject* value, Walk& walk) {
  for (const Check& check : checks) {
    if (!holds(check, value) && !fail(check.guard.get(), value, walk)) return false;
  }
  return true;
}

bool Tree::visit_children(std::vector<int32_t>& ids, PyObject* value, bool versioned, Walk& walk) {
  for (size_t i = 0; i < ids.size(); ++i) {
    Node& child = nodes_[ids[i]];
    PyObject* found = fetch(child, value);
    // The items of a tuple stay.
    bool stays = versioned && (by_key(child) ||
                               (child.access == Access::SeqItem && PyTuple_Check(value)));
    if (walk.trace != nullptr) child.last = found;
    if (walk.trace != nullptr && !stays) {
      Fact::Kind kind = child.access == Access::InstanceDict ? Fact::InstanceDict : Fact::Fetch;
      walk.trace->push_back({kind, walk.level, ids[i], value, {.expected = found}});
    }
    ++walk.level;
    bool good = found != nullptr ? visit(child, found, stays, walk) : unreachable(child, walk);
    --walk.level;
    if (good) continue;
    if (walk.report == nullptr) promote(ids, i);
    return false;
  }
  return true;
}

bool Tree::visit_contents(Node& node, PyObject* value, Walk& walk) {
  if (node.on_class ? !PyType_Check(value) : !PyDict_Check(value)) return unreachable(node, walk);
  if (!all_hold(node.contents, value, walk)) return false;
  uint64_t version = node.on_class ? type_version(value) : dict_version(value);
  // The order of an OrderedDict has no version.
  bool versioned = version != 0 && (node.contents.empty() || !PyODict_Check(value));
  if (walk.trace != nullptr && versioned) {
    auto id = static_cast<int32_t>(&node - nodes_.data());
    Fact::Kind kind = node.on_class ? Fact::Class : Fact::Dict;
    walk.trace->push_back({kind, walk.level, id, value, {version}});
  } else if (walk.trace != nullptr) {
    record(*walk.trace, walk.level, node.contents, value);
  }
  return visit_children(node.items, value, versioned, walk);
}

// `versioned`: found in a container that has not been changed as long as its version is the same.
bool Tree::visit(Node& node, PyObject* value, bool versioned, Walk& walk) {
  if (node.slot >= 0) walk.frame[node.slot] = Py_NewRef(value);
  if (!all_hold(node.pinned, value, walk) || !all_hold(node.live, value, walk)) return false;
  if (walk.trace != nullptr) {
    if (node.slot >= 0) walk.trace->push_back({Fact::Slot, walk.level, node.slot, value, {0}});
    // Without a version, what is at the same address may be another object.
    if (!versioned) record(*walk.trace, walk.level, node.pinned, value);
    if (!versioned || !PyTuple_CheckExact(value)) {
      record(*walk.trace, walk.level, node.live, value);
    }
  }
  if (node.keyed && !visit_contents(node, value, walk)) return false;
  return visit_children(node.steps, value, versioned, walk);
}

// The container has changed, but not what was found in it: only its version is new.
bool Tree::same_items(const Node& node, PyObject* value) {
  Walk walk{nullptr, nullptr};
  if (!all_hold(node.contents, value, walk)) return false;
  for (int32_t id : node.items) {
    if (!same_item(nodes_[id], fetch(nodes_[id], value))) return false;
  }
  return true;
}

bool Tree::same_item(const Node& item, PyObject* found) {
  Walk walk{nullptr, nullptr};
  if (found != item.last || !all_hold(item.pinned, found, walk)) return false;
  if (!PyTuple_Check(found)) return true;
  // It may be another tuple at the same address.
  if (!all_hold(item.live, found, walk)) return false;
  for (int32_t id : item.steps) {
    const Node& step = nodes_[id];
    if (step.access == Access::SeqItem && !same_item(step, fetch(step, found))) return false;
  }
  return true;
}

// The version is another one, but what was found may be the same: it changes at each write, also of
// a key that nobody looks at.
bool Tree::renew_version(Fact& fact) {
  if (!same_items(nodes_[fact.index], fact.object)) return false;
  // Looking something up on a class gives it a version.
  bool of_class = fact.kind == Fact::Class;
  fact.version = of_class ? type_version(fact.object) : dict_version(fact.object);
  return fact.version != 0;
}

template <Fact::Kind kind>
bool Tree::still_true(Fact*& fact, PyObject** frame) {
  for (; fact->kind == kind; ++fact) {
    // Most of the time goes into waiting for memory: ask for it in advance. (An address that is not
    // valid any more is harmless.)
    __builtin_prefetch(fact[kAhead].object);
    // What lies on the same level is where it was.
    constexpr size_t kNear = kAhead / 2;
    if (kind == Fact::Tensor && fact[kNear].kind == kind && fact[kNear].level == fact->level) {
      fact[kNear].tensor->prefetch(fact[kNear].object);
    }
    PyObject* object = fact->object;
    bool good = true;
    switch (kind) {
      case Fact::Dict:
        good = same_dict_version(object, fact->version) ||
               (PyDict_Check(object) && renew_version(*fact));
        break;
      case Fact::Class:
        good = PyType_Check(object) &&
               (type_version(object) == fact->version || renew_version(*fact));
        break;
      case Fact::Type: good = Py_IS_TYPE(object, fact->type); break;
      case Fact::InstanceDict: good = instance_dict(object) == fact->expected; break;
      case Fact::DictLength:
        good = PyDict_Check(object) && PyDict_GET_SIZE(object) == fact->length;
        break;
      case Fact::Tensor: good = fact->tensor->matches(object); break;
      case Fact::Holds: good = holds(*fact->check, object); break;
      case Fact::Fetch: good = fetch(nodes_[fact->index], object) == fact->expected; break;
      case Fact::Slot: frame[fact->index] = Py_NewRef(object); break;
      case Fact::End: break;
    }
    if (!good) return false;
  }
  return true;
}

bool Tree::replay(std::vector<Fact>& trace, PyObject** frame) {
  static constexpr bool (Tree::*loops[])(Fact*&, PyObject**) = {
      &Tree::still_true<Fact::Dict>,   &Tree::still_true<Fact::Class>,
      &Tree::still_true<Fact::Type>,   &Tree::still_true<Fact::InstanceDict>,
      &Tree::still_true<Fact::DictLength>, &Tree::still_true<Fact::Tensor>,
      &Tree::still_true<Fact::Holds>,  &Tree::still_true<Fact::Fetch>,
      &Tree::still_true<Fact::Slot>};
  static_assert(std::size(loops) == Fact::End);
  for (Fact* fact = trace.data(); fact->kind != Fact::End;) {
    const auto loop = loops[fact->kind];  // GCC's UBSan misreads an index inside the call
    if (!(this->*loop)(fact, frame)) return false;
  }
  return true;
}

bool Tree::walk_root(Root& root, PyObject* parameter, Walk& walk) {
  bool traced = root.traced && walk.report == nullptr;
  if (traced) {
    // The same object as in the last call, a module most of the time: what was seen is compared
    // again, without a walk.
    bool known = root.last == parameter && !root.trace.empty();
    if (known && replay(root.trace, walk.frame)) return true;
    root.trace.clear();
    root.last = parameter;
    walk.trace = &root.trace;
  }
  bool good = true;
  for (size_t i = 0; good && i < root.nodes.size(); ++i) {
    Node& node = nodes_[root.nodes[i]];
    bool fixed = node.access == Access::Fixed;
    good = visit(node, fixed ? node.key.get() : parameter, fixed, walk);
    if (!good && walk.report == nullptr) promote(root.nodes, i);
  }
  walk.trace = nullptr;
  if (traced && good) finish_trace(root.trace);
  if (traced && !good) root.trace.clear();
  return good;
}

bool Tree::walk_roots(PyObject* const* locals, Walk& walk) {
  NoCollection guard;
  if (!all_hold(states_, Py_None, walk)) return false;
  for (size_t i = 0; i < roots_.size(); ++i) {
    Py_ssize_t local = roots_[i].local;
    if (walk_root(roots_[i], local < nlocals_ ? locals[local] : nullptr, walk)) continue;
    if (walk.report == nullptr) promote(roots_, i);
    return false;
  }
  return true;
}

bool Tree::run_late(const LateStep& step, Walk& walk) {
  Node& node = nodes_[step.node];
  if (step.check >= 0) {
    PyObject* value = walk.frame[node.slot];
    if (value == nullptr) return true;  // its failure has been reported
    const Check& check = node.late[step.check];
    if (holds_late(check, value)) return true;
    return PyErr_Occurred() == nullptr && fail(check.guard.get(), value, walk);
  }
  PyObject* parent = walk.frame[nodes_[node.parent].slot];
  if (parent == nullptr) return true;
  Ref value = fetch_late(node, parent);
  if (!value) return PyErr_Occurred() == nullptr && unreachable(node, walk);
  NoCollection guard;
  return visit(node, value.get(), false, walk);
}

bool Tree::relate(Relation& relation, Walk& walk) {
  std::vector<PyObject*>& known = relation.known;
  auto value = [&](size_t i) { return walk.frame[relation.cells[i]]; };
  size_t count = relation.cells.size();
  size_t unchanged = 0;
  // Only addresses are compared: equal ones are related as they were.
  while (unchanged < known.size() && value(unchanged) == known[unchanged]) ++unchanged;
  if (!known.empty() && unchanged == count) return true;
  std::vector<PyObject*> found;
  for (size_t i = 0; i < count; ++i) {
    if (value(i) == nullptr) return true;  // its failure has been reported
    found.push_back(value(i));
  }
  for (size_t i = 0; relation.same && i < count; ++i) {
    if (found[i] != found[0]) return fail(relation.guard.get(), found[i], walk);
  }
  if (auto pair = equal_pair(found); pair && !relation.same) {
    Ref where = Ref::owned(Py_BuildValue("(nn)", pair->first, pair->second));
    return fail(relation.guard.get(), where.get(), walk);
  }
  known = std::move(found);
  return true;
}

bool Tree::measure(Shape& shape, Walk& walk) {
  for (const auto& load : shape.condition.loads()) {
    if (walk.frame[load.cell] == nullptr) return true;  // its failure has been reported
  }
  if (shape.condition.holds(walk.frame)) return true;
  Ref found = Ref::owned(walk.report != nullptr ? shape.condition.found() : nullptr);
  return found && fail(shape.guard.get(), found.get(), walk);
}

bool Tree::match(PyObject* const* locals, PyObject** frame, Report* report) {
  Walk walk{frame, report};
  if (!finished_ || !walk_roots(locals, walk)) return false;
  for (const LateStep& step : late_steps_) {
    if (!run_late(step, walk)) return false;
  }
  for (Relation& relation : relations_) {
    if (!relate(relation, walk)) return false;
  }
  for (Shape& shape : shapes_) {
    if (!measure(shape, walk)) return false;
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (frame[i] == nullptr) frame[i] = Py_XNewRef(frame[nodes_[slots_[i]].slot]);
  }
  return report == nullptr || report->failures.empty();
}

// Garbage collection -----------------------------------------------------------------------------

int Tree::traverse(visitproc visit, void* arg) const {
  for (const Node& node : nodes_) {
    Py_VISIT(node.key.get());
    for (const auto* checks : {&node.pinned, &node.live, &node.contents, &node.late}) {
      if (int stop = visit_checks(*checks, visit, arg)) return stop;
    }
  }
  for (const Relation& relation : relations_) Py_VISIT(relation.guard.get());
  for (const Shape& shape : shapes_) Py_VISIT(shape.guard.get());
  return visit_checks(states_, visit, arg);
}

// Destructors of what goes may come back here: they find an empty tree, that never matches.
void Tree::clear() {
  Tree cleared(nlocals_);
  std::swap(*this, cleared);
}

}  // namespace pliant
