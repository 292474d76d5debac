"""Stages on a work pool of a root in a bucket, with a real worker that has its own cache and state.

Invariants: a run whose stages are on a pool gives, in a bucket, the keys, tables and weights of one
that is inline in a directory, and each stage is computed where it was placed; a child that was
killed fails its stage with the reason, and the same command goes on; credentials come from the
worker's environment and are in no parameter, log or object.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from genenv_core.config.stages import STAGES
from genenv_core.storage.s3_bucket import Bucket
from tests.pipeline.builders import manifests, run, sql, states, tiny
from tests.pipeline.pools import child_states, children, worker
from tests.pipeline.test_placement import PLACED, Command
from tests.unit.s3_double import BUCKET, moto, settled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

POOL = "bucket"


@pytest.fixture(scope="module")
def elsewhere(api: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a worker beside us that sees the bucket and nothing else of ours."""
    from flows.pools import make_pool

    folder = tmp_path_factory.mktemp("elsewhere")
    with moto() as url, pytest.MonkeyPatch.context() as patch:
        make_pool(POOL, kind="process", stages=STAGES)
        settled(url, folder, patch)
        with worker(POOL, folder / "log"):
            settled(url, tmp_path_factory.mktemp("here"), patch)
            yield folder


def test_a_run_in_a_bucket_with_stages_on_a_pool_is_the_run(
    elsewhere: Path, tiny_root: Path
) -> None:
    inline = tiny(tiny_root, epochs=1, run_id="here")
    places = [f"placement.{stage}={POOL}" for stage in PLACED]
    root = f"s3://{BUCKET}/placed"
    away = tiny(root, *places, "placement.poll_seconds=0.3", epochs=1, run_id="there")
    run(inline)
    run(away)
    ours, theirs = manifests(inline), manifests(away)
    assert {k: m.key for k, m in ours.items()} == {k: m.key for k, m in theirs.items()}
    assert {k: m.digest for k, m in ours.items()} == {k: m.digest for k, m in theirs.items()}
    assert sorted(child_states("there")) == sorted((stage, "Completed") for stage in PLACED)
    pids = dict(sql(away, "SELECT stage, pid FROM stage_runs WHERE epoch = 1").iter_rows())
    assert {stage for stage, pid in pids.items() if pid != os.getpid()} == set(PLACED)
    assert list((elsewhere / "state").rglob("checkpoints"))  # the worker's own copies

    tried = states(away)
    run(away)  # all of it is reused, and no child is made
    assert len(children("there")) == len(PLACED)
    assert states(away) == tried


def test_a_killed_child_in_a_bucket_is_continued(elsewhere: Path) -> None:
    one = Command(f"s3://{BUCKET}/placed", "shot", pool=POOL)
    try:
        one.at_work()
        os.kill(one.pid(), signal.SIGKILL)
        status, error = one.end()
        assert status == 1
        assert "stage grpo_update of epoch 1 on pool bucket crashed: " in error, error
        one.start()
        status, error = one.end()
        assert status == 0, error
    finally:
        if one.process and one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()
    assert child_states("shot") == [("grpo_update", "Crashed"), ("grpo_update", "Completed")]
    assert [a.state for a in one.attempts()][-1] == "computed"


def test_no_credential_left_the_environment(elsewhere: Path) -> None:
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    parameters = json.dumps([c.parameters for r in ("there", "shot") for c in children(r)])
    assert f"s3://{BUCKET}/placed" in parameters and secret not in parameters
    files = [path for path in elsewhere.rglob("*") if path.is_file()]
    assert files and all(secret.encode() not in path.read_bytes() for path in files)
    bucket = Bucket(BUCKET, "placed")
    assert all(secret.encode() not in bucket.get(path)[0] for path in bucket.list(""))
