"""Further draws of stages: a run may draw one stage anew, and with it all that follow.

Stage and epoch have a number of draws, 0 without a record; a number above 0 is part of the stage's
key and of its seeds. A command writes the number before the work, so every later command repeats
that draw. Until the run has reached its end, a command that asks for the draw gets the same one.
The record names the outputs of earlier draws, so gc keeps them.
"""

from __future__ import annotations

from pydantic import Field

from genenv_core.errors import ConfigError, IntegrityError
from genenv_core.storage import paths
from genenv_core.storage.records.runs import TRACKED, RunLog, place_of
from genenv_core.storage.seal import SealedRecord
from genenv_core.storage.store.finding import kept_record
from genenv_core.storage.store.protocol import Store


class Draws(SealedRecord):
    """The draws of a run by `STAGE@EPOCH`, the unfinished ones, and the earlier outputs."""

    numbers: dict[str, int] = Field(default_factory=dict[str, int])
    open: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()

    def number(self, stage: str, epoch: int) -> int:
        """Return which draw of a stage counts; 0 is the first."""
        return self.numbers.get(f"{stage}@{epoch}", 0)

    def forced(self, stage: str, epoch: int, earlier: tuple[tuple[str, str], ...]) -> Draws:
        """Return the draws with one more of a stage, or these if its last draw is unfinished."""
        name = f"{stage}@{epoch}"
        if name in self.open:
            return self
        return Draws(
            numbers={**self.numbers, name: self.number(stage, epoch) + 1},
            open=(*self.open, name),
            kept=tuple(sorted({*self.kept, *earlier})),
        )


def read_draws(store: Store, run_id: str) -> Draws:
    """Return the draws of a run; raises IntegrityError for a damaged record."""
    return _read(store, run_id)[1]


def next_draws(store: Store, run_id: str, stage: str, epoch: int) -> Draws:
    """Return the draws after one more of a stage, without noting it.

    Raises ConfigError when the run has no earlier draw of it.
    """
    return read_draws(store, run_id).forced(stage, epoch, _earlier(store, run_id, stage, epoch))


def force_draw(store: Store, run_id: str, stage: str, epoch: int) -> Draws:
    """Note one more draw of a stage; return all draws. Raises as `next_draws`."""
    earlier = _earlier(store, run_id, stage, epoch)
    while True:
        before, draws = _read(store, run_id)
        after = draws.forced(stage, epoch, earlier)
        if after == draws or store.swap(paths.run_draws(run_id), before, after.to_bytes()):
            return after


def close_draws(store: Store, run_id: str) -> None:
    """Note that the run has reached its end with its draws."""
    while True:
        before, draws = _read(store, run_id)
        after = draws.model_copy(update={"open": ()})
        if not draws.open or store.swap(paths.run_draws(run_id), before, after.to_bytes()):
            return


def merge_draws(store: Store, run_id: str, coming: Draws) -> None:
    """Note the draws of a run that a command copies to this store."""
    while True:
        before, there = _read(store, run_id)
        numbers = {
            name: max(there.numbers.get(name, 0), coming.numbers.get(name, 0))
            for name in there.numbers | coming.numbers
        }
        kept, waiting = {*there.kept, *coming.kept}, {*there.open, *coming.open}
        after = Draws(numbers=numbers, open=tuple(sorted(waiting)), kept=tuple(sorted(kept)))
        if after == there or store.swap(paths.run_draws(run_id), before, after.to_bytes()):
            return


def _earlier(store: Store, run_id: str, stage: str, epoch: int) -> tuple[tuple[str, str], ...]:
    """Return the outputs that a further draw replaces: of the stage and of all later ones."""
    run = RunLog(store, run_id)
    if stage not in run.keys(epoch):
        raise ConfigError(
            f"run {run_id!r} has not finished {stage} of epoch {epoch}, so there is no draw to "
            "follow: run it first"
        )
    return tuple(
        (name, key)
        for number in run.epochs()
        if number >= epoch
        for name, key in run.keys(number).items()
        if name != TRACKED and (number > epoch or place_of(name) >= place_of(stage))
    )


def _read(store: Store, run_id: str) -> tuple[bytes | None, Draws]:
    path = paths.run_draws(run_id)
    try:
        data, draws = kept_record(store, path, Draws.from_bytes)
        return data, draws or Draws()
    except IntegrityError as error:
        raise IntegrityError(
            f"{path}: {error}: which draws of its stages run {run_id} uses is unknown; delete the "
            "file to go on with the first ones"
        ) from error
