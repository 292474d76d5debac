"""`genenv bundle` and `genenv replay` at the command line.

Invariants: a damaged, cut, foreign or missing file ends with an error of one line that says what is
wrong, without a traceback, and nothing is written; a file that is there is not overwritten;
`--unpack` writes what is in the bundle and says how to go on.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click import unstyle
from typer.testing import CliRunner

from flows.cli import app as cli
from flows.cli.app import app
from genenv_core.bundle.contents import read, write
from genenv_core.bundle.sealed_zip import pack, unpack
from genenv_core.errors import ConfigError, IntegrityError
from genenv_core.storage.files import create
from tests.mutations import mutation
from tests.unit.builders_root import small_root
from tests.unit.bundle.builders import small_contents


@pytest.fixture(name="data", scope="module")
def a_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(small_contents(tmp_path_factory.mktemp("root")))


def test_of_a_thousand_flips_in_a_bundle_none_goes_unnoticed(data: bytes) -> None:
    rng = random.Random(5)
    for _ in range(1000):
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(IntegrityError, match=r"^it"):
            read(bytes(flipped))


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("flipped.zip", IntegrityError, "it is altered in its member cards/agent-00001.md"),
        ("cut.zip", IntegrityError, "cut off"),
        ("empty.zip", IntegrityError, "does not begin like a bundle"),
        ("none.zip", ConfigError, "No such file"),
        (".", ConfigError, "it is a directory"),
        ("/dev/zero", ConfigError, "it is a device"),
    ],
)
def test_what_is_no_whole_bundle_is_named_and_not_used(
    data: bytes, name: str, kind: type[Exception], said: str, tmp_path: Path
) -> None:
    place = data.index(b"pi_agent of r, epoch 1")
    (tmp_path / "flipped.zip").write_bytes(data[:place] + b"P" + data[place + 1 :])
    (tmp_path / "cut.zip").write_bytes(data[:-70])
    (tmp_path / "empty.zip").write_bytes(b"")
    before = sorted(tmp_path.iterdir())
    done = CliRunner().invoke(app, ["replay", str(tmp_path / name)])
    assert isinstance(done.exception, kind) and said in str(done.exception)
    assert str(tmp_path / name) in str(done.exception)
    assert sorted(tmp_path.iterdir()) == before


def test_what_a_bundle_says_steers_no_terminal(
    data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    members = unpack(data)
    named = members["statement.json"].replace(b"cards/agent-00001.md", b"\\u001b[2J\\nno")
    with pytest.raises(IntegrityError, match="\x1b") as refused:
        read(pack({**members, "statement.json": named}))
    cli._say(refused.value, 1)
    said = capsys.readouterr().err
    assert "[2J" in said and "\x1b[2J" not in said


def test_a_bundle_is_unpacked_with_what_to_do_next(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "b.genenv.zip").write_bytes(data)
    arguments = ["replay", str(tmp_path / "b.genenv.zip"), "--unpack", str(tmp_path / "new")]
    done = CliRunner().invoke(app, arguments)
    said = unstyle(done.output)
    assert (tmp_path / "new/statement.json").is_file()
    assert (tmp_path / "new/code/genenv_core/a.py").read_bytes() == b"X = 1  # one\n"
    assert f"replay {tmp_path / 'b.genenv.zip'}" in said and "only if you trust" in said
    for more in (["--check"], ["--json"], ["--set", "seed=1"], ["--root", "x"]):
        done = CliRunner().invoke(app, [*arguments[:3], str(tmp_path / "other"), *more])
        assert isinstance(done.exception, ConfigError) and "give it alone" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run-a", "-o", "there"], "-o there: is there already"),
        (["run-a", "-o", "nowhere/x.zip"], "there is no folder "),
        (["run-b"], "there is no run 'run-b'"),
    ],
)
def test_a_bundle_that_cannot_be_made_is_refused(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small_root(tmp_path / "root")
    (tmp_path / "there").write_text("mine")
    done = CliRunner().invoke(app, ["bundle", *arguments, "--root", "root"])
    assert isinstance(done.exception, ConfigError) and said in str(done.exception)
    assert (tmp_path / "there").read_text() == "mine"


@mutation(
    "a file that is there is overwritten where there are no links", "genenv_core/storage/files.py",
    "        if os.path.lexists(path):\n            raise FileExistsError(path) from None\n", "",
)  # fmt: skip
def test_a_file_is_created_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "a", b"1")
    with pytest.raises(FileExistsError):
        create(tmp_path / "a", b"2")

    def no_links(source: Path, target: Path) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", no_links)
    with pytest.raises(FileExistsError):
        create(tmp_path / "a", b"2")
    create(tmp_path / "b", b"3")
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {"a": b"1", "b": b"3"}
