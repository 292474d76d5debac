"""An empty bucket on moto's server, and a root in it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.storage.s3.s3_double import moto, settled


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture
def usual(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return settled(server, tmp_path, monkeypatch)
