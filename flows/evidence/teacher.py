"""`python -m flows.evidence.teacher`: a file for the arm `offline`, all levels in equal shares.

The teacher knows the domain's rules but not the agent. It writes its data once.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path

from genenv_core.config.load import resolve
from genenv_core.domains.kit.levels import LevelledTasks
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError
from genenv_core.ids import seed_from

TRIES = 100
"""Draws of a level for each program that it should have."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file, and print how many programs of each level it has."""
    parser = argparse.ArgumentParser(prog="python -m flows.evidence.teacher", description=__doc__)
    parser.add_argument("preset", help="a preset or a configuration file, for its domain")
    parser.add_argument("--epochs", type=int, required=True, help="how many the file is to last")
    parser.add_argument("--seed", type=int, default=0, help="of the programs")
    parser.add_argument("--output", type=Path, required=True, help="lines of JSON")
    options = parser.parse_args(arguments)
    levels = write_teacher(options.preset, options.epochs, options.output, seed=options.seed)
    print(f"{options.output}: {sum(levels)} programs, by level {', '.join(map(str, levels))}")


def write_teacher(preset: str, epochs: int, path: Path, *, seed: int = 0) -> list[int]:
    """Write distinct programs outside of the held-out bucket, new ones for every epoch.

    Levels take turns, so each epoch has them in equal shares. Returns how many programs each level
    has: fewer than its share where the domain has no more. Raises ConfigError for a domain without
    levels.
    """
    config = resolve(preset)
    domain = get_domain(config.domain.name, config.domain.options)
    if not isinstance(domain, LevelledTasks):
        raise ConfigError(
            f"domain.name: {config.domain.name} has no levels that a teacher could write in equal "
            "shares: name a preset whose domain has some, as headroom"
        )
    highest, wanted = domain.highest(), config.generation.tasks * epochs
    columns: list[list[str]] = []
    for level in range(highest):
        rng = random.Random(seed_from("teacher", seed, level))
        weights = [float(one == level) for one in range(highest)]
        count = wanted // highest + (level < wanted % highest)
        found: dict[str, None] = {}
        for _ in range(TRIES * count):
            if len(found) == count:
                break
            found[domain.draw_open(rng, weights).program] = None
        columns.append(list(found))
    longest = max(map(len, columns))
    rows = [column[turn] for turn in range(longest) for column in columns if turn < len(column)]
    path.write_text("".join(f"{json.dumps({'program': row})}\n" for row in rows), encoding="utf-8")
    return [len(column) for column in columns]


if __name__ == "__main__":
    main()
