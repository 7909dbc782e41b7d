"""Calls of a compiled function: which entry runs, what happens on a miss and on an error."""

import copy
import functools
import inspect
import threading
import traceback

import pytest
import torch

from pliant._native import Dispatcher, Entry, GuardTree, set_bypass


def entry_if_equal(value, residual, *, nlocals=1):
    """An entry for calls whose first parameter is `value`; the residual code gets it."""
    tree = GuardTree(nlocals)
    tree.check_equal(tree.local(0), value, f"== {value!r}")
    tree.slot(tree.local(0))
    tree.finish()
    return Entry(tree, residual, {"for": value})


def eager(x):
    """The documentation."""
    return ("eager", x)


def compiled(x):
    return ("compiled", x)


def compile_anything(dispatcher, values):
    entry = entry_if_equal(values[0], compiled)
    dispatcher.install(entry)
    return entry


def test_a_miss_asks_and_a_hit_does_not():
    asked = []

    def on_miss(dispatcher, values):
        asked.append((dispatcher, values))
        return compile_anything(dispatcher, values)

    d = Dispatcher(eager, on_miss)
    assert [d(1), d(1), d(x=1), d(2), d(1)] == [("compiled", n) for n in (1, 1, 1, 2, 1)]
    assert asked == [(d, (1,)), (d, (2,))]
    assert [(e.info["for"], e.hits) for e in d.entries] == [(1, 4), (2, 1)]


def test_the_entry_used_last_is_tried_first():
    d = Dispatcher(eager)
    for n in (1, 2, 3, 4):
        d.install(entry_if_equal(n, compiled))
    order = lambda: [entry.info["for"] for entry in d.entries]
    assert order() == [4, 3, 2, 1]
    assert d(2) == ("compiled", 2) and order() == [2, 4, 3, 1]
    assert d(1) == ("compiled", 1) and order() == [1, 2, 4, 3]
    assert d(1) == ("compiled", 1) and order() == [1, 2, 4, 3]


def test_install_remove_clear():
    a, b = entry_if_equal(1, compiled), entry_if_equal(2, compiled)
    d = Dispatcher(eager)
    d.install(a), d.install(b), d.install(a)
    assert d.entries == [a, b]
    assert d.remove(a) is True and d.remove(a) is False and d.entries == [b]
    d.clear()
    assert d.entries == [] and d(2) == ("eager", 2)


def test_without_an_entry_the_function_itself_runs():
    assert Dispatcher(eager)(3) == ("eager", 3)
    assert Dispatcher(eager, lambda d, values: None)(3) == ("eager", 3)


def test_an_entry_for_something_else_is_not_run():
    d = Dispatcher(eager, lambda d, values: entry_if_equal("other", compiled))
    assert d(3) == ("eager", 3) and d.entries == []


def test_an_entry_need_not_be_installed():
    d = Dispatcher(eager, lambda d, values: entry_if_equal(3, compiled))
    assert d(3) == ("compiled", 3) and d.entries == []


def test_modes():
    d = Dispatcher(eager, compile_anything)
    d(1)
    d.mode = 1
    assert d(1) == ("compiled", 1) and d(2) == ("eager", 2)
    d.mode = 2
    assert d(1) == ("eager", 1)
    d.mode = 0
    assert d(2) == ("compiled", 2)


def test_bypass_is_for_one_thread():
    d = Dispatcher(eager, compile_anything)
    found = []
    assert set_bypass(True) is False
    try:
        assert d(1) == ("eager", 1)
        thread = threading.Thread(target=lambda: found.append(d(1)))
        thread.start()
        thread.join()
    finally:
        assert set_bypass(False) is True
    assert found == [("compiled", 1)] and d(1) == ("compiled", 1)


# Errors -------------------------------------------------------------------------------------------


def failing_residual(x):
    raise ValueError("in the residual code")


def test_an_error_reaches_the_caller():
    d = Dispatcher(eager)
    d.install(entry_if_equal(1, failing_residual))
    with pytest.raises(ValueError, match="in the residual code") as caught:
        d(1)
    assert "failing_residual" in str(caught.traceback[-1])


def test_on_error_gives_the_result():
    def on_error(dispatcher, entry, values, error):
        lines = "".join(traceback.format_tb(error.__traceback__))
        return dispatcher, entry, values, str(error), "failing_residual" in lines

    d = Dispatcher(eager, None, on_error)
    entry = entry_if_equal(1, failing_residual)
    d.install(entry)
    assert d(1) == (d, entry, (1,), "in the residual code", True)


def test_on_error_may_raise_again():
    def on_error(dispatcher, entry, values, error):
        raise error

    d = Dispatcher(eager, None, on_error)
    d.install(entry_if_equal(1, failing_residual))
    with pytest.raises(ValueError) as caught:
        d(1)
    assert "failing_residual" in [entry.name for entry in caught.traceback]


def test_an_error_of_on_miss_reaches_the_caller():
    def on_miss(dispatcher, values):
        raise RuntimeError("cannot compile")

    with pytest.raises(RuntimeError, match="cannot compile"):
        Dispatcher(eager, on_miss)(1)


@pytest.mark.parametrize("wrong", [3, compiled, entry_if_equal(1, compiled, nlocals=2)])
def test_on_miss_returns_an_entry(wrong):
    with pytest.raises((TypeError, ValueError)):
        Dispatcher(eager, lambda d, values: wrong)(1)
    with pytest.raises((TypeError, ValueError)):
        Dispatcher(eager).install(wrong)


def test_wrong_arguments_of_the_constructors():
    for wrong in (len, 3, functools.partial(eager), Dispatcher(eager)):
        with pytest.raises(TypeError):
            Dispatcher(wrong)
    with pytest.raises(TypeError):
        Entry(GuardTree(1), compiled)  # not finished
    with pytest.raises(TypeError):
        Entry(entry_if_equal(1, compiled).tree, 3)


# Behaving as the function does --------------------------------------------------------------------


def test_it_looks_like_the_function():
    eager.note = "a note"
    d = Dispatcher(eager)
    assert d.fn is d.__wrapped__ is eager
    assert (d.__name__, d.__doc__, d.__module__) == ("eager", "The documentation.", __name__)
    assert d.__qualname__ == "eager" and d.__code__ is eager.__code__ and d.note == "a note"
    assert repr(d) == "<pliant-compiled eager>"
    assert inspect.signature(d) == inspect.signature(eager)
    assert callable(d) and inspect.unwrap(d) is eager
    with pytest.raises(AttributeError, match="nothing"):
        d.nothing


def test_it_has_attributes_of_its_own():
    d = Dispatcher(eager)
    d.mine = 1
    d.__doc__ = "changed"
    assert d.mine == 1 and d.__dict__["mine"] == 1
    assert not hasattr(eager, "mine") and d.__doc__ == "changed"
    assert functools.update_wrapper(d, eager) is d


compiled_global = Dispatcher(eager)
compiled_global.__qualname__ = "compiled_global"


def test_copies_share_it():
    assert copy.deepcopy(compiled_global) is copy.copy(compiled_global) is compiled_global
    assert compiled_global.__reduce__() == "compiled_global"


class Holder:
    def __init__(self, n):
        self.n = n

    def method(self, x, *, y=0):
        return ("eager", self.n, x, y)

    compiled = Dispatcher(method)


def test_it_binds_as_a_method():
    holder = Holder(5)
    assert holder.compiled(1) == holder.compiled(x=1) == ("eager", 5, 1, 0)
    bound = holder.compiled
    assert inspect.ismethod(bound) and bound.__self__ is holder
    assert bound(2, y=3) == ("eager", 5, 2, 3)
    assert isinstance(Holder.compiled, Dispatcher)
    assert Holder.compiled(holder, 1) == ("eager", 5, 1, 0)
    assert [*map(holder.compiled, [1, 2])] == [("eager", 5, n, 0) for n in (1, 2)]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        holder.compiled()


def test_a_function_with_new_code_is_another_function():
    def function(x):
        return ("old", x)

    d = Dispatcher(function, compile_anything)
    assert d(1) == ("compiled", 1)
    function.__code__ = (lambda x, y=2: ("new", x, y)).__code__
    function.__defaults__ = (2,)
    d.on_miss = None
    assert d(1) == ("new", 1, 2) and d.entries == []


# Re-entrancy and threads --------------------------------------------------------------------------


class Property:
    """An object whose attribute runs code when a guard looks at it."""

    def __init__(self, action=lambda: None, value=1):
        self.action, self.value = action, value

    @property
    def watched(self):
        self.action()
        return self.value


def entry_on_property(residual=lambda x: "compiled"):
    tree = GuardTree(1)
    first = tree.dict_item(tree.instance_dict(tree.local(0)), "value")
    tree.check_type(first, int, "type")
    tree.check_equal(tree.attr(tree.local(0), "watched"), 1, "watched")
    tree.slot(tree.local(0))
    tree.finish()
    return Entry(tree, residual)


def test_a_guard_may_call_the_same_function():
    d = Dispatcher(lambda x: "eager")
    d.install(entry_on_property())
    inner = Property(value=2)
    found = []
    assert d(Property(lambda: found.append(d(inner)))) == "compiled"
    assert found == ["eager"]


def test_a_guard_may_change_the_entries():
    d = Dispatcher(lambda x: "eager")
    for action in (d.clear, lambda: d.install(entry_on_property()), lambda: d.remove(d.entries[0])):
        d.install(entry_on_property())
        assert d(Property(action)) == "compiled"


def test_a_guard_may_destroy_what_it_looks_at():
    tree = GuardTree(1)
    attributes = tree.instance_dict(tree.local(0))
    tree.check_equal(tree.attr(tree.dict_item(attributes, "first"), "watched"), 1, "watched")
    tree.check_equal(tree.attr(tree.dict_item(attributes, "second"), "watched"), 1, "second")
    tree.slot(tree.dict_item(attributes, "second"))
    tree.finish()
    holder = Holder(0)
    holder.first = Property(lambda: holder.__dict__.clear())
    holder.second = Property()
    (second,) = tree.slots((holder,))
    assert second.value == 1 and holder.__dict__ == {}


def test_recursion():
    def factorial(n):
        return n * d(n - 1) if n else 1

    d = Dispatcher(factorial, lambda d, values: entry_if_equal(values[0], factorial))
    assert d(20) == 2432902008176640000
    with pytest.raises(RecursionError):
        d(-1)


def test_many_threads():
    """Several threads call, compile and forget; every result is right."""

    def on_miss(dispatcher, values):
        compile_anything(dispatcher, values)
        return dispatcher.entries[-1] if values[0] % 7 == 0 else None

    d = Dispatcher(eager, on_miss)
    errors = []

    def work(seed):
        try:
            for i in range(3000):
                n = (i * seed) % 11
                assert d(n)[1] == n
                if i % 97 == 0:
                    d.clear()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_tensors_go_through():
    d = Dispatcher(lambda x: x + 1)
    tree = GuardTree(1)
    tree.check_type(tree.local(0), torch.Tensor, "type")
    tree.slot(tree.local(0))
    tree.finish()
    d.install(Entry(tree, lambda x: x + 1))
    x = torch.randn(3)
    assert torch.equal(d(x), x + 1) and d.entries[0].hits == 1
