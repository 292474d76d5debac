"""Draw docs/quickstart.png: `python -m flows.evidence.quickstart_figure ROOT RUN`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore

BLUE, ORANGE = "#1f4e9c", "#c05a20"
ROWS = """
    SELECT v.*, e.p_hat_written, e.mean_response_tokens AS tokens
    FROM evidence AS v JOIN epochs AS e USING (run_id, epoch) WHERE v.epoch > 0 ORDER BY v.epoch
"""


def draw(rows: Sequence[dict[str, Any]], place: Path) -> None:
    """Write the figure: the tasks' success, the answers' length, the gain on test tasks.

    `rows` are those of `ROWS`, one an epoch; the format is that of the file's name.
    """
    # matplotlib takes a while to load, and is typed in part.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    def column(name: str) -> list[float]:
        return [row[name] for row in rows]

    epochs = column("epoch")
    figure: Any = Figure(figsize=(11.6, 3.4))
    FigureCanvasAgg(figure)
    tasks, tokens, gain = figure.subplots(1, 3)
    tasks.axhspan(0.4, 0.6, color=BLUE, alpha=0.1, lw=0)
    tasks.axhline(rows[0]["alpha"], color="grey", ls="--", lw=1)
    tasks.text(0.15, rows[0]["alpha"] + 0.015, "alpha", color="grey")
    flat = [1 - share for share in column("share_signal")]
    for values, colour, strength, label in (
        (column("p_hat_written"), BLUE, 0.4, "success on all that pi_env wrote"),
        (column("p_hat"), BLUE, 1.0, "success on attempted tasks"),
        (flat, ORANGE, 1.0, "groups without a signal"),
    ):
        tasks.plot(epochs, values, "o-", color=colour, alpha=strength, ms=4, label=label)
    tasks.set(title="the tasks meet the agent", ylim=(0, 1))
    tasks.legend(frameon=False, fontsize=8, loc="upper right")
    tokens.plot(epochs, column("tokens"), "o-", color=BLUE, ms=4)
    tokens.set(title="response tokens", ylim=(0, None))
    ends = [
        [row["gain"] - row["gain_low"] for row in rows],
        [row["gain_high"] - row["gain"] for row in rows],
    ]
    gain.errorbar(epochs, column("gain"), yerr=ends, fmt="o-", color=BLUE, ms=4, elinewidth=1)
    gain.axhline(0, color="grey", lw=1)
    gain.set(title="gain in P(answer), with its 95 % interval")
    for axes in (tasks, tokens, gain):
        axes.set(xlabel="epoch", xlim=(0, None))
        axes.set_title(axes.get_title(), loc="left", fontsize=10)
        axes.set_title("")
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(place, dpi=100, metadata={"Software": None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Read a finished run and draw it."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.evidence.quickstart_figure", description=__doc__
    )
    parser.add_argument("root", type=Path)
    parser.add_argument("run")
    parser.add_argument("--output", type=Path, default=Path("docs/quickstart.png"))
    options = parser.parse_args(arguments)
    with open_tables(LocalStore(options.root), [options.run]) as connection:
        draw(query(connection, ROWS).to_dicts(), options.output)


if __name__ == "__main__":
    main()
