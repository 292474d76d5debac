"""Rows of a prompt and its completion as tensors, and the logits that predict the completions.

Rows are laid out in one of two ways. Padded, each row is computed whole. Shared
(`training.rows`), each beginning that several rows have in common is computed once: the
rows of a micro-batch are one sequence of the nodes of their prefix tree, in which a token attends
to the tokens on its own path alone and has the position that it has in its row. Both give the same
logits but for rounding, so losses and gradients are the same functions of the weights.
"""

# torch has partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from genenv_core.engines.prefixes import common_tokens

Rows = Sequence[list[int]]


def laid_out(prompts: Rows, completions: Rows, *, shared: bool) -> dict[str, Any]:
    """Return rows as tensors: `inputs` of the model, and what finds the right logits in its output.

    `targets` (tokens,) are the ids of all completions, row by row, and `lengths` (rows,) their
    numbers. `chosen` finds the logits that predict each target: the model's output for padded rows
    has the shape (rows, columns, V) and `chosen` is a mask (rows, columns); for shared ones the
    output has the shape (1, nodes, V) and `chosen` holds indices of nodes (tokens,).
    """
    layout = _tree(prompts, completions) if shared else _padded(prompts, completions)
    targets = [token for completion in completions for token in completion]
    lengths = torch.tensor([len(completion) for completion in completions])
    return layout | {"targets": torch.tensor(targets), "lengths": lengths}


def in_order(rows: Sequence[int], prompts: Rows, completions: Rows, *, shared: bool) -> list[int]:
    """Return indices of rows, in the order with the cheapest micro-batches.

    Rows of about the same length need little padding; rows with a common beginning share it.
    """
    if shared:
        return sorted(rows, key=lambda row: (prompts[row], completions[row], row))
    return sorted(rows, key=lambda row: (len(prompts[row]) + len(completions[row]), row))


def completion_logits(model: Any, batch: dict[str, Any]) -> Any:
    """Return the logits at each completion position of such rows, shape (tokens, V), float32."""
    inputs, chosen = dict(batch["inputs"]), batch["chosen"]
    shared = "ends" in inputs
    if shared:
        inputs["attention_mask"] = _paths(inputs.pop("ends"))
    logits = model(**inputs, **_alone(model), use_cache=False).logits
    return (logits[0, chosen] if shared else logits[chosen]).float()


def _alone(model: Any) -> dict[str, bool]:
    """Return what keeps a model from making more than logits, where its configuration asks for it.

    A loss that balances experts takes no mask of shared rows.
    """
    known = next(one for one in model.modules() if isinstance(one, PreTrainedModel))
    asked = getattr(known.config.get_text_config(), "output_router_logits", False)
    return {"output_router_logits": False} if asked else {}


def completion_logprobs(
    model: Any, ids: Any, mask: Any, completion: int, temperature: float, *, shared: bool
) -> tuple[Any, Any]:
    """Return logprobs and entropies of the last `completion` columns of rows.

    `ids` and `mask` have the shape (rows, columns): prompts padded on the left, completions on the
    right; the model gets the rows as `laid_out` lays them. Both results have the shape (rows,
    completion), with 0 where the mask is 0. Entropies have no gradient.
    """
    split = ids.size(1) - completion
    scored = mask[:, split:].bool()
    rows = list(zip(ids.cpu(), mask.cpu().bool(), strict=True))
    prompts = [row[:split][real[:split]].tolist() for row, real in rows]
    completions = [row[split:][real[split:]].tolist() for row, real in rows]
    batch = on_device(laid_out(prompts, completions, shared=shared), ids.device)
    logprobs = (completion_logits(model, batch) / temperature).log_softmax(-1)
    found = logprobs.gather(1, batch["targets"].unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        entropies = -(logprobs.exp() * logprobs).sum(-1)
    empty = found.new_zeros(scored.shape)
    return empty.masked_scatter(scored, found), empty.masked_scatter(scored, entropies)


def on_device(batch: dict[str, Any], device: Any) -> dict[str, Any]:
    """Return a batch with its tensors on a device."""
    return {
        name: on_device(value, device)
        if isinstance(value, dict)
        else value.to(device)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in batch.items()
    }


def _padded(prompts: Rows, completions: Rows) -> dict[str, Any]:
    """Return right-padded rows: what stands behind a row moves nothing in a causal model.

    Padding in front moves the positions of some (GPT-2), and others read it (RWKV, DeepSeek-V4).
    """
    lengths = torch.tensor([[len(p), len(c)] for p, c in zip(prompts, completions, strict=True)])
    width = int(lengths.sum(1).max())
    position = torch.arange(width)
    input_ids = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        input_ids[row, : len(prompt) + len(completion)] = torch.tensor(prompt + completion)
    first, end = lengths[:, :1], lengths.sum(1, keepdim=True)
    predicting = (position >= first - 1) & (position < end - 1)
    keep = predicting.any(0).nonzero().squeeze(1)  # columns with a logit that a row needs
    inputs = {
        "input_ids": input_ids,
        "attention_mask": (position < end).long(),
        "logits_to_keep": keep,
    }
    return {"inputs": inputs, "chosen": predicting[:, keep]}


def _tree(prompts: Rows, completions: Rows) -> dict[str, Any]:
    """Return the prefix tree of rows without their last tokens, which predict nothing.

    Nodes are in preorder, so `ends` (1, nodes) describes all paths: the nodes below a node are
    those behind it and before its end.
    """
    rows = [[*p, *c[:-1]] for p, c in zip(prompts, completions, strict=True)]
    ids: list[int] = []
    positions: list[int] = []
    ends: list[int] = []
    paths: dict[int, list[int]] = {}
    before: list[int] = []
    path: list[int] = []
    # Sorted, a row shares with the row before it all that it shares with any before.
    for row in sorted(range(len(rows)), key=rows.__getitem__):
        common = common_tokens([before, rows[row]])
        before = rows[row]
        path = [*path[:common], *range(len(ids), len(ids) + len(before) - common)]
        paths[row] = path
        ids += before[common:]
        positions += range(common, len(before))
        ends += [0] * (len(before) - common)
        for node in path:
            ends[node] = len(ids)
    predicting = [
        node for row, prompt in enumerate(prompts) for node in paths[row][len(prompt) - 1 :]
    ]
    keep, chosen = torch.unique(torch.tensor(predicting), return_inverse=True)
    inputs = {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.tensor([positions]),
        "ends": torch.tensor([ends]),
        "logits_to_keep": keep,
    }
    return {"inputs": inputs, "chosen": chosen}


def _paths(ends: Any) -> Any:
    """Return the additive mask (1, 1, nodes, nodes) that shows each node its own path alone.

    The mask has numbers of the type that attention computes in, so that all layers share it. Each
    layer would convert a mask of booleans, and store its own copy.
    """
    half = torch.is_autocast_enabled(ends.device.type)
    dtype = torch.get_autocast_dtype(ends.device.type) if half else torch.float32
    node = torch.arange(ends.size(1), device=ends.device)
    seen = (node <= node[:, None]) & (node[:, None] < ends)
    mask = torch.zeros(seen.shape, dtype=dtype, device=ends.device)
    return mask.masked_fill(~seen, float("-inf"))[None, None]
