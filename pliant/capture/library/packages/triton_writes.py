"""Which parameters of a Triton kernel of the program are only read.

The one idea: a pointer can be followed by name. It may be offset, kept in a variable, and be given
to `tl.load`; whatever else is done with it counts as a write, and so does what can't be parsed.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final

_READS: Final = frozenset({"load"})
_MAKES: Final = frozenset({"make_block_ptr", "advance", "broadcast_to", "multiple_of"})
"""Functions of Triton's language, `tl`, that read through a pointer, or make one of it."""


def only_read(function: Callable[..., Any]) -> frozenset[str]:
    """The names of the parameters through which the kernel surely writes nothing."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return frozenset()
    kernel, language = tree.body[0], getattr(function, "__globals__", {}).get("tl")
    if not isinstance(kernel, ast.FunctionDef) or not _is_plain(kernel):
        return frozenset()
    if getattr(language, "__name__", None) != "triton.language":
        return frozenset()
    names = [arg.arg for arg in (*kernel.args.posonlyargs, *kernel.args.args)]
    names += [arg.arg for arg in kernel.args.kwonlyargs]
    return frozenset([name for name in names if not _writes(kernel, name)])


def _is_plain(kernel: ast.FunctionDef) -> bool:
    """Whether names mean what they say: no scopes inside, and `tl` is Triton's language."""
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Global)
    others = (ast.NamedExpr, ast.Nonlocal, ast.comprehension, ast.With, ast.Import, ast.ImportFrom)
    inside = [node for statement in kernel.body for node in ast.walk(statement)]
    stored = {node.id for node in inside if isinstance(node, ast.Name) and _is_stored(node)}
    return not any(isinstance(node, inner + others) for node in inside) and "tl" not in stored


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _writes(kernel: ast.FunctionDef, parameter: str) -> bool:
    pointers = {parameter}
    while True:  # until no more names turn out to hold the pointer
        known = len(pointers)
        for statement in kernel.body:
            for node in ast.walk(statement):
                pointers.update(_assigned(node, pointers))
        if len(pointers) == known:
            break
    return any(
        isinstance(node, ast.Return | ast.Attribute | ast.Call) and _escapes(node, pointers)
        for statement in kernel.body
        for node in ast.walk(statement)
    )


def _assigned(node: ast.AST, pointers: set[str]) -> Iterator[str]:
    """Names that hold the pointer behind this statement."""
    if isinstance(node, ast.Assign) and _holds(node.value, pointers):
        targets: list[ast.expr] = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign) and node.value is not None:
        targets = [node.target] if _holds(node.value, pointers) else []
    elif isinstance(node, ast.For) and _holds(node.iter, pointers):
        targets = [node.target]
    else:
        return
    for target in targets:
        yield from [name.id for name in ast.walk(target) if isinstance(name, ast.Name)]


def _holds(expr: ast.expr, pointers: set[str]) -> bool:
    """Whether the value may be the pointer, or be made of it: what is loaded isn't."""
    if isinstance(expr, ast.Call) and _language_function(expr) in _READS:
        return False
    if isinstance(expr, ast.Name):
        return expr.id in pointers
    return any(isinstance(c, ast.expr) and _holds(c, pointers) for c in ast.iter_child_nodes(expr))


def _escapes(node: ast.Return | ast.Attribute | ast.Call, pointers: set[str]) -> bool:
    """Whether something is done with the pointer that is not known to leave memory alone."""
    if isinstance(node, ast.Return | ast.Attribute):
        return node.value is not None and _holds(node.value, pointers)
    given = [*node.args, *[keyword.value for keyword in node.keywords]]
    if _language_function(node) in _READS | _MAKES:
        given = given[1:] if _language_function(node) in _READS else []
    return any(_holds(one, pointers) for one in given)


def _language_function(call: ast.Call) -> str | None:
    """The name of the function of Triton's language that is called."""
    of = call.func
    if isinstance(of, ast.Attribute) and isinstance(of.value, ast.Name) and of.value.id == "tl":
        return of.attr
    return None
