"""Curves over epochs: the question they are an answer to, and the numbers for the chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flows.view.reading import Panel, Reader
from genenv_core.storage.sql.duck import text


@dataclass(frozen=True, slots=True)
class Curve:
    """One chart: a column of the question, its name for people, and what to compare it with."""

    column: str
    title: str
    caption: str
    share: bool = False


CURVES = (
    Curve("heldout_success", "Success on test tasks", "sampled; nothing learns from them", True),
    Curve("skill", "Success on new tasks",
          "of what pi_env wrote, above the chance of a guess; the band is around alpha", True),
    Curve("share_in_band", "New tasks near alpha", "share within k_min of alpha", True),
    Curve("mean_difficulty", "Difficulty of new tasks", "the domain's own measure, mean"),
    Curve("share_zero_signal", "Groups without signal", "all attempts at a task with one reward",
          True),
    Curve("kl_env", "KL of pi_env", "to the first pi_env, nats a generation"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Curves:
    """The question, and what a chart needs: epochs, and for each run its values of each column."""

    panel: Panel
    charts: tuple[Curve, ...]
    data: dict[str, Any]


def curves(reader: Reader, runs: Sequence[str], by: str = "run") -> Curves:
    """Return the curves of runs: a line each, or by `arm` the mean of each arm's; QueryError."""
    panel = reader.panel("epochs", "Epochs", _by_arm(runs) if by == "arm" else _by_run(runs))
    names = list(dict.fromkeys(row["line"] for row in panel)) if by == "arm" else list(runs)
    epochs = sorted({row["epoch"] for row in panel})
    place = {epoch: index for index, epoch in enumerate(epochs)}
    values: dict[str, dict[str, list[float | None]]] = {}
    for curve in CURVES:
        lines: dict[str, list[float | None]] = {name: [None] * len(epochs) for name in names}
        for row in panel:
            lines[row["line"]][place[row["epoch"]]] = row[curve.column]
        values[curve.column] = lines
    targets = {(row["alpha"], row["k_min"]) for row in panel}
    alpha, k_min = targets.pop() if len(targets) == 1 else (None, None)
    charts = tuple(
        curve
        for curve in CURVES
        if any(value is not None for line in values[curve.column].values() for value in line)
    )
    data = {
        "lines": names, "epochs": epochs, "values": values, "alpha": alpha, "k_min": k_min,
    }  # fmt: skip
    return Curves(panel, charts, data)


def _by_run(runs: Sequence[str]) -> str:
    columns = ", ".join(f"e.{curve.column}" for curve in CURVES)
    return (
        f"SELECT e.run_id AS line, e.epoch, {columns}, e.seconds, s.alpha, s.k_min\n"
        "FROM epochs AS e JOIN settings AS s ON s.run_id = e.run_id\n"
        f"WHERE e.run_id IN ({listed(runs)})\nORDER BY line, e.epoch"
    )


def _by_arm(runs: Sequence[str]) -> str:
    """Return the question for means over the runs of an arm; settings that differ are null."""
    means = ", ".join(f"avg(e.{curve.column}) AS {curve.column}" for curve in CURVES)
    target = ", ".join(
        f"CASE WHEN count(DISTINCT s.{name}) = 1 THEN any_value(s.{name}) END AS {name}"
        for name in ("alpha", "k_min")
    )
    return (
        f"SELECT e.arm AS line, e.epoch, count(*) AS runs, {means}, {target}\n"
        "FROM epochs AS e JOIN settings AS s ON s.run_id = e.run_id\n"
        f"WHERE e.run_id IN ({listed(runs)})\nGROUP BY line, e.epoch ORDER BY line, e.epoch"
    )


def listed(runs: Sequence[str]) -> str:
    """Return names of runs as SQL writes a list of texts."""
    return ", ".join(map(text, runs))
