"""Keeps the rounds of a warm start in its stage's durable folder: a killed stage continues there.

A round is a folder with the model (`checkpoint`), what the next round follows (`state`: weights or
adapters, and Adam's moments) and `round.json`. Its files are on the disk before it gets its name,
so a folder of that name is whole.

A process works on files of its own and reads the durable ones only when it starts: a process that
has lost its stage's lease may still be alive, and remove durable files that another one needs.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from pathlib import Path

from pydantic import Field, ValidationError

from genenv_core.canonical import readable_json
from genenv_core.record import Record
from genenv_core.storage.files import link_or_copy, sync
from genenv_core.storage.records.artifacts import folder_digest

log = logging.getLogger("genenv.stage")

CHECKPOINT, STATE = "checkpoint", "state"
_NOTE = "round.json"


class Round(Record):
    """A finished round: its number from 1, and the steps of all rounds up to it.

    `digests` are those of its folders by name. Number 0 is the given model, before any round.
    """

    number: int = 0
    steps: int = 0
    metrics: dict[str, float] = Field(default_factory=dict[str, float])
    digests: dict[str, str] = Field(default_factory=dict[str, str])


class Rounds:
    """The rounds of one policy: `kept` is durable, `work` is this process's own."""

    def __init__(self, kept: Path, work: Path, name: str) -> None:
        """`name` is the policy's."""
        self._kept, self._work, self._name = kept, work, name

    def folder(self, number: int) -> Path:
        """Return this process's own folder of a round."""
        return self._work / f"{self._name}-{number}"

    def trainer(self, number: int) -> Path:
        """Return the durable folder for the trainer checkpoints of a round."""
        return self._kept / f"{self._name}-{number}-trainer"

    def newest(self) -> Round:
        """Put the files of the newest sound round into its `folder` and return it, or number 0.

        Logs a warning for each round that it ignores.
        """
        for number in sorted(self._numbers(), reverse=True):
            try:
                _laid_out(self._durable(number), self.folder(number))
                found = Round.model_validate_json((self.folder(number) / _NOTE).read_bytes())
                flaw = "" if found.digests == self._digests(number) else "its files are not its own"
            except (OSError, ValidationError) as error:
                found, flaw = Round(), f"{type(error).__name__}: {error}".splitlines()[0]
            if not flaw:
                return found
            log.warning("round %s ignored: %s", self._durable(number), flaw)
            shutil.rmtree(self.folder(number), ignore_errors=True)
        return Round()

    def keep(self, number: int, steps: int, metrics: dict[str, float]) -> Round:
        """Make the round in `folder` durable and return it; remove older rounds."""
        own, target = self.folder(number), self._durable(number)
        made = Round(number=number, steps=steps, metrics=metrics, digests=self._digests(number))
        (own / _NOTE).write_bytes(readable_json(made.model_dump()))
        staged = self._kept / f"{target.name}-{uuid.uuid4().hex}"
        _laid_out(own, staged)
        for path in [*staged.rglob("*"), staged]:
            sync(path)
        shutil.rmtree(target, ignore_errors=True)  # a damaged one, or another process's: the same
        os.rename(staged, target)
        sync(self._kept)
        for path in self._kept.glob(f"{self._name}-*"):
            if path != target and _number(path) <= number:
                shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.folder(number - 1), ignore_errors=True)
        return made

    def _durable(self, number: int) -> Path:
        return self._kept / f"{self._name}-{number}"

    def _digests(self, number: int) -> dict[str, str]:
        return {name: folder_digest(self.folder(number) / name) for name in (CHECKPOINT, STATE)}

    def _numbers(self) -> list[int]:
        """Return the numbers of the durable rounds, the damaged ones too."""
        found = [_number(path) for path in self._kept.glob(f"{self._name}-*")]
        return [number for number in set(found) if self._durable(number).is_dir()]


def _number(path: Path) -> int:
    """Return the number of the round of a path in the durable folder."""
    return int(path.name.split("-")[1])


def _laid_out(source: Path, target: Path) -> None:
    """Link the files of a round into a new folder, or copy them where links are impossible."""
    for name in (CHECKPOINT, STATE):
        (target / name).mkdir(parents=True)
        for path in (source / name).iterdir():
            link_or_copy(path, target / name / path.name)
    link_or_copy(source / _NOTE, target / _NOTE)
