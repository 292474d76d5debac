"""Trainer checkpoints: a killed or stopped update continues from one, to the same bits.

A checkpoint is a folder `checkpoint-<step>`: weights and optimizer (`state-*.safetensors`, see
`genenv_core.training.policies.shards`), the Trainer's own count of steps (`trainer_state.json`),
the counters of our trainers (`update.json`), their tensors (`update-*.safetensors`), the losses of
the steps so far (`losses`), and last `seal.json`: the sha256 of every file and a digest of the
request.

- A checkpoint without a seal is unfinished; nobody reads it.
- A sealed one counts when its files are exactly the sealed ones and its request is this one.
  Otherwise it is ignored with a warning, and the update takes the one before it, or the beginning.
- An older one is deleted only after a newer one is sealed and on the disk.
- There is none after the last step: the update's output follows at once.
- One process at a time uses a folder, under a lock that ends with the process. A process that lost
  its stage's lease may still be alive, and two that write and delete the same files could seal a
  checkpoint without its optimizer. A second process works without the folder.
- Several processes of one update use it as one: the first of them locks, decides and seals.

Nothing is ever unpickled: tensors are safetensors, the rest is JSON. Random states are not kept:
order and adapters are drawn from the seed before the first step, dropout is off, and nothing else
is random. The learning rate is constant, so a schedule has no state.
DeepSpeed keeps pickles only: with training.strategy zero3 there are no trainer checkpoints.
"""

# torch and transformers have partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import fcntl
import json
import logging
import shutil
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol, Self

import torch
from pydantic import ValidationError
from transformers import TrainerCallback

from genenv_core.canonical import digest, file_sha256, readable_json
from genenv_core.errors import Stopped
from genenv_core.record import Record
from genenv_core.storage.files import move_over, sync, temporary
from genenv_core.training.policies import ranks
from genenv_core.training.policies.shards import load_tensors, save_tensors, shard_names
from genenv_core.training.requests import UpdateRequest
from genenv_core.training.warm_start.request import note_step

log = logging.getLogger("genenv.training")

STATE = "state"
"""Stem of the names of the files with weights and optimizer."""

_COUNTERS, _TENSORS, _SEAL = "update.json", "update", "seal.json"
_TRAINER_STATE, _LOSSES = "trainer_state.json", "losses"
_LOCK = "lock"
LOCK_WAIT_S = 10.0
"""Seconds to wait for a folder that another process uses: the worker of a killed run ends within
moments, a process that was stopped may stay for ever."""


class Resumable(Protocol):
    """A trainer that stores numbers of its own in checkpoints, as they are between two steps.

    `loss` is that of the last finished step, over all processes.
    """

    @property
    def loss(self) -> float: ...

    def counters(self) -> dict[str, Any]:
        """Return the update's counts so far, as JSON values."""
        ...

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors that the rest of the update needs beside model and optimizer."""
        ...

    def restore(self, counters: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Continue from these `counters` and `tensors`."""
        ...

    def begin(self) -> None:
        """Prepare the first step of an update that continues from no checkpoint."""
        ...


class _Seal(Record):
    """The file written last; `files` maps the checkpoint's other files to their sha256."""

    request: str
    step: int
    files: dict[str, str]


class CheckpointKeeper(TrainerCallback):
    """Makes the checkpoints of one update, finds the one to continue from, and stops it on request.

    `with` locks the folder; `folder` is None without one, also when another process uses it.
    `resumed_at` is the number of optimizer steps before the checkpoint it found, 0 without one.
    """

    def __init__(self, request: UpdateRequest, stop: Callable[[], bool]) -> None:
        """Keep checkpoints as `request` asks; call `stop` after each step."""
        wanted = request.checkpoints if request.training.strategy != "zero3" else None
        self.folder = wanted.folder if wanted else None
        self.resumed_at = 0
        self._seconds = wanted.seconds if wanted else 0.0
        self._asked = request
        self._noted = request.noted
        self._what, self._stop = request.what, stop
        self._sharded, self._processes = request.training.sharded, request.training.processes
        self._trainer: Resumable | None = None
        self._stopping, self._last = False, 0.0
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Lock the folder for this process, or work without checkpoints."""
        if self.folder is not None:
            if ranks.first():
                self._lock = _taken(self.folder)
            if not ranks.agreed(self._lock is not None):
                log.warning(
                    "%s keeps no checkpoints and starts at the beginning: another process, which "
                    "must have lost its lease, still uses %s", self._what, self.folder,
                )  # fmt: skip
                self.folder = None
        return self

    def __exit__(self, *error: object) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            self._lock.close()

    def resume(self, trainer: Resumable) -> str | None:
        """Restore the newest sound checkpoint and return it; None: start at the beginning."""
        self._trainer, newest = trainer, None
        if self.folder is not None:
            newest = self._newest() if ranks.first() else None
            if ranks.first():
                self._delete_all_but(newest)
            newest = ranks.agreed(newest)
        if ranks.first() and self._noted is not None:
            self._noted.write_bytes((newest / _LOSSES).read_bytes() if newest else b"")
        if newest is None:
            return None
        counters = json.loads((newest / _COUNTERS).read_bytes())
        trainer.restore(counters, load_tensors(newest, _TENSORS, sharded=self._sharded))
        self.resumed_at = _step(newest)
        return str(newest)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock; the loop calls it once model and optimizer are in place."""
        assert self._trainer is not None
        if not self.resumed_at:
            self._trainer.begin()
        self._last = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the step; ask for a checkpoint when one is due or the update should stop."""
        if ranks.first() and self._noted is not None:
            assert self._trainer is not None
            note_step(self._noted, self._trainer.loss)
        if control.should_training_stop:  # the last step: the output follows
            return
        stopping = self._stop()
        overdue = time.monotonic() - self._last >= self._seconds
        self._stopping, due = ranks.agreed((stopping, overdue))
        if self.folder is not None:
            control.should_save = due or self._stopping
        elif self._stopping:
            raise Stopped(
                f"{self._what} stopped after step {state.global_step} of {state.max_steps} without "
                "a folder for checkpoints: the same command starts it again"
            )

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Complete and seal the checkpoint that the Trainer has just written."""
        assert self._trainer is not None and self.folder is not None
        made = self.folder / f"checkpoint-{state.global_step}"
        save_tensors(self._trainer.tensors(), made, _TENSORS, sharded=self._sharded)
        ranks.wait()  # for the parts of all processes
        if ranks.first():
            (made / _COUNTERS).write_text(json.dumps(self._trainer.counters()), encoding="utf-8")
            if self._noted is not None:
                shutil.copyfile(self._noted, made / _LOSSES)
            self._seal(made, state.global_step)
            self._delete_all_but(made)
        ranks.wait()
        self._last = time.monotonic()
        if self._stopping:
            raise Stopped(
                f"{self._what} stopped after step {state.global_step} of {state.max_steps}: the "
                "same command continues from there"
            )

    @cached_property
    def _request(self) -> str:
        """The request's digest; an update without a checkpoint never computes it."""
        return request_digest(self._asked)

    def _newest(self) -> Path | None:
        for folder in sorted(self._checkpoints(), key=_step, reverse=True):
            if not (folder / _SEAL).is_file():
                continue
            flaw = self._flaw(folder)
            if not flaw:
                return folder
            log.warning("trainer checkpoint %s ignored: %s", folder, flaw)
        return None

    def _flaw(self, folder: Path) -> str:
        """Return why the update cannot use a sealed checkpoint, '' for a sound one."""
        try:
            seal = _Seal.model_validate_json((folder / _SEAL).read_bytes())
        except ValidationError:
            return f"{_SEAL} is damaged"
        if seal.request != self._request or seal.step != _step(folder):
            return "it belongs to another request or step"
        lost = self._needed() - seal.files.keys()
        if lost:
            return f"sealed without {', '.join(sorted(lost))}"
        found = _digests(folder)
        names = sorted(seal.files.keys() | found.keys())
        wrong = [name for name in names if seal.files.get(name) != found.get(name)]
        return f"altered, missing or unknown: {', '.join(wrong[:3])}" if wrong else ""

    def _needed(self) -> set[str]:
        """Return the files that an update needs to continue with the same numbers."""
        parts = [
            name
            for stem in (STATE, _TENSORS)
            for name in shard_names(stem, sharded=self._sharded, processes=self._processes)
        ]
        return {_TRAINER_STATE, _COUNTERS, *parts, *([_LOSSES] if self._noted else [])}

    def _seal(self, folder: Path, step: int) -> None:
        seal = _Seal(request=self._request, step=step, files=_digests(folder))
        for name in seal.files:
            sync(folder / name)
        made = temporary(folder, readable_json(seal.model_dump()), durable=True)
        move_over(made, folder / _SEAL, durable=True)
        sync(folder.parent)

    def _delete_all_but(self, kept: Path | None) -> None:
        for folder in self._checkpoints():
            if folder != kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _checkpoints(self) -> list[Path]:
        assert self.folder is not None
        return list(self.folder.glob("checkpoint-*"))


def request_digest(request: UpdateRequest) -> str:
    """Return a digest of all that an update depends on; files count by content, not by name."""
    files = {"checkpoint", "initial", "reference", "output", "rows", "checkpoints", "noted"}
    files |= {"follows", "leaves"}
    weights = [sorted(model.glob("*.safetensors")) for model in request.models]
    # Gradient checkpointing gives the same numbers: a resumed update may switch it on.
    settings = request.model_dump(mode="json", exclude=files | {"gradient_checkpointing"})
    if request.training.yields:  # to a device's free memory, which may be less the next time
        del settings["settings"]["micro_batch_rows"]
    return digest(
        {
            "kind": type(request).__name__,
            "settings": settings,
            "rows": file_sha256(request.rows),
            "models": [[file_sha256(path) for path in paths] for paths in weights],
        }
    )


def _taken(folder: Path) -> IO[bytes] | None:
    """Return the lock of a folder, None when another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock, end = (folder / _LOCK).open("ab"), time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() >= end:
                lock.close()
                return None
            time.sleep(0.1)


def _digests(folder: Path) -> dict[str, str]:
    """Return relative name -> sha256 of the files that a seal covers."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = {path: path.relative_to(folder).as_posix() for path in files}
    return {name: file_sha256(path) for path, name in names.items() if name != _SEAL}


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("checkpoint-"))
