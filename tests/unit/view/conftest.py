"""A browser of the pages of a root, and its tables: each module says by `root` what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from starlette.testclient import TestClient

from flows.view.app import application
from genenv_core import pools
from genenv_core.storage.store.local import LocalStore


@pytest.fixture(scope="module")
def pool(root: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Return the tables of the root, asked without what the pages ask through."""
    with pools.connect(root) as con:
        yield con


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[TestClient]:
    """Return a browser of the pages of the root."""
    with TestClient(application(LocalStore(root)), base_url="http://127.0.0.1:4300") as made:
        yield made
