"""What `genenv eval` does with a model: a run for each benchmark, and what they came to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from flows.cli.data.results import show_result, verdicts_file
from flows.cli.session import drain, log_to, need_server
from flows.running.signals import Terminated, heed_sigterm
from genenv_core import __version__
from genenv_core.benchmarks.predictions import Result, as_json
from genenv_core.config.schema import RunConfig
from genenv_core.domains.benchmarks.domain import folder_in
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.measuring.items import benchmark_of, result_of
from genenv_core.measuring.request import measurement
from genenv_core.types import JsonObject


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `genenv eval` was asked to measure, on whichever benchmark."""

    model: str
    model_name: str | None
    key_env: str | None
    mode: str | None
    samples: int
    limit: int | None
    overrides: tuple[str, ...]
    fields: Mapping[str, Any]

    def of(self, name: str, data: Path | None) -> RunConfig:
        """Return the configuration for a benchmark; raises ConfigError."""
        remote = self.model.startswith(("http://", "https://"))
        if not remote and (self.model_name or self.key_env):
            raise ConfigError(f"--model-name and --key-env are of a URL, and {self.model} is none")
        model: JsonObject = {
            "url": self.model if remote else None,
            "model": None if remote else self.model,
            "model_name": self.model_name,
            "items": self.limit,
        }
        fields = dict(self.fields)
        if self.key_env is not None:
            fields["execution"] = {"benchmark": {"key_env": self.key_env}}
        return measurement(
            name,
            model,
            options={"data": None if data is None else str(data.absolute()), "mode": self.mode},
            samples=self.samples,
            overrides=self.overrides,
            fields=fields,
        )


@dataclass(frozen=True, slots=True)
class _Measured:
    """One benchmark's run: what it came to, or why it did not."""

    config: RunConfig
    result: Result | None = None
    facts: Mapping[str, Any] | None = None
    failure: str = ""


def measure_models(
    names: Sequence[str],
    data: Path | None,
    wanted: Wanted,
    *,
    items: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Measure a model on these benchmarks, print the results, and write what was asked for.

    Of several benchmarks, one that cannot be measured does not stop the others; GenenvError is
    raised after them. Raises ConfigError for bad options.
    """
    below = {name: folder_in(data, name) if len(names) > 1 and data else data for name in names}
    configs = [wanted.of(name, below[name]) for name in names]
    heed_sigterm()
    _prepare(configs[0])
    from tasks.policies.measured import named  # loads Prefect, which is prepared by now

    configs = [named(config) for config in configs]
    made = _carried_out(configs, quiet=as_json)
    _print(made, as_json=as_json)
    if items is not None and made[0].result is not None:
        _write_verdicts(made[0].config, items)
    if report is not None:
        _write_report(configs[0].root, report)
    failed = [f"{one.config.domain.name}: {one.failure}" for one in made if one.failure]
    if failed:
        raise GenenvError(f"{len(failed)} of {len(made)} not measured: {'; '.join(failed)}")


def measure_configured(config: RunConfig, *, as_json: bool) -> None:
    """Measure, or go on measuring, what a run was started with, and print the result."""
    heed_sigterm()
    _prepare(config)
    _print(_carried_out([config], quiet=as_json), as_json=as_json)


def _prepare(config: RunConfig) -> None:
    from flows.running.environment import prepare
    from genenv_core.storage.store.opening import open_store

    prepare(open_store(config.root).home)


def _print(made: Sequence[_Measured], *, as_json: bool) -> None:
    if as_json:
        shown = [_facts(one) for one in made]
        typer.echo(json.dumps(shown if len(made) > 1 else shown[0], indent=2))
        return
    for one in made:
        if one.result is not None and one.facts is not None:
            _show(one, one.result, one.facts)


def _carried_out(configs: Sequence[RunConfig], *, quiet: bool) -> list[_Measured]:
    """Play the runs one after the other, with a Prefect API and a live view."""
    from genenv_core.storage.store.opening import open_store

    for config in configs:
        need_server(config)
    home = open_store(configs[0].root).home
    from flows.benchmark import inputs_of
    from flows.running.local_server import in_process, local_api

    refused: dict[int, str] = {}
    for place, config in enumerate(configs):
        try:
            inputs_of(config)  # before anything is started for it
        except GenenvError as error:
            if len(configs) == 1:
                raise
            refused[place] = str(error)
    with local_api(Path(os.environ["PREFECT_HOME"]), home) as server:
        from flows.cli.runs.measuring import MeasureView

        made: list[_Measured] = []
        for place, config in enumerate(configs):
            if place in refused:
                made.append(_Measured(config, failure=refused[place]))
                continue
            log_to(home / "runs" / str(config.run_id))
            with in_process(server), MeasureView(config, quiet=quiet) as view:
                started = time.perf_counter()
                try:
                    made.append(_played(config))
                finally:
                    drain()
            view.finish(time.perf_counter() - started)
            if made[-1].failure and len(configs) == 1:
                raise GenenvError(made[-1].failure)
    return made


def _played(config: RunConfig) -> _Measured:
    from flows.benchmark import measure
    from flows.running.work import do_work

    try:
        ref = do_work(lambda: measure(config), Terminated)
    except GenenvError as error:
        return _Measured(config, failure=str(error))
    domain = benchmark_of(get_domain(config.domain.name, config.domain.options))
    return _Measured(config, result_of(domain, _table(config, "benchmark_items")), ref.facts)


def _table(config: RunConfig, name: str) -> Any:
    """Return the rows of a table of the run's benchmark stage."""
    from genenv_core.config.stages import MEASURES
    from genenv_core.storage.records.runs import RunLog
    from tasks.stage.stores import artifacts_of

    artifacts = artifacts_of(config.root)
    key = RunLog(artifacts.store, str(config.run_id)).keys(0)[MEASURES]
    manifest = artifacts.find(MEASURES, key)
    assert manifest is not None
    return artifacts.frame(manifest, name)


def _facts(one: _Measured) -> JsonObject:
    config, facts = one.config, one.facts
    found: JsonObject = {"benchmark": config.domain.name, "run_id": config.run_id}
    if facts is None or one.result is None:
        return found | {"failure": one.failure}
    given = config.benchmark
    return found | {
        "mode": facts["mode"],
        "protocol": {"played": True, **facts["protocol"]},
        "genenv": __version__,
        "model": {"model": given.model, "url": given.url, "model_name": given.model_name},
        "engine": None if given.url else config.compute.engine,
        "data": {
            "folder": config.domain.options.get("data"),
            "digest": facts["data"],
            "items": one.result.items + sum(one.result.not_run.values()),
        },
        "limits": _limits(config),
        "attempts": facts["attempts"],
        "not_scored": facts["not_scored"],
        "broken": facts["broken"],
        "results": [as_json(one.result)],
    }


def _limits(config: RunConfig) -> JsonObject:
    """Return what bounded the attempts, and how they were sampled."""
    return {
        "samples": config.rollout.n,
        "temperature": config.benchmark.temperature,
        "top_p": config.rollout.top_p,
        "seed": config.seed,
        "turns": config.rollout.max_turns,
        "turn_tokens": config.rollout.max_tokens,
        "tokens": config.rollout.max_length,
        "tools": config.tools.execution,
        "tool_seconds": None if config.tools.execution == "inline" else config.tools.timeout_s,
        "items": config.benchmark.items,
    }


def _show(one: _Measured, result: Result, facts: Mapping[str, Any]) -> None:
    domain = benchmark_of(get_domain(one.config.domain.name, one.config.domain.options))
    limits = {name: value for name, value in _limits(one.config).items() if value is not None}
    bounds = ", ".join(f"{name} {value}" for name, value in limits.items())
    protocol = ", ".join(f"{name} {value}" for name, value in facts["protocol"].items())
    counted = f"{facts['attempts']} attempts, {facts['not_scored']} of them not scored ({bounds})"
    data = {"digest": facts["data"], "items": result.items + sum(result.not_run.values())}
    shown = {"benchmark": domain.name, "mode": facts["mode"]}
    what = domain.benchmark.modes[facts["mode"]]
    show_result(shown, f"{what}; {protocol}" if protocol else what, counted, data, [result])
    if facts["broken"]:
        typer.echo(f"{facts['broken']} attempts broke off, the first: {facts['broken_first']}")


def _write_verdicts(config: RunConfig, items: Path) -> None:
    with verdicts_file(items) as out:
        assert out is not None
        for row in _table(config, "benchmark_items").iter_rows(named=True):
            line: JsonObject = {"id": row["item"], "key": row["sample_index"]}
            line |= {"valid": row["valid"], "score": row["score"]}
            line |= {"reason": row["reason"]} if row["reason"] else {}
            out.write(json.dumps(line | {"parts": json.loads(row["parts"])}) + "\n")


def _write_report(root: str, report: Path) -> None:
    from genenv_core.measuring.table import read_measured, written
    from genenv_core.storage.sql.sources import open_tables
    from genenv_core.storage.store.opening import open_store

    with open_tables(open_store(root)) as connection:
        text = written(read_measured(connection))
    try:
        report.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--report {report}: {error.strerror}") from error
