"""Reads through the views what a report says about a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb

from genenv_core.config.branching import BranchPoint
from genenv_core.hiding import without_secrets
from genenv_core.report.examples import Example, read_examples
from genenv_core.report.outcome import Outcome, read_outcome
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.duck import text
from genenv_core.types import JsonObject

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run as the report shows it; lists are in the order of epochs.

    `epochs` are rows of the view of that name, and so are `curriculum`, `calibration` (scope
    epoch), `rejections`, `cost`, `reused` and `evidence`. `test` has epoch, measure (sampled,
    greedy, answer_probability), value, and low and high from epoch 1 on: the ends of the 95 %
    interval of the change since epoch 0, around the value. `checkpoints` has the metrics of each
    update as a mapping. `branch` says where the run branches off, '' where it does not.
    `trained_on` sums up lineage: policy, epoch, source, rows, first_epoch, last_epoch.
    """

    run_id: str
    arm: str
    domain: str
    seed: int
    planned: int
    started_at: datetime
    config: JsonObject
    epochs: list[Row]
    curriculum: list[Row]
    calibration: list[Row]
    evidence: list[Row]
    test: list[Row]
    checkpoints: list[Row]
    trained_on: list[Row]
    rejections: list[Row]
    cost: list[Row]
    unfinished: list[Row]
    reused: list[Row]
    examples: list[Example]
    outcome: Outcome
    branch: str = ""

    @property
    def alpha(self) -> float:
        """Return the target success rate."""
        return float(self.config["curriculum"]["alpha"])

    @property
    def k_min(self) -> float:
        """Return the half-width of the band around it."""
        return float(self.config["curriculum"]["k_min"])

    @property
    def kl_cap(self) -> float:
        """Return the KL above which the update of pi_env pulls it back, nats a sequence."""
        return float(self.config["rwr"]["kl_cap"])

    def measured(self, measure: str) -> list[Row]:
        """Return the test results of one measure."""
        return [row for row in self.test if row["measure"] == measure]


def read_report(con: duckdb.DuckDBPyConnection, runs: Sequence[str]) -> list[RunReport]:
    """Return the reports on these runs, in their order, from an open connection over them."""
    return [_read(con, run) for run in runs]


def _read(con: duckdb.DuckDBPyConnection, run: str) -> RunReport:
    own = f"run_id = {text(run)}"

    def rows(sql: str) -> list[Row]:
        return query(con, sql.replace("{own}", own)).to_dicts()

    info = rows("SELECT * FROM runs WHERE {own}")[0]
    config = without_secrets(json.loads(info["config"]))
    checkpoints = rows("SELECT * FROM checkpoints WHERE {own} ORDER BY epoch, policy")
    epochs = rows("SELECT * FROM epochs WHERE {own} AND epoch > 0 ORDER BY epoch")
    return RunReport(
        run_id=run,
        arm=info["arm"],
        domain=info["domain"],
        seed=info["seed"],
        planned=info["epochs_planned"],
        started_at=info["started_at"],
        config=config,
        epochs=epochs,
        curriculum=rows("SELECT * FROM curriculum WHERE {own} ORDER BY epoch"),
        calibration=rows("FROM calibration WHERE {own} AND scope = 'epoch' ORDER BY epoch"),
        evidence=rows("SELECT * FROM evidence WHERE {own} ORDER BY epoch"),
        test=rows(
            "SELECT epoch, measure, t.value, t.value + (gain_low - gain) AS low, "
            "t.value + (gain_high - gain) AS high FROM (SELECT epoch, measure, avg(value) AS value "
            "FROM test_results WHERE {own} GROUP BY epoch, measure) AS t "
            "LEFT JOIN (FROM test_gains WHERE {own}) AS g USING (epoch, measure) "
            "ORDER BY epoch, measure"
        ),
        checkpoints=[row | {"metrics": json.loads(row["metrics"])} for row in checkpoints],
        trained_on=rows(
            "SELECT policy, epoch, source, count(*) AS rows, min(row_epoch) AS first_epoch, "
            "max(row_epoch) AS last_epoch FROM lineage WHERE {own} GROUP BY ALL "
            "ORDER BY epoch, policy, source DESC"
        ),
        rejections=rows(
            "SELECT kept_from, rejection, sum(rejections) AS rejections, "
            "list(struct_pack(epoch, rejections) ORDER BY epoch) AS by_epoch, "
            "arg_min(example_detail, epoch) AS detail, arg_min(example_text, epoch) AS text, "
            "arg_min(example_task_id, epoch) AS task_id "
            "FROM rejections WHERE {own} GROUP BY kept_from, rejection "
            "ORDER BY kept_from = 'tasks' DESC, kept_from, rejections DESC"
        ),
        cost=rows(
            "SELECT stage, sum(seconds) AS seconds, sum(tokens) AS tokens, sum(bytes) AS bytes, "
            "sum(seconds) FILTER (epoch > 0) / nullif(count(*) FILTER (epoch > 0), 0) "
            "AS seconds_an_epoch FROM cost WHERE {own} GROUP BY stage ORDER BY seconds DESC"
        ),
        unfinished=rows(
            "SELECT epoch, stage, attempt, state, error FROM stage_runs WHERE {own} QUALIFY "
            "row_number() OVER (PARTITION BY epoch, stage ORDER BY attempt DESC) = 1 "
            "AND state NOT IN ('computed', 'cached') ORDER BY epoch, stage"
        ),
        reused=rows("SELECT * FROM reused WHERE {own} ORDER BY first_epoch, first_at, stage"),
        examples=read_examples(con, own, [row["epoch"] for row in epochs]),
        outcome=read_outcome(con, run),
        branch=""
        if info["branch_of"] is None
        else BranchPoint(run_id=info["branch_of"], epoch=info["branch_epoch"]).words,
    )
