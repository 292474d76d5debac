"""A task set that a model attempts, with a real Prefect flow and a real endpoint or engine.

Invariants: rows of the flaws, the attempts and the checks are in SQL; a certificate that was cut
off asks for the missing attempts alone and ends with the rows of one that never was; a model that
refuses leaves no rows; a folder is attempted through its own code; what is there is reused.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core.benchmarks.measuring.request import MeasuringOptions, certification
from genenv_core.config.schema import RunConfig
from genenv_core.errors import EngineError
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.store.local import LocalStore
from genenv_core.types import JsonObject
from tests.mutations import mutation
from tests.pipeline.builders import sql, states
from tests.unit.exchange.test_chat_endpoint import Server, refused, said, server
from tests.unit.exchange.test_environments import given_away, with_config

pytestmark = pytest.mark.slow

__all__ = ["server"]

KNOWN = "execution.benchmark={retries: 0, concurrency: 2, backoff_seconds: 0}"
TABLES = {
    "certified_sets": "name",
    "set_flaws": "task_id, flaw",
    "scores": "trace_id",
    "trace_tokens": "trace_id",
    "tasks": "task_id",
}
"""Tables of a certificate, and the order of their rows."""


def config_of(root: Path, url: str, *overrides: str, **asked: Any) -> RunConfig:
    from tasks.policies.measured import named

    given = MeasuringOptions(**{"model": url, "model_name": "big", "samples": 4, **asked})
    domain = {"name": "arithmetic"}
    fields = {"root": str(root)}
    return named(certification(domain, given, (4, 2), overrides=(KNOWN, *overrides), fields=fields))


def certified(config: RunConfig) -> JsonObject:
    from flows.benchmark import measure

    return dict(Artifacts(LocalStore(Path(config.root))).load(measure(config)).facts)


def sometimes_right(body: JsonObject) -> web.Response:
    """Answer right by the seed of the request, so that attempts differ and can be repeated."""
    asked = re.findall(r"[0-9 +-]+[0-9]", body["messages"][-1]["content"])[-1]
    numbers = [int(one) for one in asked.replace("- ", "+ -").split("+")]
    return said(str(sum(numbers) + (body["seed"] % 3 == 0)))


def rows_of(config: RunConfig) -> dict[str, list[tuple[Any, ...]]]:
    leaves_out = "EXCLUDE (run_id, arm)"
    return {
        table: sql(config, f"SELECT * {leaves_out} FROM {table} ORDER BY {order}").rows()
        for table, order in TABLES.items()
    }


@mutation(
    "verdicts of a certified set are not kept with its attempts", "tasks/policies/certifying.py",
    'frame("scores", verdicts_of(with_messages(traces, tokens), by_id, domain))',
    'frame("scores", [])',
)  # fmt: skip
def test_a_certificate_that_was_cut_off_goes_on_and_ends_with_the_same_rows(
    api: None, server: Server, tmp_path: Path
) -> None:
    lost = threading.Event()

    def cut_off(body: JsonObject) -> web.Response:
        if len(server.bodies) > 10 and not lost.is_set():
            return refused(503, "busy")
        return sometimes_right(body)

    short = "rollout.shard_groups=2"
    server.always = sometimes_right
    whole = config_of(tmp_path / "whole", server.url, short)
    facts = certified(whole)
    assert len(server.bodies) == facts["verdicts"] == facts["attempts"] == 24
    assert (facts["tasks"], facts["attempted"], facts["flawed"]) == (6, 6, 0)
    assert states(whole) == [(0, "benchmark", "computed")]
    certified(whole)
    assert len(server.bodies) == 24  # all reused
    server.bodies.clear()
    server.always = cut_off
    broken = config_of(tmp_path / "broken", server.url, short)
    assert str(broken.run_id).startswith("certify-big-arithmetic-s0-")
    with pytest.raises(EngineError, match="503"):
        certified(broken)
    lost.set()
    server.bodies.clear()
    assert certified(broken) == facts
    assert 0 < len(server.bodies) < 24
    found = rows_of(broken)
    assert found == rows_of(whole)
    names = [row[0] for row in found["certified_sets"]]
    assert {"any_flaw", "unreachable", "reachable", "signal", "chance"} <= set(names)
    right = sum(row[5] for row in found["scores"])
    assert 0 < right < 24
    (headroom,) = [row for row in found["certified_sets"] if row[0] == "headroom"]
    assert headroom[1] == pytest.approx(1 - right / 24) and headroom[4] == 6


def test_an_endpoint_that_refuses_leaves_no_rows(api: None, server: Server, tmp_path: Path) -> None:
    server.always = lambda body: refused(401, "who are you")
    config = config_of(tmp_path / "r", server.url)
    with pytest.raises(EngineError, match="401"):
        certified(config)
    assert sql(config, "FROM certified_sets").is_empty()


def test_a_folder_is_attempted_through_its_own_code(server: Server, tmp_path: Path) -> None:
    """The whole command: it names the run, whose rows `genenv sql` has, and reuses all of it."""
    folder = given_away(tmp_path, "verifiers", with_config({"name": "desk"}))[0]
    server.always = lambda body: said("nothing")
    words = [
        *("certify", str(folder), "--model", server.url, "--model-name", "big"),
        *("--samples", "2", "--root", str(tmp_path / "root"), "--page", str(tmp_path / "p.html")),
        *("-o", str(tmp_path / "rows.csv")),
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    asked = len(server.bodies)
    tasks = int(re.findall(r"certifies (\d+) task", done.output)[0])
    assert asked >= 2 * tasks > 0
    assert re.search(rf"attempts {tasks} tasks?, each 2 times: {2 * tasks} attempts", done.output)
    run = re.findall(r"run (certify-big-exported_folder-s0-\w+)", done.output)[0]
    assert (tmp_path / "rows.csv").read_text().startswith("check,estimate,low,high,n,unit,limit,")
    assert "Checks of the attempts" in done.output or "separating" in done.output
    assert "separating" in (tmp_path / "p.html").read_text()
    query = "SELECT count(DISTINCT task_id) FROM set_flaws WHERE set_name = 'generated'"
    told = CliRunner().invoke(
        app, ["sql", query, "--root", str(tmp_path / "root"), "--format", "csv"]
    )
    assert told.output.split()[-1] == str(tasks)
    again = CliRunner().invoke(app, ["resume", run, "--root", str(tmp_path / "root")])
    assert again.exit_code == 0 and "separating" in again.output
    assert len(server.bodies) == asked
