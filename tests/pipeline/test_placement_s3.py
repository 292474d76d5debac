"""Stages on a work pool of a root in a bucket, with a real worker that has its own cache and state.

Invariants: a run with stages on a work pool gives, in a bucket, the keys, tables and weights of an
inline one in a directory, and each stage is computed where it was placed; a killed child fails its
stage with the reason, and the same command continues; credentials come from the worker's
environment and are in no parameter, log or object.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from genenv_core.config.stages import STAGES
from genenv_core.storage.store.s3.bucket import Bucket
from tests.hold.forks import Forks
from tests.holds import Holds
from tests.pipeline.test_placement import Command, forks, is_as_inline
from tests.pipeline.workers import child_states, children, environment, worker
from tests.unit.storage.s3.s3_double import BUCKET, moto, settled

__all__ = ["forks"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WORK_POOL = "bucket"


@pytest.fixture(scope="module")
def holds(tmp_path_factory: pytest.TempPathFactory) -> Holds:
    """Return where the processes of the worker are held."""
    return Holds(tmp_path_factory.mktemp("held") / "holds")


@pytest.fixture(scope="module")
def elsewhere(
    forks: Forks, api: None, holds: Holds, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Run a worker that shares only the bucket with the flow; yields its folder."""
    from flows.deploy.stage_on_pool import make_work_pool

    folder = tmp_path_factory.mktemp("elsewhere")
    with moto() as url, pytest.MonkeyPatch.context() as patch:
        make_work_pool(WORK_POOL, kind="process", stages=STAGES)
        settled(url, folder, patch)
        variables = environment() | holds.environment
        with worker(WORK_POOL, folder / "log", variables=variables, python=forks.python):
            settled(url, tmp_path_factory.mktemp("here"), patch)
            yield folder


def test_a_run_in_a_bucket_with_stages_on_a_work_pool_is_the_run(
    elsewhere: Path, tiny_root: Path
) -> None:
    is_as_inline(WORK_POOL, f"s3://{BUCKET}/placed", tiny_root)
    assert list((elsewhere / "state").rglob("checkpoints"))  # the worker's own copies


def test_a_killed_child_in_a_bucket_is_continued(
    elsewhere: Path, holds: Holds, forks: Forks
) -> None:
    one = Command(f"s3://{BUCKET}/placed", "shot", holds=holds, forks=forks, at=WORK_POOL)
    try:
        one.at_work()
        os.kill(one.pid(), signal.SIGKILL)
        status, error = one.end()
        assert status == 1
        assert "stage grpo_update of epoch 1 on work pool bucket crashed: " in error, error
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
