"""What holds in every test: failures inside pliant are raised, stages are checked, random numbers
are the same each time, nothing is kept on disk, and no test sees the logs, counters or options of
another."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields

import pytest
import torch

from pliant.backends import registry
from pliant.base import events, logs
from pliant.base.options import Options, config

os.environ["PLIANT_CACHE"] = "0"
torch.set_num_threads(1)  # the tests run in several processes


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        default="eager",
        help="the backend of functions that don't say one: most tests are about capture, so graphs "
        "are run as they are; --backend=llvm runs the same programs through generated code",
    )
    parser.addoption(
        "--device",
        default="cpu",
        help="where tensors are made that don't say where: --device=cuda runs programs on a GPU",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--device") != "cpu" and torch.cuda.is_available():
        torch.set_default_device(config.getoption("--device"))


def _skip_for_device(config: pytest.Config, item: pytest.Item) -> None:
    """On a GPU: what is about CPUs, and everything if there is none."""
    if config.getoption("--device") == "cpu":
        return
    if not torch.cuda.is_available():
        item.add_marker(pytest.mark.skip(reason="there is no GPU"))
    for marker in item.iter_markers("cpu_only"):
        item.add_marker(pytest.mark.skip(reason=marker.args[0]))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    """Of the cases of a test that is `sampled(n)`, one in n is run each time: the diagonals of the
    table of its parameters, so that all values are among them. The others are long."""
    seen: dict[tuple[str, str], dict[str, int]] = {}  # of a test's parameter, in order
    for item in items:
        _skip_for_device(config, item)
        if (marker := item.get_closest_marker("sampled")) is not None:
            test = item.nodeid.partition("[")[0]
            params = item.callspec.params.items()
            values = [(seen.setdefault((test, name), {}), repr(value)) for name, value in params]
            if sum(numbers.setdefault(v, len(numbers)) for numbers, v in values) % marker.args[0]:
                item.add_marker(pytest.mark.long)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests and what they import: the collector need not look at it each time that a
    test asks for a collection, which hundreds do."""
    gc.collect()
    gc.freeze()
    # PyTorch's database of operators would look for the test in the stack at each sample: 80 ms.
    for name in ("common_utils", "opinfo.core"):
        if (module := sys.modules.get(f"torch.testing._internal.{name}")) is not None:
            module.extract_test_fn = lambda: None


@pytest.fixture(autouse=True)
def default_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("own_default") is None:
        monkeypatch.setattr(registry, "DEFAULT", request.config.getoption("--backend"))


@pytest.fixture(autouse=True)
def clean_state() -> Iterator[None]:
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():  # otherwise PyTorch notes down the stack, for later
        torch.cuda.manual_seed_all(0)
    events.counters.reset()
    logs.user_warnings.reset()
    options = {field.name: getattr(config, field.name) for field in fields(Options)}
    with config.patch(options | {"raise_on_fallback": True, "check_ir": True}):
        yield
    logs.set_logs()


@pytest.fixture(autouse=True)
def device_in_order(request: pytest.FixtureRequest) -> Iterator[None]:
    """A device-side assertion leaves a process without its GPU: the worker ends with the test that
    did it, and another one goes on."""
    yield
    if request.config.getoption("--device") != "cpu" and torch.cuda.is_available():
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            print(error, file=sys.stderr)
            os._exit(70)


@pytest.fixture
def stream() -> Iterator[list[events.Event]]:
    """The events of the test, as they come."""
    seen: list[events.Event] = []
    with events.listening(seen.append):
        yield seen


@pytest.fixture
def seen(stream: list[events.Event]) -> Callable[[type], list]:
    """`seen(Kind)`: the events of that kind so far."""
    return lambda kind: [event for event in stream if isinstance(event, kind)]
