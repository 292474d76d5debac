"""Prints the predictions of `genenv plan`, and for `genenv status` how good they were."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from flows.shown.tables import console, plain_table
from genenv_core.config.load import as_recorded, run_name
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import STAGES
from genenv_core.errors import ConfigError, NotFound
from genenv_core.spending.predicting import Prediction, Predictor, first_reached, samples_of
from genenv_core.spending.spent import Spent, amount, of_stage, spent_on
from genenv_core.spending.stop import listed
from genenv_core.storage.records.runs import RunLog, StageAttempt
from genenv_core.storage.store.protocol import Store
from schemas.enums import StageState

if TYPE_CHECKING:
    from tasks.stage.planning import Planned

GB = 1e9


class Predicted:
    """The stages of a plan that have to be computed, each with its prediction, None without one."""

    def __init__(self, store: Store, config: RunConfig, entries: Iterable[Planned]) -> None:
        """Predict from what the root has."""
        self.config = config
        todo = [one for one in entries if one.status != "hit"]
        samples = samples_of(store, config) if todo else []
        predictor = Predictor(config, samples, socket.gethostname())
        self.stages = [
            (one.epoch, one.stage, predictor.predict(one.stage, one.epoch, stood=one.stands))
            for one in todo
        ]
        run = RunLog(store, run_name(config, "run"))
        spent = spent_on(run.attempts(), config) if config.limits.given else Spent()
        self.stop = first_reached(config, spent, self.stages)

    @property
    def total(self) -> Spent:
        """Return the sum over all predicted stages."""
        return sum((one.spent for _, _, one in self.stages if one), Spent())

    @property
    def unknown(self) -> list[str]:
        """Return the stages without a stored one of a like shape, in the order of a run."""
        missing = {stage for _, stage, one in self.stages if one is None}
        return [stage for stage in STAGES if stage in missing]

    def values(self) -> dict[str, Any]:
        """Return the prediction as plain values, with prices only where the run has some."""
        priced = self.config.prices.given
        rows = [
            {"epoch": epoch, "stage": stage, **(_numbers(one, priced) if one else {})}
            for epoch, stage, one in self.stages
        ]
        total = self.total.model_dump(exclude=set() if priced else {"cost"})
        found: dict[str, Any] = {"stages": rows, "total": total, "unknown": self.unknown}
        if self.stop:
            limits, epoch, stage = self.stop
            named = [one.model_dump() for one in limits]
            found["reaches"] = {"limits": named, "epoch": epoch, "stage": stage}
        return found

    def lines(self) -> list[str]:
        """Return what stands below the table."""
        found: list[str] = []
        if self.unknown:
            found.append(f"no stored run of this shape: {', '.join(self.unknown)}")
        if self.stop:
            limits, epoch, stage = self.stop
            found.append(f"it will stop before {stage} of epoch {epoch}: {listed(limits)} then")
        return found

    def show(self) -> None:
        """Print the predictions by stage, and the stages without one."""
        out = console()
        if any(one for _, _, one in self.stages):
            out.print("\npredicted from stored runs of like shape:")
            out.print(self.table())
        for line in self.lines():
            out.print(f"  {line}", markup=False)

    def table(self) -> Table:
        """Return the predictions by stage, all epochs together."""
        table = _table(["stage", "to compute", "seconds", "tokens", "memory"], self.config)
        for stage in STAGES:
            of_stage = [one for _, name, one in self.stages if name == stage]
            known = [one for one in of_stage if one]
            if known:
                spent = sum((one.spent for one in known), Spent())
                peak = max((one.peak_memory or 0 for one in known), default=0)
                count = f"{len(of_stage)}"
                if len(known) < len(of_stage):
                    count = f"{len(known)} of {len(of_stage)}"
                tokens = any(one.tokens is not None for one in known)
                _row(table, self.config, [stage, count], spent, peak, tokens=tokens)
        peak = max((one.peak_memory or 0 for _, _, one in self.stages if one), default=0)
        _row(table, self.config, ["all", f"{len(self.stages)}"], self.total, peak)
        return table


def prediction_errors(store: Store, run: str) -> list[dict[str, Any]]:
    """Return by stage what a run computed, and what earlier runs predicted for it.

    Holds the stages with a prediction, and a last row with their sum; empty without a prediction.
    """
    log = RunLog(store, run)
    try:
        info = log.info()
        config = as_recorded(info.config, run, {"root": store.uri, "run_id": run})
    except (NotFound, ConfigError):  # of another version of genenv
        return []
    computed = [
        one
        for one in log.attempts()
        if one.state is StageState.COMPUTED and one.seconds is not None
    ]
    if not computed:
        return []
    samples = samples_of(store, config, before=info.started_at, but=run)
    predictor = Predictor(config, samples, computed[0].host)
    pairs = [(one, predictor.predict(one.stage, one.epoch)) for one in computed]
    known = [(one, said) for one, said in pairs if said]
    rows = [
        _compared(stage, [pair for pair in known if pair[0].stage == stage], config)
        for stage in STAGES
        if any(one.stage == stage for one, _ in known)
    ]
    return [*rows, _compared("all", known, config)] if rows else []


def afterwards_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the table of predictions beside what the run took."""
    table = plain_table()
    table.add_column("predicted")
    for title in ("stages", "seconds", "took", "error", "tokens", "were", "memory", "peak"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row["stage"],
            f"{row['stages']}",
            f"{row['predicted_seconds']:.1f}",
            f"{row['seconds']:.1f}",
            f"{row['error']:+.0%}",
            _count(row["predicted_tokens"]),
            _count(row["tokens"]),
            _memory(row["predicted_memory"]),
            _memory(row["peak_memory"]),
        )
    return table


def _compared(
    stage: str, pairs: Sequence[tuple[StageAttempt, Prediction]], config: RunConfig
) -> dict[str, Any]:
    came = sum(
        (of_stage(one.stage, one.seconds or 0, one.tokens or 0, config) for one, _ in pairs),
        Spent(),
    )
    said = sum((prediction.spent for _, prediction in pairs), Spent())
    return {
        "stage": stage,
        "stages": len(pairs),
        "predicted_seconds": said.seconds,
        "seconds": came.seconds,
        "error": said.seconds / came.seconds - 1 if came.seconds else 0.0,
        "predicted_tokens": said.tokens,
        "tokens": came.tokens,
        "predicted_memory": max(prediction.peak_memory or 0 for _, prediction in pairs),
        "peak_memory": max(one.peak_memory or 0 for one, _ in pairs),
    }


def _numbers(one: Prediction, priced: bool) -> dict[str, Any]:
    numbers = {
        "seconds": one.spent.seconds,
        "tokens": one.tokens,
        "peak_memory": one.peak_memory,
        "from_stages": one.stages,
        "from_epoch": one.from_epoch,
    }
    return {**numbers, "cost": one.spent.cost} if priced else numbers


def _table(titles: Sequence[str], config: RunConfig) -> Table:
    table = plain_table()
    for title in [*titles, *(["cost"] if config.prices.given else [])]:
        table.add_column(title, justify="left" if title == "stage" else "right")
    return table


def _row(
    table: Table,
    config: RunConfig,
    head: Sequence[str],
    spent: Spent,
    peak: int,
    *,
    tokens: bool = True,
) -> None:
    cells = [*head, f"{spent.seconds:.1f}", _count(spent.tokens) if tokens else "", _memory(peak)]
    table.add_row(*cells, *([amount(spent.cost)] if config.prices.given else []))


def _count(tokens: int) -> str:
    return f"{tokens:,}" if tokens else ""


def _memory(peak: int) -> str:
    return f"{peak / GB:.2f} GB" if peak else ""
