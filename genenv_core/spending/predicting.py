"""Predicts what stages will take, from those that runs of the root computed before.

The prediction is the median of what a unit of work took in stored stages of a like shape, at the
nearest stored epoch, times the stage's units; of memory it is the most. Stages on this machine
count before those on others. Without a stored stage of a like shape there is no prediction.
Evaluations that reuse an earlier one predict such evaluations alone, and computed evaluations
predict the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import median

from genenv_core.config.load import dump
from genenv_core.config.moved import as_now
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.placement import INLINE
from genenv_core.errors import NotFound
from genenv_core.record import Record
from genenv_core.spending.shapes import SHAPES, Values, likeness, surely_stands, units
from genenv_core.spending.spent import Reached, Spent, of_stage, reached
from genenv_core.storage.records.runs import RunInfo, RunLog, list_runs
from genenv_core.storage.sql.sources import source
from genenv_core.storage.store.protocol import Store
from schemas.enums import StageState

MOST = 10
"""Newest runs of a like shape that `samples_of` reads."""


class PaceSample(Record):
    """A stored stage: what a unit of its work took, in which epoch, on which machine.

    `stood` says that it was an evaluation which reused an earlier one.
    """

    stage: str
    epoch: int
    host: str
    seconds: float
    tokens: float | None
    peak_memory: int | None
    stood: bool = False


class Prediction(Record):
    """What a stage will take, from `stages` stored ones of epoch `from_epoch`.

    `tokens` is None for a stage without a model, and, as `peak_memory`, where no stored stage
    recorded it. `stages` is 0 for an evaluation that reuses an earlier one where no stored one did:
    it takes 0 tokens and 0 seconds.
    """

    stage: str
    epoch: int
    spent: Spent
    tokens: int | None
    peak_memory: int | None
    stages: int
    from_epoch: int


class Predictor:
    """Predicts the stages of a configuration from samples."""

    def __init__(self, config: RunConfig, samples: Sequence[PaceSample], host: str = "") -> None:
        """Keep the samples by stage: for inline stages those of `host`, this machine, if any."""
        self._config, self._values = config, dump(config)
        self._samples: dict[str, list[PaceSample]] = {}
        for stage in SHAPES:
            own = [one for one in samples if one.stage == stage]
            here = [one for one in own if one.host == host]
            inline = config.placement.of(stage) == INLINE
            self._samples[stage] = here if here and inline else own

    def predict(self, stage: str, epoch: int, *, stood: bool | None = None) -> Prediction | None:
        """Return what a stage will take, None without a stored one of a like shape.

        `stood` says whether the stage reuses an earlier evaluation; with None, `surely_stands`
        decides by the arm.
        """
        stood = surely_stands(stage, epoch, self._values) if stood is None else stood
        known = [one for one in self._samples.get(stage, []) if one.stood == stood]
        if not known:
            return self._for_nothing(stage, epoch) if stood else None
        nearest = min((one.epoch for one in known), key=lambda other: abs(other - epoch))
        used, size = [s for s in known if s.epoch == nearest], units(stage, self._values)
        seconds = median(one.seconds for one in used) * size
        rates = [one.tokens for one in used if one.tokens is not None]
        tokens = round(median(rates) * size) if rates else None
        peaks = [one.peak_memory for one in used if one.peak_memory is not None]
        return Prediction(
            stage=stage,
            epoch=epoch,
            spent=of_stage(stage, seconds, tokens or 0, self._config),
            tokens=tokens,
            peak_memory=max(peaks, default=None),
            stages=len(used),
            from_epoch=nearest,
        )

    def _for_nothing(self, stage: str, epoch: int) -> Prediction:
        return Prediction(
            stage=stage,
            epoch=epoch,
            spent=of_stage(stage, 0.0, 0, self._config),
            tokens=0,
            peak_memory=None,
            stages=0,
            from_epoch=epoch,
        )


def samples_of(
    store: Store, config: RunConfig, *, before: datetime | None = None, but: str = ""
) -> list[PaceSample]:
    """Return the stages that runs of a root computed and that are like those of a configuration.

    With `before`, only those that had begun by then; none of the run `but`.
    """
    values = dump(config)
    wanted = {stage: likeness(stage, values) for stage in SHAPES}
    found: list[PaceSample] = []
    read = 0
    for info in _newest(store, but):
        recorded = as_now(info.config)
        like = {s for s in SHAPES if likeness(s, recorded) == wanted[s] is not None}
        if like and read < MOST:
            read += 1
            found += _samples(store, info.run_id, info.config, like, before)
    return found


def first_reached(
    config: RunConfig, spent: Spent, planned: Iterable[tuple[int, str, Prediction | None]]
) -> tuple[tuple[Reached, ...], int, str] | None:
    """Return the limits that a run will reach, and the epoch and stage before which it stops.

    `spent` is what it has spent, `planned` the stages that it will compute, in order: one without a
    prediction counts nothing. None when no limit is reached before the last of them begins.
    """
    for epoch, stage, prediction in planned:
        if limits := reached(spent, config.limits):
            return limits, epoch, stage
        spent += prediction.spent if prediction else Spent()
    return None


def _newest(store: Store, but: str) -> list[RunInfo]:
    """Return the runs of a root, the newest first."""
    found: list[RunInfo] = []
    for run in list_runs(store):
        if run != but:
            try:
                found.append(RunLog(store, run).info())
            except NotFound:  # dropped since it was listed
                continue
    return sorted(found, key=lambda info: info.started_at, reverse=True)


def _samples(
    store: Store, run: str, values: Values, stages: set[str], before: datetime | None
) -> list[PaceSample]:
    try:
        frame = source(store, run, tables={"stage_runs"}).frames["stage_runs"]
    except NotFound:
        return []
    found: list[PaceSample] = []
    for row in frame.iter_rows(named=True):
        stage, seconds, tokens = row["stage"], row["seconds"], row["tokens"]
        if seconds is None or row["state"] != StageState.COMPUTED or stage not in stages:
            continue
        if before is None or row["started_at"] < before:
            size = units(stage, values)
            found.append(
                PaceSample(
                    stage=stage,
                    epoch=row["epoch"],
                    host=row["host"],
                    seconds=seconds / size,
                    tokens=None if tokens is None else tokens / size,
                    peak_memory=row["peak_memory"],
                    stood=stage == "evaluate" and tokens == 0,
                )
            )
    return found
