"""Settings and result of a garbage collection."""

from __future__ import annotations

from dataclasses import dataclass, field

OLDER_THAN_H = 24.0
"""Age in hours; longer than any writer works between its first part and its manifest."""

KEEP_CHECKPOINTS = 3

KINDS = {
    "runs": "dropped runs",
    "weights": "weights of superseded checkpoints",
    "manifests": "stages that no run names",
    "shards": "shard records of finished or abandoned stages",
    "progress": "what abandoned stages would have continued from",
    "checkpoints": "laid-out checkpoints that nothing needs",
    "parts": "orphaned parts",
    "leases": "dead leases",
    "temporary": "temporary files",
}
"""The kinds of things that gc collects, in its order."""


@dataclass(frozen=True, slots=True)
class CollectionRule:
    """Says what stays: checkpoints of `keep` epochs a run, all below the age; not `drop_run`."""

    keep: int = KEEP_CHECKPOINTS
    older_than_h: float = OLDER_THAN_H
    drop_run: str = ""


@dataclass
class Collectable:
    """How many things of a kind go, and how many bytes that frees."""

    count: int = 0
    bytes: int = 0


@dataclass
class Collected:
    """What a collection removed, or would remove, by kind; `paths` has the path of each."""

    kinds: dict[str, Collectable] = field(default_factory=dict[str, Collectable])
    paths: list[str] = field(default_factory=list[str])

    @property
    def bytes(self) -> int:
        """Return the bytes of all kinds."""
        return sum(found.bytes for found in self.kinds.values())
