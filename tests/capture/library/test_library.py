"""The list of modules that register handlers is complete, and each stands in it once."""

import ast
import inspect
import types
from pathlib import Path

from pliant.capture import library, native

FOLDER = Path(library.__file__).parent
TABLES = {name for name, value in vars(native).items() if isinstance(value, dict | set)}
DECORATORS = {"function", "method", "pure"}


def names_of_modules() -> set[str]:
    paths = [path for path in FOLDER.rglob("*.py") if path.name != "__init__.py"]
    return {".".join(path.relative_to(FOLDER).with_suffix("").parts) for path in paths}


def registers(source: str) -> bool:
    """Whether a module calls a registering function, or writes to a table, when it is imported."""
    for statement in ast.parse(source).body:
        decorators = getattr(statement, "decorator_list", [])
        nodes = decorators if isinstance(statement, ast.FunctionDef) else [statement]
        for node in (inner for outer in nodes for inner in ast.walk(outer)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in DECORATORS:
                return True
            stored = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
            if stored and ast.unparse(node.value) in TABLES:
                return True
    return False


def test_every_module_that_registers_is_listed():
    registering = {
        name
        for name in names_of_modules()
        if registers((FOLDER / name.replace(".", "/")).with_suffix(".py").read_text())
    }
    assert registering - set(library.MODULES) == set()


def test_every_listed_module_exists_and_is_listed_once():
    assert len(set(library.MODULES)) == len(library.MODULES)
    assert set(library.MODULES) - names_of_modules() == set()


def test_registration_is_seen_in_source():
    assert registers("@function(len)\ndef f(trace): ...")
    assert registers("for cls in (list, dict):\n    METHODS[cls, 'x'] = f")
    assert not registers("def f(trace):\n    return METHODS[list, 'x']")


def positional(function: object) -> list[inspect.Parameter]:
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [p for p in inspect.signature(function).parameters.values() if p.kind in kinds]


def takes_any(function: object) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)


def test_handlers_take_the_parameters_of_pytorchs_functions_in_their_places():
    different = [
        target.__qualname__
        for target, handler in native.FUNCTIONS.items()
        if isinstance(target, types.FunctionType) and target.__module__.startswith("torch")
        if not takes_any(handler) and len(positional(handler)) - 1 != len(positional(target))
    ]
    assert different == []
