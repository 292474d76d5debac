"""How far each group of a GRPO update moves the agent towards the answers of other tasks.

The measure is the alignment of gradients at the weights that the update starts from (TracIn, Pruthi
et al., arXiv 2002.08484, eq. 1, with one checkpoint; LESS, Xia et al., arXiv 2402.04333, for
language models). With J the mean probability of the reference answers of validation tasks, and L_g
the part that group g has in the loss of one step over all groups,

    alignment of g = - grad J . grad L_g
                   = sum over its tokens of  c_t A r_t (grad J . grad log p_t)

It is the rise of J by a small step of plain gradient descent on g's part, divided by the learning
rate. A is the row's advantage and r_t the ratio to the policy that sampled the token; a token that
the loss clips counts 0. c_t is the normalisation of the loss: `dapo` and `bnpo` divide by the
tokens of the update, `grpo` by those of the row and the number of rows, `dr_grpo` by the number of
rows times the longest completion.

grad J . grad log p_t is the derivative of log p_t along grad J, so no group needs a gradient of its
own: one backward pass over the answers gives the direction, and a token's derivative is the
difference of its logprobs a short way along it, forwards and backwards. That takes two forward
passes over the rows and two over the answers, to find how short, and no memory beside the weights
for more than the direction.

It is a first-order measure at one point. What Adam makes of the gradients, later steps, and the KL
term, whose gradient is no group's, are not in it.
"""

# torch, transformers and peft come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from genenv_core.algorithm.advantages import group_advantages
from genenv_core.algorithm.stats import mean
from genenv_core.checks import finite
from genenv_core.config.sections.updates import GrpoConfig
from genenv_core.engines.transformers.loading import load_model
from genenv_core.errors import TrainingError
from genenv_core.training.grpo.batches import StoredRollouts
from genenv_core.training.grpo.taught import GroupInfluence, ScoredAnswer
from genenv_core.training.loop.rows import RowRoom
from genenv_core.training.loop.update import alone
from genenv_core.training.policies.completions import (
    completion_logits,
    in_order,
    laid_out,
    on_device,
)
from genenv_core.training.policies.weights import load_policy
from genenv_core.training.updates.grpo import GrpoRequest

CHANGE = 0.02
"""How far logprobs move between the two points of a difference, in nats: the root mean square over
the answers' tokens. It is short enough for a derivative, and long enough for float32: on agents of
the quickstart and on tiny models alignments are within .5 % of the exact product. With fifty times
the distance they were up to 50 % off, because single tokens move twenty times as far as others."""

TRIAL = 1e-5
"""The first shift to try, as a share of the length of the weights; from it the final shift
follows."""

Logprobs = list[list[float]]


def influence(request: GrpoRequest, answers: Sequence[ScoredAnswer]) -> list[GroupInfluence]:
    """Return the alignment of each group of an update with the answers, in the order of the rows.

    It computes in this process, in float32, before or after the update, and changes nothing. Raises
    TrainingError for unusable rows, for no answer, and where no answer has a gradient.
    """
    rollouts = StoredRollouts.read(request)
    if not answers:
        raise TrainingError("no reference answer of a validation task fits into an attempt")
    with alone(request):
        # A difference of logprobs would drown in the rounding of bfloat16.
        exact = request.training.model_copy(update={"precision": "float32"})
        policy = load_policy(request.checkpoint, exact)
        rollouts.check_room(RowRoom(policy.vocabulary))
        model = policy.model.eval().to(request.training.device)
        most, temperature = request.settings.micro_batch_rows, request.temperature
        return _aligned(model, rollouts, answers, request.settings, most, temperature)


def _aligned(
    model: Any,
    rollouts: StoredRollouts,
    answers: Sequence[ScoredAnswer],
    settings: GrpoConfig,
    most: int,
    temperature: float,
) -> list[GroupInfluence]:
    direction = answer_gradient(model, answers, most=most, temperature=temperature)
    length = math.hypot(*(float(part.norm()) for part in direction.values()))
    if not length:
        raise TrainingError(
            "the validation answers have no gradient: the agent gives each of them probability 0"
        )
    line = _WeightLine(model, {name: part / length for name, part in direction.items()})
    prompts, said = [list(a.prompt_ids) for a in answers], [list(a.token_ids) for a in answers]
    score = partial(token_logprobs, model, most=most, temperature=temperature)
    trial = TRIAL * line.length
    moved = line.around(trial, lambda: score(prompts, said))
    shift = trial * CHANGE / max(_rms(moved), 1e-12)
    ahead, behind = line.around(shift, lambda: score(rollouts.prompt_ids, rollouts.completion_ids))
    if settings.max_mismatch is not None:
        rollouts = rollouts.near(_between(ahead, behind), settings.max_mismatch)
    slopes = [
        [(a - b) * length / (2 * shift) for a, b in zip(*row, strict=True)]
        for row in zip(ahead, behind, strict=True)
    ]
    return alignments(rollouts, _between(ahead, behind), slopes, settings)


class _WeightLine:
    """A model's weights along a direction of length 1, whose parts are named like the weights."""

    def __init__(self, model: Any, direction: dict[str, torch.Tensor]) -> None:
        weights = {name: p for name, p in model.named_parameters() if name in direction}
        self._moves = [(weight, direction[name]) for name, weight in weights.items()]
        self.length = math.hypot(*(float(weight.detach().norm()) for weight in weights.values()))

    def around(self, shift: float, score: Callable[[], Logprobs]) -> tuple[Logprobs, Logprobs]:
        """Return the results of `score` with the weights a shift ahead of the start and behind."""
        self._move(shift)
        ahead = score()
        self._move(-2 * shift)
        behind = score()
        self._move(shift)
        return ahead, behind

    @torch.no_grad()
    def _move(self, by: float) -> None:
        for weight, direction in self._moves:
            weight.add_(direction, alpha=by)


def _rms(around: tuple[Logprobs, Logprobs]) -> float:
    """Return the root mean square of the differences between two scorings of the same tokens."""
    rows = zip(*around, strict=True)
    squares = [(a - b) ** 2 for row in rows for a, b in zip(*row, strict=True)]
    return math.sqrt(mean(squares))


def _between(ahead: list[list[float]], behind: list[list[float]]) -> list[list[float]]:
    """Return the logprobs at the start, up to terms of the second order."""
    rows = zip(ahead, behind, strict=True)
    return [[(a + b) / 2 for a, b in zip(*row, strict=True)] for row in rows]


def alignments(
    rollouts: StoredRollouts,
    logprobs: list[list[float]],
    slopes: list[list[float]],
    settings: GrpoConfig,
) -> list[GroupInfluence]:
    """Return the alignment of each group, from values of its tokens.

    Args:
        rollouts: rows of the update, whole groups adjacent.
        logprobs: of each row's tokens under the weights that the update starts from.
        slopes: derivative of each of them along the gradient of J, times its length.
        settings: clips, normalisation, and whether to scale advantages.
    """
    size, found = rollouts.group_size, list[GroupInfluence]()
    heads = rollouts.of_attempts(range(len(rollouts.rewards)))
    rows = sum(reward is not None for reward in rollouts.rewards)
    longest = max(map(len, rollouts.completion_ids))
    for index, group in enumerate(rollouts.groups):
        own = range(index * size, (index + 1) * size)
        judged = [row for row in own if rollouts.rewards[row] is not None]
        rewards = [reward for row in judged if (reward := rollouts.rewards[row]) is not None]
        scaled = group_advantages(rewards, scale=settings.scale_rewards == "group")
        by_attempt = dict(zip(judged, scaled, strict=True))
        members = [row for row in own if heads[row] in by_attempt]
        parts: list[float] = []
        for row in members:
            advantage = by_attempt[heads[row]]
            mask = rollouts.loss_mask[row]
            divisor = {
                "grpo": rows * max(sum(mask), 1),
                "dr_grpo": rows * longest,
            }.get(settings.loss_type, max(rollouts.tokens, 1))
            tokens = zip(mask, logprobs[row], rollouts.logprobs[row], slopes[row], strict=True)
            parts += [
                advantage * _ratio(now - then, advantage, settings) * slope / divisor
                for counts, now, then, slope in tokens
                if counts
            ]
        taken = sum(sum(rollouts.loss_mask[row]) for row in members)
        finite(parts, f"alignment of group {group}")
        found.append(GroupInfluence(group, math.fsum(parts), taken))
    return found


def _ratio(difference: float, advantage: float, settings: GrpoConfig) -> float:
    """Return the ratio of a token whose logprob is `difference` above the sampled one.

    It is 0 where the loss clips the ratio, so that it has no gradient.
    """
    ratio = math.exp(difference)
    if advantage > 0:
        return 0.0 if ratio > 1 + settings.clip_high else ratio
    bound = math.inf if settings.delta is None else settings.delta
    return ratio if 1 - settings.clip_low <= ratio <= bound else 0.0


def answer_gradient(
    model: Any, answers: Sequence[ScoredAnswer], *, most: int, temperature: float
) -> dict[str, torch.Tensor]:
    """Return the gradient of the answers' mean probability, by the name of a trained weight.

    It computes at most `most` rows at a time.
    """
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
    prompts = [list(one.prompt_ids) for one in answers]
    said = [list(one.token_ids) for one in answers]
    order = in_order(range(len(answers)), prompts, said, shared=False)
    for start in range(0, len(order), most):
        rows = order[start : start + most]
        logprobs = _logprobs(
            model, [prompts[r] for r in rows], [said[r] for r in rows], temperature
        )
        total = logprobs.new_zeros(())
        for row, own in zip(rows, logprobs.split([len(said[r]) for r in rows]), strict=True):
            mask = torch.tensor(answers[row].mask, device=own.device, dtype=own.dtype)
            total = total + (own * mask).sum().exp()
        (total / len(answers)).backward()
    found = {name: p.grad.detach().clone() for name, p in weights.items() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def probabilities(
    checkpoint: Path, answers: Sequence[ScoredAnswer], temperature: float, *, most: int = 128
) -> list[float]:
    """Return the probability of each answer under a checkpoint, on the CPU in float32."""
    model = load_model(checkpoint, dtype=torch.float32).eval()
    prompts = [list(one.prompt_ids) for one in answers]
    said = [list(one.token_ids) for one in answers]
    scored = token_logprobs(model, prompts, said, most=most, temperature=temperature)
    return [
        math.exp(math.fsum(p for p, counts in zip(row, one.mask, strict=True) if counts))
        for row, one in zip(scored, answers, strict=True)
    ]


@torch.no_grad()
def token_logprobs(
    model: Any,
    prompts: Sequence[list[int]],
    completions: Sequence[list[int]],
    *,
    most: int,
    temperature: float,
) -> list[list[float]]:
    """Return the logprob of each completion token, row by row; `most` rows at a time."""
    found: list[list[float]] = [[] for _ in completions]
    order = in_order(range(len(completions)), prompts, completions, shared=False)
    for start in range(0, len(order), most):
        rows = order[start : start + most]
        texts = [completions[row] for row in rows]
        logprobs = _logprobs(model, [prompts[row] for row in rows], texts, temperature)
        for row, own in zip(rows, logprobs.split(list(map(len, texts))), strict=True):
            found[row] = own.tolist()
    return found


def _logprobs(
    model: Any, prompts: list[list[int]], completions: list[list[int]], temperature: float
) -> torch.Tensor:
    """Return the logprobs of all completion tokens, row by row, shape (tokens,)."""
    device = next(model.parameters()).device
    batch = on_device(laid_out(prompts, completions, shared=False), device)
    logprobs = (completion_logits(model, batch) / temperature).log_softmax(-1)
    return logprobs.gather(1, batch["targets"].unsqueeze(1)).squeeze(1)
