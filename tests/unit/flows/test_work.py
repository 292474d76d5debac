"""What a process does before it carries out a run's work.

Invariant: threads that stages run in find transformers imported; the first import by two at once
leaves one of them without its classes.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutations import mutation

CODE = """
import sys
from flows.running import work
assert "transformers" not in sys.modules
work.mark_orphans, work.process_tags = lambda: 0, lambda: []
sys.exit(not work.do_work(lambda: "transformers" in sys.modules, SystemExit))
"""


@mutation(
    "stages side by side are the first to import transformers", "flows/running/work.py",
    "    _import_alone()\n    mark_orphans()", "    mark_orphans()",
)  # fmt: skip
@pytest.mark.slow
def test_work_begins_with_transformers_imported() -> None:
    assert subprocess.run([sys.executable, "-c", CODE], check=False).returncode == 0
