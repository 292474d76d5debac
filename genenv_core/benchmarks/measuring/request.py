"""Turns what a person asks to measure into the configuration of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genenv_core.benchmarks.registry import get_benchmark
from genenv_core.benchmarks.training.benchmark_domain import folder_in
from genenv_core.benchmarks.training.modes import mode_of
from genenv_core.config.arms import Arm
from genenv_core.config.load import overridden, run_name, stem
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.benchmark import OF_RUN
from genenv_core.config.sections.unions.benchmark import MeasuredCheckpoint
from genenv_core.domains.registry import known_domains
from genenv_core.errors import ConfigError
from genenv_core.plugins import DOMAINS
from genenv_core.types import JsonObject

ATTEMPTS: JsonObject = {"max_turns": 8, "max_tokens": 256, "max_length": 2048}
"""Bounds of an attempt at a task of a certified set. A benchmark has its own bounds, but a domain
has none, so a certificate takes these; `--set rollout.max_turns=...` replaces one."""


@dataclass(frozen=True, slots=True)
class MeasuringOptions:
    """What to measure; None means not given.

    Args:
        model: a checkpoint folder, run:RUN, run:RUN@EPOCH, models:/NAME/VERSION or a URL.
        model_name: name of the model at the URL.
        key_env: environment variable with the key of the URL.
        data: folder of the benchmark's download.
        mode: how to judge attempts.
        samples: attempts at each item.
        items: how many of each category.
    """

    model: str
    model_name: str | None = None
    key_env: str | None = None
    data: str | None = None
    mode: str | None = None
    samples: int = 1
    items: int | None = None

    @property
    def remote(self) -> bool:
        """Return whether the model is behind a URL."""
        return self.model.startswith(("http://", "https://"))


def measurement(
    name: str,
    asked: MeasuringOptions,
    *,
    overrides: Iterable[str] = (),
    fields: Mapping[str, Any] | None = None,
    option: str = "--set",
) -> RunConfig:
    """Return the configuration, which has no run id unless `fields` give one; raises ConfigError.

    Args:
        name: of the benchmark.
        asked: the model, and how to measure it.
        overrides: `a.b=value` texts, which win over the benchmark's own limits.
        fields: top-level values, as `resolve` takes them.
        option: the option with the overrides, for errors.
    """
    benchmark = get_benchmark(name)
    if name not in known_domains():
        raise ConfigError(
            f"benchmark {name!r} has no domain, by which a model attempts its items: register one "
            f"under this name in {DOMAINS}; `genenv eval {name} --predictions FILE` needs none"
        )
    limits, mode = benchmark.limits, asked.mode and mode_of(benchmark, asked.mode, "--mode")
    rollout = {
        "max_turns": limits.turns,
        "max_tokens": limits.turn_tokens,
        "max_length": limits.tokens,
    }
    domain = {"name": name, "options": _given({"data": asked.data, "mode": mode})}
    values = _values(asked, rollout, domain=domain)
    if asked.remote:
        values["benchmark"]["attempt_seconds"] = limits.seconds
    return overridden(values, f"eval {name}", overrides=overrides, fields=fields, option=option)


def certification(
    domain: Mapping[str, Any] | None,
    asked: MeasuringOptions,
    counts: tuple[int, int],
    *,
    overrides: Iterable[str] = (),
    fields: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Return the configuration that lets a model attempt a task set; raises ConfigError.

    Args:
        domain: the section `domain`; None where the overrides name several.
        asked: the model, its attempts at each task, and how many tasks of each set it attempts.
        counts: base tasks and held-out tasks; all of a folder count as base tasks.
        overrides: `a.b=value` texts, which win over `ATTEMPTS`.
        fields: top-level values, as `resolve` takes them.
    """
    values = _values(asked, ATTEMPTS, **({} if domain is None else {"domain": dict(domain)}))
    values["benchmark"] |= {"certify_base": counts[0], "certify_heldout": counts[1]}
    values["benchmark"]["temperature"] = 1.0
    return overridden(values, "certify", overrides=overrides, fields=fields)


def _values(asked: MeasuringOptions, rollout: JsonObject, **sections: Any) -> dict[str, Any]:
    """Return the values that every measurement sets; raises ConfigError for options of a URL."""
    for field in ("model_name", "key_env"):
        if getattr(asked, field) is not None and not asked.remote:
            raise ConfigError(f"{field} is of a model behind a URL, and {asked.model} is none")
    model = {
        "url" if asked.remote else "model": asked.model,
        "model_name": asked.model_name,
        "items": asked.items,
    }
    return {
        "arm": Arm.BASE.value,
        "epochs": 1,
        **sections,
        "benchmark": _given(model),
        "rollout": {"n": asked.samples, **rollout},
        "execution": {"benchmark": _given({"key_env": asked.key_env})},
        "tracking": {"enabled": False},
    }


def of_agent(config: RunConfig, epoch: int) -> list[RunConfig]:
    """Return the measurements due after an epoch, without names; may be empty.

    They compute where and how the run's own attempts do. Raises ConfigError.
    """
    measure = config.measure
    if epoch != config.epochs and (measure.every is None or epoch % measure.every):
        return []
    sections = ("compute", "placement", "roots")
    models = {"agent_chat_template_kwargs": config.models.agent_chat_template_kwargs}
    fields = {
        "root": config.root,
        "seed": config.seed,
        "models": models,
        **{name: getattr(config, name).model_dump(by_alias=True) for name in sections},
        "execution": config.execution.model_dump(by_alias=True, exclude={"teacher", "benchmark"}),
    }
    model, above = f"run:{config.run_id}@{epoch}", measure.data
    return [
        measurement(
            name,
            MeasuringOptions(
                model,
                data=str(folder_in(Path(above).absolute(), name)) if above else None,
                samples=measure.samples,
                items=measure.items,
            ),
            fields=fields,
        )
        for name in measure.benchmarks
    ]


def measurement_name(config: RunConfig) -> str:
    """Return the run id of a measurement, with a short name of the model in it."""
    given = config.measured
    name = given.model if isinstance(given, MeasuredCheckpoint) else given.model_name
    whole = name.removeprefix(OF_RUN).rstrip("/")
    does = "certify" if given.certifies else "eval"
    return run_name(config, f"{does}-{stem(whole.rpartition('/')[2])}")


def _given(fields: JsonObject) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}
