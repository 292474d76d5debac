"""Finds how two runs of a store differ: configuration, data, code, versions, and the first stage.

It reads the parts of the stages' keys, so it does not show a difference that changes no key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from genenv_core.config.moved import as_now
from genenv_core.errors import IntegrityError, NotFound
from genenv_core.storage import paths
from genenv_core.storage.records.branches import origin_of
from genenv_core.storage.records.keys import difference
from genenv_core.storage.records.manifest import Manifest
from genenv_core.storage.records.runs import TRACKED, RunLog, place_of
from genenv_core.storage.store.protocol import Store

GIVEN = ("base_file", "agent_model", "env_model", "offline", "teacher", "model", "simulator")
"""Inputs of stages that come from people: files and models."""

NO_SETTING = ("run_id", "root")
"""Fields of a configuration that always or never differ between two runs of one root."""

_Keys = Mapping[tuple[int, str], str]
"""The key of each stage, by epoch and stage."""

GONE = "its manifest is missing or damaged: `genenv verify` says what to do"


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """A stage of two runs whose keys differ, and which parts of them do."""

    epoch: int
    stage: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Differing:
    """What differs, a line each: `rwr.steps 16 -> 12`.

    Of `compared` stages, which both runs have, `same` have equal keys. `only` counts the stages
    that only one of them has. `branches` says of each where it branches off, or ''.
    """

    configuration: tuple[str, ...]
    data: tuple[str, ...]
    code: tuple[str, ...]
    versions: tuple[str, ...]
    same: int
    compared: int
    only: tuple[int, int]
    first: FirstDifference | None
    branches: tuple[str, str] = ("", "")


def differing(store: Store, one: str, other: str) -> Differing:
    """Return how the run `other` differs from the run `one`; raises NotFound for an unknown run."""
    runs = RunLog(store, one), RunLog(store, other)
    configs = [_settings(run.info().config) for run in runs]
    places = [dict(_places(run)) for run in runs]
    both = places[0].keys() & places[1].keys()
    first: FirstDifference | None = None
    data, code, versions = dict[str, None](), dict[str, None](), dict[str, None]()
    for found in _differences(store, *places):
        first = first or found
        stage = found.stage
        for line in found.reasons:
            kind, _, rest = line.partition(".")
            if kind == "inputs" and rest.split(" ")[0].split(".")[0] in GIVEN:
                data[rest] = None
            elif kind == "runtime":
                versions[rest] = None
            elif line.startswith("code "):
                code[f"{stage} {line.removeprefix('code ')}"] = None
    return Differing(
        configuration=tuple(difference(configs[0], configs[1])),
        data=tuple(data),
        code=tuple(code),
        versions=tuple(versions),
        same=sum(places[0][place] == places[1][place] for place in both),
        compared=len(both),
        only=(len(places[0]) - len(both), len(places[1]) - len(both)),
        first=first,
        branches=(_origin(store, one), _origin(store, other)),
    )


def first_difference(store: Store, one: str, other: str) -> FirstDifference | None:
    """Return the first stage of the run `other` that differs from the run `one`, or None.

    It reads only the parts of that stage's keys.
    """
    places = [dict(_places(RunLog(store, run))) for run in (one, other)]
    return next(_differences(store, *places), None)


def _differences(store: Store, one: _Keys, other: _Keys) -> Iterator[FirstDifference]:
    """Yield each stage that both runs have and that differs, in the order of a run."""
    for place in sorted(one.keys() & other.keys(), key=_order):
        if one[place] == other[place]:
            continue
        epoch, stage = place
        parts = [_parts(store, stage, keys[place]) for keys in (one, other)]
        lines = [GONE] if None in parts else difference(parts[0] or {}, parts[1] or {})
        yield FirstDifference(epoch, stage, tuple(lines))


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in as_now(config).items() if name not in NO_SETTING}


def _places(run: RunLog) -> Iterator[tuple[tuple[int, str], str]]:
    """Yield epoch and stage, and the key, of everything that a run has finished."""
    for epoch in run.epochs():
        for stage, key in run.keys(epoch).items():
            if stage != TRACKED:
                yield (epoch, stage), key


def _origin(store: Store, run: str) -> str:
    point = origin_of(store, run)
    return point.words if point else ""


def _order(place: tuple[int, str]) -> tuple[int, int]:
    """Return the place of a stage in a run, to sort by."""
    return place[0], place_of(place[1])


def _parts(store: Store, stage: str, key: str) -> dict[str, Any] | None:
    try:
        return Manifest.from_bytes(store.read(paths.manifest(stage, key))).key_parts
    except (NotFound, IntegrityError):
        return None
