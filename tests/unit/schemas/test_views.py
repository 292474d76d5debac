"""The numbers in the views.

Invariants: the numbers are those of the algorithm's own functions, of polars or computed by hand,
never of the same SQL; what_if under a run's own settings repeats the run's stored values, bit for
bit; each reason of `suspects` has a planted case that it finds and a clean one that it ignores;
runs that share rows are kept apart; no view compares all rows with all; the queries of README.md
and docs/sql.md run.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
import scipy.stats
from polars.testing import assert_frame_equal

from genenv_core.algorithm.reward import judged_p_hat, judged_skill
from genenv_core.benchmarks.measuring.beside import paired_difference
from genenv_core.config.sections.curriculum import CurriculumConfig, Level
from genenv_core.config.stages import EPOCH_STAGES, MEASURES, STAGES
from genenv_core.epoch.pooling import pools
from genenv_core.epoch.rows import frame, to_tasks
from genenv_core.epoch.scoring import task_rows
from genenv_core.epoch.selecting import select
from genenv_core.storage.records.parquet import to_parquet
from genenv_core.storage.sql.catalog import RunSource, connect, query, setup, tables_named
from genenv_core.storage.sql.duck import build, build_named, start
from genenv_core.types import Flaw
from schemas.questions import questions
from schemas.registry import TABLES
from schemas.relations import Relation, describe
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_tables import CONFIG, START, world

HISTORY = ("stage_runs", "runs")
REPOSITORY = Path(__file__).parents[3]
Tables = dict[str, pl.DataFrame]


VIEWS = [relation for relation in describe() if relation.kind != "table"]


def ask(folder: Path, tables: Tables, sql: str, runs: Sequence[str] = ("run-a",)) -> pl.DataFrame:
    """Return the rows of a query over runs that all have these tables.

    Only the tables and views that the query names, and those below them, are built.
    """
    named = {name: tables[name] for name in tables_named(sql) & set(tables)}
    whole = setup(sources_of(folder, named, runs))
    waiting = dict(whole.views)
    with start("1GB") as con:
        build(con, replace(whole, views={}))
        build_named(con, waiting, sql)
        return query(con, sql)


def sources_of(folder: Path, tables: Tables, runs: Sequence[str]) -> list[RunSource]:
    """Return runs that all have these tables, written to a folder."""
    files: dict[str, list[str]] = {}
    for table in set(tables) - set(HISTORY):
        path = folder / f"{table}.parquet"
        path.write_bytes(to_parquet(table, tables[table]))
        files[table] = [str(path)]
    frames = {table: tables[table] for table in HISTORY if table in tables}
    return [RunSource(run, "genenv", files, frames) for run in runs]


def opened(
    folder: Path, tables: Tables, runs: Sequence[str] = ("run-a",)
) -> duckdb.DuckDBPyConnection:
    """Return the tables and views of runs that all have these tables."""
    return connect(sources_of(folder, tables, runs))


@pytest.fixture(scope="module")
def of_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Return the tables of the world as it is."""
    with opened(tmp_path_factory.mktemp("world"), world()) as con:
        yield con


@pytest.fixture(scope="module")
def of_nothing() -> Iterator[duckdb.DuckDBPyConnection]:
    """Return tables without a run."""
    with connect([]) as con:
        yield con


@pytest.fixture(scope="module")
def one_and_two(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]]:
    """Return the tables of a larger world as those of run-a alone, and of run-a and run-b."""
    one, two = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    tables = world(16)
    with opened(one, tables) as alone, opened(two, tables, ("run-a", "run-b")) as both:
        yield alone, both


def put(frame: pl.DataFrame, key: str, values: dict[str, Any], column: str) -> pl.DataFrame:
    """Return a frame with new values in a column, for the keys in `values`."""
    known = [values.get(k, old) for k, old in zip(frame[key], frame[column], strict=True)]
    return frame.with_columns(pl.Series(column, known, dtype=frame.schema[column]))


def configured(tables: Tables, **curriculum: Any) -> Tables:
    """Return the tables with other settings in `runs`."""
    config = CONFIG | {"curriculum": {**CONFIG["curriculum"], **curriculum}}
    return tables | {"runs": tables["runs"].with_columns(config=pl.lit(json.dumps(config)))}


def rated(tables: Tables, outcomes: list[tuple[str, int, int]], alpha: float) -> Tables:
    """Return tables of one epoch whose tasks are (family, successes, n)."""
    source = tables["tasks"].filter((pl.col("epoch") == 1) & pl.col("valid")).head(1)
    group = tables["task_scores"].filter(pl.col("source") == "generated").head(1)
    tasks, groups = list[pl.DataFrame](), list[pl.DataFrame]()
    for index, (family, k, n) in enumerate(outcomes):
        task_id = pl.lit(f"t{index}").alias("task_id")
        tasks.append(source.with_columns(task_id, pl.lit(family).alias("family")))
        numbers = {"n": n, "successes": k, "p_hat": k / n}
        values = [pl.lit(value).cast(group.schema[name]).alias(name)
                  for name, value in numbers.items()]  # fmt: skip
        groups.append(group.with_columns(task_id, pl.lit(f"g{index}").alias("group_id"), *values))
    made = {"tasks": pl.concat(tasks), "task_scores": pl.concat(groups), "runs": tables["runs"]}
    return configured(made, alpha=alpha)


def test_settings_are_the_runs_own(of_world: duckdb.DuckDBPyConnection) -> None:
    row = query(of_world, "FROM settings").row(0)
    of_rwr = (1.0, 0.0, "row")
    assert row == ("run-a", "genenv", None, 0.5, 4.0, 0.25, "task", True, "alpha", *of_rwr, 4, 0)


def test_settings_of_a_configuration_with_all_of_them(tmp_path: Path) -> None:
    config = {**CONFIG, "seed": 3, "refill": {"groups": 2}, "curriculum": {"track": 0.5}}
    config |= {"rwr": {"weight_by": "family", "pay": "signal"}}
    runs = world()["runs"].with_columns(config=pl.lit(json.dumps(config)))
    sql = "SELECT seed, refill, track, weight_by, pay FROM settings"
    assert ask(tmp_path, world() | {"runs": runs}, sql).rows() == [(3, 2, 0.5, "family", "signal")]


DIFFERING = "schemas/views/differing_settings.sql"


@mutation(
    "a setting that one run alone has is no difference", DIFFERING,
    " OR runs_with_it < runs", "",
)  # fmt: skip
@mutation(
    "entries of a list are settings of their own", DIFFERING,
    " AND NOT contains(t.fullkey, '[')", "",
)  # fmt: skip
@mutation("names are settings", DIFFERING, "('run_id', 'root')", "('root')")
def test_differing_settings_are_found_in_the_configurations(tmp_path: Path) -> None:
    of_a = {"run_id": "run-a", "root": "x", "seed": 0, "rwr": {"lambda": 4.0, "steps": 8},
            "measure": {"benchmarks": ["bfcl"]}, "teacher": {}}  # fmt: skip
    of_b = {"run_id": "run-b", "root": "y", "seed": 1, "rwr": {"lambda": 0, "steps": 8},
            "measure": {"benchmarks": ["bfcl", "other"]}, "teacher": {"file": "t"}}  # fmt: skip
    sources: list[RunSource] = []
    for config in (of_a, of_b):
        runs = world()["runs"].with_columns(config=pl.lit(json.dumps(config)))
        sources += sources_of(tmp_path, {"runs": runs}, (str(config["run_id"]),))
    with start("1GB") as con:
        asked = "SELECT setting, run_id, value FROM differing_settings ORDER BY setting, run_id"
        whole = setup(sources)
        build(con, replace(whole, views={}))
        build_named(con, dict(whole.views), asked)
        rows = query(con, asked).rows()
    assert rows == [
        ("measure.benchmarks", "run-a", '["bfcl"]'),
        ("measure.benchmarks", "run-b", '["bfcl","other"]'),
        ("rwr.lambda", "run-a", "4.0"),
        ("rwr.lambda", "run-b", "0"),
        ("seed", "run-a", "0"),
        ("seed", "run-b", "1"),
        ("teacher.file", "run-b", '"t"'),
    ]


def test_curriculum_by_hand(of_world: duckdb.DuckDBPyConnection) -> None:
    # New tasks of an epoch succeed 0, 1 and 2 times of 4; the base task does not count.
    rows = query(of_world, "FROM curriculum ORDER BY epoch").to_dicts()
    assert [row["epoch"] for row in rows] == [1, 2]
    assert rows[1] == pytest.approx(
        {
            "run_id": "run-a",
            "arm": "genenv",
            "epoch": 2,
            "policy_version": 1,
            "env_policy_version": 1,
            "tasks": 3,
            "attempts": 12,
            "alpha": 0.5,
            "p_hat": 3 / 12,
            "skill": 3 / 12,
            "r_env": (math.exp(-1) + math.exp(-0.25) + 1) / 3,
            "share_in_band": 2 / 3,
            "share_zero_signal": 1 / 3,
            "difficulty": 1.0,
            "difficulty_sd": 0.0,
            "response_tokens": 3.0,
            "response_tokens_p90": 3.0,
        }
    )


def test_curriculum_lengths_are_of_new_tasks_only(tmp_path: Path) -> None:
    tables = world()
    base = pl.col("task_id").str.contains("base")
    traces = tables["traces"].with_columns(
        response_tokens=pl.when(base).then(900).otherwise(pl.col("sample_index") * 10)
    )
    rows = ask(tmp_path, tables | {"traces": traces}, "FROM curriculum WHERE epoch = 1")
    new = traces.filter((pl.col("epoch") == 1) & ~base)["response_tokens"]
    assert rows["response_tokens"].item() == new.mean() == 15.0
    assert rows["response_tokens_p90"].item() == new.quantile(0.9, "linear") == 30.0


# Wilson's interval of 8 of 10 and of 0 of 10, as tables of it print them.
@pytest.mark.parametrize(("k", "low", "high"), [(8, 0.4902, 0.9433), (0, 0.0, 0.2775)])
def test_calibration_wilson_interval(tmp_path: Path, k: int, low: float, high: float) -> None:
    tables = rated(world(), [("k1", k, 10)], alpha=0.5)
    rows = ask(tmp_path, tables, "FROM calibration ORDER BY scope")
    assert rows["scope"].to_list() == ["epoch", "family"]
    assert rows["family"].to_list() == [None, "k1"]
    for row in rows.iter_rows(named=True):
        assert (row["tasks"], row["n"], row["p_hat"], row["alpha"]) == (1, 10.0, k / 10, 0.5)
        assert row["wilson_low"] == pytest.approx(low, abs=5e-5)
        assert row["wilson_high"] == pytest.approx(high, abs=5e-5)
        nothing = ("design_effect", "cluster_low", "cluster_high", "alpha_inside", "rank_noise")
        assert [row[name] for name in nothing] == [None] * 5
        assert row["ranked_pairs"] == 0


@pytest.mark.parametrize(
    ("ks", "effect"),
    [
        # p .5; sum of (k - pn)^2 is 4 + 4, so 2/1 * 8 / (8 * .25) = 8.
        ([0, 4], 8.0),
        # p .5; the squares sum to 2, so 4/3 * 2 / (16 * .25) = .67, which counts as 1.
        ([1, 3, 2, 2], 1.0),
        # All alike: each task counts as one attempt.
        ([4, 4, 4], 4.0),
    ],
)
def test_calibration_counts_attempts_at_one_task_as_alike(
    tmp_path: Path, ks: list[int], effect: float
) -> None:
    tables = rated(world(), [("k1", k, 4) for k in ks], alpha=0.9)
    row = ask(tmp_path, tables, "FROM calibration WHERE scope = 'epoch'").to_dicts()[0]
    assert row["design_effect"] == pytest.approx(effect)
    p, m, z = sum(ks) / (4 * len(ks)), 4 * len(ks) / effect, 1.959963984540054
    centre, half = p + z * z / (2 * m), z * math.sqrt(p * (1 - p) / m + (z / (2 * m)) ** 2)
    low, high = (centre - half) / (1 + z * z / m), (centre + half) / (1 + z * z / m)
    assert row["cluster_low"] == pytest.approx(low)
    assert row["cluster_high"] == pytest.approx(high)
    assert row["alpha_inside"] == (low <= 0.9 <= high)
    assert row["cluster_low"] <= row["wilson_low"] <= p <= row["wilson_high"] <= 1


@mutation(
    "a coin's success is at alpha", "schemas/views/calibration.sql",
    "c.chance + (1 - c.chance) * c.alpha BETWEEN", "c.alpha BETWEEN",
)  # fmt: skip
def test_calibration_looks_for_the_success_of_alpha_above_chance(tmp_path: Path) -> None:
    tables = rated(world(), [("k1", 4, 8)] * 40 + [("k2", 6, 8)] * 40, alpha=0.5)
    tables["tasks"] = tables["tasks"].with_columns(chance=pl.lit(0.5))
    rows = ask(tmp_path, tables, "FROM calibration WHERE scope = 'family' ORDER BY family")
    assert rows["chance"].to_list() == [0.5, 0.5]
    assert rows["alpha_inside"].to_list() == [False, True]
    # All ranks are equal but for luck: below chance all tasks are alike.
    assert rows["ranked_pairs"].to_list() == [0, 0]


def test_calibration_rank_noise_by_hand(tmp_path: Path) -> None:
    # One attempt each, alpha 1: the task that succeeded ranks first. A fresh attempt repeats its
    # outcome with probability (1 + 1/2) / 2 = 3/4. Reversed: 1/16; tied: 6/16, which counts half.
    tables = rated(world(), [("k1", 1, 1), ("k2", 0, 1)], alpha=1.0)
    rows = ask(tmp_path, tables, "FROM calibration ORDER BY scope, family").to_dicts()
    assert rows[0]["ranked_pairs"] == 1
    assert rows[0]["rank_noise"] == pytest.approx(1 / 16 + 3 / 16)
    assert [row["ranked_pairs"] for row in rows[1:]] == [0, 0]
    assert [row["rank_noise"] for row in rows[1:]] == [None, None]


def test_calibration_rank_noise_is_that_of_every_pair(tmp_path: Path) -> None:
    outcomes = [("a", k, 8) for k in (0, 1, 3, 5, 8, 8)] + [("b", k, 4) for k in (0, 1, 2)]
    tables = rated(world(), outcomes, alpha=0.4)

    def fresh(k: int, n: int) -> list[tuple[float, float]]:
        def beta(a: float, b: float) -> float:
            return math.gamma(a) * math.gamma(b) / math.gamma(a + b)

        return [
            (
                abs(j / n - 0.4),
                math.comb(n, j) * beta(k + j + 0.5, 2 * n - k - j + 0.5)
                / beta(k + 0.5, n - k + 0.5),
            )
            for j in range(n + 1)
        ]  # fmt: skip

    noise: list[float] = []
    for (_, k1, n1), (_, k2, n2) in combinations(outcomes, 2):
        gap = abs(k1 / n1 - 0.4) - abs(k2 / n2 - 0.4)
        if abs(gap) > 1e-9:
            noise.append(0.0)
            for d1, q1 in fresh(k1, n1):
                for d2, q2 in fresh(k2, n2):
                    tie = abs(d1 - d2) < 1e-9
                    noise[-1] += q1 * q2 * (0.5 if tie else float((d1 - d2) * gap < 0))
    row = ask(tmp_path, tables, "FROM calibration WHERE scope = 'epoch'").to_dicts()[0]
    assert row["ranked_pairs"] == len(noise)
    assert row["rank_noise"] == pytest.approx(sum(noise) / len(noise))
    assert 0 < row["rank_noise"] < 0.5


@pytest.mark.slow
def test_calibration_intervals_cover_simulated_epochs(tmp_path: Path) -> None:
    # 400 epochs of 30 tasks, whose true success rates have mean 0.5 and lie mostly at the ends.
    rng, epochs, tasks, n = np.random.default_rng(0), 400, 30, 8
    p = rng.beta(0.5, 0.5, (epochs, tasks))
    k, fresh = rng.binomial(n, p), rng.binomial(n, p)
    tables = rated(world(), [("k1", int(x), n) for x in k.ravel()], alpha=0.5)
    epoch = pl.Series("epoch", np.repeat(np.arange(epochs), tasks))
    tables["task_scores"] = tables["task_scores"].with_columns(epoch)
    rows = ask(tmp_path, tables, "FROM calibration WHERE scope = 'epoch' ORDER BY epoch")
    assert rows.height == epochs
    covered = {
        name: rows.select((pl.col(f"{name}_low") < 0.5) & (pl.col(f"{name}_high") > 0.5)).mean()
        for name in ("wilson", "cluster")
    }
    assert 0.92 < covered["cluster"].item() < 0.98
    assert covered["wilson"].item() < 0.7  # attempts at one task are no independent attempts
    flips: list[float] = []
    for before, after in zip(abs(k / n - 0.5), abs(fresh / n - 0.5), strict=True):
        order = np.sign(before[:, None] - before)
        again = np.sign(after[:, None] - after)
        flips.append(((1 - order * again) / 2)[order != 0].mean())
    assert rows["rank_noise"].mean() == pytest.approx(np.mean(flips), abs=0.005)


def test_failures_by_hand(of_world: duckdb.DuckDBPyConnection) -> None:
    rows = query(of_world, "FROM failures ORDER BY epoch").to_dicts()
    # 0, 1, 2 and 3 successes of 4: 10 of 16 fail.
    assert rows[0] == {
        "run_id": "run-a",
        "arm": "genenv",
        "epoch": 1,
        "cause": "agent",
        "failure": "wrong arguments",
        "attempts": 10,
        "share": 0.625,
        "tasks": 4,
        "truncated": 0,
        "response_tokens": 3.0,
        "example_trace_id": "e0001-g000000-s0000",
        "example_task_id": "e0001-t000000",
        "example_error": "",
    }
    assert [row["epoch"] for row in rows] == [1, 2]


def test_what_was_lost_is_a_failure_of_its_cause(tmp_path: Path) -> None:
    tables = world()
    lost = pl.col("trace_id") == "e0001-g000000-s0000"
    broken = {"cause": "engine", "error": "503: server gone", "finish_reason": "error"}
    traces = tables["traces"].with_columns(
        pl.when(lost).then(pl.lit(value)).otherwise(pl.col(name)).alias(name)
        for name, value in broken.items()
    )
    tables |= {"traces": traces, "scores": tables["scores"].filter(~lost)}
    sql = "SELECT cause, failure, attempts, share, example_error FROM failures WHERE epoch = 1"
    assert ask(tmp_path, tables, f"{sql} ORDER BY cause").rows() == [
        ("agent", "wrong arguments", 9, 0.5625, ""),
        ("engine", "error", 1, 0.0625, "503: server gone"),
    ]
    # A measurement of a benchmark scores its items elsewhere: what was lost is part of all of it.
    measured = tables | {"scores": tables["scores"].clear()}
    assert ask(tmp_path, measured, sql).rows() == [
        ("engine", "error", 1, 0.0625, "503: server gone")
    ]


def test_fidelity_by_hand(tmp_path: Path) -> None:
    tables = world()
    bad = tables["observations"].filter(pl.col("epoch") == 1)["trace_id"][2]
    heard = tables["observations"].with_columns(
        *(
            pl.when(pl.col("trace_id") == bad).then(value).otherwise(pl.col(name)).alias(name)
            for name, value in (
                ("same_state", pl.lit(False)),
                ("content_similarity", pl.lit(None, pl.Float64)),
                ("fidelity", pl.lit(0.0)),
                ("true_content", pl.lit(None, pl.String)),
            )
        )
    )
    of_env = (pl.col("policy") == "env") & (pl.col("epoch") == 1)
    measured = json.dumps({"fidelity": 0.75, "fidelity_se": 0.0625, "kl_env": 1.0})
    checkpoints = tables["checkpoints"].with_columns(
        metrics=pl.when(of_env).then(pl.lit(measured)).otherwise(pl.col("metrics"))
    )
    tables |= {"observations": heard, "checkpoints": checkpoints}
    first, second = ask(tmp_path, tables, "FROM fidelity ORDER BY epoch").to_dicts()
    # Of 16 answers, the first of each of four groups has .5, the others 1, and this one nothing.
    assert first == {
        "run_id": "run-a",
        "arm": "genenv",
        "epoch": 1,
        "observations": 16,
        "attempts": 16,
        "schema": 1.0,
        "state": 15 / 16,
        "content": 13 / 15,
        "fidelity": 13 / 16,
        "wrong": 5,
        "candidate": 0.75,
        "candidate_se": 0.0625,
        "candidate_gate": "open",
        "example_trace_id": bad,
        "example_turn": 0,
        "example_said": "recorded",
        "example_true": None,
    }
    assert (second["fidelity"], second["candidate"]) == (14 / 16, None)
    assert second["example_trace_id"] == "e0002-g000000-s0000"
    believed = ask(tmp_path, tables, "SELECT fidelity FROM evidence ORDER BY epoch")
    assert believed["fidelity"].to_list() == [13 / 16, 14 / 16]


def test_a_run_with_executed_tools_has_no_fidelity(tmp_path: Path) -> None:
    tables = world() | {"observations": world()["observations"].clear()}
    assert ask(tmp_path, tables, "FROM fidelity").is_empty()
    believed = ask(tmp_path, tables, "SELECT fidelity FROM evidence")
    assert believed["fidelity"].to_list() == [None, None]


def test_failures_are_grouped_and_add_up(tmp_path: Path) -> None:
    tables = world(16)
    scores = tables["scores"].with_columns(
        failure=pl.when("success").then(pl.lit("")).otherwise(pl.col("trace_id").str.slice(-1))
    )
    rows = ask(tmp_path, tables | {"scores": scores}, "FROM failures ORDER BY epoch, failure")
    expected = (
        scores.filter(~pl.col("success"))
        .group_by("epoch", "failure")
        .agg(pl.len().alias("attempts"), pl.min("trace_id").alias("example_trace_id"))
        .sort("epoch", "failure")
    )
    assert rows["attempts"].to_list() == expected["attempts"].to_list()
    assert rows["example_trace_id"].to_list() == expected["example_trace_id"].to_list()


def test_taught_by_hand(tmp_path: Path) -> None:
    tables = world()
    columns = "family, attempts, groups_attempted, groups_with_signal, groups, loss_tokens"
    sql = f"SELECT {columns}, alignment, alignment_mean, alignment_se, share FROM taught"
    measured = tables["influence"].filter(epoch=1)
    assert measured["alignment"].to_list() == [0.25, 0.5, 0.75, 1.0]
    assert measured["share"].to_list() == [0.125, 0.125, 0.125, 0.625]
    # The first group is of another family, and of an older epoch: this one did not attempt it.
    first = measured["task_id"][0]
    other = pl.when(pl.col("task_id") == first).then(pl.lit("rare")).otherwise("family")
    tables["tasks"] = tables["tasks"].with_columns(other.alias("family"))
    past = tables["task_scores"].filter((pl.col("epoch") == 1) & (pl.col("task_id") == first))
    tables["task_scores"] = tables["task_scores"].join(past, on="group_id", how="anti")
    flat = tables["task_scores"].filter(epoch=1)["zero_signal"].sum()
    rows = ask(tmp_path, tables, f"{sql} WHERE epoch = 1 ORDER BY share DESC").rows()
    assert [row[:6] for row in rows] == [
        ("k1", 12, 3, 3 - flat, 3, 36),
        ("rare", 0, 0, 0, 1, 12),
    ]
    assert rows[0][6:] == pytest.approx((2.25, 0.75, 0.25 / 3**0.5, 0.875))
    assert rows[1][6:] == (0.25, 0.25, None, 0.125)
    tables["influence"] = tables["influence"].clear()
    assert ask(tmp_path, tables, sql).is_empty()


def test_task_history_of_a_task_that_comes_again(tmp_path: Path) -> None:
    tables = world()
    sql = "FROM task_history WHERE task_id = 'e0000-base-000000' ORDER BY occasion"
    rows = ask(tmp_path, tables, sql).to_dicts()
    assert [row["epoch"] for row in rows] == [1, 2]
    assert [row["occasion"] for row in rows] == [1, 2]
    assert [row["policy_version"] for row in rows] == [0, 1]
    assert [row["p_hat_before"] for row in rows] == [None, 0.75]
    assert {row["env_reason"] for row in rows} == {"not_in_update"}
    assert [row["agent_updates"] for row in rows] == ["1, 2", "2"]
    assert [row["env_updates"] for row in rows] == [None, None]
    new = "SELECT task_id, agent_reason, env_reason, env_updates FROM task_history ORDER BY task_id"
    assert ask(tmp_path, tables, f"{new} LIMIT 3 OFFSET 2").rows() == [
        ("e0001-t000000", "below_band", "below_band", None),
        ("e0001-t000001", "kept", "kept", "1"),
        ("e0001-t000002", "kept", "kept", "1"),
    ]


def test_task_history_joins_equal_tasks(tmp_path: Path) -> None:
    tables = world()
    again = put(tables["tasks"], "task_id", {"e0002-t000002": "1-1"}, "fingerprint")
    sql = "FROM task_history WHERE fingerprint = '1-1' ORDER BY epoch"
    rows = ask(tmp_path, tables | {"tasks": again}, sql)
    assert rows["task_id"].to_list() == ["e0001-t000001", "e0002-t000002"]
    assert rows["p_hat"].to_list() == [0.25, 0.5]
    assert rows["p_hat_before"].to_list() == [None, 0.25]


@mutation(
    "a generation of the KL alone trained pi_env", "schemas/views/uses.sql",
    "WHERE weight IS NULL OR weight > 0", "WHERE TRUE",
)  # fmt: skip
def test_task_history_names_the_updates_that_learned(of_world: duckdb.DuckDBPyConnection) -> None:
    """The first of an epoch's tasks lies outside the band: only the KL was along its generation."""
    sql = "SELECT task_id, env_updates FROM task_history WHERE epoch = 1 ORDER BY task_id"
    assert query(of_world, sql).rows() == [
        ("e0000-base-000000", None),
        ("e0001-t000000", None),
        ("e0001-t000001", "1"),
        ("e0001-t000002", "1"),
    ]


@mutation(
    "a task that pi_env did not write is rejected from its update", "schemas/views/rejections.sql",
    ", 'not_attempted', 'not_in_update')", ", 'not_attempted')",
)  # fmt: skip
def test_rejections_of_tasks_and_of_groups(of_world: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "SELECT kept_from, rejection, rejections, share, example_task_id, example_detail, "
        "example_text FROM rejections WHERE epoch = 1 ORDER BY ALL"
    )
    assert query(of_world, sql).rows() == [
        ("agent", "below_band", 1, 0.25, "e0001-t000000", "p_hat 0", "* 3 nuts 0"),
        ("env", "below_band", 1, 1 / 3, "e0001-t000000", "p_hat 0", "* 3 nuts 0"),
        ("tasks", "unparseable", 1, 0.25, "e0001-t000003", "no operator", "nuts nuts"),
    ]
    later = query(of_world, "SELECT epoch FROM rejections WHERE kept_from = 'tasks' ORDER BY 1")
    assert later["epoch"].to_list() == [1, 2]


@mutation(
    "rows of the KL alone are behind a checkpoint", "schemas/views/lineage.sql",
    "WHERE u.weight IS NULL OR u.weight > 0", "WHERE TRUE",
)  # fmt: skip
def test_lineage_walks_to_the_parents_and_back(tmp_path: Path) -> None:
    tables = world()
    rows = ask(tmp_path, tables, "FROM lineage")
    assert rows["task_id"].null_count() == 0
    last = rows.filter(pl.col("checkpoint") == "agent-digest-2")
    assert ((last["source"] == "history") == (last["row_epoch"] == 1)).all()
    for policy in ("agent", "env"):
        mine = rows.filter(pl.col("policy") == policy)
        chain, at = list[str](), f"{policy}-digest-2"
        while at != f"{policy}-digest-0":
            made = mine.filter(pl.col("checkpoint") == at)
            used = tables["update_samples"].filter(
                (pl.col("policy") == policy) & (pl.col("epoch") == int(at[-1]))
            )
            if policy == "env":  # not those that only its KL was along
                used = used.filter(pl.col("weight") > 0)
                assert used.height == 2
            assert sorted(made["row_id"]) == sorted(used["row_id"])
            for row in set(made["row_id"]):
                assert at in set(mine.filter(pl.col("row_id") == row)["checkpoint"])
            chain.append(at)
            at = made["parent_checkpoint"].unique().item()
        assert chain == [f"{policy}-digest-2", f"{policy}-digest-1"]


@mutation(
    "a row has the weight of its last update", "schemas/views/uses.sql",
    "arg_min(weight, epoch)", "arg_max(weight, epoch)",
)  # fmt: skip
@mutation(
    "updates of a row stand as they are stored", "schemas/views/uses.sql",
    "list_sort(list(epoch))", "list(epoch)",
)  # fmt: skip
def test_uses_gather_the_updates_of_each_row(tmp_path: Path) -> None:
    tables = world()
    samples = tables["update_samples"].filter(
        (pl.col("weight") > 0) | (pl.col("policy") == "agent")
    )
    each = samples.unique(["policy", "row_id"], keep="first")
    later = each.with_columns(epoch=pl.lit(9, dtype=pl.Int64), weight=pl.col("weight") * 3)
    stored = pl.concat([later, tables["update_samples"]])
    rows = ask(tmp_path, tables | {"update_samples": stored}, "FROM uses ORDER BY policy, row_id")
    first = samples.sort("epoch").group_by("policy", "row_id", maintain_order=True)
    told = first.agg("epoch", pl.first("group_id", "advantage", "weight")).sort("policy", "row_id")
    assert rows["updates"].to_list() == [[*seen, 9] for seen in told["epoch"]]
    same = ["policy", "row_id", "group_id", "advantage", "weight"]
    assert rows.select(same).rows() == told.select(same).rows()


@mutation(
    "what_if judges guesses as skill", "schemas/views/what_if.sql",
    "abs(j.skill - j.target) <= j.width", "abs(j.p_hat - j.target) <= j.width",
)  # fmt: skip
@pytest.mark.parametrize("level", some(Level, (Level.TASK,)))
@pytest.mark.parametrize(
    ("alpha", "beta", "k_min", "lambda_", "chance"),
    [(0.5, 4.0, 0.25, 1.0, 0.0), (0.4, 2.0, 0.1, 3.0, 0.5), (0.75, 4.0, 0.5, 0.0, 0.25)],
)
def test_what_if_judges_as_the_stages_do(
    tmp_path: Path,
    level: Level,
    alpha: float,
    beta: float,
    k_min: float,
    lambda_: float,
    chance: float,
) -> None:
    tables = configured(world(16), level=level.value)
    guessed = pl.when(pl.col("task_id").str.ends_with("2")).then(chance)
    tables["tasks"] = tables["tasks"].with_columns(chance=guessed.otherwise(0.0))
    first = {
        name: tables[name].filter(pl.col("epoch") == 1) for name in ("tasks", "traces", "scores")
    }
    curriculum = CurriculumConfig(
        alpha=alpha, beta=beta, k_min=k_min, level=level, filter_agent=True
    )
    tasks = {task.task_id: task for task in to_tasks(tables["tasks"])}
    sizes = dict(first["traces"].group_by("group_id").len().iter_rows())
    rated = task_rows(first["scores"].to_dicts(), tasks, sizes, epoch=1, curriculum=curriculum)
    groups = frame("task_scores", rated)
    selections = select(
        first["tasks"], groups, first["traces"], epoch=1, curriculum=curriculum
    ).tables
    weighs = {"level": level, "pay": "alpha", "lambda_": lambda_, "scale": True}
    pooled = pools(**first, task_scores=groups, **selections, **weighs).tables["d_env"]
    sql = f"FROM what_if({alpha}, {beta}, k_min := {k_min}, lambda_ := {lambda_})"
    rows = ask(tmp_path, tables | selections | {"task_scores": groups}, sql)
    assert rows.height == groups.height
    expected = groups.select(
        "group_id", "source", "r_env", p_hat=judged_p_hat(level), skill=judged_skill(level)
    ).join(
        selections["selections"].pivot("update", index="group_id", values="reason"), on="group_id"
    )
    both = rows.join(expected, on="group_id", suffix="_core", validate="1:1")
    assert both.height == rows.height
    for ours in ("p_hat", "skill", "r_env"):
        core = f"{ours}_core"
        assert both[ours].equals(both[core].rename(ours)), ours
    for update in ("agent", "env"):
        for suffix in ("", "_played"):
            assert both[f"{update}_reason{suffix}"].to_list() == both[update].to_list()
    new = both.filter(pl.col("source") == "generated")
    assert new["in_band"].to_list() == (new["env"] == "kept").to_list()
    paid = new.join(pooled, on="generation_id", suffix="_pool", validate="1:1")
    assert paid.height == pooled.height == new.height == 15
    assert paid["weight_raw"].equals(paid["weight_raw_pool"].rename("weight_raw"))
    assert both.filter(pl.col("source") == "base")["weight_raw"].to_list() == [None]


def test_what_if_with_the_runs_own_settings_repeats_the_run(tmp_path: Path) -> None:
    tables = world(16)
    for call in ("what_if()", "what_if(0.5, 4, 0.25, 1)", "what_if(lambda_ := NULL)"):
        rows = ask(tmp_path, tables, f"FROM {call}")
        assert rows.height == tables["task_scores"].height
        for name in ("r_env", "agent_reason", "env_reason"):
            assert rows[name].equals(rows[f"{name}_played"].rename(name)), name
        pool = tables["d_env"].join(rows, on="generation_id", validate="1:1")
        assert pool.height == tables["d_env"].height
        assert pool["weight_raw"].equals(pool["weight_raw_right"].rename("weight_raw"))
        assert pool["kept"].equals((pool["env_reason"] == "kept").rename("kept"))


def test_what_if_pays_a_generation_of_two_tasks_with_their_mean(tmp_path: Path) -> None:
    tables = world()
    shared = put(tables["tasks"], "task_id", {"e0001-t000002": "e0001-n000001"}, "generation_id")
    sql = "SELECT weight_raw FROM what_if() WHERE generation_id = 'e0001-n000001'"
    rows = ask(tmp_path, tables | {"tasks": shared}, sql)
    weight = math.exp((math.exp(-0.25) + 1) / 2)
    assert rows["weight_raw"].to_list() == pytest.approx([weight, weight])


def test_cost_by_hand(of_world: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "SELECT stage, attempts, seconds, tokens, rows, bytes, kept_rollouts, accepted_tasks, "
        "seconds_per_kept_rollout, tokens_per_accepted_task, bytes_per_accepted_task "
        "FROM cost WHERE epoch = 2 ORDER BY stage"
    )
    # Epoch 2: 16 rollouts of 2 + 3 tokens, all admitted; 3 tasks; the agent update draws those of
    # both epochs and reads 50 tokens more to measure each of 8 groups, the other one four
    # generations of 3 + 2 tokens, two of them for its KL alone; evaluate was killed.
    assert query(of_world, sql).rows() == [
        ("evaluate", 1, 0.0, 40, None, None, 16, 3, 0.0, 40 / 3, None),
        ("grpo_update", 1, 3.0, 560, 4, 100, 16, 3, 3 / 16, 560 / 3, 100 / 3),
        ("rollout", 1, 2.0, 80, 4, 100, 16, 3, 2 / 16, 80 / 3, 100 / 3),
        ("rwr_update", 1, 1.0, 20, 4, 100, 16, 3, 1 / 16, 20 / 3, 100 / 3),
    ]


def test_reused_by_hand(tmp_path: Path) -> None:
    sql = "SELECT * EXCLUDE (run_id, arm) FROM reused ORDER BY first_epoch, computed_by"
    tables = world()
    # Both epochs' rollouts were reused from run-b, 12.5 s each; the second from another root.
    assert ask(tmp_path, tables, sql).rows() == [
        ("rollout", "run-b", None, 1, 1, 1, START, START, 12.5),
        ("rollout", "run-b", "s3://team/genenv", 1, 2, 2, START, START, 12.5),
    ]
    cached = tables["stage_runs"].filter(pl.col("state") == "cached")
    unknown = cached.head(1).with_columns(
        attempt=pl.lit(3, pl.Int64),
        computed_by=pl.lit(None, pl.String),
        computed_seconds=pl.lit(None, pl.Float64),
    )
    tables["stage_runs"] = pl.concat([tables["stage_runs"], unknown])
    # The newest use of a stage counts.
    assert [row[:5] for row in ask(tmp_path, tables, sql).rows()] == [
        ("rollout", None, None, 1, 1),
        ("rollout", "run-b", "s3://team/genenv", 1, 2),
    ]


@mutation(
    "a teacher's text with two tasks is paid for twice", "schemas/views/cost.sql",
    "    SELECT DISTINCT\n        run_id,\n        epoch,\n        source,",
    "    SELECT\n        run_id,\n        epoch,\n        source,",
)  # fmt: skip
def test_a_text_of_a_teacher_that_holds_two_tasks_was_paid_for_once(tmp_path: Path) -> None:
    tables = world()
    generated = pl.col("source") == "generated"
    none = pl.when(generated).then(None)
    tables["tasks"] = tables["tasks"].with_columns(
        *(
            none.otherwise(pl.col(name)).alias(name)
            for name in ("generation_id", "env_policy_version", "choice")
        ),
        # The first two tasks of an epoch are of one text, and those of a file cost nothing.
        generation_index=pl.when(generated)
        .then(pl.col("generation_index").clip(1))
        .otherwise("generation_index"),
        source=pl.when(generated).then(pl.lit("teacher")).otherwise("source"),
    )
    paid = "SELECT tokens FROM spent ORDER BY epoch"
    attempts = "SELECT sum(prompt_tokens + response_tokens) AS n FROM traces GROUP BY epoch"
    each = ask(tmp_path, tables, attempts)["n"].to_list()
    generated_by = {"stage": "generate_tasks", "epoch": [1, 2]}
    runs = tables["stage_runs"]
    made = runs.filter(stage="rollout").with_columns(stage=pl.lit(generated_by["stage"]))
    tables["stage_runs"] = pl.concat([runs, made])
    assert [row[0] for row in ask(tmp_path, tables, paid).rows()] == [
        each[0] + 3 * 5,
        each[0] + each[1] + 2 * 3 * 5,
    ]


def test_cost_counts_the_tokens_of_every_stage_with_a_model() -> None:
    named = re.findall(r"'(\w+)' AS stage", (REPOSITORY / "schemas/views/cost.sql").read_text())
    sampling = [name for name in (*EPOCH_STAGES, MEASURES) if STAGES[name].model]
    assert sorted(named) == sorted(sampling)


def clean(tasks: int = 4) -> Tables:
    """Return a world in which nothing is suspicious: all texts differ."""
    tables = world(tasks)
    valid = pl.when("valid")
    made = tables["tasks"].with_columns(
        prompt=valid.then(pl.format("Pack {} boxes.", "task_id")),
        ground_truth=valid.then(pl.format("{} are packed", "task_id")),
    )
    said = tables["trace_tokens"].with_columns(response_text="trace_id")
    return tables | {"tasks": made, "trace_tokens": said}


def suspects(folder: Path, tables: Tables) -> list[tuple[Any, ...]]:
    """Return reason, epoch, task, family and value of every suspect."""
    sql = "SELECT reason, epoch, task_id, family, value FROM suspects ORDER BY ALL"
    return ask(folder, tables, sql).rows()


@pytest.mark.parametrize("tasks", [4, 16, 32])
def test_nothing_is_suspicious_in_a_clean_world(tmp_path: Path, tasks: int) -> None:
    assert suspects(tmp_path, clean(tasks)) == []


def test_same_words_in_another_order_are_suspicious(tmp_path: Path) -> None:
    tables = clean()
    prompts = {
        "e0001-t000000": "Pack 3 nuts, then 14 bolts.",
        "e0001-t000001": "then  14 BOLTS; pack 3 nuts",
        "e0001-t000002": "Pack 3 nuts, then 41 bolts.",
        "e0002-t000001": "bolts 14 nuts 3 pack then",
        "e0000-base-000000": "then 14 bolts pack 3 nuts",
    }
    tables["tasks"] = put(tables["tasks"], "task_id", prompts, "prompt")
    assert suspects(tmp_path, tables) == [
        ("near_duplicate", 1, "e0001-t000001", "k1", 1.0),
        ("near_duplicate", 2, "e0002-t000001", "k1", 2.0),
    ]


def flawed(tables: Tables, task: str, *found: str) -> Tables:
    """Return the tables with these flaws found in a task."""
    named = (pl.col("task_id") == task) & pl.col("flaw").is_in(found)
    certificates = tables["certificates"].with_columns(
        passed=~named, detail=pl.when(named).then(pl.lit("seen")).otherwise(pl.lit(""))
    )
    return tables | {"certificates": certificates}


def test_a_flaw_that_the_guard_let_pass_is_suspicious(tmp_path: Path) -> None:
    tables = flawed(clean(), "e0001-t000000", "leaks_early", "ambiguous")
    assert suspects(tmp_path, tables) == [("flaw", 1, "e0001-t000000", "k1", 2.0)]
    refused = pl.col("task_id") == "e0001-t000000"
    guarded = tables["tasks"].with_columns(valid=pl.col("valid") & ~refused)
    assert suspects(tmp_path, tables | {"tasks": guarded}) == []


def test_a_text_that_succeeds_by_chance_is_suspicious(tmp_path: Path) -> None:
    tables = clean()
    group = tables["scores"].filter(pl.col("task_id") == "e0001-t000001")
    assert set(group["success"]) == {True, False}
    same = dict.fromkeys(group["trace_id"].to_list(), "yes")
    texts = put(tables["trace_tokens"], "trace_id", same, "response_text")
    planted = tables | {"trace_tokens": texts}
    assert suspects(tmp_path, planted) == [("by_chance", 1, "e0001-t000001", "k1", 1.0)]
    # An attempt that was cut short says nothing about the judge.
    failed = dict.fromkeys(group.filter(~pl.col("success"))["trace_id"].to_list(), "error")
    cut = put(tables["scores"], "trace_id", failed, "failure")
    assert suspects(tmp_path, planted | {"scores": cut}) == []


def test_certified_says_what_the_certificate_and_the_attempts_say(tmp_path: Path) -> None:
    tables = flawed(clean(), "e0001-t000000", "leaks_early", "ambiguous")
    counts = tables["task_scores"].group_by("task_id").agg(pl.col("n", "successes").sum())
    sql = "FROM certified WHERE epoch = 1 ORDER BY task_id"
    rows = ask(tmp_path, tables, sql)
    tasks = rows.join(counts, on="task_id", how="left", suffix="_counted")
    assert rows["task_id"].to_list() == [f"e0001-t{index:06d}" for index in range(3)]
    assert rows["checks"].to_list() == [len(Flaw)] * 3
    assert rows["flaw"].to_list() == ["ambiguous, leaks_early", "", ""]
    assert rows["sound"].to_list() == [False, True, True]
    assert tasks["n"].equals(tasks["n_counted"])
    assert tasks["successes"].equals(tasks["successes_counted"])
    mixed = (tasks["successes"] > 0) & (tasks["successes"] < tasks["n"])
    assert rows["separating"].equals(mixed, check_names=False)
    assert rows["reachable"].all()


@pytest.mark.parametrize(
    ("check", "successes", "reachable"),
    [(True, 0, True), (False, 1, True), (False, 0, False), (None, 0, None), (None, 2, True)],
)
def test_reachable_is_what_the_domain_or_the_agent_can_do(
    tmp_path: Path, check: bool | None, successes: int, reachable: bool | None
) -> None:
    tables, task = clean(), "e0001-t000001"
    if check is None:
        other = pl.col("flaw") != Flaw.UNREACHABLE.value
        tables["certificates"] = tables["certificates"].filter(other)
    elif not check:
        tables = flawed(tables, task, Flaw.UNREACHABLE.value)
    group = f"e0001-g{task[-6:]}"
    scores = put(tables["task_scores"], "group_id", {group: successes}, "successes")
    tables["task_scores"] = scores
    sql = f"SELECT reachable FROM certified WHERE task_id = '{task}'"
    assert ask(tmp_path, tables, sql).item() is reachable


def test_improving_is_the_gain_of_the_family_since_before_the_task(tmp_path: Path) -> None:
    tables = clean()
    rows = tables["evaluations"].filter((pl.col("split") == "test") & (pl.col("mode") == "sampled"))
    success = rows.join(tables["tasks"].select("task_id", "family"), on="task_id")
    rates = dict(success.group_by("epoch").agg(pl.col("success").mean()).iter_rows())
    sql = "SELECT DISTINCT epoch, improving FROM certified ORDER BY ALL"
    found = dict(ask(tmp_path, tables, sql).iter_rows())
    last = rates[max(rates)]
    assert found == {
        epoch: pytest.approx(last - rates[epoch - 1]) if epoch - 1 in rates else None
        for epoch in found
    }


LOOKALIKES = "schemas/views/lookalikes.sql"


@mutation(
    "a test task was measured before its epoch's update by what came after it", LOOKALIKES,
    "m.epoch < t.epoch", "m.epoch <= t.epoch",
)  # fmt: skip
@mutation(
    "a test task is measured after an update of another epoch", LOOKALIKES,
    "m.epoch >= t.epoch", "m.epoch > t.epoch",
)  # fmt: skip
@mutation(
    "a test task moves by the sampled attempts", LOOKALIKES, "ORDER BY measure) = 1",
    "ORDER BY measure DESC) = 1",
)  # fmt: skip
def test_lookalikes_by_hand(tmp_path: Path) -> None:
    tables = world()
    known = {0: 0.25, 1: 0.5, 2: 0.625}
    tables["evaluations"] = tables["evaluations"].with_columns(
        answer_probability=pl.when(mode="sampled").then(
            pl.col("epoch").replace_strict(known, return_dtype=pl.Float64)
            * pl.when(pl.col("task_id").str.ends_with("1")).then(0.5).otherwise(1.0)
        )
    )
    asked = (
        "SELECT epoch, task_id, p_hat, nearest_task_id, nearest_epoch, nearest_program, "
        "similarity, test_program, test_before, test_after, test_gain FROM lookalikes "
        "ORDER BY task_id"
    )
    rows = ask(tmp_path, tables, asked)
    assert rows["task_id"].to_list() == [
        f"e{epoch:04d}-t{index:06d}" for epoch in (1, 2) for index in range(3)
    ]
    solved = {row["task_id"]: row["p_hat"] for row in tables["task_scores"].iter_rows(named=True)}
    assert rows["p_hat"].to_list() == [solved.get(task) for task in rows["task_id"]]
    assert set(rows["nearest_program"]) == {"+ 8 bolts 0"} and set(rows["nearest_epoch"]) == {0}
    assert rows["similarity"].to_list() == [1.0, 0.75, 0.75] * 2
    assert rows["test_program"].to_list() == [f"+ 8 bolts {index}" for index in range(3)] * 2
    assert rows.select("test_before", "test_after", "test_gain").rows() == [
        *((0.25, 0.5, 0.25), (0.125, 0.25, 0.125), (0.25, 0.5, 0.25)),
        *((0.5, 0.625, 0.125), (0.25, 0.3125, 0.0625), (0.5, 0.625, 0.125)),
    ]


REPEATS = "schemas/views/repeats.sql"


@mutation(
    "a task of its own epoch is an earlier one", REPEATS,
    "epoch > min(t.epoch) FILTER (t.valid)", "epoch >= min(t.epoch) FILTER (t.valid)",
)  # fmt: skip
@mutation(
    "what was rejected counts as an earlier task",
    REPEATS,
    "min(t.epoch) FILTER (t.valid)",
    "min(t.epoch)",
)
@mutation(
    "a rejected duplicate repeats nothing", REPEATS, "FILTER (duplicate OR earlier)",
    "FILTER (earlier)",
)  # fmt: skip
@mutation("a task that resembles one repeats nothing", REPEATS, ">= 0.9", "> 1")
def test_repeats_by_hand(tmp_path: Path) -> None:
    tables = world()
    texts = pl.col("source") == "generated"
    place = pl.col("generation_index")

    def told(changed: pl.DataFrame) -> list[tuple[object, ...]]:
        asked = "SELECT epoch, texts, texts_repeated, tasks, equal_earlier, similarity, repeats"
        return ask(tmp_path, tables | {"tasks": changed}, f"{asked} FROM repeats ORDER BY 1").rows()

    plain = tables["tasks"].with_columns(
        fingerprint=pl.format("{} {}", "epoch", place),
        similarity=pl.when(texts & pl.col("valid")).then(0.5 + 0.1 * place),
    )
    mean = pytest.approx(0.6)
    assert told(plain) == [(epoch, 4, 0, 3, 0.0, mean, 0.0) for epoch in (1, 2)]
    later = texts & (pl.col("epoch") == 2)
    # Of epoch 2 the first task equals the second of epoch 1, the second one that was rejected
    # there, and the third resembles a task; the text that became none is a duplicate.
    changed = plain.with_columns(
        fingerprint=pl.when(later & (place == 0)).then(pl.lit("1 1"))
        .when(later & (place == 1)).then(pl.lit("1 3")).otherwise("fingerprint"),
        similarity=pl.when(later & (place == 2)).then(0.9).otherwise("similarity"),
        rejection=pl.when(later & ~pl.col("valid")).then(pl.lit("duplicate"))
        .otherwise("rejection"),
    )  # fmt: skip
    third = pytest.approx(1 / 3)
    assert told(changed)[0] == (1, 4, 0, 3, 0.0, mean, 0.0)
    (_, *rest) = told(changed)[1]
    assert rest == [4, 2, 3, third, pytest.approx((0.5 + 0.6 + 0.9) / 3), pytest.approx(2 / 3)]


def test_a_test_task_moves_between_the_epochs_that_measured_it(tmp_path: Path) -> None:
    tables = world()
    seldom = tables["evaluations"].filter(pl.col("epoch") != 1)
    never = seldom.with_columns(answer_probability=pl.lit(None, pl.Float64)).filter(
        pl.col("epoch") == 0
    )
    asked = (
        "SELECT test_before, test_after FROM lookalikes WHERE epoch = 1 ORDER BY task_id LIMIT 1"
    )
    (row,) = ask(tmp_path, tables | {"evaluations": seldom}, asked).rows()
    assert row == (0.25, 0.25)
    (row,) = ask(tmp_path, tables | {"evaluations": never}, asked).rows()
    assert row == (1.0, None)
    older = tables["tasks"].with_columns(similarity=pl.lit(None, pl.Float64))
    assert ask(tmp_path, tables | {"tasks": older}, "FROM lookalikes").is_empty()


def test_an_answer_that_always_passes_is_suspicious(tmp_path: Path) -> None:
    tables = clean()
    # The first attempts at these tasks succeed; at the base task too, which does not count.
    winners = ["e0001-g000001", "e0001-g000002", "e0002-g000001", "e0001-g000003"]
    said = {f"{group}-s0000": "yes" for group in winners}
    planted = tables | {
        "trace_tokens": put(tables["trace_tokens"], "trace_id", said, "response_text")
    }
    assert suspects(tmp_path, planted) == [
        ("constant_answer", 1, "e0001-t000001", "k1", 3.0),
        ("constant_answer", 1, "e0001-t000002", "k1", 3.0),
        ("constant_answer", 2, "e0002-t000001", "k1", 3.0),
    ]
    same = dict.fromkeys(("e0001-t000001", "e0001-t000002"), "Yes.")
    fair = planted | {"tasks": put(planted["tasks"], "task_id", same, "ground_truth")}
    assert suspects(tmp_path, fair) == []
    failed = {f"{group}-s0003": "no" for group in winners[:3]}
    wrong = tables | {
        "trace_tokens": put(tables["trace_tokens"], "trace_id", failed, "response_text")
    }
    assert suspects(tmp_path, wrong) == []


def test_all_or_nothing_tasks_are_suspicious(tmp_path: Path) -> None:
    tables = clean(16)
    groups = tables["task_scores"].filter(pl.col("source") == "generated")
    # 15 tasks in epoch 2: 6 never, 6 always, 3 in between.
    later = groups.filter(pl.col("epoch") == 2)["group_id"].to_list()
    ks = dict(zip(later, [0] * 6 + [4] * 6 + [2] * 3, strict=True))
    scores = put(tables["task_scores"], "group_id", ks, "successes")
    tables["task_scores"] = scores.with_columns(p_hat=pl.col("successes") / pl.col("n"))
    assert suspects(tmp_path, tables) == [("bimodal", 2, None, None, pytest.approx(0.8))]
    ks = dict.fromkeys(later, 4)
    scores = put(tables["task_scores"], "group_id", ks, "successes")
    tables["task_scores"] = scores.with_columns(p_hat=pl.col("successes") / pl.col("n"))
    assert suspects(tmp_path, tables) == []


def test_length_that_grows_alone_is_suspicious(tmp_path: Path) -> None:
    tables = clean(16)
    second = pl.col("epoch") == 2
    longer = tables["traces"].with_columns(
        response_tokens=pl.when(second).then(6).otherwise(pl.col("response_tokens"))
    )
    planted = tables | {"traces": longer}
    assert suspects(tmp_path, planted) == [("length_drift", 2, None, "k1", 1.0)]
    better = tables["scores"].with_columns(success=pl.col("success") | second)
    assert suspects(tmp_path, planted | {"scores": better}) == []
    harder = tables["tasks"].with_columns(
        family=pl.when(second).then(pl.lit("k2")).otherwise(pl.col("family"))
    )
    assert suspects(tmp_path, planted | {"tasks": harder}) == []


def shown_queries(page: str) -> list[str]:
    """Return the queries in a page's code blocks, without the usage lines that show options."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    lines = re.findall(r'^genenv sql ("[^"]*")$', text, re.MULTILINE)
    return [shlex.split(line)[0] for line in lines]


QUERIES = {page: shown_queries(page) for page in ("README.md", "docs/sql.md")}


def test_the_readme_and_the_page_on_sql_show_queries_of_several_views() -> None:
    texts = " ".join(QUERIES["README.md"])
    assert len(QUERIES["README.md"]) == 5
    assert {view.name for view in VIEWS if view.name in texts} >= {
        *("curriculum", "failures", "lineage", "suspects", "what_if")
    }
    texts = " ".join(QUERIES["docs/sql.md"])
    assert {view.name for view in VIEWS if view.name in texts} >= {
        *("near_alpha", "rejections", "lineage", "calibration", "cost")
    }


def test_the_questions_that_are_ready_to_ask_are_those_of_the_pages() -> None:
    text = "".join((REPOSITORY / page).read_text(encoding="utf-8") for page in QUERIES)
    asked = [" ".join(question.sql.split()) for question in questions()]
    assert asked == [sql for page in QUERIES.values() for sql in page]
    assert [one.title for one in questions() if f"\n{one.title}" not in text] == []


@pytest.mark.parametrize("sql", [sql for page in QUERIES.values() for sql in page])
def test_the_documented_queries_run(
    of_world: duckdb.DuckDBPyConnection, of_nothing: duckdb.DuckDBPyConnection, sql: str
) -> None:
    assert not query(of_world, sql).is_empty()
    query(of_nothing, sql)


@pytest.mark.parametrize("sql", [sql for page in QUERIES.values() for sql in page])
def test_the_documented_queries_keep_runs_apart(
    one_and_two: tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection], sql: str
) -> None:
    alone, both = (query(con, sql) for con in one_and_two)
    assert alone.columns[0] == "run_id"
    if " LIMIT " in sql:
        return
    for run in ("run-a", "run-b"):
        found = both.filter(pl.col("run_id") == run).drop("run_id")
        assert_frame_equal(found, alone.drop("run_id"), check_row_order=False)


def test_every_table_is_in_the_sample() -> None:
    assert set(world()) == set(TABLES)


@pytest.mark.parametrize("relation", VIEWS, ids=lambda relation: relation.name)
def test_runs_that_share_rows_are_kept_apart(
    one_and_two: tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection], relation: Relation
) -> None:
    one, two = one_and_two
    own = [column.name for column in relation.columns if column.name == "query"]  # names its run
    without = ", ".join(("run_id", *own))
    read = f"SELECT * EXCLUDE ({without}) FROM {relation.reference}"
    alone = query(one, f"{read} ORDER BY ALL")
    for run in ("run-a", "run-b"):
        sql = f"{read} WHERE run_id = '{run}' ORDER BY ALL"
        # Threads add floats up in any order: equal to the last bits, not in them.
        assert_frame_equal(query(two, sql), alone, rel_tol=1e-9)


@pytest.mark.parametrize("relation", VIEWS, ids=lambda relation: relation.name)
def test_no_view_compares_all_rows_with_all(
    of_world: duckdb.DuckDBPyConnection, relation: Relation
) -> None:
    plan = query(of_world, f"EXPLAIN FROM {relation.reference}")["explain_value"].item()
    for operator in ("CROSS_PRODUCT", "NL_JOIN", "NESTED_LOOP", "PIECEWISE", "IE_JOIN"):
        assert operator not in plan, operator


def evaluated(tables: Tables, outcomes: dict[tuple[str, str], list[list[float]]]) -> Tables:
    """Return tables with these test results: (measure, task) -> the values of epochs 0, 1, ..."""
    row = tables["evaluations"].head(1)
    made: list[pl.DataFrame] = []
    for (measure, task), epochs in outcomes.items():
        for epoch, values in enumerate(epochs):
            for index, value in enumerate(values):
                exact = measure == "answer_probability"
                given = {
                    "task_id": task,
                    "epoch": epoch,
                    "mode": "sampled" if exact else measure,
                    "sample_index": index,
                    "success": False if exact else bool(value),
                    "answer_probability": value if exact else None,
                }
                made.append(row.with_columns(**{name: pl.lit(v) for name, v in given.items()}))
    return tables | {"evaluations": pl.concat(made, how="vertical_relaxed").cast(dict(row.schema))}


@mutation(
    "gains are not paired", "schemas/views/test_gains.sql",
    "stddev_samp(n.value - o.value)", "stddev_samp(n.value)",
)  # fmt: skip
@pytest.mark.parametrize("tasks", [2, 3, 4, 25])
def test_gains_are_paired_by_task(tmp_path: Path, tasks: int) -> None:
    rng = np.random.default_rng(tasks)
    start, now = rng.random(tasks), rng.random(tasks)
    outcomes = {("answer_probability", f"t{i}"): [[start[i]], [now[i]]] for i in range(tasks)}
    sql = "FROM test_gains WHERE measure = 'answer_probability'"
    (row,) = ask(tmp_path, evaluated(world(), outcomes), sql).to_dicts()
    known = scipy.stats.ttest_rel(now, start)
    low, high = known.confidence_interval(0.95)
    assert (row["epoch"], row["tasks"]) == (1, tasks)
    assert row["value"] == pytest.approx(now.mean()) and row["start"] == pytest.approx(start.mean())
    assert row["gain"] == pytest.approx(now.mean() - start.mean())
    assert row["gain_se"] == pytest.approx((now - start).std(ddof=1) / tasks**0.5)
    near = 2e-3 * (high - low) if tasks == 4 else 1e-6  # of the expansion in 1 / degrees
    assert row["gain_low"] == pytest.approx(low, abs=near)
    assert row["gain_high"] == pytest.approx(high, abs=near)


@mutation(
    "a gain without a differing verdict is certain", "schemas/views/test_gains.sql",
    "AND bool_and(n.value - o.value IN (-1, 0, 1)) AS verdicts", "AND false AS verdicts",
)  # fmt: skip
@pytest.mark.parametrize(
    ("start", "now"),
    [
        ((0, 0), (0, 0)),
        ((1,) * 20, (1,) * 20),
        ((0,) * 12, (1,) * 12),
        ((0, 1, 0, 0, 1, 0, 1, 1), (1, 1, 0, 0, 0, 1, 1, 1)),
    ],
)
def test_the_interval_of_a_gain_of_verdicts_is_that_of_two_models_beside_each_other(
    tmp_path: Path, start: tuple[int, ...], now: tuple[int, ...]
) -> None:
    pairs = zip(start, now, strict=True)
    tasks = {f"t{i}": pair for i, pair in enumerate(pairs)}
    outcomes = {("greedy", task): [[float(one)] for one in pair] for task, pair in tasks.items()}
    sql = "SELECT gain, gain_low, gain_high FROM test_gains WHERE measure = 'greedy'"
    ((*row,),) = ask(tmp_path, evaluated(world(), outcomes), sql).rows()
    gaps = [float(after - before) for before, after in tasks.values()]
    assert row == pytest.approx(paired_difference(gaps), abs=4e-3)
    assert row[2] - row[1] > 0.1


def test_gains_of_each_measure_are_of_test_tasks_alone(tmp_path: Path) -> None:
    tables = evaluated(
        world(),
        {
            ("sampled", "a"): [[0, 0], [1, 0]],
            ("sampled", "b"): [[0, 0], [1, 1]],
            ("greedy", "a"): [[1], [0]],
        },
    )
    other = tables["evaluations"].with_columns(split=pl.lit("validation"), success=pl.lit(True))
    tables["evaluations"] = pl.concat([tables["evaluations"], other])
    sql = "SELECT measure, tasks, start, value, gain, gain_se, gain_low FROM test_gains ORDER BY 1"
    assert ask(tmp_path, tables, sql).rows() == [
        ("greedy", 1, 1.0, 0.0, -1.0, None, None),
        ("sampled", 2, 0.0, 0.75, 0.75, 0.25, pytest.approx(0.75 - 12.7062 * 0.25)),
    ]


@mutation(
    "a reused epoch counts as one at work", "schemas/views/outcomes.sql",
    "count(*) FILTER (WHERE seconds > 0)", "count(*)",
)  # fmt: skip
@pytest.mark.slow
def test_an_epoch_that_was_reused_whole_is_none_at_work(tmp_path: Path) -> None:
    tables, sql = world(), "SELECT epochs, seconds, epochs_at_work FROM outcomes"
    # Two stages side by side end 5 s after the first begins, and an hour later one is reused.
    assert ask(tmp_path, tables, sql).rows() == [(2, 10.0, 2)]
    state = pl.when(pl.col("epoch") == 1).then(pl.lit("cached")).otherwise("state")
    tables["stage_runs"] = tables["stage_runs"].with_columns(state=state)
    assert ask(tmp_path, tables, sql).rows() == [(2, 5.0, 1)]
    del tables["stage_runs"]
    assert ask(tmp_path, tables, sql).rows() == [(2, None, 0)]


def test_updates_tell_rows_and_weights(tmp_path: Path) -> None:
    tables = world()
    mine = (pl.col("policy") == "env") & (pl.col("epoch") == 2)
    used = tables["update_samples"]
    rows = used.filter(mine)
    weights = [1.5] + [0.75] * (rows.height - 1)
    rows = rows.with_columns(weight=pl.Series(weights, dtype=pl.Float64))
    tables["update_samples"] = pl.concat([used.filter(~mine), rows])
    found = ask(tmp_path, tables, "FROM updates ORDER BY policy, epoch").to_dicts()
    assert [(row["policy"], row["epoch"]) for row in found] == [
        (policy, epoch) for policy in ("agent", "env") for epoch in (1, 2)
    ]
    agent, env = found[0], found[3]
    first = used.filter((pl.col("policy") == "agent") & (pl.col("epoch") == 1))
    assert agent["rows"] == first.height
    assert agent["row_groups"] == 4 and env["row_groups"] is None
    assert agent["new_rows"] + agent["base_rows"] + agent["history_rows"] == agent["rows"]
    assert (agent["weight_low"], agent["weight_high"], agent["effective_rows"]) == (None,) * 3
    assert (env["rows"], env["weight_low"], env["weight_high"]) == (rows.height, 0.75, 1.5)
    squares = sum(weight**2 for weight in weights)
    assert env["effective_rows"] == pytest.approx(sum(weights) ** 2 / squares)


def test_a_skipped_update_has_no_rows(tmp_path: Path) -> None:
    tables = world()
    tables["update_samples"] = tables["update_samples"].clear()
    found = ask(tmp_path, tables, "SELECT rows, effective_rows FROM updates")
    assert set(found.rows()) == {(0, None)}


@pytest.mark.slow
def test_evidence_has_a_row_an_epoch(tmp_path: Path) -> None:
    tables = evaluated(
        world(),
        {
            ("sampled", "a"): [[0], [1], [1]],
            ("answer_probability", "b"): [[0.25], [0.25], [0.5]],
        },
    )
    rows = ask(tmp_path, tables, "FROM evidence ORDER BY epoch").to_dicts()
    assert [row["epoch"] for row in rows] == [1, 2]
    last = rows[1]
    assert (last["measure"], last["value"], last["gain"]) == ("answer_probability", 0.5, 0.25)
    assert last["distinct_tasks"] == 3
    known = ask(tmp_path, tables, "FROM updates WHERE epoch = 2 ORDER BY policy").to_dicts()
    assert (last["agent_rows"], last["env_rows"]) == (known[0]["rows"], known[1]["rows"])
    assert last["effective_rows"] == known[1]["effective_rows"]
    (target,) = ask(
        tmp_path, tables, "FROM calibration WHERE scope = 'epoch' AND epoch = 2"
    ).to_dicts()
    assert (last["alpha"], last["alpha_inside"]) == (0.5, target["alpha_inside"])
    without = {name: frame for name, frame in tables.items() if name != "evaluations"}
    without["evaluations"] = tables["evaluations"].clear()
    assert ask(tmp_path, without, "SELECT gain FROM evidence")["gain"].to_list() == [None, None]
