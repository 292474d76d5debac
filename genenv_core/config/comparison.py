"""A comparison (arms, seeds, a budget and a measure), and the runs that it consists of.

An arm is a name with changes of the configuration. Runs get the names that `genenv run` gives them,
so a comparison reuses what was played before, and computes equal stages of two arms once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import Field, ValidationError, field_validator, model_validator

from genenv_core.canonical import digest
from genenv_core.config.arms import ARMS, Arm
from genenv_core.config.load import (
    changed,
    explain,
    preset_names,
    preset_values,
    read_override,
    run_name,
    stem,
    validated,
)
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.section import Section
from genenv_core.errors import ConfigError
from genenv_core.machine.wrong_values import closest, worded


class Budget(StrEnum):
    """The unit in which two arms are compared, each up to the lesser of their total spendings."""

    ROLLOUTS = "rollouts"
    """Attempts at tasks."""
    STEPS = "steps"
    """Optimizer steps of both policies."""
    TOKENS = "tokens"
    """Tokens that models read and sample to write and attempt tasks."""


class Measure(StrEnum):
    """The measure of a gain on the test tasks; see the view `test_gains`."""

    ANSWER_PROBABILITY = "answer_probability"
    SAMPLED = "sampled"
    GREEDY = "greedy"


ABLATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "no_filter": ("no difficulty band", {"curriculum.k_min": 1.0}),
    "no_kl": (
        "no leash of pi_env to the initial simulator",
        {"rwr.kl_coef": 0.0, "rwr.kl_cap": 1e6, "gates.max_kl_env": 1e6},
    ),
    "no_conditioning": (
        "pi_env does not read how the agent did",
        {"generation.condition_on_agent": False},
    ),
    "no_guard": ("tasks with a flaw are not refused", {"generation.guard": False}),
    "no_prediction": ("every valid task is attempted", {"generation.candidates": 1}),
}
"""Arms that are `genenv` without one of its means: name -> what the arm does, and its changes."""

SHORT = {
    "alpha": "curriculum.alpha",
    "beta": "curriculum.beta",
    "k_min": "curriculum.k_min",
    "level": "curriculum.level",
    "lambda": "rwr.lambda",
    "pay": "rwr.pay",
    "n": "rollout.n",
}
"""Short names of fields in the name of an arm, as in `lambda=0`."""

OF_ALL = {
    "seed": "every arm plays the comparison's seeds",
    "root": "give --root",
    "run_id": "a run is named after its configuration",
}
"""Fields that no change may set, and why."""

ARM_NAME = worded(
    r"^[A-Za-z0-9][A-Za-z0-9_.=+-]{0,39}$",
    "up to 40 letters, digits and . _ = + -, a letter or a digit first",
)
ArmName = Annotated[str, Field(pattern=ARM_NAME)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Comparison(Section):
    """Arms to compare, each on the same seeds; the first one is compared with every other."""

    base: str = "quickstart"
    """Preset or configuration file that every arm starts from."""
    set: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Changes for every arm: sections as in a configuration file, or dotted fields."""
    arms: dict[ArmName, dict[str, Any]]
    """Arm -> its changes, empty for an arm that genenv knows by name."""
    seeds: tuple[Seed, ...]
    """Seeds, the unit of the statistics; ten for a claim, six for any decision."""
    budget: Budget = Budget.ROLLOUTS
    """The budget at which two arms are compared."""
    measure: Measure | None = None
    """The measure that decides. None: the probability of the answer where the domain has one, else
    sampled success."""

    @field_validator("arms", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """Read a list of names, or names without changes, as the changes that they stand for."""
        if isinstance(value, list | tuple):
            names = [str(name) for name in cast(Sequence[Any], value)]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"arms: {', '.join(twice)} is given twice")
            return {name: dict[str, Any]() for name in names}
        if isinstance(value, Mapping):
            given = cast(Mapping[str, Any], value)
            empty: dict[str, Any] = {}
            return {name: empty if changes is None else changes for name, changes in given.items()}
        return value

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if len(self.arms) < 2:
            raise ValueError("arms: a comparison needs two at least")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            given = ", ".join(map(str, self.seeds)) or "none"
            raise ValueError(f"seeds: give one at least, and none twice, not {given}")
        return self


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of a comparison."""

    arm: str
    seed: int
    config: RunConfig

    @property
    def run_id(self) -> str:
        """Return the name of the run."""
        return str(self.config.run_id)


def read_comparison(source: str, fields: Mapping[str, Any]) -> Comparison:
    """Return the comparison of a YAML file, or of a preset or configuration that `fields` complete.

    `fields` are those of `Comparison`, None meaning not given. Raises ConfigError.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    values: dict[str, Any] = {"base": source}
    if source not in preset_names():
        found = preset_values(source)
        if "arms" in found:
            values = found
            here = Path(source).parent / str(values.get("base", ""))
            if values.get("base") not in (None, *preset_names()):
                values["base"] = str(here)
    if "arms" not in values and "arms" not in given:
        raise ConfigError(
            f"{source}: there are no arms to compare: give --arms {','.join(ARMS)} or others, or a "
            "file with `arms:`"
        )
    if "set" in given:
        values["set"] = {**values.get("set", {}), **given.pop("set")}
    try:
        return Comparison.model_validate({**values, **given})
    except ValidationError as error:
        raise ConfigError(f"{source}: {explain(error, Comparison)}") from error


def planned_runs(comparison: Comparison, root: str | None = None) -> list[PlannedRun]:
    """Return the runs, seed by seed; raises ConfigError for an invalid arm, or for equal arms."""
    runs: list[PlannedRun] = []
    for seed in comparison.seeds:
        named: dict[str, str] = {}
        for arm, changes in comparison.arms.items():
            config = _configured(comparison, arm, changes, seed, root)
            run_id = run_name(config, comparison.base)
            if run_id in named:
                raise ConfigError(
                    f"arms {named[run_id]} and {arm} are one and the same run, {run_id}: leave one "
                    "out, or let them differ in more than epochs, placement and the like"
                )
            named[run_id] = arm
            runs.append(PlannedRun(arm, seed, config.model_copy(update={"run_id": run_id})))
    return runs


def comparison_name(comparison: Comparison) -> str:
    """Return the name of a comparison: its base and a digest of everything in it."""
    return f"{stem(comparison.base)}-{digest(comparison.model_dump(mode='json'))[:8]}"


def does(arm: str) -> str:
    """Return in words what an arm does; '' for a name that genenv does not know."""
    if arm in ARMS:
        return ARMS[Arm(arm)].does
    if arm in ABLATIONS:
        return f"genenv, but {ABLATIONS[arm][0]}"
    changes = [text for text in arm.split("+") if "=" in text]
    return f"genenv with {', '.join(changes)}" if changes else ""


def _configured(
    comparison: Comparison, arm: str, changes: Mapping[str, Any], seed: int, root: str | None
) -> RunConfig:
    values = preset_values(comparison.base)
    where = f"arm {arm}, seed {seed}"
    try:
        for more in (comparison.set, _meant(arm, bool(changes)), changes):
            for name in more:
                if name.partition(".")[0] in OF_ALL:
                    raise ConfigError(f"{name} is not an arm's: {OF_ALL[name.partition('.')[0]]}")
            values = changed(values, more)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    config = validated(values, where, {"seed": seed, "root": root, "run_id": None})
    if config.limits.given:
        raise ConfigError(
            f"{where}: section limits would end a run before its last epoch, and arms are compared "
            "at equal budgets: remove it"
        )
    return config


def _meant(arm: str, explained: bool) -> dict[str, Any]:
    """Return the changes that the name of an arm stands for.

    Raises ConfigError for an unknown name, unless the arm is `explained` by changes of its own.
    """
    if arm in ARMS:
        return {"arm": arm}
    if arm in ABLATIONS:
        return ABLATIONS[arm][1]
    if "=" in arm:
        return dict(_assigned(text) for text in arm.split("+"))
    if explained:
        return {}
    known = [*map(str, ARMS), *ABLATIONS]
    raise ConfigError(
        f"genenv knows the arms {', '.join(known)}, and field=value with a dotted field or "
        f"{', '.join(SHORT)}{closest(arm, known)}; or give its changes in a file"
    )


def _assigned(text: str) -> tuple[str, Any]:
    name, value = read_override(text, "change")
    if text == f"{name}=":
        raise ConfigError(f"change {text!r}: there is no value")
    return SHORT.get(name, name), value
