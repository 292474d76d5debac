"""Whole runs on a bucket, with real models, Prefect and MLflow, against moto's server.

Invariants: when requests fail at random, before or after they took effect, a run ends with the
tables, manifests, weights and MLflow entries of one in a directory; so does one that is killed
repeatedly; a second run, and one on a copy in a directory, computes nothing; no secret is in the
bucket, the log or this machine's folders.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.store.s3 import requests as s3_requests
from genenv_core.storage.store.s3.bucket import Bucket
from genenv_core.storage.upkeep.copying import copy_run
from tests.pipeline.builders import run, tiny
from tests.storm import points
from tests.storm.compare import differences, manifests
from tests.storm.points import Plan
from tests.storm.storm import RUN, Zygote, last_line
from tests.storm.zygote import zygote_of_the_api
from tests.unit.storage.s3.s3_double import BUCKET, FAULTS, Faults, moto, proxy, settled

pytestmark = pytest.mark.slow

WHEN = ("before", "after")
TRACKED = ("epochs=1", "tracking.enabled=true", "execution.checkpoint_seconds=0")
KILLS = [
    Plan(kind="adopting a checkpoint's file", number=2, whom="tree"),
    Plan(kind="writing the manifest", number=1, after=True, whom="tree"),
    Plan(kind="giving a lease back", number=1, whom="parent"),
    Plan(kind="writing a shard's record", number=1, after=True, whom="parent"),
    Plan(kind=points.SEAL, number=2, whom="tree"),
    Plan(kind="between manifest and run record", number=2, after=True, whom="tree"),
]
"""In the order of a run, so that each is reached after the one before it."""


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a bucket and set the environment for it; yields its address."""
    folder = tmp_path_factory.mktemp("machine")
    with moto() as url, pytest.MonkeyPatch.context() as patch:
        settled(url, folder, patch)
        yield url


@pytest.fixture(scope="module")
def reference(begun: Callable[[Path], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Complete the same run in a directory, from a bootstrap that is there; returns its root."""
    root = tmp_path_factory.mktemp("reference") / "root"
    begun(root)
    run(tiny(root, *TRACKED, run_id=RUN))
    return root


@pytest.fixture(scope="module")
def zygote(usual: str, api: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with zygote_of_the_api(tmp_path_factory.mktemp("zygote")) as started:
        yield started


def computed_stages(root: str) -> list[str]:
    store = open_store(root, writable=False)
    return [a.stage for a in RunLog(store, RUN).attempts() if a.state == "computed"]


def test_a_run_whose_requests_fail_at_random_is_the_run(
    reference: Path, usual: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, faults = f"s3://{BUCKET}/faults", Faults(rate=0.05, seed=11)
    monkeypatch.setattr(s3_requests, "PAUSE_S", 0.02)
    with proxy(usual, faults) as url, monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        run(tiny(root, *TRACKED, run_id=RUN))
        print(dict(faults.counts))
        assert all(faults.counts[f"{fault} {when}"] for fault in FAULTS for when in WHEN)
        faults.rate = 0.0
        assert differences(reference, root, RUN) == []
        made = computed_stages(root)
        assert len(made) == len(manifests(str(reference), RUN))

        run(tiny(root, *TRACKED, run_id=RUN))
        assert computed_stages(root) == made
        copy_run(open_store(root), LocalStore(tmp_path / "copy"), RUN)
    run(tiny(tmp_path / "copy", *TRACKED, run_id=RUN))
    assert computed_stages(str(tmp_path / "copy")) == made
    assert differences(reference, tmp_path / "copy", RUN) == []

    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    bucket = Bucket(BUCKET, "faults")
    assert all(secret not in bucket.get(path)[0] for path in bucket.list(""))
    machine = Path(os.environ["GENENV_STATE_DIR"]).parent
    files = [path for path in machine.rglob("*") if path.is_file()]
    assert len(files) > 50
    assert all(secret not in path.read_bytes() for path in files)


def test_a_run_that_is_killed_again_and_again_is_the_run(
    reference: Path, zygote: Zygote, tmp_path: Path
) -> None:
    root, output = f"s3://{BUCKET}/kills", tmp_path / "log"
    for plan in KILLS:
        ended = zygote.run(root, plan, output, 0, "--epochs", "1")
        assert ended.status == -signal.SIGKILL, (plan, last_line(output))
    ended = zygote.run(root, Plan(), output, 0, "--epochs", "1")
    assert ended.status == 0, last_line(output)
    assert differences(reference, root, RUN) == []
