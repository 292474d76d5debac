"""What a machine ran out of, read from errors of libraries.

Invariants: a full disk and too little memory, processes or open files are found in an error, in
what it came from and in what SQLAlchemy wraps; other errors and genenv's own are none; a checkpoint
that was not loaded for want of something is not blamed; a command says it in one line.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from transformers import AutoModelForCausalLM

from flows.cli import app as cli
from genenv_core.engines.transformers.loading import load_base
from genenv_core.errors import MachineError, ModelError, StorageError
from genenv_core.machine.shortage import DISK, FILES, MEMORY, PROCESSES, QUOTA, shortage
from tests.mutations import mutation

SHORTAGE = "genenv_core/machine/shortage.py"


def of(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/some/file")


def came_from(cause: BaseException, *, shown: bool = True) -> BaseException:
    """Return an error that was raised while another one was handled."""
    try:
        try:
            raise cause
        except BaseException:
            raise RuntimeError("x") from (cause if shown else None)
    except RuntimeError as error:
        return error


FULL = sqlite3.OperationalError("database or disk is full")
FOUND: list[tuple[BaseException, str | None]] = [
    (of(errno.ENOSPC), DISK),
    (of(errno.EDQUOT), QUOTA),
    (of(errno.EMFILE), FILES),
    (of(errno.ENOMEM), MEMORY),
    (MemoryError(), MEMORY),
    (RuntimeError("can't start new thread"), PROCESSES),
    (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), PROCESSES),
    (ImportError("libscipy_openblas.so: failed to map segment from shared object"), MEMORY),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), MEMORY),
    (FULL, DISK),
    (OperationalError("DROP TABLE t", {"a": 1}, FULL), DISK),
    (came_from(of(errno.ENOSPC)), DISK),
    (came_from(of(errno.ENOSPC), shown=False), None),
    (ExceptionGroup("many", [ValueError("x"), of(errno.EMFILE)]), FILES),
    (of(errno.ENOENT), None),
    (ValueError("no such thing"), None),
    (StorageError("stages/x: No space left on device"), None),  # says so in its own words
]


@mutation("what an error came from is not looked at", SHORTAGE,
          "ahead += [inner if isinstance(inner, BaseException) else None, before]", "pass",
          by="[11]")  # fmt: skip
@mutation("a full database is an error like others", SHORTAGE,
          '    "database or disk is full": DISK,  # SQLite\n', "", by="[9]")  # fmt: skip
@pytest.mark.parametrize("case", range(len(FOUND)))
def test_what_the_machine_ran_out_of(case: int) -> None:
    error, what = FOUND[case]
    assert shortage(error) == what


@mutation("a checkpoint is blamed for a machine", "genenv_core/engines/transformers/loading.py",
          '        blame_machine(error, f"checkpoint {checkpoint} was not loaded")\n', "",
          by="[0]")  # fmt: skip
@pytest.mark.parametrize("case", [0, 1])
def test_a_good_checkpoint_is_not_blamed(
    case: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    error = [RuntimeError("can't start new thread"), KeyError("architectures")][case]

    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fails)
    with pytest.raises(MachineError if case == 0 else ModelError) as said:
        load_base(tmp_path, dtype="auto")
    assert ("must hold a causal language model" in str(said.value)) == (case == 1)
    if case == 0:
        assert str(said.value).startswith(f"checkpoint {tmp_path} was not loaded: {PROCESSES}")


@mutation("a command repeats what a library said of a full disk", "flows/cli/app.py",
          "        what = shortage(error)\n", "        what = None\n")  # fmt: skip
def test_a_command_says_in_one_line_what_is_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(**_: object) -> None:
        raise OperationalError("INSERT INTO t\nVALUES (?)", {"a": 1}, FULL)

    def leave(status: int) -> None:  # as where threads are left, which a test process has
        raise SystemExit(status)

    monkeypatch.setattr(cli, "app", command)
    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr().err
    assert end.value.code == 1
    assert said.startswith(f"genenv: {DISK} (OperationalError:") and said.count("\n") == 1
