"""The budget of a run, by its recorded history.

Invariants: what earlier commands and other processes of the run recorded counts, in any epoch; what
was recorded since the last look counts at the next; what the run reused does not. A limit that is
reached at the start is said before any stage.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import EPOCH_STAGES, START_STAGES
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.local import LocalStore
from schemas.enums import StageState
from tasks.stage.limiting import RunBudget, within_limits
from tasks.stage.progress import Event, listening
from tasks.stage.stopping import current_end, to_the_end
from tasks.upkeep.opening import open_run
from tests.mutations import mutation


def configured(root: Path, *overrides: str) -> RunConfig:
    config = resolve("tiny", overrides=overrides, fields={"root": str(root), "run_id": "mine"})
    open_run(config, {})
    return config


def note(
    root: Path, epoch: int, stage: str, seconds: float, state: StageState = StageState.COMPUTED
) -> None:
    RunLog(LocalStore(root), "mine").begin(
        StageAttempt(
            run_id="mine",
            epoch=epoch,
            stage=stage,
            stage_key="k",
            state=state,
            host="h",
            pid=1,
            started_at=datetime.now(UTC),
            seconds=seconds,
        )
    )


@mutation(
    "a budget overlooks what ended an epoch", "tasks/stage/limiting.py",
    "wanted = {epoch, self._last}", "wanted = {epoch}",
)  # fmt: skip
def test_a_budget_follows_the_history_of_its_run(tmp_path: Path) -> None:
    config = configured(tmp_path, "limits.seconds=100")
    note(tmp_path, 0, "bootstrap", 40)
    note(tmp_path, 1, "rollout", 500, StageState.CACHED)
    budget = RunBudget(config)
    assert not budget.reached(1) and budget.spent.seconds == 40
    note(tmp_path, 1, "rollout", 20, StageState.FAILED)
    note(tmp_path, 1, "rollout", 30)
    assert not budget.reached(1) and budget.spent.seconds == 90
    note(tmp_path, 1, "publish", 10)  # after the last look at its epoch
    (found,) = budget.reached(2)
    assert (found.limit, found.value, found.spent) == ("seconds", 100, 100)


def test_a_limit_that_is_reached_before_is_said_first_and_then_ends_the_work(
    tmp_path: Path,
) -> None:
    config = configured(tmp_path, "limits.seconds=10")
    note(tmp_path, 0, "bootstrap", 40)
    heard: list[Event] = []

    def work() -> None:
        assert [event.kind for event in heard] == ["limit"]
        end = current_end()
        assert end is not None
        end.check("bootstrap", 0, lambda: True)
        end.check("evaluate", 0, lambda: False)

    with listening(heard.append), within_limits(config):
        to_the_end(work)
    first, last = heard
    assert first.message.startswith("limits.seconds 10 is reached, 40 are spent already")
    assert not first.facts and last.facts["next"] == "evaluate of epoch 0"
    left = len(START_STAGES[1:]) + 2 * len(EPOCH_STAGES)
    assert last.facts["stages_left"] == left and last.facts["spent"]["seconds"] == 40


def test_without_limits_nothing_is_read_or_said(tmp_path: Path) -> None:
    config, heard = configured(tmp_path), list[Event]()
    with listening(heard.append), within_limits(config):
        assert current_end() is None
    assert heard == []
