"""Which checkpoints are superseded, and the note that stays when gc collects their weights.

A stage whose weights were collected stays a hit: its tables and the digests of its checkpoints are
all that a replay needs. Whoever reads the weights gets `Retired`; `restore` takes the notes of a
run back, so that its stages are misses and the same command computes them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from genenv_core.config.stages import LAST
from genenv_core.storage import paths
from genenv_core.storage.records.foreign import give_up
from genenv_core.storage.records.manifest import Manifest, Part
from genenv_core.storage.records.runs import TRACKED, RunLog
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.finding import find_record
from genenv_core.storage.store.protocol import Store
from genenv_core.types import Policy

Keyed = tuple[str, str]
"""A stage and a key: one output."""


class RetiredWeights(SealedRecord):
    """The note that the weights of a stage's output were collected, and by which rule.

    A part among `parts` that another output names too is still there.
    """

    stage: str
    key: str
    parts: tuple[Part, ...]
    kept_epochs: int
    at: datetime

    @property
    def reason(self) -> str:
        """Return what happened and what to do, for an error."""
        return (
            f"its weights were collected on {self.at:%Y-%m-%d} by a rule that keeps those of the "
            f"last {self.kept_epochs} epochs (`genenv gc`, execution.keep_checkpoints): say "
            "`genenv tag RUN --pin` and `genenv gc --restore RUN` with the name of the run that "
            "needs them, run the same command again, and they are computed again"
        )


def weights_of(manifest: Manifest) -> tuple[Part, ...]:
    """Return the files of all checkpoints in an output."""
    return tuple(part for part in manifest.parts if not part.table)


def find_retired(store: Store, manifest: Manifest) -> RetiredWeights | None:
    """Return the note that an output's weights were collected, None when they were not."""
    if not weights_of(manifest):
        return None
    path = paths.retired(manifest.stage, manifest.key)
    damaged = f"retired={path} unreadable, taken as not there"
    found = find_record(store, path, RetiredWeights.from_bytes, damaged)
    # The stage may have been computed again since, with other bytes.
    return found if found and found.parts == weights_of(manifest) else None


def restore(store: Store, run: RunLog, epochs: int) -> int:
    """Take the notes of a run's collected weights back; returns how many there were.

    Weights that lie in another root are given up if they cannot be had from there, and count too.
    """
    outputs = {
        (stage, key): paths.retired(stage, key)
        for epoch in range(epochs + 1)
        for stage, key in run.keys(epoch).items()
    }
    count = 0
    for (stage, key), path in outputs.items():
        there = store.size(path) is not None
        if there:
            store.delete(path)
        count += give_up(store, stage, key) or there
    return count


def kept_weights(
    keys: Mapping[int, Mapping[str, str]], manifests: Mapping[Keyed, Manifest], keep: int
) -> set[Keyed]:
    """Return the outputs of one run, by epoch and stage, whose weights stay.

    Those are bootstrap's; of the last `keep` finished epochs and of every unfinished one; for each
    policy the latest published, which the next epoch starts from; and of the epoch of the best
    agent, with the latest pi_env published by then.
    """
    published = {
        epoch: manifest.facts
        for epoch, stages in sorted(keys.items())
        if epoch and (manifest := manifests.get((LAST, stages.get(LAST, ""))))
    }
    last = max(published, default=0)
    best = max((epoch for epoch, facts in published.items() if facts["is_best"]), default=0)
    epochs = {epoch for epoch in keys if epoch not in published or epoch > last - keep}
    kept = {
        (stage, key)
        for epoch in epochs | {0, best}
        for stage, key in keys.get(epoch, {}).items()
        if stage != TRACKED
    }
    for policy in Policy:
        for until in (best, last):
            made = [e for e, facts in published.items() if facts["published"][policy]]
            epoch = max((e for e in made if e <= until), default=0)
            kept |= {
                output
                for output in keys.get(epoch, {}).items()
                if output in manifests and policy in manifests[output].checkpoints
            }
    return kept
