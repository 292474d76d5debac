"""`make verify-learning`: what the quickstart learns, seed by seed, as it comes out.

The four expectations are those of the README; nothing is averaged away, and a seed that misses one
makes the command fail.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore


def run_seed(seed: int, root: Path, arm: str) -> dict[str, Any]:
    """Return first and last epoch, the gain on the test tasks, and the wall seconds."""
    run_id = f"verify-{arm}-s{seed}"
    started = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "flows.cli.app", "run", "quickstart", "--seed", str(seed)),
            *("--root", str(root), "--run-id", run_id, "--set", f"arm={arm}", "--json"),
            *("--set", "tracking.enabled=false"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with open_tables(LocalStore(root), [run_id]) as connection:
        epochs = query(connection, "SELECT * FROM epochs ORDER BY epoch").to_dicts()
        gained = query(connection, "FROM evidence ORDER BY epoch DESC LIMIT 1").to_dicts()[0]
    return {
        "seed": seed,
        "first": epochs[0],
        "last": epochs[-1],
        "gained": gained,
        "seconds": time.perf_counter() - started,
    }


def verdicts(result: dict[str, Any]) -> dict[str, bool]:
    """Return which of the four expectations a seed met."""
    first, last = result["first"], result["last"]
    return {
        "p_hat from above .8 to .4-.75": first["p_hat"] > 0.8 and 0.4 <= last["p_hat"] <= 0.75,
        "response tokens +40 %": last["mean_response_tokens"]
        >= 1.4 * first["mean_response_tokens"],
        "zero-signal share -.2": first["share_zero_signal"] - last["share_zero_signal"] >= 0.2,
        "P(answer) above bootstrap": result["gained"]["gain"] > 0,
    }


def main() -> None:
    """Run the seeds, two side by side, and print a row each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--root", type=Path, default=Path("genenv-data/verify-learning"))
    parser.add_argument("--arm", default="genenv")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    failed = 0
    print("seed  p_hat        tokens         zero-signal   P(answer) gain, 95 % of it  s    met")
    with ThreadPoolExecutor(options.jobs) as threads:
        results = threads.map(lambda s: run_seed(s, options.root, options.arm), options.seeds)
        for result in results:
            first, last, met = result["first"], result["last"], verdicts(result)
            gained = result["gained"]
            failed += not all(met.values())
            missed = ", ".join(name for name, ok in met.items() if not ok)
            print(
                f"{result['seed']:4d}  {first['p_hat']:.2f} -> {last['p_hat']:.2f}"
                f"  {first['mean_response_tokens']:4.1f} -> {last['mean_response_tokens']:4.1f}"
                f"  {first['share_zero_signal']:.2f} -> {last['share_zero_signal']:.2f}"
                f"  {gained['gain']:+.3f} [{gained['gain_low']:+.3f}, {gained['gain_high']:+.3f}]"
                f"     {result['seconds']:4.0f}  {'not ' + missed if missed else 'all'}",
                flush=True,
            )
    print(f"{len(options.seeds) - failed} of {len(options.seeds)} seeds met all four expectations")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
