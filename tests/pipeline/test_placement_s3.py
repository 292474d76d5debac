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
from tests.pipeline.pools import child_states, children, worker
from tests.pipeline.test_placement import Command, is_as_inline
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
    is_as_inline(POOL, f"s3://{BUCKET}/placed", tiny_root)
    assert list((elsewhere / "state").rglob("checkpoints"))  # the worker's own copies


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
