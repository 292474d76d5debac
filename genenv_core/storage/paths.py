"""Every path inside a root, as a function of what it names; nothing else builds paths."""

from __future__ import annotations

FOLDERS = (
    "parts", "stages", "shards", "progress", "runs", "retired", "origins", "foreign", "leases",
    "checkpoints", "comparisons",
)  # fmt: skip
"""Folders of a root that files move into from its `tmp`."""


def part(sha256: str, suffix: str) -> str:
    """Return where an immutable part with this content lives."""
    return f"parts/{sha256[:2]}/{sha256}{suffix}"


def manifest(stage: str, key: str) -> str:
    """Return where the manifest of a finished stage lives."""
    return f"stages/{stage}/{key}.json"


def shard(stage: str, key: str, index: int) -> str:
    """Return where the record of a finished shard of an unfinished stage lives."""
    return f"shards/{stage}/{key}/{index:05d}.json"


def progress(stage: str, key: str) -> str:
    """Return the folder from which an unfinished stage continues."""
    return f"progress/{stage}/{key}"


def run_config(run_id: str) -> str:
    """Return where the resolved configuration of a run lives."""
    return f"runs/{run_id}/config.json"


def run_labels(run_id: str) -> str:
    """Return where the tags, the note and the pin of a run lie."""
    return f"runs/{run_id}/labels.json"


def run_draws(run_id: str) -> str:
    """Return where a run notes further draws of its stages."""
    return f"runs/{run_id}/draws.json"


def run_ending(run_id: str) -> str:
    """Return where a run notes that its newest command ended it before its last epoch."""
    return f"runs/{run_id}/ending.json"


def run_branch(run_id: str) -> str:
    """Return where a run notes what it has taken over from the run that it branches off from."""
    return f"runs/{run_id}/branch.json"


def run_epoch(run_id: str, epoch: int) -> str:
    """Return where a run notes which stage keys make up an epoch (0 = bootstrap)."""
    return f"runs/{run_id}/epochs/{epoch:05d}.json"


def segment(run_id: str, first: int, last: int) -> str:
    """Return where the record of the merged files of a run's epochs first..last lives."""
    return f"{segments(run_id)}/{first:05d}-{last:05d}.json"


def segments(run_id: str) -> str:
    """Return the folder with the records of a run's merged files."""
    return f"runs/{run_id}/segments"


def retired(stage: str, key: str) -> str:
    """Return where gc notes that it has collected a stage's weights."""
    return f"retired/{stage}/{key}.json"


def origin(stage: str, key: str) -> str:
    """Return where the note on who computed a stage lives."""
    return f"origins/{stage}/{key}.json"


def foreign(stage: str, key: str) -> str:
    """Return where the note lives that a stage's weights lie in another root."""
    return f"foreign/{stage}/{key}.json"


def lease(stage: str, key: str) -> str:
    """Return where the note of who is computing a stage lives."""
    return f"leases/{stage}/{key}.json"


def attempt(run_id: str, epoch: int, stage: str, number: int, event: str) -> str:
    """Return where one event (`start`, `end`) of one attempt at a stage lives."""
    return f"runs/{run_id}/attempts/{epoch:05d}-{stage}-{number:04d}-{event}.json"


def attempts(run_id: str) -> str:
    """Return the folder with all attempt events of a run."""
    return f"runs/{run_id}/attempts"


def epochs(run_id: str) -> str:
    """Return the folder with the stage keys of a run's epochs."""
    return f"runs/{run_id}/epochs"


def run(run_id: str) -> str:
    """Return the folder of a run."""
    return f"runs/{run_id}"


def runs() -> str:
    """Return the folder with one folder a run."""
    return "runs"


def checkpoint(digest: str) -> str:
    """Return the folder of a laid-out checkpoint, for model loaders."""
    return f"checkpoints/{digest}"


def replay() -> str:
    """Return where a root notes the bundle that a replay in it takes."""
    return "replay.json"


def comparison(name: str, file: str) -> str:
    """Return where a file of a comparison's result lives."""
    return f"comparisons/{name}/{file}"
