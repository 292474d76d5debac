"""`make bench`: every benchmark in turn, or those named: `python -m tests.bench scale 1e6`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tests.bench import (
    engine,
    episodes,
    orchestration,
    s3,
    scale,
    scorers,
    servers,
    step,
    storage,
    view,
    vllm,
)

PARTS: dict[str, Callable[[], None]] = {
    "engine": engine.main,
    "episodes": episodes.main,
    "orchestration": orchestration.main,
    "storage": storage.main,
    "s3": s3.main,
    "scale": scale.main,
    "scorers": scorers.main,
    "servers": servers.main,
    "step": step.main,
    "view": view.main,
    "vllm": vllm.main,
}


def main() -> None:
    """Run the named parts, all of them by default."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="only this one")
    parser.add_argument("traces", nargs="*", type=float, help="scale only: sizes of the pools")
    options = parser.parse_args()
    if options.traces and options.part == "scale":
        scale.main([int(size) for size in options.traces])
        return
    for part in [options.part] if options.part else PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
