"""Bugs to plant in pliant, and `python -m tests.reproduce.planted BUG script.py`, which runs a
script with one."""

import runpy
import sys

import torch

from pliant.base.operators import RECORDS, load
from pliant.driver import pipeline
from pliant.loop.ir import Op


def _relu(low, x):
    return low.map(lambda b, v: b(Op.MAXIMUM, v, b.constant(0.0, v.type)), x.type, x)


def _lowering(name, rule):
    load()
    return RECORDS[name], "lowering", rule


def wrong_kernel():
    """tanh computes relu."""
    return _lowering("aten.tanh.default", _relu)


def wrong_kernel_of_symbolic_sizes():
    """tanh computes relu where a size is a symbol."""
    load()
    right = RECORDS["aten.tanh.default"].lowering

    def lowering(low, x):
        symbolic = any(size.value is None for size in x.sizes)
        return (_relu if symbolic else right)(low, x)

    return _lowering("aten.tanh.default", lowering)


def wrong_gradient():
    """The gradient of tanh is one."""
    load()
    return RECORDS["aten.tanh_backward.default"], "decomposition", lambda grad, y: grad * 1


def failing_lowering():
    """There is no code for tanh: an exception instead."""

    def lowering(low, x):
        raise ZeroDivisionError("planted")

    return _lowering("aten.tanh.default", lowering)


def failing_capture():
    """Functions that call tanh can't be captured."""
    right = pipeline.capture

    def capture(function, *rest):
        if "tanh" in function.__code__.co_names:
            raise ZeroDivisionError("planted")
        return right(function, *rest)

    return pipeline, "capture", capture


def wrong_capture():
    """tanh is captured as relu."""
    right = pipeline.capture

    def capture(*args):
        captured, bindings = right(*args)
        if bindings.graph is not None:
            for node in bindings.graph.graph.nodes:
                if node.target is torch.tanh:
                    node.target = torch.relu
            bindings.graph.recompile()
        return captured, bindings

    return pipeline, "capture", capture


if __name__ == "__main__":
    bug, script = sys.argv[1:]
    setattr(*globals()[bug]())
    runpy.run_path(script, run_name="__main__")
