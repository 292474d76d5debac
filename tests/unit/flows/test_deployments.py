"""Deployments and the pages of runs in the Prefect UI, without a server.

Invariants: infra/prefect.yaml equals the deployments that the code registers; every entry point is
a flow with one request as its parameter; the zombie automation waits for more than two beats; the
page and the table on a run hold the given values and nothing else.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import Flow
from prefect.automations import AutomationCore
from prefect.utilities.callables import parameter_schema

from flows.deploy.deployed import RUN
from flows.deploy.deployments import (
    DEPLOYMENTS,
    HEARTBEAT_S,
    SILENCE_S,
    automations_yaml,
    prefect_yaml,
    zombie_automation,
)
from flows.shown.prefect_artifacts import artifact_key, summary, table
from genenv_core.config.load import resolve
from genenv_core.report.outcome import outcome_of_run
from tasks.stage.progress import Event
from tests.mutations import mutation
from tests.unit.builders_root import small_root

REPOSITORY = Path(__file__).parents[3]
ROW = {"heldout_success": 0.25, "heldout_success_greedy": 0.5}


def config() -> Any:
    return resolve("tiny", fields={"root": "/data", "run_id": "My.run_1"})


def test_the_file_for_prefect_deploy_is_what_the_code_registers():
    text = (REPOSITORY / "infra" / "prefect.yaml").read_text(encoding="utf-8")
    assert text == prefect_yaml(), "run: python -m flows.deploy.deployments > infra/prefect.yaml"
    entries = yaml.safe_load(text)["deployments"]
    assert [entry["name"] for entry in entries] == [item.name for item in DEPLOYMENTS]
    assert all(not schedule["active"] for entry in entries for schedule in entry["schedules"])


def test_every_entry_point_is_a_flow_with_one_request():
    for item in DEPLOYMENTS:
        module, _, name = item.entrypoint.rpartition(".")
        flow = getattr(import_module(module), name)
        assert isinstance(flow, Flow)
        assert flow.name == (RUN if item.name == "begin" else item.name)
        schema = parameter_schema(flow.fn)
        assert list(schema.properties) == ["request"]
        assert flow.description


def test_silence_is_judged_after_more_than_two_beats():
    trigger = zombie_automation().trigger
    assert 3 * HEARTBEAT_S < SILENCE_S == trigger.within.total_seconds()
    assert "prefect.flow-run.heartbeat" in trigger.after & trigger.expect
    assert "prefect.flow-run.Completed" in trigger.expect


def test_the_files_with_automations_are_what_prefect_reads():
    text = (REPOSITORY / "infra" / "automations.yaml").read_text(encoding="utf-8")
    again = "python -m flows.deploy.deployments automations > infra/automations.yaml"
    assert text == automations_yaml(), f"run: {again}"
    (zombie,) = yaml.safe_load(text)["automations"]
    assert AutomationCore.model_validate(zombie) == zombie_automation()
    example = (REPOSITORY / "infra" / "notifications.yaml").read_text(encoding="utf-8")
    (notice,) = yaml.safe_load(example)["automations"]
    assert AutomationCore.model_validate(notice).enabled is False


def test_the_table_leaves_out_what_is_empty_throughout():
    rows = {1: {**ROW, "epoch": 1, "cached": True}, 0: {"heldout_success": 0.2, "epoch": 0}}
    assert table(rows) == [
        {"epoch": "0", "test": "0.200", "greedy": "", "notes": ""},
        {"epoch": "1", "test": "0.250", "greedy": "0.500", "notes": "cached"},
    ]


def test_the_page_on_a_run_says_where_to_look_further():
    rows = {number: {**ROW, "epoch": number} for number in (0, 1)}
    page = summary(config(), rows, "", "http://127.0.0.1:5000/#/experiments/1/runs/abc")
    assert "1 of 2 epochs" in page
    assert "| epoch | test | greedy |" in page
    assert "](http://127.0.0.1:5000/#/experiments/1/runs/abc)" in page
    assert "genenv report My.run_1 --root /data -o report.html" in page
    assert "FROM curriculum\n  WHERE run_id = 'My.run_1' ORDER BY epoch;" in page
    assert "Stopped" not in page and "start reached" not in page
    warm = {"warm_starts": {"env": {"steps": 5, "steps_planned": 9, "loss": 1.0}}}
    begun = summary(config(), {}, "", "", bootstrap=warm)
    assert "What the start reached:\n\n- pi_env: 5 of 9 steps, loss 1.000\n" in begun
    failed = summary(config(), {}, "rollout of epoch 1: no memory", "")
    assert "**Stopped:** rollout of epoch 1: no memory" in failed
    assert "MLflow" not in failed
    said = Event("limit", message="limits.tokens 5 is reached", facts={"go_on": "genenv resume X"})
    stopped = summary(config(), rows, "", "", stopped=said)
    assert "**Stopped by a limit:** limits.tokens 5 is reached." in stopped
    assert "the same request again" in stopped and "```\ngenenv resume X\n```" in stopped


@mutation(
    "the summary of a flow run hides what is wrong", "flows/shown/prefect_artifacts.py",
    "in (outcome.recent if outcome else ())", "in ()",
)  # fmt: skip
def test_the_page_on_a_run_says_what_came_out_and_what_is_wrong(tmp_path: Path):
    known = outcome_of_run(small_root(tmp_path), "run-a")
    page = summary(config(), {1: {**ROW, "epoch": 1}}, "", "", outcome=known)
    assert "\n".join(f"- {line}" for line in known.lines) in page
    assert known.recent
    for one in known.recent:
        assert f"**{one.severity.title()}:** {one.line}" in page


@mutation(
    "the summary of a flow run names no page of the view", "flows/shown/prefect_artifacts.py",
    "    if page := page_of(str(run)):\n", "    if page := '':\n",
)  # fmt: skip
def test_the_summary_links_to_the_view(monkeypatch: pytest.MonkeyPatch):
    assert "- view:" not in summary(config(), {}, "", "")
    monkeypatch.setenv("GENENV_VIEW_URL", "http://127.0.0.1:4300")
    assert "](http://127.0.0.1:4300/runs/My.run_1)" in summary(config(), {}, "", "")


def test_the_queries_of_the_page_are_right(tmp_path: Path):
    from genenv_core.storage.sql.catalog import query
    from genenv_core.storage.sql.sources import open_tables
    from genenv_core.storage.store.local import LocalStore

    page = summary(config(), {}, "", "")
    queries = page.partition("```sql\n")[2].partition("```")[0].split(";")[:-1]
    assert len(queries) == 3
    with open_tables(LocalStore(tmp_path)) as connection:
        for text in queries:
            assert query(connection, text).height == 0


def test_a_key_of_an_artifact_is_letters_digits_and_dashes():
    assert artifact_key(config(), "grpo-update") == "grpo-update-my-run-1"
