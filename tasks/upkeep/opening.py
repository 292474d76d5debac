"""Opens a run in its store, and notes what a command does to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime

from genenv_core.config.branching import other_settings
from genenv_core.config.load import dump, run_name
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import LAST
from genenv_core.config.until import Until
from genenv_core.report.fixed_sets import FIXED_SETS, FixedSet
from genenv_core.storage.records.branches import Branch, note_branch
from genenv_core.storage.records.draws import close_draws, force_draw
from genenv_core.storage.records.endings import Ending, clear_ending, note_ending
from genenv_core.storage.records.labels import Change, change_labels
from genenv_core.storage.records.runs import RunLog
from tasks.stage.context import log
from tasks.stage.execution import refuse_outside_tests
from tasks.stage.progress import Event, emit
from tasks.stage.stores import artifacts_of
from tasks.upkeep.started_in import relative_files

GOES_ON = ("epochs ", "limits.")
"""Settings that only say how far a run goes."""


def open_run(config: RunConfig, fixed: Mapping[str, int], said: Change | None = None) -> None:
    """Record a run's resolved configuration and the change of its labels; it may exist already.

    `fixed` has the sizes of its fixed sets by domain, as `Prepared` does; `said` is that change.
    """
    name = run_name(config, "run")
    refuse_outside_tests(config.execution.test_fault)
    store = artifacts_of(config.root).store
    values = dump(config)
    folder = os.getcwd() if relative_files(values) else ""
    before = RunLog(store, name).open(values, datetime.now(UTC), fixed, folder)
    if others := [text for text in other_settings(before, values) if not text.startswith(GOES_ON)]:
        log.warning(
            "run=%s had other settings so far: %s: stages that they change are computed anew; "
            "another run id begins a run of its own", name, "; ".join(others),
        )  # fmt: skip
    clear_ending(store, name)
    if said is not None:
        change_labels(store, name, said)
    said_of_run = {"run_id": name, "epochs": config.epochs, "arm": config.arm.value}
    for domain, count in fixed.items():
        log.info("run=%s %s", name, FixedSet(domain, count).line)
    emit(Event("run", facts={**said_of_run, FIXED_SETS: dict(fixed)}))


def open_branch(config: RunConfig, branch: Branch | None) -> None:
    """Note what a run takes over from another one; with None, do nothing."""
    if branch is not None:
        note_branch(artifacts_of(config.root).store, run_name(config, "run"), branch)


def draw_anew(config: RunConfig, force: Until | None) -> None:
    """Note a new draw of a stage, if `force` names one. Raises ConfigError without a first draw."""
    if force is None:
        return
    run, store = run_name(config, "run"), artifacts_of(config.root).store
    number = force_draw(store, run, force.stage, force.epoch).number(force.stage, force.epoch)
    log.info("run=%s epoch=%d stage=%s draw=%d", run, force.epoch, force.stage, number)


def end_draws(config: RunConfig) -> None:
    """Note that the run has reached its end with its draws."""
    close_draws(artifacts_of(config.root).store, run_name(config, "run"))


def end_early(config: RunConfig, until: Until | None) -> None:
    """Note that the run has ended after a stage as asked; do nothing at the end of its epochs."""
    if until is not None and not until.covers(LAST, config.epochs):
        store = artifacts_of(config.root).store
        ending = Ending(stage=until.stage, epoch=until.epoch)
        note_ending(store, run_name(config, "run"), ending)
