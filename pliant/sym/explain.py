"""Explanations of a `ShapeEnv` for users: why an input is what it is, and what to do about a
question that can't be decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pliant.base.errors import DataDependentError
from pliant.sym.cond import not_
from pliant.sym.expr import BaseExpr, Expr
from pliant.sym.printing import to_python
from pliant.sym.records import Provenance, Question, Specialised, SymbolInfo
from pliant.sym.rules import simplify
from pliant.sym.symbols import SymbolTable


def provenance(env: SymbolTable, specialised: Mapping[Expr, Specialised]) -> Iterator[Provenance]:
    """For every input and every number computed from data: why it is what it is."""
    yield from env.statics
    seen = set()
    for binding in env.bindings:
        seen.add(binding.expr)
        yield _provenance(env, env.symbols[binding.expr], binding.source, specialised)
    for s, info in env.symbols.items():
        if s not in seen:
            yield _provenance(env, info, info.source, specialised)


def _provenance(
    env: SymbolTable, info: SymbolInfo, source: object, specialised: Mapping[Any, Specialised]
) -> Provenance:
    done = specialised.get(info.symbol)
    if done is not None:
        why = f"{done.asker} asked, and the answer holds for {done.value} only"
        return Provenance(source, "specialised", done.value, why, done.asker, done.position)
    state: Any = "dynamic" if info.hint is not None else "unbacked"
    now = simplify(info.symbol, env.facts)
    return Provenance(source, state, now, info.why, "", info.position)


def data_dependent(env: SymbolTable, question: Question, asks: str = "") -> DataDependentError:
    """The error for a question that can't be decided; to be raised, or to become a graph break."""
    cond = question.condition
    remedy = (
        "say what it is, before this line, with pliant.check(... == ...), or keep it in a tensor"
        if asks
        else f"say which it is, before this line: pliant.check({named(env, cond)}), or "
        f"pliant.check({named(env, not_(cond))})"
    )
    asks = asks or f"asks whether {named(env, cond)}"
    free = sorted((s for s in cond.symbols if s not in env.hints), key=lambda s: s.order)
    origins = [env.symbols[s] for s in free if s in env.symbols]
    ranges = [f"{i.name} = {i.source} (in {env.facts.range(i.symbol)})" for i in origins]
    in_tensors = all(isinstance(info.source, str) for info in origins)
    when = "depends on the contents of a tensor" if in_tensors else "is known when the code runs"
    return DataDependentError(
        f"{question.asker} {asks}, which {when}",
        why="while the function is captured, this is not known: " + ", ".join(ranges),
        remedy=remedy,
        position=question.position or env.where(),
        code="data-dependent",
    )


def named(env: SymbolTable, node: BaseExpr) -> str:
    """As text, with the user's names for symbols that have such a name."""
    names = {s: str(i.source) for s, i in env.symbols.items() if _is_code(i)}
    return to_python(node, names)


def _is_code(info: SymbolInfo) -> bool:
    """Whether the source reads as an expression: a name, or a call as the user wrote it."""
    return str(info.source).isidentifier() or (
        info.origin == "computed" and str(info.source).endswith(")")
    )
