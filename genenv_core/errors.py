"""Every error that genenv raises on purpose, in one flat tree named by boundary.

A message says what failed, where, with which value, and what to do. A bad rollout is a row, a bad
stage is one of these, a bad checkpoint is a closed gate.
"""

from __future__ import annotations


def one_line(said: object, limit: int | None = None) -> str:
    """Return a text or an error's message on one line; an error without one gives its type."""
    text = " ".join(str(said).split())
    if not text and isinstance(said, BaseException):
        text = type(said).__name__
    return text[:limit]


def described(error: BaseException, limit: int | None = None) -> str:
    """Return an error on one line, its type in front unless it is one of genenv's own."""
    text = one_line(error)
    return text if isinstance(error, GenenvError) else f"{type(error).__name__}: {text}"[:limit]


class GenenvError(Exception):
    """Every deliberate error; `exit_status` is what the command line returns for it."""

    exit_status = 1


class ConfigError(GenenvError):
    """The configuration or the command line is wrong; no work has started."""

    exit_status = 2


class DataError(GenenvError):
    """Input data is broken: names the file, the line, the field and the value."""

    exit_status = 2


class ModelError(GenenvError):
    """A model directory or hub id cannot be used; says what is missing."""

    exit_status = 2


class StorageError(GenenvError):
    """The store refused or lost something: not writable, disk full, permission denied."""


class NotFound(StorageError):
    """There is no object at this path of the store."""


class AlreadyExists(StorageError):
    """An exclusive create found the path taken: somebody else committed first."""


class MachineError(GenenvError):
    """The machine ran out of disk, memory, processes or open files; names which, and a remedy."""


class IntegrityError(StorageError):
    """Bytes of a part differ from what its manifest says."""


class Retired(StorageError):
    """gc has collected the weights of a checkpoint; says how to make them again."""


class SchemaError(GenenvError):
    """A frame does not fit its table: names the table, the column, the rule and example values."""


class DownloadError(GenenvError):
    """A source did not give the expected file: names the address and a remedy."""


class NumericalError(GenenvError):
    """A NaN or an infinity where a finite number belongs: names the place."""


class DomainError(GenenvError):
    """A domain broke its contract (unknown domain, bad spec, scoring outside [0, 1])."""


class EngineError(GenenvError):
    """A sampling engine failed as a whole; one failed request is a completion with a reason."""


class TrainingError(GenenvError):
    """An update failed; names the policy and the setting to change."""


class OutOfMemory(TrainingError):
    """The memory of an update's device ran out; `rows` is what a micro-batch held at most."""

    def __init__(self, message: str, rows: int = 0) -> None:
        super().__init__(message)
        self.rows = rows


class Stopped(GenenvError):
    """An update ended early, as the run wanted; says from which step it continues."""


class StageError(GenenvError):
    """A stage failed: names stage, epoch and attempt, and the command that continues."""


class ReplayError(GenenvError):
    """A replay differs from its bundle: names the first stage, and what differs."""


class QueryError(GenenvError):
    """A SQL query was refused or failed; says which rule it hit."""

    exit_status = 2


class TablesError(QueryError):
    """Files of the tables cannot be read, whatever the query."""
