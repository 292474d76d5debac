"""The state that one epoch hands to the next: references only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genenv_core.config.arms import ARMS
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.unions.teacher import writes
from genenv_core.config.stages import FIRST, LAST, WARM, update_of
from genenv_core.domains.protocol import shares_of
from genenv_core.domains.registry import SEVERAL, get_domain
from genenv_core.record import Record
from genenv_core.storage.records.manifest import ArtifactRef, CheckpointRef
from genenv_core.types import Policy
from tasks.grpo_update import SharedDraw


class EpochRefs(Record):
    """The artifacts of one finished epoch that later epochs may read."""

    epoch: int
    tasks: ArtifactRef
    traces: ArtifactRef
    scores: ArtifactRef
    pool: ArtifactRef


class EpochState(Record):
    """Where the game stands after an epoch.

    `validation_current` and `validation_best` are sampled success rates on the validation tasks: of
    the current agent checkpoint, and of the best published so far. `past` holds the last epochs,
    oldest first, as many as any stage needs. `first_tasks` are epoch 1's, which the first pi_env
    wrote. `evaluation` is the last one of the current agent.
    `one_set` are the tasks that every epoch plays where they were taken over from another run.
    """

    bootstrap: ArtifactRef
    agent: CheckpointRef
    env: CheckpointRef
    agent_initial: CheckpointRef
    env_initial: CheckpointRef
    evaluation: ArtifactRef
    validation_current: float
    validation_best: float
    past: tuple[EpochRefs, ...] = ()
    first_tasks: ArtifactRef | None = None
    one_set: ArtifactRef | None = None

    @classmethod
    def taken_over(
        cls, config: RunConfig, epochs: Sequence[Mapping[str, ArtifactRef]]
    ) -> EpochState:
        """Return the state after epochs of another run, given as stage -> output, from 0 on."""
        start = epochs[0]
        state = cls.after_start(start[FIRST], start.get(WARM), start["evaluate"], start[LAST])
        for number, made in enumerate(epochs[1:], 1):
            refs = EpochRefs(
                epoch=number,
                # An arm may play one set, which is epoch 1's.
                tasks=made.get("generate_tasks", epochs[1]["generate_tasks"]),
                traces=made["rollout"],
                scores=made["score"],
                pool=made["pool"],
            )
            outcome = (made[stage] for stage in (*map(update_of, Policy), "evaluate", LAST))
            state = state.after_epoch(config, refs, *outcome)
        if state.past and ARMS[config.arm].one_set(writes(config.teacher)):
            return state.model_copy(update={"one_set": epochs[1]["generate_tasks"]})
        return state

    @classmethod
    def after_start(
        cls,
        bootstrap: ArtifactRef,
        warm_start: ArtifactRef | None,
        evaluation: ArtifactRef,
        published: ArtifactRef,
    ) -> EpochState:
        """Return the state that epoch 1 starts from; `warm_start` is None without that stage."""
        agent, env = initial_checkpoints(warm_start or bootstrap)
        success = float(published.facts["validation"])
        return cls(
            bootstrap=bootstrap,
            agent=agent,
            env=env,
            agent_initial=agent,
            env_initial=env,
            evaluation=evaluation,
            validation_current=success,
            validation_best=success,
        )

    def after_epoch(
        self,
        config: RunConfig,
        refs: EpochRefs,
        of_agent: ArtifactRef,
        of_env: ArtifactRef,
        evaluation: ArtifactRef,
        published: ArtifactRef,
    ) -> EpochState:
        """Return the state that this epoch published, after the updates of both policies."""
        changes: dict[str, Any] = {}
        if published.facts["published"]["agent"]:
            changes["agent"] = _checkpoint(of_agent, "agent", refs.epoch)
            changes["validation_current"] = float(published.facts["validation"])
        if published.facts["published"]["env"]:
            changes["env"] = _checkpoint(of_env, "env", refs.epoch)
        if published.facts["is_best"]:
            changes["validation_best"] = float(published.facts["validation"])
        current: CheckpointRef = changes.get("agent", self.agent)
        if _is_of(evaluation, current.digest):
            changes["evaluation"] = evaluation
        changes["first_tasks"] = self.first_tasks or refs.tasks
        changes["past"] = (*self.past, refs)[-_window(config) :]
        return self.model_copy(update=changes)

    def evaluated(self, update: ArtifactRef) -> ArtifactRef | None:
        """Return the evaluation of the agent where an update left it as it is, else None."""
        digest = update.checkpoints.get(self.agent.name, self.agent.digest)
        return self.evaluation if _is_of(self.evaluation, digest) else None

    def before(self, epoch: int) -> EpochState:
        """Return the state without the results of this epoch and later ones."""
        return self.model_copy(update={"past": tuple(p for p in self.past if p.epoch < epoch)})

    def last(self, count: int) -> tuple[EpochRefs, ...]:
        """Return the last `count` epochs, oldest first."""
        return self.past[-count:] if count else ()


def initial_checkpoints(made: ArtifactRef) -> tuple[CheckpointRef, CheckpointRef]:
    """Return pi_agent and pi_env of bootstrap or of the warm start: policy version 0."""
    return _checkpoint(made, "agent", 0), _checkpoint(made, "env", 0)


def _checkpoint(ref: ArtifactRef, name: str, version: int) -> CheckpointRef:
    return CheckpointRef(
        artifact=ref, name=name, digest=ref.checkpoints[name], policy_version=version
    )


def _is_of(evaluation: ArtifactRef, digest: str) -> bool:
    """Return whether an evaluation measured the agent with this digest."""
    return evaluation.facts.get("agent_checkpoint") == digest


def _window(config: RunConfig) -> int:
    """Return the number of past epochs that any stage reads."""
    return max(
        config.generation.history_epochs,
        config.generation.prediction_epochs,
        config.mixture.max_policy_age,
        config.rwr.window_epochs - 1,
        1,
    )


def shared_draw(config: RunConfig, tasks: Sequence[ArtifactRef]) -> SharedDraw | None:
    """Return how several domains share old groups, whose tasks these are; None for one domain."""
    if config.domain.name != SEVERAL:
        return None
    weights = shares_of(get_domain(config.domain.name, config.domain.options)).weights
    return SharedDraw(list(weights), list(weights.values()), list(tasks))
