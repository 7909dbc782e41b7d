"""What pliant prints, when asked to: logs by channel, and the warnings a user should see.

The one idea: a channel is a row of a table, the events it shows and how to write one of them. Logs
go through the standard `logging` module, to the logger `pliant.<channel>`; nothing is printed by
default. Importing this module puts the environment variables `PLIANT_LOGS` and `PLIANT_LOGS_JSON`
into effect.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from pliant.base import events
from pliant.base.errors import (
    BackendError,
    InvalidOptionError,
    UnknownLogError,
    choices,
    counted,
    format_position,
    warn,
)
from pliant.base.events import Event, render
from pliant.base.late import Late
from pliant.base.records import JsonLog
from pliant.base.values import dataclass

if TYPE_CHECKING:
    from pliant.base import telemetry
else:
    telemetry = Late("pliant.base.telemetry")

Formatter = Callable[[Any, bool], str]
"""Writes an event; the flag asks for all details (`logging.DEBUG`). "" for one that is a detail."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One kind of log: what it shows, and how to write each of its events."""

    doc: str
    formatters: Mapping[type[Event], Formatter]


KERNEL_FAILED = "a kernel for them could not be compiled"


def _indented(text: str, indent: str = "    ") -> str:
    return "\n".join(indent + line if line else "" for line in text.rstrip().split("\n"))


def _where(event: Event) -> str:
    """The function concerned and the place of its definition."""
    if event.position is None:
        return event.function
    return f"{event.function} ({str(event.position).partition(' in ')[0]})"


def _which(event: Event) -> str:
    """As `_where`, and which of its compilations. Backends know the name of the function only."""
    where = _where(event)
    return where if event.position is None else f"{where}, compilation {event.index}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _graph_broke(event: events.GraphBroke, details: bool) -> str:
    shown = event.explain()
    origin = f"\n  while compiling: {event.function}, compilation {event.index}" if details else ""
    return shown + origin


def _graph_captured(event: events.GraphCaptured, details: bool) -> str:
    head = f"{_which(event)}: a graph of {counted(event.nodes, 'operation')}"
    return f"{head}\n{_indented(render(event.graph))}"


def _guards_built(event: events.GuardsBuilt, details: bool) -> str:
    lines = [f"{_which(event)}: valid as long as all of this holds"]
    lines += [_indented(guard) for guard in event.guards()]
    routine = event.routine()
    if routine and details:
        lines += ["  and code, classes and modules are what they were:", *map(_indented, routine)]
    elif routine:
        lines.append(
            f"    … and the code, classes and modules used are what they were "
            f"({len(routine)} guards; +guards shows them)"
        )
    return "\n".join(lines)


def _recompiled(event: events.Recompiled, details: bool) -> str:
    lines = [f"{_which(event)}: no earlier compilation fits this call"]
    for reason in event.reasons:
        lines.append(f"  compilation {reason.entry} needs {reason.guard}")
        if reason.position is not None:
            lines.append(format_position(reason.position, prefix="assumed at ", indent="    "))
    return "\n".join(lines)


def _limit_reached(event: events.LimitReached, details: bool) -> str:
    return f"{_where(event)} {limit_message(event)}"


def _ran_original(event: events.RanOriginal, details: bool) -> str:
    return (
        f"{_where(event)} runs the original module, uncompiled: only calls of a compiled module "
        "are compiled. pliant.compile_module(model) compiles the calls inside its methods too."
    )


def _fell_back(event: events.FellBack, details: bool) -> str:
    lines = [f"{_where(event)} runs eagerly: {event.reason}"]
    if event.error is not None:
        lines.append(_indented(_exception_text(event.error, details)))
    return "\n".join(lines)


def _kernel_failed(event: events.KernelFailed, details: bool) -> str:
    lines = [f"{_which(event)}: PyTorch runs {', '.join(event.operators)}: {KERNEL_FAILED}"]
    if event.error is not None:
        lines.append(_indented(_exception_text(event.error, details)))
    return "\n".join(lines)


def _exception_text(error: BaseException, details: bool) -> str:
    """The whole traceback with `details`, otherwise class and message."""
    if details:
        return logging.Formatter().formatException((type(error), error, error.__traceback__))
    return f"{type(error).__name__}: {error}"


def _residual_made(event: events.ResidualMade, details: bool) -> str:
    return f"{_which(event)}: runs this code instead\n{_indented(render(event.source))}"


def _stage_finished(event: events.StageFinished, details: bool) -> str:
    return f"{_which(event)}: {event.stage}\n{_indented(render(event.text))}"


def _bytecode_read(event: events.BytecodeRead, details: bool) -> str:
    return f"{_where(event)}: its instructions\n{_indented(render(event.listing))}"


def _compile_finished(event: events.CompileFinished, details: bool) -> str:
    head = f"{_which(event)}: took {_ms(event.seconds)}"
    phases = ", ".join(f"{name} {_ms(seconds)}" for name, seconds in event.phases.items())
    return f"{head} ({phases})" if phases else head


def _backend_called(event: events.BackendCalled, details: bool) -> str:
    return f"{_which(event)}: backend {event.backend!r} took {_ms(event.seconds)}"


def _code_generated(event: events.CodeGenerated, details: bool) -> str:
    kernels = event.kernels()
    called = [f"{n} x {operator}" for operator, n in sorted(event.called.items())]
    if not details:
        called = [text.split(":")[0] for text in called]
    head = f"{_which(event)}: {counted(len(kernels), 'kernel')}"
    rest = ["PyTorch runs " + ", ".join(called)] if called else []
    return "\n".join([head, *[_indented(text) for text in [*kernels, *rest]]])


def _listed(operators: list[str]) -> str:
    counts = Counter(operators)
    return ", ".join([name if n == 1 else f"{n} x {name}" for name, n in counts.items()])


def _fused(event: events.CodeGenerated, details: bool) -> str:
    lines = [f"{_which(event)}: {counted(len(event.kernels()), 'kernel')}"]
    for row in event.fusion():
        lines.append(f"    {row['kernel']}: {_listed(row['operators'])}")
        for read in row["reads"]:
            operands = f"{_listed(read['what'])} of " if read["what"] else ""
            by = _listed(read["by"])
            lines.append(f"        {by} reads {operands}{read['from']}: {read['why']}")
    return "\n".join(lines)


def _graph_partitioned(event: events.GraphPartitioned, details: bool) -> str:
    head, *lines = event.report().split("\n")
    return "\n".join([f"{_which(event)}: {head}", *[_indented(line) for line in lines]])


def _not_generated(event: events.NotGenerated, details: bool) -> str:
    return f"{_which(event)}: runs operator by operator, because of {event.reason}"


def _symbol_made(event: events.SymbolMade, details: bool) -> str:
    value = "value unknown" if event.hint is None else f"now {event.hint}"
    text = f"{event.name} is {render(event.source)}, {value}, in {event.range}: {event.why}"
    # An input needs no line: it has a name. What is computed does.
    return _at_line(event, text) if details or event.hint is None else f"{_which(event)}: {text}"


def _stayed_constant(event: events.StayedConstant, details: bool) -> str:
    return _at_line(event, f"{render(event.source)} is {event.value}: {event.why}", details)


def _size_asked(event: events.SizeAsked, details: bool) -> str:
    answer = "can't be told" if event.answer is None else f"{event.answer} ({event.reason})"
    return _at_line(event, f"{event.asker} asked {render(event.condition)}: {answer}", details)


def _size_guarded(event: events.SizeGuarded, details: bool) -> str:
    return _at_line(event, f"holds for {render(event.condition)} only: {event.asker} asked")


def _size_assumed(event: events.SizeAssumed, details: bool) -> str:
    text = f"assumes {render(event.condition)} for {event.asker}; {_OTHERWISE[event.policy]}"
    return _at_line(event, text)


_OTHERWISE = {
    "recompile": "where that is wrong, a variant is compiled",
    "error": "where that is wrong, an error is raised",
    "torch": "where that is wrong, results may differ from eager's",
}


def _size_asserted(event: events.SizeAsserted, details: bool) -> str:
    text = f"asserts {render(event.condition)}, or else raises {event.message!r}"
    return _at_line(event, text)


def _symbol_specialised(event: events.SymbolSpecialised, details: bool) -> str:
    source = render(event.source)
    text = f"{event.name} ({source}) is {event.value} from now on: {event.asker} asked"
    return _at_line(event, text)


def _at_line(event: events.SizeEvent, text: str, shown: bool = True) -> str:
    """With the user's line below. Nothing if it is a detail that isn't wanted."""
    if not shown:
        return ""
    head = f"{_which(event)}: {text}"
    return f"{head}\n{format_position(event.line, indent='    ')}" if event.line else head


CHANNELS: dict[str, Channel] = {
    "graph_breaks": Channel(
        "each graph break: where, why, what to do about it",
        {events.GraphBroke: _graph_broke},
    ),
    "guards": Channel(
        "the assumptions under which a compilation is valid",
        {events.GuardsBuilt: _guards_built},
    ),
    "recompiles": Channel(
        "each further compilation of a function, and which assumption did not hold",
        {events.Recompiled: _recompiled, events.LimitReached: _limit_reached},
    ),
    "graph_code": Channel(
        "each captured graph, as code",
        {events.GraphCaptured: _graph_captured},
    ),
    "residual": Channel(
        "the Python code that runs instead of the function",
        {events.ResidualMade: _residual_made},
    ),
    "stages": Channel(
        "what each stage of a compilation hands to the next one, as text: the capture, the "
        "functional graph, the schedule, the kernels, the program of the launcher",
        {events.StageFinished: _stage_finished},
    ),
    "bytecode": Channel(
        "the instructions of each function that is captured",
        {events.BytecodeRead: _bytecode_read},
    ),
    "compiles": Channel(
        "each compilation that finished, and how long it took",
        {events.CompileFinished: _compile_finished, events.BackendCalled: _backend_called},
    ),
    "uncompiled": Channel(
        "each method of a compiled module that runs the original module, which is not compiled",
        {events.RanOriginal: _ran_original},
    ),
    "fallbacks": Channel(
        "each function that runs eagerly, and each kernel that is left to PyTorch, because pliant "
        "failed on it",
        {events.FellBack: _fell_back, events.KernelFailed: _kernel_failed},
    ),
    "dynamic": Channel(
        "sizes and numbers that become symbolic, and why; what is guarded, assumed, specialised "
        "(+dynamic: each question and its answer; what stays constant)",
        {
            events.SymbolMade: _symbol_made,
            events.StayedConstant: _stayed_constant,
            events.SizeAsked: _size_asked,
            events.SizeGuarded: _size_guarded,
            events.SizeAssumed: _size_assumed,
            events.SizeAsserted: _size_asserted,
            events.SymbolSpecialised: _symbol_specialised,
        },
    ),
    "output_code": Channel(
        "the kernels that a graph became, and what PyTorch runs (+output_code: why it does)",
        {events.CodeGenerated: _code_generated, events.NotGenerated: _not_generated},
    ),
    "fusion": Channel(
        "the operators of each kernel, and why kernels that read from each other are not one",
        {events.CodeGenerated: _fused},
    ),
    "partition": Channel(
        "what the forward saves for the backward, with bytes and why; what is computed again",
        {events.GraphPartitioned: _graph_partitioned},
    ),
}


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is at the moment: programs and tests replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        layout = "[pliant %(channel)s] %(message)s"
        self.setFormatter(logging.Formatter(layout, defaults={"channel": "internal"}))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


class _Logs:
    """Which channels are on, and the listener that writes them."""

    def __init__(self) -> None:
        self._handler = _Handler()
        self._stop: Callable[[], None] | None = None

    def configure(self, levels: Mapping[str, int]) -> None:
        """Turn on exactly these channels."""
        root = logging.getLogger("pliant")
        if self._stop is not None:
            self._stop()
            self._stop = None
        root.removeHandler(self._handler)
        for name in CHANNELS:
            logging.getLogger(f"pliant.{name}").setLevel(levels.get(name, logging.NOTSET))
        # While pliant writes its own lines, the root logger must not write them again.
        root.propagate = not levels
        if levels:
            root.addHandler(self._handler)
            active = {name: CHANNELS[name] for name in levels}
            self._stop = events.subscribe(lambda event: self._write(active, event))

    def _write(self, active: Mapping[str, Channel], event: Event) -> None:
        for name, channel in active.items():
            formatter = channel.formatters.get(type(event))
            logger = logging.getLogger(f"pliant.{name}")
            if formatter is not None and logger.isEnabledFor(logging.INFO):
                details = logger.isEnabledFor(logging.DEBUG)
                text = formatter(event, details)
                if text:
                    logger.info("%s", text, extra={"channel": name, "event": event})


_logs = _Logs()


def set_logs(**channels: bool | int) -> None:
    _logs.configure(_levels(channels, "set_logs()"))


set_logs.__doc__ = """Choose what pliant writes to stderr, through the standard `logging` module.

::

    pliant.set_logs(graph_breaks=True, guards=logging.DEBUG)    # DEBUG: with all details
    pliant.set_logs()                                           # nothing, as at the start

Every call states the whole choice. The environment variable `PLIANT_LOGS="graph_breaks,+guards"`
does the same before the program starts: `+` asks for all details, `-` takes a channel out again,
`all` stands for every channel. The channels:

""" + "\n".join(f"- `{name}`: {channel.doc}" for name, channel in CHANNELS.items())


def from_text(text: str) -> dict[str, bool | int]:
    """The channels in a value of `PLIANT_LOGS`, in the form that `set_logs` takes."""
    values: dict[str, bool | int] = {"+": logging.DEBUG, "-": False}
    chosen: dict[str, bool | int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        sign, name = (item[0], item[1:].strip()) if item[0] in values else ("", item)
        chosen[name] = values.get(sign, True)
    return chosen


def _levels(channels: Mapping[str, bool | int], giver: str) -> dict[str, int]:
    """The level of each channel that is on. `all` is applied first, whatever its place."""
    names = {"all", *CHANNELS}
    levels: dict[str, int] = {}
    for name in sorted(channels, key=lambda name: name != "all"):
        if name not in names:
            raise UnknownLogError(
                f"{giver}: there is no log named {name!r}", remedy=choices(name, names)
            )
        value = channels[name]
        if not isinstance(value, int | None):
            raise InvalidOptionError(
                f"{giver}: {name!r} can't be {value!r}",
                remedy="give it True, False or a level of logging, such as logging.DEBUG",
            )
        for channel in CHANNELS if name == "all" else (name,):
            if value is False or value is None:
                levels.pop(channel, None)
            else:
                levels[channel] = logging.INFO if value is True else int(value)
    return levels


def limit_message(event: events.LimitReached) -> str:
    varied = f" What varied: {event.varied}." if event.varied else ""
    varied += f" {event.remedy}" if event.remedy else ""
    return (
        f"was compiled {event.limit} times, as often as config.{event.option} allows."
        f" Calls that fit none of these compilations run eagerly from now on.{varied}"
        " To see why each one was made: PLIANT_LOGS=recompiles."
    )


def _fallback_message(event: events.FellBack) -> str:
    if isinstance(event.error, BackendError):
        return f"runs eagerly, because its backend failed: {event.error.__cause__!r}."
    return (
        f"runs eagerly, because pliant failed on it: {event.reason}."
        " Its results are not affected. Please report this; PLIANT_LOGS=+fallbacks shows more."
    )


def _kernel_message(event: events.KernelFailed) -> str:
    return (
        f"has operators that PyTorch runs one by one: {KERNEL_FAILED} ({event.reason})."
        " Its results are not affected. Please report this; PLIANT_LOGS=+fallbacks shows more."
    )


class Warnings:
    """Turns the events that a user should know of into warnings, once for each function."""

    MESSAGES: Mapping[type[Event], Formatter] = {
        events.LimitReached: lambda event, _: limit_message(event),
        events.FellBack: lambda event, _: _fallback_message(event),
        events.KernelFailed: lambda event, _: _kernel_message(event),
    }

    def __init__(self) -> None:
        self._given: set[tuple[object, ...]] = set()

    def __call__(self, event: Event) -> None:
        key = (type(event), event.function, event.position)
        if key not in self._given:
            self._given.add(key)
            message = self.MESSAGES[type(event)](event, False)
            warn(f"pliant: {event.function} {message}", event.position)

    def reset(self) -> None:
        """Forget which warnings were given."""
        self._given.clear()


# Two views that are always there. Whoever imports pliant imports this module, so that an import is
# all that is needed for warnings to appear and for PLIANT_LOGS to work.
user_warnings = Warnings()
events.subscribe(user_warnings, Warnings.MESSAGES)
_logs.configure(_levels(from_text(os.environ.get("PLIANT_LOGS", "")), "PLIANT_LOGS"))


def _trace(event: Event) -> None:
    """For programs that use OpenTelemetry."""
    if "opentelemetry.trace" in sys.modules:
        telemetry.note(event)


# What spans are made of, by name: to listen to everything would have every event made.
TRACED = frozenset(
    (events.CompileStarted, events.CompileFinished, events.CompileAbandoned, events.Recompiled)
    + (events.GraphCaptured, events.GraphBroke, events.FellBack)
)
events.subscribe(_trace, TRACED)
if json_file := os.environ.get("PLIANT_LOGS_JSON"):
    events.subscribe(JsonLog(json_file))
