"""Branches: what a run takes over from another one, by the keys under which it is stored.

`note_branch` writes the record once, before the branch's first stage. From then on the branch needs
the stored outputs and not the other run, which may go on, draw stages anew or be dropped. No key
holds the record.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import Field

from genenv_core.canonical import leaves
from genenv_core.config.branching import BranchPoint, check_branch
from genenv_core.config.load import as_recorded
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import EPOCH_STAGES, LAST, STAGES, START_STAGES, update_of
from genenv_core.errors import AlreadyExists, ConfigError, IntegrityError, NotFound
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.draws import Draws, merge_draws, read_draws
from genenv_core.storage.records.manifest import Manifest, first_maker
from genenv_core.storage.records.runs import TRACKED, RunLog, unknown_run
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.finding import find_record
from genenv_core.storage.store.protocol import Store
from genenv_core.types import Policy

log = logging.getLogger("genenv.storage")


class Branch(SealedRecord):
    """Where a run branches off: `epochs` has stage -> key of each epoch that it takes over.

    `draws` are the draws of later stages at that moment, so that only its settings make the branch
    differ from the other run.
    """

    run_id: str
    epoch: int = Field(ge=0)
    epochs: tuple[dict[str, str], ...]
    draws: dict[str, int] = Field(default_factory=dict[str, int])

    @property
    def point(self) -> BranchPoint:
        """Return the run and the epoch."""
        return BranchPoint(run_id=self.run_id, epoch=self.epoch)


def read_branch(store: Store, run_id: str) -> Branch | None:
    """Return where a run branches off, None for one that does not; raises IntegrityError."""
    path = paths.run_branch(run_id)
    try:
        return find_record(store, path, Branch.from_bytes)
    except IntegrityError as error:
        raise IntegrityError(
            f"{path}: {error}: what run {run_id} has taken over is unknown; delete the file, and "
            "the command that made the branch (`genenv run --from`) notes it anew"
        ) from error


def origin_of(store: Store, run_id: str) -> BranchPoint | None:
    """Return where a run branches off, for people; log a warning for damage and return None."""
    try:
        branch = read_branch(store, run_id)
    except IntegrityError as error:
        log.warning("run=%s where it branches off is unknown: %s", run_id, error)
        return None
    return branch.point if branch else None


def find_branch(
    store: Store, config: RunConfig, point: BranchPoint | None, where: str = "--from"
) -> Branch | None:
    """Return what a run with a name takes over from another one, or None, without noting it.

    A run that branched off once stays a branch, also without a `point`. Raises ConfigError when the
    settings do not fit, as `branch_off`, and for an existing run that began otherwise.
    """
    run = str(config.run_id)
    noted = read_branch(store, run)
    if noted is not None and point in (None, noted.point):
        # Its own settings fitted when it branched off, and the other run may be gone by now.
        _check_settings(store, (run, noted.run_id), noted.point, config, where)
        return noted
    if point is None:
        return None
    if run == point.run_id:
        raise ConfigError(f"{where} {point}: a branch needs a name of its own: give another run id")
    branch = branch_off(store, point, where)
    if noted is not None or _began_otherwise(RunLog(store, run), branch):
        began = f"is a {noted.point.words}" if noted else "has begun by itself"
        raise ConfigError(
            f"{where} {point}: run {run} {began}: leave the run id out, or give another one"
        )
    _check_settings(store, (point.run_id,), point, config, where)
    return branch


def _began_otherwise(run: RunLog, branch: Branch) -> bool:
    """Return whether a run without a record has other stages than those that it would take over."""
    there = {epoch: run.keys(epoch) for epoch in run.epochs() if epoch <= branch.epoch}
    return any(
        name != TRACKED and branch.epochs[epoch].get(name) != key
        for epoch, keys in there.items()
        for name, key in keys.items()
    )


def _check_settings(
    store: Store, runs: Sequence[str], point: BranchPoint, config: RunConfig, where: str
) -> None:
    """Raise ConfigError when the settings do not fit those of the first of some runs."""
    for run in runs:
        with contextlib.suppress(NotFound):
            before = as_recorded(RunLog(store, run).info().config, run)
            check_branch(point, before, config, where)
            return


def branch_off(store: Store, point: BranchPoint, where: str = "--from") -> Branch:
    """Return what a branch takes over, without noting it.

    Raises ConfigError for a run that does not exist or has not finished the epoch, and for one that
    another genenv made of other stages.
    """
    if unknown := unknown_run(store, point.run_id):
        raise ConfigError(f"{where} {point}: {unknown}")
    log, epochs = RunLog(store, point.run_id), list[dict[str, str]]()
    for epoch in range(point.epoch + 1):
        keys = {name: key for name, key in log.keys(epoch).items() if name != TRACKED}
        needed = set(EPOCH_STAGES if epoch else START_STAGES)
        if epoch > 1 and "generate_tasks" in epochs[1]:  # an arm may play one set, that of epoch 1
            needed.discard("generate_tasks")
        if why := _not_whole(point, epoch, keys, needed):
            raise ConfigError(f"{where} {point}: {why}")
        epochs.append(keys)
    numbers = read_draws(store, point.run_id).numbers
    later = {
        name: number
        for name, number in numbers.items()
        if int(name.partition("@")[2]) > point.epoch
    }
    return Branch(run_id=point.run_id, epoch=point.epoch, epochs=tuple(epochs), draws=later)


def _not_whole(
    point: BranchPoint, epoch: int, keys: Mapping[str, str], needed: Collection[str]
) -> str:
    """Return why a branch cannot take an epoch over, and a remedy; '' for one that it can.

    An older genenv, with other stages, may have finished an epoch that has the key of `LAST`.
    """
    if unknown := sorted(keys.keys() - STAGES.keys()):
        return (
            f"epoch {epoch} of the run has {', '.join(unknown)}, which this genenv does not know: "
            "branch off with the genenv that made it"
        )
    missing = [name for name in STAGES if name in needed and name not in keys]
    if missing and LAST in keys:
        return (
            f"epoch {epoch} of the run was made by an older genenv, which had no "
            f"{', '.join(missing)} in it: `genenv resume {point.run_id}` computes what is missing, "
            "and what changed since, then say the same command"
        )
    if missing:
        last = f"the last one is {epoch - 1}" if epoch else "it has none"
        return (
            f"the run has not finished epoch {epoch}; of its finished epochs {last}: name that "
            f"one, or continue it with `genenv resume {point.run_id}`"
        )
    return ""


def note_branch(store: Store, run_id: str, branch: Branch) -> Branch:
    """Note what a run takes over; return the stored note, which may be another process's."""
    if branch.draws:
        merge_draws(store, run_id, Draws(numbers=branch.draws))
    try:
        store.create(paths.run_branch(run_id), branch.to_bytes())
    except AlreadyExists:
        return read_branch(store, run_id) or branch
    return branch


def taken_over(artifacts: Artifacts, branch: Branch) -> list[dict[str, Manifest]]:
    """Verify the outputs that a branch takes over, and return them by epoch and stage.

    Raises IntegrityError for a missing or damaged one, and ConfigError for epochs that do not
    follow from each other, as in a run that changed its settings on the way.
    """
    found: list[dict[str, Manifest]] = []
    for epoch, keys in enumerate(branch.epochs):
        outputs: dict[str, Manifest] = {}
        for stage in (name for name in STAGES if name in keys):
            key = keys[stage]
            manifest = artifacts.find(stage, key)
            if manifest is None:
                raise IntegrityError(
                    f"{stage} of epoch {epoch}, key {key[:12]}, which is taken over from run "
                    f"{branch.run_id}: its output is missing or damaged: `genenv resume "
                    f"{branch.run_id}` computes it again, then say the same command"
                )
            outputs[stage] = manifest
        found.append(outputs)
    _check_history(branch.point, found)
    return found


def _check_history(point: BranchPoint, epochs: list[dict[str, Manifest]]) -> None:
    """Raise ConfigError unless a stage read each output in its epoch, and epochs follow on."""
    agent = ""
    for number, outputs in enumerate(epochs):
        read = set[str]().union(*(_texts(one.key_parts.get("inputs")) for one in outputs.values()))
        loose = [name for name, one in outputs.items() if name != LAST and one.digest not in read]
        if number and agent not in _texts(outputs["rollout"].key_parts.get("inputs")):
            loose.append("rollout")
        if loose:
            raise ConfigError(
                f"--from {point}: epoch {number} of the run is not of one piece: {loose[0]} was "
                "computed again with other settings, and what follows it was not; finish it with "
                f"`genenv resume {point.run_id}`, or branch off before that epoch"
            )
        published = outputs[LAST].facts.get("published", {})
        maker = update_of(Policy.AGENT) if number else first_maker(outputs[LAST])
        if not number or published.get("agent"):
            agent = outputs[maker].checkpoints["agent"]


def _texts(value: Any) -> set[str]:
    """Return every text in nested values, that of a checkpoint without its policy version."""
    return {leaf.partition("@")[0] for _, leaf in leaves(value) if isinstance(leaf, str)}
