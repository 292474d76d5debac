"""A whole co-evolution of given models that get a warm start.

Invariants: a model that is at its target keeps its bits, another one is trained; the game, its KL
references, branches, measurements and cards take the warm-started checkpoints; the same command
again computes nothing; another root gives the same bits; a missed target is said and ends nothing;
another run can be the teacher, and the content of its examples is in the key.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.coevolution import coevolution
from flows.planner import plan_run
from genenv_core.bundle.cards import card_files
from genenv_core.config.branching import BranchPoint
from genenv_core.config.stages import WARM_STARTS
from genenv_core.config.until import Until
from genenv_core.epoch.reached import warm_start_lines
from genenv_core.epoch.trouble import troubles
from genenv_core.evidence.beginning import reached
from genenv_core.exchange.examples.given import named_examples
from genenv_core.exchange.examples.runs import digest_of
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.branches import branch_off, taken_over
from genenv_core.storage.records.manifest import CheckpointRef
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.verify import verify
from genenv_core.types import Policy
from tasks.policies.measured import model_of
from tests.mutations import mutation
from tests.pipeline.builders import manifests, run, sql, tiny
from tests.unit.plugged import domain_of

SETTINGS = (
    "warm_start.steps=3",
    "warm_start.round_steps=2",
    "warm_start.batch_rows=4",
    "warm_start.micro_batch_rows=2",
    "warm_start.probe_rows=8",
    "warm_start.learning_rate=1e-3",
    "warm_start.agent_target=1",
    "warm_start.env_target=0.01",
)


@mutation(
    "the game starts from bootstrap's models after a warm start", "flows/state.py",
    "initial_checkpoints(warm_start or bootstrap)", "initial_checkpoints(bootstrap)",
)  # fmt: skip
@mutation(
    "a model at its target is trained all the same", "tasks/warm_start.py",
    'told["reached"] >= told["target"] or ', "",
)  # fmt: skip
@pytest.mark.slow
def test_given_models_start_warm(api: None, begun: Callable[[Path], None], tmp_path: Path) -> None:
    begun(tmp_path / "root")
    store = LocalStore(tmp_path / "root")
    made = manifests(tiny(tmp_path / "root", run_id="begun"))[0, "bootstrap"]
    models = [f"models.{policy}={Artifacts(store).checkpoint(made, policy)}" for policy in Policy]
    config = tiny(tmp_path / "root", *models, *SETTINGS, epochs=1, run_id="warmed")
    run(config)
    found = manifests(config)
    given, warm = found[0, "bootstrap"].checkpoints, found[0, "warm_start"].checkpoints
    assert given == made.checkpoints
    assert (warm["env"] == given["env"], warm["agent"] == given["agent"]) == (True, False)
    told = found[0, "warm_start"].facts[WARM_STARTS]
    assert [told[policy]["steps"] for policy in Policy] == [3, 0]
    assert (told["agent"]["of"], told["agent"]["reached"] < 1) == (8, True)
    (warning,) = troubles(found[0, "warm_start"].facts)
    assert warning.startswith("pi_agent: 3 of 3 steps, loss ")
    assert "warm_start.agent_target 1 not reached: raise warm_start.steps" in warning
    lines = warm_start_lines(found[0, "warm_start"].facts)
    assert lines[1].startswith("pi_env: 0 of 3 steps, left as it was given, ")
    assert reached(store, "warmed")[:2] == lines
    # All that asks for the first checkpoints.
    rows = sql(config, "SELECT policy, digest FROM checkpoints WHERE epoch = 0").rows()
    assert dict(rows) == dict(warm)
    assert found[0, "evaluate"].facts["agent_checkpoint"] == warm["agent"]
    assert found[1, "grpo_update"].key_parts["inputs"]["agent"] == f"{warm['agent']}@0"
    assert found[1, "rwr_update"].key_parts["inputs"]["env_initial"] == f"{warm['env']}@0"
    point = BranchPoint(run_id="warmed", epoch=1)
    assert "warm_start" in taken_over(Artifacts(store), branch_off(store, point))[0]
    measured = model_of(config, "benchmark.model", "run:warmed@0", Policy.AGENT)
    assert isinstance(measured, CheckpointRef) and measured.digest == warm["agent"]
    recorded = RunLog(store, "warmed").info().config
    card = card_files(store, recorded, found)["cards/agent-00000.md"].decode()
    assert "after 3 supervised steps on examples (genenvInput" in card
    assert {entry.status for entry in plan_run(config)} == {"hit"}
    assert verify(store).damaged == []
    # The run is a teacher, from which a second model starts in a root of its own.
    taught = [*models, *SETTINGS, "warm_start.examples=run:warmed", "warm_start.steps=2"]
    taught += [f"roots.read=[{tmp_path / 'root'}]", "models.agent=bootstrap"]
    pupil = tiny(tmp_path / "pupil", *taught, epochs=1, run_id="pupil")
    coevolution(pupil, Until(stage="warm_start", epoch=0))
    lessons = manifests(pupil)[0, "warm_start"].key_parts["inputs"]["examples"]
    named = named_examples(pupil, domain_of(pupil), [Policy.ENV])
    assert named is not None and lessons == digest_of(named)
    told = manifests(pupil)[0, "warm_start"].facts[WARM_STARTS]
    assert told["env"]["of"] == 8 and "examples" not in found[0, "warm_start"].key_parts["inputs"]
    # Another root.
    other = tiny(tmp_path / "other", *models, *SETTINGS, epochs=1, run_id="warmed")
    coevolution(other, Until(stage="warm_start", epoch=0))
    assert manifests(other)[0, "warm_start"].digest == found[0, "warm_start"].digest
