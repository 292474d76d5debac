"""`make crash-storm`: kills runs, continues them, and reports the differences."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.storm.storm import storm


def main() -> int:
    """Return 1 when a killed run ended differently from one that was never killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many kills to reach")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kill points")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="genenv-storm-"))
    started = time.monotonic()
    tally = storm(folder, options.kills, options.seed, options.jobs)
    tally.print()
    print(f"{time.monotonic() - started:.0f} s; roots that differ and logs are in {folder}")
    return 1 if tally.found else 0


if __name__ == "__main__":
    sys.exit(main())
