"""What stages will take, predicted from stored ones.

Invariants: a prediction grows with the units of work and is from the nearest epoch; a stage of
another shape tells nothing, one with another learning rate does; without a stored stage there is no
number; this machine's stages count first; the limit that will be reached is named with its stage;
afterwards only runs that began before count.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from flows.cli.runs.predicted import Predicted, prediction_errors
from genenv_core.config.load import dump, resolve
from genenv_core.config.moved import ONE_CLASS
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import MEASURES, STAGES
from genenv_core.spending.predicting import Prediction, Predictor, first_reached, samples_of
from genenv_core.spending.shapes import SHAPES, likeness, units
from genenv_core.spending.spent import Spent
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.local import LocalStore
from schemas.enums import StageState
from tasks.stage.planning import Planned
from tests.mutations import mutation

PREDICTING = "genenv_core/spending/predicting.py"
SHAPES_FILE = "genenv_core/spending/shapes.py"
GRPO_FILE = "genenv_core/training/updates/grpo.py"

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def configured(root: Path, run: str, *overrides: str, day: int = 0) -> RunConfig:
    """Record a run that began on a day; returns its configuration."""
    fields = {"root": str(root), "run_id": run}
    config = resolve("tiny", overrides=overrides, fields=fields)
    RunLog(LocalStore(root), run).open(dump(config), BEGAN + timedelta(days=day))
    return config


def note(
    root: Path,
    run: str,
    stage: str,
    seconds: float,
    tokens: int | None = None,
    *,
    epoch: int = 1,
    day: int = 0,
    host: str = "here",
    state: StageState = StageState.COMPUTED,
) -> None:
    RunLog(LocalStore(root), run).begin(
        StageAttempt(
            run_id=run,
            epoch=epoch,
            stage=stage,
            stage_key="k",
            state=state,
            host=host,
            pid=1,
            started_at=BEGAN + timedelta(days=day),
            seconds=seconds,
            tokens=tokens,
            peak_memory=None if tokens is None else tokens * 1000,
        )
    )


def predicted(root: Path, config: RunConfig, stage: str, epoch: int) -> Prediction | None:
    return Predictor(config, samples_of(LocalStore(root), config), "here").predict(stage, epoch)


@mutation(
    "a stage without a shape is never predicted", SHAPES_FILE,
    "if not STAGES[name].model and name != LAST", 'if name in ("score", "filter")',
)  # fmt: skip
def test_every_stage_of_a_run_has_a_shape() -> None:
    """Write the shape of a further stage with a model into `SHAPES`."""
    assert SHAPES.keys() == STAGES.keys() - {MEASURES}
    values = dump(resolve("tiny"))
    assert all(likeness(stage, values) is not None for stage in SHAPES)
    assert units("rollout", values) == 8 * 4
    del values["compute"]  # as an older version would have it
    assert likeness("rollout", values) is None and likeness("score", values) is not None


@mutation(
    "a plan knows nothing of refills", SHAPES_FILE,
    'return _new_tasks(values) * values["rollout"]["n"]',
    'return values["generation"]["tasks"] * values["rollout"]["n"]',
)  # fmt: skip
@mutation(
    "an update with a refill is planned as one without", GRPO_FILE,
    'most = max(values["generation"]["tasks"], refill.groups)',
    'most = values["generation"]["tasks"]',
)  # fmt: skip
def test_a_plan_counts_the_most_attempts_that_a_refill_may_make() -> None:
    """The preset tiny attempts 8 tasks 4 times."""
    given = ["generation.candidates=3", "refill.groups=20", "grpo.max_groups=99"]
    assert units("rollout", dump(resolve("tiny", overrides=given))) == 24 * 4
    values = dump(resolve("tiny", overrides=[*given, "refill.max_tasks=22"]))
    assert units("rollout", values) == units("score", values) == 22 * 4
    assert units("grpo_update", values) == 20 * 4
    del values["refill"]  # as an older version would have it
    assert units("rollout", values) == units("grpo_update", values) == 8 * 4


@mutation(
    "a prediction does not grow with the work", PREDICTING,
    "median(one.seconds for one in used) * size", "median(one.seconds for one in used)",
)  # fmt: skip
def test_seconds_and_tokens_grow_with_the_work_and_memory_is_the_most(tmp_path: Path) -> None:
    configured(tmp_path, "past")
    for seconds, tokens in ((10.0, 1000), (30.0, 3000), (20.0, 2000)):
        note(tmp_path, "past", "rollout", seconds, tokens)
    note(tmp_path, "past", "rollout", 999.0, state=StageState.FAILED)
    twice = resolve("tiny", overrides=["rollout.n=8", "grpo.learning_rate=0.01"])
    found = predicted(tmp_path, twice, "rollout", 1)
    assert found is not None and (found.spent.seconds, found.tokens) == (40.0, 4000)
    assert (found.peak_memory, found.stages) == (3_000_000, 3)


def test_the_nearest_epoch_tells(tmp_path: Path) -> None:
    configured(tmp_path, "past")
    for epoch in (1, 2, 6):
        note(tmp_path, "past", "rollout", 10.0 * epoch, epoch=epoch)
    for epoch, from_epoch in ((1, 1), (3, 2), (5, 6), (12, 6)):
        found = predicted(tmp_path, resolve("tiny"), "rollout", epoch)
        assert found is not None and found.from_epoch == from_epoch
        assert found.spent.seconds == pytest.approx(10.0 * from_epoch) and found.tokens is None


@mutation(
    "a stage of another shape predicts", PREDICTING,
    "if likeness(s, recorded) == wanted[s] is not None}", "if wanted[s] is not None}",
)  # fmt: skip
@pytest.mark.parametrize(
    ("override", "stage"),
    [
        ("bootstrap.agent.layers=2", "rollout"),
        ("rollout.max_length=512", "rollout"),
        ("domain.options={max_calls: 5}", "score"),
        ("arm=random", "rwr_update"),
        ("compute.threads=2", "evaluate"),
        ("arm=base", "grpo_update"),
    ],
)
def test_another_shape_tells_nothing(tmp_path: Path, override: str, stage: str) -> None:
    configured(tmp_path, "past")
    note(tmp_path, "past", stage, 10.0)
    assert predicted(tmp_path, resolve("tiny"), stage, 1) is not None
    assert predicted(tmp_path, resolve("tiny", overrides=[override]), stage, 1) is None


@mutation(
    "what was measured before fields moved predicts nothing", PREDICTING,
    "recorded = as_now(info.config)", "recorded = info.config",
)  # fmt: skip
def test_a_run_from_before_fields_moved_predicts(tmp_path: Path) -> None:
    values = dump(configured(tmp_path, "past"))
    older = {"data": {**values["data"], "offline_file": None}, "teacher": {**ONE_CLASS}}
    RunLog(LocalStore(tmp_path), "past").open({**values, **older}, BEGAN)
    note(tmp_path, "past", "generate_tasks", 10.0)
    assert predicted(tmp_path, resolve("tiny"), "generate_tasks", 1) is not None


@mutation(
    "an evaluation that stood predicts one that is made", PREDICTING,
    "if one.stood == stood]", "if True]",
)  # fmt: skip
@mutation(
    "a plan counts the price of evaluations that stand", SHAPES_FILE,
    'stage == "evaluate" and epoch > 0 and not', "False and not",
)  # fmt: skip
@mutation(
    "nothing is predicted for an evaluation that stands, until one did", PREDICTING,
    "return self._for_nothing(stage, epoch) if stood else None", "return None",
)  # fmt: skip
def test_an_evaluation_that_stands_is_told_by_those_that_stood_and_else_takes_nothing(
    tmp_path: Path,
) -> None:
    base = configured(tmp_path, "plain", "arm=base")
    note(tmp_path, "plain", "evaluate", 10.0, 500, epoch=0)
    made, again = (predicted(tmp_path, base, "evaluate", epoch) for epoch in (0, 1))
    assert made and (made.spent.seconds, made.tokens, made.stages) == (10.0, 500, 1)
    assert again and (again.spent.seconds, again.tokens, again.stages) == (0.0, 0, 0)
    note(tmp_path, "plain", "evaluate", 0.1, 0, epoch=1)
    again = predicted(tmp_path, base, "evaluate", 2)
    assert again and (again.spent.seconds, again.tokens, again.stages) == (0.1, 0, 1)
    trained = predicted(tmp_path, resolve("tiny"), "evaluate", 2)
    assert trained and trained.spent.seconds == 10.0  # no arm makes sure that its updates skip


def test_a_plan_that_knows_whether_an_evaluation_stands_says_so(tmp_path: Path) -> None:
    config = configured(tmp_path, "past")
    note(tmp_path, "past", "evaluate", 10.0, 500)
    entries = [
        Planned("evaluate", epoch, "miss", stands=stands)
        for epoch, stands in enumerate((False, True, None))
    ]
    found = Predicted(LocalStore(tmp_path), config, entries)
    assert [one and one.spent.seconds for _, _, one in found.stages] == [10.0, 0.0, 10.0]


def test_stages_of_this_machine_count_first_unless_they_are_placed_elsewhere(
    tmp_path: Path,
) -> None:
    configured(tmp_path, "past")
    note(tmp_path, "past", "rollout", 10.0)
    note(tmp_path, "past", "rollout", 90.0, host="there")
    here = predicted(tmp_path, resolve("tiny"), "rollout", 1)
    there = predicted(tmp_path, resolve("tiny", overrides=["placement.rollout=gpu"]), "rollout", 1)
    assert here and there and (here.spent.seconds, there.spent.seconds) == (10.0, 50.0)


def test_the_limit_that_will_be_reached_is_named_with_its_stage() -> None:
    config = resolve("tiny", overrides=["limits.seconds=25"])
    one = Prediction(
        stage="x", epoch=1, spent=Spent(seconds=10), tokens=None, peak_memory=None, stages=1,
        from_epoch=1,
    )  # fmt: skip
    planned = [(1, "rollout", one), (1, "score", None), (1, "filter", one), (1, "pool", one)]
    assert first_reached(config, Spent(), planned) is None  # the last one may still begin
    found = first_reached(config, Spent(seconds=5), planned)
    assert found is not None and found[1:] == (1, "pool") and found[0][0].spent == 25


def test_a_plan_says_what_it_predicts_and_what_nothing_is_known_of(tmp_path: Path) -> None:
    configured(tmp_path, "past")
    note(tmp_path, "past", "rollout", 36.0, 1000)
    config = resolve(
        "tiny",
        overrides=["prices.hour=100", "limits.cost=0.5"],
        fields={"root": str(tmp_path), "run_id": "new"},
    )
    entries = [
        Planned("generate_tasks", 1, "hit"),
        Planned("rollout", 1, "miss"),
        Planned("score", 1, "unknown"),
    ]
    found = Predicted(LocalStore(tmp_path), config, entries)
    values = found.values()
    assert values["total"] == {"seconds": 36.0, "tokens": 1000, "cost": 1.0}
    assert values["unknown"] == ["score"] and values["stages"][1] == {"epoch": 1, "stage": "score"}
    assert found.lines() == [
        "no stored run of this shape: score",
        "it will stop before score of epoch 1: limits.cost 0.5 is reached, 1 are spent then",
    ]
    assert [column.header for column in found.table().columns][-1] == "cost"


@mutation(
    "what a run took is its own prediction", PREDICTING,
    'if before is None or row["started_at"] < before:', "if True:",
)  # fmt: skip
def test_afterwards_only_runs_that_began_before_count(tmp_path: Path) -> None:
    configured(tmp_path, "past", day=0)
    note(tmp_path, "past", "rollout", 30.0, 100, day=0)
    configured(tmp_path, "mine", day=1)
    note(tmp_path, "mine", "rollout", 20.0, 200, day=1)
    note(tmp_path, "mine", "score", 1.0, day=1)
    configured(tmp_path, "later", day=2)
    note(tmp_path, "later", "score", 5.0, day=2)
    rollout, everything = prediction_errors(LocalStore(tmp_path), "mine")
    assert rollout["stage"] == "rollout" and rollout["error"] == pytest.approx(0.5)
    assert (rollout["predicted_tokens"], rollout["tokens"]) == (100, 200)
    assert everything["stage"] == "all" and everything["stages"] == 1
    assert prediction_errors(LocalStore(tmp_path), "past") == []
