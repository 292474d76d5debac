"""A run in a bundle, and the same run computed again from it.

Invariants: a replay in another process and another root is equal to the bit, and reuses nothing;
the first stage whose output is not the bundle's ends it, and is named.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flows.bundling import gather
from flows.coevolution import coevolution
from flows.replaying import ReplayComparison
from genenv_core.bundle.comparing import Here
from genenv_core.bundle.contents import read, write
from genenv_core.errors import ReplayError
from genenv_core.storage.store.local import LocalStore
from tasks.stage.progress import listening
from tests.pipeline.builders import run, states, tiny
from tests.pipeline.commands import genenv


@pytest.mark.slow
@pytest.mark.usefixtures("api")
def test_a_bundle_is_replayed_to_the_bit(tiny_root: Path, tmp_path: Path) -> None:
    config = tiny(tiny_root, run_id="bundled", epochs=1)
    run(config)
    held = gather(config, LocalStore(tiny_root))
    (tmp_path / "b.genenv.zip").write_bytes(write(held))
    done = genenv("replay", "b.genenv.zip", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["equal"] and (told["stages"], told["checkpoints"]) == (12, 4)
    there = config.model_copy(update={"root": str(tmp_path / "b-replay")})
    assert {state for _, _, state in states(there)} == {"computed"}
    # One that claims another output is not equal from that stage on.
    evaluation = held.stages[0, "evaluate"]
    facts = {**evaluation.facts, "agent_checkpoint": "0" * 64}
    forged = evaluation.model_copy(update={"facts": facts})
    other = read(write(replace(held, stages={**held.stages, (0, "evaluate"): forged})))
    compared = ReplayComparison(other, LocalStore(tiny_root), Here((), (), (), ()), config)
    with listening(compared), pytest.raises(ReplayError, match="evaluate of epoch 0 is the first"):
        coevolution(config)  # every stage is there, and compared all the same
    assert compared.equal == {(0, "bootstrap")}
