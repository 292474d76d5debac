"""`python -m flows.evidence.guard`: genenv with and without the guard, where pi_env can game it.

Twelve runs of six epochs; about 15 minutes on two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from flows.evidence.playing import play_comparison
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore

DOMAIN = "genenv_core.evidence.lax_desk:LaxDesk"

TOSSES = """
    SELECT t.epoch,
        avg(CAST(t.family = 'toss' AS INTEGER))
            FILTER (t.choice NOT IN ('not_chosen', 'reserve')) AS attempted,
        avg(CAST(t.family = 'toss' AS INTEGER)) FILTER (s.reason = 'kept') AS kept
    FROM tasks AS t
    LEFT JOIN selections AS s ON s.task_id = t.task_id AND s.update = 'agent'
    WHERE t.valid AND t.source = 'generated' GROUP BY t.epoch ORDER BY t.epoch
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare the two arms, and print the share of coin tosses in what they attempted."""
    parser = argparse.ArgumentParser(prog="python -m flows.evidence.guard", description=__doc__)
    parser.add_argument("--seeds", default="0-5")
    parser.add_argument("--epochs", default="6")
    parser.add_argument("--root", type=Path, default=Path("genenv-data/guard"))
    parser.add_argument("--jobs", default="2")
    options = parser.parse_args(arguments)
    result = play_comparison(
        ["quickstart", "--arms", "genenv,no_guard", "--seeds", options.seeds,
         "--set", f"domain.name={DOMAIN}", "--set", f"epochs={options.epochs}",
         "--set", "tracking.enabled=false"],
        root=options.root, pages=options.root / "page", jobs=options.jobs,
    )  # fmt: skip
    print("\nshare of coin tosses among the tasks, by epoch: attempted (learned from)")
    for run in result["runs"]:
        with open_tables(LocalStore(options.root), [run["run_id"]]) as connection:
            rows = query(connection, TOSSES).to_dicts()
        shares = "  ".join(f"{row['attempted']:.2f} ({row['kept'] or 0:.2f})" for row in rows)
        gain = run["gains"]["answer_probability"]
        print(f"{run['arm']:8s} seed {run['seed']}  gain {gain:+.3f}  {shares}")


if __name__ == "__main__":
    main()
