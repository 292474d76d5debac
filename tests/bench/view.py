"""How long the pages of `genenv view` take over 1e6 traces, and what memory they need.

A browser opens each page a few times. The first paint is when it shows anything, whole is when all
of the page is there, its script and styles too. Memory is the peak of the server and of the
process that answers its questions, together.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from genenv_core.storage.store.local import LocalStore
from tests.bench.scale import SHAPES, trace_ids
from tests.bench.storage import table
from tests.bench.synthetic import RUN, build
from tests.infra.test_browser import CHROMIUM
from tests.pipeline.commands import environment
from tests.waiting import until

TRACES = 1_000_000
TRIES = 5
PAINT_MS, PAGE_MS = 1000, 2000
"""Most milliseconds, on two idle cores: until the first paint, and until the page is there."""

EVERY_ATTEMPT, LONG_MS = ("a run", "suspects"), 5000
"""Pages with questions that pass over every attempt, and most milliseconds until they are there."""

WAIT_MS = 120_000
"""Most milliseconds for a page on a machine that is busy; its time is told, not cut off."""

TIMES = """() => {
  const paint = performance.getEntriesByName('first-contentful-paint')[0];
  const whole = performance.getEntriesByType('navigation')[0];
  return [paint ? paint.startTime : whole.loadEventEnd, whole.loadEventEnd];
}"""


def main() -> None:
    """Build the pool, open its pages, print the times and the memory; exit 1 above a limit."""
    shape = SHAPES[TRACES]
    with tempfile.TemporaryDirectory(prefix="genenv-bench-") as folder:
        root = Path(folder) / "root"
        build(LocalStore(root), shape)
        slow = _measured(root, trace_ids(shape, 1)[0])
    if slow:
        sys.exit("above the limit: " + ", ".join(slow))


def _measured(root: Path, trace: str) -> list[str]:
    """Print the times and the memory of all pages over a root; returns those above a limit."""
    task = re.sub(r"^g(\d+)-[0-9a-f]+-(\d+)\..*", r"t\1-0badcafe-\2", trace)
    run = f"/runs/{RUN}"
    pages = {
        "runs": "/",
        "a run": run,
        "task map, all epochs": f"{run}/tasks",
        "task map, one epoch": f"{run}/tasks?epoch=50",
        "a task's story": f"{run}/tasks/{task}",
        "a trace": f"{run}/traces/{trace}",
        "rejections": f"{run}/rejections",
        "suspects": f"{run}/suspects",
        "test tasks": f"{run}/heldout",
        "a checkpoint": f"{run}/checkpoints/agent/50",
        "lineage": f"{run}/lineage",
        "search by id": f"/find?q={trace}",
        "search by words": "/find?q=bolts",
        "console": "/sql?q=SELECT+epoch,+p_hat+FROM+epochs+ORDER+BY+epoch",
    }
    log = root.parent / "view.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "flows.cli.app", "view", "--root", str(root), "--port", "0"],
            env=environment(), stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        found = until(lambda: re.search(r"http://\S+", log.read_text()))
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page()
            page.set_default_timeout(WAIT_MS)
            address = found.group().rstrip("/")
            times = {name: _opened(page, address + path) for name, path in pages.items()}
            browser.close()
        memory = _peak(server.pid)
    finally:
        server.terminate()
        server.wait(60)
    rows = [(name, f"{paint:.0f} ms", f"{whole:.0f} ms") for name, (paint, whole) in times.items()]
    limits = f"limits {PAINT_MS} and {PAGE_MS} ms, {LONG_MS} over every attempt"
    title = f"pages over {TRACES:,} traces, medians of {TRIES}, {limits}"
    table(title, ("", "first paint", "whole"), rows)
    print(f"  peak memory of the server and the process that answers: {memory:.0f} MB")
    return [
        f"{name} ({paint:.0f}, {whole:.0f} ms)"
        for name, (paint, whole) in times.items()
        if paint > PAINT_MS or whole > (LONG_MS if name in EVERY_ATTEMPT else PAGE_MS)
    ]


def _opened(page: Page, address: str) -> tuple[float, float]:
    """Return the medians of the milliseconds to the first paint and to the whole page."""
    found: list[tuple[float, float]] = []
    for _ in range(TRIES):
        answer = page.goto(address, wait_until="load")
        assert answer is not None and answer.ok, address
        paint, whole = page.evaluate(TIMES)
        found.append((paint, whole))
    return statistics.median(one[0] for one in found), statistics.median(one[1] for one in found)


def _peak(server: int) -> float:
    """Return the peak memory of a process and its children, in MB."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    peaks = [
        int(Path(f"/proc/{one}/status").read_text().split("VmHWM:")[1].split()[0])
        for one in (str(server), *children)
    ]
    return sum(peaks) / 1e3
