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
TRAINING = """
import torch

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

class Net(torch.nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(width) for _ in range(4)])
        self.head = torch.nn.Linear(width, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)

torch.manual_seed(0)
net = Net()
model = torch.compile(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(40):
    x = torch.randn(256, 256)
    loss = torch.nn.functional.cross_entropy(model(x), torch.randint(10, (256,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


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
        program = Path(name) / "training.py"
        program.write_text(TRAINING)
        training = report(Path(name), program)
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
            page.locator("details.measured > summary").first.click()
            picture(page, f"kernels-{scheme}", "details.measured")
            page.locator("details.memory-use > summary").first.click()
            picture(page, f"memory-{scheme}", "details.memory-use")
        browser.close()


if __name__ == "__main__":
    main()
