"""What options that take a file say of what is none.

Invariants: pipes, sockets, devices, directories, links in a circle and unreadable files are refused
at once with what they are; a pipe that the shell has opened is read where a file is read once;
what is written goes into a pipe only where somebody reads it.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core.config.load import resolve
from genenv_core.errors import GenenvError
from genenv_core.named_files import unreadable, unwritable, write_output
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.unit.builders_root import commit_epoch

FILES = "genenv_core/named_files.py"

KINDS = {
    "pipe.jsonl": "a named pipe, not a file: write a file first",
    "socket.jsonl": "a socket, not a file",
    "device.jsonl": "a device, not a file",
    "circle.jsonl": "Too many levels of symbolic links",
    "folder.jsonl": "a directory, not a file",
}
OPTIONS = {
    "base": ["run", "tiny", "--root", "new", "--set", "data.base_file={}"],
    "offline": ["plan", "tiny", "--root", "new", "--set", "arm=offline", "--set",
                "teacher.file={}"],
    "config": ["run", "{}", "--root", "new"],
    "validate": ["config", "validate", "{}"],
    "import": ["import", "{}", "-o", "out.jsonl"],
    "query": ["sql", "--root", "old", "--file", "{}"],
    "predictions": ["eval", "bamboogle", "--data", "data", "--predictions", "{}"],
}  # fmt: skip
FOLDERS_TOO = {"base", "offline", "import"}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with a run of `tiny`, to read."""
    store = LocalStore(tmp_path_factory.mktemp("files") / "old")
    config = resolve("tiny", fields={"root": str(store.root), "epochs": 2})
    log = RunLog(store, "run-whole")
    log.open(config.model_dump(mode="json"), datetime(2026, 11, 1, tzinfo=UTC))
    for epoch in range(3):
        commit_epoch(store, log, epoch)
    return store.root


@pytest.fixture(name="area")
def an_area(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory with one path of each kind, and with that root."""
    monkeypatch.chdir(tmp_path)
    Path("old").symlink_to(old)
    os.mkfifo("pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket.jsonl")
    Path("device.jsonl").symlink_to("/dev/zero")
    Path("circle.jsonl").symlink_to("circle.jsonl")
    Path("folder.jsonl").mkdir()
    Path("data").mkdir()
    Path("data/test.csv").write_text("Question,Answer\nWho?,Me\n")
    return tmp_path


@mutation(
    "a directory is a file",
    FILES,
    "if kind == stat.S_IFREG:",
    "if kind in (stat.S_IFREG, stat.S_IFDIR):",
)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", OPTIONS)
def test_what_is_no_file_is_refused(option: str, kind: str, area: Path) -> None:
    if kind == "folder.jsonl" and option in FOLDERS_TOO:
        pytest.skip("a folder may be a data set")
    arguments = [word.format(kind) for word in OPTIONS[option]]
    with pytest.raises(GenenvError, match=KINDS[kind]):
        app(arguments, standalone_mode=False)
    assert not (area / "new").exists()


OUTPUTS = {
    "rows": (["sql", "SELECT 1", "--root", "old", "--format", "csv", "-o"], "a named pipe that"),
    "views": (["sql", "--root", "old", "--attach-file"], "is there already, and no database"),
    "report": (["report", "run-whole", "--root", "old", "-o"], "a named pipe that nobody reads"),
    "import": (["import", "some.jsonl", "-o"], "a named pipe that nobody reads: begin to read it"),
}


VERDICTS = ["eval", "bamboogle", "--data", "data", "--predictions", "answers.jsonl", "--items"]


@mutation("a device is replaced", FILES, 'return path.open("wb")', "return None")
@pytest.mark.timeout(60)
def test_verdicts_take_the_place_of_no_device_pipe_or_link(area: Path) -> None:
    Path("answers.jsonl").write_text('{"id": "0", "prediction": "Me"}\n')
    Path("aim").write_text("old")
    Path("link.jsonl").symlink_to("aim")
    app([*VERDICTS, "link.jsonl"], standalone_mode=False)
    assert Path("link.jsonl").is_symlink() and '"valid": true' in Path("aim").read_text()
    with pytest.raises(GenenvError, match=r"--items pipe\.jsonl: it is a named pipe that nobody"):
        app([*VERDICTS, "pipe.jsonl"], standalone_mode=False)
    assert Path("pipe.jsonl").is_fifo()
    master, terminal = os.openpty()  # a device that nobody misses when it is replaced
    Path("device").symlink_to(os.ttyname(terminal))
    app([*VERDICTS, "device"], standalone_mode=False)
    assert b'"valid": true' in os.read(master, 4096) and Path("device").is_char_device()
    assert not list(area.glob(".*"))


@mutation("a pipe without a reader is busy", FILES, "error.errno == errno.ENXIO", "False")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("option", OUTPUTS)
def test_a_pipe_that_nobody_reads_is_not_written_to(option: str, area: Path) -> None:
    Path("some.jsonl").write_text('{"program": "+ 1 bolts 2"}\n')
    arguments, words = OUTPUTS[option]
    with pytest.raises(GenenvError, match=words):
        app([*arguments, "pipe.jsonl"], standalone_mode=False)


def test_a_pipe_that_somebody_reads_is_written_to(area: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(Path("pipe.jsonl").read_bytes)
        while True:
            try:
                write_output(Path("pipe.jsonl"), b"a" * 200_000)  # more than a pipe holds
                break
            except OSError as error:
                assert error.errno == errno.ENXIO
        assert len(reading.result()) == 200_000


@mutation(
    "a null in a name raises",
    FILES,
    "except (OSError, ValueError) as error:\n        return str(",
    "except OSError as error:\n        return str(",
)
def test_unreadable_says_why(area: Path) -> None:
    assert unreadable(area / "nowhere") == "No such file or directory"
    assert unreadable(Path("a\0b")) == "embedded null byte"
    (area / "file").write_text("")
    assert unreadable(area / "file") is None
    (area / "file").chmod(0)
    assert unreadable(area / "file") == (None if os.geteuid() == 0 else "Permission denied")


@mutation("a folder of the system is taken for a place to write", FILES,
          "        with tempfile.TemporaryFile(dir=above):\n            return None\n",
          "        return None\n")  # fmt: skip
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/proc/x", "takes no new files: name another|writing into /proc is not permitted"),
        ("nowhere/x", "there is no folder .*/nowhere: make it, or name another place"),
        ("folder", "it is a directory: name a file in it, as in folder/NAME"),
        ("file/x", "a part of the path is a file: name another place"),
        ("circle.jsonl", "its links lead in a circle: name another place"),
        ("a" * 300, "the name is too long: give a shorter one"),
        ("file", None),
        ("new", None),
        ("/dev/null", None),
        ("pipe.jsonl", None),
    ],
)
def test_unwritable_says_why_and_what_to_do(place: str, why: str | None, area: Path) -> None:
    (area / "folder").mkdir()
    (area / "file").write_text("kept")
    there = sorted(os.listdir(area))
    found = unwritable(Path(place))
    assert found == why or (why and re.search(why, found or ""))
    assert sorted(os.listdir(area)) == there and (area / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/proc/x/y", "takes no new files: name another|writing into /proc is not permitted"),
        ("file", "it is there and is no folder: name another one"),
        ("file/x", "a part of the path is a file: name another place"),
        ("new/with/others/above", None),
        (".", None),
    ],
)
def test_a_folder_is_made_with_those_above(place: str, why: str | None, area: Path) -> None:
    (area / "file").write_text("kept")
    found = unwritable(Path(place), folder=True)
    assert found == why or (why and re.search(why, found or ""))
    assert not (area / "new").exists()


PLACES = [
    ["sql", "FROM epochs", "--root", "old", "-o"],
    ["report", "--root", "old", "-o"],
    ["certify", "desk", "--tasks", "1", "--heldout", "0", "--page"],
    ["certify", "desk", "--tasks", "1", "--heldout", "0", "-o"],
    ["import", "base.jsonl", "-o"],
    ["bundle", "run-whole", "--root", "old", "-o"],
    ["eval", "bfcl", "--model", "x", "--items"],
    ["eval", "bfcl", "--model", "x", "--report"],
    ["sql", "--root", "old", "--attach-file"],
    ["compare", "tiny", "--arms", "genenv,random", "--seeds", "2", "--output"],
    ["domain", "new", "mine", "--into"],
    ["copy", "run-whole", "--root", "old"],
    ["plan", "tiny", "--root"],
]
"""Each command that writes to a place which somebody names, up to that place."""


@mutation("eval says after its measurement where it cannot write", "flows/cli/data/eval.py",
          '    check_output("--items", items)\n', "")  # fmt: skip
@mutation("a root that cannot be made does not exist", "genenv_core/storage/store/local.py",
          "except (FileNotFoundError, FileExistsError) as error:",
          "except FileExistsError as error:")  # fmt: skip
@pytest.mark.parametrize("command", PLACES, ids=lambda command: f"{command[0]} {command[-1]}")
def test_what_cannot_be_written_is_named_with_a_remedy(command: list[str], area: Path) -> None:
    (area / "base.jsonl").write_text('{"program": "+ 8 bolts 7"}\n')
    said = str(CliRunner().invoke(app, [*command, "/proc/x.csv"]).exception)
    assert re.search(r"/proc/x.csv( cannot be made)?: ", said)
    assert re.search("takes no new files: name another place|not permitted: ", said)


@mutation("a folder called s3: is made", "genenv_core/storage/store/opening.py",
          '    check_slashes(root)\n    scheme,', "    scheme,")  # fmt: skip
@pytest.mark.parametrize("command", [["status"], ["plan", "tiny"], ["sql", "FROM epochs"]])
def test_an_address_with_one_slash_is_no_folder(command: list[str], area: Path) -> None:
    done = CliRunner().invoke(app, [*command, "--root", "s3:/bucket/x"])
    assert "two slashes belong behind the colon, as in s3://bucket/x" in str(done.exception)
    assert not (area / "s3:").exists()


@mutation("a pipe of the shell is refused", FILES, '"/dev/fd", ', "")
def test_a_pipe_of_the_shell_is_a_query(area: Path) -> None:
    words = [sys.executable, "-m", "flows.cli.app", "sql", "--root", "old", "--format", "csv"]
    done = subprocess.run(
        ["bash", "-c", '"$@" --file <(echo "SELECT 7 AS a")', "bash", *words],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == b"a\n7\n", done.stderr


@pytest.mark.parametrize("command", [["sql", "FROM epochs", "-o"], ["run", "tiny", "--root"]])
def test_links_in_a_circle_are_no_place_to_write(command: list[str], area: Path) -> None:
    root = ["--root", "old"] if command[0] == "sql" else []
    with pytest.raises(GenenvError, match=r"symbolic links|circle"):
        app([*command, "circle.jsonl", *root, *(["--format=csv"] if root else [])],
            standalone_mode=False)  # fmt: skip
