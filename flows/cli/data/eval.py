"""`genenv eval`: benchmarks."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from flows.cli.options import Json
from flows.cli.tables import console, plain_table
from genenv_core import __version__
from genenv_core.benchmarks.registry import get_benchmark, known_benchmarks
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.types import JsonObject

if TYPE_CHECKING:
    from genenv_core.benchmarks.predictions import Result

LISTED = 3
"""Reasons of unscored lines that the terminal shows."""

Name = Annotated[
    str, typer.Argument(metavar="NAME", help=f"A benchmark: {', '.join(known_benchmarks())}.")
]


def evaluate(
    name: Name,
    data: Annotated[
        Path, typer.Option(help="The folder of the benchmark's official download.", metavar="DIR")
    ],
    predictions: Annotated[
        Path,
        typer.Option(help="Predictions to score: a line of JSON each, with id, key, prediction."),
    ],
    mode: Annotated[
        str | None, typer.Option(help="How to score, e.g. official; the default is the first.")
    ] = None,
    items: Annotated[
        Path | None, typer.Option(help="A file that gets the verdict on each line.")
    ] = None,
    json_: Json = False,
) -> None:
    """Score predictions on a benchmark as its official scorer does."""
    from genenv_core.benchmarks.predictions import Results, as_json, judge_lines

    benchmark = get_benchmark(name)
    chosen = mode or next(iter(benchmark.modes))
    if chosen not in benchmark.modes:
        known = "; ".join(f"{one}: {what}" for one, what in benchmark.modes.items())
        raise ConfigError(f"--mode {chosen!r}: {name} has no such mode; it has {known}")
    if items and items.exists() and predictions.exists() and items.samefile(predictions):
        raise ConfigError(f"--items {items} is the file of the predictions: name another one")
    suite = benchmark.load(data)
    results, counts, shown = Results(suite), Counter[str](), list[str]()
    digest = hashlib.sha256()
    with _reading(predictions) as file, _writing(items) as out:
        for judged in judge_lines(_hashed(file, digest), suite, chosen):
            results.add(judged)
            unscored = judged.verdict.valid is None
            counts.update(lines=1, unscored=unscored, failed=judged.failed)
            if unscored and len(shown) < LISTED:
                shown.append(judged.verdict.reason)
            if out:
                out.write(judged.row() + "\n")
    facts: JsonObject = {
        "benchmark": name,
        "mode": chosen,
        "protocol": "predictions",
        "genenv": __version__,
        "data": {"folder": str(data), "digest": suite.digest, "items": len(suite.items)},
        "predictions": {
            "file": str(predictions),
            "digest": digest.hexdigest(),
            "lines": counts["lines"],
            "not_scored": counts["unscored"],
        },
    }
    found = results.of_keys()
    if json_:
        facts["results"] = [as_json(one) for one in found]
        typer.echo(json.dumps(facts, indent=2))
    else:
        _show(facts, benchmark.modes[chosen], found)
    for reason in shown:
        typer.echo(f"not scored: {reason}", err=True)
    if counts["unscored"] > LISTED:
        rest = f"and {counts['unscored'] - LISTED} more"
        typer.echo(f"{rest}; {items or '--items FILE'} names them all", err=True)
    if counts["unscored"]:
        wanted = f"an id of the data, and as the prediction {benchmark.prediction}"
        typer.echo(f"a line needs {wanted}", err=True)
    if counts["failed"]:
        failed = f"the scorer failed on {counts['failed']} lines"
        raise GenenvError(f"{failed}, which is a fault of genenv: their reasons say how")


@contextmanager
def _reading(path: Path) -> Generator[IO[bytes]]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"--predictions {path}: {error.strerror}") from error
    with file:
        yield file


@contextmanager
def _writing(path: Path | None) -> Generator[IO[str] | None]:
    """Give a file that is there under its name only once it is whole."""
    if path is None:
        yield None
        return
    begun = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with begun.open("w", encoding="utf-8") as file:
            yield file
        begun.replace(path)
    except OSError as error:
        raise ConfigError(f"--items {path}: {error.strerror}") from error
    finally:
        begun.unlink(missing_ok=True)


def _hashed(file: IO[bytes], digest: Any) -> Iterator[bytes]:
    for line in file:
        digest.update(line)
        yield line


def _show(facts: JsonObject, what: str, results: list[Result]) -> None:
    data, given = facts["data"], facts["predictions"]
    typer.echo(
        f"{facts['benchmark']}, mode {facts['mode']} ({what})\n"
        f"{given['lines']} predictions, {given['not_scored']} of them not scored; "
        f"data {data['digest'][:12]} with {data['items']} items"
    )
    table = plain_table()
    for title in ("key", "metric", "points of 100", "95 % interval", "items"):
        table.add_column(title, justify="left" if title in ("key", "metric") else "right")
    for result in results:
        key = Text("" if result.key is None else str(result.key))  # a key is no markup
        for metric in result.metrics:
            if metric.value is None or metric.low is None or metric.high is None:
                table.add_row(key, metric.name, "", f"needs {', '.join(metric.missing)}", "")
                continue
            interval = f"[{100 * metric.low:.1f}, {100 * metric.high:.1f}]"
            cells = (metric.name, f"{100 * metric.value:.1f}", interval, str(metric.items))
            table.add_row(key, *cells)
    if results:
        console().print(table)
    for result in results:
        if result.not_run:
            key = "" if result.key is None else f" under key {result.key}"
            missing = ", ".join(f"{count} of {group}" for group, count in result.not_run.items())
            typer.echo(f"not run{key}: {missing}")
