"""What a person fills in to start a run from the Prefect UI or API: a preset and what differs.

The sections mirror `RunConfig` field by field, with the same types, bounds and descriptions, but
every field may be left out: then it is as the preset has it. They are made from the schema, so a
field that is added there is in the form.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, cast, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, Field, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from genenv_core.config.comparison import Budget, Measure
from genenv_core.config.load import dump, own_values, preset_names
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.section import STRICT


class Preset(StrEnum):
    """A configuration that comes with genenv."""

    TINY = "tiny"
    TRAILS = "trails"
    QUICKSTART = "quickstart"
    PAPER = "paper"
    PAPER_SMALL = "paper-small"
    PAPER_ALFWORLD = "paper-alfworld"
    PAPER_API_BANK = "paper-api-bank"
    PAPER_BAMBOOGLE = "paper-bamboogle"
    PAPER_BFCL = "paper-bfcl"
    PAPER_TRAVELPLANNER = "paper-travelplanner"


RUN_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
ROOT = r"^(/|s3://).+"

RunName = Annotated[str, Field(pattern=RUN_ID)]
RootUri = Annotated[str, Field(pattern=ROOT)]


def _optional(schema: dict[str, Any]) -> None:
    """Drop the default of a field that may be left out: None is no value of it."""
    schema.pop("default", None)


class _Request(BaseModel):
    model_config = STRICT


class _Head(_Request):
    preset: Preset = Preset.QUICKSTART
    """The configuration to start from: tiny takes seconds, quickstart minutes on a CPU; paper-small
    needs a GPU, paper eight, and so do those of benchmarks, such as paper-bfcl, which are paper but
    for a few fields. Every other field may be left empty; it is then as the preset has it."""
    resume: RunName | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """A run of this root to continue with the configuration it was started with. Beside it only
    root and epochs count: the preset is not looked at, and other fields are refused."""
    run_id: RunName | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """Name of the run. Empty: made from the configuration, so that the same request continues the
    same run."""
    root: RootUri | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """Where everything is kept: an absolute directory. Empty: the root of `genenv up`."""


class EpochRequest(_Request):
    """One epoch of a run that was started before."""

    run_id: RunName
    """A run of this root, with every epoch before this one finished."""
    epoch: Annotated[int, Field(ge=1, le=100_000)] | SkipJsonSchema[None] = Field(
        default=None, json_schema_extra=_optional
    )
    """Number of the epoch, from 1. Empty: the first that is not finished; after the last one, one
    more."""
    root: RootUri | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """Where everything is kept: an absolute directory. Empty: the root of `genenv up`."""


class StageRequest(_Request):
    """One stage of one epoch of a run that was started before."""

    run_id: RunName
    """A run of this root, with every stage that this one reads finished."""
    epoch: int = Field(default=1, ge=0, le=100_000)
    """Number of the epoch; 0 is the start of the run, which has bootstrap and evaluate only."""
    root: RootUri | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """Where everything is kept: an absolute directory. Empty: the root of `genenv up`."""


class BenchmarkName(StrEnum):
    """A benchmark that a model can be measured on."""

    ALFWORLD = "alfworld"
    API_BANK = "api_bank"
    BAMBOOGLE = "bamboogle"
    BFCL = "bfcl"
    TRAVELPLANNER = "travelplanner"


class BenchmarkRequest(_Request):
    """A model to measure on a benchmark."""

    benchmark: BenchmarkName = BenchmarkName.BFCL
    """What to measure it on."""
    model: str = Field(min_length=1)
    """A checkpoint directory, run:RUN or run:RUN@EPOCH of this root, models:/NAME/VERSION in
    MLflow, or the URL of an OpenAI-compatible endpoint, such as http://host:8000/v1."""
    model_name: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """Name of the model at that URL."""
    key_env: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """Environment variable of the worker with the key of that URL, never the key itself."""
    data: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """Folder of the benchmark's official download. Empty: its folder in GENENV_BENCHMARKS."""
    mode: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """How attempts are judged. Empty: the benchmark's first mode."""
    samples: int = Field(default=1, ge=1, le=1024)
    """Attempts at each item."""
    items: Annotated[int, Field(ge=1, le=1_000_000)] | SkipJsonSchema[None] = Field(
        default=None, json_schema_extra=_optional
    )
    """Only the first so many items of each category. Empty: all."""
    seed: int = Field(default=0, ge=0, le=2**31 - 1)
    """Seed of everything random."""
    changes: list[str] = Field(default=[], max_length=200)
    """Other changes, one field=value each, such as rollout.max_turns=30."""
    run_id: RunName | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """Name of the run. Empty: made from the rest, so that the same request goes on."""
    root: RootUri | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """Where everything is kept: an absolute directory. Empty: the root of `genenv up`."""


class CompareRequest(_Request):
    """Arms to play on the same seeds, and to compare."""

    preset: Preset = Preset.QUICKSTART
    """The configuration that every arm starts from."""
    arms: list[str] = Field(default=["genenv", "random", "static"], min_length=2, max_length=50)
    """The first is compared with every other. genenv, random, static, offline and base; genenv
    without a means: no_filter, no_kl, no_conditioning, no_prediction; or a changed field, such as
    lambda=0, alpha=0.3, level=group, rollout.n=16."""
    seeds: int = Field(default=10, ge=1, le=1000)
    """Seeds of each arm, the unit of the statistics: ten for a claim, six for any decision."""
    first_seed: int = Field(default=0, ge=0, le=2**31 - 1001)
    """The first seed; the others follow it."""
    budget: Budget = Budget.ROLLOUTS
    """What is equal for two arms when they are read: rollouts (attempts at tasks), steps (optimizer
    steps of both policies), or tokens (read and sampled to write and attempt tasks)."""
    measure: Measure | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """What the gain on the test tasks is of. Empty: the probability of the answer where the domain
    has one, else sampled success."""
    changes: list[str] = Field(default=[], max_length=200)
    """Changes for every arm, one field=value each, such as epochs=6."""
    root: RootUri | SkipJsonSchema[None] = Field(default=None, json_schema_extra=_optional)
    """Where everything is kept: an absolute directory. Empty: the root of `genenv up`."""


OWN = frozenset(_Head.model_fields)
"""Fields of a run request that are not overrides of configuration fields of the same name."""

MEASURING = {("benchmark",), ("execution", "benchmark"), ("placement", "benchmark")}
"""What only `BenchmarkRequest` has to say."""


def _form(model: type[BaseModel], path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a section's fields as `create_model` takes them; each may be left out."""
    fields: dict[str, Any] = {}
    for name, known in model.model_fields.items():
        if not path and name in OWN:
            continue
        here = (*path, known.alias or name)
        if here in MEASURING:
            continue
        inner = known.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            section = create_model(
                "".join(part.title().replace("_", "") for part in here) + "Settings",
                __base__=_Request,
                __doc__=(inner.__doc__ or "").strip().splitlines()[0],
                __cls_kwargs__={"title": name.replace("_", " ").title()},
                **_form(inner, here),
            )
            fields[name] = (section, Field(default_factory=section, description=known.description))
            continue
        whole = cast(Any, known.annotation)
        kept = [part for part in get_args(whole) if part is not type(None)]
        bare: Any = kept[0] if len(kept) < len(get_args(whole)) else whole
        bounded: Any = Annotated[bare, *known.metadata] if known.metadata else bare
        default = _default(here)
        does = " ".join((known.description or "").split())
        # A switch has no empty state, so it shows what it is in every preset.
        fields[name] = (
            bounded | SkipJsonSchema[None],
            Field(
                default=default if isinstance(default, bool) else None,
                alias=known.alias,
                description=f"{does} {_values(here, known)}",
                json_schema_extra=None if isinstance(default, bool) else _optional,
            ),
        )
    return fields


def _values(path: tuple[str, ...], field: FieldInfo) -> str:
    """Return what a field may be, and what it is when it is left out, where presets say it each."""
    default = _default(path)
    values = {name: _at(own_values(name), path, default) for name in preset_names()}
    other = [f"{name} {_word(value)}" for name, value in values.items() if value != default]
    return f"[{'; '.join([*_bounds(field), f'default {_word(default)}', *other])}]"


def _bounds(field: FieldInfo) -> list[str]:
    """Return the bounds of a number as people write them: 1 to 64, above 0."""
    low = high = ""
    for bound in field.metadata:
        if isinstance(bound, Ge):
            low = f"{bound.ge}"
        elif isinstance(bound, Gt):
            low = f"above {bound.gt}"
        elif isinstance(bound, Le):
            high = f"{bound.le}"
        elif isinstance(bound, Lt):
            high = f"below {bound.lt}"
    return [f"{low} to {high}"] if low and high else []


def _default(path: tuple[str, ...]) -> Any:
    return _at(dump(RunConfig()), path, None)


def _at(values: Any, path: tuple[str, ...], default: Any) -> Any:
    for name in path:
        if not isinstance(values, Mapping) or name not in values:
            return default
        values = cast(Mapping[str, Any], values)[name]
    return values


def _word(value: Any) -> str:
    if value is None or value == {}:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


_Form: type[_Head] = create_model("_Form", __base__=_Head, **_form(RunConfig))


class RunRequest(_Form):
    """A co-evolution to start, or one to continue."""


def overrides(request: RunRequest) -> dict[str, Any]:
    """Return what a request changes of its preset, nested as configuration files are."""
    return _given(request, leave=OWN)


def _given(model: BaseModel, leave: frozenset[str] = frozenset()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, known in type(model).model_fields.items():
        value = getattr(model, name)
        if name in leave or value is None or value is known.default:  # a switch as it was
            continue
        if isinstance(value, BaseModel):
            value = _given(value)
            if not value:
                continue
        found[known.alias or name] = value
    return found
