"""Families of operators are imported by the names that are looked up."""

import ast
import subprocess
import sys
from pathlib import Path

from pliant import ops
from pliant.ops.table import FAMILIES

REGISTERED = """
import sys
from pliant.base import operators

def record(register):
    def recording(names, *more, **fields):
        frame = sys._getframe(1)
        while frame.f_globals["__name__"] in ("pliant.ops.lowering", "pliant.base.operators"):
            frame = frame.f_back
        names = [names, *more] if isinstance(names, str) else list(names)
        for name in names:
            print(frame.f_globals["__name__"], getattr(name, "__name__", name))
        register(*([names] if register is functions else names), **fields)
    return recording

functions = operators.register_functions
operators.register = record(operators.register)
operators.register_functions = record(functions)
operators.load()
"""
FIRST_RESULT = """
import sys, torch, pliant
compiled = pliant.compile(lambda x: x + 1, options={"raise_on_fallback": True})
assert compiled(torch.ones(3)).sum() == 6
print(*[name for name in sys.modules if name.startswith("pliant.ops.")])
"""


def output_of(program):
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def families_of(name):
    """The families that are imported when the name is looked up."""
    stems = {family: words.split() for family, words in FAMILIES.items()}
    return {f for f, words in stems.items() if not words or any(word in name for word in words)}


def test_every_name_has_a_stem_of_its_family():
    registered = [line.split() for line in output_of(REGISTERED).splitlines()]
    assert len(registered) > 900
    for module, name in registered:
        package, _, family = module.rpartition(".")
        assert package != "pliant.ops" or family in families_of(name), (family, name)


def test_every_module_that_registers_is_a_family():
    for path in Path(ops.__path__[0]).glob("*.py"):
        tree = ast.parse(path.read_text())
        statements = [s for s in tree.body if isinstance(s, ast.Expr | ast.FunctionDef)]
        calls = [call for s in statements for call in ast.walk(s) if isinstance(call, ast.Call)]
        called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        if called & {"register", "register_functions", "lowers"} and path.stem != "lowering":
            assert path.stem in FAMILIES


def test_a_program_gets_the_families_it_uses():
    loaded = {name.rpartition(".")[2] for name in output_of(FIRST_RESULT).split()}
    assert {"pointwise", "views"} <= loaded
    assert not loaded & {family for family, stems in FAMILIES.items() if stems}
