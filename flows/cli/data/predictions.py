"""Judges a file of predictions line by line, for `genenv eval`."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import typer

from flows.cli.data.results import show_result, verdicts_file
from flows.shown.json_text import json_text
from genenv_core import __version__
from genenv_core.benchmarks.predictions import Results, judge_lines
from genenv_core.benchmarks.predictions import as_json as plain
from genenv_core.benchmarks.registry import get_benchmark, suite_of
from genenv_core.benchmarks.training.modes import mode_of
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.named_files import unreadable
from genenv_core.types import JsonObject

LISTED = 3
"""Reasons of unscored lines that the terminal shows, each once."""


def judge_predictions(
    name: str,
    data: Path,
    predictions: Path,
    mode: str | None,
    items: Path | None,
    *,
    as_json: bool,
) -> None:
    """Judge a file, print what it adds up to, and write the verdict on each line to `items`.

    Raises ConfigError for bad options, and GenenvError after the others where the scorer failed.
    """
    benchmark = get_benchmark(name)
    chosen = mode_of(benchmark, mode, "--mode")
    if (
        items
        and os.path.exists(items)
        and os.path.exists(predictions)
        and items.samefile(predictions)
    ):
        raise ConfigError(f"--items {items} is the file of the predictions: name another one")
    suite = suite_of(benchmark, data)
    results, counts, shown = Results(suite), Counter[str](), Counter[str]()
    digest = hashlib.sha256()
    with _reading(predictions) as file, verdicts_file(items) as out:
        for judged in judge_lines(_hashed(file, digest), suite, chosen):
            results.add(judged)
            unscored = judged.verdict.valid is None
            unread = judged.unread
            counts.update(lines=1, unscored=unscored, failed=judged.failed, unread=unread)
            reason = judged.verdict.reason
            if unscored and (reason in shown or len(shown) < LISTED):
                shown[reason] += 1
            if out:
                out.write(judged.row() + "\n")
    facts: JsonObject = {
        "benchmark": name,
        "mode": chosen,
        "rule": benchmark.modes[chosen],
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
    if as_json:
        facts["results"] = [plain(one) for one in found]
        typer.echo(json_text(facts, indent=2))
    else:
        given = facts["predictions"]
        counted = f"{given['lines']} predictions, {given['not_scored']} of them not scored"
        show_result(facts, benchmark.modes[chosen], counted, facts["data"], found)
    for reason, lines in shown.items():
        typer.echo(f"not scored{f', {lines} lines' if lines > 1 else ''}: {reason}", err=True)
    if left := counts["unscored"] - shown.total():
        typer.echo(f"and {left} more; {items or '--items FILE'} names them all", err=True)
    if counts["unread"]:
        wanted = f"an id of the data, and as the prediction {benchmark.prediction}"
        typer.echo(f"a line needs {wanted}", err=True)
    if counts["failed"]:
        failed = f"the scorer failed on {counts['failed']} lines"
        raise GenenvError(f"{failed}, which is a fault of genenv: their reasons say how")


@contextmanager
def _reading(path: Path) -> Generator[IO[bytes]]:
    if why := unreadable(path, once=True):
        raise ConfigError(f"--predictions {path}: {why}")
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError(f"--predictions {path}: {error.strerror}") from error
    with file:
        yield file


def _hashed(file: IO[bytes], digest: Any) -> Iterator[bytes]:
    for line in file:
        digest.update(line)
        yield line
