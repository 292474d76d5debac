"""What a process does before it carries out a run's work.

Invariants: threads that stages run in find transformers imported; the first import by two at once
leaves one of them without its classes. Garbage is looked for seldom.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutations import mutation

CODE = """
import gc, sys
from flows.running import work
assert "transformers" not in sys.modules
work.mark_orphans, work.process_tags = lambda: 0, lambda: []
assert work.do_work(lambda: "transformers" in sys.modules, SystemExit)
assert gc.get_threshold()[0] > 10_000
"""


@mutation(
    "stages side by side are the first to import transformers", "flows/running/work.py",
    "    _import_alone()\n    mark_orphans()", "    mark_orphans()",
)  # fmt: skip
@mutation(
    "work looks for garbage as often as Python does", "flows/running/work.py",
    "    collect_seldom()\n", "",
)  # fmt: skip
@pytest.mark.slow
def test_work_begins_with_transformers_imported() -> None:
    assert subprocess.run([sys.executable, "-c", CODE], check=False).returncode == 0
