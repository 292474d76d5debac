"""The words that enum columns may hold, beyond those in `genenv_core.types`.

They are apart from the models so that the algorithm can use the words without loading pandera.
"""

from __future__ import annotations

from enum import StrEnum


class Arm(StrEnum):
    """One method in a comparison; all arms run the same code path."""

    GENENV = "genenv"
    RANDOM = "random"
    STATIC = "static"
    OFFLINE = "offline"
    BASE = "base"


class SelectionReason(StrEnum):
    """Why a task may or may not take part in an update."""

    KEPT = "kept"
    BELOW_BAND = "below_band"
    ABOVE_BAND = "above_band"
    ZERO_SIGNAL = "zero_signal"
    INVALID_TASK = "invalid_task"
    NOT_ATTEMPTED = "not_attempted"
    INCOMPLETE_GROUP = "incomplete_group"
    NOT_IN_UPDATE = "not_in_update"


class PooledTask(StrEnum):
    """Which kind of task a row of D_train was made on."""

    NEW = "new"
    BASE = "base"


class MixtureShare(StrEnum):
    """Which share of the mixture an update drew a row for."""

    NEW = "new"
    BASE = "base"
    HISTORY = "history"
    REHEARSAL = "rehearsal"


class Split(StrEnum):
    """Which held-out tasks: gates and the choice of the best read `validation`, reports `test`."""

    VALIDATION = "validation"
    TEST = "test"


class EvaluationMode(StrEnum):
    """How the answers of an evaluation were decoded."""

    SAMPLED = "sampled"
    GREEDY = "greedy"


class Gate(StrEnum):
    """The gate that kept a checkpoint from being published, or `open`."""

    OPEN = "open"
    NON_FINITE = "non_finite"
    FIDELITY = "fidelity"
    KL_ENV = "kl_env"
    ENTROPY = "entropy"
    REWARD_STD = "reward_std"
    VALIDATION_DROP = "validation_drop"


class UpdateAction(StrEnum):
    """What an update did to its policy."""

    UPDATED = "updated"
    SKIPPED = "skipped"
    PULLED = "pulled"
    ROLLED_BACK = "rolled_back"


class StageState(StrEnum):
    """How an attempt at a stage ended; `running` while it has not."""

    RUNNING = "running"
    COMPUTED = "computed"
    CACHED = "cached"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
