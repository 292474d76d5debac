"""`domains` in a configuration: the spelling for a run of several domains.

`domains: [{name: desk, weight: 2}, {name: trails}]` is section `domain` with the domain `several`
and these as its parts, so that a resolved configuration has one section. A list of one domain is
that domain alone. The domain itself checks its parts when it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, cast

from pydantic import ConfigDict, Field, TypeAdapter, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from genenv_core.config.sections.section import Section
from genenv_core.errors import ConfigError
from genenv_core.machine.wrong_values import worded

DOMAINS = "domains"

LABEL = worded(
    "^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$",
    "up to 40 letters, digits, hyphens and underscores, a letter or a digit first",
)
"""Labels that a domain may have in a run of several."""


def _without_default(schema: dict[str, Any]) -> None:
    """Remove a default, so that a form sends only what a person filled in."""
    schema.pop("default", None)


class DomainEntry(Section):
    """One of the domains of a run, as forms and editors offer it.

    The domain `several` reads the entry itself, and has the same fields and bounds.
    """

    model_config = ConfigDict(populate_by_name=False)

    name: str = Field(min_length=1, max_length=1000)
    """Its name, as in `domain.name`."""
    label: str | SkipJsonSchema[None] = Field(
        default=None, alias="as", pattern=LABEL, json_schema_extra=_without_default
    )
    """Its label in the run; empty: the domain's own name."""
    # A whole number stays one: another spelling of a configuration is another run.
    weight: Annotated[int | float, WithJsonSchema({"type": "number", "exclusiveMinimum": 0})] = (
        Field(default=1, gt=0, json_schema_extra=_without_default)
    )
    """Its share of the run, against the weights of the others; empty: 1."""
    options: dict[str, Any] | SkipJsonSchema[None] = Field(
        default=None, json_schema_extra=_without_default
    )
    """Options of the domain itself."""

    @property
    def given(self) -> dict[str, Any]:
        """Return what a person filled in, as configuration files spell it."""
        return self.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)


LISTED = (
    "Several domains instead of section domain, each with a share of the run by its weight. A list "
    "of one is that domain."
)
"""The description of the list, in forms and in the schema."""


def with_the_list(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of configurations with the list `domains` beside section `domain`."""
    entries = TypeAdapter(list[DomainEntry]).json_schema(ref_template="#/$defs/{model}")
    fields: dict[str, Any] = {}
    for name, field in schema["properties"].items():
        fields[name] = field
        if name == "domain":
            own = {"title": "Domains", "description": LISTED, "minItems": 1}
            fields[DOMAINS] = {k: v for k, v in entries.items() if k != "$defs"} | own
    return schema | {"properties": fields, "$defs": schema["$defs"] | entries["$defs"]}


_ALONE = {"name", "options", "weight"}
"""Fields that the entry of a single domain may have; its weight has no effect."""


def with_one_section(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in which section `domain` replaces the list `domains`, if there is one.

    Raises ConfigError for values that have both, and for anything but a list of domains.
    """
    one_or_the_other(str(name) for name in values)
    if DOMAINS not in values:
        return dict(values)
    return {
        ("domain" if name == DOMAINS else name): _section(value) if name == DOMAINS else value
        for name, value in values.items()
    }


def one_or_the_other(names: Iterable[str], where: str = "") -> None:
    """Raise ConfigError where fields of both spellings are given together."""
    given = sorted(name for name in names if name.partition(".")[0] in ("domain", DOMAINS))
    if len({name.partition(".")[0] for name in given}) > 1 or any(
        name.startswith(f"{DOMAINS}.") for name in given
    ):
        opens = f"{where}: " if where else ""
        raise ConfigError(
            f"{opens}{' and '.join(given)}: name one domain by section domain, or several by the "
            "list domains, with their options in it; not both"
        )


def _section(domains: object) -> dict[str, Any]:
    entries = cast("list[Any]", domains) if isinstance(domains, list) else []
    if not entries or not all(isinstance(one, Mapping) and "name" in one for one in entries):
        raise ConfigError(
            f"domains {domains!r:.200}: give a list of domains, as in "
            "[{name: desk, weight: 2}, {name: trails, options: {max_looks: 4}}]"
        )
    if len(entries) == 1 and set(entries[0]) <= _ALONE:
        return {"name": entries[0]["name"], "options": entries[0].get("options") or {}}
    return {"name": "several", "options": {"parts": [dict(one) for one in entries]}}
