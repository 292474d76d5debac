"""What is spent, and which limit it reaches.

Invariants: what a run computed counts, failed attempts with their seconds, reused stages not at
all; each kind of token and each stage's hour has its price; a limit is reached when as much is
spent; the command that goes on raises every limit above what is spent.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from genenv_core.config.load import continued, dump, resolve, run_name
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.limits import LimitsConfig
from genenv_core.errors import ConfigError
from genenv_core.spending.spent import Reached, Spent, reached, spent_on
from genenv_core.spending.stop import facts_of, said_of
from genenv_core.storage.records.runs import StageAttempt
from schemas.enums import StageState
from tests.mutations import mutation

LOAD = "genenv_core/config/load.py"
SPENT = "genenv_core/spending/spent.py"

PRICED = (
    "prices.hour=3.6",
    "prices.hours={rollout: 36}",
    "prices.million_sampled=2",
    "prices.million_trained=5",
    "prices.million_endpoint=7",
)


def tiny(*overrides: str) -> RunConfig:
    return resolve("tiny", overrides=overrides)


def attempt(
    stage: str, state: StageState, seconds: float | None, tokens: int | None
) -> StageAttempt:
    return StageAttempt(
        run_id="a",
        epoch=1,
        stage=stage,
        stage_key="k",
        state=state,
        host="h",
        pid=1,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        seconds=seconds,
        tokens=tokens,
    )


@mutation(
    "a reused stage counts as spent", SPENT, "if one.state is not StageState.CACHED:", "if True:"
)
@pytest.mark.parametrize(
    ("stage", "state", "seconds", "tokens", "spent"),
    [
        ("rollout", StageState.COMPUTED, 100.0, 500_000, (100, 500_000, 1 + 1)),
        ("evaluate", StageState.COMPUTED, 1000.0, 0, (1000, 0, 1)),
        ("grpo_update", StageState.COMPUTED, 0.0, 1_000_000, (0, 1_000_000, 5)),
        ("rwr_update", StageState.COMPUTED, 0.0, 100_000, (0, 100_000, 0.5)),
        ("generate_tasks", StageState.COMPUTED, 0.0, 1_000_000, (0, 1_000_000, 2)),
        ("score", StageState.COMPUTED, 2000.0, None, (2000, 0, 2)),
        ("score", StageState.FAILED, 1000.0, None, (1000, 0, 1)),
        ("score", StageState.INTERRUPTED, None, None, (0, 0, 0)),
        ("rollout", StageState.CACHED, 100.0, None, (0, 0, 0)),
    ],
)
def test_what_an_attempt_spends(
    stage: str, state: StageState, seconds: float | None, tokens: int | None, spent: Any
) -> None:
    found = spent_on([attempt(stage, state, seconds, tokens)], tiny(*PRICED))
    assert (found.seconds, found.tokens) == spent[:2]
    assert found.cost == pytest.approx(spent[2])


def test_the_tokens_of_a_teachers_endpoint_have_their_own_price() -> None:
    taught = tiny(*PRICED, "arm=offline", "teacher.url=http://h/v1", "teacher.model_name=big")
    tokens = attempt("generate_tasks", StageState.COMPUTED, 0.0, 1_000_000)
    assert spent_on([tokens], taught).cost == pytest.approx(7)


@mutation(
    "a run spends one stage more than its limit", SPENT,
    "if getattr(spent, name) >= value", "if getattr(spent, name) > value",
)  # fmt: skip
@pytest.mark.parametrize(
    ("limits", "spent", "which"),
    [
        ({}, Spent(seconds=1e9, tokens=10**9, cost=1e9), []),
        ({"seconds": 10}, Spent(seconds=9.99), []),
        ({"seconds": 10}, Spent(seconds=10), ["seconds"]),
        ({"tokens": 5}, Spent(seconds=100, tokens=6), ["tokens"]),
        ({"tokens": 5, "cost": 2}, Spent(tokens=5, cost=1.99), ["tokens"]),
        ({"seconds": 1, "cost": 2}, Spent(seconds=1, cost=2), ["seconds", "cost"]),
    ],
)
def test_a_limit_is_reached_when_as_much_is_spent(
    limits: dict[str, Any], spent: Spent, which: list[str]
) -> None:
    assert [one.limit for one in reached(spent, LimitsConfig(**limits))] == which


@pytest.mark.parametrize(
    ("value", "spent", "higher"),
    [(1, 2113, 4300), (5000, 5000, 10000), (0.1, 0.123, 0.25), (10, 99, 200), (7, 7, 14)],
)
def test_the_limit_to_go_on_with_is_above_both(value: float, spent: float, higher: float) -> None:
    found = Reached(limit="tokens", value=value, spent=spent)
    assert found.higher == higher > spent


def test_what_a_stopped_run_says() -> None:
    config = tiny().model_copy(update={"run_id": "mine", "root": "/data"})
    limits = (
        Reached(limit="tokens", value=2000, spent=2113),
        Reached(limit="cost", value=0.5, spent=0.625),
    )
    left = [(1, "rollout"), (1, "score")]
    assert said_of(limits, left) == (
        "limits.tokens 2,000 is reached, 2,113 are spent, limits.cost 0.5 is reached, 0.625 are "
        "spent; 2 stages are left, from rollout of epoch 1 on"
    )
    facts = facts_of(config, limits, Spent(), left)
    assert facts["go_on"] == (
        "genenv resume mine --root /data --set limits.tokens=4300 --set limits.cost=1.3"
    )
    assert (facts["stages_left"], facts["next"]) == (2, "rollout of epoch 1")
    blank = facts_of(config.model_copy(update={"root": "my data"}), limits[:1], Spent(), left)
    assert blank["go_on"] == "genenv resume mine --root 'my data' --set limits.tokens=4300"


@mutation(
    "a limit of cost without prices is taken", "genenv_core/config/schema.py",
    "if limits.cost is not None and not self.prices.given:", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("limits.seconds=0", r"limits\.seconds: expected more than 0"),
        ("limits.seconds=-1", r"limits\.seconds: expected more than 0"),
        ("limits.seconds=.inf", r"limits\.seconds: expected a finite number"),
        ("limits.seconds=.nan", r"limits\.seconds: expected a finite number"),
        ("limits.tokens=1.5", r"limits\.tokens: expected a whole number"),
        ("limits.tokens=true", r"limits\.tokens: input should be a number, not true or false"),
        ("limits.cost=5", r"limits\.cost 5 counts nothing without prices: set one"),
        ("limits.money=5", r"limits\.money is no field"),
        ("prices.hour=-1", r"prices\.hour: expected 0 or more"),
        ("prices.hours={rolout: 1}", r"prices\.hours 'rolout' is no stage of bootstrap"),
        ("prices.hours={rollout: -1}", r"prices\.hours\.rollout: expected 0 or more"),
    ],
)
def test_bad_limits_and_prices_are_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        tiny(override)


def test_a_run_that_measures_a_model_has_no_limits() -> None:
    with pytest.raises(ConfigError, match=r"limits\.tokens does nothing here"):
        tiny("limits.tokens=5", "arm=base", "benchmark.model=/models/a")


@mutation(
    "a run with another limit is another run", LOAD,
    '"measure", "roots", "limits", "prices")', '"measure", "roots", "prices")',
)  # fmt: skip
@mutation("a resumed run takes any change", LOAD, "    if fixed:", "    if False:")
def test_a_run_with_other_limits_is_the_same_run_and_goes_on_with_them() -> None:
    config = tiny("limits.tokens=5")
    assert run_name(config, "tiny") == run_name(tiny(*PRICED), "tiny")
    recorded = dump(config)
    assert continued(recorded, "r", {"limits.tokens": 9}, "--set").limits.tokens == 9
    assert continued(recorded, "r", {"limits.tokens": None}, "--set").limits.given == {}
    assert continued(recorded, "r", {"limits": {"seconds": 3}}, "--set").limits.given == {
        "seconds": 3,
        "tokens": 5,
    }
    with pytest.raises(ConfigError, match=r"^--set: rwr\.steps: a run goes on with the config"):
        continued(recorded, "r", {"rwr.steps": 3}, "--set")
    del recorded["limits"], recorded["prices"]  # of an older version
    assert continued(recorded, "r", {}, "run a") == tiny()
