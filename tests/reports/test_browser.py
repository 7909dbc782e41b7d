"""Reports in Debian's Chromium: of the tour, of a training run, and of a run of two processes.

What a person does is done: clicking, searching, typing keys. Without a browser, or without
playwright, there is nothing to be tested; `.ci/run` installs the browser, and `make` the rest.
"""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import pliant
from pliant.base import records
from pliant.cli import main
from pliant.loop.fuse import NotFused
from pliant.loop.fusion_report import BY_PYTORCH
from tests.support.processes import environment

pytestmark = pytest.mark.own_default
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
if BROWSER is None:
    pytest.skip("there is no Chromium here (Debian: apt install chromium)", allow_module_level=True)

ROOT = Path(pliant.__file__).parent.parent


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser):
    """Opens a report. Nothing may fail in it, and nothing may be asked of the network."""
    pages, wrong = [], []

    def open_report(path, scheme="light"):
        page = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme=scheme)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda text: wrong.append(text.text) if text.type == "error" else None)
        page.on(
            "request", lambda asked: wrong.append(asked.url) if "file:" not in asked.url else None
        )
        page.goto(f"file://{path}")
        pages.append(page)
        return page

    yield open_report
    for page in pages:
        page.close()
    assert wrong == []


def run(folder, script, *options, **variables):
    env = environment(OMP_NUM_THREADS="1") | variables
    command = [sys.executable, *options, str(script)]
    return subprocess.Popen(command, env=env, cwd=folder, stderr=subprocess.PIPE)


def finish(*processes):
    for process in processes:
        _, text = process.communicate(timeout=300)
        assert process.returncode == 0, text.decode()


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tour")
    report = folder / "report.html"
    options = ("-m", "pliant", "run", "--quiet", "--report", str(report))
    finish(run(folder, ROOT / "examples/tour.py", *options))
    return report


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    report = folder / "report.html"
    program = Path(__file__).with_name("training.py")
    finish(run(folder, program, "-m", "pliant", "run", "--quiet", "--report", str(report)))
    return report


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    store = f"file://{folder}/store"
    program = f"""
        import os
        import torch, pliant
        import torch.distributed as dist

        rank = int(os.environ["RANK"])
        dist.init_process_group("gloo", init_method={store!r}, rank=rank, world_size=2)

        @pliant.compile
        def step(x):
            return torch.softmax(x * 2, -1).sum(0)

        for _ in range(20):
            total = step(torch.ones(8 + rank, 16))
            dist.all_reduce(total)
        assert total.sum().item() == 17
        dist.destroy_process_group()
    """
    script = folder / "program.py"
    script.write_text(textwrap.dedent(program))
    log = folder / "events.jsonl"
    finish(*[run(folder, script, RANK=str(rank), PLIANT_LOGS_JSON=str(log)) for rank in range(2)])
    report = folder / "report.html"
    assert main(["report", str(log), "-o", str(report)]) == 0
    return report


def test_the_tour(tour, opened):
    page = opened(tour)
    assert page.locator(".tile").count() == 7
    assert page.locator("#timeline rect.bar").count() > 10
    assert page.locator("#timeline rect.missed").count() > 0
    count = page.locator("#functions .row").count()
    assert count > 3
    page.locator("button.advice").first.click()
    assert page.locator("h1").inner_text() in page.locator(".row.chosen").inner_text()
    assert page.locator(".source .note").count() > 0
    page.get_by_role("button", name="Overview").click()
    page.locator("button.link").first.click()
    assert page.locator(".row.chosen .name").count() == 1


def test_sizes(tour, opened):
    """Why each size is static or not: who asked, at which line."""
    page = opened(tour)
    rows = page.locator("#functions .row")
    sizes = page.locator("details", has=page.locator("> summary", has_text="Sizes:"))
    closed = page.locator("main > details:not([open]) > summary")
    texts = []
    for number in range(rows.count()):
        rows.nth(number).click()
        while closed.count():
            closed.first.click()
        page.wait_for_function(
            "[...document.querySelectorAll('main > details')].every(d => d.children.length > 1)"
        )
        for each in sizes.all():
            each.locator("> summary").click()
            texts += [row.inner_text() for row in each.locator("tr").all()[1:] if row.is_visible()]
    assert any("has not changed so far" in text for text in texts)
    (changed,) = [text for text in texts if "s0 is" in text]
    assert "size changed from 3 to 4" in changed and "tour.py" in changed


def test_search_and_keys(tour, opened):
    page = opened(tour)
    rows = page.locator("#functions .row")
    everything = rows.count()
    page.keyboard.press("/")
    page.keyboard.type("a text that is nowhere")
    assert page.locator("#functions .row:visible").count() == 0
    page.keyboard.press("Escape")
    assert page.locator("#functions .row:visible").count() == everything
    name = rows.nth(2).locator(".name").inner_text()
    page.keyboard.press("/")
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    assert page.locator("h1").inner_text() == name
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    assert page.locator("#timeline").count() == 1
    page.keyboard.press("j")
    first = page.locator("h1").inner_text()
    page.keyboard.press("j")
    second = page.locator(".row.chosen")
    assert second.get_attribute("class") == rows.nth(1).get_attribute("class")
    page.keyboard.press("k")
    assert page.locator("h1").inner_text() == first


def test_light_and_dark(tour, opened):
    def paper(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = opened(tour), opened(tour, "dark")
    before = paper(light)
    assert before != paper(dark)
    light.keyboard.press("t")
    assert paper(light) == paper(dark)
    light.locator("#theme").click()
    assert paper(light) == before


def open_function(page, name):
    page.locator("#functions .row", has_text=name).first.click()


def test_the_graph_is_folded_by_module(training, opened):
    page = opened(training)
    open_function(page, "Net.forward")
    boxes = page.locator("svg.graph .box")
    folds = page.locator("svg.graph .box.fold > text.small").all_text_contents()
    assert folds == [f"blocks.{i}, 5 nodes" for i in range(4)]
    names = page.locator("svg.graph .box.fold > text:first-of-type").all_text_contents()
    assert names == ["Block"] * 4
    before = boxes.count()
    page.locator("svg.graph .box.fold").first.click()
    assert boxes.count() == before + 4
    assert page.locator("svg.graph .box.fold").count() == len(folds) - 1
    page.locator("svg.graph .box.fold").first.focus()
    page.keyboard.press("Enter")
    assert boxes.count() == before + 8
    page.get_by_role("button", name="Fold all").first.click()
    assert boxes.count() == before
    page.get_by_role("button", name="Open all").first.click()
    assert page.locator("svg.graph .box.fold").count() == 0


def test_the_graph_is_searched(training, opened):
    page = opened(training)
    open_function(page, "Net.forward")
    page.keyboard.press("g")
    page.keyboard.type("gelu")
    assert page.locator("svg.graph .box.found").count() == 4
    assert "4 nodes" in page.locator(".drawing .tools").first.inner_text()
    page.keyboard.press("Escape")
    assert page.locator("svg.graph .box.found").count() == 0
    page.locator(".source div", has_text="self.head(x)").locator(".number").click()
    assert page.locator(".graph-search").first.input_value().startswith("training.py:")


def test_kernels_and_memory_of_training(training, opened):
    page = opened(training)
    open_function(page, "Net.forward")
    measured = page.locator("details.measured")
    assert measured.count() == 2  # forward and backward
    for at, name in enumerate(("Net.forward", "Net.forward backward")):
        part = measured.nth(at)
        part.locator("summary").click()
        assert part.locator("summary").inner_text().startswith(f"Measured: {name}")
        assert part.locator("svg.roofline circle").count() > 1
        rows = part.locator("tr").all_inner_texts()
        assert any("aten::" in row and "PyTorch" in row for row in rows)
        assert any("kernel" in row and "%" in row for row in rows)
    memory = page.locator("details.memory-use").first
    text = memory.locator("summary").inner_text()
    assert "at most" in text and "saved for the backward" in text and "computed again" in text
    memory.locator("summary").click()
    assert memory.locator("rect.use").count() > 10 and memory.locator("rect.other").count() > 10
    assert "aten." in memory.locator("table").first.inner_text()


def test_what_is_fused(training, opened):
    page = opened(training)
    open_function(page, "Net.forward")
    programs = page.locator("details.program")
    assert programs.count() == 2  # forward and backward
    forward, backward = programs.nth(0), programs.nth(1)
    forward.locator("summary").click()
    rows = forward.locator("table.fusion tr").all_inner_texts()[1:]
    assert len(rows) == forward.locator("pre").count()  # one for each kernel
    assert sum("gelu" in row for row in rows) >= 4
    backward.locator("summary").click()
    edges = backward.locator("table.fusion td:nth-child(3) div").all_inner_texts()
    reasons = {edge.partition(": ")[2] for edge in edges}
    assert reasons & {reason.value for reason in NotFused}
    assert reasons <= {reason.value for reason in NotFused} | {BY_PYTORCH}
    link = backward.locator("table.fusion td:nth-child(3) button").last
    kernel = backward.locator("pre", has_text=f"kernel {link.inner_text()}(")
    link.click()
    assert 0 <= kernel.bounding_box()["y"] < 860


def test_two_ranks(two_processes, opened):
    page = opened(two_processes)
    texts = page.locator("#timeline text").all_text_contents()
    assert [text for text in texts if text.startswith("rank")] == ["rank 0", "rank 1"]
    tops = {bar.get_attribute("y") for bar in page.locator("#timeline rect.backend").all()}
    assert len(tops) == 2  # each rank has compiled
    calls = {bar.get_attribute("y") for bar in page.locator("#timeline rect.bar.call").all()}
    assert len(calls) == 2 and calls.isdisjoint(tops)
    assert "2 processes" in page.locator("main").inner_text()
    page.locator("#timeline rect.backend").first.click()
    assert page.locator("h1").inner_text() == "step"
    assert page.locator("details.measured").count() == 1
    page.locator("main > details > summary").nth(1).click()
    # What is unfolded is made when the browser says so, a moment later.
    page.locator("details.measured").nth(1).wait_for(state="attached")
    assert page.locator("details.measured").count() == 2


def test_a_large_run_is_made_as_it_is_opened(tmp_path, opened):
    """500 compilations and 10,000 events."""
    import torch

    log = tmp_path / "events.jsonl"
    with pliant.base.events.listening(records.JsonLog(str(log))):
        pliant.compile(lambda x: torch.softmax(x, 0) * 2)(torch.ones(3, 3))
    one = log.read_text().splitlines()
    few = [json.loads(line) for line in one]
    step = 20 - len(few)
    sizes = [r for r in few if r["event"] == "StayedConstant"] or few[1:2]
    few[-1:-1] = sizes[:1] * max(step, 0)
    with log.open("w") as file:
        for number in range(500):
            for record in few:
                place = record["position"] and {**record["position"], "function": f"f{number // 5}"}
                changed = {**record, "position": place, "time": record["time"] + number}
                changed |= {"function": f"f{number // 5}", "index": number % 5}
                file.write(json.dumps(changed) + "\n")
    assert sum(1 for _ in log.open()) >= 10_000
    report = tmp_path / "report.html"
    assert main(["report", str(log), "-o", str(report)]) == 0
    page = opened(report)
    page.locator("#functions .row").nth(99).wait_for()
    elements = page.evaluate("document.querySelectorAll('*').length")
    assert elements < 5_000  # what is folded is made when it is opened
    page.locator("#functions .row").nth(50).click()
    assert page.locator("main > details").count() == 5


def test_it_prints(training, opened, tmp_path):
    page = opened(training)
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 10_000


def test_it_prints_dark_on_white(training, opened):
    page = opened(training, "dark")
    page.emulate_media(media="print", color_scheme="dark")
    color = "getComputedStyle(document.body).color"
    assert page.evaluate(color) == "rgb(0, 0, 0)"


def test_what_became_of_a_line(training, opened):
    """A line of the source, its nodes in the graph and its kernels are shown together."""
    page = opened(training)
    open_function(page, "Net.forward")
    source = page.locator(".source div.linkable")
    head = source.filter(has_text="self.head(x)")
    head.locator(".number").click()
    linked = page.locator(".code .linked").all_inner_texts()
    assert len(linked) == 1 and "linear_8 = " in linked[0]
    kernels = page.locator(".kernels tr.linked").all_inner_texts()
    assert kernels and any("(backward)" in row for row in kernels)
    assert all("gelu" not in row for row in kernels)
    # And back, from a kernel to the line.
    page.locator(".kernels tr", has_text="gelu").first.click()
    assert source.filter(has_text="x = block(x)").get_attribute("class") == "linkable linked"
    assert "linked" not in head.get_attribute("class").split()
    assert any("gelu" in text for text in page.locator(".code .linked").all_inner_texts())
    rows = page.locator(".kernels tr").all_inner_texts()[1:]
    assert all("s" in row and "B" in row for row in rows)  # each has a time and bytes


def test_an_empty_run(tmp_path, opened):
    log, report = tmp_path / "events.jsonl", tmp_path / "report.html"
    log.write_text("")
    assert main(["report", str(log), "-o", str(report)]) == 0
    text = opened(report).locator("main").inner_text()
    assert "Nothing was compiled." in text and "over time" not in text


def test_the_time_line_has_round_numbers(tour, opened):
    page = opened(tour)
    texts = page.locator("#timeline text").all_text_contents()
    numbers = [text for text in texts if text.endswith(" ms") or text.endswith(" s")]
    assert 3 <= len(numbers) <= 8
    step = float(numbers[0].split()[0])
    for number, text in enumerate(numbers, 1):
        assert float(text.split()[0]) == pytest.approx(number * step)
    assert f"{step:g}".strip("0.")[0] in "125"
