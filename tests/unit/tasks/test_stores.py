"""What a process keeps of each root.

Invariants: one root is opened once, however it is written; a process that has changed its folder
gets, for the same relative root, the one of that folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from tasks.stage.stores import artifacts_of, leases_of, readers_of
from tests.mutations import mutation

STORES = "tasks/stage/stores.py"


def configured(root: str, read: str = "/team") -> RunConfig:
    """Return a run that reads from a root beside its own."""
    return resolve("tiny", overrides=[f"roots.read=[{read}]"], fields={"root": root})


KEPT: dict[str, Callable[[str], object]] = {
    "artifacts": artifacts_of,
    "leases": leases_of,
    "readers": lambda root: readers_of(configured(root)),
}


@mutation(
    "artifacts are those of the first folder", STORES,
    "return _artifacts(place_of(root))", "return _artifacts(root)",
)  # fmt: skip
@mutation(
    "leases are those of the first folder", STORES,
    "return _leases(place_of(root))", "return _leases(root)",
)  # fmt: skip
@mutation(
    "readers are those of the first folder", STORES,
    "_readers(place_of(config.root), ", "_readers(config.root, ",
)  # fmt: skip
@pytest.mark.parametrize("kind", KEPT)
def test_a_relative_root_is_that_of_the_folder(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        opened.append(KEPT[kind]("./root"))
        assert KEPT[kind]("./root") is opened[-1]
        assert artifacts_of("./root").store.home == folder / "root"
    assert opened[0] is not opened[1]
    assert KEPT["artifacts"](str(tmp_path / "two/root")) is artifacts_of("./root")


@mutation(
    "other roots are those of the first folder", STORES,
    "tuple(map(place_of, config.roots.read))", "config.roots.read",
)  # fmt: skip
def test_other_roots_are_those_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, opened = str(tmp_path / "own"), list[object]()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        opened.append(readers_of(configured(own, "./team")))
    assert opened[0] is not opened[1]
