"""A capture is data: it can be written to disk, and with its objects it is the program again."""

import io
import operator
import pickle
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import fx

import pliant
from pliant._native import Entry
from pliant.base.external import Binder, External, Externals
from pliant.base.options import config
from pliant.driver import reporting
from pliant.driver.check import check
from pliant.guards import plan
from pliant.stages import CapturedGraph, NodeRef
from tests.support.captures import PROGRAMS, X, compiled
from tests.support.processes import environment

PLAIN_GLOBALS = {
    ("torch", "Size"), ("torch", "device"), ("builtins", "slice"), ("builtins", "Ellipsis"),
    ("torch.fx.immutable_collections", "immutable_list"),
}  # fmt: skip


class Reader(pickle.Unpickler):
    """Notes what a pickle refers to by name."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.names: set[tuple[str, str]] = set()

    def find_class(self, module: str, name: str):
        self.names.add((module, name))
        return super().find_class(module, name)


def written_and_read(captured):
    reader = Reader(pickle.dumps(captured))
    return reader.load(), reader.names


def graph_of(data: CapturedGraph, binder: Binder) -> fx.GraphModule:
    """The graph, made of data and objects."""
    graph, nodes, root = fx.Graph(), {}, torch.nn.Module()

    def argument(value):
        if isinstance(value, NodeRef):
            return nodes[value.name]
        if isinstance(value, tuple | list):
            return type(value)(map(argument, value))
        if isinstance(value, dict):
            return {name: argument(inner) for name, inner in value.items()}
        if isinstance(value, slice):
            return slice(*map(argument, (value.start, value.stop, value.step)))
        return binder.visit(value)

    for name, value in data.attributes.items():
        inner = isinstance(value, CapturedGraph)
        setattr(root, name, graph_of(value, binder) if inner else binder.visit(value))
    for node in data.nodes:
        target = binder.visit(node.target)
        args, kwargs = argument(node.args), argument(node.kwargs)
        nodes[node.name] = graph.create_node(node.op, target, args, kwargs, node.name)
    graph.lint()
    return fx.GraphModule(root, graph)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_capture_is_written_and_read(name):
    for one in compiled(name)[3]:
        loaded, names = written_and_read(one.captured)
        assert str(loaded) == str(one.captured)
        assert check(loaded, one.bindings) is loaded
        others = {pair for pair in names if not pair[0].startswith("pliant.")}
        dtypes = {pair for pair in others if isinstance(getattr(torch, pair[1], 0), torch.dtype)}
        assert others - dtypes <= PLAIN_GLOBALS


@pytest.mark.parametrize("name", PROGRAMS)
def test_parts_made_later_are_those_made_at_once(name):
    at_once = [str(one.captured) for one in compiled(name)[3]]  # to check them
    with config.patch(check_ir=False):
        later = compiled(name)[3]
    assert [str(one.captured) for one in later] == at_once
    for one in later:
        check(one.captured, one.bindings)


def test_parts_are_those_of_the_graph_that_was_captured():
    def changes_the_graph(gm, example_inputs):
        for node in gm.graph.find_nodes(op="call_function", target=operator.mul):
            node.target = operator.add
        gm.recompile()
        return gm.forward

    def doubled(x):
        return x * 2

    with config.patch(check_ir=False):
        explanation = pliant.explain(doubled, backend=changes_the_graph)(X())
    (captured,) = explanation.captured
    assert [node.name for node in captured.graph.nodes] == ["l_x", "mul", "output"]
    assert str(captured.graph.nodes[1].target) == "_operator.mul"
    assert "+" in explanation.graphs[0].code


@pytest.mark.parametrize("name", PROGRAMS)
def test_there_are_no_addresses(name):
    for one in compiled(name)[3]:
        assert not re.search(r"0x[0-9a-f]{6}", str(one.captured))
        addresses = {id(value) for value in one.bindings.objects}
        numbers = {n for n in map(int, re.findall(r"\d{12,}", repr(one.captured)))}
        assert not numbers & addresses


@pytest.mark.parametrize("name", PROGRAMS)
def test_guards_read_from_disk_accept_the_same_calls(name):
    program, arguments, dispatcher, all_compiled = compiled(name)
    values = values_of(program, arguments())
    for entry in dispatcher.entries:
        loaded, _ = written_and_read(entry.info.captured)
        binder = Binder(entry.info.bindings.objects)
        guards = binder.visit(loaded.guards)
        assert [str(g) for g in guards] == [str(g) for g in entry.info.bindings.guards]
        tree = plan.build(guards, binder.visit(loaded.slots), len(values))
        for call in (values, (*values[:-1], None), values_of(program, (X().double(),))):
            if len(call) == len(values):
                assert (tree.check(call) is None) == (entry.tree.check(call) is None)


def values_of(program, args):
    """The values of the parameters, as the dispatcher binds them."""
    return (program, args, {}) if isinstance(program, torch.nn.Module) else args


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "optimizer"])
def test_a_program_made_of_data_and_objects_runs(name):
    program, arguments, dispatcher, (first, *_) = compiled(name)
    loaded, _ = written_and_read(first.captured)
    binder = Binder(first.bindings.objects)
    graph = None
    if loaded.graph is not None:
        graph = graph_of(loaded.graph, binder)
        graph.meta.update(first.bindings.graph.meta)
    guards, slots = binder.visit(loaded.guards), binder.visit(loaded.slots)
    bindings = replace(first.bindings, graph=graph, guards=guards, slots=slots)
    compiler = dispatcher.on_miss.__self__
    about = {"index": 0, **reporting.described(dispatcher.fn)}
    again = compiler._backend(loaded, bindings, about, compiler._chosen_backend())
    tree = plan.build(guards, slots, len(loaded.parameters))
    other = compiler.dispatcher(dispatcher.fn)
    other.install(Entry(tree, again.residual, again))
    args, expected = arguments(), arguments()
    random.seed(0)
    result = other(program, *args) if isinstance(program, torch.nn.Module) else other(*args)
    assert len(other.entries) == 1 and other.entries[0].hits == 1
    random.seed(0)
    torch.testing.assert_close(result, program(*expected))
    torch.testing.assert_close(args, expected)


def test_another_process_reads_it(tmp_path):
    texts = []
    for number, name in enumerate(PROGRAMS):
        captured = compiled(name)[3][0].captured
        (tmp_path / str(number)).write_bytes(pickle.dumps(captured))
        texts.append(str(captured))
    program = (
        "import pickle, sys, pathlib\n"
        "import pliant\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "for number in range(int(sys.argv[2])):\n"
        "    print(pickle.loads((folder / str(number)).read_bytes()))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(len(texts))],
        env=environment(PYTHONHASHSEED="7"),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout == "".join(f"{text}\n" for text in texts)


def test_the_text_has_every_part():
    text = str(compiled("break")[3][0])
    assert text.startswith("compilation 0: captured breaks(x)\nslots:\n  L['x']\ngraph:\n")
    assert "  add = _operator.add(l_x, 1)\n" in text
    assert "residual:\n  def breaks_residual(x):\n" in text
    assert "resumes:\n  resume_breaks_" in text
    assert "  L['x'] matches Tensor(float32[2, 3]" in text
    assert text.endswith("breaks:\n  the truth value of a tensor [data-dependent-branch]")


def test_objects_with_an_identity_stay_externals():
    """A tuple is plain where it is compared by value, and an object where it is meant itself."""
    captured = compiled("globals")[3][0].captured
    assert any(isinstance(guard.expected, External) for guard in captured.guards)
    kept = compiled("closure")[3][0]
    cells = [s.root.value for s in kept.captured.slots if not hasattr(s.root, "index")]
    assert cells and all(isinstance(value, External) for value in cells)


def test_the_empty_tuple_is_data():
    """There is only one: an attribute of a class is the same object as the slots of no argument."""

    def make(x):
        class Made(Exception):
            names = ()

        raise Made(Made.names)

    with pytest.raises(Exception, match=r"\(\)"):
        pliant.compile(make)(torch.ones(2))
    externals = Externals()
    assert externals.identity(()) == externals.visit(()) == ()
    numbers = (1, 2)
    assert isinstance(externals.identity(numbers), External)
