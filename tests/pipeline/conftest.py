"""One Prefect API for the session, and tiny runs that several tests read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.running.environment import prepare
from genenv_core.config.until import Until
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.upkeep.copying import copy_run
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


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root that the tests of this folder share, so that bootstrap runs once.

    A test that needs a computed stage uses settings of its own, and every run has a name of its
    own. No test may rely on another one or on their order.
    """
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="session")
def begun(
    api: None, tiny_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], None]:
    """Return what makes a folder a root in which the preset tiny is bootstrapped and evaluated.

    That is half of a short run, and the part that a test of a later stage only waits for.
    """
    from flows.coevolution import coevolution

    coevolution(tiny(tiny_root, run_id="begun"), Until(stage="evaluate", epoch=0))
    stored = tmp_path_factory.mktemp("begun")
    copy_run(LocalStore(tiny_root), LocalStore(stored), "begun")
    return lambda root: shutil.copytree(stored, root) and None
