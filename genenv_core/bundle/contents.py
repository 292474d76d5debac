"""The contents of a bundle: writes parts as members of the file, and reads them with every check.

| member | what it is |
|---|---|
| `statement.json` | the in-toto statement, which names every other member by its digest |
| `config.yaml` | the resolved configuration, without what belongs to a machine |
| `stages/EPOCH-STAGE.json` | the manifest of each finished stage: its key's parts, its digests |
| `machine.json` | Python and processor |
| `locks/` | the installed packages, and in genenv's repository the locks with hashes |
| `code/`, `plugin/` | the sources of genenv, and those of a domain of one's own |
| `cards/` | a model card for each published checkpoint |

It holds no weights, no tables and no data of people, only their digests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from genenv_core.bundle import sealed_zip
from genenv_core.bundle.statement import (
    MATERIALS,
    STATEMENT,
    Facts,
    config_of,
    facts_of,
    listed,
    make_statement,
    subjects,
)
from genenv_core.canonical import readable_json, sha256
from genenv_core.errors import IntegrityError
from genenv_core.machine.json_files import json_object
from genenv_core.storage.records.keys import stage_key
from genenv_core.storage.records.manifest import Manifest

CONFIG, MACHINE = "config.yaml", "machine.json"
STAGES = "stages/"

Place = tuple[int, str]
"""Epoch and stage."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A bundle: `stages` by epoch and stage, in the order of the run; `files` by name.

    `files` are the members below `code/`, `plugin/`, `locks/` and `cards/`.
    """

    facts: Facts
    config: dict[str, Any]
    stages: dict[Place, Manifest]
    machine: dict[str, str]
    files: dict[str, bytes]

    @property
    def tables(self) -> int:
        """Return the number of tables of all stages."""
        return sum(len({p.table for p in one.parts if p.table}) for one in self.stages.values())

    @property
    def checkpoints(self) -> int:
        """Return the number of checkpoints of all stages."""
        return sum(len(one.checkpoints) for one in self.stages.values())

    @property
    def last(self) -> Place:
        """Return the last stage of the bundle."""
        return list(self.stages)[-1]


def write(contents: Contents) -> bytes:
    """Return a bundle as the bytes of its file."""
    members = {
        CONFIG: rendered(contents.config),
        MACHINE: readable_json(contents.machine),
        **{stage_member(*place): one.to_bytes() for place, one in contents.stages.items()},
        **contents.files,
    }
    statement = make_statement(contents.facts, contents.config, contents.stages, members)
    return sealed_zip.pack({**members, STATEMENT: readable_json(statement)})


def read(data: bytes) -> Contents:
    """Return the bundle in a file's bytes; raises IntegrityError unless all of it fits together.

    It runs, imports and unpickles nothing, and does not parse the YAML.
    """
    members = sealed_zip.unpack(data)
    try:
        return _read(members)
    except (RecursionError, ValueError, TypeError, OverflowError) as error:
        said = f"{type(error).__name__}: {error}"[:160]
        raise IntegrityError(f"what is in it cannot be read ({said!a})") from error


def _read(members: Mapping[str, bytes]) -> Contents:
    statement = _json(members, STATEMENT)
    _check_listed(members, statement)
    config = config_of(statement)
    if members.get(CONFIG) != rendered(config):
        raise IntegrityError(f"{CONFIG} is not the configuration that {STATEMENT} names")
    facts = facts_of(statement)
    if (config.get("seed"), config.get("run_id")) != (facts.seed, facts.run_id):
        raise IntegrityError(f"{STATEMENT} names another seed or run than its configuration")
    stages = _stages(members, facts.keys)
    if statement["subject"] != subjects(stages):
        raise IntegrityError(f"{STATEMENT} names other outputs than the manifests of {STAGES}")
    machine = {str(name): str(value) for name, value in _json(members, MACHINE).items()}
    files = {name: content for name, content in members.items() if name.startswith(MATERIALS)}
    return Contents(facts, config, stages, machine, files)


def rendered(config: Mapping[str, Any]) -> bytes:
    """Return a configuration as the bytes of its file."""
    return yaml.safe_dump(dict(config), sort_keys=True, allow_unicode=True).encode()


def stage_member(epoch: int, stage: str) -> str:
    """Return the name of the member with a stage's manifest."""
    return f"{STAGES}{epoch:05d}-{stage}.json"


def _json(members: Mapping[str, bytes], name: str) -> dict[str, Any]:
    if name not in members:
        raise IntegrityError(f"it has no {name}")
    try:
        return json_object(members[name])
    except ValueError as error:
        raise IntegrityError(f"{name} {error}") from error


def _check_listed(members: Mapping[str, bytes], statement: Mapping[str, Any]) -> None:
    """Raise IntegrityError unless the statement names each other member by its digest."""
    named = listed(statement)
    held = {name: sha256(content) for name, content in members.items() if name != STATEMENT}
    for name in sorted(named.keys() | held.keys()):
        if name not in held:
            raise IntegrityError(f"{STATEMENT} names {name}, which is not in it")
        if name not in named:
            raise IntegrityError(f"{name} is in it, and {STATEMENT} does not name it")
        if named[name] != held[name]:
            raise IntegrityError(f"{name} has another digest than {STATEMENT} says")


def _stages(members: Mapping[str, bytes], keys: Mapping[Place, str]) -> dict[Place, Manifest]:
    """Return the manifests; raises IntegrityError unless they have the keys of the statement."""
    found: dict[Place, Manifest] = {}
    named = {stage_member(*place): place for place in keys}
    extra = {name for name in members if name.startswith(STAGES)} ^ named.keys()
    if extra or not named:
        raise IntegrityError(f"{STATEMENT} names other stages than {STAGES} has")
    for name, (epoch, stage) in named.items():
        try:
            one = Manifest.from_bytes(members[name])
        except (IntegrityError, RecursionError) as error:
            raise IntegrityError(f"{name}: {error}") from error
        key = keys[epoch, stage]
        place = one.key_parts.get("epoch"), one.key_parts.get("stage"), one.stage
        if (one.key, stage_key(one.key_parts)) != (key, key) or place != (epoch, stage, stage):
            raise IntegrityError(f"{name} is not the output of the key that {STATEMENT} names")
        found[epoch, stage] = one
    return found
