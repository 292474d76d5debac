"""A run that may spend only so much.

Invariants: it ends cleanly before the first stage that it would compute after a limit is reached;
nothing has failed, in its history or in Prefect; the terminal and `genenv status` name the limit,
what is spent and the command that goes on; with a higher limit it goes on, a reached limit lets
stored stages pass, and the whole has the bits of a run without a limit. The tokens in the history
are those of the view `cost`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort

from flows.cli.runs.live import RunView
from flows.cli.runs.status import show_run
from flows.coevolution import coevolution
from flows.deploy import deployed
from genenv_core.config.request import RunRequest
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.limits import LimitsConfig
from genenv_core.storage.store.opening import open_store
from tests.pipeline.builders import manifests, run, sql, states, tiny

NEWEST = FlowRunSort.START_TIME_DESC


def limited(config: RunConfig, tokens: int) -> RunConfig:
    return config.model_copy(update={"limits": LimitsConfig(tokens=tokens)})


@pytest.mark.slow
@pytest.mark.usefixtures("api")
def test_a_run_stops_at_a_limit_of_tokens_and_goes_on_with_a_higher_one(
    tiny_root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of its own, so that no other test has computed the first stage of epoch 1.
    config = tiny(tiny_root, "generation.temperature=0.97", run_id="limited", epochs=1)
    first, told = limited(config, 1), stopped(limited(config, 1), capsys)
    assert told["status"] == "stopped" and told["stopped"]["limits"][0]["limit"] == "tokens"
    begun = set(manifests(first))
    assert (0, "evaluate") in begun and (1, "rollout") not in begun
    go_on = told["stopped"]["go_on"]
    assert go_on.startswith(f"genenv resume limited --root {tiny_root} --set limits.tokens=")
    show_run(open_store(config.root, writable=False), "limited", as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "stopped by a limit: limits.tokens 1 is reached" in shown
    assert "--set limits.tokens=" in shown
    spent = sql(config, "SELECT sum(tokens) FROM stage_runs").item()
    with monkeypatch.context() as patch:  # the workers of this session stay
        patch.setattr(deployed, "do_work", lambda work, soft: work())
        fields = {"resume": "limited", "root": str(tiny_root), "limits": {"tokens": spent + 1}}
        asked = RunRequest.model_validate(fields)
        state = deployed.coevolution(asked, return_state=True)  # one stage further
    assert (state.name, state.is_completed()) == ("Stopped", True)
    assert f"limits.tokens {spent + 1:,} is reached" in str(state.message)
    assert sql(config, "SELECT sum(tokens) FROM stage_runs").item() > spent
    assert {state for _, _, state in states(config)} <= {"computed", "cached"}
    with get_client(sync_client=True) as client:
        flows = client.read_flow_runs(sort=NEWEST, limit=200)
    states_of_flows = {one.state_name for one in flows if one.name.startswith("limited")}
    assert states_of_flows == {"Completed", "Stopped"}
    peaks = sql(config, "SELECT min(peak_memory) FROM stage_runs WHERE state = 'computed'").item()
    assert peaks > 10_000_000


def stopped(config: RunConfig, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return what `genenv run --json` says of a run."""
    with RunView(config, quiet=True) as view:
        coevolution(config)
    capsys.readouterr()
    view.finish(0, 0)
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_it_has_the_bits_of_a_run_without_a_limit(
    begun: Callable[[Path], None], tiny_root: Path, tmp_path: Path
) -> None:
    begun(tmp_path / "a")
    config = tiny(tmp_path / "a", run_id="same", epochs=1)
    assert coevolution(limited(config, 1800)) is None
    assert coevolution(limited(config, 10**9)) is not None
    assert coevolution(limited(config, 1)) is not None  # a finished run is reused, at any limit
    other = tiny(tiny_root, run_id="same", epochs=1)
    run(other)
    bits = [{at: (m.key, m.digest) for at, m in manifests(one).items()} for one in (config, other)]
    assert bits[0] == bits[1]
    counted = sql(
        config,
        "SELECT stage, c.tokens, s.tokens AS noted FROM cost c JOIN stage_runs s "
        "USING (run_id, epoch, stage) WHERE s.state = 'computed' AND s.tokens IS NOT NULL",
    )
    assert set(counted["stage"]) >= {"generate_tasks", "rollout", "evaluate", "grpo_update"}
    assert counted["tokens"].fill_null(0).equals(counted["noted"])
