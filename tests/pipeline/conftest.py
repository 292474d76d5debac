"""One Prefect API for the session, and tiny runs that several tests read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.environment import prepare

prepare()


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A real Prefect server on 127.0.0.1, stopped at the end; training workers likewise."""
    home = tmp_path_factory.mktemp("prefect")
    os.environ["PREFECT_HOME"] = str(home)
    from flows.cli.run import drain
    from flows.local_server import in_process, local_api

    with local_api(home) as server:
        from tasks import services

        with in_process(server):
            yield
            services.close()
            drain()


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root that the tests of this folder share, so that they share bootstrap.

    A test that needs a stage to be computed has settings of its own there, and each run a name of
    its own: no test may count on others, in whatever order they come.
    """
    return tmp_path_factory.mktemp("root")
