"""The pictures of reports in the documentation: of the tour and of a training run, light and dark.

    python tools/screenshots.py

Needs playwright and Debian's chromium. Look at what it has made before it is committed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "static"
TRAINING = ROOT / "tests" / "reports" / "training.py"


def report(folder: Path, program: Path) -> Path:
    """The report of a program."""
    path = folder / f"{program.stem}.html"
    command = [sys.executable, "-m", "pliant", "run", "--quiet", "--report", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, str(program)], check=True, cwd=folder, env=environment)
    # Where packages are on this machine is nobody's business.
    path.write_text(re.sub(r"[^\s\"'&;]*(?:site|dist)-packages/", "", path.read_text()))
    return path


def picture(page: Any, name: str, of: str | None = None) -> None:
    if of is not None:
        page.locator(of).first.scroll_into_view_if_needed()
        page.evaluate("(of) => document.querySelector(of).scrollIntoView()", of)
    page.screenshot(path=FOLDER / f"report-{name}.png")


def main() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        tour = report(Path(name), ROOT / "examples" / "tour.py")
        # From a folder without a history: its path is in the pictures.
        training = report(Path(name), Path(shutil.copy(TRAINING, name)))
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for scheme in ("light", "dark"):
            size = {"width": 1280, "height": 860}
            page = browser.new_page(viewport=size, color_scheme=scheme)
            page.goto(f"file://{tour}")
            picture(page, f"overview-{scheme}")
            page.goto(f"file://{training}")
            page.locator("#functions .row").first.click()
            picture(page, f"graph-{scheme}", ".drawing")
            page.locator(".source div", has_text="self.head(x)").locator(".number").click()
            picture(page, f"lines-{scheme}", ".columns")
            page.locator("details.program > summary").first.click()
            picture(page, f"fusion-{scheme}", "details.program")
            page.locator("details.measured > summary").first.click()
            picture(page, f"kernels-{scheme}", "details.measured")
            page.locator("details.memory-use > summary").first.click()
            picture(page, f"memory-{scheme}", "details.memory-use")
        browser.close()


if __name__ == "__main__":
    main()
