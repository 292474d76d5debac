"""Domains of docs/domain.md with tiny models that are made for them: an epoch runs.

One is an example as a plug-in, one is part of genenv, and two are in one run.

Invariants of several domains: the run goes to its end, and the same request again computes nothing;
every table that holds tasks has those of each domain; tasks attempted, base tasks and held-out
tasks have the weights' shares; each domain is predicted and measured apart; prompts of pi_env name
their domain.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from genenv_core.config.schema import RunConfig
from genenv_core.pools import frame
from genenv_core.report.outcome import outcome_of_run
from genenv_core.storage.store.opening import open_store
from tests.pipeline.builders import computed, manifests, run, sql, states, tiny
from tests.pipeline.commands import REPOSITORY, environment
from tests.unit.plugged import write_package

ARITHMETIC = ("domain.name=arithmetic", "domain.options={terms: 3, explain: false}")
UNITS = (
    "domain.name=units",
    "domain.options={terms: 1, explain: false}",
    "rollout.max_turns=6",
    "bootstrap.agent_steps=100",
    "tracking.enabled=false",
)
DOMAINS = (
    "domains=[{name: desk, weight: 3, options: {max_calls: 2, max_operand: 4}}, "
    "{name: arithmetic, as: sums, options: {terms: 2}}]"
)


def attempted_prompts(root: Path) -> pl.Series:
    return frame(root, "SELECT DISTINCT prompt FROM tasks WHERE choice <> 'not_chosen'")["prompt"]


@pytest.mark.slow
def test_a_domain_of_genenv_plays_an_epoch(api: None, tmp_path: Path) -> None:
    run(tiny(tmp_path, *ARITHMETIC, epochs=1, run_id="arithmetic"))
    asked = attempted_prompts(tmp_path)
    assert len(asked) == 8 and asked.str.contains(r"^\d+( [+-] \d+){1,2} =$").all()


@pytest.mark.slow
def test_a_plugged_in_domain_plays_an_epoch(tmp_path: Path) -> None:
    package = write_package(tmp_path / "plugin", {"genenv.domains": {"units": "units:Units"}})
    folders = (REPOSITORY, REPOSITORY / "docs" / "examples", package)
    subprocess.run(
        [
            *(sys.executable, "-m", "flows.cli.app", "run", "tiny", "--epochs", "1"),
            *("--root", "root"),
            *(word for change in UNITS for word in ("--set", change)),
        ],
        cwd=tmp_path,
        env=environment(PYTHONPATH=os.pathsep.join(map(str, folders))),
        check=True,
    )
    asked = attempted_prompts(tmp_path / "root")
    assert len(asked) == 8 and asked.str.contains("^How many ").all()


@pytest.fixture(scope="module")
def of_two(api: None, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    root = tmp_path_factory.mktemp("several")
    more = ("generation.candidates=2", "generation.max_generations=64", "bootstrap.env_steps=300")
    config = tiny(root, DOMAINS, *more, run_id="several")
    run(config)
    return config


def by_domain(config: RunConfig, table: str, where: str = "true") -> Counter[str]:
    rows = sql(
        config,
        f"SELECT d.domain, count(DISTINCT x.task_id) AS n FROM {table} AS x JOIN task_domains AS d "
        f"ON d.run_id = x.run_id AND d.task_id = x.task_id WHERE {where} GROUP BY d.domain",
    )
    return Counter(dict(rows.iter_rows()))


@pytest.mark.slow
def test_every_table_with_tasks_has_those_of_each_domain(of_two: RunConfig):
    for table in ("tasks", "traces", "scores", "task_scores", "evaluations", "evaluation_texts"):
        assert set(by_domain(of_two, table)) == {"desk", "sums"}, table
    assert by_domain(of_two, "tasks", "x.source = 'base'") == {"desk": 12, "sums": 4}
    heldout = by_domain(of_two, "tasks", "x.source IN ('validation', 'test')")
    assert heldout == {"desk": 27, "sums": 9}
    for epoch in (1, 2):
        new = by_domain(of_two, "task_scores", f"x.epoch = {epoch} AND x.source = 'generated'")
        assert new["desk"] <= 6 and new["sums"] <= 2 and new.total() >= 5
        base = by_domain(of_two, "task_scores", f"x.epoch = {epoch} AND x.source = 'base'")
        assert base["sums"] == 1


@pytest.mark.slow
def test_each_domain_is_predicted_and_measured_apart(of_two: RunConfig):
    rows = sql(of_two, "FROM domains ORDER BY epoch, domain").to_dicts()
    assert [(row["epoch"], row["domain"]) for row in rows] == [
        (epoch, domain) for epoch in range(3) for domain in ("desk", "sums")
    ]
    for row in rows:
        assert row["sampled"] is not None and 0 < row["answer_probability"] < 1
        assert (row["p_hat"] is None) == (row["epoch"] == 0)
    assert {row["predicted_p"] is None for row in rows if row["epoch"] == 2} == {False}
    found = outcome_of_run(open_store(of_two.root, writable=False), "several")
    assert [line.partition(":")[0] for line in found.lines][2:4] == ["desk", "sums"]


@pytest.mark.slow
def test_prompts_of_pi_env_name_their_domain(of_two: RunConfig):
    rows = sql(of_two, "SELECT messages FROM contexts WHERE epoch = 1")["messages"]
    ends = Counter(json.loads(text)[-1]["content"].rpartition("\n")[2] for text in rows)
    assert set(ends) == {"Begin with `desk: `.", "Begin with `sums: `."}
    valid = sql(of_two, "SELECT program, family FROM tasks WHERE valid").rows()
    assert all(program.partition(": ")[0] == family.partition("/")[0] for program, family in valid)


@pytest.mark.slow
def test_the_same_request_again_computes_nothing(of_two: RunConfig):
    before = {place: one.key for place, one in manifests(of_two).items()}
    made = len(computed(states(of_two)))
    run(of_two)
    assert len(computed(states(of_two))) == made
    assert {place: one.key for place, one in manifests(of_two).items()} == before
