"""`genenv certify --model`: a model attempts the tasks of a set, and what both are worth.

It is a run with one stage, as a measurement of `genenv eval`: what is finished is reused, and its
rows are in the root. Flaws end the command with status 1; the checks of the attempts do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flows.cli.data.certifying.certify_outputs import CertifyOutputs, command_of
from flows.cli.data.certifying.flaw_table import tasks_of
from flows.cli.data.certifying.wanted_tasks import WantedTasks, set_sizes
from genenv_core.benchmarks.measuring.request import ATTEMPTS, MeasuringOptions, certification
from genenv_core.config.schema import RunConfig
from genenv_core.domains.registry import SEVERAL, get_domain
from genenv_core.errors import GenenvError
from genenv_core.types import JsonObject

if TYPE_CHECKING:
    from genenv_core.domains.protocol import Domain
    from genenv_core.play.checking.sets import SetTask
    from genenv_core.storage.records.manifest import Manifest


def certify_with_model(
    name: str,
    folder: Path | None,
    wanted: WantedTasks,
    asked: MeasuringOptions,
    overrides: Sequence[str],
    root: str | None,
    outputs: CertifyOutputs,
) -> None:
    """Certify base tasks and held-out tasks of a domain, or all tasks of a folder.

    Raises ConfigError for bad options, GenenvError where tasks have flaws or the model fails.
    """
    from genenv_core.evidence.attempted import tasks_of_sets
    from genenv_core.play.checking.openenv_report import check_package

    joined = name == SEVERAL and any(one.startswith("domains=") for one in overrides)
    section: JsonObject | None = None if joined else {"name": name}
    if folder is not None:
        section = _of_folder(folder)
        if outputs.report is not None:
            check_package(folder)
        held = get_domain(section["name"], section["options"])
        wanted = WantedTasks(len(tasks_of_sets(held, 0, 0, 0)), 0)

    def configured(base: int, heldout: int) -> RunConfig:
        counts = (base, heldout)
        return certification(section, asked, counts, overrides=overrides, fields={"root": root})

    config = configured(wanted.base, wanted.heldout)
    domain = get_domain(config.domain.name, config.domain.options)
    tasks = tasks_of_sets(domain, wanted.base, wanted.heldout, config.seed, wanted.fewer)
    if folder is None:
        wanted = WantedTasks(*set_sizes(tasks))
        config = configured(wanted.base, wanted.heldout)
    for line in _ahead(config, domain, tasks):
        typer.echo(line)
    config, output = _measured(config, quiet=False)
    words = [name, "--model", asked.model, "--samples", asked.samples]
    given = {"--model-name": asked.model_name, "--key-env": asked.key_env, "--limit": asked.items}
    words += [word for option, value in given.items() if value for word in (option, value)]
    if folder is None:
        words += ["--tasks", wanted.base, "--heldout", wanted.heldout]
    words += [word for one in overrides for word in ("--set", one)]
    _finish(config, output, folder or name, domain, outputs, command_of(*words))


def certify_configured(config: RunConfig, *, as_json: bool) -> None:
    """Certify, or go on certifying, what a run was started with, and print what it came to."""
    config, output = _measured(config, quiet=as_json)
    if as_json:
        from flows.shown.json_text import json_text

        rows = _frame(config, output, "certified_sets").to_dicts()
        found: JsonObject = {"run_id": config.run_id, **output.facts, "rows": rows}
        typer.echo(json_text(found, indent=2))
        return
    from flows.cli.data.query import Format

    domain = get_domain(config.domain.name, config.domain.options)
    name = str(config.domain.options.get("folder", config.domain.name))
    _finish(config, output, name, domain, CertifyOutputs(Format.TABLE), "")


def _measured(config: RunConfig, *, quiet: bool) -> tuple[RunConfig, Manifest]:
    from flows.cli.data.measured import measure_all

    (made,) = measure_all([config], quiet=quiet)
    if made.output is None:
        raise GenenvError(made.failure)
    return made.config, made.output


def _of_folder(folder: Path) -> JsonObject:
    """Return the section `domain` of a folder that holds tasks; raises ConfigError."""
    from genenv_core.exchange.environments.reading import taskset_of

    place = {"folder": str(folder.resolve())}
    if module := taskset_of(folder):
        return {"name": "verifiers_taskset", "options": {**place, "module": module}}
    return {"name": "exported_folder", "options": place}


def _ahead(config: RunConfig, domain: Domain, tasks: Sequence[SetTask]) -> list[str]:
    """Return what is certified, and what that costs at most."""
    from flows.cli.data.certifying.certify_tasks import flaw_cost
    from genenv_core.evidence.attempted import first_of_sets

    attempted = len(first_of_sets(tasks, config.measured.items))
    bounds, model = config.rollout, config.measured.model_in_words
    attempts = attempted * bounds.n
    tokens = attempts * min(bounds.max_turns * bounds.max_tokens, bounds.max_length)
    return [
        f"certifies {tasks_of(len(tasks))} of domain {domain.name}, version {domain.version}",
        flaw_cost(domain, len(tasks)),
        f"{model} attempts {tasks_of(attempted)}, each {bounds.n} times: {attempts:,} attempts and "
        f"verdicts, at most {attempts * bounds.max_turns:,} answers ({bounds.max_turns} turns) and "
        f"{tokens:,} sampled tokens (rollout.max_turns, max_tokens, max_length)",
    ]


def _frame(config: RunConfig, output: Manifest, table: str) -> Any:
    from tasks.stage.stores import artifacts_of

    return artifacts_of(config.root).frame(output, table)


def _finish(
    config: RunConfig,
    output: Manifest,
    named: Path | str,
    domain: Domain,
    outputs: CertifyOutputs,
    command: str,
) -> None:
    """Print and write what a certificate came to; raises GenenvError where tasks have flaws."""
    from flows.cli.data.certifying.certify_tasks import GivenSet
    from flows.cli.data.certifying.concluding import conclude, say_sound
    from genenv_core.evidence.attempted import (
        REMEDIES_OF_SET,
        check_rows,
        stored_checks,
        stored_flaws,
    )
    from genenv_core.play.checking.openenv_report import openenv_report
    from genenv_core.play.checking.sets import with_floor

    tasks = _frame(config, output, "tasks")
    found = stored_flaws(tasks, _frame(config, output, "set_flaws"))
    checks = stored_checks(_frame(config, output, "certified_sets"))
    bounds = ", ".join(f"{name} {getattr(config.rollout, name)}" for name in ("n", *ATTEMPTS))
    given = config.measured
    facts = {
        "domain": f"{domain.name}, version {domain.version}",
        "tasks": str(len(found)),
        "model": given.model_in_words,
        "attempts": f"{bounds}, temperature {given.temperature:g}, seed {config.seed}",
        "run": str(config.run_id),
        "command": command,
    }
    about = f"{tasks_of(len(found))} of {named}, played without a model, and attempted by one."
    what = GivenSet(str(named), about, facts, _notes(config, output.facts))
    conclude(what, domain, found, checks, REMEDIES_OF_SET, outputs)
    if isinstance(named, Path):
        played = [with_floor(domain, one) for one in found] if outputs.report else []
        outputs.write_report(lambda: openenv_report(named, played, 0.0, check_rows([], checks)))
    typer.echo(f"rows: genenv sql \"FROM certified_sets WHERE run_id = '{config.run_id}'\"")
    say_sound(str(named), found, checks)


def _notes(config: RunConfig, facts: JsonObject) -> list[str]:
    """Return who attempted what, and what counts nowhere."""
    model = config.measured.model_in_words
    lines = [
        f"{facts['attempted']} of {tasks_of(facts['tasks'])} attempted by {model}: "
        f"{facts['verdicts']} attempts with a verdict"
    ]
    if lost := facts["attempts"] - facts["verdicts"]:
        lines.append(
            f"{lost} attempts were lost by no fault of the model, and count nowhere; the first: "
            f"{facts['broken_first']}"
        )
    return [*lines, *([facts["endless"]] if "endless" in facts else [])]
