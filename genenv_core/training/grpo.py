"""One GRPO update of pi_agent on stored rollouts; the loss is told in `grpo_trainer`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from genenv_core.engines.adapters import has_adapter
from genenv_core.errors import TrainingError
from genenv_core.training.base import GrpoRequest, UpdateResult
from genenv_core.training.checkpoints import CheckpointKeeper
from genenv_core.training.fitting import fitted
from genenv_core.training.grpo_trainer import StoredRolloutTrainer
from genenv_core.training.planned import train_quietly
from genenv_core.training.policies import load_policy
from genenv_core.training.rollouts import StoredRollouts
from genenv_core.training.session import device_memory, training_session, workspace


def run_grpo(request: GrpoRequest, stop: Callable[[], bool]) -> UpdateResult:
    """Return the agent after one GRPO update on `request.rows`, saved in `request.output`.

    `stop` is asked after each optimizer step; True ends the update with `Stopped`.

    Metrics: loss, kl and grad_norm are the last optimizer step's; entropy, ratio_mean, ratio_max
    and clip_fraction are over all sampled tokens of the update; reward_mean and reward_std over
    its rows.
    """
    rollouts = StoredRollouts.read(request)
    request = fitted(request, device_memory(request.training))
    settings = request.settings
    what = f"GRPO update of pi_agent from {request.checkpoint}"
    with (
        training_session(
            what,
            threads=request.threads,
            seed=request.seed,
            section="grpo",
            micro_batch_rows=settings.micro_batch_rows,
        ),
        workspace(request.output, request.checkpoint) as work,
        CheckpointKeeper(request, [request.checkpoint], what, stop) as keeper,
    ):
        if settings.kl_coef and not request.training.lora.rank and has_adapter(request.checkpoint):
            raise TrainingError(
                f"{request.checkpoint} has an adapter, so TRL cannot load it as the reference of "
                "grpo.kl_coef: set that to 0, or train adapters (training.lora.rank)"
            )
        policy = load_policy(request.checkpoint, request.training)
        rollouts.check_vocabulary(policy.model.get_input_embeddings().num_embeddings)
        home = keeper.folder or work
        trainer = StoredRolloutTrainer(policy.model, policy.tokenizer, rollouts, request, home)
        steps = train_quietly(trainer, keeper)
        trainer.check_visits()
        policy.save(trainer.model, request.output, work)
        metrics = trainer.seen.metrics() | {
            "grad_norm": trainer.grad_norm,
            "reward_mean": float(np.mean(rollouts.rewards)),
            "reward_std": float(np.std(rollouts.rewards)),
            **policy.told,
        }
    return UpdateResult(
        steps=steps,
        checkpoint=request.output,
        metrics=metrics,
        action="updated",
        resumed_at=keeper.resumed_at,
    )
