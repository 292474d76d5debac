"""The right answer to an item of a benchmark, when it is shown.

Invariants: it is read from the download that the verdicts came from, and from no other; no code is
loaded that a root names; what cannot be said is ''.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from genenv_core.benchmarks.bamboogle.training import BamboogleDomain
from genenv_core.benchmarks.bfcl.suite import Bfcl
from genenv_core.benchmarks.measuring import expected
from genenv_core.benchmarks.measuring.expected import right_answer
from genenv_core.benchmarks.protocol import NamesGold
from tests.mutations import mutation

EXPECTED = "genenv_core/benchmarks/measuring/expected.py"
Asking = Callable[..., str]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asking:
    """Return what asks for the answer to an item that a measurement has."""
    (tmp_path / "test.csv").write_text("Question,Answer\nWho?,Ada Lark\nWhat?,the Orca\n")
    digest = BamboogleDomain.from_options({"data": str(tmp_path)}).suite.digest

    def ask(
        item: str, *, name: str = "bamboogle", data: str = digest, folder: Path = tmp_path,
        source: str = "benchmark", truth: str | None = "",
    ) -> str:  # fmt: skip
        config = {"domain": {"name": name, "options": {"data": str(folder)}}}
        log = SimpleNamespace(
            info=lambda: SimpleNamespace(config=config), keys=lambda epoch: {"benchmark": "k"}
        )
        manifest = SimpleNamespace(from_bytes=lambda data_: SimpleNamespace(facts={"data": data}))
        monkeypatch.setattr(expected, "RunLog", lambda store, run: log)
        monkeypatch.setattr(expected, "Manifest", manifest)
        store: Any = SimpleNamespace(read=lambda path: b"")
        task = {"source": source, "spec": json.dumps({"item": item}), "ground_truth": truth}
        return right_answer(store, "r", task)

    return ask


@mutation(
    "an answer of another download is shown", EXPECTED,
    "if domain.suite.digest != judged_by or not", "if not",
)  # fmt: skip
@mutation(
    "a root names code that is loaded to show an answer", EXPECTED,
    " or not is_built_in(name)", "",
)  # fmt: skip
def test_the_answer_is_that_of_the_download_that_judged(asked: Asking, tmp_path: Path) -> None:
    assert [asked("0"), asked("1"), asked("9")] == ["Ada Lark", "the Orca", ""]
    assert asked("0", data="other") == ""
    assert asked("0", source="heldout") == asked("0", source="generated", truth=None) == ""
    assert asked("0", source="heldout", truth="7") == "7"
    assert asked("0", folder=tmp_path / "gone") == ""
    (tmp_path / "mine.py").write_text("from pathlib import Path\nPath(__file__).unlink()\n")
    assert asked("0", name=f"{tmp_path}/mine.py:Mine") == ""
    assert (tmp_path / "mine.py").exists()  # nobody ran it
    assert asked("0", name="desk") == ""


def test_gold_calls_are_shown_with_all_values_that_are_right() -> None:
    gold = [{"area": {"base": [3], "unit": ["cm", ""]}}, {"stop": {}}]
    suite = Bfcl([], "d")
    suite.rows = cast("Any", {"a": SimpleNamespace(gold=gold), "b": SimpleNamespace(gold=[])})
    assert suite.expected("a") == 'area(base=3, unit="cm" or "")\nstop()'
    assert suite.expected("b") == ""
    assert isinstance(suite, NamesGold)
