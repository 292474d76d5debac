"""What a person fills in to start a run from the Prefect UI or API: a preset and what differs.

The sections mirror `RunConfig` field by field, with the same types, bounds and descriptions, but a
person may leave out every field: the preset then sets it. This module makes them from the schema,
so a field that is added there is in the form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, cast, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from genenv_core.canonical import value_at
from genenv_core.config.load import dump, own_values, preset_names
from genenv_core.config.moved import MOVED
from genenv_core.config.schema import RUN_ID, RunConfig
from genenv_core.config.sections.section import Request
from genenv_core.config.sections.unions.alternatives import fields_of, paths_of, sections_of
from genenv_core.config.several import DOMAINS, LISTED, DomainEntry
from genenv_core.machine.wrong_values import worded


class Preset(StrEnum):
    """A configuration that comes with genenv."""

    TINY = "tiny"
    TRAILS = "trails"
    QUICKSTART = "quickstart"
    HEADROOM = "headroom"
    LAPTOP = "laptop"
    PAPER = "paper"
    PAPER_SMALL = "paper-small"
    PAPER_ALFWORLD = "paper-alfworld"
    PAPER_API_BANK = "paper-api-bank"
    PAPER_BAMBOOGLE = "paper-bamboogle"
    PAPER_BFCL = "paper-bfcl"
    PAPER_TRAVELPLANNER = "paper-travelplanner"


ROOT = worded(r"^(/|s3://).+", "an absolute directory, as in /data/genenv, or s3://BUCKET/PREFIX")

RunName = Annotated[str, Field(pattern=RUN_ID)]
RootUri = Annotated[str, Field(pattern=ROOT)]


def optional(schema: dict[str, Any]) -> None:
    """Remove the default of a field that may stay empty, because None is not one of its values."""
    schema.pop("default", None)


def _first(*names: str) -> Callable[[dict[str, Any]], None]:
    """Return a function that puts these fields, in this order, before all others of a form."""

    def order(schema: dict[str, Any]) -> None:
        fields = schema["properties"]
        schema["properties"] = {name: fields[name] for name in (*names, *fields)}

    return order


class _Usual(Request):
    preset: Preset = Preset.QUICKSTART
    """The configuration to start from. On a CPU, tiny takes seconds, quickstart minutes, and laptop
    eight minutes with a pretrained model. paper-small needs a GPU, paper eight. Those of
    benchmarks, such as paper-bfcl, are paper but for a few fields. You may leave every other field
    empty: the preset then sets it."""
    tags: list[str] = Field(default=[], max_length=100)
    """Tags to add to the run, such as baseline; `genenv runs --tag baseline` finds it. They are
    labels: with others it is the same run."""
    until: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """End the run after this stage, such as rollout@2 (of epoch 2) or pool (of epoch 1). The same
    request without it goes on. Empty: the last epoch."""
    force: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """Draw this stage of a finished run anew, such as rollout@2, and compute what follows from it.
    The earlier outputs stay. Until the run has ended, the same request repeats that draw."""


class _Head(_Usual):
    resume: RunName | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """A run of this root to continue with the configuration it was started with. genenv then reads
    root, epochs, until, force, labels and the sections execution, placement, tracking, measure,
    roots, limits and prices of this form, ignores the preset, and refuses other fields."""
    from_: str | SkipJsonSchema[None] = Field(
        default=None, alias="from", json_schema_extra=optional
    )
    """Branch off: RUN@EPOCH, a run of this root and the last of its epochs to take over as they are
    stored, such as quickstart-genenv-s0-84d952@2. The settings are those of that run, with the
    fields that are filled in here; genenv ignores the preset. Empty: a run of its own."""
    run_id: RunName | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """Name of the run. Empty: made from the configuration, so that the same request continues the
    same run."""
    root: RootUri | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """The root that keeps all runs: an absolute directory. Empty: the root of `genenv up`."""
    note: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=optional)
    """A sentence on the run, a label as tags are. Empty keeps the present one."""
    pin: bool = False
    """Keep the weights of all epochs of the run from gc. Off leaves a pin as it is."""


OWN = frozenset(_Head.model_fields)
"""Fields of a run request that are not overrides of configuration fields of the same name."""

MEASURING = {("benchmark",), ("execution", "benchmark"), ("placement", "benchmark")}
"""Sections that only the form of `BenchmarkRequest` has."""


class _Section(Request):
    """The base of a form's sections, whose fields bring their descriptions.

    So pydantic does not search sources for docstrings, for which it looks through every loaded
    module once a class.
    """

    model_config = ConfigDict(use_attribute_docstrings=False)


def _form(known_fields: Mapping[str, FieldInfo], path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a section's fields as `create_model` takes them; each may be left out."""
    fields: dict[str, Any] = {}
    for name, known in known_fields.items():
        if not path and name in OWN:
            continue
        here = (*path, known.alias or name)
        if here in MEASURING:
            continue
        if classes := sections_of(known.annotation):
            section = create_model(
                "".join(part.title().replace("_", "") for part in here) + "Settings",
                __base__=_Section,
                __doc__=_first_line(known, classes),
                __cls_kwargs__={"title": name.replace("_", " ").title()},
                **_form(fields_of(classes), here),
            )
            fields[name] = (section, Field(default_factory=section, description=known.description))
            continue
        whole = cast(Any, known.annotation)
        kept = [part for part in get_args(whole) if part is not type(None)]
        bare: Any = kept[0] if len(kept) < len(get_args(whole)) else whole
        bounded: Any = Annotated[bare, *known.metadata] if known.metadata else bare
        default = _default(here)
        does = " ".join((known.description or "").split())
        # A switch has no empty state, so it shows the default.
        fields[name] = (
            bounded | SkipJsonSchema[None],
            Field(
                default=default if isinstance(default, bool) else None,
                alias=known.alias,
                description=f"{does} {_values(here, known)}",
                json_schema_extra=None if isinstance(default, bool) else optional,
            ),
        )
    return fields


def _first_line(field: FieldInfo, classes: tuple[type[BaseModel], ...]) -> str:
    """Return a section's description in a line: its class's, or of several classes its field's."""
    whole = classes[0].__doc__ if len(classes) == 1 else field.description
    return (whole or "").strip().splitlines()[0]


def _values(path: tuple[str, ...], field: FieldInfo) -> str:
    """Return a field's bounds, its default, and the value of each preset that sets another."""
    default = _default(path)
    values = {name: value_at(own, path, default) for name, own in _presets().items()}
    other = [f"{name} {_word(value)}" for name, value in values.items() if value != default]
    return f"[{'; '.join([*_bounds(field), f'default {_word(default)}', *other])}]"


@cache
def _presets() -> dict[str, dict[str, Any]]:
    """Return the values that each preset sets; cached, so that each file is read once."""
    return {name: own_values(name) for name in preset_names()}


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
    return value_at(_defaults(), path)


@cache
def _defaults() -> dict[str, Any]:
    return dump(RunConfig())


def _word(value: Any) -> str:
    if value is None or value == {}:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_several(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the form with the list `domains` behind section `domain`."""
    # Empty means unset here, not None: for a list or None, errors would not name the entry alone.
    listed = Field(default=[], description=LISTED, json_schema_extra=optional)
    found: dict[str, Any] = {}
    for name, field in fields.items():
        found[name] = field
        if name == "domain":
            found[DOMAINS] = (list[DomainEntry], listed)
    return found


_FIELDS = _with_several(_form(RunConfig.model_fields))
_Form: type[_Head] = create_model("_Form", __base__=_Head, **_FIELDS)


class RunRequest(_Form):
    """A co-evolution to start, or one to continue."""

    model_config = ConfigDict(
        json_schema_extra=_first("preset", "resume", "from", "run_id", "root")
    )


CHANGES = worded(r"^\s*[A-Za-z_]\w*(\.\w+)*\s*=", "field=value, as in rollout.n=16")
"""How a change begins: the name of a field, and an equals sign."""


def _of_known_fields() -> dict[str, Any]:
    """Return the JSON schema of changes whose fields exist.

    Prefect's API checks parameters by their schema alone, before a run waits for a worker. Its
    error about a `const` is the constant's text with "was expected", so these constants say what to
    write.
    """
    known = [DOMAINS, *paths_of((RunConfig,))]
    parents = [path.rpartition(".")[0] for path in known]
    sections = sorted({name for name in parents if name}, key=len)
    values = [path for path in known if path not in sections]
    below: dict[str, list[str]] = {name: [] for name in sections}
    homes: dict[str, list[str]] = {}
    for path, section in zip(known, parents, strict=True):
        name = path.rpartition(".")[2]
        if section:
            below[section].append(name)
            homes.setdefault(name, []).append(f"{path}=VALUE")
    for old, new in MOVED.items():
        homes.setdefault(old.rpartition(".")[2], []).append(f"{new}=VALUE")
    first = ", ".join(path for path, section in zip(known, parents, strict=True) if not section)
    of_names = [
        _says(rf"(\w+\.)*{_exactly([name])}\s*=", " or ".join(paths))
        for name, paths in homes.items()
    ]
    of_sections = [
        _says(
            rf"{_exactly([name])}\.\w+\s*=",
            f"{name}.FIELD=VALUE with one of {', '.join(below[name])}",
        )
        for name in sections
    ]
    elsewhere = _says(rf"(?!{_exactly(sections)}\.\w+\s*=)", f"FIELD=VALUE with one of {first}")
    exists = _begins(rf"({_exactly(known)}\s*=|{_exactly(values)}\.)")
    instead = {
        "if": _begins(rf"(\w+\.)*{_exactly(list(homes))}\s*="),
        "then": {"allOf": of_names},
        "else": {"allOf": [*of_sections, elsewhere]},
    }
    return {"if": {"pattern": CHANGES}, "then": {"if": exists, "else": instead}}


def _begins(how: str) -> dict[str, Any]:
    return {"pattern": rf"^\s*{how}"}


def _says(how: str, instead: str) -> dict[str, Any]:
    """Return the schema that refuses texts beginning like `how`; its error says `instead`."""
    return {"if": _begins(how), "then": {"const": instead}}


def _exactly(names: list[str]) -> str:
    """Return a regular expression for one of these names."""
    return f"({'|'.join(map(re.escape, names))})"


Change = Annotated[str, Field(pattern=CHANGES, json_schema_extra=_of_known_fields())]
"""One field=value of a form, whose field exists."""

USUAL = ("epochs", "seed", "arm", "limits")
"""Fields of the configuration that people set most."""

_Short: type[_Usual] = create_model(
    "_Short", __base__=_Usual, **{name: _FIELDS[name] for name in USUAL}
)


class ShortRequest(_Short):
    """What people set most, and one field for everything else."""

    model_config = ConfigDict(json_schema_extra=_first("preset", *USUAL, "tags", "changes"))

    changes: list[Change] = Field(default=[], max_length=200)
    """Everything else, one field=value each, as `genenv run --set` takes it: rollout.n=16,
    grpo.learning_rate=1e-5, run_id=mine. The fields above win over it."""


def overrides(request: RunRequest | ShortRequest) -> dict[str, Any]:
    """Return what the fields of a request change of its preset, nested as in configuration files.

    The list `changes` is not among them.
    """
    return _given(request, leave=OWN | {"changes"})


def _given(model: BaseModel, leave: frozenset[str] = frozenset()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, known in type(model).model_fields.items():
        value = getattr(model, name)
        if name in leave or value is None or value is known.default:  # a switch as it was
            continue
        if name == DOMAINS:
            value = [entry.given for entry in cast("list[DomainEntry]", value)]
            if not value:
                continue
        if isinstance(value, BaseModel):
            value = _given(value)
            if not value:
                continue
        found[known.alias or name] = value
    return found
