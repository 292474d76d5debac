"""One `genenv up` for the session, which the tests of this folder share, and its shared root."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.infra.servers import Up


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A `genenv up` that is ready; at the end it is stopped, with status 0."""
    started = Up(tmp_path_factory.mktemp("up") / "root")
    try:
        yield started.wait()
    finally:
        started.stop()
