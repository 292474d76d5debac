"""`domains` in a configuration: the spelling for a run of several domains.

`domains: [{name: desk, weight: 2}, {name: trails}]` is section `domain` with the domain `several`
and these as its parts, so that a resolved configuration has one section. A list of one domain is
that domain alone. The domain itself checks its parts when it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from genenv_core.errors import ConfigError

DOMAINS = "domains"

_ALONE = {"name", "options", "weight"}
"""What an entry may say and still be the short form; a weight against nothing says nothing."""


def with_one_section(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in which section `domain` stands for `domains`, if they have that.

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
