"""Bugs to plant in pliant, and `python -m tests.reproduce.planted BUG script.py…`, which runs
scripts with one."""

import runpy
import sys

import torch
from torch import fx

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
    """tanh is captured as relu, also in the bodies of loops and branches."""
    right = pipeline.capture

    def capture(*args):
        captured, bindings = right(*args)
        for module in () if bindings.graph is None else bindings.graph.modules():
            for node in getattr(module, "graph", fx.Graph()).nodes:
                if node.target is torch.tanh:
                    node.target = torch.relu
            module.recompile()
        return captured, bindings

    return pipeline, "capture", capture


def _error_of(script):
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception as error:
        return error


if __name__ == "__main__":
    bug, *scripts = sys.argv[1:]
    setattr(*globals()[bug]())
    errors = [_error_of(script) for script in scripts]
    for error in errors:
        print(type(error).__name__)
    for error in filter(None, errors):
        raise error
