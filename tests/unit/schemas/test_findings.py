"""The view `findings`: each of its rules says its fault, and nothing is said of a clean run.

Invariants: every rule has a run that breaks it by a hair and one that is a hair below; a run breaks
the rule that it was made for and no other of its severity or graver; what an arm does not train is
not called skipped; what `epoch.trouble` warns of at once is the same that the view finds later;
a query of a finding runs, and gives the rows that it speaks of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import polars as pl
import pytest

from genenv_core.config.arms import ARMS, Arm
from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.epoch.trouble import (
    BREAKING,
    BROKEN,
    ENDLESS,
    NARROW,
    broken_attempts,
    endless_attempts,
    narrow_tasks,
)
from genenv_core.storage.sql.catalog import query
from schemas.registry import TABLES, schema
from schemas.relations import sql_name, views
from tests.mutations import mutation
from tests.unit.builders_tables import world

FINDINGS = "schemas/views/findings.sql"
TASKS = 16
Tables = dict[str, pl.DataFrame]
Change = Callable[[Tables], Tables]

FIRST, SECOND = pl.col("epoch") == 1, pl.col("epoch") == 2
NEW = SECOND & (pl.col("source") == "generated")
ENV, AGENT = pl.col("policy") == "env", pl.col("policy") == "agent"


def clean() -> Tables:
    """Return a run that learns: P(answer) rises by half in each epoch, by nearly as much a task."""
    tables = world(TASKS)
    tables["runs"] = tables["runs"].with_columns(fixed_tasks=pl.lit(None, pl.String))
    start, rise = (
        pl.lit(0.1),
        pl.col("epoch") * (0.2 + 0.01 * (pl.col("task_id").rank("dense") % 3)),
    )
    probability = pl.when(pl.col("mode") == "sampled").then(start + rise)
    tables["evaluations"] = tables["evaluations"].with_columns(answer_probability=probability)
    tables = put("epochs", pl.lit(True), p_hat=0.45, skill=0.45)(tables)
    tables["stage_runs"] = tables["stage_runs"].filter(pl.col("state") == "computed")
    return configured(tables, rwr={"kl_cap": 40.0}, generation={"tasks": TASKS - 1})


def configured(tables: Tables, **sections: Any) -> Tables:
    """Return the tables with other settings in `runs`."""
    known = json.loads(tables["runs"]["config"].item())
    config = json.dumps(
        known | {name: known.get(name, {}) | part for name, part in sections.items()}
    )
    return tables | {"runs": tables["runs"].with_columns(config=pl.lit(config))}


def put(table: str, where: pl.Expr, **values: Any) -> Change:
    """Return a change of columns in the rows that fit."""

    def changed(tables: Tables) -> Tables:
        frame = tables[table]
        columns = [
            pl.when(where).then(value if isinstance(value, pl.Expr) else pl.lit(value))
            .otherwise(pl.col(name)).cast(schema(table)[name]).alias(name)
            for name, value in values.items()
        ]  # fmt: skip
        return tables | {table: frame.with_columns(*columns)}

    return changed


def some(table: str, where: pl.Expr, share: float, **values: Any) -> Change:
    """Return a change in this share of the rows that fit, the first ones."""

    def changed(tables: Tables) -> Tables:
        rows = tables[table].with_row_index("place")
        chosen = rows.filter(where)["place"]
        first = chosen.head(round(share * len(chosen))).implode()
        made = put(table, pl.col("place").is_in(first), **values)(tables | {table: rows})
        return made | {table: made[table].drop("place")}

    return changed


def both(*changes: Change) -> Change:
    """Return changes one after the other."""

    def changed(tables: Tables) -> Tables:
        for change in changes:
            tables = change(tables)
        return tables

    return changed


def mended(tables: Tables) -> Tables:
    """Return a stage that failed once and was computed by the next attempt."""
    rows = tables["stage_runs"]
    rollout = SECOND & (pl.col("stage") == "rollout")
    later = rows.filter(rollout).with_columns(attempt=pl.col("attempt") + 1)
    failed = put("stage_runs", rollout, state="failed", error="no memory")(tables)["stage_runs"]
    return tables | {"stage_runs": pl.concat([failed, later])}


def noted(*, alike: bool, base_request: str = "bolts") -> Change:
    """Return an epoch of one family, as the stage notes it, whose requests are alike or not.

    All of them have the word bolts.
    """

    def changed(tables: Tables) -> Tables:
        tasks = tables["tasks"].filter(SECOND)
        unlike = pl.format("bolts {}", pl.col("generation_index"))
        tasks = tasks if alike else tasks.with_columns(prompt=unlike)
        base = (
            tables["tasks"]
            .head(2)
            .with_columns(family=pl.Series(["k1", "k2"]), prompt=pl.lit(base_request))
        )
        note = narrow_tasks(tasks, base, 2)[NARROW]
        return put("epochs", SECOND, tasks_note=note)(tables)

    return changed


def again(texts: int) -> Change:
    """Return an epoch 2 in which so many of the new tasks equal one of epoch 1."""
    earlier = pl.col("fingerprint").filter(FIRST & pl.col("valid")).first()
    return some("tasks", NEW & pl.col("valid"), texts / (TASKS - 1), fingerprint=earlier)


def of_fixed_set(tables: Tables) -> Tables:
    """Return a run whose tasks pi_env does not write: it chooses among those that are there."""
    runs = tables["runs"].with_columns(fixed_tasks=pl.lit('{"desk":40}'))
    return tables | {"runs": runs}


def set_to(**sections: Any) -> Change:
    return lambda tables: configured(tables, **sections)


def learned(*values: tuple[float, float]) -> Change:
    """Return P(answer) of epochs 0, 1 and so on: its mean, and how far tasks differ from it."""
    mean, apart = pl.lit(0.0), pl.lit(0.0)
    for epoch, (value, spread) in enumerate(values):
        mean = pl.when(pl.col("epoch") == epoch).then(value).otherwise(mean)
        apart = pl.when(pl.col("epoch") == epoch).then(spread).otherwise(apart)
    side = 2 * (pl.col("task_id").rank("dense") % 2).cast(pl.Int64) - 1
    return put("evaluations", pl.col("mode") == "sampled", answer_probability=mean + side * apart)


def solved(successes: int, skill: float) -> Change:
    """Return tasks of epoch 2 that are all solved as often, and the summary that says so."""
    groups = put("task_scores", NEW, successes=successes, p_hat=successes / 4)
    return both(groups, put("epochs", SECOND, p_hat=skill, skill=skill))


def predicted(p: float) -> Change:
    """Return tasks that were chosen for this success and are solved half of the time."""
    chosen = put("tasks", NEW & pl.col("valid"), choice="predicted", predicted_p=p)
    return both(solved(2, 0.5), chosen)


def weights(heaviest: float) -> Change:
    """Return an update of pi_env whose first row has this share of the weight."""

    def changed(tables: Tables) -> Tables:
        rows = tables["update_samples"]
        own = rows.filter(ENV & SECOND & (pl.col("weight") > 0))["row_id"]
        rest = (1 - heaviest) * len(own) / (len(own) - 1)
        value = pl.when(pl.col("row_id") == own[0]).then(heaviest * len(own)).otherwise(rest)
        here = ENV & SECOND & (pl.col("weight") > 0)
        return put("update_samples", here, weight=value)(tables)

    return changed


def clipped(share: float) -> Change:
    return put("checkpoints", AGENT & SECOND, metrics=json.dumps({"clip_fraction": share}))


def lengths(tokens: float) -> Change:
    """Return attempts of this length in epoch 2, three tokens in epoch 1, and no gain."""
    flat = learned((0.5, 0.1), (0.5, -0.1), (0.5, -0.1))
    return both(flat, put("epochs", SECOND, mean_response_tokens=tokens))


def fidelity(value: float) -> Change:
    return put("observations", SECOND, fidelity=value, content_similarity=value)


BROKEN_RUNS: dict[str, tuple[Change, Change | None, str, str | None, str]] = {
    # rule: (the run that breaks it, one a hair below, rule, subject, part of the words)
    "stage_failed": (
        put("stage_runs", SECOND & (pl.col("stage") == "rollout"), state="failed",
            error="no memory\nat line 3"),
        mended, "stage_failed", "rollout", "the stage rollout failed: no memory",
    ),
    "no_task": (
        put("epochs", SECOND, tasks_valid=0), put("epochs", SECOND, tasks_valid=15),
        "no_task", None, "none of the 16 texts of pi_env became a task; the commonest reason is "
        "unparseable",
    ),
    "broken": (
        some("traces", SECOND, 32 / 64, error="no tool"),
        some("traces", SECOND, 31 / 64, error="no tool"),
        "broken", None,
        "32 of 64 attempts ended in an error: no tool, the first of them e0002-g000000-s0000",
    ),
    "lost": (
        some("traces", SECOND, 2 / 64, error="gone", cause="engine"), None,
        "lost", "engine", "2 attempts were lost by the engine: gone",
    ),
    "cut_off": (
        some("traces", SECOND, 58 / 64, finish_reason="length"),
        some("traces", SECOND, 57 / 64, finish_reason="length"),
        "cut_off", None, "58 of 64 attempts were cut off at a bound of their length",
    ),
    "few_valid": (
        put("epochs", SECOND, tasks_valid=4), put("epochs", SECOND, tasks_valid=5),
        "few_valid", None, "4 of 16 texts of pi_env became tasks; the commonest reason against one "
        "is unparseable",
    ),
    "few_tasks": (
        set_to(generation={"tasks": 30}), set_to(generation={"tasks": 29}),
        "few_tasks", None, "15 new tasks were attempted where 30 are asked for",
    ),
    "narrow": (
        noted(alike=True), noted(alike=False), "narrow", None,
        "15 of 15 attempted tasks are of the family k1; the 15 attempted tasks have 1 different",
    ),
    "one_word": (
        noted(alike=False, base_request="9 nuts and 8 pipes in stock"), noted(alike=False),
        "narrow", None,
        "15 of 15 attempted tasks are of the family k1; 15 of 15 attempted tasks have the word "
        "'bolts', 7 times",
    ),
    "repeated": (
        again(8), again(7), "repeated", None, "50 % of the texts of pi_env repeat an earlier one",
    ),
    "repeated_by_writing": (
        again(15), both(again(15), of_fixed_set), "repeated", None,
        "94 % of the texts of pi_env repeat an earlier one",
    ),
    "one_family": (
        noted(alike=False), put("epochs", SECOND, tasks_note=""), "one_family", None,
        "15 of 15 attempted tasks are of the family k1: pi_env writes little else",
    ),
    "flawed": (
        some("certificates", SECOND, 1 / 135, passed=False), None,
        "flawed", None, "1 task has a flaw, most often ",
    ),
    "guessed": (
        put("tasks", NEW, chance=0.301), put("tasks", NEW, chance=0.29),
        "guessed", None, "a guess is right in 30 % of the attempts",
    ),
    "too_easy": (
        solved(4, 0.76), solved(4, 0.74), "too_easy", None,
        "the agent solves 76 % of the new tasks, and alpha is 50 %",
    ),
    "too_hard": (
        solved(0, 0.24), solved(0, 0.26), "too_hard", None,
        "the agent solves 24 % of the new tasks, and alpha is 50 %",
    ),
    "no_signal": (
        put("epochs", SECOND, share_zero_signal=0.75),
        put("epochs", SECOND, share_zero_signal=0.74), "no_signal", None,
        "all attempts have one reward in 75 % of the groups",
    ),
    "misjudged": (
        predicted(0.24), predicted(0.26),
        "misjudged", None, "the tasks chosen for a predicted success of 0.24 were solved 0.50",
    ),
    "skipped": (
        put("epochs", SECOND, env_action="skipped", env_note="no row"),
        put("epochs", SECOND, env_action="pulled", env_note="no row"),
        "skipped", "env", "the update of pi_env was skipped: no row",
    ),
    "skipped by the agent": (
        put("epochs", SECOND, agent_action="skipped"), None,
        "skipped", "agent", "the update of pi_agent was skipped",
    ),
    "one_row": (
        weights(0.51), weights(0.49), "one_row", "env", "one row has 51 % of the weight",
    ),
    "rolled_back": (
        put("epochs", SECOND, env_action="rolled_back", env_note="KL 50"), None,
        "rolled_back", "env", "the update of pi_env was rolled back: KL 50",
    ),
    "far_from_start": (
        put("epochs", SECOND, kl_env=40.0), put("epochs", SECOND, kl_env=39.9),
        "far_from_start", "env", "the KL of pi_env to its start is 40.0 nats, and its cap 40.0",
    ),
    "gate_closed": (
        put("checkpoints", SECOND & ENV, published=False, is_best=False, gate="kl_env",
            gate_detail="61 > 60"),
        None, "gate_closed", "env", "the gate kl_env kept the update of pi_env back: 61 > 60",
    ),
    "clipped": (
        clipped(0.3), clipped(0.29), "clipped", "agent", "30 % of the tokens were clipped",
    ),
    "untrue": (
        fidelity(0.69), fidelity(0.71), "untrue", "env",
        "64 of 64 answers of pi_env in the place of tools are wrong",
    ),
    "longer": (
        lengths(6.0), lengths(5.9), "longer", None,
        "the attempts grew from 3 to 6 tokens, and no gain is seen",
    ),
    "worse": (
        learned((0.5, 0.0), (0.45, 0.0), (0.45, 0.01)),
        learned((0.5, 0.0), (0.52, 0.0), (0.52, 0.01)),
        "worse", None, "the agent got worse: P(answer) on the test tasks 0.500 -> 0.450",
    ),
    "fell_back": (
        # The standard error of the fall is .04 / sqrt(15): .031 is 3.0 of them, .030 is 2.9.
        learned((0.1, 0.0), (0.531, 0.04), (0.5, 0.0)),
        learned((0.1, 0.0), (0.53, 0.04), (0.5, 0.0)),
        "fell_back", None, "P(answer) on the test tasks fell from 0.531 in epoch 1 to 0.500",
    ),
    "no_gain": (
        learned((0.5, 0.0), (0.51, 0.0), (0.51, 0.03)),
        learned((0.5, 0.0), (0.51, 0.0), (0.53, 0.03)),
        "no_gain", None, "no gain is seen: P(answer) on the test tasks +0.010, and the interval",
    ),
    "few_test_tasks": (
        # Half of the interval: 2.131 * s / 4, with s = spread * sqrt(16 / 15).
        learned((0.2, 0.0), (0.6, 0.1), (0.7, 0.182)),
        learned((0.2, 0.0), (0.6, 0.1), (0.7, 0.181)),
        "few_test_tasks", None, "the gain is known to ±0.10 only, by 16 test tasks",
    ),
}  # fmt: skip


def opened(runs: dict[str, Tables]) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB with these runs in the same tables, and the view with those below it.

    `catalog.connect` makes a scan for each run and table: with sixty runs it takes a minute.
    """
    con = duckdb.connect(":memory:")
    for table in TABLES:
        own = [
            tables[table].with_columns(run_id=pl.lit(run), arm=pl.lit(tables["runs"]["arm"].item()))
            for run, tables in runs.items()
            if table in tables
        ]
        nothing = pl.DataFrame(schema={**schema(table), "run_id": pl.String, "arm": pl.String})
        con.register("rows", pl.concat(own or [nothing]).to_arrow())
        con.execute(f'CREATE TABLE "rows of {table}" AS FROM rows')
        con.execute(f'CREATE VIEW "{sql_name(table)}" AS FROM "rows of {table}"')
        con.unregister("rows")
    for view in views():
        if not view.parameters:
            con.execute(view.create)
    return con


class Found:
    """The findings of all runs, and the tables that they were found in."""

    def __init__(self, rows: pl.DataFrame, con: duckdb.DuckDBPyConnection) -> None:
        self.rows, self.con = rows, con

    def of(self, run: str) -> list[dict[str, Any]]:
        return self.rows.filter(pl.col("run_id") == run).sort("epoch", "rule").to_dicts()


@pytest.fixture(scope="module")
def found() -> Iterator[Found]:
    """Return all these runs beside each other: NAME breaks a rule, `NAME, nearly` does not."""
    known = clean()
    runs = {"clean": known}
    for name, (broken, nearly, *_) in BROKEN_RUNS.items():
        runs[name] = broken(known)
        if nearly:
            runs[f"{name}, nearly"] = nearly(known)
    early = both(
        put("task_scores", FIRST & (pl.col("source") == "generated"), successes=4, p_hat=1.0),
        put("epochs", FIRST, p_hat=0.9, skill=0.9, share_zero_signal=0.9),
    )
    runs["first"] = early(known)
    still = put("epochs", SECOND, env_action="skipped", agent_action="skipped")(known)
    for arm in ARMS:
        frames = still["runs"].with_columns(arm=pl.lit(arm.value))
        runs[f"arm {arm}"] = still | {"runs": frames}
    with opened(runs) as con:
        yield Found(query(con, "FROM findings"), con)


def test_nothing_is_said_of_a_run_that_learns(found: Found) -> None:
    assert found.of("clean") == []


@mutation(
    "a threshold is a little higher", FINDINGS, "('no_signal', 'warning', 0.75,",
    "('no_signal', 'warning', 0.8,",
)  # fmt: skip
@mutation(
    "pi_env is told to write other tasks where it chooses among those that are there",
    "schemas/views/repeats.sql", "f.domain IS NULL AS own", "true AS own",
)  # fmt: skip
@mutation(
    "a threshold is never asked for", FINDINGS, "WHERE s.value >= r.threshold", "WHERE true",
)  # fmt: skip
@mutation(
    "a failed stage is found by an earlier attempt", FINDINGS,
    "ORDER BY attempt DESC) = 1", "ORDER BY attempt) = 1",
)  # fmt: skip
@mutation(
    "a fall is measured in standard deviations", FINDINGS,
    "stddev_samp(o.value - n.value) / sqrt(count(*)), 0)", "stddev_samp(o.value - n.value), 0)",
)  # fmt: skip
@pytest.mark.parametrize("name", BROKEN_RUNS)
def test_a_broken_run_says_its_fault(name: str, found: Found) -> None:
    _, nearly, rule, subject, words = BROKEN_RUNS[name]
    second = [one for one in found.of(name) if one["epoch"] == 2]
    (said,) = [one for one in second if one["severity"] != "note" or one["rule"] == rule]
    assert (said["rule"], said["subject"]) == (rule, subject)
    assert words in said["words"]
    assert said["value"] >= said["threshold"]
    assert said["advice"]
    if nearly:
        assert rule not in [one["rule"] for one in found.of(f"{name}, nearly")]


def test_every_rule_has_a_broken_run() -> None:
    (view,) = [one for one in views() if one.name == "findings"]
    rules = set(re.findall(r"^        \('(\w+)', '(?:failure|warning|note)'", view.select, re.M))
    assert rules == {rule for _, _, rule, _, _ in BROKEN_RUNS.values()}


@mutation(
    "the first pi_env is blamed for what it has not learned", FINDINGS,
    "WHEN epoch > 1 AND tasks_attempted >= 10", "WHEN tasks_attempted >= 10",
)  # fmt: skip
def test_epoch_1_is_not_blamed_for_the_first_pi_env(found: Found) -> None:
    assert found.of("first") == []


@mutation(
    "an arm that never trains pi_env is blamed for it", FINDINGS,
    "arm = 'genenv' AS trains_env", "true AS trains_env",
)  # fmt: skip
@pytest.mark.parametrize("arm", ARMS)
def test_what_an_arm_does_not_train_is_not_called_skipped(arm: Arm, found: Found) -> None:
    """Say in `trains_agent` and `trains_env` of the view what a further arm trains."""
    skipped = {one["subject"] for one in found.of(f"arm {arm}") if one["rule"] == "skipped"}
    trained = {"agent": ARMS[arm].trains_agent, "env": ARMS[arm].trains_env}
    assert skipped == {policy for policy, trains in trained.items() if trains}


def test_the_query_of_a_finding_gives_what_it_speaks_of(found: Found) -> None:
    asked = found.rows.filter(~pl.col("run_id").str.contains("nearly"))
    one_each = asked.unique("rule", keep="first", maintain_order=True)
    for row in one_each.iter_rows(named=True):
        assert query(found.con, row["query"]).height, row["rule"]


@mutation(
    "the view calls attempts cut off that the stage does not", FINDINGS,
    "('cut_off', 'warning', 0.9,", "('cut_off', 'warning', 0.95,",
)  # fmt: skip
@mutation(
    "the view calls attempts broken that the stage does not", FINDINGS,
    "('broken', 'warning', 0.5,", "('broken', 'warning', 0.45,",
)  # fmt: skip
def test_a_stage_warns_of_what_the_view_finds() -> None:
    known = world()
    row = known["traces"].filter(SECOND).head(1)
    counts = [(n, k) for n in (1, 2, 7, 10, 19, 20, 40) for k in range(n + 1)]
    frames = [
        pl.concat([row] * n).with_row_index("place").with_columns(
            epoch=pl.lit(epoch, pl.Int64),
            trace_id=pl.format("e{}-{}", pl.lit(epoch), pl.col("place")),
            error=pl.when(pl.col("place") < k).then(pl.lit("gone")).otherwise(pl.lit("")),
            finish_reason=pl.when(pl.col("place") < k).then(pl.lit("length"))
            .otherwise(pl.lit("stop")),
        ).drop("place")
        for epoch, (n, k) in enumerate(counts, 1)
    ]  # fmt: skip
    traces = pl.concat(frames).cast(schema("traces"))
    with opened({"run-a": {"traces": traces, "runs": known["runs"]}}) as con:
        seen = query(con, "SELECT epoch, rule FROM findings WHERE rule IN ('broken', 'cut_off')")
    for epoch, frame in enumerate(frames, 1):
        said = set(seen.filter(pl.col("epoch") == epoch)["rule"])
        warned = broken_attempts(frame, epoch)
        assert ("broken" in said) == bool({BROKEN, BREAKING} & set(warned)), counts[epoch - 1]
        cut = endless_attempts(frame["finish_reason"].to_list(), "it", RolloutConfig())
        assert ("cut_off" in said) == (ENDLESS in cut), counts[epoch - 1]
