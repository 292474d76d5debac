"""A section that is one of several classes; a field that a person gives decides which one.

A teacher has `model`, `url` or `file`, and each brings fields of its own; an engine is named by the
value of `engine`. The section is a union of classes that have only the fields they use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from pydantic import BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo

TAG = "<"
"""Begins the tag of each class. Pydantic puts tags into the places of errors; `explain` of
`config.load` removes them."""

NOTHING = Tag("<nothing>")
"""The tag of the class for a section that a person leaves out."""


def by(field: str) -> Tag:
    """Return the tag of the class that a field gives."""
    return Tag(f"{TAG}{field}>")


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The classes of section `name` by what chooses each; `noun` is their plural.

    A class is chosen by the field that a person gives. Where there is a `field`, its value chooses,
    and the first class is the default.
    """

    name: str
    noun: str
    classes: Mapping[str, type[BaseModel]]
    field: str = ""

    def tag(self, value: Any) -> str:
        """Return the tag of the class that a section, or the values of one, belongs to."""
        name = self.given(value)
        return by(name).tag if name else NOTHING.tag

    def given(self, value: Any) -> str:
        """Return what decides the class of a section or its values; '' if nothing does."""
        if isinstance(value, BaseModel):
            return next((name for name, one in self.classes.items() if isinstance(value, one)), "")
        if self.field:  # the first class refuses a value that chooses none
            (first, *_) = self.classes
            return next((name for name in self.classes if name == value.get(self.field)), first)
        return next((name for name in self.classes if name in value), "")

    def checked(self, value: Any) -> Any:
        """Return the values of a section without those that say nothing.

        null says nothing, and so does the default of a field that another class has: `genenv
        config show` wrote both while all classes were one. Raises ValueError for fields of two
        classes, and for fields of a class that nothing chooses.
        """
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, Mapping):
            fields = " or ".join([self.field] if self.field else self.classes)
            raise ValueError(f"{self.name} should be a section with {fields}, got {value!r}")
        values = cast("Mapping[str, Any]", value)
        given = {name: one for name, one in values.items() if one is not None}
        chosen = self._chosen(given)
        own = self.classes[chosen] if chosen else None
        for name in [name for name in given if not own or name not in own.model_fields]:
            having = {one: kind for one, kind in self.classes.items() if name in kind.model_fields}
            if not having:  # pydantic says so
                continue
            (field, *_) = (kind.model_fields[name] for kind in having.values())
            default = getattr(own, name, field.get_default(call_default_factory=True))
            if _equal(given.pop(name), default):
                continue
            does_nothing = f"{self.name}.{name} does nothing without"
            if self.field:
                (other,) = having
                raise ValueError(
                    f"{does_nothing} {self.name}.{self.field} {other}: remove it, or set "
                    f"{self.name}.{self.field} to {other}"
                )
            wants = " or ".join(f"{self.name}.{one}" for one in having)
            instead = f" in place of {self.name}.{chosen}" if chosen else ""
            raise ValueError(f"{does_nothing} {wants}: remove it, or set {wants}{instead}")
        return given

    def _chosen(self, given: Mapping[str, Any]) -> str:
        """Return what `given` does for values; raises ValueError for fields of two classes."""
        chosen = [] if self.field else [name for name in self.classes if name in given]
        if len(chosen) > 1:
            names = [f"{self.name}.{name}" for name in chosen]
            raise ValueError(
                f"{', '.join(names[:-1])} and {names[-1]} are "
                f"{('two', 'three')[len(chosen) - 2]} {self.noun}: keep one of them"
            )
        return self.given(given)


def _equal(value: Any, default: Any) -> bool:
    """Return whether a plain value says what a default does."""
    if isinstance(default, BaseModel):
        try:
            return type(default).model_validate(value) == default
        except ValidationError:
            return False
    return value in (default, [*default] if isinstance(default, tuple) else default)


def sections_of(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the classes that the section of a field may have; () for a field that is a value."""
    return tuple(_classes(annotation))


def _classes(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    members = [get_args(member) for member in get_args(annotation)]
    if members and all(len(one) == 2 and isinstance(one[1], Tag) for one in members):
        for kind, _ in members:
            yield kind


def fields_of(classes: tuple[type[BaseModel], ...]) -> dict[str, FieldInfo]:
    """Return the fields of a section, whichever class it has."""
    return {name: field for kind in classes for name, field in kind.model_fields.items()}


def paths_of(classes: tuple[type[BaseModel], ...], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all sections and fields below classes, as files write them."""
    for name, field in fields_of(classes).items():
        path = f"{prefix}{field.alias or name}"
        yield path
        yield from paths_of(sections_of(field.annotation), f"{path}.")
