"""The algebra of sizes on its own: a fixed corpus of shape expressions, in pliant and in sympy."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from benchmarks.timing import machine, table
from pliant.sym import expr
from pliant.sym.cond import eq, ge, le, lt
from pliant.sym.decide import decide
from pliant.sym.facts import Facts
from pliant.sym.rules import simplify


@dataclass(frozen=True, slots=True)
class Algebra:
    """The operations that the corpus uses."""

    symbol: Callable[[str], Any]
    div: Callable[[Any, Any], Any]
    mod: Callable[[Any, Any], Any]
    smaller: Callable[[Any, Any], Any]
    larger: Callable[[Any, Any], Any]
    normal: Callable[[Any], Any]


OURS = Algebra(expr.symbol, expr.floordiv, expr.mod, expr.minimum, expr.maximum, lambda e: e)
SYMPY = Algebra(
    lambda name: sympy.Symbol(name, integer=True, nonnegative=True),
    lambda a, b: sympy.floor(sympy.sympify(a) / b),
    sympy.Mod,
    sympy.Min,
    sympy.Max,
    sympy.expand,
)


CONVOLUTIONS = ((7, 2, 3), (3, 2, 1), (3, 1, 1), (3, 2, 1), (3, 2, 1))  # kernel, stride, padding


def corpus(m: Algebra, s: Any, t: Any, u: Any) -> list[Any]:
    """What shape functions compute from sizes s, t, u."""
    out = [s]
    for kernel, stride, pad in CONVOLUTIONS:
        out.append(m.div(out[-1] + 2 * pad - kernel, stride) + 1)
    out += [s * t * u, s * t * 12 * 64, (s + t) * u, (s + 1) * (t + 1) * (u + 1)]  # numel
    out += [m.div(s * t * 768, 64), m.div(s * t * u * 8, 8), m.div(s * 12 * t, 12)]  # view(-1)
    out += [s + s + t, s * t + s * u - s * (t + u), 3 * (s + t) - 2 * s]  # cat, slices
    out += [m.div(s + 63, 64) * 64, m.div(s + 63, 64) * 64 - s, m.mod(s + 64 * t, 64)]  # padding
    out += [m.smaller(s, t), m.larger(s, t) - m.smaller(s, t), m.smaller(s, m.larger(t, u))]
    out += [m.div(m.div(s, 2), 2), m.mod(m.mod(s, 64), 16), m.div(s, 4) * 4 + m.mod(s, 4)]
    out += [s * (t * u + u) + u, t * u * 4 * (s - 1) + u * (t - 1) + (u - 1) + 1]  # strides
    return [m.normal(each) for each in out]


QUESTIONS: list[Callable[[Any, Any, Any], tuple[str, Any, Any]]] = [
    lambda s, t, u: ("eq", s * t * u, u * t * s),
    lambda s, t, u: ("eq", s, 1),
    lambda s, t, u: ("eq", s, t),
    lambda s, t, u: ("eq", 2 * s, 2 * t + 1),
    lambda s, t, u: ("le", 0, s * t),
    lambda s, t, u: ("le", s, s + t),
    lambda s, t, u: ("lt", s, s + t + 1),
    lambda s, t, u: ("lt", s * 64, s * 64 + 1),
    lambda s, t, u: ("le", s * t, s * t * u),
    lambda s, t, u: ("eq", (s + 1) * t, s * t + t),
    lambda s, t, u: ("lt", s + t, s),
    lambda s, t, u: ("eq", s * 4 * t, 8),
]
OUR_COMPARISONS: dict[str, Callable[..., Any]] = {"eq": eq, "le": le, "lt": lt}
THEIR_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": lambda a, b: sympy.Eq(sympy.expand(a - b), 0),
    "le": lambda a, b: sympy.Le(sympy.expand(a - b), 0),
    "lt": lambda a, b: sympy.Lt(sympy.expand(a - b), 0),
}


def our_replace(exprs: list[Any], s: Any, t: Any) -> list[Any]:
    known = Facts()
    known.learn(eq(t, 2 * s + 1))
    return [simplify(each, known) for each in exprs]


def their_replace(exprs: list[Any], s: Any, t: Any) -> list[Any]:
    return [sympy.expand(each.subs(t, 2 * s + 1)) for each in exprs]


def our_answers(s: Any, t: Any, u: Any) -> list[bool | None]:
    known = Facts()
    for size in (s, t, u):
        known.learn(ge(size, 0))
    asked = [question(s, t, u) for question in QUESTIONS]
    return [decide(known, OUR_COMPARISONS[op](a, b)) for op, a, b in asked]


def their_answers(s: Any, t: Any, u: Any) -> list[bool | None]:
    asked = [question(s, t, u) for question in QUESTIONS]
    found = [THEIR_COMPARISONS[op](sympy.sympify(a), b) for op, a, b in asked]
    return [bool(each) if each in (sympy.true, sympy.false) else None for each in found]


def measure(system: str, number: int) -> list[float]:
    """Seconds for building, replacing and deciding. The symbols are new ones each time, because
    both systems remember what they have computed."""
    m = OURS if system == "pliant" else SYMPY
    replace, answers = (our_replace, our_answers) if m is OURS else (their_replace, their_answers)
    s, t, u = [m.symbol(f"{name}{number}") for name in ("s", "t", "u")]
    times = [time.perf_counter()]
    exprs = corpus(m, s, t, u)
    times.append(time.perf_counter())
    replace(exprs, s, t)
    times.append(time.perf_counter())
    answers(s, t, u)
    times.append(time.perf_counter())
    return [after - before for before, after in itertools.pairwise(times)]


def main(quick: bool = False) -> None:
    taken: dict[str, list[list[float]]] = {"sympy": [], "pliant": []}
    gc.collect()
    gc.disable()  # as pliant does while it captures
    try:
        for number in range(10 if quick else 60):
            for system, samples in taken.items():
                samples.append(measure(system, number))
    finally:
        gc.enable()
    theirs, ours = [[statistics.median(step) for step in zip(*rows)] for rows in taken.values()]
    size = len(corpus(OURS, *map(OURS.symbol, "stu")))
    rows = []
    steps = (("build", size), ("replace a symbol", size), ("decide", len(QUESTIONS)))
    for (name, count), a, b in zip(steps, theirs, ours, strict=True):
        each = [f"{seconds / count * 1e6:.1f}" for seconds in (a, b)]
        rows.append([name, str(count), *each, f"{a / b:.0f}x"])
    totals = [sum(theirs), sum(ours)]
    in_all = [f"{seconds * 1e6:.0f}" for seconds in totals]
    rows.append(["all of them, in total", "", *in_all, f"{totals[0] / totals[1]:.0f}x"])
    head = ["step", "expressions", "sympy", "pliant", "ratio"]
    table(f"Microseconds per shape expression ({machine()})", head, rows)
    found = their_answers(*map(SYMPY.symbol, "stu")), our_answers(*map(OURS.symbol, "stu"))
    counts = [sum(answer is not None for answer in answers) for answers in found]
    print(f"\nOf {len(QUESTIONS)} questions sympy decides {counts[0]}, pliant {counts[1]}.")


if __name__ == "__main__":
    main()
