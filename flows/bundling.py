"""Gathers what proves a run: only what this installation itself would give the same keys.

The plan of the run is walked first. Where a stage's key or output is not what the run has noted,
code, versions or data have changed since, and a bundle made now would name the wrong ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from flows.planner import plan_run
from flows.stages import TASKS
from genenv_core import __version__
from genenv_core.bundle import sources
from genenv_core.bundle.cards import card_files
from genenv_core.bundle.contents import Contents
from genenv_core.bundle.statement import Facts, given_to
from genenv_core.canonical import leaves
from genenv_core.config.load import FREE_SECTIONS, dump
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.tracking import user_of
from genenv_core.config.until import Until, stages_of
from genenv_core.errors import ConfigError
from genenv_core.storage import paths
from genenv_core.storage.records.branches import read_branch
from genenv_core.storage.records.code import counted
from genenv_core.storage.records.draws import read_draws
from genenv_core.storage.records.keys import difference
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.protocol import Store
from schemas.enums import StageState
from tasks.stage.key import chosen_modules, domain_of
from tasks.stage.planning import Planned

Place = tuple[int, str]


def gather(config: RunConfig, store: Store) -> Contents:
    """Return the bundle of a run, up to its first stage that is not finished.

    Raises ConfigError for a run that a bundle cannot prove.
    """
    run = str(config.run_id)
    _check_kind(config, store)
    portable = portable_config(config)
    stages = _finished(config, store)
    log, draws = RunLog(store, run), read_draws(store, run)
    times = _times(log, stages)
    last_epoch, last_stage = list(stages)[-1]
    facts = Facts(
        run_id=run,
        seed=config.seed,
        epochs=config.epochs,
        until=Until(stage=last_stage, epoch=last_epoch),
        started=_utc(log.info().started_at),
        finished=_utc(max(times, default=log.info().started_at)),
        version=__version__,
        commit=sources.commit(),
        keys={place: one.key for place, one in stages.items()},
        draws={name: n for name, n in draws.numbers.items() if _place(name) in stages},
        given=given_to(stages),
        packages=sources.installed(),
    )
    files = {
        **sources.code_files(),
        **sources.plugin_files(plugin_modules(config)),
        **sources.lock_files(),
        **card_files(store, dump(config), stages),
    }
    return Contents(facts, portable, stages, sources.machine(), files)


def plugin_modules(config: RunConfig) -> list[str]:
    """Return every module that counts in the keys of a run's stages, genenv's own among them."""
    found: set[str] = set()
    for task in TASKS.values():
        stage = task.stage.as_asked(config)
        chosen = chosen_modules(stage, config, domain_of(stage, config))
        found |= set(counted(*stage.modules, *chosen))
    return sorted(found)


def portable_config(config: RunConfig) -> dict[str, Any]:
    """Return a configuration without what belongs to one machine; raises ConfigError for a secret.

    The sections that are in no key are left out, and the root; MLflow is off.
    """
    kept = portable(dump(config))
    for name, text in leaves(kept):
        if isinstance(text, str) and "://" in text and user_of(text) is not None:
            raise ConfigError(
                f"{name} holds a user or a password in its address, and a bundle is for others: "
                "take it out of the address, and run again"
            )
    return kept


def portable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of a configuration without the sections of one machine; tracking is off.

    A bundle has no say in them: they name addresses, programs, and variables with secrets.
    """
    kept = {name: one for name, one in values.items() if name not in (*FREE_SECTIONS, "root")}
    return {**kept, "tracking": {"enabled": False}}


def _check_kind(config: RunConfig, store: Store) -> None:
    """Raise ConfigError for a run of a kind that has no bundle."""
    if config.benchmark.given:
        raise ConfigError(
            f"run {config.run_id} measures a model and trains none: bundle the run that made the "
            "model; `genenv eval` measures again"
        )
    branch = read_branch(store, str(config.run_id))
    if branch is not None:
        raise ConfigError(
            f"run {config.run_id} is a {branch.point.words}: what it took over was computed with "
            f"the settings of {branch.run_id}, which a bundle of it would not prove; bundle "
            f"{branch.run_id}, and a run of its own with the settings of this one"
        )


def _finished(config: RunConfig, store: Store) -> dict[Place, Manifest]:
    """Return the manifests of a run's stages in order, up to the first that is not finished."""
    log, run = RunLog(store, str(config.run_id)), config.run_id
    noted = {
        (epoch, stage): key for epoch in log.epochs() for stage, key in log.keys(epoch).items()
    }
    planned = {(one.epoch, one.stage): one for one in plan_run(config)}
    found: dict[Place, Manifest] = {}
    for place in stages_of(config):
        key = noted.get(place)
        if key is None:
            break
        found[place] = _proved(store, place, key, planned[place])
    if not found:
        raise ConfigError(f"run {run} has finished no stage: there is nothing to bundle yet")
    return found


def _proved(store: Store, place: Place, key: str, planned: Planned) -> Manifest:
    """Return the output of a stage; ConfigError where this installation gives it another key."""
    epoch, stage = place
    if planned.status == "hit" and planned.key == key:
        return Manifest.from_bytes(store.read(paths.manifest(stage, key)))
    reasons = list(planned.changed)
    if planned.status == "hit":
        noted = Manifest.from_bytes(store.read(paths.manifest(stage, key)))
        reasons = difference(noted.key_parts, planned.parts)
    raise ConfigError(
        f"{stage} of epoch {epoch} is not what this installation would compute: "
        f"{'; '.join(reasons[:5])}: bundle the run with the code, the versions and the data that "
        "it was played with, or play it again with these"
    )


def _times(log: RunLog, stages: Mapping[Place, Manifest]) -> list[datetime]:
    """Return when each stage was first finished, in UTC."""
    done: dict[Place, datetime] = {}
    for one in log.attempts():
        place = (one.epoch, one.stage)
        if place in stages and one.state in (StageState.COMPUTED, StageState.CACHED):
            done.setdefault(place, one.started_at + timedelta(seconds=one.seconds or 0))
    return list(done.values())


def _utc(moment: datetime) -> str:
    """Return a time as RFC 3339 has it, to the second."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _place(name: str) -> Place:
    stage, _, epoch = name.partition("@")
    return int(epoch), stage
