"""One epoch of the co-evolution, stage by stage."""

from __future__ import annotations

from prefect import flow

from flows.state import EpochRefs, EpochState, shared_draw
from genenv_core.config.arms import ARMS
from genenv_core.config.schema import RunConfig
from genenv_core.config.until import set_of
from genenv_core.epoch.attempting.windows import window_of
from genenv_core.epoch.trouble import check_epoch
from genenv_core.exchange.external import offline_input, teacher_input
from tasks.evaluate import EvaluateInputs, evaluate
from tasks.filter import FilterInputs, filter_
from tasks.generate_tasks import GenerateTasksInputs, generate_tasks
from tasks.grpo_update import GrpoUpdateInputs, grpo_update
from tasks.placement.parents import cancel_children
from tasks.pool import PoolInputs, pool
from tasks.publish import EpochOutputs, PublishInputs, publish
from tasks.rollout import RolloutInputs, rollout
from tasks.rwr_update import RwrUpdateInputs, SimulatedAttempts, rwr_update
from tasks.score import ScoreInputs, score
from tasks.stage.stopping import or_cancelled, to_the_end
from tasks.stage.telemetry.spans import epoch_span


@flow(
    name="epoch",
    flow_run_name="{config.run_id} · epoch {epoch} of {config.epochs}",
    persist_result=False,
    on_cancellation=[cancel_children],
)
def epoch(config: RunConfig, epoch: int, state: EpochState) -> EpochState | None:
    """Return the state after one round: tasks, attempts, both updates, publishing.

    Returns None when the run is to end before the round does.

    Args:
        config: The resolved configuration.
        epoch: Number of the round, from 1.
        state: What the round before published.
    """

    def in_span() -> EpochState | None:
        with epoch_span(config, epoch):
            return to_the_end(lambda: round_of(config, epoch, state))

    return or_cancelled(in_span)


def round_of(config: RunConfig, epoch: int, state: EpochState) -> EpochState:
    """Return the state after one round, stage by stage."""
    arm, agent, env, data = ARMS[config.arm], state.agent, state.env, state.bootstrap
    made_for = set_of(config, epoch)
    before = state.before(made_for)
    rated = before.last(config.generation.prediction_epochs)
    writing = GenerateTasksInputs(
        env=env,
        bootstrap=data,
        recent=[past.tasks for past in before.last(config.generation.history_epochs)],
        rated_tasks=[past.tasks for past in rated],
        rated=[past.scores for past in rated],
        offline=offline_input(config),
        teacher=teacher_input(config),
        set_tasks=config.data.set_tasks,
        reserve=config.refill.groups > 0,
    )
    tasks = state.one_set or generate_tasks(config, made_for, writing)
    check_epoch(tasks.facts, [past.tasks.facts for past in state.last(1)])
    simulator = env if config.tools.execution == "simulated" else None
    attempting = RolloutInputs(tasks, data, agent, simulator, window_of(config, epoch))
    traces = rollout(config, epoch, attempting)
    check_epoch(traces.facts, [past.traces.facts for past in state.last(1)])
    scores = score(config, epoch, ScoreInputs(tasks, traces, data))
    selections = filter_(config, epoch, FilterInputs(tasks, traces, scores))
    pools = pool(config, epoch, PoolInputs(tasks, traces, scores, selections))
    refs = EpochRefs(epoch=epoch, tasks=tasks, traces=traces, scores=scores, pool=pools)
    replayed = state.last(config.mixture.max_policy_age)
    pooled = (*state.last(config.rwr.window_epochs - 1), refs)
    agent_update = GrpoUpdateInputs(
        agent=agent,
        pool=pools,
        traces=traces,
        history_pools=[past.pool for past in replayed],
        history_traces=[past.traces for past in replayed],
        train=arm.trains_agent,
        agent_initial=state.agent_initial if config.grpo.kl_reference == "bootstrap" else None,
        bootstrap=data if config.grpo.attribution else None,
        domains=shared_draw(config, [data, *(past.tasks for past in replayed)]),
    )
    env_update = RwrUpdateInputs(
        env=env,
        env_initial=state.env_initial,
        pools=[one.pool for one in pooled],
        generations=[one.tasks for one in pooled],
        scores=scores,
        train=arm.trains_env,
        simulated=SimulatedAttempts(traces, data) if simulator else None,
        rehearsed=(state.first_tasks or tasks) if config.rwr.rehearsal else None,
    )
    training_agent = grpo_update.submit(config, epoch, agent_update)
    behind = [training_agent] if config.execution.updates_at_once == 1 else []
    training_env = rwr_update.submit(config, epoch, env_update, behind)
    of_agent = training_agent.result()
    of_candidate = EvaluateInputs(agent, data, of_agent, state.evaluated(of_agent))
    evaluating = evaluate.submit(config, epoch, of_candidate)
    of_env, evaluation = training_env.result(), evaluating.result()
    made = EpochOutputs(
        tasks=tasks,
        traces=traces,
        scores=scores,
        selections=selections,
        grpo=of_agent,
        rwr=of_env,
        validation_current=state.validation_current,
        validation_best=state.validation_best,
    )
    published = publish(config, epoch, PublishInputs(evaluation, agent, env, made))
    return state.after_epoch(config, refs, of_agent, of_env, evaluation, published)
