"""Finding 5 (GenEnv, arXiv 2512.19682, proposition 1): which tasks move the agent the most."""

# torch and transformers have partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from genenv_core.algorithm.advantages import group_advantages
from genenv_core.algorithm.paired import interval, unpaired
from genenv_core.algorithm.stats import mean
from genenv_core.compare.charts import Spot
from genenv_core.errors import ConfigError
from genenv_core.evidence.finding import Finding, all_hold, line_chart
from genenv_core.storage import paths
from genenv_core.storage.sql.catalog import query

MIDDLE = (0.375, 0.625)
"""Rates between which the largest gradient should lie: 3 to 5 of 8."""

ROWS = """
SELECT t.epoch, t.group_id, s.reward, s.success, c.digest,
    k.prompt_ids, k.token_ids, k.loss_mask
FROM traces AS t
JOIN trace_tokens AS k USING (run_id, trace_id)
JOIN scores AS s USING (run_id, trace_id)
JOIN tasks AS w ON w.run_id = t.run_id AND w.task_id = t.task_id AND w.source = 'generated'
JOIN checkpoints AS c ON c.run_id = t.run_id AND c.policy = 'agent' AND c.epoch = t.policy_version
WHERE t.error = '' AND t.epoch <= {epochs}
ORDER BY t.epoch, t.group_id, t.sample_index
"""


def check_single(connection: duckdb.DuckDBPyConnection) -> None:
    """Raise ConfigError where attempts have several sequences: `norms` reads the first alone."""
    if query(connection, "SELECT 1 FROM trace_sequences LIMIT 1").height:
        raise ConfigError(
            "attempts of this run have several sequences (table trace_sequences), and this reads "
            "the first alone: name a run whose domain never begins the conversation anew"
        )


Norms = dict[float, list[tuple[float, float]]]
"""Success rate of a group -> its gradient's norms: as trained, and with plain differences."""


def norms(connection: duckdb.DuckDBPyConnection, home: Path, epochs: int) -> Norms:
    """Return the norm of each group's GRPO gradient at the weights that sampled it, of one run.

    `connection` is over the tables of the run. `home` is the folder of its root, which holds the
    checkpoints. Groups of epochs 1 to `epochs` count. Raises ModelError where a checkpoint is
    missing, and ConfigError where attempts have several sequences.
    """
    check_single(connection)
    import torch

    from genenv_core.engines.transformers.loading import load_model

    rows = query(connection, ROWS.format(epochs=epochs)).to_dicts()
    groups = _groups(rows)
    whole = max(map(len, groups), default=0)  # a group that lost an attempt has other rates
    found: Norms = {}
    model: Any = None
    loaded = ""
    for group in groups:
        if len(group) < whole:
            continue
        if group[0]["digest"] != loaded:
            loaded = group[0]["digest"]
            model = load_model(home / paths.checkpoint(loaded), dtype=torch.float32)
        rate = mean([float(row["success"]) for row in group])
        rewards = [row["reward"] for row in group]
        trained, plain = (
            group_norm(model, group, group_advantages(rewards, scale=scale))
            for scale in (True, False)
        )
        found.setdefault(rate, []).append((trained, plain))
    return found


def _groups(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["epoch"], row["group_id"]), []).append(row)
    return list(groups.values())


def group_norm(model: Any, group: Sequence[dict[str, Any]], advantages: Sequence[float]) -> float:
    """Return the norm of the gradient of -sum(A logp) / tokens: GRPO's loss where ratios are 1.

    `group` are the traces of one group, `advantages` as many; `tokens` counts those where the loss
    mask is 1. `logits` are (n, T - 1, vocabulary).
    """
    import torch

    if not any(advantages):
        return 0.0
    longest = max(len(row["prompt_ids"]) + len(row["token_ids"]) for row in group)
    ids = torch.zeros(len(group), longest, dtype=torch.long)
    mask, weight = torch.zeros_like(ids), torch.zeros(len(group), longest)
    for index, (row, advantage) in enumerate(zip(group, advantages, strict=True)):
        whole = [*row["prompt_ids"], *row["token_ids"]]
        ids[index, : len(whole)] = torch.tensor(whole)
        mask[index, : len(whole)] = 1
        start = len(row["prompt_ids"])
        weight[index, start : len(whole)] = advantage * torch.tensor(row["loss_mask"]).float()
    tokens = sum(sum(row["loss_mask"]) for row in group)
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].log_softmax(-1)
    logps = logits.gather(-1, ids[:, 1:, None])[..., 0]
    loss = -(weight[:, 1:] * logps).sum() / tokens
    gradients = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
    return float(torch.stack([one.norm() for one in gradients]).norm())


def proposition_1(found: Mapping[str, Norms]) -> Finding:
    """Return finding 5 from the norms on each domain, at three success rates at least.

    The paper's claim is about plain differences of rewards, so these decide. It holds where the
    largest mean norm is in the middle, and groups there have a larger one than groups with one
    success or one failure.
    """
    rows: list[list[str]] = []
    holds: list[bool | None] = []
    words: list[str] = []
    lines: dict[str, list[list[Spot]]] = {}
    for domain, by_rate in found.items():
        rates = sorted(by_rate)
        for rate in rates:
            intervals = (_interval_text([one[place] for one in by_rate[rate]]) for place in (0, 1))
            rows.append([domain, f"{rate:.3f}", str(len(by_rate[rate])), *intervals])
        means = [{r: mean([one[place] for one in by_rate[r]]) for r in rates} for place in (0, 1)]
        trained, plain = (max(one, key=lambda rate, one=one: one[rate]) for one in means)
        inside = [one[1] for rate in rates if _middle(rate) for one in by_rate[rate]]
        ends = [one[1] for rate in (rates[1], rates[-2]) for one in by_rate[rate]]
        gap, low, high = unpaired(inside, ends)
        holds.append(_middle(plain) and low > 0)
        words.append(
            f"{domain}: largest at {plain:g}, in the middle {gap:+.2f} [{low:+.2f}, {high:+.2f}] "
            f"above the ends (as trained, advantages by their standard deviation: {trained:g})"
        )
        for one, name in zip(means, ("as trained", "plain differences"), strict=True):
            top = max(one.values())
            lines[f"{domain}, {name}"] = [[(rate, one[rate] / top) for rate in rates]]
    return Finding(
        5,
        "Half-solved tasks move the agent most (proposition 1)",
        "The norm of the GRPO gradient is largest for tasks that the agent solves half the time.",
        all_hold(holds),
        f"Mean norm with plain differences of rewards. {'; '.join(words)}.",
        ["domain", "success rate", "groups", "norm, as trained [95 %]",
         "norm, plain differences [95 %]"],
        rows,
        [line_chart("Gradient norm by success rate", "Mean over groups, as a share of the largest. "
                    "As trained, GRPO divides advantages by their standard deviation.",
                    "success rate", lines)],
    )  # fmt: skip


def _middle(rate: float) -> bool:
    return MIDDLE[0] <= rate <= MIDDLE[1]


def _interval_text(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}"
    middle, low, high = interval(values)
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"
