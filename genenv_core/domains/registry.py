"""Finds a domain: one of the entry-point group, or a class in a file or module.

All are entry points, loaded by name, so only the chosen domain's code counts in a stage's key. An
entry point is a callable that takes the mapping `domain.options` and returns a `Domain`. A package
registers it under the group `genenv.domains`, as genenv registers its own. A configuration can also
name a class by its place, without a package: `my_domain.py:Units` or `package.module:Units`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from inspect import signature
from itertools import chain
from typing import Any, cast

from genenv_core.domains.protocol import Domain, JoinsDomains
from genenv_core.errors import ConfigError
from genenv_core.machine.named_secrets import REFERENCES
from genenv_core.machine.plugin_failures import failures_named
from genenv_core.plugins import (
    DOMAINS,
    known_names,
    own_points,
    placed_point,
    point_of,
)

SEVERAL = "several"
"""The domain that joins others; the section `domains` of a configuration chooses it."""

PLACED = {
    SEVERAL: "genenv_core.domains.kit.several.several_domain:several",
    "exported_folder": "genenv_core.exchange.environments.held:HeldFolder",
    "verifiers_taskset": "genenv_core.exchange.environments.held:HeldTaskset",
}
"""Domains of genenv that no person names: `domains` chooses the first, and `genenv certify FOLDER`
with a model one of the others."""

OF_SERVERS = frozenset({"openenv", "ors", "nemo_gym"})
"""genenv's own domains that play an environment of somebody else, behind a server."""


def known_domains() -> list[str]:
    """Return the names that `get_domain` accepts, sorted; it loads no plug-in for that."""
    return known_names(DOMAINS)


def is_built_in(name: str, options: Mapping[str, Any] | None = None) -> bool:
    """Return whether a domain, or each of several, is part of genenv, and so tested with it.

    A domain of a server is not: the environment behind it is somebody else's. A caller asks a
    person before it uses such a domain, and tries it first.
    """
    names = [name]
    if name == SEVERAL:
        try:
            names = [part["name"] for part in (options or {})["parts"]]
        except (KeyError, TypeError):
            return False
    return all(one in own_points(DOMAINS) and one not in OF_SERVERS for one in names)


def options_in_keys(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a domain's options without those that decide nothing, for keys and versions.

    Where a server's key is decides nothing. Other domains may use the same names for other options,
    so they keep them.
    """
    if name == SEVERAL and isinstance(options.get("parts"), list):
        return {**options, "parts": [_part_in_keys(one) for one in options["parts"]]}
    if name not in OF_SERVERS:
        return dict(options)
    return {field: one for field, one in options.items() if field not in REFERENCES}


def _part_in_keys(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    fields = cast("dict[str, Any]", part)
    if not isinstance(fields.get("options"), dict):
        return fields
    given = cast("dict[str, Any]", fields["options"])
    return {**fields, "options": options_in_keys(str(fields.get("name")), given)}


def get_domain(name: str, options: Mapping[str, Any] | None = None) -> Domain:
    """Return the domain with its options; a built-in wins over a plug-in of the same name.

    It calls the class, or its `from_options`, with the options. The folder of a file, or for a
    module the current one, goes to the end of `sys.path`. Raises ConfigError for an unknown name, a
    plug-in that does not load, and options that the domain refuses.
    """
    point = _point(name)
    with failures_named("domain.name", name, point):
        made: Any = point.load()
        make: Any = getattr(made, "from_options", made)
        if wrong := _not_called_with_options(make):
            raise ConfigError(f"domain.name {name!r}: {point.value} {wrong}")
        return make(dict(options or {}))


def _not_called_with_options(make: Any) -> str:
    """Return what to do where a class or function does not take one mapping, else ''."""
    if not callable(make):
        return f"is {make!r:.60}, no class and no function: name the class of the domain"
    try:
        takes = signature(make)
    except (TypeError, ValueError):  # some builtins have none
        return ""
    try:
        takes.bind({})
    except TypeError:
        own = takes.replace(return_annotation=takes.empty)
        return (
            f"takes {own}, and genenv calls it with one mapping, domain.options ({{}} where none "
            "are set): write def __init__(self, options), or a class method from_options"
        )
    return ""


def modules_of(name: str, domain: Domain) -> list[str]:
    """Return the modules whose code a domain is: that of its class, and that of what made it.

    A plug-in may be a function, or a class that passes on what another module makes. Several
    domains give the modules of each.
    """
    if isinstance(domain, JoinsDomains):
        of_parts = (modules_of(part.name, part.domain) for part in domain.parts)
        return [type(domain).__module__, *chain.from_iterable(of_parts)]
    made_in = [] if is_built_in(name) else [_point(name).module]
    return [type(domain).__module__, *made_in]


def _point(name: str) -> EntryPoint:
    """Return the entry point of a domain; raises ConfigError unless there is exactly one."""
    if name in PLACED:
        return EntryPoint(name, PLACED[name], DOMAINS)
    if ":" in name:
        return placed_point(DOMAINS, name, "domain.name", "my_domain.py:Units")
    return point_of(
        DOMAINS,
        name,
        "domain.name",
        "; a class of your own is named by its place: my_domain.py:Units or package.module:Units",
    )
