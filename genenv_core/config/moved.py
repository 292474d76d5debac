"""Fields that moved: `RunConfig` reads old names in records, and refuses them from people.

A record of an older genenv names every field. Where a person writes an old name, in a file or after
--set, the error says the new one. Fields that became constants are read with that value, and
refused with another one; names of runs and keys of stages hold them as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter, ValidationError

from genenv_core.canonical import section_of
from genenv_core.config.sections.models import BootstrapConfig
from genenv_core.config.sections.unions.benchmark import BenchmarkSection
from genenv_core.config.sections.unions.compute import (
    ComputeSection,
    TransformersCompute,
    VllmCompute,
)
from genenv_core.config.sections.unions.teacher import TeacherConfig
from genenv_core.config.sections.warm_start import WarmStartConfig
from genenv_core.errors import ConfigError

MOVED = {"data.offline_file": "teacher.file"}
"""Old field -> new field."""

ONE_CLASS = {
    "model": None,
    "revision": None,
    "chat_template_kwargs": dict[str, Any](),
    "url": None,
    "model_name": None,
    "request": dict[str, Any](),
}
"""Fields of section teacher while one class had those of all teachers, without the file."""

CONSTANTS = {
    "bootstrap": {"easy_skew": BootstrapConfig.easy_skew},
    "warm_start": {"easy_skew": WarmStartConfig.easy_skew},
}
"""Section -> its fields that became constants. Stages name them in `reads`, so keys hold them."""

WHOLE: Mapping[str, Mapping[str, Any]] = {
    "teacher": ONE_CLASS,
    "benchmark": {
        **{name: None for name in ("model", "url", "model_name", "simulator", "attempt_seconds")},
        "request": dict[str, Any](),
    },
    "compute": {
        "device": VllmCompute.device,
        "vllm": TransformersCompute.vllm.model_dump(mode="json"),
    },
    **CONSTANTS,
}
"""Sections while one class had the fields of all alternatives: fields that some of them lack."""


def check_moved(values: Mapping[str, Any]) -> None:
    """Raise ConfigError for an old field with a value, nested or dotted."""
    for old, new in MOVED.items():
        section, _, name = old.partition(".")
        value = values.get(old, section_of(values, section).get(name))
        if value is not None:
            raise ConfigError(f"{old} is now {new}: write {new}={value} in place of it")


def check_constants(values: Mapping[str, Any]) -> None:
    """Raise ValueError for a field that became a constant; `values` are those of `with_moved`."""
    for section, name, value in _constants():
        own = section_of(values, section)
        if name in own:
            raise ValueError(
                f"{section}.{name} is {value} in every run now, not {own[name]!r}: remove it"
            )


def as_now(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded configuration under the names of today, to compare it with others.

    A section that this genenv cannot read stays as it is.
    """
    moved = with_moved(values)
    for section, union in _UNIONS.items():
        with suppress(ValidationError):
            if section in moved:
                known = union.validate_python(moved[section])
                moved[section] = union.dump_python(known, mode="json")
    return moved


def with_moved(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values with old fields under their new names.

    Drops an old field with null, and a constant.
    """
    found = dict(values)
    for section, name, value in _constants():
        own = section_of(found, section)
        if name in own and own[name] == value:
            found[section] = {other: one for other, one in own.items() if other != name}
    for old, new in MOVED.items():
        section, _, name = old.partition(".")
        if name not in section_of(found, section):
            continue
        kept = dict(section_of(found, section))
        value = kept.pop(name)
        found[section] = kept
        if value is not None:
            section, _, name = new.partition(".")
            own = section_of(found, section)
            if own.get(name) is None:  # a change on top of a record says the new name
                found[section] = {**own, name: value}
    return found


def as_named(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a run's name is made of as they were before they moved.

    So runs keep their names.
    """
    teacher = dict(identity["teacher"])
    data = {**identity["data"], "offline_file": teacher.pop("file", None)}
    named = {**identity, "data": data, "teacher": teacher}
    whole = {name: {**one, **named[name]} for name, one in WHOLE.items() if name in named}
    return {**named, **whole}


def _constants() -> Iterator[tuple[str, str, Any]]:
    """Yield section, name and value of each constant."""
    for section, fields in CONSTANTS.items():
        for name, value in fields.items():
            yield section, name, value


_UNIONS: Mapping[str, TypeAdapter[Any]] = {
    "teacher": TypeAdapter(TeacherConfig),
    "benchmark": TypeAdapter(BenchmarkSection),
    "compute": TypeAdapter(ComputeSection),
}
