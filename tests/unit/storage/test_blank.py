"""Empty databases that new roots start with, whichever tool makes them.

Invariants: a copy is whole and never laid over a database that is there; without an empty one
nothing is made; each version of a tool has its own file; one is made anew in the place of the last.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from genenv_core.storage.blank import blank, lay, make
from tests.mutations import mutation

BLANK = "genenv_core/storage/blank.py"


@mutation(
    "a new root's database is laid over one that is there", BLANK,
    "create(target, data)", "target.write_bytes(data)",
)  # fmt: skip
def test_only_a_new_root_gets_the_empty_database(tmp_path: Path) -> None:
    source, database = tmp_path / "empty.db", tmp_path / "home" / "tool.db"
    lay(source, database)
    assert not database.parent.exists()  # an environment without one: the tool migrates
    source.write_bytes(b"empty")
    lay(source, database)
    assert database.read_bytes() == b"empty"
    database.write_bytes(b"of a run")
    lay(source, database)
    assert database.read_bytes() == b"of a run"
    assert os.listdir(database.parent) == ["tool.db"]


def test_a_place_that_cannot_be_written_is_left_to_the_tool(tmp_path: Path) -> None:
    source = tmp_path / "empty.db"
    source.write_bytes(b"empty")
    lay(source, source / "below a file" / "tool.db")


@mutation(
    "a tool of another version starts with the empty database", BLANK,
    "{tool}-{version(tool)}.db", "{tool}.db",
)  # fmt: skip
@pytest.mark.parametrize("tool", ["prefect", "mlflow"])
def test_the_empty_database_is_of_the_installed_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    ours = blank(tool, tmp_path)
    assert ours.parent == tmp_path / "share" / "genenv"
    monkeypatch.setattr("genenv_core.storage.blank.version", lambda name: "99.0")
    assert blank(tool, tmp_path) != ours


def test_an_empty_database_is_made_in_the_place_of_the_last(tmp_path: Path) -> None:
    kept = tmp_path / "share" / "tool.db"
    for data in (b"first", b"second"):

        def migrate(path: Path, data: bytes = data) -> None:
            assert os.listdir(path.parent) == []
            path.write_bytes(data)

        make(kept, migrate)
        assert kept.read_bytes() == data
    assert os.listdir(kept.parent) == ["tool.db"]
