"""The gap between the sampler's logprobs and the trainer's.

Invariants: the engine and a plain forward pass agree to rounding; an injected error is measured, at
the temperature of the sampling; observation tokens and rows without sampled tokens do not count;
NaN is an error.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.engines.transformers.gap import Sampled, logprob_gap
from genenv_core.engines.transformers.scoring import ScoringArithmetic
from genenv_core.errors import EngineError
from genenv_core.types import SamplingParams
from tests.mutations import mutation
from tests.unit.builders_engine import EOS_ID, random_prompts, requests_of, write_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def rows_of(checkpoint: Path, temperature: float = 1.0) -> list[Sampled]:
    prompts = [[token % 150 + 2 for token in p] for p in random_prompts(6, shortest=4, longest=20)]
    requests = requests_of(prompts)
    params = SamplingParams(12, temperature, stop_token_ids=(EOS_ID,))
    answers = TransformersEngine.load(checkpoint, threads=1).sample(requests, params)
    return [
        Sampled(r.prompt_ids, a.token_ids, a.logprobs, [1] * len(a.token_ids))
        for r, a in zip(requests, answers, strict=True)
    ]


def test_the_engine_and_a_forward_pass_agree(checkpoint: Path) -> None:
    for temperature in (1.0, 0.6):
        rows = rows_of(checkpoint, temperature)
        gap = logprob_gap(
            checkpoint, rows, temperature=temperature, arithmetic=ScoringArithmetic(1)
        )
        assert gap is not None
        assert gap.tokens == sum(len(row.token_ids) for row in rows)
        assert 0 <= gap.mean <= gap.largest < 1e-4
    # Logprobs of another temperature are another policy's.
    wrong = logprob_gap(checkpoint, rows, temperature=1.0, arithmetic=ScoringArithmetic(1))
    assert wrong is not None and wrong.mean > 0.1


def test_an_error_put_in_comes_out(checkpoint: Path) -> None:
    rows = rows_of(checkpoint)
    off = [replace(row, logprobs=[value - 0.25 for value in row.logprobs]) for row in rows]
    gap = logprob_gap(checkpoint, off, temperature=1.0, arithmetic=ScoringArithmetic(1))
    assert gap is not None
    assert gap.mean == pytest.approx(0.25, abs=1e-4) == gap.largest
    half = [*off[:3], *rows[3:]]
    tokens = [len(row.token_ids) for row in rows]
    gap = logprob_gap(checkpoint, half, temperature=1.0, arithmetic=ScoringArithmetic(1))
    assert gap is not None
    assert gap.mean == pytest.approx(0.25 * sum(tokens[:3]) / sum(tokens), abs=1e-4)


@mutation(
    "the trainer's logprobs of an observation are kept", "genenv_core/engines/transformers/gap.py",
    "    return torch.where(mask, made, 0.0)\n", "    return made\n",
)  # fmt: skip
def test_only_sampled_tokens_count(checkpoint: Path) -> None:
    row = rows_of(checkpoint)[0]
    observed = Sampled(
        row.prompt_ids,
        [*row.token_ids, 5, 6],
        [*row.logprobs, 0.0, 0.0],
        [*row.mask, 0, 0],
    )
    alone = logprob_gap(checkpoint, [row], temperature=1.0, arithmetic=ScoringArithmetic(1))
    both = logprob_gap(
        checkpoint,
        [observed, Sampled((3,), (), (), ())],
        temperature=1.0,
        arithmetic=ScoringArithmetic(1),
    )
    assert alone is not None and both is not None
    assert both.tokens == alone.tokens and both.largest < 1e-4
    assert both.trainer[0] is not None and both.trainer[1] is None
    assert both.trainer[0][-2:] == [0.0, 0.0]
    assert both.trainer[0][:-2] == pytest.approx(list(row.logprobs), abs=1e-4)
    empty = [Sampled((3,), (5,), (0.0,), (0,))]
    assert logprob_gap(checkpoint, empty, temperature=1.0, arithmetic=ScoringArithmetic(1)) is None
    assert logprob_gap(checkpoint, [], temperature=1.0, arithmetic=ScoringArithmetic(1)) is None


def test_what_is_no_number_is_an_error(checkpoint: Path) -> None:
    rows = rows_of(checkpoint)
    broken = [replace(row, logprobs=[float("nan")] * len(row.logprobs)) for row in rows]
    with pytest.raises(EngineError, match="NaN or infinite"):
        logprob_gap(checkpoint, broken, temperature=1.0, arithmetic=ScoringArithmetic(1))
