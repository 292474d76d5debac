"""What `genenv eval` does with a model: a run for each benchmark, and what they came to."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.data.results import show_result, verdicts_file
from flows.cli.options import written_to
from flows.cli.session import drain, log_to
from flows.running.signals import Terminated, heed_ends
from flows.shown.json_text import json_text
from genenv_core import __version__
from genenv_core.benchmarks.measuring.items import stored_result
from genenv_core.benchmarks.measuring.request import MeasuringOptions, measurement
from genenv_core.benchmarks.predictions import Result, as_json
from genenv_core.benchmarks.registry import get_benchmark
from genenv_core.benchmarks.training.benchmark_domain import folder_in
from genenv_core.config.schema import RunConfig
from genenv_core.epoch.trouble import troubles
from genenv_core.errors import GenenvError
from genenv_core.storage.records.manifest import Manifest
from genenv_core.types import JsonObject

if TYPE_CHECKING:
    from flows.preparing import PreparedMeasurement


@dataclass(frozen=True, slots=True)
class MeasuredBenchmark:
    """One benchmark's run: the output of its stage, or why there is none."""

    config: RunConfig
    output: Manifest | None = None
    failure: str = ""


def measure_models(
    names: Sequence[str],
    asked: MeasuringOptions,
    overrides: Sequence[str],
    fields: Mapping[str, Any],
    *,
    data: Path | None,
    items: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Measure a model on these benchmarks, print the results, and write what was asked for.

    `data` is the folder of the download, of several benchmarks the one above their folders.

    Of several benchmarks, one that cannot be measured does not stop the others; GenenvError is
    raised after them. Raises ConfigError for bad options.
    """
    configs = list[RunConfig]()
    for name in names:
        folder = folder_in(data, name) if len(names) > 1 and data else data
        one = replace(asked, data=None if folder is None else str(folder.absolute()))
        configs.append(measurement(name, one, overrides=overrides, fields=fields))
    made = measure_all(configs, quiet=as_json)
    _print(made, as_json=as_json)
    if items is not None and made[0].output is not None:
        _write_verdicts(made[0].config, made[0].output, items)
    if report is not None:
        _write_report(configs[0].root, report)
    failed = [f"{one.config.domain.name}: {one.failure}" for one in made if one.failure]
    if failed:
        raise GenenvError(f"{len(failed)} of {len(made)} not measured: {'; '.join(failed)}")


def measure_all(configs: Sequence[RunConfig], *, quiet: bool) -> list[MeasuredBenchmark]:
    """Play measurements of one root one after the other, and name them; returns one for each.

    One that cannot be measured does not stop the others. Raises ConfigError and ModelError for
    models that are not there.
    """
    heed_ends()
    return _carried_out(configs, quiet=quiet)


def measure_configured(config: RunConfig, *, as_json: bool) -> None:
    """Measure, or go on measuring, what a run was started with, and print the result."""
    heed_ends()
    _print(_carried_out([config], quiet=as_json), as_json=as_json)


def _print(made: Sequence[MeasuredBenchmark], *, as_json: bool) -> None:
    if as_json:
        shown = [_facts(one) for one in made]
        typer.echo(json_text(shown if len(made) > 1 else shown[0], indent=2))
        return
    for one in made:
        if one.output is not None:
            _show(one.config, one.output)


def _carried_out(configs: Sequence[RunConfig], *, quiet: bool) -> list[MeasuredBenchmark]:
    """Play the runs one after the other, with a Prefect API and a live view."""
    from flows.running import environment
    from genenv_core.storage.store.opening import home_of

    home = home_of(configs[0].root)
    environment.prepare(home)  # before libraries are loaded, which read it once
    asked = [_asked(config) for config in configs]
    first = asked[0]
    if isinstance(first, GenenvError) and len({str(one) for one in asked}) == 1:
        raise first
    if all(isinstance(one, GenenvError) for one in asked):
        return [MeasuredBenchmark(c, failure=str(e)) for c, e in zip(configs, asked, strict=True)]
    from flows.running.local_server import in_process, local_api

    with local_api(Path(os.environ["PREFECT_HOME"]), home) as server:
        from flows.cli.data.measuring import MeasureView

        made: list[MeasuredBenchmark] = []
        for config, one in zip(configs, asked, strict=True):
            if isinstance(one, GenenvError):
                made.append(MeasuredBenchmark(config, failure=str(one)))
                continue
            log_to(home / "runs" / str(one.config.run_id))
            with in_process(server), MeasureView(one.config, quiet=quiet) as view:
                started = time.perf_counter()
                try:
                    made.append(_played(one))
                finally:
                    drain()
            view.finish(time.perf_counter() - started)
            if made[-1].failure and len(configs) == 1:
                raise GenenvError(made[-1].failure)
    return made


def _asked(config: RunConfig) -> PreparedMeasurement | GenenvError:
    """Return a measurement that may start, or why it may not."""
    from flows.preparing import prepare_measurement

    try:
        return prepare_measurement(config)
    except GenenvError as error:
        return error


def _played(prepared: PreparedMeasurement) -> MeasuredBenchmark:
    from flows.benchmark import measure_as_flow
    from flows.running.work import do_work
    from tasks.stage.stores import artifacts_of

    config = prepared.config
    try:
        ref = do_work(lambda: measure_as_flow(prepared), Terminated)
    except GenenvError as error:
        return MeasuredBenchmark(config, failure=str(error))
    return MeasuredBenchmark(config, artifacts_of(config.root).load(ref))


def _result(config: RunConfig, output: Manifest) -> Result:
    from tasks.stage.stores import artifacts_of

    return stored_result(output.facts, artifacts_of(config.root).frame(output, "benchmark_metrics"))


def _facts(one: MeasuredBenchmark) -> JsonObject:
    config = one.config
    found: JsonObject = {"benchmark": config.domain.name, "run_id": config.run_id}
    if one.output is None:
        return found | {"failure": one.failure}
    facts, result = one.output.facts, _result(config, one.output)
    given = config.measured
    names = dict.fromkeys(("model", "url", "model_name"))
    names |= given.model_dump(include={*names})
    return found | {
        "mode": facts["mode"],
        "rule": get_benchmark(config.domain.name).modes[facts["mode"]],
        "protocol": {"played": True, **facts["protocol"]},
        "genenv": __version__,
        "model": names,
        "engine": None if names["url"] else config.compute.engine,
        "data": {
            "folder": config.domain.options.get("data"),
            "digest": facts["data"],
            "items": result.items + sum(result.not_run.values()),
        },
        "limits": _limits(config),
        "attempts": facts["attempts"],
        "not_scored": facts["not_scored"],
        "broken": facts["broken"],
        "broken_first": facts["broken_first"],
        "warnings": troubles(facts),
        "results": [as_json(result)],
    }


def _limits(config: RunConfig) -> JsonObject:
    """Return what bounded the attempts, and how they were sampled."""
    return {
        "samples": config.rollout.n,
        "temperature": config.measured.temperature,
        "seconds": config.measured.attempt_seconds,
        "top_p": config.rollout.top_p,
        "seed": config.seed,
        "turns": config.rollout.max_turns,
        "turn_tokens": config.rollout.max_tokens,
        "tokens": config.rollout.max_length,
        "tools": config.tools.execution,
        "tool_seconds": None if config.tools.execution == "inline" else config.tools.timeout_s,
        "items": config.measured.items,
        "categories": ", ".join(config.measured.categories) or None,
        "drawn": config.measured.draw,
        "precision": config.measured.precision,
    }


def _show(config: RunConfig, output: Manifest) -> None:
    facts, result = output.facts, _result(config, output)
    benchmark = get_benchmark(config.domain.name)
    limits = {name: value for name, value in _limits(config).items() if value is not None}
    bounds = ", ".join(f"{name} {value}" for name, value in limits.items())
    protocol = ", ".join(f"{name} {value}" for name, value in facts["protocol"].items())
    counted = f"{facts['attempts']} attempts, {facts['not_scored']} of them not scored ({bounds})"
    data = {"digest": facts["data"], "items": result.items + sum(result.not_run.values())}
    shown = {"benchmark": benchmark.name, "mode": facts["mode"]}
    what = benchmark.modes[facts["mode"]]
    show_result(shown, f"{what}; {protocol}" if protocol else what, counted, data, [result])
    if facts["broken"]:
        typer.echo(f"{facts['broken']} attempts broke off, the first: {facts['broken_first']}")
    for trouble in troubles(facts):
        typer.echo(f"warning: {trouble}")


def _write_verdicts(config: RunConfig, output: Manifest, items: Path) -> None:
    from genenv_core.benchmarks.measuring.items import stored_lines
    from tasks.stage.stores import artifacts_of

    verdicts = artifacts_of(config.root).frame(output, "benchmark_items")
    with verdicts_file(items) as out:
        assert out is not None
        for line in stored_lines(verdicts, keyed=True):
            out.write(f"{line.row()}\n")


def _write_report(root: str, report: Path) -> None:
    from genenv_core.benchmarks.measuring.table import read_measured, written
    from genenv_core.storage.sql.sources import open_tables
    from genenv_core.storage.store.opening import open_once

    with open_tables(open_once(root)) as connection:
        text = written(read_measured(connection))
    written_to("--report", report, text.encode())
