"""Which head scores the rows of an update of pi_agent: the model's own, or TRL's tiled one.

The model's own needs the memory of all logits. TRL's takes rows that are padded on the left, which
moves the positions of some models (GPT-2) and is read by others (RWKV); and it takes a head for one
matrix, scaled and capped by the fields of a configuration that it knows.
"""

# torch has partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import logging
from typing import Any

import torch

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.training.memory.estimate import all_logits_fit
from genenv_core.training.policies.completions import completion_logprobs

log = logging.getLogger("genenv.training")

_TOKENS = ((0, 0, 0, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1, 0))
"""Which columns of two rows are tokens; the last `_COMPLETION` columns are completions."""
_COMPLETION = 3


def at_once(mask: Any, completion: int, vocabulary: int, training: TrainingConfig) -> bool:
    """Return whether padded rows of such a mask are scored without TRL's tiled head in any case.

    On a CPU it computes the logits of the prompts too: three times what a step of a small model
    with short answers takes otherwise. `completion` is the number of the mask's last columns that
    are scored.
    """
    if mask.device.type != "cpu":
        return False
    first, end = mask[:, :-completion].sum(1, keepdim=True), mask.sum(1, keepdim=True)
    position = torch.arange(mask.size(1))
    columns = int(((position >= first) & (position < end)).any(0).sum())
    return all_logits_fit(vocabulary, mask.size(1), columns, training.precision)


@torch.no_grad()
def tiles_agree(model: Any, vocabulary: int, temperature: float) -> bool:
    """Return whether TRL's head on a model gives the logprobs of its own logits, on two short rows.

    `model` has been through TRL's `add_fused_lm_head` with this temperature. Where the two differ,
    or TRL's fails, a line in the log says why.
    """
    weight = next(model.parameters())
    mask = torch.tensor(_TOKENS, device=weight.device)
    ids = (7 * torch.arange(mask.numel(), device=weight.device) + 2).view(mask.shape) % vocabulary
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-_COMPLETION] = -100
    scored = mask[:, -_COMPLETION:].bool()
    own, _ = completion_logprobs(model, ids, mask, _COMPLETION, temperature, shared=False)
    try:
        made = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
        apart = (own - made.log_probs[:, -_COMPLETION:])[scored].abs().max()
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
    else:
        share = float(apart / own[scored].std().clamp(min=0.1))
        # Far above rounding; a moved position or a lost part of a head changes a tenth and more.
        if share <= min(0.1, 1e4 * torch.finfo(weight.dtype).eps):
            return True
        why = f"its logprobs differ by {share:.2g} of their spread"
    log.info("logits=whole: TRL's tiled head cannot score this model: %s", why)
    return False
