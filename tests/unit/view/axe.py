"""Asks axe-core whether a page of a browser keeps WCAG 2.2 AA, and the good practice around it.

axe-core comes out of a wheel that `tests/unit/view/axe.lock` pins by its digest. Nothing of it is
installed or kept.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Page

LOCK = Path(__file__).with_name("axe.lock")

TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
COLOURED = ("color-contrast", "link-in-text-block")
"""Rules that look at colours: all that another theme of a page can break."""

UNREACHED = ("NewConnectionError", "No matching distribution", "ProxyError", "Read timed out")
"""What pip says where there is no registry, or none that has the wheel."""

ALIKE = """() => {
  for (const all of document.querySelectorAll('tbody, .map g, .tokens, .columns, .asks')) {
    for (const one of [...all.children].slice(12)) one.remove();
  }
  for (const one of [...document.querySelectorAll('aside > details')].slice(3)) one.remove();
}"""
"""Takes away all but the first parts of what has hundreds of a kind: each costs axe-core time."""

ASKED = """async (only) => {
  const {violations} = await axe.run(document, {resultTypes: ['violations'], runOnly: only});
  return violations.flatMap(({id, nodes}) => nodes.map((node) =>
    `${id}: ${node.html.slice(0, 200)}: ${node.failureSummary.replace(/\\s+/g, ' ')}`));
}"""


def axe_core(folder: Path) -> str:
    """Return the source of axe-core; skips the test where the registry cannot be reached."""
    command = ("pip", "download", "--quiet", "--no-deps", "--require-hashes")
    done = subprocess.run(
        [sys.executable, "-m", *command, "-r", LOCK, "-d", folder],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if done.returncode and any(said in done.stderr for said in UNREACHED):
        pytest.skip(f"axe-core cannot be fetched: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        return files.read("axe_playwright_python/axe.min.js").decode()


def violations(page: Page, source: str, rules: Sequence[str] = ()) -> list[str]:
    """Return what a page breaks of these rules, of all with the tags above by default."""
    only = {"type": "rule", "values": rules} if rules else {"type": "tag", "values": TAGS}
    if not page.evaluate("'axe' in window"):
        page.evaluate(ALIKE)
        page.evaluate(source)  # not as a script of the page, whose policy forbids that
    return page.evaluate(ASKED, only)
