"""A pytest plugin, loaded where PyTorch's tests run: tells each result as a line of JSON.

`CONFORMANCE_LOG` is the file to write to, `CONFORMANCE_TESTS` one with the ids to run. A test that
has started and not ended when the process is gone has crashed.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pliant
from tools.conforming import standin

standin.install()
SECONDS = 60
LOG = Path(os.environ["CONFORMANCE_LOG"])
WANTED = set(json.loads(Path(os.environ["CONFORMANCE_TESTS"]).read_text()))


class TimedOut(BaseException):
    """A test that does not end."""


def tell(**event: Any) -> None:
    with LOG.open("a") as file:
        file.write(json.dumps(event) + "\n")


# How many graphs with a call in them a test makes: without one, nothing was captured.
_graphs = [0]
_make_module = torch.fx.GraphModule.__init__


def _count_graph(self: Any, *args: Any, **kwargs: Any) -> None:
    _make_module(self, *args, **kwargs)
    _graphs[0] += any(node.op.startswith("call") for node in self.graph.nodes)


torch.fx.GraphModule.__init__ = _count_graph  # type: ignore[method-assign]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    chosen = {item.nodeid: item for item in items if item.nodeid in WANTED}
    items[:] = chosen.values()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    def stop(*args: Any) -> None:
        raise TimedOut

    _graphs[0] = 0
    tell(test=item.nodeid, started=True)
    before = {name: getattr(pliant.config, name) for name in standin.options()}
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for name, value in before.items():
            setattr(pliant.config, name, value)


def pytest_runtest_logreport(report: Any) -> None:
    if report.when != "call" and not report.failed:
        return
    text = "" if report.passed else str(report.longrepr)[-400:]
    outcome = "timeout" if "TimedOut" in text else report.outcome
    tell(test=report.nodeid, outcome=outcome, graphs=_graphs[0], text=text)
