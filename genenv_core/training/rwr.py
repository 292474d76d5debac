"""One reward-weighted regression of pi_env; the loss is told in `rwr_trainer`."""

# transformers comes without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genenv_core.engines.adapters import has_adapter
from genenv_core.errors import TrainingError
from genenv_core.training.base import RwrRequest, UpdateResult
from genenv_core.training.checkpoints import CheckpointKeeper
from genenv_core.training.fitting import fitted
from genenv_core.training.generations import read_generations
from genenv_core.training.leash import Leash
from genenv_core.training.lora import same_base
from genenv_core.training.planned import train_quietly
from genenv_core.training.policies import frozen_dtype, load_model, load_policy
from genenv_core.training.rows import check_vocabulary
from genenv_core.training.rwr_trainer import WeightedRegressionTrainer
from genenv_core.training.session import device_memory, training_session, workspace


def run_rwr(request: RwrRequest, stop: Callable[[], bool]) -> UpdateResult:
    """Return pi_env after one reward-weighted regression, saved in `request.output`.

    `stop` is asked after each optimizer step; True ends the update with `Stopped`.

    Metrics: loss, nll (weighted) and grad_norm are of the last step that used them, before it;
    kl_env is of the weights saved; kl_cap_hits counts states above the cap, the start included.
    """
    rows = read_generations(request)
    request = fitted(request, device_memory(request.training))
    what = f"RWR update of pi_env from {request.checkpoint}"
    with (
        training_session(
            what,
            threads=request.threads,
            seed=request.seed,
            section="rwr",
            micro_batch_rows=request.settings.micro_batch_rows,
        ),
        workspace(request.output, request.checkpoint, request.initial) as work,
        CheckpointKeeper(request, [request.checkpoint, request.initial], what, stop) as keeper,
    ):
        policy = load_policy(request.checkpoint, request.training)
        size = policy.model.get_input_embeddings().num_embeddings
        reference = _reference(request, size)
        check_vocabulary("row_id", rows["row_id"], rows["prompt_ids"], rows["completion_ids"], size)
        trainer = WeightedRegressionTrainer(
            policy.model, policy.tokenizer, reference, rows, request, keeper.folder or work
        )
        leash = Leash(trainer, request.settings)
        trainer.leash = leash
        trainer.add_callback(leash)
        steps = train_quietly(trainer, keeper)
        leash.settle()
        policy.save(trainer.model, request.output, work)
    metrics = {
        "loss": trainer.loss,
        "nll": trainer.nll,
        "kl_env": leash.kl,
        "kl_cap_hits": float(leash.hits),
        "rolled_back": float(leash.rolled_back),
        "grad_norm": trainer.grad_norm,
        **policy.told,
    }
    return UpdateResult(
        steps=steps,
        checkpoint=request.output,
        metrics=metrics,
        action=leash.action,
        note=leash.note,
        resumed_at=keeper.resumed_at,
    )


def _reference(request: RwrRequest, size: int) -> Any:
    """Return pi_env^0; None where the policy is pi_env^0 with an adapter, that can be left out."""
    lora = request.training.lora
    if lora.rank and not has_adapter(request.initial):
        merging = lora.merge and has_adapter(request.checkpoint)
        if not merging and same_base(request.checkpoint, request.initial):
            return None
    reference = load_model(request.initial, dtype=frozen_dtype(request.training))
    if (other := reference.get_input_embeddings().num_embeddings) != size:
        raise TrainingError(
            f"pi_env has a vocabulary of {size} and its initial {request.initial} of {other}"
        )
    return reference
