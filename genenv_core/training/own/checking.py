"""Tries a loss of one's own on a few numbers before genenv trains with it.

A loss that depends on which rows lie in one micro-batch would give another result on a machine with
less memory, and with other processes.
"""

# torch has partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import torch

from genenv_core.errors import GenenvError, TrainingError, described
from genenv_core.training.updates.algorithm import (
    FIELD,
    AgentAlgorithm,
    RolloutBatch,
    advantages_of,
)

REWARDS = ((1.0, 0.0, 0.25), (0.0, 1.0, 1.0))
"""Rewards of the groups on which to try a loss."""
TOKENS = 4


def losses_of(name: str, algorithm: AgentAlgorithm, batch: RolloutBatch) -> Any:
    """Return the loss of each token of a batch, (B, T); TrainingError for any other result."""
    try:
        losses: Any = algorithm.losses(batch)
    except GenenvError:
        raise
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise TrainingError(f"{FIELD} {name!r}: losses failed with {described(error)}") from error
    shape = tuple(batch.logprobs.shape)
    found = tuple(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
    if found != shape:
        raise TrainingError(
            f"{FIELD} {name!r}: losses returned {found} for rows and tokens {shape}: return the "
            "loss of each token; genenv takes the mean"
        )
    return losses


def check_losses(name: str, algorithm: AgentAlgorithm) -> None:
    """Raise TrainingError for a loss without a gradient, or one that depends on chance.

    It computes the rows together twice, and then one by one. All three results must be equal.
    """
    batch = _batch(name, algorithm)
    losses = losses_of(name, algorithm, batch)
    if not losses.requires_grad:
        raise TrainingError(
            f"{FIELD} {name!r}: losses has no gradient: make it of batch.logprobs, without detach"
        )
    counted = batch.mask.bool()
    if not losses[counted].isfinite().all():
        raise TrainingError(f"{FIELD} {name!r}: losses returned a number that is not finite")
    again = losses_of(name, algorithm, batch)
    if not torch.equal(losses[counted], again[counted]):
        raise TrainingError(
            f"{FIELD} {name!r}: losses gave two results for one batch: keep no state in it, and "
            "draw no random numbers"
        )
    alone = torch.cat([losses_of(name, algorithm, _row(batch, row)) for row in range(len(losses))])
    if not torch.allclose(losses[counted], alone[counted], rtol=1e-4, atol=1e-6):
        raise TrainingError(
            f"{FIELD} {name!r}: a row has another loss beside other rows, and memory decides which "
            "lie together: compute it from its own row, and what needs all rows in advantages"
        )


def _batch(name: str, algorithm: AgentAlgorithm) -> RolloutBatch:
    """Return rows of two groups, with different logprobs, masks and lengths."""
    advantages = [one for group in advantages_of(name, algorithm, REWARDS) for one in group]
    rewards = [reward for group in REWARDS for reward in group]
    rows = len(rewards)
    steps = torch.arange(rows * TOKENS, dtype=torch.float32).reshape(rows, TOKENS)
    old = -0.1 - 0.05 * steps.remainder(7)
    mask = torch.ones(rows, TOKENS)
    mask[0, 1], mask[1, 2:], mask[5, 3] = 0, 0, 0
    return RolloutBatch(
        logprobs=(old - 0.01 * steps.remainder(5)).requires_grad_(),
        old_logprobs=old,
        advantages=torch.tensor(advantages),
        rewards=torch.tensor(rewards),
        mask=mask,
        groups=tuple(f"group {g}" for g, group in enumerate(REWARDS) for _ in group),
    )


def _row(batch: RolloutBatch, row: int) -> RolloutBatch:
    one = slice(row, row + 1)
    return RolloutBatch(
        batch.logprobs[one],
        batch.old_logprobs[one],
        batch.advantages[one],
        batch.rewards[one],
        batch.mask[one],
        batch.groups[one],
    )
