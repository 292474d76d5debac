"""Finding a domain by name: the built-ins, then plug-ins of the entry-point group.

All are entry points, loaded by name, so only the chosen domain's code counts in a stage's key.
A plug-in is a callable that takes the mapping `domain.options` and returns a `Domain`, registered
by its package under the entry-point group `genenv.domains`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from genenv_core.domains.protocol import Domain
from genenv_core.errors import ConfigError, GenenvError

ENTRY_POINT_GROUP = "genenv.domains"

_BENCHMARKS = "genenv_core.domains.benchmarks"
_BUILT_IN = {
    "alfworld": f"{_BENCHMARKS}.alfworld:AlfworldDomain.from_options",
    "api_bank": f"{_BENCHMARKS}.api_bank:ApiBankDomain.from_options",
    "bamboogle": f"{_BENCHMARKS}.bamboogle:BamboogleDomain.from_options",
    "bfcl": f"{_BENCHMARKS}.bfcl:BfclDomain.from_options",
    "desk": "genenv_core.domains.desk:DeskDomain.from_options",
    "trails": "genenv_core.domains.trails:TrailsDomain.from_options",
    "travelplanner": f"{_BENCHMARKS}.travelplanner:TravelPlannerDomain.from_options",
}


def known_domains() -> list[str]:
    """Return the names that `get_domain` accepts, sorted; plug-ins are not loaded for it."""
    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def get_domain(name: str, options: Mapping[str, Any] | None = None) -> Domain:
    """Return the domain with its options; a built-in wins over a plug-in of the same name.

    Raises ConfigError when the name is unknown, a plug-in does not load, or options are refused.
    """
    if name in _BUILT_IN:
        points = [EntryPoint(name, _BUILT_IN[name], ENTRY_POINT_GROUP)]
    else:
        points = list(entry_points(group=ENTRY_POINT_GROUP, name=name))
    if not points:
        raise ConfigError(
            f"domain.name {name!r} is unknown; known: {', '.join(known_domains())} "
            f"(others come from packages with an entry point in {ENTRY_POINT_GROUP})"
        )
    if len({point.value for point in points}) > 1:
        raise ConfigError(
            f"domain.name {name!r} is offered by several packages "
            f"({', '.join(sorted(point.value for point in points))}): uninstall all but one"
        )
    try:
        return points[0].load()(dict(options or {}))
    except GenenvError:
        raise
    except Exception as error:  # a plug-in is foreign code: whatever it raises is named here
        raise ConfigError(
            f"domain.name {name!r}: the plug-in {points[0].value} failed with "
            f"{type(error).__name__}: {error}"
        ) from error
