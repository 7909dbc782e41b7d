"""One name for one thing: no two public classes of pliant share a name."""

import ast
from collections import defaultdict
from pathlib import Path

import pliant

ROOT = Path(pliant.__file__).parent
# Names that two classes still have. This list may only shrink.
SHARED = {"Alias", "Constant"}


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
    shared = {name: paths for name, paths in classes.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in SHARED} == {}
    assert SHARED - shared.keys() == set(), "no longer shared: delete the entry"
