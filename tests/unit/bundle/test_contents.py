"""What is in a bundle.

Invariants: what is written is read again, equal bundles to the byte; the statement keeps the rules
of in-toto and SLSA, and names every other member, every table and every checkpoint file by digest;
a rewritten bundle with a right seal is refused unless all of it fits together; nothing of a hostile
one is parsed as YAML, and deep nesting is no crash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import pytest

from genenv_core.bundle import sealed_zip
from genenv_core.bundle.contents import Contents, read, stage_member, write
from genenv_core.bundle.statement import BUILD, STATEMENT, listed
from genenv_core.canonical import readable_json, sha256
from genenv_core.errors import IntegrityError
from genenv_core.storage.seal import seal
from tests.mutations import mutation
from tests.unit.bundle.builders import small_contents

CONTENTS = "genenv_core/bundle/contents.py"

ROLLOUT = stage_member(1, "rollout")


@pytest.fixture(name="held", scope="module")
def a_bundle(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return small_contents(tmp_path_factory.mktemp("root"), given="d" * 64)


def rewritten(contents: Contents, *, names: bool = True, **members: bytes | None) -> bytes:
    """Return the file with other members (None: without) and a right seal.

    With `names`, the statement has their digests, as a careful forger would leave it.
    """
    found: dict[str, bytes] = sealed_zip.unpack(write(contents))
    changed = {name.replace("__", "/"): content for name, content in members.items()}
    found = {name: content for name, content in found.items() if changed.get(name, b"") is not None}
    found |= {name: content for name, content in changed.items() if content is not None}
    if names:
        statement = json.loads(found[STATEMENT])
        for one in (
            *statement["predicate"]["buildDefinition"]["resolvedDependencies"],
            *statement["predicate"]["runDetails"]["byproducts"],
        ):
            if one["name"] in found and "sha256" in one.get("digest", {}):
                one["digest"]["sha256"] = sha256(found[one["name"]])
        found[STATEMENT] = readable_json(statement)
    return sealed_zip.pack(found)


def restated(contents: Contents, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the file with a changed statement and a right seal."""
    found = sealed_zip.unpack(write(contents))
    statement = json.loads(found[STATEMENT])
    change(statement)
    return sealed_zip.pack({**found, STATEMENT: readable_json(statement)})


def test_what_is_written_is_read_again(held: Contents) -> None:
    data = write(held)
    assert read(data) == held
    assert write(read(data)) == data
    assert (len(held.stages), held.tables, held.checkpoints) == (12, 3, 4)
    assert held.last == (1, "publish")


def test_the_statement_keeps_the_published_rules(held: Contents) -> None:
    members = sealed_zip.unpack(write(held))
    statement = json.loads(members[STATEMENT])
    # in-toto Statement v1: fields, their types, unique names of subjects, digests in lower case.
    assert statement.keys() == {"_type", "subject", "predicateType", "predicate"}
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    names = [one["name"] for one in statement["subject"]]
    assert len(set(names)) == len(names) > 0
    assert all(
        re.fullmatch("[0-9a-f]{64}", one["digest"]["sha256"]) for one in statement["subject"]
    )
    # SLSA Provenance v1: required fields, URIs, times; each descriptor has uri, digest or content.
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    predicate = statement["predicate"]
    assert predicate.keys() == {"buildDefinition", "runDetails"}
    definition, details = predicate["buildDefinition"], predicate["runDetails"]
    assert definition.keys() == {
        "buildType", "externalParameters", "internalParameters", "resolvedDependencies"
    }  # fmt: skip
    assert details.keys() == {"builder", "metadata", "byproducts"}
    assert details["builder"].keys() <= {"id", "builderDependencies", "version"}
    for uri in (definition["buildType"], details["builder"]["id"]):
        assert urlsplit(uri).scheme in ("urn", "pkg")
    assert details["metadata"].keys() == {"invocationId", "startedOn", "finishedOn"}
    for name in ("startedOn", "finishedOn"):
        assert datetime.fromisoformat(details["metadata"][name]).tzinfo is not None
    for one in (*definition["resolvedDependencies"], *details["byproducts"]):
        assert one.keys() <= {"name", "uri", "digest", "content", "annotations", "mediaType"}
        assert one.keys() & {"uri", "digest", "content"}
    by_name = {one["name"]: one for one in definition["resolvedDependencies"]}
    assert by_name["models.agent"]["digest"] == {"genenvInput": "d" * 64}
    assert by_name["torch"]["uri"] == "pkg:pypi/torch@2.13.0%2Bcpu"


def test_the_statement_names_every_member_and_every_output(held: Contents) -> None:
    members = sealed_zip.unpack(write(held))
    statement = json.loads(members[STATEMENT])
    assert listed(statement) == {n: sha256(m) for n, m in members.items() if n != STATEMENT}
    parts = [part.sha256 for one in held.stages.values() for part in one.parts]
    assert [one["digest"]["sha256"] for one in statement["subject"]] == parts
    assert {name.split("/")[0] for name in members if "/" in name} == {
        "stages", "locks", "code", "plugin", "cards"
    }  # fmt: skip
    assert not [name for name in members if name.endswith((".parquet", ".safetensors"))]


@mutation(
    "a bundle's statement need not know its members", CONTENTS,
    "    _check_listed(members, statement)\n", "",
)  # fmt: skip
@pytest.mark.parametrize(
    ("members", "names", "said"),
    [
        ({"code__genenv_core__a.py": b"X = 2\n"}, False, "code/genenv_core/a.py has another"),
        ({"code__more.py": b""}, False, "does not name it"),
        ({"plugin__mine.py": None}, False, "names plugin/mine.py, which is not in it"),
        ({"statement.json": None}, False, "has no statement.json"),
        ({"statement.json": b"[" * 100_000}, False, "is no JSON"),
        ({"statement.json": b'{"a": "\\ud800"}'}, False, "is not of genenv's form"),
        ({"statement.json": b"[]"}, False, "is no JSON object"),
        ({"statement.json": b"{}"}, False, "is not of genenv's form"),
        ({"config.yaml": b"seed: 1\n"}, True, "is not the configuration"),
        ({"machine.json": b"{" * 100_000}, True, "machine.json is no JSON"),
        ({"stages__00001-rollout.json": b"{}"}, True, "no sealed record"),
        ({"stages__00001-rollout.json": b"[" * 100_000}, True, "00001-rollout.json: "),
    ],
)
def test_a_rewritten_member_is_refused_with_a_right_seal(
    held: Contents, members: dict[str, Any], names: bool, said: str
) -> None:
    with pytest.raises(IntegrityError, match=re.escape(said)):
        read(rewritten(held, names=names, **members))


@mutation(
    "a bundle's manifest may be of another key", CONTENTS,
    "if (one.key, stage_key(one.key_parts)) != (key, key) or place", "if place",
)  # fmt: skip
@mutation(
    "a bundle's statement may name other outputs", CONTENTS,
    'if statement["subject"] != subjects(stages):', "if False:",
)  # fmt: skip
def test_another_manifest_is_refused(held: Contents) -> None:
    rollout = held.stages[1, "rollout"]
    other = rollout.model_copy(update={"key_parts": {**rollout.key_parts, "seed": 1}})
    with pytest.raises(IntegrityError, match="not the output of the key"):
        read(rewritten(held, **{"stages__00001-rollout.json": other.to_bytes()}))
    swapped = held.stages[1, "score"].to_bytes()
    with pytest.raises(IntegrityError, match="not the output of the key"):
        read(rewritten(held, **{"stages__00001-rollout.json": swapped}))
    longer = {**rollout.model_dump(mode="json"), "facts": {"deep": 1}}
    assert read(rewritten(held, **{"stages__00001-rollout.json": seal(longer)}))  # facts alone
    parts = (rollout.parts[0].model_copy(update={"sha256": "0" * 64}), *rollout.parts[1:])
    other = rollout.model_copy(update={"parts": parts})
    with pytest.raises(IntegrityError, match="names other outputs"):
        read(rewritten(held, **{"stages__00001-rollout.json": other.to_bytes()}))


def _inner(statement: dict[str, Any]) -> dict[str, Any]:
    return statement["predicate"]["buildDefinition"]["internalParameters"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.update(_type="x"), "no in-toto statement"),
        (lambda s: s.update(predicateType="x"), "no in-toto statement"),
        (lambda s: s["subject"].pop(), "names other outputs"),
        (lambda s: s["predicate"]["buildDefinition"].update(buildType="urn:genenv:run:v9"), BUILD),
        (lambda s: _inner(s).update(seed=1), "seed"),
        (lambda s: _inner(s)["stages"].pop(1), "other stages"),
        (lambda s: _inner(s)["stages"][0].update(seed="1"), "seeds that do not follow"),
        (lambda s: _inner(s)["stages"][0].update(key="0" * 64), "not the output of the key"),
        (lambda s: _inner(s).update(draws=[1]), "not of genenv's form"),
        (lambda s: _inner(s)["until"].update(epoch=0), "stages that no run has"),
        (
            lambda s: s["predicate"]["runDetails"]["builder"]["version"].update(genenv="\x1b[2J"),
            "where a name or a number belongs",
        ),
        (lambda s: s["predicate"].pop("runDetails"), "not of genenv's form"),
        (lambda s: s.update(predicate=7), "not of genenv's form"),
        (
            lambda s: s["predicate"]["runDetails"]["metadata"].update(invocationId="other"),
            "another seed or run",
        ),
    ],
)
def test_a_rewritten_statement_is_refused_with_a_right_seal(
    held: Contents, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    with pytest.raises(IntegrityError, match=said):
        read(restated(held, change))


def test_what_a_stranger_may_change_changes_the_seal(held: Contents) -> None:
    machine = replace(held, machine={**held.machine, "capability": "AVX2"})
    assert read(write(machine)).machine["capability"] == "AVX2"
    assert write(machine)[-64:] != write(held)[-64:]
