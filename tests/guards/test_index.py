"""Many entries: a call is compared with those alone that it can fit, and the right one is found."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from types import SimpleNamespace

import pytest
import torch

import pliant
from pliant._native import Dispatcher, Entry, GuardTree
from pliant.base import events
from pliant.guards import index
from pliant.guards.guard import ExpectedTensor, Guard, GuardKind
from pliant.guards.kinds import EQUAL
from pliant.guards.source import Local
from tests.support.work import calls, instructions


def spec_of(x: torch.Tensor, dynamic: bool = False) -> ExpectedTensor:
    sizes = tuple([None if dynamic else n for n in x.shape])
    strides = tuple([None if dynamic else n for n in x.stride()])
    keys = torch._C._dispatch_keys(x).raw_repr()
    return ExpectedTensor(x.dtype, x.device, x.requires_grad, sizes, strides, 0, keys)


VALUES = [0, 1, -1, 2**70, True, False, None, "a", "b", b"a", 0.0, -0.0, float("nan"), 1.0, (1, 2)]
VALUES += [[], [1], [1, 2], {}, {"a": 1}, torch.zeros(2), torch.zeros(3), torch.zeros(2, 3)]
VALUES += [torch.zeros(2, dtype=torch.int32), torch.zeros(2, requires_grad=True)]


class Case:
    """An entry with a few guards on two parameters, and the same as data for the index."""

    def __init__(self, rng: random.Random, name: int) -> None:
        self.guards: list[Guard] = []
        tree = GuardTree(2)
        for local in range(2):
            kind, expected = self.condition(rng, rng.choice(VALUES))
            if kind is not None:
                self.guards.append(Guard(kind, Local(local, f"p{local}"), expected))
                _CHECK[kind](tree, tree.local(local), expected, None)
        tree.slot(tree.local(0))
        tree.finish()
        self.name = name
        self.entries = [Entry(tree, lambda x: name, self) for _ in range(2)]

    def condition(self, rng, value):
        if rng.random() < 0.2:
            return None, None
        if isinstance(value, torch.Tensor):
            return GuardKind.TENSOR, spec_of(value, rng.random() < 0.3)
        if isinstance(value, (list, dict)):
            return rng.choice([(GuardKind.LENGTH, len(value)), (GuardKind.IS, value)])
        return rng.choice(
            [(GuardKind.EQUALS, value), (GuardKind.EQUALS, value), (GuardKind.TYPE, type(value))]
        )


_CHECK = {
    GuardKind.EQUALS: GuardTree.check_equal,
    GuardKind.IS: GuardTree.check_is,
    GuardKind.TYPE: GuardTree.check_type,
    GuardKind.LENGTH: GuardTree.check_length,
    GuardKind.TENSOR: GuardTree.check_tensor,
}


@pytest.mark.parametrize("seed", range(40))
def test_the_same_entry_as_in_order(seed):
    rng = random.Random(seed)
    cases = [Case(rng, number) for number in range(rng.choice([8, 20, 60]))]

    def f(a, b):
        return "eager"

    plain, indexed = Dispatcher(f), Dispatcher(f)
    tables = [index.demands(case.guards) for case in cases]
    questions = rng.sample(sorted({q for t in tables for q in t}, key=str), rng.choice([1, 2]))
    indexed.index(questions)
    for case, table in zip(cases, tables):
        plain.install(case.entries[0])
        indexed.install(case.entries[1])
        if all(q in table for q in questions):
            indexed.file(case.entries[1], tuple([table[q] for q in questions]))
    order = lambda d: [entry.info.name for entry in d.entries]
    assert indexed.questions == tuple(questions)
    for _ in range(150):
        args = (rng.choice(VALUES), rng.choice(VALUES))
        found = indexed.find(args)
        assert plain(*args) == indexed(*args) == (found.info.name if found else "eager")
        assert order(plain) == order(indexed)
    again = rng.choice(cases)
    plain.install(again.entries[0])
    indexed.install(again.entries[1])
    assert order(plain) == order(indexed)
    gone = rng.choice(cases)
    assert plain.remove(gone.entries[0]) and indexed.remove(gone.entries[1])
    assert indexed.questions == () and order(plain) == order(indexed)


class Holder:
    def __init__(self, number):
        self.number = number


KINDS = {
    "number": lambda n: (torch.zeros(2), n),
    "text": lambda n: (torch.zeros(2), f"mode {n}"),
    "size": lambda n: (torch.zeros(n + 2), 1),
    "length": lambda n: (torch.zeros(2), [0] * n),
    "attribute": lambda n: (torch.zeros(2), Holder(n)),
    "item": lambda n: (torch.zeros(2), (1, [n])),
    "dtype and number": lambda n: (
        torch.zeros(2, dtype=[torch.float32, torch.float64, torch.int64][n % 3]),
        n // 3,
    ),
}


def f(x, y):
    if isinstance(y, Holder):
        return x + y.number
    if isinstance(y, list):
        return x + len(y)
    if isinstance(y, str):
        return x + len(y)
    return x + (y[1][0] if isinstance(y, tuple) else y)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_are_told_apart_by_what_varies(kind):
    options = {"recompile_limit": 100}
    compiled = pliant.compile(f, backend="eager", dynamic=False, options=options)
    for n in range(64):
        torch.testing.assert_close(compiled(*KINDS[kind](n)), f(*KINDS[kind](n)))
    assert events.counters["compilations"] == len(compiled.entries) == 64
    for n in reversed(range(64)):
        torch.testing.assert_close(compiled(*KINDS[kind](n)), f(*KINDS[kind](n)))
    assert len(compiled.entries) == 64
    tables = [index.demands(entry.info.bindings.guards) for entry in compiled.entries]
    assert compiled.questions == tuple(index.chosen(tables))
    keys = [tuple([index._mark(q[2], t[q]) for q in compiled.questions]) for t in tables]
    assert len(set(keys)) == 64


def test_nothing_is_asked_of_few_entries():
    compiled = pliant.compile(f, backend="eager", dynamic=False, options={"recompile_limit": 100})
    for n in range(index.FEWEST - 1):
        compiled(torch.zeros(2), n)
    assert compiled.questions == ()
    compiled(torch.zeros(2), 100)
    assert compiled.questions


def test_the_work_of_one_more_compilation_stays_the_same():
    compiled = pliant.compile(f, backend="eager", dynamic=False, options={"recompile_limit": 1000})
    numbers = iter(range(1000))

    def some(count):
        return calls(lambda: [compiled(torch.zeros(2), next(numbers)) for _ in range(count)])

    some(20)
    early = some(10)
    some(100)  # past 128, where questions are chosen anew
    assert some(10) < early * 1.1


LIMITS = {"recompile_limit": 3000, "accumulated_recompile_limit": 3000}


@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=pytest.mark.long)])
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_the_last_of_many_compilations_runs_as_many_instructions(backend, count, seen):
    """Loops over all entries within one line are counted, which `calls` doesn't see."""
    compiled = pliant.compile(f, backend=backend, dynamic=False, options=LIMITS)
    numbers = iter(range(count))

    def compile_one():
        compiled(torch.zeros(2), next(numbers))

    for _ in range(40):
        compile_one()
    early = sorted(instructions(compile_one) for _ in range(5))[2]
    while len(compiled.entries) < count - 5:
        compile_one()
    late = sorted(instructions(compile_one) for _ in range(5))[2]
    assert late < early * 1.1
    assert len(compiled.entries) == events.counters["compilations"] == count
    assert not seen(events.FellBack)


@pytest.mark.parametrize("count", [64, 2000])
def test_a_call_evaluates_the_guards_of_what_it_can_fit(count):
    tried = []
    dispatcher = Dispatcher(lambda a: "eager")
    for n in range(count):
        tree = GuardTree(1)
        tree.check_predicate(tree.local(0), lambda value, n=n: tried.append(n) or value == n, None)
        tree.slot(tree.local(0))
        tree.finish()
        guards = (Guard(GuardKind.EQUALS, Local(0, "a"), n),)
        info = SimpleNamespace(bindings=SimpleNamespace(guards=guards))
        entry = Entry(tree, lambda a: f"entry {a}", info)
        dispatcher.install(entry)
        index.update(dispatcher, entry)
    tried.clear()
    for n in range(count):
        assert dispatcher(n) == f"entry {n}"
    assert tried == list(range(count))
    assert dispatcher(count) == dispatcher("text") == "eager"
    assert tried == list(range(count))


def test_no_more_than_some_reasons_are_told(seen):
    compiled = pliant.compile(f, backend="eager", dynamic=False, options={"recompile_limit": 100})
    for n in range(40):
        compiled(torch.zeros(2), n)
    reasons = seen(events.Recompiled)[-1].reasons
    assert [reason.entry for reason in reasons] == list(range(23, 39))


def test_threads_use_the_index_while_it_grows():
    options = {"recompile_limit": 200}
    compiled = pliant.compile(f, backend="eager", dynamic=False, options=options)
    wrong = []

    def work(seed):
        rng = random.Random(seed)
        for _ in range(150):
            n = rng.randrange(60)
            if compiled(torch.zeros(1), n).item() != n:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(compiled.entries) == 60


def test_an_index_keeps_nothing_alive():
    compiled = pliant.compile(f, backend="eager", dynamic=False, options={"recompile_limit": 100})
    for n in range(20):
        compiled(torch.zeros(2), n)
    residual = weakref.ref(compiled.entries[0].residual)
    compiled.clear()
    assert compiled.questions == () and compiled.entries == []
    gc.collect()
    assert residual() is None
    assert compiled(torch.zeros(2), 3).tolist() == [3, 3]


@pytest.mark.parametrize(
    "question", [(2, (), 0, 0), (0, (), 9, 0), (0, (-1,), 0, 0), (0, (1.5,), 0, 0), "no"]
)
def test_a_question_that_makes_no_sense_is_refused(question):
    dispatcher = Dispatcher(lambda a, b: a)
    with pytest.raises((IndexError, ValueError, TypeError, SystemError)):
        dispatcher.index([question])
    assert dispatcher.questions == ()
    with pytest.raises(ValueError, match="no index"):
        dispatcher.file(None, ())


@pytest.mark.parametrize("indexed", [False, True])
def test_an_interrupted_check_ends_the_call(indexed):
    """Ctrl-C while a guard runs Python code is not a guard that fails."""

    def interrupt(value):
        raise KeyboardInterrupt

    missed = []
    dispatcher = Dispatcher(lambda a, b: a, lambda *args: missed.append(args))
    tree = GuardTree(2)
    tree.check_predicate(tree.local(0), interrupt, None)
    tree.slot(tree.local(0))
    tree.finish()
    entry = Entry(tree, lambda a: a)
    dispatcher.install(entry)
    if indexed:
        dispatcher.index([(0, (), EQUAL, 0)])
    with pytest.raises(KeyboardInterrupt):
        dispatcher(1, 2)
    with pytest.raises(KeyboardInterrupt):
        dispatcher.find((1, 2))
    assert missed == []
