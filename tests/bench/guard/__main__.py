"""`python -m tests.bench.guard`: genenv with and without the guard, where pi_env can game it.

Twelve runs of six epochs; about 15 minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from tests.bench.comparing import compared

REPOSITORY = Path(__file__).parents[3]
PLUG_IN = "lax_desk = tests.bench.guard.lax:LaxDesk.from_options"

TOSSES = """
    SELECT t.epoch,
        avg(CAST(t.family = 'toss' AS INTEGER)) FILTER (t.choice <> 'not_chosen') AS attempted,
        avg(CAST(t.family = 'toss' AS INTEGER)) FILTER (s.reason = 'kept') AS kept
    FROM tasks AS t
    LEFT JOIN selections AS s ON s.task_id = t.task_id AND s.update = 'agent'
    WHERE t.valid AND t.source = 'generated' GROUP BY t.epoch ORDER BY t.epoch
"""


def main() -> None:
    """Compare the two arms, and print the share of coin tosses in what they attempted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-5")
    parser.add_argument("--epochs", default="6")
    parser.add_argument("--root", type=Path, default=Path("genenv-data/guard"))
    parser.add_argument("--jobs", default="2")
    options = parser.parse_args()
    _offer(options.root.absolute() / "plug-in")
    result = compared(
        ["quickstart", "--arms", "genenv,no_guard", "--seeds", options.seeds,
         "--set", "domain.name=lax_desk", "--set", f"epochs={options.epochs}",
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


def _offer(folder: Path) -> None:
    """Make the domain known to the runs, as a package that is installed."""
    package = folder / "lax_desk-1.0.dist-info"
    package.mkdir(parents=True, exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: lax-desk\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[genenv.domains]\n{PLUG_IN}\n")
    paths = [str(REPOSITORY), str(folder), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


if __name__ == "__main__":
    main()
