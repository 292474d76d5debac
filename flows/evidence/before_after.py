"""`make real-eval`: measures the agent of a run on benchmarks, before and after training.

Both models attempt the same items, drawn at random by one seed, of Bamboogle, of BFCL's single-turn
categories and of levels 1 and 2 of API-Bank. Each measurement is a run, so the same command
continues an interrupted one, and reuses stored ones. The model before training is the run's given
model, else what its epoch 0 published.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.cli.data.measured import MeasuredBenchmark, measure_all
from flows.cli.options import check_run, existing
from flows.cli.runs.listing import newest_run
from genenv_core.addresses import DEFAULT_ROOT
from genenv_core.benchmarks.bfcl.categories import PYTHON_AST, SINGLE_TURN
from genenv_core.benchmarks.measuring.beside import Beside, beside, written
from genenv_core.benchmarks.measuring.items import benchmark_of
from genenv_core.benchmarks.measuring.request import MeasuringOptions, measurement
from genenv_core.benchmarks.training.benchmark_domain import DATA_VARIABLE, folder_in
from genenv_core.config.schema import RunConfig
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.named_files import write_output
from genenv_core.storage.records.runs import RunLog
from genenv_core.types import JsonObject

LEVELS = ("lv1 calls", "lv1 responses", "lv2 calls", "lv2 responses")


@dataclass(frozen=True, slots=True)
class MeasuredPart:
    """The measured part of a benchmark: its categories, () for all, and the shown metrics."""

    categories: Sequence[str]
    metrics: Sequence[str]


PARTS: Mapping[str, MeasuredPart] = {
    "bamboogle": MeasuredPart((), ("exact_match", "f1")),
    "bfcl": MeasuredPart([one.name for one in SINGLE_TURN], (PYTHON_AST, "irrelevance")),
    "api_bank": MeasuredPart(LEVELS, LEVELS),
}

TURN_TOKENS = 96
"""Tokens of a turn: an answer, a call or a response is shorter, and a small model that does not end
its turn costs no more."""

LENGTH = 4096
"""Tokens of an attempt, its prompt included. Few items are longer, and count as wrong."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both models and print the table; raises ConfigError, before any work, for bad input.

    Raises GenenvError at the end where the measurement of a benchmark failed.
    """
    parser = argparse.ArgumentParser(prog="make real-eval", description=__doc__)
    parser.add_argument("--run", default="", help="a run of the root; the newest by default")
    parser.add_argument("--root", default=str(DEFAULT_ROOT))
    parser.add_argument("--data", default="", help=f"the folder above the data ({DATA_VARIABLE})")
    parser.add_argument("--items", type=int, default=30, help="drawn of each benchmark")
    parser.add_argument("--seed", type=int, default=0, help="draws the items")
    parser.add_argument("--output", type=Path, help="a file that gets the table")
    parser.add_argument("--set", action="append", default=[], help="FIELD=VALUE of a measurement")
    options = parser.parse_args(arguments)
    data = data_in(options.data or os.environ.get(DATA_VARIABLE, ""))
    store = existing(options.root)
    run = options.run or newest_run(store)
    check_run(store, run)
    info = RunLog(store, run).info()
    models = [before_of(run, info.config), f"run:{run}"]
    asked = {"root": options.root, "seed": options.seed, "compute": info.config["compute"]}
    configs = [
        configured(name, model, data, options.items, fields=asked, overrides=options.set)
        for model in models
        for name in PARTS
    ]
    made = measure_all(configs, quiet=False)
    count = len(PARTS)
    pairs = list(zip(made[:count], made[count:], strict=True))
    rows = [row for one, other in pairs for row in compared(one, other)]
    names = [one.config.measured.model_in_words for one in pairs[0]]
    table = written(rows, *names)
    print(f"\n{table}")
    if options.output is not None:
        write_output(options.output, table.encode())
    failed = [f"{one.config.domain.name}: {one.failure}" for one in made if one.failure]
    if failed:
        raise GenenvError(f"{len(failed)} of {len(made)} not measured: {'; '.join(failed)}")


def data_in(folder: str) -> Path:
    """Return the folder above the data; raises ConfigError, naming what is missing in it."""
    names = ", ".join(PARTS)
    get = "`genenv data fetch all --to DIR` gets it"
    if not folder:
        raise ConfigError(
            f"the official data of {names} is not given: name the folder above theirs, as in "
            f"`make real-eval DATA=DIR`, or set {DATA_VARIABLE}; {get}"
        )
    above = Path(folder).expanduser().absolute()
    missing = [name for name in PARTS if not os.path.isdir(folder_in(above, name))]
    if missing:
        raise ConfigError(f"{above} has no folder {' and no folder '.join(missing)}: {get}")
    return above


def before_of(run: str, config: JsonObject) -> str:
    """Return the given model of a run's agent, or what its epoch 0 published."""
    given = config["models"]["agent"]
    return given if given is not None and os.path.isdir(given) else f"run:{run}@0"


def configured(
    name: str,
    model: str,
    data: Path,
    items: int,
    *,
    fields: Mapping[str, Any],
    overrides: Sequence[str] = (),
) -> RunConfig:
    """Return the measurement of a model on a part of a benchmark; raises ConfigError."""
    part = PARTS[name]
    asked = MeasuringOptions(model, data=str(folder_in(data, name)))
    short = [f"rollout.max_tokens={TURN_TOKENS}", f"rollout.max_length={LENGTH}"]
    drawn = [f"benchmark.draw={items}", f"benchmark.categories={list(part.categories)}"]
    return measurement(name, asked, overrides=[*short, *drawn, *overrides], fields=fields)


def compared(one: MeasuredBenchmark, other: MeasuredBenchmark) -> list[Beside]:
    """Return the shown metrics of two measurements; [] where one of them failed."""
    if one.output is None or other.output is None:
        return []
    from tasks.stage.stores import artifacts_of

    config = one.config
    domain = benchmark_of(get_domain(config.domain.name, config.domain.options))
    artifacts = artifacts_of(config.root)
    before, after = (artifacts.frame(of, "benchmark_items") for of in (one.output, other.output))
    shown = PARTS[domain.name].metrics
    return [row for row in beside(domain, before, after) if row.metric in shown]


if __name__ == "__main__":
    from flows.cli.app import plainly

    plainly(main)
