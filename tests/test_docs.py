"""The documentation is true: its programs print what it says, its tables are those of the code."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

import pliant
from pliant.guards.guard import Kind

pytestmark = pytest.mark.own_default
ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(page.relative_to(ROOT)) for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
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


def test_the_index_has_every_page():
    index = text_of("docs/index.md")
    for page in PAGES:
        if page not in ("README.md", "docs/index.md"):
            assert f"({Path(page).name})" in index, page


def test_decisions_are_numbered_and_complete():
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [int(page.name[:4]) for page in decisions]
    assert numbers == list(range(1, len(numbers) + 1))
    for page in decisions:
        text = page.read_text()
        assert text.startswith(f"# {page.name[:4]}: "), page.name
        for part in ("Context", "Decision", "Consequences"):
            assert f"**{part}.**" in text, (page.name, part)


def test_every_public_name_is_documented():
    everything = "".join(map(text_of, PAGES))
    missing = [name for name in pliant.__all__ if not re.search(rf"\b{name}\b", everything)]
    assert not missing


def test_every_kind_of_guard_is_documented():
    page = text_of("docs/guards.md")
    assert not [kind.name for kind in Kind if f"`{kind.name}`" not in page]


def test_the_readme_repeats_what_was_measured():
    """Each number in the README's table of measurements is in the page of benchmarks."""
    measured = text_of("docs/benchmarks.md")
    table = text_of("README.md").partition("## How it differs")[2].partition("a graph break")[0]
    numbers = re.findall(r"(\d+\.\d+) (?:µs|ms)", table)
    assert len(numbers) == 8
    assert not [number for number in numbers if f" {number} |" not in measured]
