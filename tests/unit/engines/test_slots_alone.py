"""Rows that join and leave a running batch, on models of several widths.

Invariant: no bit of a row's logits depends on the rows beside it, when it joins and at every step.
Processors sum products of few rows in another order, and how few that is depends on the width.
"""

# transformers has partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from genenv_core.engines.transformers.slots import Slots

STEPS = 3
BESIDE = ([0], [5, 6], [1, 2, 3], list(range(7, 12)), list(range(20, 33)), list(range(39, 20, -1)))


@pytest.mark.parametrize(
    ("width", "inner"), [(64, 160), (96, 224), pytest.param(512, 1024, marks=pytest.mark.slow)]
)
def test_no_bit_of_a_row_depends_on_the_rows_beside_it(width: int, inner: int) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=300, hidden_size=width, intermediate_size=inner, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=128,
        )  # fmt: skip
        model = LlamaForCausalLM(config).eval()
        rng = np.random.default_rng(0)
        prompts = [[int(one) for one in rng.integers(1, 300, n)] for n in rng.integers(3, 60, 40)]

        def logits(rows: Sequence[int]) -> dict[int, torch.Tensor]:
            slots = Slots(model, 64)
            found = [slots.join([prompts[row] for row in rows], [None] * len(rows))]
            for step in range(STEPS):
                found.append(slots.step(torch.tensor([(7 * row + step) % 299 for row in rows])))
            return {
                row: torch.stack([one[place] for one in found]) for place, row in enumerate(rows)
            }

        with torch.inference_mode():
            together = logits(range(40))
            for rows in BESIDE:
                for row, alone in logits(rows).items():
                    assert torch.equal(alone, together[row]), (row, rows)
    finally:
        torch.set_num_threads(threads)
