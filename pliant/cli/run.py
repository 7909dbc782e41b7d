"""`pliant run script.py args…`: any program, with pliant in the place of torch.compile."""

from __future__ import annotations

import argparse
import io
import os
import runpy
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pliant import api
from pliant.adoption.install import install
from pliant.base import logs
from pliant.base.errors import PliantError
from pliant.base.events import listening
from pliant.cli.progress import Progress
from pliant.cli.summary import Summary
from pliant.reports.page import Recording


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
            stack.enter_context(_with_other_processes(recording))
            stack.enter_context(recording)
        if not chosen.quiet:
            stack.enter_context(_reported(recording))
        sys.argv = [chosen.program, *chosen.arguments]
        try:
            (_run_module if chosen.is_module else _run_script)(chosen.program)
        except Exception:
            _show_own_frames_only()
            raise
    return 0


@contextmanager
def _with_other_processes(recording: Recording) -> Iterator[None]:
    """Processes that the program starts write their events to a file, for the report of this one:
    to the one that the user has asked for, or to one for the time being."""
    path = os.environ.get("PLIANT_LOGS_JSON")
    if path:
        recording.include(path)
        yield
        return
    with tempfile.TemporaryDirectory(prefix="pliant") as folder:
        os.environ["PLIANT_LOGS_JSON"] = path = os.path.join(folder, "events.jsonl")
        recording.include(path)
        try:
            yield
        finally:
            del os.environ["PLIANT_LOGS_JSON"]


@contextmanager
def _reported(recording: Recording | None) -> Iterator[None]:
    """Progress while it runs, and a summary when it has ended, however that was."""
    summary = Summary()
    with Progress() as progress, listening(progress), listening(summary):
        try:
            yield
        finally:
            progress.stop()
            others = None if recording is None else recording.of_others()
            print(summary.text(others), file=sys.stderr)


def _show_own_frames_only() -> None:
    """The traceback of an error of the program begins in the program, as without pliant."""
    show = sys.excepthook

    def shown(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        while trace is not None and trace.tb_frame.f_code not in _RUNNING:
            trace = trace.tb_next
        while trace is not None and trace.tb_frame.f_code.co_filename in _AROUND:
            trace = trace.tb_next
        show(kind, error.with_traceback(trace), trace)

    sys.excepthook = shown


def _run_script(path: str) -> None:
    """As `python path` does. The module `__main__` stays to the end of the process: functions that
    run at exit, pickles and spawned processes need it."""
    path = os.path.abspath(path)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    sys.path[0] = os.path.dirname(path)
    exec(code, main.__dict__)


def _run_module(name: str) -> None:
    """As `python -m name` does."""
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


# What stands between the command line and the program, in a traceback.
_RUNNING = (_run_script.__code__, _run_module.__code__)
_AROUND = (__file__, runpy.__file__, "<frozen runpy>")
