"""Expressions as Python functions, for numbers that compiled code computes at each call.

The one idea: one statement per part, in the order in which `evaluate` goes through them. So a part
that is used twice is computed once, and an expression may be as deep as it likes. Functions of
expressions that differ in the names of their symbols only are one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pliant.sym.expr import STRICT, BaseExpr, cached, parts_of
from pliant.sym.floats import FloatExpr

_INFIX: Final = {"fadd": "+", "fsub": "-", "fmul": "*", "truediv": "/"}
_NAMES: Final = {op: "run_" + op.replace(".", "_") for op in STRICT}
# Without builtins: the text calls nothing but what is listed here.
_NAMESPACE: Final = {"__builtins__": {}, **{name: STRICT[op] for op, name in _NAMES.items()}}


def python_function(node: BaseExpr, symbols: Sequence[Any]) -> Callable[..., Any]:
    """A function of the values of the symbols that gives what `evaluate` gives, or raises what it
    raises. Raises NotImplementedError for expressions that do not compute all of their parts."""
    names = {s: f"a{i}" for i, s in enumerate(symbols)}
    lines: list[str] = []
    for part in _in_order(node, names):
        text = _statement(part, names)
        names[part] = f"v{len(lines)}"
        lines.append(f"    {names[part]} = {text}\n")
    arguments = ", ".join([names[s] for s in symbols])
    return _compiled(f"def compute({arguments}):\n{''.join(lines)}    return {names[node]}\n")


@cached(256)
def _compiled(text: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = dict(_NAMESPACE)
    exec(compile(text, "<pliant numbers>", "exec"), namespace)
    function: Callable[..., Any] = namespace["compute"]
    return function


def _in_order(node: Any, names: dict[Any, str]) -> list[Any]:
    """The parts, each behind what it is made of."""
    order: list[Any] = []
    seen = set(names)
    waiting: list[tuple[Any, bool]] = [(node, False)]
    while waiting:
        part, done = waiting.pop()
        if done:
            order.append(part)
        elif part not in seen:
            seen.add(part)
            waiting.append((part, True))
            waiting += [(inner, False) for inner in reversed([*parts_of(part)])]
    return order


def _statement(part: Any, names: dict[Any, str]) -> str:
    if part.op in _INFIX and any(isinstance(arg, FloatExpr) for arg in part.args):
        a, b = [names[arg] for arg in part.args]
        return f"{a} {_INFIX[part.op]} {b}"
    if part.op in STRICT:
        return f"{_NAMES[part.op]}({', '.join([names[arg] for arg in part.args])})"
    special = _SPECIAL.get(part.op)
    if special is None:
        raise NotImplementedError(f"{part.op} as a statement")
    return special(part, names)


def _sum(part: Any, names: dict[Any, str]) -> str:
    terms = [f"{c} * {names[product]}" for product, c in part.terms]
    return " + ".join([*terms, str(part.const)])


def _product(part: Any, names: dict[Any, str]) -> str:
    return " * ".join([f"{names[factor]} ** {e}" for factor, e in part.factors])


def _float(part: Any, names: dict[Any, str]) -> str:
    text = repr(part.value)
    # Python has no literals for them.
    return f"run_to_float({text!r})" if text.lstrip("-") in ("inf", "nan") else text


_SPECIAL: Final[dict[str, Callable[[Any, dict[Any, str]], str]]] = {
    "int": lambda part, names: repr(part.const),
    "float": _float,
    "add": _sum,
    "mul": _product,
}
