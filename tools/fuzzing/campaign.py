"""Many programs in worker processes, and what they found.

A worker that dies or does not answer is a finding itself. Findings are shrunk, one of each symptom,
and reported with the program that shows it. When the time is up, what runs is stopped: a finding
that is being shrunk is reported as it is by then.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.fuzzing.accepted import reason
from tools.fuzzing.deadline import Deadline, TimeUp
from tools.fuzzing.program import Program
from tools.fuzzing.shrink import shrink, statements_of

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS_PER_WORKER = 250  # then a fresh process: what leaks, leaks in a short-lived one
START_SECONDS = 120.0
POLL_SECONDS = 1.0
SAVE_SECONDS = 10.0
# The worst first.
SEVERITY = ["crash", "values", "error", "no error", "hang", "sharing of memory", "identity"]
SEVERITY += ["shape", "dtype", "type", "structure", "pliant error", "fallback", "failed kernel"]
# Their message says what they are; others have to be shrunk first.
SELF_EXPLAINING = {"fallback", "pliant error", "failed kernel", "error type", "error message"}
SELF_EXPLAINING |= {"error", "no error", "fuzzer"}


@dataclass
class Case:
    """A finding and the program that shows it."""

    program: Program
    finding: dict[str, Any]
    count: int = 1
    seeds: list[int] = field(default_factory=list)
    cut_short: bool = False  # the time was up before it was as small as it can be

    @property
    def symptom(self) -> str:
        kind, text = self.finding["kind"], self.finding["text"]
        if kind in SELF_EXPLAINING:
            return f"{kind} {self.finding['place']} {_without_names(text)[:160]}"
        names = set(re.findall(r"[\w.]+(?=\()|(?<= )[-+*/%&|^<>=@]+(?= )", _body(self.program)))
        return f"{kind} {' '.join(sorted(names))}"


AS_REPR = re.compile(r"""(\w+)\((['"])(.*)\2\)""", re.DOTALL)
NAMES = re.compile(r"""(?<!\w)(?:'[^']*'|"[^"]*")(?!\w)|\b[vs]?\d+(\.\d+)?\b""")


def _without_names(text: str) -> str:
    """A message without what it quotes, and without numbers."""
    error = AS_REPR.fullmatch(text)
    return NAMES.sub("#", f"{error[1]}: {error[3]}" if error else text)


def _body(program: Program) -> str:
    return "\n".join(statements_of(program))


class Worker:
    """A process that checks programs, until the deadline."""

    def __init__(self, seconds: float, deadline: Deadline | None = None) -> None:
        self.seconds = seconds
        self.deadline = deadline or Deadline()
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.checked = 0

    def start(self) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        process = subprocess.Popen(
            [sys.executable, "-m", "tools.fuzzing.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        self.process, self.checked, self.lines = process, 0, queue.Queue()
        threading.Thread(target=_read, args=(process, self.lines), daemon=True).start()
        return process

    def stop(self) -> int | None:
        """Its exit status, negative for a signal."""
        process, self.process = self.process, None
        if process is None:
            return None
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            return process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.stop()

    def check(self, seconds: float | None = None, **request: Any) -> tuple[Program, Any]:
        """The program, and what was found about it; `TimeUp` at the deadline."""
        if self.checked >= PROGRAMS_PER_WORKER:
            self.stop()
        process = self.process or self._ready()
        self.checked += 1
        program = Program.from_json(request["program"]) if "program" in request else None
        stage = "generate"
        limit = _Limit(process.pid, seconds or self.seconds, self.deadline)
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            while True:
                line = limit.get(self.lines)
                if line is None:
                    return program or _nothing(request), self._died(stage)
                message = json.loads(line)
                stage = message.get("stage", stage)
                if "program" in message:
                    program = Program.from_json(message["program"])
                if "finding" in message:
                    return program or _nothing(request), message["finding"]
        except TimeUp:
            self.kill()
            raise
        except queue.Empty:
            self.kill()
            return program or _nothing(request), _in_pliant(stage, "hang", "does not end")
        except BrokenPipeError:
            return program or _nothing(request), self._died(stage)

    def _ready(self) -> subprocess.Popen[str]:
        process = self.start()
        try:
            line = _Limit(process.pid, START_SECONDS, self.deadline).get(self.lines)
        except (TimeUp, queue.Empty):
            self.kill()
            raise
        if line is None:
            raise RuntimeError(f"a worker does not start: it ended with status {self.stop()}")
        return process

    def _died(self, stage: str) -> Any:
        return _in_pliant(stage, "crash", f"the process ended with status {self.stop()}")


class _Limit:
    """So many seconds of processor time for a process, or six times as many on the clock: other
    processes may need the machine, too."""

    def __init__(self, pid: int, seconds: float, deadline: Deadline) -> None:
        self.pid, self.seconds, self.deadline = pid, seconds, deadline
        self.begin, self.used = time.monotonic(), self._processor_time()

    def get(self, lines: queue.Queue[str | None]) -> str | None:
        """The next line, or `queue.Empty` at the limit, or `TimeUp` at the deadline."""
        while True:
            left = self.deadline.left()
            if not left:
                raise TimeUp
            try:
                return lines.get(timeout=min(POLL_SECONDS, self.seconds, left))
            except queue.Empty:
                if time.monotonic() - self.begin > 6 * self.seconds:
                    raise
                if self._processor_time() - self.used > self.seconds:
                    raise

    def _processor_time(self) -> float:
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def _nothing(request: dict[str, Any]) -> Program:
    return Program(request.get("seed", 0), ["return None"], [[]])


def _in_pliant(stage: str, kind: str, text: str) -> Any:
    """A finding, unless eager PyTorch itself does it."""
    if stage != "pliant":
        return None
    return {"kind": kind, "text": text, "call": 0, "place": ""}


@dataclass
class Campaign:
    """What was found so far; several threads with a worker each add to it."""

    seconds: float = 60.0
    shrink_seconds: float = 60.0
    backend: str | None = None  # of all programs; each has its own if there is none
    programs: int = 0
    calls: int = 0
    cases: dict[str, Case] = field(default_factory=dict)
    accepted: Counter[str] = field(default_factory=Counter)
    shrunk: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    tell: Callable[[str], None] = print

    deadline: Deadline = field(default_factory=Deadline)
    report: Path | None = None
    saved: float = -math.inf

    def run(self, seeds: Iterable[int], jobs: int, minutes: float | None) -> None:
        """Ends at the time, also if programs run by then; Ctrl-C ends it early."""
        self.deadline = Deadline(None if minutes is None else 60 * minutes)
        pending = iter(seeds)
        pool = ThreadPoolExecutor(jobs)
        try:
            self._save()  # who sees the report may end the campaign: within the `try`
            workers = [pool.submit(self._work, pending) for _ in range(jobs)]
            for worker in as_completed(workers):  # a mistake in any of them ends it
                worker.result()
        except KeyboardInterrupt:
            self.tell("interrupted")
        finally:
            self.deadline.end_now()
            pool.shutdown()
        self._save()

    def _work(self, pending: Any) -> None:
        worker = Worker(self.seconds, self.deadline)
        try:
            while self.deadline.left():
                with self.lock:
                    seed = next(pending, None)
                if seed is None:
                    break
                self._check(worker, seed)
            worker.stop()
        except TimeUp:
            pass
        finally:
            worker.kill()

    def _check(self, worker: Worker, seed: int) -> None:
        program, finding = worker.check(seed=seed, backend=self.backend)
        with self.lock:
            self.programs += 1
            self.calls += len(program.calls)
        if finding is not None:
            self._found(worker, Case(program, finding, seeds=[seed]))
        with self.lock:
            if finding is not None or time.monotonic() - self.saved > SAVE_SECONDS:
                self._save()

    def _save(self) -> None:
        """The report so far: a campaign that is killed leaves it."""
        self.saved = time.monotonic()
        if self.report is not None:
            partial = self.report.with_name(self.report.name + ".partial")
            partial.write_text(full_report(self))
            partial.replace(self.report)

    def _found(self, worker: Worker, case: Case) -> None:
        if self._count_again(case):
            return
        kind = case.finding["kind"]
        with self.lock:
            unique = sum(other.finding["kind"] == kind for other in self.cases.values())
            often = self.shrunk[kind] >= 20 + 4 * unique
            self.shrunk[kind] += 1
        if not often:
            case = self._shrink(worker, case)
        self._add(case, often)

    def _count_again(self, case: Case) -> bool:
        """Whether its message alone says that it is known."""
        if case.finding["kind"] not in SELF_EXPLAINING:
            return False
        with self.lock:
            known = self.cases.get(case.symptom)
            if known is not None:
                known.count += 1
                known.seeds += case.seeds
        return known is not None

    def _add(self, case: Case, often: bool) -> None:
        why = reason(case.program, case.finding)
        with self.lock:
            if why is not None:
                self.accepted[why] += 1
                return
            symptom = f"{case.finding['kind']}, not shrunk" if often else case.symptom
            known = self.cases.setdefault(symptom, case)
            if known is not case:
                known.count += 1
                known.seeds += case.seeds
            else:
                self.tell(f"[{self.programs} programs] {summary(case)}")

    def _shrink(self, worker: Worker, case: Case) -> Case:
        fatal = case.finding["kind"] in ("crash", "hang")
        last = case.finding

        def same(candidate: Program) -> bool:
            nonlocal last
            limit = 20.0 if fatal else None
            _, finding = worker.check(limit, program=candidate.to_json())
            if finding is None or finding["kind"] != case.finding["kind"]:
                return False
            if finding["place"] != case.finding["place"]:
                return False
            last = finding
            return True

        seconds = self.shrink_seconds * (4 if fatal else 1)
        program = shrink(case.program, same, seconds)
        return Case(program, last, case.count, case.seeds, cut_short=not self.deadline.left())

    def ordered(self) -> list[Case]:
        order = {kind: index for index, kind in enumerate(SEVERITY)}
        return sorted(
            self.cases.values(), key=lambda c: (order.get(c.finding["kind"], 99), -c.count)
        )


# --------------------------------------------------------------------------------------------------
# For people


def summary(case: Case) -> str:
    """A finding in a few lines."""
    program, finding = case.program, case.finding
    seeds = ", ".join(map(str, case.seeds[:3]))
    how = f"backend={program.backend}, dynamic={program.dynamic}, grad={program.grad}"
    place = f" at {finding['place']}" if finding["place"] else ""
    head = f"{finding['kind']}{place}: {case.count}x, seeds {seeds}; {how}"
    head += "; shrinking was cut short" if case.cut_short else ""
    calls = [program.call_source(index) for index in range(len(program.calls))]
    return "\n".join([head, _indented(finding["text"][:700]), program.function_source(), *calls])


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def report(campaign: Campaign, most: int | None = None) -> str:
    """All findings, or as many as fit into `most` characters."""
    cases = campaign.ordered()
    text = f"{campaign.programs} programs, {campaign.calls} calls, {len(cases)} findings"
    kinds = Counter(case.finding["kind"] for case in cases)
    text += "".join(f"; {count} {kind}" for kind, count in kinds.items())
    text += "".join(f"\naccepted {count}x: {why}" for why, count in campaign.accepted.items())
    share = None if most is None or not cases else max(300, (most - len(text)) // len(cases))
    for index, case in enumerate(cases):
        entry = f"\n\n[{index + 1}] {summary(case)}"
        if share is not None and len(entry) > 3 * share:
            entry = entry[: 3 * share] + " ..."
        if most is not None and len(text) + len(entry) > most - 60:
            text += f"\n\nand {len(cases) - index} more: see the report"
            break
        text += entry
    return text


def full_report(campaign: Campaign) -> str:
    """Everything, with scripts that run by themselves."""
    parts = [report(campaign)]
    for index, case in enumerate(campaign.ordered()):
        seeds = f"# seeds: {case.seeds[:50]}"
        parts.append(
            f"{'#' * 80}\n# [{index + 1}] {case.symptom}\n{seeds}\n{case.program.script()}"
        )
    return "\n\n".join(parts) + "\n"
