"""`genenv certify`: how many tasks have each flaw, and which of somebody's tasks.

A domain's own, those of a folder that somebody gave away, or those that pi_env wrote in a run.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.data.certifying.certify_outputs import CertifyOutputs, command_of
from flows.cli.data.certifying.wanted_tasks import BASE, HELDOUT, WantedTasks
from flows.cli.data.query import Format
from flows.cli.options import KeyEnv, ModelName, Overrides, Root, config_of_domain
from genenv_core.domains.registry import SEVERAL, get_domain, known_domains
from genenv_core.errors import ConfigError
from genenv_core.types import TaskSource

SAMPLES = 8
"""Attempts of a model at each task, as many as rollout.n of a run."""


def certify(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FOLDER",
            help="A domain as in domain.name: a name, my_domain.py:Units or package.module:Units. "
            "Or a folder that genenv export wrote for others' programs, or with a taskset of "
            "verifiers.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            help="Instead of a domain: a run, for the tasks that pi_env wrote in it, or for others "
            "of it (--tasks). Also says, from its attempts, whether they are worth training on."
        ),
    ] = None,
    epochs: Annotated[
        str | None,
        typer.Option(
            help="With --run: epochs that wrote the tasks: 3:8, or 5. Of base and test tasks: "
            "epochs whose attempts count (default: those of the newest version of pi_agent)."
        ),
    ] = None,
    set_: Overrides = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            metavar="N|base|test",
            help=f"Base tasks to certify (default: {BASE}, or all where there are fewer). "
            "With --run: base or test, for the base tasks or the test tasks of the run.",
        ),
    ] = None,
    heldout: Annotated[
        int | None,
        typer.Option(
            help=f"Held-out tasks to certify (default: {HELDOUT}, or all where there are fewer).",
            min=0,
            max=100_000,
        ),
    ] = None,
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="Format of OUTPUT (default: its ending, or table)."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write a row for each task and check to this file; of a run, one for each check.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            help="Write an HTML page for whoever owns the tasks: verdict, flaws with examples, "
            "what to do. It needs no network and no genenv."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="With a folder in OpenEnv's form: write a report of its RFC 008 (JSON, report-v2)."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Let a model attempt the tasks too, and say whether they are worth training on: "
            "a checkpoint folder, run:RUN or run:RUN@EPOCH, models:/NAME/VERSION in MLflow, or the "
            "URL of an OpenAI-compatible endpoint."
        ),
    ] = None,
    model_name: ModelName = None,
    key_env: KeyEnv = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help=f"With --model: its attempts at each task (default: {SAMPLES}).", min=2, max=1024
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="With --model: it attempts the first N tasks of each set alone.", min=1),
    ] = None,
    root: Root = None,
) -> None:
    """Say how many tasks have each flaw: play them without models, or read a run.

    A domain draws its tasks; a folder of genenv export holds them with their code. With --model
    also whether they are worth training on; its rows go to the root, for genenv sql.
    """
    folder = None if name is None else _folder_of(name)
    stored = _stored_set(run, tasks)
    idle = {
        "--set": bool(set_),
        "--tasks": tasks is not None and stored is None,
        "--heldout": heldout is not None,
    }
    of_model = {
        "--model-name": model_name, "--key-env": key_env, "--samples": samples, "--limit": limit,
    }  # fmt: skip
    for option, value in of_model.items():
        if value is not None and model is None:
            raise ConfigError(f"{option} is of a model: name one with --model, or leave it out")
    if run is not None and model is not None:
        raise ConfigError(
            f"--model {model} does nothing with --run, whose attempts are stored: leave it out, or "
            "name a domain or a folder in place of the run"
        )
    if model is not None and folder is not None:
        idle.pop("--set")
    given = {option for option, said in idle.items() if said}
    _refuse_idle(name, run, folder is not None, given, epochs)
    if report is not None and folder is None:
        raise ConfigError(
            f"--report {report} is of a package of OpenEnv: write one with "
            "genenv export RUN --format openenv, and certify its folder"
        )
    base = None if tasks is None or stored is not None else _count_of(tasks)
    if base == heldout == 0:
        raise ConfigError("--tasks 0 --heldout 0: ask for at least one task")
    wanted = WantedTasks.of(base, heldout)
    outputs = CertifyOutputs.checked(format_, output, page, report)
    if name is not None and model is not None:
        from flows.cli.data.certifying.certify_model import certify_with_model
        from genenv_core.benchmarks.measuring.request import MeasuringOptions

        asked = MeasuringOptions(
            model, model_name, key_env, samples=samples or SAMPLES, items=limit
        )
        certify_with_model(name, folder, wanted, asked, set_ or (), root, outputs)
    elif run is not None and stored is not None:
        from flows.cli.data.certifying.certify_stored import certify_stored

        certify_stored(run, stored, epochs, root, outputs)
    elif run is not None:
        from flows.cli.data.certifying.certify_run import certify_run

        certify_run(run, epochs, root, outputs)
    elif folder is not None:
        from flows.cli.data.certifying.certify_tasks import certify_folder

        certify_folder(folder, outputs)
    elif name is not None:
        config = config_of_domain(name, set_)
        domain = get_domain(name, config.domain.options)
        from flows.cli.data.certifying.certify_tasks import certify_domain

        command = command_of(name, *(word for one in set_ or () for word in ("--set", one)))
        certify_domain(name, domain, wanted, config.seed, command, outputs)


def _stored_set(run: str | None, tasks: str | None) -> TaskSource | None:
    """Return the set of a run that `--tasks` names; None for a number of tasks, or without it."""
    if tasks is None or tasks not in (TaskSource.BASE.value, TaskSource.TEST.value):
        return None
    if run is None:
        raise ConfigError(
            f"--tasks {tasks} is of a run: name one with --run, or say how many base tasks a "
            "domain draws, such as --tasks 200"
        )
    return TaskSource(tasks)


def _count_of(tasks: str) -> int:
    """Return how many base tasks `--tasks` asks for; raises ConfigError."""
    count = int(tasks) if re.fullmatch(r"[0-9]{1,6}", tasks) else -1
    if not 0 <= count <= 100_000:
        raise ConfigError(
            f"--tasks {tasks}: expected a number from 0 to 100000; with --run base or test"
        )
    return count


def _folder_of(name: str) -> Path | None:
    """Return the folder that a name is; None where it names a domain, which wins over a folder."""
    if ":" in name or name in (*known_domains(), SEVERAL):
        return None
    folder = os.path.expanduser(name)
    if os.path.isdir(folder):  # Path.is_dir() raises where a name is too long for the system
        return Path(folder)
    if os.sep in name:
        raise ConfigError(f"there is no folder {name}: name one that genenv export wrote")
    return None


def _refuse_idle(
    name: str | None, run: str | None, folder: bool, given: set[str], epochs: str | None
) -> None:
    """Raise ConfigError unless one thing is named, with options that do something."""
    if name is not None and run is not None:
        raise ConfigError(
            f"{name} and --run {run}: name a domain or a folder for its own tasks, or a run for "
            "those that pi_env wrote in it, and leave the other out"
        )
    if name is None and run is None:
        raise ConfigError("name a domain, a folder of genenv export, or a run with --run")
    for option in sorted(given):
        if run is not None:
            raise ConfigError(
                f"{option} does nothing with --run, which reads the stored tasks: leave it out; "
                "--tasks base and --tasks test name other tasks of the run"
            )
        if folder:
            raise ConfigError(
                f"{option} does nothing with the folder {name}, whose tasks are all certified as "
                "they are: leave it out"
            )
    if run is None and epochs is not None:
        raise ConfigError(f"--epochs {epochs} works with --run alone: leave it out")
