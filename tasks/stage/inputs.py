"""Defines what a stage takes: references to artifacts and files, never the data itself.

Each stage's module defines its inputs as a frozen dataclass. The stage's key holds the identity of
each field. A process on a work pool gets the fields as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Protocol, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from genenv_core.errors import StageError
from genenv_core.storage.records.manifest import (
    ArtifactRef,
    CheckpointRef,
    ExamplesRef,
    FileRef,
)


class Inputs(Protocol):
    """A frozen dataclass of references, numbers and truth values, or sequences of references."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


In = TypeVar("In", bound=Inputs)


def identities(inputs: Inputs) -> dict[str, Any]:
    """Return what a stage's key holds for each field: its digest, or the plain value itself.

    Leaves out fields with their default, so that a new field changes no key.
    """
    given = {field.name: (getattr(inputs, field.name), field.default) for field in fields(inputs)}
    return {name: _identity(value) for name, (value, left) in given.items() if value != left}


def encode(inputs: Inputs) -> dict[str, Any]:
    """Return inputs as plain JSON values that `decode` reads."""
    return TypeAdapter(type(inputs)).dump_python(inputs, mode="json")


def decode(kind: type[In], values: Mapping[str, Any]) -> In:
    """Return the inputs that `encode` wrote; raises StageError if the stage takes others here."""
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise StageError(
            f"{field} of {kind.__name__}: {first['msg']}: this process and the flow have different "
            "versions of genenv: install the same commit on both"
        ) from error


def _identity(value: Any) -> Any:
    if isinstance(value, ArtifactRef):
        return value.digest
    if isinstance(value, CheckpointRef):
        return f"{value.digest}@{value.policy_version}"
    if isinstance(value, FileRef | ExamplesRef):
        return value.sha256
    if is_dataclass(value):
        return identities(cast(Inputs, value))
    if isinstance(value, list | tuple):
        return [_identity(item) for item in cast(Sequence[Any], value)]
    return value
