"""Settings of tiny models in a run with a given one.

Invariants: each rate that is not below its default is named with the value of the preset for given
models, of whole weights or of adapters, and so is a domain that does not explain its rules; only
where a model is given for that policy; so is a warm start of adapters at a rate of whole weights;
no preset with given models has such a setting.
"""

from __future__ import annotations

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.meant_for_tiny import meant_for_tiny
from tests.mutations import mutation

TINY = "genenv_core/config/meant_for_tiny.py"
GIVEN = ("models.agent=./m", "models.env=./m")


def fields(*overrides: str, preset: str = "quickstart") -> list[str]:
    return [line.split(" ")[0] for line in meant_for_tiny(resolve(preset, overrides=overrides))]


@mutation(
    "a rate for tiny models is not named", TINY,
    "own.learning_rate < type", "own.learning_rate <= type",
)  # fmt: skip
def test_each_field_for_tiny_models_is_named_where_a_model_is_given() -> None:
    rates = ["grpo.learning_rate", "rwr.learning_rate"]
    assert fields() == []
    assert fields(*GIVEN) == [*rates, "domain.options.explain"]
    assert fields(GIVEN[0]) == [rates[0], "domain.options.explain"]
    assert fields(GIVEN[1], "domain.options.explain=true") == rates[1:]
    low = ("grpo.learning_rate=1e-6", "rwr.learning_rate=1e-5", "domain.options.explain=true")
    assert fields(*GIVEN, *low) == []
    parts = "domains=[{name: desk, options: {explain: true}}, {name: arithmetic}, {name: trails}]"
    assert fields(*GIVEN, *low[:2], parts) == ["domains[2].options.explain"]
    assert fields(parts) == []


def test_the_line_names_the_preset_for_such_models_and_its_value() -> None:
    whole, adapters = (
        meant_for_tiny(resolve("quickstart", overrides=[*GIVEN, f"training.lora.rank={rank}"]))[0]
        for rank in (0, 8)
    )
    assert "is 0.0001, which is for the tiny models" in whole
    assert whole.endswith("preset paper has 1e-06: --set grpo.learning_rate=1e-06")
    assert adapters.endswith("preset paper-small has 2e-05: --set grpo.learning_rate=2e-05")


@mutation(
    "adapters begin warm at a rate of whole weights, and nobody says so", TINY,
    "return [*lines, *_slow_adapters(config)]", "return lines",
)  # fmt: skip
def test_a_warm_start_of_adapters_at_a_rate_of_whole_weights_is_named() -> None:
    def lines(*overrides: str) -> list[str]:
        return meant_for_tiny(resolve("laptop", overrides=overrides))

    (line,) = lines("training.lora.rank=16")
    assert line.startswith("warm_start.learning_rate is 3e-05, which is for whole weights")
    assert line.endswith("--set warm_start.learning_rate=0.0003")
    assert lines() == lines("training.lora.rank=16", "warm_start.learning_rate=3e-4") == []
    assert lines("training.lora.rank=16", "warm_start.steps=0") == []


@pytest.mark.parametrize("preset", ["laptop", "paper", "paper-small", "paper-bfcl"])
def test_presets_with_given_models_have_no_such_setting(preset: str) -> None:
    assert fields(preset=preset) == []
