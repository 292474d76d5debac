"""From what a person asks to measure to the configuration of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from genenv_core.benchmarks.registry import get_benchmark
from genenv_core.config.arms import Arm
from genenv_core.config.load import overridden, run_name, stem
from genenv_core.config.schema import RunConfig


def measurement(
    name: str,
    model: Mapping[str, Any],
    *,
    options: Mapping[str, Any],
    samples: int = 1,
    overrides: Iterable[str] = (),
    fields: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Return the configuration, which has no run id unless `fields` give one; raises ConfigError.

    Args:
        name: of the benchmark.
        model: fields of the section `benchmark`; None is not given.
        options: of the benchmark as a domain; None is not given.
        samples: attempts at each item.
        overrides: `a.b=value` texts, which win over the benchmark's own limits.
        fields: top-level values, as `resolve` takes them.
    """
    limits = get_benchmark(name).limits
    values: dict[str, Any] = {
        "arm": Arm.BASE.value,
        "epochs": 1,
        "domain": {"name": name, "options": _given(options)},
        "benchmark": _given(model),
        "rollout": {
            "n": samples,
            "max_turns": limits.turns,
            "max_tokens": limits.turn_tokens,
            "max_length": limits.tokens,
        },
        "tracking": {"enabled": False},
    }
    return overridden(values, f"eval {name}", overrides=overrides, fields=fields)


def measurement_name(config: RunConfig) -> str:
    """Return the run id of a measurement, with a short name of the model in it."""
    given = config.benchmark
    whole = (given.model_name or str(given.model)).removeprefix("run:").rstrip("/")
    return run_name(config, f"eval-{stem(whole.rpartition('/')[2])}")


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
