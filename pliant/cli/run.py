"""`pliant run script.py args…`: any program, with pliant in the place of torch.compile."""

from __future__ import annotations

import argparse
import io
import os
import runpy
import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pliant import api
from pliant.adoption.install import install
from pliant.base import logs
from pliant.base.errors import PliantError
from pliant.base.events import listening
from pliant.cli.progress import Progress
from pliant.cli.summary import Summary


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "run",
        help="run a program with pliant in the place of torch.compile",
        usage="pliant run [-h] [--logs CHANNELS] [--report FILE] [--quiet] "
        "(SCRIPT | -m MODULE) [ARGUMENT ...]",
        description="Run a Python program in which torch.compile and nn.Module.compile are "
        "pliant's. Processes that it starts have pliant too.",
    )
    parser.add_argument("--logs", metavar="CHANNELS", help="as PLIANT_LOGS: graph_breaks,+guards")
    parser.add_argument("--report", metavar="FILE", help="write what happened as an HTML page")
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")
    parser.add_argument("-m", action="store_true", dest="is_module", help="run a module")
    parser.add_argument("program", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(main=main)


def main(chosen: argparse.Namespace) -> int:
    if not chosen.is_module and not os.path.isfile(chosen.program):
        print(f"pliant run: there is no file {chosen.program!r}", file=sys.stderr)
        return 2
    try:
        if chosen.logs:
            logs.set_logs(**logs.from_text(chosen.logs))
        recording = api.report(chosen.report) if chosen.report else None
    except (PliantError, FileNotFoundError) as error:
        print(f"pliant run: {error}", file=sys.stderr)
        return 2
    os.environ["PLIANT_INSTALL"] = "1"  # for the processes that it starts
    with ExitStack() as stack:
        stack.enter_context(install())
        if recording is not None:
            stack.enter_context(recording)
        if not chosen.quiet:
            stack.enter_context(_reported())
        sys.argv = [chosen.program, *chosen.arguments]
        if chosen.is_module:
            _run_module(chosen.program)
        else:
            _run_script(chosen.program)
    return 0


@contextmanager
def _reported() -> Iterator[None]:
    """Progress while it runs, and a summary when it has ended, however that was."""
    summary = Summary()
    with Progress() as progress, listening(progress), listening(summary):
        try:
            yield
        finally:
            progress.stop()
            print(summary, file=sys.stderr)


def _run_script(path: str) -> None:
    """As `python path` does. The module `__main__` stays to the end of the process: functions that
    run at exit, pickles and spawned processes need it."""
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    exec(code, main.__dict__)


def _run_module(name: str) -> None:
    """As `python -m name` does."""
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)
