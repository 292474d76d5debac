"""Stage keys: the content address of a stage's inputs, decodable into its parts.

The run id and the root are not in it, so runs with one configuration share stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genenv_core.storage.canonical import digest
from genenv_core.storage.manifest import FORMAT


def key_parts(
    *,
    stage: str,
    code: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, Any],
    seed: int,
    epoch: int,
    runtime: Mapping[str, Any],
) -> dict[str, Any]:
    """Return everything that a stage's result depends on, readable.

    `code` is the digest of the stage's source, `config` the dotted fields that it reads, `inputs`
    the digests of its input artifacts, `runtime` what else changes the numbers (library versions,
    processor kind).
    """
    return {
        "format": FORMAT,
        "stage": stage,
        "code": code,
        "config": dict(sorted(config.items())),
        "inputs": dict(sorted(inputs.items())),
        "seed": seed,
        "epoch": epoch,
        "runtime": dict(sorted(runtime.items())),
    }


def stage_key(parts: Mapping[str, Any]) -> str:
    """Return the hex sha256 of the canonical parts."""
    return digest(dict(parts))


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return what changed between two keys' parts, one line each: `config.rwr.steps 8 -> 4`."""
    before, after = _flat(old), _flat(new)
    lines: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name, "absent"), after.get(name, "absent")
        if was != now:
            lines.append(f"{name} {_short(was)} -> {_short(now)}")
    return lines


def _flat(parts: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for section, value in parts.items():
        if isinstance(value, Mapping):
            flat.update({f"{section}.{name}": item for name, item in value.items()})  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        else:
            flat[section] = value
    return flat


def _short(value: Any) -> str:
    text = str(value)
    return text[:12] if len(text) == 64 else text[:80]
