"""One epoch of the co-evolution, stage by stage."""

from __future__ import annotations

from prefect import flow

from flows.state import EpochRefs, EpochState
from genenv_core.config.schema import Arm, RunConfig
from genenv_core.inputs import offline_input
from tasks.evaluate import evaluate
from tasks.filter import filter_
from tasks.generate_tasks import generate_tasks
from tasks.grpo_update import grpo_update
from tasks.placement.parents import cancel_children
from tasks.pool import pool
from tasks.publish import publish
from tasks.rollout import rollout
from tasks.rwr_update import rwr_update
from tasks.score import score


@flow(
    name="epoch",
    flow_run_name="{config.run_id} · epoch {epoch} of {config.epochs}",
    persist_result=False,
    on_cancellation=[cancel_children],
)
def epoch(config: RunConfig, epoch: int, state: EpochState) -> EpochState:
    """Return the state after one round: tasks, attempts, both updates, publishing.

    Args:
        config: The resolved configuration.
        epoch: Number of the round, from 1.
        state: What the round before published.
    """
    agent, env, data = state.agent, state.env, state.bootstrap
    static = config.arm is Arm.STATIC  # its one set is what epoch 1 would generate
    tasks = generate_tasks.submit(
        config,
        1 if static else epoch,
        env=env,
        bootstrap=data,
        last_tasks=[] if static else [past.tasks for past in state.last(1)],
        last_scores=[] if static else [past.scores for past in state.last(1)],
        recent=[] if static else [p.tasks for p in state.last(config.generation.history_epochs)],
        offline=offline_input(config),
    )
    players = {"simulator": env} if config.tools.execution == "simulated" else {}
    traces = rollout.submit(config, epoch, tasks=tasks, bootstrap=data, agent=agent, **players)
    scores = score.submit(config, epoch, tasks=tasks, traces=traces, bootstrap=data)
    selections = filter_.submit(config, epoch, tasks=tasks, scores=scores)
    pools = pool.submit(
        config, epoch, tasks=tasks, traces=traces, scores=scores, selections=selections
    )
    replayed = state.last(config.mixture.max_policy_age)
    window = state.last(config.rwr.window_epochs - 1)
    grpo = grpo_update.submit(
        config,
        epoch,
        agent=agent,
        pool=pools,
        traces=traces,
        history_pools=[past.pool for past in replayed],
        history_traces=[past.traces for past in replayed],
        train=config.arm is not Arm.BASE,
    )
    rwr = rwr_update.submit(
        config,
        epoch,
        env=env,
        env_initial=state.env_initial,
        pools=[*(past.pool for past in window), pools],
        generations=[*(past.tasks for past in window), tasks],
        train=config.arm is Arm.GENENV,
    )
    evaluation = evaluate.submit(config, epoch, agent=agent, bootstrap=data, update=grpo)
    published = publish.submit(
        config,
        epoch,
        tasks=tasks,
        traces=traces,
        scores=scores,
        selections=selections,
        grpo=grpo,
        rwr=rwr,
        evaluation=evaluation,
        agent=agent,
        env=env,
        heldout_current=state.heldout_current,
        heldout_best=state.heldout_best,
    )
    # Asked for in the order of the stages, so that what failed is what is raised: a stage that
    # waited for it would only say that there is no result.
    made = [stage.result() for stage in (tasks, traces, scores, selections, pools)]
    refs = EpochRefs(epoch=epoch, tasks=made[0], traces=made[1], scores=made[2], pool=made[4])
    updates = grpo.result(), rwr.result()
    evaluation.result()
    return state.after_epoch(config, refs, *updates, published.result())
