"""Settings and result of a garbage collection."""

from __future__ import annotations

from dataclasses import dataclass, field

OLDER_THAN_H = 24.0
"""Longer than any stage's writer works between its first part and its manifest."""

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
    """What may go: `keep` epochs' checkpoints stay in each run, and everything below the age."""

    keep: int = KEEP_CHECKPOINTS
    older_than_h: float = OLDER_THAN_H
    drop_run: str = ""


@dataclass
class Collectable:
    """The number of things of a kind that go, and the bytes that they free."""

    count: int = 0
    bytes: int = 0


@dataclass
class Collected:
    """What went, or would go, by kind; `paths` names each."""

    kinds: dict[str, Collectable] = field(default_factory=dict[str, Collectable])
    paths: list[str] = field(default_factory=list[str])

    @property
    def bytes(self) -> int:
        """Return the bytes of all kinds."""
        return sum(found.bytes for found in self.kinds.values())
