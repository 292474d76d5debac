"""One Prefect API for the session, and tiny runs that several tests read."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.running.environment import prepare
from genenv_core.config.until import Until
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.copying import copy_run
from genenv_core.storage.upkeep.verify import verify
from tests.pipeline.builders import tiny

prepare()


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run a real Prefect server on 127.0.0.1; stop it and the training workers at the end."""
    home = tmp_path_factory.mktemp("prefect")
    os.environ["PREFECT_HOME"] = str(home)
    from flows.cli.session import drain
    from flows.running.local_server import in_process, local_api

    with local_api(home) as server:
        from tasks.policies import trainer as services

        with in_process(server):
            yield
            services.close()
            drain()


BEGUN = "begun"
START = Until(stage="evaluate", epoch=0)
"""Half of a short run, and the part that a test of a later stage only waits for."""


def holds_start(root: Path) -> bool:
    """Return whether a root has the start of the preset tiny under the keys of this code, whole."""
    if not root.exists():
        return False
    from flows.planner import plan_run

    stages = plan_run(tiny(root, run_id=BEGUN), until=START)
    return {one.status for one in stages} == {"hit"} and not verify(LocalStore(root)).damaged


@pytest.fixture(scope="session")
def begun_root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root in which the preset tiny is bootstrapped and evaluated; no test writes in it.

    It lies in pytest's cache, so that sessions after this one have it too, as long as keys stay.
    """
    lasting = request.config.pluginmanager.has_plugin("cacheprovider")
    cache = request.config.cache.mkdir(BEGUN) if lasting else tmp_path_factory.mktemp(BEGUN)
    kept = cache / "root"
    with (cache / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not holds_start(kept):
            request.getfixturevalue("api")
            from flows.coevolution import coevolution

            shutil.rmtree(kept, ignore_errors=True)
            made = tmp_path_factory.mktemp("made")
            coevolution(tiny(made, run_id=BEGUN), START)
            copy_run(LocalStore(made), LocalStore(kept), BEGUN)
    return kept


@pytest.fixture(scope="session")
def tiny_root(begun_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root that the tests of this folder share, so that bootstrap runs once.

    A test that needs a computed stage uses settings of its own, and every run has a name of its
    own. No test may rely on another one or on their order.
    """
    return shutil.copytree(begun_root, tmp_path_factory.mktemp("shared") / "root")


@pytest.fixture(scope="session")
def begun(api: None, begun_root: Path) -> Callable[[Path], None]:
    """Return what makes a folder a root in which the preset tiny is bootstrapped and evaluated."""
    return lambda root: shutil.copytree(begun_root, root) and None
