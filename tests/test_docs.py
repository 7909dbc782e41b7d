"""The documentation is true: its programs print what it says, its tables are those of the code."""

import ast
import importlib
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import pytest

import pliant
from pliant.backends import compile_graph, registry
from pliant.base.logs import CHANNELS
from pliant.guards.guard import GuardKind

pytestmark = pytest.mark.own_default
ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(page.relative_to(ROOT)) for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
)
EVERYWHERE = sorted({*PAGES, *(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*/*.md"))})


def text_of(page):
    return (ROOT / page).read_text()


@pytest.fixture(scope="module")
def make_docs():
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "tools" / "make_docs.py")
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.mark.parametrize("page", PAGES)
def test_page_is_up_to_date(make_docs, page):
    """If this fails: `python tools/make_docs.py`, and read what has changed."""
    assert make_docs.renewed(text_of(page)) == text_of(page)


def test_a_page_that_is_not_up_to_date_is_noticed(make_docs):
    stale = "```python\nprint(1)\n```\n\nprints\n\n```text\n2\n```\n"
    assert make_docs.renewed(stale) == stale.replace("2", "1")
    stale = "<!-- made: options -->\n| old |\n<!-- end -->\n"
    assert "recompile_limit" in make_docs.renewed(stale)
    assert "old" not in make_docs.renewed(stale)


def test_a_fragment_is_not_run(make_docs):
    page = "```python no-run\nraise SystemExit\n```\n"
    assert make_docs.renewed(page) == page


def test_the_picture_is_up_to_date(make_docs):
    """If this fails: `python tools/make_docs.py`, and look at it."""
    assert make_docs.make_architecture.picture() == text_of("docs/architecture.svg")


def test_the_picture_has_every_stage_and_package(make_docs):
    picture = make_docs.make_architecture.picture()
    packages = {path.parent.name for path in ROOT.glob("pliant/*/__init__.py")}
    assert not [name for name in packages if f">{name}</text>" not in picture]
    stages = [step[0] for step in make_docs.make_architecture.STEPS]
    assert not [name for name in stages if f">{name}</text>" not in picture]


def test_the_picture_has_the_stages_that_the_code_promises(make_docs):
    promise = compile_graph.__doc__.partition("Captured -> ")[2].partition(". ")[0]
    stages = [step[0] for step in make_docs.make_architecture.STEPS]
    assert promise.split(" -> ") == [*stages[1:-1], "Launcher"]


def imported(file):
    """The parts of pliant that a module imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "pliant":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pliant."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if "pliant." in alias.name)


def test_a_package_stands_above_what_it_imports(make_docs):
    """Else the picture lies, because no contract in .importlinter speaks of the two."""
    rows = {package.name: package.row for package in make_docs.make_architecture.packages()}
    for file in (ROOT / "pliant").rglob("*.py"):
        own = file.relative_to(ROOT / "pliant").with_suffix("").parts[0]
        if own in rows:
            above = [name for name in imported(file) if rows.get(name, -1) >= rows[own]]
            assert set(above) <= {own}, file


def test_a_stage_without_a_step_is_noticed(make_docs, monkeypatch):
    module = make_docs.make_architecture
    read = module.read
    more = '\nclass Simplified:\n    """Nobody makes it."""\n'
    monkeypatch.setattr(module, "read", lambda p: read(p) + (more if "stages" in p else ""))
    with pytest.raises(LookupError, match="Simplified"):
        module.picture()
    monkeypatch.setattr(module, "read", read)
    wrong = ("Captured", "stages.py", "capture/interposed.py", "capturable", "no stage")
    monkeypatch.setattr(module, "STEPS", (wrong, *module.STEPS))
    with pytest.raises(LookupError, match="bool"):
        module.picture()


def test_output_that_nobody_shows_is_noticed(make_docs):
    with pytest.raises(ValueError, match="nobody shows"):
        make_docs.renewed("```python\nprint(1)\n```\n")


def test_a_program_of_a_page_has_the_default_options(make_docs):
    assert pliant.config.raise_on_fallback  # as in all tests
    program = "import pliant\nprint(pliant.config.raise_on_fallback)\n"
    assert make_docs.run(program) == "False\n"


@pytest.mark.parametrize("page", EVERYWHERE)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]*)(?:#[\w-]*)?\)", text_of(page)):
        if target and "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize("page", EVERYWHERE)
def test_links_to_headings_find_them(page):
    for target, heading in re.findall(r"\]\(([^)#\s]*)#([\w-]+)\)", text_of(page)):
        linked = (ROOT / page).parent / target if target else ROOT / page
        headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
        names = {re.sub(r"[^\w\- ]", "", name).lower().replace(" ", "-") for name in headings}
        assert heading in names


def test_the_index_lists_each_page_once():
    index = text_of("docs/index.md")
    listed = re.findall(r"^\| \[[^\]]*\]\(([^)]*)\)", index, re.MULTILINE)
    paths = [str((ROOT / "docs" / page).resolve().relative_to(ROOT)) for page in listed]
    assert sorted(paths) == sorted({*PAGES, "docs/decisions/README.md"} - {"docs/index.md"})


def test_decisions_are_numbered_and_complete():
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    numbers = [int(page.name[:4]) for page in decisions]
    assert numbers == list(range(1, len(numbers) + 1))
    for page in decisions:
        text = page.read_text()
        assert text.startswith(f"# {page.name[:4]}: "), page.name
        for part in ("Context", "Decision", "Consequences"):
            assert f"**{part}.**" in text, (page.name, part)


# ---- what the pages name is there

FILE = re.compile(r"[\w.-]+\.(?:py|pyi|cpp|h|toml|txt|md|yml)")
NOT_OURS = {"demo.py"}  # the programs in the pages
LOGGERS = {f"pliant.{channel}" for channel in CHANNELS}


@cache
def tracked():
    """Every file of the repository, and every folder that has one."""
    tops = [top for top in ROOT.iterdir() if top.name != "build" and top.name[0] != "."]
    files = [file for top in tops for file in (top, *top.rglob("*"))]
    paths = {file.relative_to(ROOT) for file in files if file.is_file()}
    paths = {path for path in paths if "__pycache__" not in path.parts}
    return paths | {folder for path in paths for folder in path.parents}


def named_paths(text):
    """The paths in the spans of code of a page: those with a slash whose first part is a folder of
    the repository or of the package, and names of files."""
    folders = {path.parts[-1] for path in tracked() if len(path.parts) == 1}
    folders |= {
        path.parts[1] for path in tracked() if path.parts[:1] == ("pliant",) and len(path.parts) > 1
    }
    for span in spans(text):
        for word in span.split():
            word = word.rstrip(",;:")
            first, slash, _ = word.partition("/")
            if (slash and first in folders) or FILE.fullmatch(word):
                yield word


def spans(text):
    """Code in the running text of a page: `so`."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`\n]+)`", text)


def named_objects(text):
    """The dotted names of pliant's own things in the spans of code of a page."""
    for span in spans(text):
        yield from re.findall(r"(?<![\w/.])pliant(?:\.[A-Za-z_]\w*)+(?![\w./]*/)", span)


def path_exists(word):
    path = Path(word)
    if word in NOT_OURS:
        return True
    if len(path.parts) == 1 and "/" not in word:
        return any(known.name == word for known in tracked())
    return path in tracked() or Path("pliant", path) in tracked()


def object_exists(name):
    value, parts = pliant, name.split(".")
    for at, part in enumerate(parts[1:], 2):
        if not hasattr(value, part):
            try:
                importlib.import_module(".".join(parts[:at]))
            except ModuleNotFoundError:
                return name in LOGGERS
        value = getattr(value, part)
    return True


@pytest.mark.parametrize("page", EVERYWHERE)
def test_files_that_a_page_names_exist(page):
    assert not [path for path in named_paths(text_of(page)) if not path_exists(path)]


@pytest.mark.parametrize("page", EVERYWHERE)
def test_objects_that_a_page_names_exist(page):
    assert not [name for name in named_objects(text_of(page)) if not object_exists(name)]


def test_names_that_are_gone_are_noticed():
    page = "`capture/gone.py`, `pliant/capture`, `gone.py`, `pliant.gone`, `pliant.capture.gone.X`"
    assert [path for path in named_paths(page) if not path_exists(path)] == [
        "capture/gone.py",
        "gone.py",
    ]
    assert [name for name in named_objects(page) if not object_exists(name)] == [
        "pliant.gone",
        "pliant.capture.gone.X",
    ]
    assert not list(named_paths("```python\nopen('capture/gone.py')\n```\n"))


def test_every_public_name_is_in_the_reference():
    directives = re.findall(r"^\.\. [\w:]+:: pliant\.(\w+)", text_of("docs/api.md"), re.MULTILINE)
    documented = [name for name in directives if name in pliant.__all__]
    assert sorted([*documented, "errors"]) == sorted(pliant.__all__)  # errors.md has the errors


def test_every_public_name_has_a_page_that_explains_it():
    everything = "".join(text_of(page) for page in PAGES if page != "docs/api.md")
    missing = [name for name in pliant.__all__ if not re.search(rf"\b{name}\b", everything)]
    assert not missing


def test_the_changelog_begins_with_this_version():
    versions = re.findall(r"^## (.*)$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert versions[0].startswith(f"[{pliant.__version__}] - ")
    assert all(
        re.fullmatch(r"\[\d+\.\d+\.\d+\] - (Unreleased|\d{4}-\d\d-\d\d)", v) for v in versions
    )


def test_pages_agree_on_the_default_backend():
    default = registry.DEFAULT
    assert f'the default is `"{default}"`' in text_of("docs/options.md")
    assert f"| `{default}` | the default: " in text_of("docs/backends.md")


def test_every_kind_of_guard_is_documented():
    page = text_of("docs/guards.md")
    assert not [kind.name for kind in GuardKind if f"`{kind.name}`" not in page]


def test_the_readme_repeats_what_was_measured():
    """Each number in the README's table of measurements is in the page of benchmarks."""
    measured = text_of("docs/benchmarks.md")
    table = text_of("README.md").partition("## How it differs")[2].partition("a graph break")[0]
    numbers = re.findall(r"(\d+\.\d+) (?:µs|ms)", table)
    assert len(numbers) == 8
    assert not [number for number in numbers if f" {number} |" not in measured]
