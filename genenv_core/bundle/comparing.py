"""Says how a replay differs from its bundle: one stage's output, and the two installations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from genenv_core.bundle.sources import CODE, PLUGIN
from genenv_core.hiding import visible
from genenv_core.storage.records.code import source_digest
from genenv_core.storage.records.keys import difference
from genenv_core.storage.records.manifest import Manifest, Part

SHOWN = 6
"""Differences of a kind that a message lists; it counts the others."""

BITS = ("processor", "capability", "machine")
"""Facts of a machine that decide the last bits of sums: with others, results can differ."""

COUNT = ("numpy", "polars", "pyarrow", "safetensors", "tokenizers", "torch", "transformers", "trl")
"""Packages that compute results or write their files; messages name them first."""


def unequal(wanted: Manifest, made: Manifest) -> list[str]:
    """Return how a stage's output differs from the bundle's, a line each; [] when it is equal.

    It compares the key, the bytes of every table and checkpoint file, and the facts.
    """
    if made.key != wanted.key:
        return [f"its key: {line}" for line in difference(wanted.key_parts, made.key_parts)]
    if made.digest == wanted.digest:
        return []
    parts = [{p.name: p for p in one.parts} for one in (wanted, made)]
    lines = [
        _part_line(name, parts[0].get(name), parts[1].get(name))
        for name in sorted(parts[0].keys() | parts[1].keys())
        if _sha(parts[0].get(name)) != _sha(parts[1].get(name))
    ]
    return lines + [f"fact {line}" for line in difference(wanted.facts, made.facts)]


def _sha(part: Part | None) -> str:
    return part.sha256 if part else ""


def _part_line(name: str, wanted: Part | None, made: Part | None) -> str:
    what = "table" if any(one and one.table for one in (wanted, made)) else "checkpoint file"
    if wanted is None or made is None:
        return f"{what} {name}: {'only in the bundle' if wanted else 'not in the bundle'}"
    sizes = ""
    if wanted.rows != made.rows:
        sizes = f"{wanted.rows} rows -> {made.rows}, "
    return f"{what} {name}: {sizes}sha256 {wanted.sha256[:12]} -> {made.sha256[:12]}"


@dataclass(frozen=True, slots=True)
class Here:
    """How this installation differs from a bundle's, a line each.

    `bits` can change the last bits of results. `versions` are Python and packages that both have.
    `code` are files of genenv or of a plug-in whose statements differ, `wording` those in which
    only comments differ.
    """

    bits: tuple[str, ...]
    versions: tuple[str, ...]
    code: tuple[str, ...]
    wording: tuple[str, ...]


def installations(
    machines: tuple[Mapping[str, str], Mapping[str, str]],
    packages: tuple[Mapping[str, str], Mapping[str, str]],
    files: tuple[Mapping[str, bytes], Mapping[str, bytes]],
) -> Here:
    """Return how this installation differs; each pair is the bundle's, then this one's."""
    changed = difference(*machines)
    # Without the label of a build, as in keys.
    wanted, here = ({n: v.partition("+")[0] for n, v in one.items()} for one in packages)
    versions = [line for line in changed if line.partition(" ")[0] not in BITS]
    # Packages of one side alone, such as tools for tests, take no part.
    both = (wanted.keys() & here.keys()) | set(COUNT)
    wanted, here = ({n: v for n, v in one.items() if n in both} for one in (wanted, here))
    versions += sorted(difference(wanted, here), key=_weight)
    sources = [{n: f for n, f in one.items() if n.startswith((CODE, PLUGIN))} for one in files]
    code: list[str] = []
    wording: list[str] = []
    for name in sorted(sources[0].keys() | sources[1].keys()):
        before, after = sources[0].get(name), sources[1].get(name)
        if before != after:
            (wording if _same_code(name, before, after) else code).append(
                _file_line(name, *sources)
            )
    return Here(
        bits=tuple(line for line in changed if line.partition(" ")[0] in BITS),
        versions=tuple(versions),
        code=tuple(code),
        wording=tuple(wording),
    )


def listed(lines: tuple[str, ...] | list[str], most: int = SHOWN) -> str:
    """Return the first lines as one text, with the number of further ones."""
    more = len(lines) - most
    return "; ".join(map(visible, lines[:most])) + (f"; and {more} more" if more > 0 else "")


def _weight(line: str) -> bool:
    return line.partition(" ")[0] not in COUNT


def _file_line(name: str, wanted: Mapping[str, bytes], here: Mapping[str, bytes]) -> str:
    shown = name.partition("/")[2]
    if name not in here:
        return f"{shown} is not here"
    return shown if name in wanted else f"{shown} is only here"


def _same_code(name: str, before: bytes | None, after: bytes | None) -> bool:
    """Return whether two sources differ in comments and docstrings alone, without running them."""
    if before is None or after is None or not name.endswith(".py"):
        return not name.endswith((".py", ".sql", ".yaml", ".j2", ".txt"))
    try:
        return source_digest(before.decode()) == source_digest(after.decode())
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return False
