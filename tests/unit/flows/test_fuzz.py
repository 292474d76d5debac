"""Random inputs to every option of every command.

Invariant: each input works, or is refused by one of genenv's errors or by the command line's own:
none ends in another exception, whose message would send a person to `--debug`. Commands that would
start long work get a root that cannot be, or an option that there is not.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from flows.cli.app import app
from genenv_core.config.load import resolve
from genenv_core.errors import GenenvError
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tests.examples import many
from tests.unit.builders_root import START, small_root
from tests.unit.flows.test_streams import genenv

NEEDS_BAD_ROOT = {"run", "plan", "compare", "eval", "up", "view"}
NEEDS_BAD_OPTION = {"deploy", "work-pool", "doctor"}
COMMAND = typer.main.get_command(app)
"""The command line, which typer would read anew from all signatures at each call."""
NEVER = {"--watch", "--debug"}

EACH = int(os.environ.get("GENENV_FUZZ_EACH", "8"))
"""Inputs to each option in the slow tests; `make fuzz` gives it a hundred for each of two seeds."""

VALUES = [
    *("", " ", "-", "--", "0", "-1", "1", "2", "3.5", "1e400", "nan", "inf", "9" * 30, "0x10", "١"),
    *("x" * 5000, "é🦆", "\udcff", "a\nb", "\x1b[31m", "%s%n", "{}", "[1", "!!python/x", "*", "~"),
    *("file", "folder", "socket", "circle", "missing", "/dev/null", "a.yaml", "a.jsonl", "a.csv"),
    *("a.parquet", "root", "root/runs", "../..", "/", "/proc/self/mem", "d" * 300, "d/" * 2500),
    *("run-a", "run-b", "e0001-g000000-s0000", "e0001-t000000", "tiny", "quickstart", "none"),
    *("epochs=0", "epochs=9e99", "seed=-1", "domain.name=x", "grpo=", "=", "a.b.c=1", "data=[1]"),
    *("limits.tokens=0", "limits.seconds=.nan", "limits=5", "prices.hours={x: 1}", "prices.hour="),
    *("prompt=a", "program=program", "csv", "json", "table", "parquet", "hf", "d_train", "d_env"),
    *("1:2", "9:1", "5", "64MB", "1kB", "s3x://bucket", "file:///nope", "http://127.0.0.1:1"),
    *("bamboogle", "bfcl", "all", "genenv,random", "SELECT 1", "FROM epochs", "SELEC", "epochs"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with a run, to copy."""
    root = tmp_path_factory.mktemp("fuzz") / "root"
    small_root(root)
    return root


@pytest.fixture(name="area")
def an_area(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the working directory, with files of all kinds and a root with a run."""
    monkeypatch.chdir(tmp_path)
    for name in ("PREFECT_API_URL", "GENENV_ROOT", "GENENV_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    Path("file").write_bytes(b"\xff\x00")
    Path("folder").mkdir()
    Path("circle").symlink_to("circle")
    Path("a.yaml").write_text("epochs: 1\n")
    Path("a.jsonl").write_text('{"program": "+ 1 bolts 2"}\n{"program": 7}\n')
    Path("a.csv").write_text('prompt,ground_truth\n"a\n')
    Path("a.parquet").write_bytes(b"PAR1")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    store = LocalStore(Path(shutil.copytree(run, tmp_path / "root")))
    config = resolve("tiny", fields={"root": str(store.root), "epochs": 2})
    RunLog(store, "run-a").open(config.model_dump(mode="json"), START)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)


def commands() -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Yield the words and parameters of every command there is."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield words, [one for one in command.params if not NEVER & set(one.opts)]
            return
        for name, one in inner.items():
            yield from below(one, (*words, name))

    yield from below(COMMAND, ())


def drawn(
    rng: random.Random, words: tuple[str, ...], parameters: list[Any], must: Any
) -> list[str]:
    """Return arguments: the parameter `must`, what is required, and some of the others."""
    given: list[str] = []
    for one in parameters:
        argument = one.param_type_name == "argument"
        chance = 0.9 if one.required or argument else 0.2
        if one is not must and rng.random() > chance:
            continue
        value = rng.choice(VALUES)
        if argument:
            given.append(value)
        elif "--root" in one.opts:
            given += ["--root", value if one is must else "root"]
        elif getattr(one, "is_flag", False):
            given.append(one.opts[0])
        else:
            given.append(f"{rng.choice([o for o in one.opts if o.startswith('--')])}={value}")
    if words[0] in NEEDS_BAD_ROOT:
        given += ["--root", "file/root"]
    if words[0] in NEEDS_BAD_OPTION:
        given.append("--there-is-none")
    return [*words, *given]


def unexpected(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return what is wrong with the end of a command, in this process; None if nothing is."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SELECT 1\xff"), "utf-8"))
    try:
        COMMAND.main(arguments, standalone_mode=False)
    except (GenenvError, typer.Abort, typer.Exit):
        return None
    except BaseException as error:
        if hasattr(error, "show"):  # the command line's own
            return None
        return f"{arguments}: {type(error).__name__}: {error}"
    return None


def attempts(seed: int, each: int) -> Iterator[list[str]]:
    """Yield arguments, so many for each parameter of each command."""
    rng = random.Random(seed)
    for words, parameters in commands():
        for must in parameters or [None]:
            for _ in range(each):
                yield drawn(rng, words, parameters, must)


@pytest.mark.timeout(60)
def test_a_sample_of_inputs(area: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = random.Random(3).sample(list(attempts(1, 4)), 60)
    assert [bad for one in some if (bad := unexpected(one, monkeypatch))] == []


TOO_LONG = ("x" * 5000, "d/" * 3000)
"""Names of folders that no file system has: one part is too long, or the whole."""


@pytest.mark.parametrize("folder", [*TOO_LONG, "circle"], ids=["a part", "the whole", "a circle"])
@pytest.mark.parametrize(
    "words",
    [
        ("certify", "desk", "--output"),
        ("data", "fetch", "bfcl", "--to"),
        ("data", "fetch", "bfcl", "--to", "fetched", "--from"),
        ("data", "check", "bfcl", "--data"),
        ("data", "check", "all", "--data"),
        ("domain", "new", "units", "--into"),
        ("eval", "bfcl", "--model", "http://127.0.0.1:1", "--root", "file/root", "--data"),
        ("export", "run-a", "--pool", "d_train", "--root", "root", "--output"),
        ("export", "run-a", "--format", "inspect", "--root", "root", "--output"),
        ("sql", "SELECT 1", "--root", "root", "--attach-file"),
        ("sql", "SELECT 1", "--root", "root", "--output"),
    ],
    ids=" ".join,
)
def test_a_folder_that_cannot_be_is_refused(
    words: tuple[str, ...], folder: str, area: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unexpected([*words[:-1], f"{words[-1]}={folder}"], monkeypatch) is None


@pytest.mark.slow
@pytest.mark.timeout(75 * EACH)
@pytest.mark.parametrize("seed", range(2))
def test_many_inputs(seed: int, area: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [bad for one in attempts(seed, EACH) if (bad := unexpected(one, monkeypatch))]
    assert found == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("redirect", ["", "| :", ">/dev/full", ">&- 2>&-"])
def test_inputs_to_processes(redirect: str, area: Path) -> None:
    able = [one for one in attempts(7, 4) if "\0" not in "".join(one)]
    for arguments in random.Random(redirect).sample(able, many(160) // 20):
        status, out, said = genenv(
            [os.fsencode(word).decode(errors="surrogateescape") for word in arguments],
            area / "root", redirect, PYTHONPATH=str(Path(__file__).parents[3]),
        )  # fmt: skip
        assert status in (0, 1, 2, 141), (arguments, said)
        assert "Traceback" not in out + said and "--debug" not in said, (arguments, said)
