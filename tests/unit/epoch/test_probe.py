"""The KL of a new pi_env on fresh generations.

Invariants: the probe asks the epoch's prompts, evenly spread, each with a seed of its own and under
its own grammar; what failed does not count, and fewer than two generations are an error; mean and
standard error are those by hand; on known distributions the estimate is the KL by hand, and its
standard error is the spread that repeated estimates have.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from genenv_core.epoch.probe import fresh_generations, kl_metrics
from genenv_core.errors import EngineError
from genenv_core.types import Completion, FinishReason, SampleRequest, SamplingParams
from tests.mutations import mutation

PROBE = "genenv_core/epoch/probe.py"

PARAMS = SamplingParams(8, 0.5, 0.75, (1,))
GENERATIONS = pl.DataFrame(
    {
        "prompt_ids": [[1], [2, 3], [4], [5]],
        "grammar": [None, '{"kind":"regex","text":"a+"}', None, None],
    },
    schema_overrides={"grammar": pl.String},
)


class Engine:
    """Answers with the prompt's last token, and fails for some requests."""

    def __init__(self, failing: set[int]) -> None:
        self.failing = failing
        self.asked: list[SampleRequest] = []
        self.params: Any = None

    def sample(self, requests: Any, params: SamplingParams) -> list[Completion]:
        self.asked, self.params = list(requests), params
        good = Completion((9,), (-0.5,), FinishReason.LENGTH)
        bad = Completion((8,), (-0.5,), FinishReason.ERROR, "lost")
        return [bad if place in self.failing else good for place in range(len(requests))]

    def close(self) -> None: ...


def fresh(count: int, *failing: int) -> tuple[Engine, list[Any]]:
    engine = Engine(set(failing))
    seed_for = lambda name, index: {"probe": 100}[name] + index  # noqa: E731
    return engine, fresh_generations(engine, GENERATIONS, PARAMS, count=count, seed_for=seed_for)


@mutation(
    "the probe's generations have one seed", PROBE,
    'seed_for("probe", index)', 'seed_for("probe", 0)',
)  # fmt: skip
@mutation(
    "the probe writes without its grammar", PROBE,
    "Grammar(**json.loads(given)) if given else None", "None",
)  # fmt: skip
def test_the_probe_answers_the_epochs_prompts_again() -> None:
    engine, made = fresh(2)
    assert [request.prompt_ids for request in engine.asked] == [(1,), (4,)]
    engine, made = fresh(8)
    prompts = [(1,), (1,), (2, 3), (2, 3), (4,), (4,), (5,), (5,)]
    assert [request.prompt_ids for request in engine.asked] == prompts
    assert [request.seed for request in engine.asked] == list(range(100, 108))
    texts = [request.grammar.text if request.grammar else None for request in engine.asked]
    assert texts == [None, None, "a+", "a+", None, None, None, None]
    assert engine.params == PARAMS
    assert made == [(prompt, (9,)) for prompt in prompts]


@mutation(
    "the probe counts what failed", PROBE,
    "        if done.finish_reason is not FinishReason.ERROR\n", "",
)  # fmt: skip
def test_what_failed_does_not_count() -> None:
    _, made = fresh(4, 1)
    assert [prompt for prompt, _ in made] == [(1,), (4,), (5,)]
    with pytest.raises(EngineError, match=r"3 of 4 generations .* failed, .* with: lost"):
        fresh(4, 0, 1, 3)


@mutation(
    "the error of the KL is its deviation", PROBE,
    "sample_std(values) / math.sqrt(len(values))", "sample_std(values)",
)  # fmt: skip
def test_mean_and_standard_error_by_hand() -> None:
    # Deviations -1.5, -0.5, 0.5, 1.5: their squares sum to 5, over 3; and the root of 4.
    found = kl_metrics([1.0, 2.0, 3.0, 4.0])
    assert found == {"kl_env": 2.5, "kl_env_se": pytest.approx(math.sqrt(5 / 3) / 2)}


def test_on_known_distributions_the_estimate_is_the_kl_and_its_error_the_spread() -> None:
    """A generation is tokens of a coin until tails: by hand, the KL is that of a coin by length."""
    heads, other = 0.75, 0.5
    coin = heads * math.log(heads / other) + (1 - heads) * math.log((1 - heads) / (1 - other))
    truth = coin / (1 - heads)
    assert truth == pytest.approx(4 * (0.75 * math.log(1.5) - 0.25 * math.log(2)))
    rng = np.random.default_rng(0)
    found = [kl_metrics((coin * rng.geometric(1 - heads, 64)).tolist()) for _ in range(400)]
    means = np.array([one["kl_env"] for one in found])
    errors = np.array([one["kl_env_se"] for one in found])
    assert means.mean() == pytest.approx(truth, abs=4 * means.std() / 20)
    # By hand: the length of a generation has variance heads / (1 - heads)^2 = 12.
    assert means.std() == pytest.approx(coin * math.sqrt(12 / 64), rel=0.1)
    assert errors.mean() == pytest.approx(means.std(), rel=0.1)
