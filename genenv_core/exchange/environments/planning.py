"""Plans an exported folder: which domains play its tasks, and the code of these."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genenv_core import __version__
from genenv_core.config.sections.rollout import ToolsConfig
from genenv_core.domains.protocol import Domain, JoinsDomains, ReadsFiles
from genenv_core.domains.registry import modules_of
from genenv_core.errors import ConfigError
from genenv_core.exchange.environments import EnvironmentFormat
from genenv_core.exchange.environments.harbor import folders
from genenv_core.exchange.environments.refusing import check_givable
from genenv_core.exchange.environments.sources import CopiedCode, copied
from genenv_core.plugins import DOMAINS, point_of
from genenv_core.types import JsonObject

ADAPTERS = {
    "openenv": "genenv_core.exchange.environments.openenv_app",
    "verifiers": "genenv_core.exchange.environments.verifiers_tasks",
    "harbor": "genenv_core.exchange.environments.harbor.serving",
}
"""The module that speaks a format; it travels in the folder."""

JOINING = ("genenv_core.exchange.environments.joining", "joined")
"""(module, function) that makes one domain of several in the folder; the module travels in it."""


@dataclass(frozen=True, slots=True)
class GivenDomain:
    """A domain that plays tasks of the folder, as the configuration of the run has it.

    `label` is its name in the run; in a run of several, the families of its tasks begin with it.
    """

    label: str
    name: str
    weight: float
    options: JsonObject
    domain: Domain

    @property
    def made_by(self) -> tuple[str, str]:
        """Return (module, attribute) of the object that makes it."""
        if ":" in self.name:
            return modules_of(self.name, self.domain)[-1], self.name.rpartition(":")[2]
        point = point_of(DOMAINS, self.name, "domain.name")
        return point.module, point.attr

    @property
    def places(self) -> list[str]:
        """Return the options that name a place on this machine, which others do not have."""
        return [name for name, value in self.options.items() if _is_place(value)]

    @property
    def files(self) -> list[Path]:
        """Return the files that it reads."""
        domain = self.domain
        return [Path(one) for one in domain.files] if isinstance(domain, ReadsFiles) else []

    @property
    def about(self) -> JsonObject:
        """Return the arguments of `made_domain`, and its name without its place on this machine."""
        module, attribute = self.made_by
        return {
            "name": os.path.basename(self.name),
            "module": module,
            "attribute": attribute,
            "options": {k: value for k, value in self.options.items() if k not in self.places},
        }


@dataclass(frozen=True, slots=True)
class PlannedFolder:
    """What to write, and under which names; `several` says whether tasks name their domains."""

    run: str
    format: EnvironmentFormat
    package: str
    config: Mapping[str, Any]
    domains: Sequence[GivenDomain]
    several: bool
    code: CopiedCode

    @property
    def labels(self) -> list[str]:
        """Return what the domains are called."""
        if self.several:
            return [one.label for one in self.domains]
        return [one.about["name"] for one in self.domains]

    @property
    def left_out(self) -> list[str]:
        """Return the options that the folder does not have."""
        before = {one.label: f"{one.label}." if self.several else "" for one in self.domains}
        return [f"{before[one.label]}{place}" for one in self.domains for place in one.places]

    @property
    def about(self) -> JsonObject:
        """Return the content of `ABOUT`."""
        return {
            "domain": ", ".join(self.labels),
            **self._made,
            "max_turns": self.config["rollout"]["max_turns"],
            "max_errors": self.config["tools"].get("max_errors", ToolsConfig().max_errors),
            "run_id": self.run,
            "genenv": __version__,
        }

    @property
    def image(self) -> folders.TaskImage:
        """Return what the images of Harbor share."""
        return folders.TaskImage(self.run, self.package, self.code, self.about)

    @property
    def _made(self) -> JsonObject:
        if self.several:
            parts = [one.about | {"label": one.label, "weight": one.weight} for one in self.domains]
            module, attribute = JOINING
            return {"module": module, "attribute": attribute, "options": {"parts": parts}}
        (only,) = (one.about for one in self.domains)
        return {name: only[name] for name in ("module", "attribute", "options")}


def planned_folder(
    run: str,
    format_: EnvironmentFormat,
    config: Mapping[str, Any],
    domain: Domain,
    labels: Sequence[str] = (),
) -> PlannedFolder:
    """Return what the folder of a run holds; of several domains those of these labels, or all.

    Raises ConfigError for a label that the run does not have, and for a domain that cannot be given
    away: its environment is a server, or it needs what no other machine has.
    """
    several = isinstance(domain, JoinsDomains)
    domains = _chosen(_domains(config["domain"], domain), several, labels)
    for one in domains:
        check_givable(one.domain, ", ".join(other.label for other in domains if other is not one))
    package = re.sub(r"\W", "_", f"tasks_{run}").lower()
    modules = [ADAPTERS[format_], *(JOINING[:1] if several else ())]
    for one in domains:
        modules += [one.made_by[0], type(one.domain).__module__]
    code = copied(modules, package, [file for one in domains for file in one.files])
    return PlannedFolder(run, format_, package, config, domains, several, code)


def _domains(section: Mapping[str, Any], domain: Domain) -> list[GivenDomain]:
    options: JsonObject = section.get("options") or {}
    if not isinstance(domain, JoinsDomains):
        return [GivenDomain(domain.name, section["name"], 1.0, options, domain)]
    entries: list[JsonObject] = options["parts"]
    return [
        GivenDomain(
            part.label,
            part.name,
            domain.shares.weights[part.label],
            dict(given.get("options") or {}),
            part.domain,
        )
        for part, given in zip(domain.parts, entries, strict=True)
    ]


def _chosen(
    domains: Sequence[GivenDomain], several: bool, labels: Sequence[str]
) -> list[GivenDomain]:
    """Return the domains of these labels, all without one; raises ConfigError."""
    known = ", ".join(one.label for one in domains)
    if labels and not several:
        raise ConfigError(f"--domain {labels[0]}: the run plays one domain, {known}: leave it out")
    for label in labels:
        if label not in {one.label for one in domains}:
            raise ConfigError(f"--domain {label}: the domains of the run are {known}: name these")
    return [one for one in domains if not labels or one.label in labels]


def _is_place(value: object) -> bool:
    return isinstance(value, str) and os.path.isabs(value) and os.path.exists(value)
