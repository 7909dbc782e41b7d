"""One name for one thing: no two public classes of pliant share a name."""

import ast
from collections import defaultdict
from pathlib import Path

import pliant

ROOT = Path(pliant.__file__).parent


def public_classes():
    """The modules that define a public class of each name."""
    modules = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(path.relative_to(ROOT).as_posix())
    return modules


def test_no_two_public_classes_share_a_name():
    classes = public_classes()
    assert "Break" in classes and "ShapeEnv" in classes  # something was found at all
    assert {name: paths for name, paths in classes.items() if len(paths) > 1} == {}
