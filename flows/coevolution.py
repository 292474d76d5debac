"""The run: bootstrap, then epochs 1..T, each from the state that the one before published."""

from __future__ import annotations

from flows.benchmark import measure_agent
from flows.epoch import epoch
from flows.preparing import Prepared, prepare
from flows.running.named import run_flow
from flows.running.standstill import standstills_said
from flows.state import EpochState, initial_checkpoints
from genenv_core.config.branching import BranchPoint
from genenv_core.config.run_options import RunOptions
from genenv_core.config.schema import RunConfig
from genenv_core.config.until import Until
from genenv_core.storage.records.labels import Change
from genenv_core.types import Policy
from tasks.bootstrap import bootstrap
from tasks.evaluate import EvaluateInputs, evaluate
from tasks.publish import PublishInputs, publish
from tasks.stage.limiting import within_limits
from tasks.stage.stopping import or_cancelled, to_the_end
from tasks.stage.telemetry.spans import epoch_span, run_span
from tasks.taking_over import take_over
from tasks.upkeep.opening import draw_anew, end_draws, end_early, open_branch, open_run
from tasks.upkeep.tidying import tidy_ended
from tasks.warm_start import WarmStartInputs, warm_start


@run_flow("coevolution")
def coevolution(
    config: RunConfig,
    until: Until | None = None,
    force: Until | None = None,
    point: BranchPoint | None = None,
) -> EpochState | None:
    """Return the state after the last epoch, None if the run ends before; stages are reused.

    Raises as `prepare`, before the run is opened.

    Args:
        config: The resolved configuration. Without a run_id, one is made from the rest.
        until: The last stage to carry out.
        force: A stage to draw anew.
        point: Where the run branches off from another one.
    """
    return or_cancelled(lambda: play(prepare(config, RunOptions(until, force, point))))


def play_as_flow(prepared: Prepared) -> EpochState | None:
    """Return what `play` does, as a flow run `coevolution` that shows what was asked for."""

    @run_flow("coevolution")
    def shown(
        config: RunConfig, until: Until | None, force: Until | None, point: BranchPoint | None
    ) -> EpochState | None:
        return or_cancelled(lambda: play(prepared))

    options = prepared.options
    return shown(prepared.config, options.until, options.force, options.point)


def play(prepared: Prepared, said: Change | None = None) -> EpochState | None:
    """Return the state after the last epoch of a run, None if it ends before.

    `said` changes its labels.
    """
    with standstills_said(prepared.config), run_span(prepared.config):
        return _played(prepared, said)


def _played(prepared: Prepared, said: Change | None) -> EpochState | None:
    """Return what `play` does, inside the watch and the span of the run."""
    config, branch, until = prepared.config, prepared.branch, prepared.options.until
    open_branch(config, branch)
    open_run(config, prepared.fixed, said)
    draw_anew(config, prepared.options.force)
    taken = branch.epoch if branch else None
    with within_limits(config, until, taken=taken) as end:
        with epoch_span(config, taken or 0):
            state = to_the_end(lambda: begin(prepared))
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
        tidy_ended(config)
    return state


def begin(prepared: Prepared) -> EpochState:
    """Return the state that a run's own first epoch starts from."""
    config, branch = prepared.config, prepared.branch
    if branch is None:
        return start(prepared)
    return EpochState.taken_over(config, take_over(config, branch.point))


def start(prepared: Prepared) -> EpochState:
    """Return the state that epoch 1 starts from: both first checkpoints, evaluated."""
    config = prepared.config
    data = bootstrap(config, 0, prepared.inputs.given)
    agent, env = initial_checkpoints(data)
    warm, given = None, config.warm_started
    if given:
        of_agent, of_env = Policy.AGENT in given, Policy.ENV in given
        starting = WarmStartInputs(agent, env, data, of_agent, of_env, prepared.inputs.examples)
        warm = warm_start(config, 0, starting)
        agent, env = initial_checkpoints(warm)
    evaluation = evaluate(config, 0, EvaluateInputs(agent, data, update=None))
    published = publish(config, 0, PublishInputs(evaluation, agent, env, warm_start=warm))
    return EpochState.after_start(data, warm, evaluation, published)
