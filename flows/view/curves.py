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
    Curve("p_hat", "Success on new tasks", "p_hat of what pi_env wrote; the band is around alpha",
          True),
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


def curves(reader: Reader, runs: Sequence[str]) -> Curves:
    """Return the curves of runs, one line each; raises QueryError."""
    columns = ", ".join(f"e.{curve.column}" for curve in CURVES)
    panel = reader.panel(
        "epochs", "Epochs",
        f"SELECT e.run_id, e.epoch, {columns}, e.seconds, s.alpha, s.k_min\n"
        "FROM epochs AS e JOIN settings AS s ON s.run_id = e.run_id\n"
        f"WHERE e.run_id IN ({', '.join(map(text, runs))})\nORDER BY e.run_id, e.epoch",
    )  # fmt: skip
    epochs = sorted({row["epoch"] for row in panel})
    place = {epoch: index for index, epoch in enumerate(epochs)}
    values: dict[str, dict[str, list[float | None]]] = {}
    for curve in CURVES:
        lines: dict[str, list[float | None]] = {run: [None] * len(epochs) for run in runs}
        for row in panel:
            lines[row["run_id"]][place[row["epoch"]]] = row[curve.column]
        values[curve.column] = lines
    settings = {row["run_id"]: (row["alpha"], row["k_min"]) for row in panel}
    found = [settings[run] for run in runs if run in settings]
    alpha, k_min = found[0] if found and len(set(found)) == 1 else (None, None)
    charts = tuple(
        curve
        for curve in CURVES
        if any(value is not None for line in values[curve.column].values() for value in line)
    )
    data = {
        "runs": list(runs), "epochs": epochs, "values": values, "alpha": alpha, "k_min": k_min,
    }  # fmt: skip
    return Curves(panel, charts, data)
