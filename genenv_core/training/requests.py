"""Updates as files: a request names checkpoints and rows, its result a checkpoint and metrics.

Both are JSON-able pydantic models, so the same call runs in this process, in a worker process, or
under `accelerate launch`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field

from genenv_core.config.sections.training import TrainingConfig
from genenv_core.config.sections.updates import UpdateSettings
from genenv_core.record import Record
from genenv_core.types import Policy
from schemas.enums import UpdateAction


class TrainerCheckpoints(Record):
    """Where an update writes its trainer checkpoints, and how often.

    `folder` is this update's alone. `seconds` is the least time between two checkpoints; 0 means
    one after every optimizer step.
    """

    folder: Path
    seconds: float = Field(ge=0)


class UpdateRequest(Record):
    """One update of a policy on stored rows; each loss has a request of its own.

    `genenv_core.training.updates.table` maps `loss` to the update's kind.

    The update starts from `checkpoint` and saves the policy in `output`, with its tokenizer. `rows`
    is a Parquet file. With `checkpoints`, a killed update continues from the last one and ends on
    the same bits. `gradient_checkpointing` changes none of the bits. Each finished step appends its
    loss to the file `noted`, if there is one (`warm_start.request.note_step`); an update that
    continues first writes the losses of the steps before into it.
    """

    loss: ClassVar[str]
    policy: ClassVar[Policy]

    checkpoint: Path
    output: Path
    rows: Path
    settings: UpdateSettings
    training: TrainingConfig = TrainingConfig()
    gradient_checkpointing: bool = False
    seed: int
    threads: int
    checkpoints: TrainerCheckpoints | None = None
    noted: Path | None = None

    @property
    def what(self) -> str:
        """The update's name in messages."""
        return f"{self.loss.upper()} update of pi_{self.policy.value} from {self.checkpoint}"

    @property
    def models(self) -> list[Path]:
        """Return the checkpoints that the update reads."""
        return [self.checkpoint]

    def with_micro_batch(self, rows: int) -> Self:
        """Return the request with at most this many rows in a micro-batch."""
        settings = self.settings.model_copy(update={"micro_batch_rows": rows})
        return self.model_copy(update={"settings": settings})


class UpdateResult(Record):
    """The result of an update.

    `metrics` are finite floats; the modules of `genenv_core.training.updates` describe them, and
    each is the last value unless they say otherwise. `micro_batch_rows` is the number of rows of a
    micro-batch that fitted into the memory. `resumed_at` is the number of optimizer steps before
    the trainer checkpoint. It is for the log alone: the rest of a result must not show whether
    anything interrupted the update.
    """

    steps: int
    checkpoint: Path
    metrics: dict[str, float]
    action: UpdateAction
    note: str = ""
    micro_batch_rows: int
    resumed_at: int = 0


def lowered(result: UpdateResult, wanted: int) -> dict[str, int]:
    """Return the fact of an update with fewer rows in a micro-batch than configured, else {}.

    The number changes only rounding; it depends on the free memory, which is in no key.
    """
    rows = result.micro_batch_rows
    return {"micro_batch_rows": rows} if rows < wanted else {}
