"""Decides which checkpoints are superseded, and keeps a note when gc collects their weights.

A stage without its collected weights stays a hit: its tables and the digests of its checkpoints are
all that a replay needs. Reading the weights raises `Retired`. `restore` deletes the notes of a run,
so that its stages are misses and the same command computes them again.
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
    """The note that gc has collected the weights of a stage's output, and by which rule.

    A part among `parts` that another output names too still exists.
    """

    stage: str
    key: str
    parts: tuple[Part, ...]
    kept_epochs: int
    at: datetime

    @property
    def reason(self) -> str:
        """Return what happened and a remedy, for an error."""
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
    """Return the note that gc has collected an output's weights, None where it has not."""
    if not weights_of(manifest):
        return None
    path = paths.retired(manifest.stage, manifest.key)
    damaged = f"retired={path} unreadable, taken as not there"
    found = find_record(store, path, RetiredWeights.from_bytes, damaged)
    # A run may have computed the stage again since, with other bytes.
    return found if found and found.parts == weights_of(manifest) else None


def restore(store: Store, run: RunLog, epochs: int) -> int:
    """Delete the notes of a run's collected weights; return their number.

    It also gives up, and counts, weights that another root should hold but cannot give.
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

    Those are bootstrap's; those of the last `keep` finished epochs and of every unfinished one; for
    each policy the latest published ones, which the next epoch starts from; and those of the epoch
    of the best agent, with the latest pi_env published by then.
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
