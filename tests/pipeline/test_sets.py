"""Runs whose epochs play windows of one set: pi_env's, a checkpoint's, an endpoint's.

Invariants: the set is written once, by what the arm says, and all of it is there; each epoch
attempts the next window, and after the last task comes the first; tokens of the set count once;
summaries and views speak of what was attempted; the plan of a finished run has hits alone; a key is
nowhere in the root; a missing key stops the run before anything is asked.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from aiohttp import web

from flows.planner import plan_run
from genenv_core.config.schema import RunConfig
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError, StageError
from genenv_core.report.data import read_report
from genenv_core.report.page import render
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.opening import open_store
from schemas.relations import describe
from tasks.stage.stores import artifacts_of
from tests.pipeline.builders import manifests, run, sql, states, tiny
from tests.unit.exchange.test_chat_endpoint import Server, said, server

__all__ = ["server"]

SET = ("data.set_tasks=20", "generation.max_generations=80")
PLAYED = "SELECT epoch, task_id FROM task_scores WHERE source <> 'base' ORDER BY group_id"
KEY = "sk-never-to-be-seen"


def windows(config: RunConfig) -> list[list[str]]:
    """Return the tasks that each epoch attempted, in order."""
    rows = sql(config, PLAYED)
    return [rows.filter(epoch=number)["task_id"].to_list() for number in range(1, 4)]


def plays_a_set(config: RunConfig, source: str) -> pl.DataFrame:
    """Check a run of three epochs over a set of 20 tasks; return its rows of the set."""
    tasks = sql(config, f"SELECT * FROM tasks WHERE source = '{source}' ORDER BY task_id")
    valid = tasks.filter("valid")
    names = valid["task_id"].to_list()
    assert len(names) == 20 and set(tasks["epoch"]) == {1}
    assert windows(config) == [names[:8], names[8:16], [*names[16:], *names[:4]]]
    computed = Counter(e[:2] for e in states(config) if e[2] == "computed")
    assert (1, "generate_tasks") in computed and (2, "generate_tasks") not in computed
    rows = sql(config, "SELECT * FROM epochs ORDER BY epoch")
    assert rows["env_action"].unique().to_list() == ["skipped"]
    difficulty = dict(valid.select("task_id", "difficulty").iter_rows())
    for names, row in zip(windows(config), rows.to_dicts(), strict=True):
        means = [difficulty[name] for name in names]
        assert row["mean_difficulty"] == pytest.approx(sum(means) / len(means))
        assert row["tasks_valid"] == 20 and row["p_hat"] is not None
    attempts = sql(config, "SELECT epoch, tasks FROM curriculum ORDER BY epoch")
    assert attempts.rows() == [(1, 8), (2, 8), (3, 8)]
    rejected = sql(config, "SELECT sum(rejections) AS n FROM rejections WHERE kept_from = 'tasks'")
    assert (rejected["n"][0] or 0) == tasks.height - 20
    spent = sql(config, "SELECT epoch, tokens FROM spent ORDER BY epoch").rows()
    paid = tasks.unique(["generation_index"])
    of_set = int((paid["env_prompt_tokens"] + paid["generation_tokens"]).sum())
    played = sql(config, "SELECT sum(prompt_tokens + response_tokens) AS n FROM traces")["n"][0]
    assert spent[2] == (3, of_set + played)
    assert {entry.status for entry in plan_run(config)} == {"hit"}
    answers_everywhere(config)
    return tasks


def answers_everywhere(config: RunConfig) -> None:
    """Read every view, and the report, over one connection: to make all views takes .25 s."""
    store = open_store(config.root, writable=False)
    with open_tables(store, [str(config.run_id)]) as connection:
        for relation in describe():
            query(connection, f"SELECT count(*) FROM {relation.reference}")
        reports = read_report(connection, [str(config.run_id)])
    page = render(reports, root=config.root, now=datetime(2026, 1, 1, tzinfo=UTC), version="1")
    assert str(config.run_id) in page


@pytest.mark.slow
def test_static_plays_windows_of_a_set(api: None, tiny_root: Path) -> None:
    config = tiny(tiny_root, "arm=static", *SET, epochs=3, run_id="set-static")
    run(config)
    tasks = plays_a_set(config, "generated")
    choices = tasks.filter("valid")["choice"].unique().to_list()
    assert choices == ["random"]  # none is left out, whatever generation.candidates says
    pooled = manifests(config)
    assert [pooled[epoch, "pool"].facts["new_groups"] for epoch in (1, 2, 3)] == [8, 8, 8]


@pytest.mark.slow
def test_a_checkpoint_is_a_teacher(api: None, tiny_root: Path) -> None:
    first = tiny(tiny_root, "arm=base", epochs=1, run_id="set-base")
    run(first)
    artifacts = artifacts_of(first.root)
    folder = artifacts.checkpoint(manifests(first)[0, "bootstrap"], "env")
    teacher = ("arm=offline", f"teacher.model={folder}", *SET)
    config = tiny(tiny_root, *teacher, epochs=3, run_id="set-teacher")
    run(config)
    tasks = plays_a_set(config, "teacher")
    assert tasks["generation_text"].null_count() == 0
    assert tasks["generation_id"].null_count() == tasks["choice"].null_count() == tasks.height
    assert sql(config, "SELECT count(*) AS n FROM d_env")["n"][0] == 0
    (made,) = [p for p in plan_run(config) if p.stage == "generate_tasks" and p.epoch == 1][:1]
    given = made.parts["inputs"]["teacher"]
    assert str(folder) not in json.dumps(given) and len(given["model"]) == 64


@pytest.mark.slow
def test_an_endpoint_is_a_teacher(
    api: None, tiny_root: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain: Any = get_domain("desk", tiny(tiny_root, run_id="x").domain.options)
    taught = cycle(text for _, text in domain.env_examples(7, 80, 0.0))

    def reply(body: dict[str, Any]) -> web.Response:
        return said(next(taught))  # another text each time, also where many requests wait

    server.always = reply
    url = (f"teacher.url={server.url}", "teacher.model_name=big")
    asking = ("execution.teacher.key_env=TEACHER_KEY", "execution.teacher.backoff_seconds=0")
    given = ("arm=offline", *url, *asking, *SET)
    config = tiny(tiny_root, *given, epochs=3, run_id="set-endpoint")
    with pytest.raises(Exception, match="names the variable TEACHER_KEY") as caught:
        run(config)
    assert isinstance(caught.value, ConfigError | StageError) and not server.bodies
    monkeypatch.setenv("TEACHER_KEY", KEY)
    run(config)
    plays_a_set(config, "teacher")
    assert set(server.headers) == {f"Bearer {KEY}"}
    asked = len(server.bodies)
    run(config)
    assert len(server.bodies) == asked
    for path in Path(config.root).rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    assert KEY not in json.dumps(states(config))
