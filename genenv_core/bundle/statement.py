"""The statement of a bundle, for tools that read attestations: outputs, inputs and the builder.

It is an in-toto Statement v1 (in-toto/attestation, spec/v1/statement.md: `_type`, `subject` with
`name` and `digest`, `predicateType`, `predicate`) whose predicate is SLSA Provenance v1
(slsa.dev/spec/v1.0/provenance: `buildDefinition` with `buildType`, `externalParameters`,
`internalParameters`, `resolvedDependencies`; `runDetails` with `builder`, `metadata`,
`byproducts`). Dependencies and byproducts are ResourceDescriptors, each with `uri`, `digest` or
`content`. genenv does not sign the statement: sign the file as it is, with any tool for in-toto.

Inputs from people have the digest `genenvInput`: of one file its SHA-256, of a folder that of the
canonical JSON of [name, SHA-256] of its files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from genenv_core.canonical import sha256
from genenv_core.config.moved import MOVED
from genenv_core.config.stages import STAGES
from genenv_core.config.until import Until
from genenv_core.errors import IntegrityError
from genenv_core.ids import stage_seed
from genenv_core.storage.records.manifest import Manifest

STATEMENT = "statement.json"
TYPE = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD = "urn:genenv:run:v1"
"""The kind of build; docs/bundles.md describes it. Its number rises with the layout of bundles."""

MATERIALS = ("code/", "plugin/", "locks/", "cards/")
_DEPENDENCIES = ("code/", "plugin/", "locks/", "config.yaml")

GIVEN = {
    "base_file": "data.base_file",
    "agent_model": "models.agent",
    "env_model": "models.env",
    "offline": "teacher.file",
    "teacher": "teacher.model",
}
"""Inputs of stages that come from people, and the field that names each."""

Stages = Mapping[tuple[int, str], Manifest]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a statement says beside the configuration and the digests.

    `keys` are those of the stages by epoch and stage, in the order of the run. `given` are digests
    by the field that names the input. `draws` are by STAGE@EPOCH. `until` is the last stage, and
    `epochs` the planned number. Times are UTC texts.
    """

    run_id: str
    seed: int
    epochs: int
    until: Until
    started: str
    finished: str
    version: str
    commit: str
    keys: dict[tuple[int, str], str]
    draws: dict[str, int] = field(default_factory=dict[str, int])
    given: dict[str, str] = field(default_factory=dict[str, str])
    packages: dict[str, str] = field(default_factory=dict[str, str])


def make_statement(
    facts: Facts, config: Mapping[str, Any], stages: Stages, members: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return the statement on a bundle with these members."""
    version = {"genenv": facts.version} | ({"commit": facts.commit} if facts.commit else {})
    materials = [name for name in sorted(members) if name.startswith(_DEPENDENCIES)]
    return {
        "_type": TYPE,
        "subject": subjects(stages),
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD,
                "externalParameters": {"config": dict(config)},
                "internalParameters": {
                    "seed": facts.seed,
                    "epochs": facts.epochs,
                    "until": {"epoch": facts.until.epoch, "stage": facts.until.stage},
                    "draws": facts.draws,
                    "stages": [
                        {
                            "epoch": epoch,
                            "stage": stage,
                            "key": key,
                            # As text: many readers of JSON lose digits of a number of 63 bits.
                            "seed": str(_seed(facts, epoch, stage)),
                        }
                        for (epoch, stage), key in facts.keys.items()
                    ],
                },
                "resolvedDependencies": [
                    *_members(materials, members),
                    *(
                        {
                            "name": name,
                            "digest": {"genenvInput": digest},
                            "annotations": {"kind": "given"},
                        }
                        for name, digest in sorted(facts.given.items())
                    ),
                    *(
                        {"name": name, "uri": f"pkg:pypi/{name}@{number.replace('+', '%2B')}"}
                        for name, number in sorted(facts.packages.items())
                    ),
                ],
            },
            "runDetails": {
                "builder": {"id": f"pkg:pypi/genenv@{facts.version}", "version": version},
                "metadata": {
                    "invocationId": facts.run_id,
                    "startedOn": facts.started,
                    "finishedOn": facts.finished,
                },
                "byproducts": _members(sorted(set(members) - set(materials)), members),
            },
        },
    }


def subjects(stages: Stages) -> list[dict[str, Any]]:
    """Return every table and checkpoint file of every stage, by name, with its digest."""
    return [
        {"name": f"{epoch:05d}/{stage}/{part.name}", "digest": {"sha256": part.sha256}}
        for (epoch, stage), manifest in stages.items()
        for part in manifest.parts
    ]


def given_to(stages: Stages) -> dict[str, str]:
    """Return the digest of each input from people, by the field that names it."""
    found: dict[str, str] = {}
    for manifest in stages.values():
        inputs = manifest.key_parts.get("inputs", {})
        for name, field_name in GIVEN.items():
            value = inputs.get(name)
            if isinstance(value, Mapping):
                value = cast("Mapping[str, Any]", value).get("model")
            if isinstance(value, str):
                found[field_name] = value
    return found


def listed(statement: Mapping[str, Any]) -> dict[str, str]:
    """Return the digest of each member that a statement names; raises IntegrityError."""
    with _Reading():
        definition = statement["predicate"]["buildDefinition"]
        if (statement["_type"], statement["predicateType"]) != (TYPE, PREDICATE):
            raise IntegrityError(f"{STATEMENT} is no in-toto statement with SLSA provenance v1")
        if definition["buildType"] != BUILD:
            raise IntegrityError(
                f"{STATEMENT} is of the kind {str(definition['buildType'])[:60]!a}, and this "
                f"genenv reads {BUILD}: install the genenv that made it"
            )
        byproducts = statement["predicate"]["runDetails"]["byproducts"]
        return {
            one["name"]: one["digest"]["sha256"]
            for one in (*definition["resolvedDependencies"], *byproducts)
            if "sha256" in one.get("digest", {})
        }


def config_of(statement: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that a statement names; raises IntegrityError."""
    with _Reading():
        definition = statement["predicate"]["buildDefinition"]
        return dict(definition["externalParameters"]["config"])


def facts_of(statement: Mapping[str, Any]) -> Facts:
    """Return what a statement says; raises IntegrityError for one that genenv did not write."""
    with _Reading():
        definition = statement["predicate"]["buildDefinition"]
        inner, details = definition["internalParameters"], statement["predicate"]["runDetails"]
        metadata, version = details["metadata"], details["builder"]["version"]
        dependencies = definition["resolvedDependencies"]
        facts = Facts(
            run_id=str(metadata["invocationId"]),
            seed=int(inner["seed"]),
            epochs=int(inner["epochs"]),
            until=Until.model_validate(inner["until"]),
            started=str(metadata["startedOn"]),
            finished=str(metadata["finishedOn"]),
            version=str(version["genenv"]),
            commit=str(version.get("commit", "")),
            keys={(int(one["epoch"]), str(one["stage"])): one["key"] for one in inner["stages"]},
            draws={str(name): int(number) for name, number in inner["draws"].items()},
            given={
                MOVED.get(str(one["name"]), str(one["name"])): str(one["digest"]["genenvInput"])
                for one in dependencies
                if "genenvInput" in one.get("digest", {})
            },
            packages={
                str(one["name"]): str(one["uri"]).rpartition("@")[2].replace("%2B", "+")
                for one in dependencies
                if "uri" in one
            },
        )
        _check_words(facts)
        seeds = [int(one["seed"]) for one in inner["stages"]]
        if seeds != [_seed(facts, *place) for place in facts.keys]:
            raise IntegrityError(f"{STATEMENT} names seeds that do not follow from the run's seed")
        return facts


def _check_words(facts: Facts) -> None:
    """Raise IntegrityError for words that no run has and that could steer a terminal."""
    last = list(facts.keys)[-1:]
    if any(stage not in STAGES for _, stage in facts.keys) or last != [
        (facts.until.epoch, facts.until.stage)
    ]:
        raise IntegrityError(f"{STATEMENT} names stages that no run has")
    words = (facts.run_id, facts.version, facts.commit or "-", facts.started, facts.finished)
    more = (*facts.given, *facts.given.values(), *facts.packages, *facts.packages.values())
    for word in (*words, *more, *facts.draws):
        if not re.fullmatch(r"[\w.+!:@-]{1,120}", word, re.ASCII):
            raise IntegrityError(f"{STATEMENT} has {word[:60]!a} where a name or a number belongs")


class _Reading:
    """Turns errors of reading a statement of another form into IntegrityError."""

    def __enter__(self) -> None:
        """Begin to read."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise IntegrityError where reading failed."""
        if isinstance(error, KeyError | TypeError | ValueError | AttributeError | OverflowError):
            said = f"{type(error).__name__}: {error}"[:160]
            raise IntegrityError(f"{STATEMENT} is not of genenv's form ({said})") from error


def _seed(facts: Facts, epoch: int, stage: str) -> int:
    """Return the seed from which a stage derives its own."""
    draw = facts.draws.get(f"{stage}@{epoch}", 0)
    return stage_seed(facts.seed, stage, epoch, *(("draw", draw) if draw else ()))


def _members(names: Iterable[str], members: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [{"name": name, "digest": {"sha256": sha256(members[name])}} for name in names]
