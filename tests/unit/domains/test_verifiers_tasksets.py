"""A taskset of verifiers, played by verifiers itself, whose tasks are certified.

Invariants: each planted flaw is named for its task; a taskset that an answer alone does not decide
is refused with what it needs.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from flows.cli.app import app
from genenv_core.errors import DataError, GenenvError
from tests.pipeline.commands import REPOSITORY
from tests.unit.domains.openenv.real import installed

pytestmark = pytest.mark.slow

LOCK = REPOSITORY / "tests/unit/exchange/verifiers.lock"
SUMS = """
import re
import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData]):
    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        print("scored")
        said = re.findall(r"boxed[{](.*?)[}]", trace.last_reply)
        assert trace.messages[0].content == "Put the answer in a box."
        if self.data.idx == 3:
            return 1.0
        return float(bool(said) and said[-1] == self.data.answer)


class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self):
        for number in range(1, 7):
            hint = " It is 56." if number == 6 else ""
            yield SumTask(SumData(
                prompt=f"What is {number} + 50?{hint}", answer=str(number + 50),
                system_prompt="Put the answer in a box.",
            ))


__all__ = ["Sums"]
"""


def interpreter() -> Path:
    """Return the interpreter that has verifiers."""
    return installed(REPOSITORY / ".venv-verifiers", LOCK)


@pytest.fixture(autouse=True)
def python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENENV_VERIFIERS_PYTHON", str(interpreter()))


def command(folder: Path, text: str, *words: str | Path) -> Result:
    (folder / "sums_of_mine.py").write_text(text)
    return CliRunner().invoke(app, ["certify", str(folder), *map(str, words)])


def test_verifiers_plays_a_taskset(tmp_path: Path) -> None:
    rows, page = tmp_path / "rows.csv", tmp_path / "page.html"
    done = command(tmp_path, SUMS, "-o", rows, "--page", page)
    assert isinstance(done.exception, GenenvError), done.output
    assert str(done.exception) == f"{tmp_path}: 2 of 6 tasks have a flaw, counted above"
    assert "certifies 6 tasks of the taskset sums_of_mine, of verifiers " in done.output
    flawed = pl.read_csv(rows).filter(~pl.col("passed"))
    by_prompt = flawed.group_by("prompt").agg(pl.col("flaw")).to_dicts()
    found = {one["prompt"].splitlines()[-1]: set(one["flaw"]) for one in by_prompt}
    assert found["What is 6 + 50? It is 56."] == {"leaks_answer"}
    assert {"accepts_trivial", "accepts_canary", "already_solved"} <= found["What is 4 + 50?"]
    assert "boxed{56}" not in page.read_text() and "Put the answer in a box." in page.read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("trace: vf.Trace)", "trace: vf.Trace, runtime)", "need a runtime for their rewards"),
        ("    @vf.reward", "    NEEDS_CONTAINER = True\n\n    @vf.reward", "need a container"),
        ("    @vf.reward\n", "", "they have no reward"),
        ('"Sums"', "", "exports no Taskset subclass"),
        ("range(1, 7)", "range(0)", "the taskset has no task"),
    ],
)
def test_a_taskset_that_answers_alone_do_not_decide_is_refused(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    done = command(tmp_path, SUMS.replace(old, new))
    assert isinstance(done.exception, DataError) and said in str(done.exception)
