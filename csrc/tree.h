// The guards of one compiled entry, as a tree over the values they speak of.
//
// A node is a way to a value: a parameter, a fixed object, or one access from another node. Checks
// hang on nodes. A walk goes down from the roots and stops at the first check that does not hold.
//
// Two ideas make it fast. A walk that succeeds leaves a trace: the versions of the dictionaries and
// classes it went through, and what may change without changing a version. While those few facts
// hold, nothing has to be looked up again. And whatever could run Python code (attributes,
// predicates, odd keys) is left for after the walk, on values that are held: so the walk is atomic,
// and may use borrowed pointers and remember them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "facts.h"
#include "python.h"
#include "shape.h"
#include "tensor.h"

namespace pliant {

enum class Access : uint8_t {
  // roots
  Local, Fixed,
  // from a parent
  InstanceDict, DictItem, SeqItem, Attr, Member, TypeOf, CellContents, ClosureCell, ClassAttr,
};

enum class Test : uint8_t {
  State, Type, Is, IsNot, Equal, Length, Function, Tensor, Keys, Has, Lacks, ClassAttr, Predicate,
};

struct Check {
  Test test;
  Py_ssize_t number = 0;
  Ref expected;
  Ref extra;  // the code of a function, the name of a class attribute
  std::shared_ptr<ExpectedTensor> tensor;  // shared by all that are alike: so it stays in the cache
  Ref guard;
};

// One thing to be seen again for a walk to be superfluous. All are about objects that facts of a
// lower level prove to be where they were; a pointer is never followed before that. They are sorted
// by level, and within a level by kind, to be gone through in short loops.
struct Fact {
  enum Kind : uint8_t {
    Dict, Class, Type, InstanceDict, DictLength, Tensor, Holds, Fetch,
    Slot,  // nothing to be seen: the value goes into the frame
    End,
  };
  Kind kind;
  uint16_t level;
  int32_t index;  // the node, or the slot
  PyObject* object;
  union {
    uint64_t version;
    Py_ssize_t length;
    PyObject* expected;
    PyTypeObject* type;
    const Check* check;
    const ExpectedTensor* tensor;
  };
};

struct Node {
  Access access;
  bool keyed = false;           // has `contents` checks or `items`
  bool on_class = false;        // they are about a class, not a dictionary
  bool plain_key = true;
  int32_t parent = -1;
  int32_t slot = -1;            // where in the frame the value is kept
  Py_ssize_t index = 0;
  Ref key;
  mutable Place place;          // of a member, where it was last found
  std::vector<Check> pinned;    // hold as long as the value is the same object
  std::vector<Check> live;      // may change with the value staying the same object
  std::vector<Check> contents;  // hold as long as the dictionary or class has the same version
  std::vector<Check> late;      // may run Python code
  std::vector<int32_t> items;   // children found by key in the dictionary or on the class
  std::vector<int32_t> steps;   // children found in other ways
  std::vector<int32_t> children;
  PyObject* last = nullptr;     // the value in the trace; only compared
};

// Where a walk begins: a parameter, or, after the last of them, all fixed objects.
struct Root {
  Py_ssize_t local = 0;
  std::vector<int32_t> nodes;
  bool traced = false;       // there is something to look up
  PyObject* last = nullptr;  // the parameter in the trace; only compared
  std::vector<Fact> trace;   // of the last walk, empty if that failed
};

// That several values are the same object, or that all are different ones.
struct Relation {
  bool same;
  std::vector<int32_t> cells;  // of the frame; while the tree is built: the nodes
  Ref guard;
  std::vector<PyObject*> known;  // addresses for which it held; only compared
};

struct Shape { ShapeCondition condition; Ref guard; };

struct Failure {
  Ref guard;
  Ref value;  // what was found; for "all different" the positions of two that are not
};

struct Report {
  bool all = false;  // go on after a failure
  std::vector<Failure> failures;
};

class Tree {
 public:
  explicit Tree(Py_ssize_t nlocals);

  // Building. A negative result or false is a Python error.
  int32_t add_node(Access access, int32_t parent, PyObject* key, Py_ssize_t index);
  bool add_check(int32_t node, Check&& check);
  void add_relation(Relation&& relation) { relations_.push_back(std::move(relation)); }
  void add_shape(Shape&& shape) { shapes_.push_back(std::move(shape)); }
  void add_state(Check&& check) { states_.push_back(std::move(check)); }
  int32_t add_slot(int32_t node);
  void finish();

  // Whether all guards hold. The frame, of `frame_size()` empty cells, gets owned values, first
  // those handed to the residual code.
  bool match(PyObject* const* locals, PyObject** frame, Report* report = nullptr);

  bool finished() const { return finished_; }
  size_t node_count() const { return nodes_.size(); }
  Py_ssize_t nlocals() const { return nlocals_; }
  size_t slot_count() const { return slots_.size(); }
  size_t frame_size() const { return frame_size_; }

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Walk {
    PyObject** frame;
    Report* report;
    std::vector<Fact>* trace = nullptr;
    uint16_t level = 0;  // how far from the root
  };
  struct LateStep {
    int32_t node;
    int32_t check;  // -1: fetch the node's value
  };

  bool walk_roots(PyObject* const* locals, Walk& walk);
  bool walk_root(Root& root, PyObject* parameter, Walk& walk);
  bool visit(Node& node, PyObject* value, bool versioned, Walk& walk);
  bool visit_contents(Node& node, PyObject* value, Walk& walk);
  bool visit_children(std::vector<int32_t>& ids, PyObject* value, bool versioned, Walk& walk);
  bool replay(std::vector<Fact>& trace, PyObject** frame);
  template <Fact::Kind kind>
  bool still_true(Fact*& fact, PyObject** frame);
  bool renew_version(Fact& fact);
  bool same_items(const Node& node, PyObject* value);
  bool same_item(const Node& item, PyObject* found);
  bool run_late(const LateStep& step, Walk& walk);
  bool relate(Relation& relation, Walk& walk);
  bool measure(Shape& shape, Walk& walk);
  bool all_hold(const std::vector<Check>& checks, PyObject* value, Walk& walk);
  bool fail(PyObject* guard, PyObject* value, Walk& walk);
  bool unreachable(const Node& node, Walk& walk);
  PyObject* first_guard(const Node& node) const;
  void share_tensor(const Node& node, Check& check);
  int32_t keep(int32_t node);

  Py_ssize_t nlocals_;
  bool finished_ = false;
  size_t frame_size_ = 0;
  std::vector<Node> nodes_;
  std::vector<Check> states_;
  std::vector<std::shared_ptr<ExpectedTensor>> tensors_;
  std::vector<Root> roots_;
  std::vector<LateStep> late_steps_;
  std::vector<Relation> relations_;
  std::vector<Shape> shapes_;
  std::vector<int32_t> slots_;
};

// Reported as found when there is no way to the value of a guard.
PyObject* unreachable_marker();

}  // namespace pliant
