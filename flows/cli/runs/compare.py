"""`genenv compare`."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import ConfiguredRoot, Json, Overrides, check_output
from flows.running.signals import Terminated, heed_ends
from flows.shown.json_text import json_text
from genenv_core.errors import ConfigError

if TYPE_CHECKING:
    from genenv_core.compare.page import PlayedComparison
    from genenv_core.config.comparison import Comparison, PlannedRun


def compare(
    source: Annotated[
        str,
        typer.Argument(metavar="SPEC", help="A YAML file with arms, a preset or a configuration."),
    ] = "quickstart",
    arms: Annotated[
        str | None,
        typer.Option(help="Arms, e.g. genenv,random,no_filter,lambda=0; the first is compared."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="How many seeds from 0 on, or which: 6, 100-109, 3,5,8.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="What all arms spend equally: rollouts, steps or tokens.")
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(help="The measure that decides: answer_probability, sampled or greedy."),
    ] = None,
    set_: Overrides = None,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs of every run.")] = None,
    jobs: Annotated[int, typer.Option(help="Runs at work at once.", min=1, max=64)] = 2,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the pages to this folder as well.")
    ] = None,
    root: ConfiguredRoot = None,
    as_json: Json = False,
) -> None:
    """Play arms on the same seeds and say which is better, with intervals that hold."""
    heed_ends()
    from genenv_core.config.comparison import planned_runs, read_comparison

    comparison = read_comparison(
        source,
        {
            "arms": arms.split(",") if arms else None,
            "seeds": seeds_of(seeds) if seeds else None,
            "budget": budget,
            "measure": measure,
            "set": _changes(set_ or [], epochs),
        },
    )
    runs = planned_runs(comparison, root)
    check_output("--output", output, folder=True)
    made = _played(comparison, runs, jobs=jobs, quiet=as_json)
    _show(made, output, as_json=as_json)


def seeds_of(text: str) -> list[int]:
    """Return the seeds of `6` (0 to 5), `100-109` or `3,5,8`; raises ConfigError."""
    if re.fullmatch(r"\d{1,4}", text):
        return list(range(int(text)))
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", part.strip())
        last = int(found[2] or found[1]) if found else -1
        if not found or not int(found[1]) <= last < int(found[1]) + 10_000:
            raise ConfigError(
                f"--seeds {text!r}: write how many (6), a range (100-109), or a list (3,5,8)"
            )
        seeds.extend(range(int(found[1]), last + 1))
    return seeds


def _changes(overrides: list[str], epochs: int | None) -> dict[str, object] | None:
    from genenv_core.config.load import read_override

    changes = dict(read_override(text, "--set") for text in overrides)
    if epochs is not None:
        changes["epochs"] = epochs
    return changes or None


def _played(
    comparison: Comparison, runs: list[PlannedRun], *, jobs: int, quiet: bool
) -> PlayedComparison:
    """Play the runs with a Prefect API of their own, or the one that is there."""
    from flows.cli.session import drain, log_to
    from flows.running import environment
    from flows.shown.tables import console
    from genenv_core.storage.store.opening import home_of

    config = runs[0].config
    home = home_of(config.root)
    environment.prepare(home)  # before libraries are loaded, which read it once
    from flows.preparing import prepare

    for one in {run.arm: run for run in runs}.values():  # seeds are alike
        prepare(one.config)
    from flows.running.local_server import in_process, local_api

    terminal = console()

    def say(text: str) -> None:
        if not quiet:
            terminal.print(text, markup=False, soft_wrap=True)

    with local_api(Path(os.environ["PREFECT_HOME"]), home) as server:
        say(
            f"comparing {', '.join(comparison.arms)}: {len(runs)} runs, "
            f"{len(comparison.seeds)} seeds, {jobs} at once"
        )
        from genenv_core.compare.judging import too_few

        if few := too_few(comparison):
            say(few)
        from flows.comparing import INTERRUPTED_S, STOPPED_S, ByResume, conclude, play_here
        from flows.running.work import do_work
        from genenv_core.config.comparison import comparison_name
        from genenv_core.storage import paths

        folder = home / paths.comparison(comparison_name(comparison), "logs")
        log_to(folder)
        launch = ByResume(config.root, folder)
        with in_process(server):
            try:
                failures = do_work(
                    lambda: play_here(comparison, runs, launch, jobs=jobs, tell=say), Terminated
                )
            except KeyboardInterrupt:
                launch.end(signal.SIGINT, INTERRUPTED_S)
                raise
            except Terminated:
                launch.end(signal.SIGTERM, STOPPED_S)
                raise
            finally:
                drain()
    return conclude(comparison, runs, failures)


def _show(made: PlayedComparison, output: Path | None, *, as_json: bool) -> None:
    from flows.comparing import copy_pages, raise_failures
    from flows.shown.tables import console
    from genenv_core.compare.page import PAGE, as_values
    from genenv_core.report.words import MEASURES
    from genenv_core.storage import paths
    from genenv_core.storage.store.opening import open_once

    if output is not None:
        copy_pages(made, output)
    if as_json:
        typer.echo(json_text(as_values(made)))
    else:
        say = partial(console().print, markup=False, soft_wrap=True)
        for measure in made.judged.measures:
            say(f"\ngain in {MEASURES[measure]} on the test tasks, points of 100:")
            for verdict in (*made.judged.of(measure), *made.judged.of_domains(measure)):
                say(f"  {verdict.words}")
        if made.judged.family:
            say(f"\nby domain: in each measure the {made.judged.family}'s adjustment")
        if not made.judged.verdicts:
            say("\nnothing to decide: it takes two seeds that every arm has finished")
        place = f"{open_once(made.root).uri}/{paths.comparison(made.name, PAGE)}"
        say(f"\npage: {output / PAGE if output else place}")
    raise_failures(made)
