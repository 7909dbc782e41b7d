"""The report as a page: complete, safe, and, in a browser, alive."""

import json
import re
import shutil
import subprocess

import pytest
import torch

import pliant
from pliant.cli import main

pytestmark = pytest.mark.own_default
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def data_of(html):
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', html, re.S)
    return json.loads(text)


def doubled(x):
    """</script><b>not a tag</b>"""
    y = x.sin()
    pliant.graph_break()
    return y * 2


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "report.html"
    with pliant.report(path):
        compiled = pliant.compile(doubled)
        for size in (2, 2, 3):
            compiled(torch.ones(size))
    return path


def test_the_data_are_in_it(page):
    data = data_of(page.read_text())
    (function,) = data["functions"]
    assert function["name"] == "doubled"
    assert any("</script>" in line["text"] for line in function["source"])
    assert [c["hits"] for c in function["compilations"] if c["name"] == "doubled"] == [2, 1]
    assert data["advice"][0]["title"] == "doubled has 1 graph break"


def test_nothing_is_loaded(page):
    html = page.read_text()
    assert not re.findall(r"""(?:src|href)=["']|@import|url\(|fetch\(|XMLHttp""", html)
    assert "/*" not in re.sub(r"<script id=.data.*?</script>", "", html, flags=re.S)


def test_written_also_after_an_error(tmp_path):
    path = tmp_path / "report.html"
    with pytest.raises(ZeroDivisionError), pliant.report(path):
        pliant.compile(torch.sin)(torch.ones(2))
        1 // 0
    assert data_of(path.read_text())["counts"]["compilations"] == 1
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_recording_ends_with_the_block(page):
    before = page.read_text()
    pliant.compile(torch.cos)(torch.ones(2))
    assert page.read_text() == before


def test_without_with(tmp_path):
    recording = pliant.report(tmp_path / "report.html")
    pliant.compile(torch.sin)(torch.ones(2))
    path = recording.write()
    recording.__exit__(None, None, None)
    assert data_of(path.read_text())["counts"]["graphs"] == 1


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        pliant.report(tmp_path / "nowhere" / "report.html")


def test_from_files_of_events(tmp_path, monkeypatch, capsys):
    from pliant.base import events, records

    log = tmp_path / "events.jsonl"
    with events.listening(records.JsonLog(str(log))):
        pliant.compile(doubled)(torch.ones(2))
    output = tmp_path / "page.html"
    assert main(["report", str(log), "-o", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    assert data_of(output.read_text())["functions"][0]["name"] == "doubled"
    assert main(["report", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err


def rendered(page, fragment=""):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    result = subprocess.run(
        [*command, f"file://{page}{fragment}"], capture_output=True, text=True, timeout=120
    )
    return re.sub(r"<script.*?</script>|<style.*?</style>", "", result.stdout, flags=re.S)


@pytest.mark.skipif(BROWSER is None, reason="there is no browser here")
def test_in_a_browser(page):
    overview = rendered(page)
    assert (
        "doubled has 1 graph break" in overview and "Compilations and calls over time" in overview
    )
    function = rendered(page, "#f0")
    assert "graph break: " in function
    assert "def doubled_residual" in function
    assert "&lt;/script&gt;&lt;b&gt;not a tag" in function  # texts are texts


@pytest.mark.skipif(BROWSER is None, reason="there is no browser here")
def test_a_large_run_in_a_browser(page):
    html = page.read_text()
    data = data_of(html)
    (function,) = data["functions"]
    data["functions"] = [
        {**function, "id": i, "name": f"f{i}", "compilations": function["compilations"] * 5}
        for i in range(100)
    ]
    text = json.dumps(data).replace("<", "\\u003c")
    start = html.index('application/json">') + len('application/json">')
    page.write_text(html[:start] + text + html[html.index("</script>", start) :])
    assert rendered(page, "#f99").count('class="row') == 101
