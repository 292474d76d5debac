"""An empty bucket on moto's server, and a root in it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import botocore.session
import pytest

from tests.unit.storage.s3.s3_double import moto, settled


@pytest.fixture(scope="package", autouse=True)
def models() -> Iterator[None]:
    """Let clients of many addresses share what botocore reads from files: the models of S3."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", cache(botocore.session.create_loader))
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture
def usual(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return settled(server, tmp_path, monkeypatch)
