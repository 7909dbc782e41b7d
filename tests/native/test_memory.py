"""Nothing leaks, and cycles through compiled functions are collected."""

import gc
import sys
import weakref

import pytest
import torch

from pliant._native import Dispatcher, Entry, GuardTree, State


class Thing:
    def __init__(self, **values):
        self.__dict__.update(values)


def collected(reference):
    gc.collect()
    return reference() is None


def make_tree(fixed=None):
    """Some of everything, over two locals."""
    tree = GuardTree(2)
    node = tree.dict_item(tree.instance_dict(tree.local(0)), "x")
    tree.check_type(node, Thing, "type")
    tree.check_distinct([node, tree.local(1)], "distinct")
    tree.check_is_not(tree.attr(node, "y"), None, "attr")
    tree.check_predicate(tree.local(1), lambda value: value is not None, "predicate")
    tree.check_class_attr(tree.fixed(Thing), ("missing",), "class")
    tree.check_state(State.current(), "state")
    tree.check_is_not(tree.local(1), fixed, "is not")
    for slot in (node, tree.local(1), node, tree.attr(node, "y")):
        tree.slot(slot)
    tree.finish()
    return tree


def function(a, b=None, *args, **kwargs):
    return a


@pytest.mark.parametrize(
    "call",
    [
        lambda d, a, b: d(a, b),
        lambda d, a, b: d(b=b, a=a),
        lambda d, a, b: d(a),
        lambda d, a, b: pytest.raises(TypeError, d),
        lambda d, a, b: pytest.raises(TypeError, d, a, a=b),
    ],
)
@pytest.mark.parametrize("outcome", ["hit", "miss", "error", "handled"])
def test_calls_leave_no_references(call, outcome):
    plain = lambda a, b=None: a
    residual = (lambda *slots: slots) if outcome == "hit" else (lambda *slots: 1 / 0)
    d = Dispatcher(plain, None, (lambda *args: None) if outcome == "handled" else None)
    if outcome != "miss":
        d.install(Entry(make_tree(), residual))
    a, b, y = Thing(), Thing(), Thing()
    a.x = Thing(y=y)
    objects = [a, b, y, a.x, a.__dict__, d, plain, residual]

    def many():
        for _ in range(200):
            try:
                call(d, a, b)
            except ZeroDivisionError:
                pass

    many()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in objects]
    many()
    gc.collect()
    assert [sys.getrefcount(thing) for thing in objects] == before


def test_checks_leave_no_references():
    tree = make_tree()
    a, b = Thing(x=Thing(y=1)), Thing()
    objects = [a, b, a.x, a.__dict__]
    before = [sys.getrefcount(thing) for thing in objects]
    for _ in range(100):
        for values in ((a, b), (a, None), (a, a.x), (b, a), (None, b)):
            tree.check(values), tree.failures(values)
            try:
                tree.slots(values)
            except ValueError:
                pass
    del values
    assert [sys.getrefcount(thing) for thing in objects] == before


def test_a_trace_that_is_left_half_way_leaves_no_references():
    tree = GuardTree(1)
    attributes = tree.instance_dict(tree.local(0))
    for name in ("first", "second"):
        tree.check_length(tree.dict_item(attributes, name), 1, name)
        tree.slot(tree.dict_item(attributes, name))
        tree.slot(tree.seq_item(tree.dict_item(attributes, name), 0))
    tree.finish()
    thing = Thing(first=[Thing()], second=[Thing()])
    kept = [thing.first, thing.second, thing.first[0]]
    before = [sys.getrefcount(value) for value in kept]
    for _ in range(100):
        thing.second[0] = Thing()
        assert tree.slots((thing,)) == (thing.first, thing.first[0], thing.second, thing.second[0])
        thing.second.append(0)
        pytest.raises(ValueError, tree.slots, (thing,))
        thing.second.pop()
    gc.collect()
    assert [sys.getrefcount(value) for value in kept] == before


def test_a_tree_lets_go_of_what_it_holds():
    thing = Thing()
    reference = weakref.ref(thing)
    tree = make_tree(thing)
    del thing
    assert not collected(reference)
    del tree
    assert collected(reference)


def test_a_cycle_through_a_tree():
    thing = Thing()
    thing.tree = make_tree(thing)
    reference = weakref.ref(thing)
    del thing
    assert collected(reference)


def test_a_cycle_through_entry_and_dispatcher():
    def make():
        def local_function(a, b):
            return thing

        thing = Thing()
        d = Dispatcher(local_function, lambda *args: thing, lambda *args: thing)
        d.install(Entry(make_tree(thing), lambda *slots: thing, info=thing))
        d.attribute = thing
        thing.compiled = d
        d.mode = 1
        assert d(thing, thing) is thing
        return [weakref.ref(thing), weakref.ref(d), weakref.ref(local_function)]

    assert all(collected(reference) for reference in make())


def test_a_cycle_through_a_global_function():
    namespace = {"Dispatcher": Dispatcher, "thing": Thing()}
    exec("def f(): return thing\nf = Dispatcher(f, lambda d, values: None)\nf()", namespace)
    reference = weakref.ref(namespace["thing"])
    del namespace
    assert collected(reference)


def test_a_call_during_destruction():
    """A finaliser that calls a compiled function whose own cycle is being collected."""

    class Caller:
        def __init__(self, d):
            self.d, self.me = d, self

        def __del__(self):
            results.append(self.d(1, 2))

    results = []
    d = Dispatcher(lambda a, b: "eager")
    d.install(Entry(make_tree(), lambda *slots: "compiled", info=Caller(d)))
    del d
    gc.collect()
    assert results == ["eager"]


def test_a_state_with_modes_is_collected():
    class Mode(torch.overrides.TorchFunctionMode):
        pass

    mode = Mode()
    with mode:
        mode.state = State.current()
    reference = weakref.ref(mode)
    del mode
    assert collected(reference)


def test_no_memory_grows():
    import tracemalloc

    d = Dispatcher(lambda a, b: a)
    d.install(Entry(make_tree(), lambda *slots: None))
    a, b = Thing(x=Thing(y=1)), Thing()

    def many():
        for _ in range(2000):
            d(a, b), d(b, a), make_tree(b), Dispatcher(function)

    many()
    tracemalloc.start()
    many()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    many()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 16 * 2000  # less than one small object for each round
