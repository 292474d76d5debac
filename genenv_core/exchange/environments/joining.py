"""The domains of an exported folder as one; this module travels in the folder.

A folder may hold several domains of a run. Its tasks name their domain, as in the run, and the
folder makes each domain by the module and the name that stand in `ABOUT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genenv_core.domains.kit.several.abilities import abilities_of
from genenv_core.domains.kit.several.joined import SeveralDomains
from genenv_core.domains.protocol import PartOfSeveral
from genenv_core.domains.shares import Shares
from genenv_core.exchange.environments.playing import made_domain


def joined(options: Mapping[str, Any]) -> SeveralDomains:
    """Return the domain made of `options["parts"]`.

    Each part has a `label`, by which tasks name it, `name`, `weight`, and what `made_domain` takes.
    """
    parts = [
        PartOfSeveral(
            one["label"],
            one["name"],
            made_domain(one["module"], one["attribute"], one["options"]),
        )
        for one in options["parts"]
    ]
    shares = Shares({one["label"]: one["weight"] for one in options["parts"]})
    made: type[SeveralDomains] = type("Joined", tuple(abilities_of(parts)), {})
    return made(parts, shares, options)
