"""`make pictures`: what docs/view.md shows.

The pictures, and the report beside them, show the run of `genenv view --demo`, which is built where
it is missing. The pictures need playwright and a Chromium, as the tests in a browser do
(CONTRIBUTING.md). The two of README that show longer runs come from
`python -m flows.evidence.quickstart_figure` and `make claim`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from playwright.sync_api import sync_playwright

from flows.cli.machines.demo import RUN, demo_root
from flows.view.app import application
from flows.view.serve import listen
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore

DOCS = Path(__file__).parent
REPORT = "demo-report.html"
CHROMIUM = os.environ.get("GENENV_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
WIDTH = 1000
HEIGHTS = {"run": 1250, "map": 690, "task": 900, "trace": 950}
"""Pixels of each picture: the width of all of them, and how much of the page each shows."""

BEGINS = {"task": "section.attempt"}
"""Where a picture begins that does not begin at the top of its page."""
MARGIN = 50

PICTURE_BYTES, REPORT_BYTES = 200_000, 1_000_000

EVERYWHERE = "~/.cache/genenv/demo"
"""Where the demo lies for most users of Linux."""

CHOSEN = f"""
    WITH task AS (
        FROM near_alpha WHERE run_id = '{RUN}' ORDER BY epoch DESC, distance, task_id LIMIT 1
    )
    SELECT a.task_id, min(a.trace_id) AS trace_id
    FROM agent_attempts AS a SEMI JOIN task USING (run_id, epoch, task_id)
    WHERE NOT a.success GROUP BY ALL
"""
"""A task of the last epoch that is solved about as often as not, and a failed attempt at it."""


def main() -> None:
    """Write all of them, and say how large they are."""
    root = demo_root(print)
    with open_tables(LocalStore(root, writable=False), [RUN]) as connection:
        (chosen,) = query(connection, CHOSEN).to_dicts()
    report(root)
    addresses = {
        "run": f"/runs/{RUN}",
        "map": f"/runs/{RUN}/tasks",
        "task": f"/runs/{RUN}/tasks/{chosen['task_id']}",
        "trace": f"/runs/{RUN}/traces/{chosen['trace_id']}",
    }
    with served(root) as base, sync_playwright() as driver:
        # As root, Chromium's own sandbox does not start.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, path in addresses.items():
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHTS[name]}, color_scheme="light"
            )
            page.goto(base + path, wait_until="networkidle")
            if name in BEGINS:
                top = page.locator(BEGINS[name]).first.bounding_box()
                page.evaluate("y => window.scrollTo(0, y)", top["y"] - MARGIN if top else 0)
            page.screenshot(path=DOCS / f"view-{name}.png", animations="disabled")
            check(DOCS / f"view-{name}.png", PICTURE_BYTES)
        browser.close()


def report(root: Path) -> None:
    """Write the report of the demo; a command on it names the folder as on everybody's machine."""
    made = DOCS / REPORT
    genenv = [sys.executable, "-m", "flows.cli.app"]
    subprocess.run([*genenv, "report", RUN, "--root", str(root), "-o", str(made)], check=True)
    text = made.read_text(encoding="utf-8").replace(str(root), f"{EVERYWHERE}/{root.name}")
    made.write_text(text, encoding="utf-8")
    check(made, REPORT_BYTES)


def check(made: Path, most: int) -> None:
    """Print the size of a file; raises SystemExit if that is too much for a repository."""
    size = made.stat().st_size
    print(f"{made}: {size / 1000:.0f} kB")
    if size > most:
        raise SystemExit(f"{made} has more than {most / 1000:.0f} kB")


@contextmanager
def served(root: Path) -> Iterator[str]:
    """Yield the address of the pages over a root, served by a thread of this process."""
    listening = listen("127.0.0.1", 0)
    pages = application(LocalStore(root, writable=False))
    server = uvicorn.Server(uvicorn.Config(pages, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
