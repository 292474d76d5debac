"""Stage keys: the content address of a stage's inputs, decodable into its parts.

The key has neither run id nor root, so runs with one configuration share stages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from genenv_core.canonical import canonical_json, digest, leaves
from genenv_core.storage.records.manifest import FORMAT


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
    """Return everything that a stage's result depends on, as readable values.

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
    """Return what changed between two keys' parts, one line each: `config.rwr.steps 8 -> 4`.

    Keys differ if and only if there is a line, as `changed` compares them.
    """
    return [
        f"{name} {_short(before)} -> {_short(after)}"
        for name, (before, after) in changed(old, new).items()
    ]


def changed(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, tuple[bytes | None, bytes | None]]:
    """Return dotted path -> canonical JSON of each leaf that differs, in both keys' parts.

    It compares values as the digest sees them, and takes mappings and sequences apart down to their
    leaves. A key without a draw is one of the first draw, 0.
    """
    before, after = _flat(old), _flat(new)
    return {
        name: (before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    }


def _flat(parts: Mapping[str, Any]) -> dict[str, bytes]:
    return {path: canonical_json(leaf) for path, leaf in leaves({"draw": 0, **parts})}


def _short(leaf: bytes | None) -> str:
    if leaf is None:
        return "absent"
    value = json.loads(leaf)
    text = value if isinstance(value, str) else leaf.decode()
    return re.sub(r"[0-9a-f]{64}", lambda found: found[0][:12], text)[:80]
