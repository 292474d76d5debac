"""Where a run branches off (`RUN@EPOCH`), and which settings it has to keep.

A branch takes over the epochs of RUN up to EPOCH as they are stored, and goes on with settings of
its own. Settings that decided what it takes over would do nothing, so `check_branch` refuses to
change them. `differing` compares any two configurations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from genenv_core.canonical import digest, value_at
from genenv_core.config.arms import ARMS
from genenv_core.config.load import changed, dump, identity
from genenv_core.config.moved import as_now
from genenv_core.config.schema import RUN_ID, RunConfig
from genenv_core.config.sections.unions.teacher import writes
from genenv_core.config.until import Until
from genenv_core.errors import ConfigError, one_line
from genenv_core.record import Record

STARTED_WITH = (
    "domain",
    "models",
    "bootstrap",
    "warm_start",
    "data.base_tasks",
    "data.base_file",
    "data.base_format",
    "data.base_mapping",
    "data.skip_bad",
    "data.validation_tasks",
    "data.test_tasks",
)
"""Settings that decide the tasks and models of a run's start; a branch takes both over."""

ADAPTERS = ("training.lora",)
"""Settings that decide the form of checkpoints, once an epoch has trained them."""

ONE_SET = ("arm", "teacher", "data.set_tasks", "generation")
"""Settings that decide the set of tasks that all epochs of some arms play."""

NAME_KEPT = 80
"""Characters of a run's name that stay in the name of its branch."""

ABSENT = object()
"""The value of a field that is not there, which equals no other."""


class BranchPoint(Record):
    """A run, and the last of its epochs that a branch takes over; 0 is its start."""

    run_id: str
    epoch: int

    def __str__(self) -> str:
        """Return the text that names it, `RUN@EPOCH`."""
        return f"{self.run_id}@{self.epoch}"

    @property
    def words(self) -> str:
        """Return a sentence that says what the branch takes over."""
        taken = f"epochs 0 to {self.epoch} are" if self.epoch else "its start is"
        return f"branch of run {self.run_id} at epoch {self.epoch}: {taken} taken over as stored"

    def check_later(self, asked: Until | None, where: str) -> None:
        """Raise ConfigError when a command asks for a stage that is taken over."""
        if asked is not None and asked.epoch <= self.epoch:
            what = f"epoch {asked.epoch} is" if self.epoch else "the start is"
            raise ConfigError(
                f"{where} {asked.stage}@{asked.epoch}: {what} taken over from run {self.run_id} as "
                f"it is stored, and this run begins after epoch {self.epoch}: name a stage of a "
                "later epoch, or branch off earlier"
            )


def read_point(text: str, where: str = "--from") -> BranchPoint:
    """Return the run and the epoch that a text names; raises ConfigError for anything else."""
    run, at, number = text.strip().rpartition("@")
    if not at or not re.fullmatch(RUN_ID, run):
        raise ConfigError(
            f"{where} {one_line(text, 120)!r}: expected RUN@EPOCH, the name of a run and the last "
            "epoch to take over, as in quickstart-genenv-s0-84d952@2"
        )
    if not re.fullmatch(r"\d{1,6}", number):
        raise ConfigError(
            f"{where} {one_line(text, 120)!r}: {one_line(number, 80)!r} is no number of an epoch, "
            f"as in {run}@2; 0 is the start of the run"
        )
    return BranchPoint(run_id=run, epoch=int(number))


def branch_name(config: RunConfig, point: BranchPoint) -> str:
    """Return the run id of a branch: the configured one, or its origin and a digest of the rest."""
    if config.run_id:
        return config.run_id
    mark = digest([str(point), identity(config, but=("benchmark",))])[:6]
    return f"{point.run_id[:NAME_KEPT]}-at{point.epoch}-{mark}"


def check_branch(
    point: BranchPoint, before: RunConfig, now: RunConfig, where: str = "--from"
) -> None:
    """Raise ConfigError when a run with the settings `before` cannot go on with those of `now`."""
    given = f"{where} {point}"
    if before.benchmark.given or now.benchmark.given:
        raise ConfigError(f"{given}: a run that measures a model has no epochs to branch off from")
    if now.epochs <= point.epoch:
        raise ConfigError(
            f"{given}: the run ends with epoch {now.epochs}, so nothing follows epoch "
            f"{point.epoch}: raise epochs to {point.epoch + 1} or more, or branch off earlier"
        )
    remedy = "leave it as it is there, or start a run of its own without a branch"
    _same(given, STARTED_WITH, before, now, "what a run starts with is taken over", remedy)
    if not point.epoch:
        return
    _same(given, ADAPTERS, before, now, "the checkpoints that are taken over have it", remedy)
    sets = [ARMS[config.arm].one_set(writes(config.teacher)) for config in (before, now)]
    if all(sets):
        _same(given, ONE_SET, before, now, "the set of tasks is taken over", remedy)
    elif sets[1]:
        raise ConfigError(
            f"{given}: arm is {before.arm} in run {point.run_id} and {now.arm} here, which plays "
            "one set of tasks in all epochs, and the epochs that are taken over have none: branch "
            f"off from {point.run_id}@0, or choose another arm"
        )


def _same(
    given: str,
    names: tuple[str, ...],
    before: RunConfig,
    now: RunConfig,
    why: str,
    remedy: str,
) -> None:
    """Raise ConfigError for the first field that differs."""
    both = dump(before), dump(now)
    for name in names:
        there, here = (value_at(values, name.split(".")) for values in both)
        for path, old, new in differing(there, here, name, missing=None):
            raise ConfigError(
                f"{given}: {path} is {_short(old)} there and {_short(new)} here, and {why}: "
                f"{remedy}"
            )


def differing(
    old: Any, new: Any, path: str = "", *, missing: Any = ABSENT
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted name of each field in which nested values differ, and both its values.

    A field that one of them lacks has the value `missing` there. It compares lists as a whole.
    """
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        if old != new:
            yield path, old, new
        return
    one, other = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
    for name in dict.fromkeys((*other, *one)):
        both = one.get(name, missing), other.get(name, missing)
        yield from differing(*both, f"{path}.{name}" if path else name, missing=missing)


def other_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a text such as `seed 0 -> 5` for each setting in which a run differs from its record.

    A setting that the record lacks came with a later version and does not count.
    """
    recorded = changed(now, as_now(before))
    return [
        f"{name} {_short(old)} -> {_short(new)}"
        for name, old, new in differing(recorded, now, missing=None)
    ]


def _short(value: Any) -> str:
    return "not set" if value is None else one_line(value, 80)
