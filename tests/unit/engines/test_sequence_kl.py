"""The KL of one checkpoint to another along given generations.

Invariants: it is the brute-force sum over tokens and vocabulary, of this direction; a checkpoint is
at 0 from itself; along its own generations the mean is the mean of log pi - log pi0 of the sampled
tokens, within the error of both; a checkpoint that makes no numbers is an error.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.engines.transformers.kl import sequence_kl
from genenv_core.engines.transformers.loading import load_model
from genenv_core.engines.transformers.scoring import ScoringArithmetic
from genenv_core.errors import EngineError
from genenv_core.types import SamplingParams
from tests.mutations import mutation
from tests.unit.builders_engine import EOS_ID, requests_of, write_checkpoint

PROMPTS = [[3, 4, 5], [6, 7]]
ROWS = [((3, 4, 5), (9, 10, 1)), ((6, 7), (11,))]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def near(ours: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint that is some nats a sequence away."""
    path = write_checkpoint(tmp_path_factory.mktemp("near"))
    model, generator = load_model(path, dtype=torch.float32), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(path)
    return path


def by_hand(ours: Path, theirs: Path, row: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
    prompt, tokens = row
    models = [load_model(path, dtype=torch.float64) for path in (ours, theirs)]
    total = 0.0
    for index in range(len(tokens)):
        ids = torch.tensor([[*prompt, *tokens[:index]]])
        with torch.no_grad():
            p, q = (model(ids).logits[0, -1].softmax(-1) for model in models)
        total += float((p * (p / q).log()).sum())
    return total


@mutation(
    "the KL is that of the first pi_env to the new one", "genenv_core/engines/transformers/kl.py",
    "kl_terms(ours, theirs)", "kl_terms(theirs, ours)",
)  # fmt: skip
def test_it_is_the_brute_force_sum(ours: Path, near: Path) -> None:
    found = sequence_kl(ours, near, ROWS, arithmetic=ScoringArithmetic(1))
    assert found == pytest.approx([by_hand(ours, near, row) for row in ROWS], rel=1e-4)
    back = sequence_kl(near, ours, ROWS, arithmetic=ScoringArithmetic(1))
    assert back == pytest.approx([by_hand(near, ours, row) for row in ROWS], rel=1e-4)
    assert min(found) > 0.01 and abs(found[0] - back[0]) > 1e-3 * found[0]


def test_a_checkpoint_is_nowhere_from_itself(ours: Path) -> None:
    assert sequence_kl(ours, ours, ROWS, arithmetic=ScoringArithmetic(1)) == [0.0, 0.0]


@pytest.mark.slow
def test_along_its_own_generations_it_is_the_mean_of_the_log_ratios(ours: Path, near: Path) -> None:
    """Both estimate one number; this one with the smaller error."""
    params = SamplingParams(12, stop_token_ids=(EOS_ID,))
    requests = requests_of(PROMPTS * 150)
    answers = TransformersEngine.load(ours, threads=1).sample(requests, params)
    rows = [(r.prompt_ids, a.token_ids) for r, a in zip(requests, answers, strict=True)]
    exact = np.array(sequence_kl(ours, near, rows, arithmetic=ScoringArithmetic(1)))
    reference = load_model(near, dtype=torch.float32)
    ratios: list[float] = []
    for (prompt, tokens), answer in zip(rows, answers, strict=True):
        with torch.no_grad():
            logits = reference(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
        theirs = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).sum()
        ratios.append(sum(answer.logprobs) - float(theirs))
    drawn = np.array(ratios)
    error = math.hypot(exact.std(), drawn.std()) / math.sqrt(len(rows))
    assert exact.mean() == pytest.approx(drawn.mean(), abs=4 * error)
    assert exact.std() < drawn.std()


def test_what_is_no_number_is_an_error(ours: Path, tmp_path: Path) -> None:
    model = load_model(write_checkpoint(tmp_path), dtype=torch.float32)
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    model.save_pretrained(tmp_path)
    with pytest.raises(EngineError, match="NaN or infinite"):
        sequence_kl(tmp_path, ours, ROWS, arithmetic=ScoringArithmetic(1))
