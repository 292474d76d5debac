"""MLflow's database of a new root, which starts as a copy of an empty one.

Invariants: a root that started with a copy has the tables, rows and places of artifacts of a root
whose database MLflow made by its migrations; the empty one has no experiment, hence no place of
another root; a database that is there stays as it is, and none is made where a server or another
database keeps what is logged.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.up import databases
from genenv_core.config.load import resolve
from genenv_core.storage.blank import make
from genenv_core.storage.store.local import LocalStore
from tasks.tracking.client import URI_VARIABLE, open_client
from tasks.tracking.database import create_database, migrate
from tests.mutations import mutation

DATABASE = "tasks/tracking/database.py"


def statements(path: Path) -> list[str]:
    """Return what makes a database's tables and rows, in no order, times of now left out.

    MLflow makes indexes and constraints in an order that changes from process to process.
    """
    with contextlib.closing(sqlite3.connect(path)) as database:
        found = [re.sub(r"\b\d{13}\b", "NOW", line) for line in database.iterdump()]
    return sorted("\n".join(sorted(re.split(r",?\s*\n\s*", line))) for line in found)


def rows(path: Path) -> list[str]:
    return [line for line in statements(path) if line.startswith("INSERT")]


@pytest.mark.slow
def test_a_root_that_started_with_a_copy_is_as_one_that_mlflow_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URI_VARIABLE, raising=False)
    empty = tmp_path / "environment" / "mlflow.db"
    make(empty, migrate)
    found = databases.sqlite("MLflow", empty, databases.MLFLOW_MIGRATIONS)
    assert found.state() == "current"
    assert [line.split('"')[1] for line in rows(empty)] == ["alembic_version", "workspaces"]
    assert "/" not in "".join(rows(empty))

    monkeypatch.chdir(tmp_path)  # MLflow keeps artifacts in the working folder
    of_root: dict[str, list[str]] = {}
    for name, source in (("copied", empty), ("migrated", tmp_path / "absent.db")):
        root = tmp_path / name
        LocalStore(root)
        create_database(root, source)
        database = root / "mlflow" / "mlflow.db"
        of_root[name] = statements(database)
        assert os.listdir(database.parent) == [database.name]
        client = open_client(resolve("tiny", fields={"root": str(root)}), root)
        assert statements(database) == of_root[name]
        for experiment in ("0", client.create_experiment("genenv")):
            run = client.create_run(experiment).info
            assert run.artifact_uri == f"{tmp_path}/mlruns/{experiment}/{run.run_id}/artifacts"
            client.log_text(run.run_id, "text", "note.txt")
            assert (Path(run.artifact_uri) / "note.txt").read_text() == "text"
    assert of_root["copied"] == of_root["migrated"]
    assert len([line for line in of_root["copied"] if f"'{tmp_path}/mlruns/0'" in line]) == 1


class Client:
    """Stands for MLflow's, whose migrations take seconds: notes what it found, and adds a row."""

    opened: list[bytes]

    def __init__(self, tracking_uri: str, registry_uri: str = "") -> None:
        self.path = Path(tracking_uri.removeprefix("sqlite:///"))

    def search_experiments(self) -> None:
        self.opened.append(self.path.read_bytes() if self.path.exists() else b"")
        self.path.write_bytes(self.opened[-1] + b" and a row")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return what MLflow's client finds in the databases that it opens."""
    monkeypatch.delenv(URI_VARIABLE, raising=False)
    Client.opened = []
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=Client))
    return Client.opened


@mutation(
    "MLflow migrates for each new root", DATABASE,
    '        lay(source or blank("mlflow"), made)\n', "",
)  # fmt: skip
def test_a_new_root_starts_with_a_copy_and_one_that_is_there_stays(
    tmp_path: Path, opened: list[bytes]
) -> None:
    source, root = tmp_path / "empty.db", tmp_path / "root"
    source.write_bytes(b"empty")
    LocalStore(root)
    for _ in range(2):
        create_database(root, source)
        assert (root / "mlflow" / "mlflow.db").read_bytes() == b"empty and a row"
    assert opened == [b"empty"] and source.read_bytes() == b"empty"
    assert os.listdir(root / "tmp") == []


def test_without_an_empty_database_mlflow_makes_its_own(
    tmp_path: Path, opened: list[bytes]
) -> None:
    LocalStore(tmp_path)
    create_database(tmp_path, tmp_path / "absent.db")
    assert opened == [b""]


@mutation(
    "a root whose runs are logged elsewhere gets a database of MLflow", "tasks/tracking/client.py",
    "if uri == database_of(root):", "if True:",
)  # fmt: skip
@pytest.mark.parametrize("uri", ["http://host:5000", "sqlite:////elsewhere/mlflow.db"])
def test_a_database_that_is_elsewhere_is_left_to_mlflow(
    tmp_path: Path, opened: list[bytes], uri: str
) -> None:
    config = resolve("tiny", overrides=[f"tracking.uri={uri}"], fields={"root": str(tmp_path)})
    LocalStore(tmp_path)
    open_client(config, tmp_path)
    assert opened == [] and not (tmp_path / "mlflow").exists()
