"""Makes one domain from the parts that a configuration names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from genenv_core.domains.kit.several.abilities import abilities_of
from genenv_core.domains.kit.several.joined import SeveralDomains
from genenv_core.domains.protocol import PartOfSeveral
from genenv_core.domains.registry import SEVERAL, get_domain
from genenv_core.domains.shares import Shares
from genenv_core.errors import ConfigError
from genenv_core.machine.wrong_values import refusal, worded
from genenv_core.record import Record

LABEL = worded(
    "^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$",
    "up to 40 letters, digits, hyphens and underscores, a letter or a digit first",
)


class SeveralPart(Record, use_attribute_docstrings=True):
    """One of several domains."""

    name: str = Field(min_length=1, max_length=1000)
    """Its name, as in `domain.name`."""
    label: str | None = Field(default=None, alias="as", pattern=LABEL)
    """Its name in the run; None: the domain's own name."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Its share of the run, relative to the weights of the others."""
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Options of the domain itself."""


class SeveralOptions(Record, use_attribute_docstrings=True):
    """Options of several domains; the section `domains` of a configuration gives them."""

    parts: list[SeveralPart] = Field(min_length=2)
    """The domains."""


def several(options: Mapping[str, Any]) -> SeveralDomains:
    """Return the domain made of those in `options.parts`.

    `abilities` says which optional protocols it has. Raises ConfigError, which names the entry of
    `domains`.
    """
    try:
        given = SeveralOptions.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError(_explained(error)) from error
    parts = [_part(place, part) for place, part in enumerate(given.parts)]
    label, count = Counter(part.label for part in parts).most_common(1)[0]
    if count > 1:
        raise ConfigError(
            f"domains: {count} of them are called {label!r}: give each a name of its own, as in "
            f"{{name: {label}, as: {label}_hard}}"
        )
    shares = Shares({p.label: one.weight for p, one in zip(parts, given.parts, strict=True)})
    bases = tuple(abilities_of(parts))
    made: type[SeveralDomains] = type(SEVERAL.capitalize(), bases, {"__module__": __name__})
    return made(parts, shares, given.model_dump(mode="json", by_alias=True))


def _part(place: int, given: SeveralPart) -> PartOfSeveral:
    if given.name == SEVERAL:
        raise ConfigError(f"domains[{place}].name {SEVERAL!r}: name the domains themselves")
    try:
        domain = get_domain(given.name, given.options)
    except ConfigError as error:
        said = str(error).removeprefix("domain.")
        raise ConfigError(f"domains[{place}].{said}") from error
    label = given.label or str(domain.name)
    if not re.fullmatch(LABEL, label):
        raise ConfigError(
            f"domains[{place}].name {given.name!r}: the domain calls itself {label!r}, which "
            "cannot stand before its tasks: give it a short name of letters, digits, _ and -, as "
            "in {name: ..., as: units}"
        )
    return PartOfSeveral(label, given.name, domain)


def _explained(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "missing" and first["loc"] == ("parts",):
        return "domains is missing: name at least two, as in domains=[{name: desk}, {name: trails}]"
    _, *inner = first["loc"] or ("parts",)
    place = "domains" + "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in inner)
    if first["type"] == "extra_forbidden":
        known = ", ".join(f.alias or name for name, f in SeveralPart.model_fields.items())
        return f"{place} is no field; those of a domain are {known}"
    return f"{place}: {refusal(first)}"
