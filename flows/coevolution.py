"""The run: bootstrap, then epochs 1..T, each from the state that the one before published."""

from __future__ import annotations

from prefect import flow

from flows.benchmark import check_measured, measure_agent
from flows.epoch import epoch
from flows.running.standstill import standstills_said
from flows.state import EpochState, initial_checkpoints
from genenv_core.config.branching import BranchPoint, branch_name
from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.config.until import Until
from genenv_core.domains.registry import get_domain, is_built_in
from genenv_core.exchange.examples import warm_start_input
from genenv_core.exchange.external import given_to
from genenv_core.play.checking.domain import check_shortly
from genenv_core.storage.records.branches import Branch, find_branch
from genenv_core.storage.records.labels import Change
from genenv_core.storage.store.opening import open_store
from genenv_core.types import Policy
from tasks.bootstrap import bootstrap
from tasks.evaluate import EvaluateInputs, evaluate
from tasks.placement.api import check_placement
from tasks.placement.parents import cancel_children
from tasks.publish import PublishInputs, publish
from tasks.stage.limiting import within_limits
from tasks.stage.stopping import to_the_end
from tasks.stage.stores import check_roots
from tasks.taking_over import take_over
from tasks.telemetry.spans import epoch_span, run_span
from tasks.tracking.track import check_tracking
from tasks.upkeep.opening import draw_anew, end_draws, end_early, open_branch, open_run
from tasks.warm_start import WarmStartInputs, warm_start

CHECKED = 20
"""Tasks of a domain of one's own that are looked at before a run."""


@flow(
    name="coevolution",
    flow_run_name="{config.run_id}",
    persist_result=False,
    on_cancellation=[cancel_children],
)
def coevolution(
    config: RunConfig,
    until: Until | None = None,
    force: Until | None = None,
    point: BranchPoint | None = None,
) -> EpochState | None:
    """Return the state after the last epoch, None if the run ends before; stages are reused.

    Args:
        config: The resolved configuration. Without a run_id, one is made from the rest.
        until: The last stage to carry out.
        force: A stage to draw anew.
        point: Where the run branches off from another one.
    """
    name = branch_name(config, point) if point else run_name(config, "run")
    named = config.model_copy(update={"run_id": name})
    return play(named, until=until, force=force, point=point)


def play(
    config: RunConfig,
    said: Change | None = None,
    until: Until | None = None,
    force: Until | None = None,
    point: BranchPoint | None = None,
) -> EpochState | None:
    """Return the state after the last epoch of a run that has a name, None if it ends before.

    `said` changes its labels, `force` draws a stage anew, `point` is where it branches off.
    """
    check_placement(config)
    check_roots(config)
    check_tracking(config)
    check_measured(config)
    with standstills_said(config):
        check_own_domain(config)
        with run_span(config):
            return _played(config, said, until, force, point)


def _played(
    config: RunConfig,
    said: Change | None,
    until: Until | None,
    force: Until | None,
    point: BranchPoint | None,
) -> EpochState | None:
    """Return what `play` does, once the configuration has been looked at."""
    branch = find_branch(open_store(config.root), config, point)
    if branch is not None:
        branch.check_later(until, force)
    open_branch(config, branch)
    open_run(config, said)
    draw_anew(config, force)
    taken = branch.epoch if branch else None
    with within_limits(config, until, taken=taken) as end:
        with epoch_span(config, taken or 0):
            state = to_the_end(lambda: begin(config, branch))
        first = branch.epoch + 1 if branch else 1
        for number in range(first, (until.epoch if until else config.epochs) + 1):
            state = epoch(config, number, state) if state else None
            if state is None or not measure_agent(config, number):
                break
    if end and end.reached:
        return None
    end_early(config, until)
    if state is not None:
        end_draws(config)
    return state


def check_own_domain(config: RunConfig) -> None:
    """Raise ConfigError where a domain that is not genenv's has a fault that shows in a moment."""
    if is_built_in(config.domain.name):
        return
    data = config.data
    check_shortly(
        get_domain(config.domain.name, config.domain.options),
        base=0 if data.base_file else min(data.base_tasks, CHECKED),
        heldout=min(data.validation_tasks + data.test_tasks, CHECKED),
    )


def begin(config: RunConfig, branch: Branch | None) -> EpochState:
    """Return the state that a run's own first epoch starts from."""
    if branch is None:
        return start(config)
    return EpochState.taken_over(config, take_over(config, branch.point))


def start(config: RunConfig) -> EpochState:
    """Return the state that epoch 1 starts from: both first checkpoints, evaluated."""
    examples = warm_start_input(config)
    data = bootstrap(config, 0, given_to(config))
    agent, env = initial_checkpoints(data)
    warm, given = None, config.warm_started
    if given:
        of_agent, of_env = Policy.AGENT in given, Policy.ENV in given
        starting = WarmStartInputs(agent, env, data, of_agent, of_env, examples)
        warm = warm_start(config, 0, starting)
        agent, env = initial_checkpoints(warm)
    evaluation = evaluate(config, 0, EvaluateInputs(agent, data, update=None))
    published = publish(config, 0, PublishInputs(evaluation, agent, env, warm_start=warm))
    return EpochState.after_start(data, warm, evaluation, published)
