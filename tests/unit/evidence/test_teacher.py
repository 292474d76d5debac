"""The file of a teacher that writes all levels in equal shares."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from flows.evidence.teacher import main, write_teacher
from genenv_core.config.comparison import planned_runs, read_comparison
from genenv_core.config.load import resolve
from genenv_core.domains.desk.desk_domain import DeskDomain
from genenv_core.errors import ConfigError
from genenv_core.types import TaskDraft
from tests.mutations import mutation

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
SUMS = f"{EXAMPLES / 'sums.py'}:Sums"
TEACHER = "flows/evidence/teacher.py"


@mutation(
    "a teacher writes the lengths that pi_env begins with", TEACHER,
    "weights = [float(one == level) for one in range(highest)]",
    "weights = domain.base_weights()",
)  # fmt: skip
@mutation(
    "the levels of a teacher come one after another", TEACHER,
    "[column[turn] for turn in range(longest) for column in columns if turn < len(column)]",
    "[row for column in columns for row in column]",
)  # fmt: skip
@pytest.mark.parametrize(("preset", "levels"), [("quickstart", 6), ("headroom", 12)])
def test_each_epoch_has_every_level_in_equal_shares(
    tmp_path: Path, preset: str, levels: int
) -> None:
    path = tmp_path / "teacher.jsonl"
    counts = write_teacher(preset, 2, path)
    programs = [json.loads(line)["program"] for line in path.read_text().splitlines()]
    assert len(set(programs)) == len(programs) == sum(counts) == 320
    domain = DeskDomain.from_options(resolve(preset).domain.options)
    drafts = [domain.parse(program)[0] for program in programs]
    assert all(isinstance(draft, TaskDraft) for draft in drafts)
    difficulties = [draft.difficulty for draft in drafts if isinstance(draft, TaskDraft)]
    for epoch in (difficulties[:160], difficulties[160:]):
        shares = Counter(epoch)
        assert set(shares) == {float(level) for level in range(1, levels + 1)}
        assert max(shares.values()) - min(shares.values()) <= 1
    heldout = {draft.program for draft in domain.heldout_tasks(0, 500)}
    assert heldout.isdisjoint(programs)


def test_another_seed_gives_other_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts: list[str] = []
    for seed in ("0", "0", "1"):
        main(["quickstart", "--epochs", "1", "--seed", seed, "--output", str(tmp_path / "t")])
        texts.append((tmp_path / "t").read_text())
    assert texts[0] == texts[1] != texts[2]
    assert "160 programs, by level 27, 27, 27, 27, 26, 26" in capsys.readouterr().out


def test_a_domain_without_levels_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "sums.yaml"
    config.write_text(f"domain: {{name: '{SUMS}'}}\n")
    with pytest.raises(ConfigError, match=r"domain\.name: .*sums\.py:Sums has no levels"):
        write_teacher(str(config), 1, tmp_path / "teacher.jsonl")


def test_the_comparison_of_the_docs_can_be_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_teacher("headroom", 24, tmp_path / "teacher.jsonl")
    monkeypatch.chdir(tmp_path)
    found = planned_runs(read_comparison(str(EXAMPLES / "headroom.yaml"), {}), str(tmp_path))
    assert {run.arm for run in found} == {"both", "random", "offline"}
    assert len(found) == 27
    assert {run.config.epochs for run in found} == {24}
