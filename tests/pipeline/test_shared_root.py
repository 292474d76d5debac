"""Whole runs that read from a root of others.

Invariants: what the other root has finished is reused, none of its weights is copied for that, and
it is equal to the digest; more epochs are computed here from its weights and equal those that are
computed there; the other root, a directory or a bucket, stays as it is.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from flows.planner import plan_run
from genenv_core.storage.records.foreign import WEIGHTS
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.upkeep.copying import copy_run
from genenv_core.storage.upkeep.verify import verify
from tests.pipeline.builders import computed, manifests, run, sql, states, tiny
from tests.unit.storage.s3.s3_double import Faults, environment, moto, proxy, settled


class Heard(Faults):
    """Lets every request through, and counts those of each method below a prefix."""

    prefix = ""

    def draw(self, method: str, path: str) -> tuple[str, str] | None:
        if self.prefix in path:
            self.counts[method] += 1
        return None


def weights(root: Path) -> list[Path]:
    return sorted(root.glob(f"parts/*/*{WEIGHTS}"))


def contents(root: Path) -> dict[str, str]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
@pytest.mark.usefixtures("api")
def test_a_run_goes_on_from_what_another_root_has(
    tiny_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tiny(tiny_root, run_id="theirs", epochs=1)
    run(theirs)
    before = contents(tiny_root)
    own = tmp_path / "own"
    read = f"roots.read=[{tiny_root}]"
    # With MLflow: a model version is no reason to copy weights.
    mine = tiny(own, "tracking.enabled=true", read, run_id="mine", epochs=1)
    assert {(one.status, one.root) for one in plan_run(mine)} == {("hit", str(tiny_root))}
    run(mine)
    assert not computed(states(mine)) and weights(own) == []
    assert manifests(mine) == manifests(theirs)
    told = "SELECT DISTINCT computed_root FROM reused"
    assert sql(mine, told).rows() == [(str(tiny_root),)]
    assert sql(mine, "FROM traces").height == sql(theirs, "FROM traces").height
    longer = mine.model_copy(update={"epochs": 2})
    run(longer)
    assert {epoch for epoch, _ in computed(states(longer))} == {2} and weights(own)
    assert verify(LocalStore(own)).damaged == []
    assert contents(tiny_root) == before

    with moto() as url:
        bucket = settled(url, tmp_path, monkeypatch)
        copy_run(LocalStore(tiny_root), open_store(bucket), "theirs")
        heard = Heard()
        with proxy(url, heard) as counted:
            for name, value in environment(counted).items():
                monkeypatch.setenv(name, value)
            third = tiny(tmp_path / "third", f"roots.read=[{bucket}]", run_id="third", epochs=2)
            run(third)
        assert {epoch for epoch, _ in computed(states(third))} == {2}
        assert manifests(third) == manifests(longer)
        assert heard.counts["GET"] and heard.counts.keys() <= {"GET", "HEAD"}
