"""Checks whether genenv can score with a folder: its items, its gaps, its official files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from genenv_core.benchmarks.downloads.sources import source_of
from genenv_core.benchmarks.downloads.state import FileLook, FileState, looks, read_receipts
from genenv_core.benchmarks.registry import get_benchmark, suite_of
from genenv_core.errors import GenenvError, described
from genenv_core.types import JsonObject


@dataclass(frozen=True, slots=True)
class Checked:
    """What a folder has; `fault` says why it is unusable, or "".

    `items` and `official` count items by group. `digest` is that of the data, as results state it.
    """

    name: str
    folder: Path
    fault: str = ""
    digest: str = ""
    items: Mapping[str, int] = field(default_factory=dict[str, int])
    official: Mapping[str, int] = field(default_factory=dict[str, int])
    files: Sequence[FileLook] = ()

    @property
    def not_scored(self) -> list[str]:
        """Return the groups of the official data without an item here."""
        return [group for group in self.official if group not in self.items]

    def of(self, state: FileState) -> list[str]:
        """Return the files and folders in a state."""
        return [look.to for look in self.files if look.state is state]

    def as_json(self) -> JsonObject:
        """Return plain JSON."""
        return {
            "benchmark": self.name,
            "folder": str(self.folder),
            "usable": not self.fault,
            "fault": self.fault,
            "digest": self.digest,
            "items": dict(self.items),
            "official_items": dict(self.official),
            "not_scored": self.not_scored,
            "files": {state.value: self.of(state) for state in FileState},
        }


def check(name: str, folder: Path) -> Checked:
    """Return what a folder has of a benchmark; raises ConfigError for an unknown name."""
    source = source_of(name)
    receipts = read_receipts(folder)
    files: list[FileLook] = []
    try:
        files = [look for part in source.parts for look in looks(part, folder, receipts)]
        suite = suite_of(get_benchmark(name), folder)
    except (GenenvError, OSError, ValueError) as error:
        return Checked(name, folder, described(error), official=source.items, files=files)
    counts = Counter(suite.items.values())
    items = {group: counts[group] for group in [*source.items, *counts] if counts[group]}
    return Checked(name, folder, "", suite.digest, items, source.items, files)
