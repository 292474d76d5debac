"""Plans a run: walks the real flows without computing."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial

from flows.coevolution import start
from flows.epoch import round_of
from flows.preparing import Prepared, prepare, prepare_measurement
from flows.state import EpochState
from genenv_core.config.branching import BranchPoint
from genenv_core.config.run_options import RunOptions
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.roots import RootsConfig
from genenv_core.config.stages import EPOCH_STAGES, STAGES
from genenv_core.config.until import Until, stages_of, start_stages
from genenv_core.errors import ConfigError, StageError
from genenv_core.storage.records.artifacts import reference
from genenv_core.storage.records.branches import Branch, read_branch, taken_over
from genenv_core.storage.records.draws import Draws
from genenv_core.storage.records.manifest import ArtifactRef, Manifest
from tasks.benchmark import benchmark
from tasks.evaluate import standing
from tasks.stage.drawing import supposing
from tasks.stage.planning import NotPlannable, Planned, current_plan, planning
from tasks.stage.stores import artifacts_of, readers_of


def plan_run(
    config: RunConfig,
    until: Until | None = None,
    force: Until | None = None,
    point: BranchPoint | None = None,
) -> list[Planned]:
    """Return what `plan_of` does for a configuration; raises as `prepare` for what decides keys."""
    if config.benchmark.given:
        measured = prepare_measurement(config, computes=False)
        with planning() as entries, contextlib.suppress(NotPlannable):
            benchmark(measured.config, 0, measured.inputs)
        return entries
    options = RunOptions(until, force, point)
    return plan_of(prepare(config, options, computes=False))


def plan_of(prepared: Prepared) -> list[Planned]:
    """Return all stages of all epochs in order: hit, miss, or unknown until upstream is known.

    With `until`, only those that a run which ends there carries out; with `force`, after one more
    draw of that stage. Those of a branch begin with what it takes over, which is a hit.
    """
    config, branch, until = prepared.config, prepared.branch, prepared.options.until
    epochs = until.epoch if until else config.epochs
    drawn = prepared.draws
    unnoted = branch and branch.draws and read_branch(prepared.store, str(config.run_id)) is None
    if drawn is None and branch and unnoted:
        drawn = Draws(numbers=branch.draws)
    # A run that stops for want of tasks has no more stages to plan.
    with supposing(drawn), planning() as entries, contextlib.suppress(NotPlannable, StageError):
        _walked(prepared, epochs)
    seen = {(entry.epoch, entry.stage) for entry in entries}
    after = branch.epoch if branch else -1
    entries += [
        Planned(stage, number, "unknown")
        for number, stage in stages_of(config, epochs)
        if number > after and (number, stage) not in seen
    ]
    note_standing(config, entries)
    return [e for e in entries if until is None or until.covers(e.stage, e.epoch)]


def note_standing(config: RunConfig, entries: list[Planned]) -> None:
    """Note for which evaluations an earlier one stands, as far as what is stored tells it."""
    whole = True
    for one in entries:
        if one.stage != "evaluate":
            continue
        if one.status == "miss":
            load = partial(_manifest, config)
            one.stands = standing(one.inputs, one.parts, one.epoch, load) is not None
        elif one.status == "unknown" and not whole:
            one.stands = False  # one that lost an attempt stands for no other
        whole = one.ref is None or "lost" not in one.ref.facts


def _manifest(config: RunConfig, ref: ArtifactRef) -> Manifest:
    """Return the manifest of a hit of a plan, which may be in a root that the run reads from."""
    if shared := readers_of(config).find(ref.stage, ref.key):
        return shared.manifest
    return artifacts_of(config.root).load(ref)


def state_before(prepared: Prepared, number: int) -> EpochState:
    """Return the state that an epoch starts from; raises ConfigError if one before is missing.

    What lies in another root alone counts as missing, as a run takes it over before.
    """
    prepared = _by_itself(prepared)
    _check_own(prepared, number)
    with planning() as entries:
        try:
            return _walked(prepared, number - 1)
        except NotPlannable:
            raise _unfinished(prepared.config, entries) from None


def planned_stage(prepared: Prepared, stage: str, number: int) -> Planned:
    """Return one stage of one epoch with its inputs; raises ConfigError if they are missing."""
    prepared = _by_itself(prepared)
    config, number = prepared.config, number if STAGES[stage].in_epochs else 0
    if stage not in (EPOCH_STAGES if number else start_stages(config)):
        raise ConfigError(f"there is no {stage} in epoch {number}: epochs count from 1")
    _check_own(prepared, number)
    state = state_before(prepared, number) if number else None
    with planning() as entries, contextlib.suppress(NotPlannable):
        _ = round_of(config, number, state) if state else start(prepared)
    for entry in entries:
        if entry.stage == stage:
            return entry
    raise _unfinished(config, entries)


def _by_itself(prepared: Prepared) -> Prepared:
    """Return a run that reads from no other root."""
    config = prepared.config.model_copy(update={"roots": RootsConfig()})
    return replace(prepared, config=config)


def _check_own(prepared: Prepared, number: int) -> None:
    """Raise ConfigError when an epoch is part of what the run takes over."""
    branch = prepared.branch
    if branch is not None and number <= branch.epoch:
        raise ConfigError(
            f"epoch {number} of run {prepared.config.run_id} is taken over from run "
            f"{branch.run_id} as it is stored: name an epoch after {branch.epoch}"
        )


def _walked(prepared: Prepared, epochs: int) -> EpochState:
    config, branch = prepared.config, prepared.branch
    state = _taken(config, branch) if branch else start(prepared)
    for number in range(branch.epoch + 1 if branch else 1, epochs + 1):
        state = round_of(config, number, state)
    return state


def _taken(config: RunConfig, branch: Branch) -> EpochState:
    """Return the state after what a branch takes over, which is planned as a hit."""
    made: list[dict[str, ArtifactRef]] = []
    for epoch, outputs in enumerate(taken_over(artifacts_of(config.root), branch)):
        made.append({stage: reference(manifest) for stage, manifest in outputs.items()})
        if (plan := current_plan()) is not None:
            plan += [
                Planned(stage, epoch, "hit", one.key, one.key_parts, ref=made[-1][stage])
                for stage, one in outputs.items()
            ]
    return EpochState.taken_over(config, made)


def _unfinished(config: RunConfig, entries: list[Planned]) -> ConfigError:
    first = next(entry for entry in entries if entry.status != "hit")
    return ConfigError(
        f"{first.stage} of epoch {first.epoch} of run {config.run_id} is not finished: continue "
        "the run with the deployment coevolution, resume set to it, or with `genenv resume`"
    )
