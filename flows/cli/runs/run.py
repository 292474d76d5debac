"""`genenv run` and `genenv plan`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from flows.cli.options import (
    ConfiguredRoot,
    Json,
    Overrides,
    Root,
    SourceOrNone,
    check_run,
    existing,
)
from flows.cli.runs.branching import branched
from flows.cli.session import check_start, drain, last_end, log_to
from flows.running.signals import Terminated, heed_ends
from genenv_core.config.branching import BranchPoint, read_point
from genenv_core.config.load import FREE_SECTIONS, continued, read_override, resolve, run_name
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import LAST
from genenv_core.config.until import Until, read_forced, read_until
from genenv_core.errors import ConfigError
from schemas.enums import StageState

if TYPE_CHECKING:
    from flows.cli.runs.live import RunView
    from genenv_core.exchange.external import Given
    from genenv_core.training.memory.needs import Need

Epochs = Annotated[int | None, typer.Option(help="Number of epochs; more continue the same run.")]


UntilText = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="STAGE[@EPOCH]", help="End after this stage; the next command goes on."
    ),
]
ForceText = Annotated[
    str | None,
    typer.Option(
        "--force",
        metavar="STAGE[@EPOCH]",
        help="Draw this stage anew, and compute what follows from it.",
    ),
]
FromText = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="RUN@EPOCH",
        help="Branch off: take over RUN up to this epoch, and go on with the settings given here.",
    ),
]


FreeOverrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help=f"Change a field of {', '.join(FREE_SECTIONS)}, e.g. limits.tokens=200000.",
    ),
]


@dataclass(frozen=True)
class Asked:
    """What a command asks for beside a configuration: it belongs to the command, not to the run.

    `until` is the last stage to carry out, `force` one to draw anew, `point` where a run branches
    off.
    """

    until: Until | None = None
    force: Until | None = None
    point: BranchPoint | None = None

    @classmethod
    def read(
        cls, config: RunConfig, until: str | None, force: str | None, point: BranchPoint | None
    ) -> Asked:
        """Return what these texts ask for; raises ConfigError."""
        return cls(
            read_until(until, config) if until else None,
            read_forced(force, config) if force else None,
            point,
        )


NOTHING = Asked()


def _configured(command: Callable[[RunConfig, bool, Asked], None]) -> Callable[..., None]:
    """Return the command with the options that make its configuration."""

    def with_options(
        source: SourceOrNone = None,
        set_: Overrides = None,
        epochs: Epochs = None,
        seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.")] = None,
        root: ConfiguredRoot = None,
        run_id: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
        from_: FromText = None,
        until: UntilText = None,
        force: ForceText = None,
        as_json: Json = False,
    ) -> None:
        fields = {"epochs": epochs, "seed": seed, "root": root, "run_id": run_id}
        point = read_point(from_) if from_ is not None else None
        if point is None:
            name = source or "quickstart"
            config = resolve(name, overrides=set_ or (), fields=fields)
            config = config.model_copy(update={"run_id": run_name(config, name)})
        else:
            config = branched(point, source, set_ or (), fields)
        command(config, as_json, Asked.read(config, until, force, point))

    with_options.__doc__ = command.__doc__
    return with_options


@_configured
def run(config: RunConfig, as_json: bool, asked: Asked) -> None:
    """Run a co-evolution; what is finished already is reused."""
    if config.benchmark.given:
        raise ConfigError(
            "section benchmark: a model is measured by `genenv eval`, which makes such a "
            "configuration itself: remove the section"
        )
    heed_ends()
    execute(config, asked, as_json=as_json)


def resume(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run that was started here.")],
    set_: FreeOverrides = None,
    epochs: Epochs = None,
    until: UntilText = None,
    force: ForceText = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Continue a run with the configuration it was started with."""
    heed_ends()
    from genenv_core.storage.records.runs import RunLog

    store = existing(root)
    check_run(store, run_id)
    # The root may have been moved or mounted elsewhere since.
    fields = {"epochs": epochs, "root": store.uri, "run_id": run_id}
    recorded = RunLog(store, run_id).info().config
    changes = dict(read_override(text, "--set") for text in set_ or ())
    config = continued(recorded, run_id, changes, "--set", fields)
    asked = Asked.read(config, until, force, None)
    if config.benchmark.given:
        from flows.cli.data.measured import measure_configured

        measure_configured(config, as_json=as_json)
    else:
        execute(config, asked, as_json=as_json)


def execute(config: RunConfig, asked: Asked = NOTHING, *, as_json: bool) -> None:
    """Run a resolved configuration with a Prefect API and a live view; returns when it is done."""
    view, start_s, run_s = carry_out(config, asked, quiet=as_json)
    view.finish(start_s, run_s, asked.until)


def carry_out(config: RunConfig, asked: Asked, *, quiet: bool) -> tuple[RunView, float, float]:
    """Run a resolved configuration; returns its view, and the seconds to start and to run."""
    started = time.perf_counter()
    check_start(config)
    home, given = open_root(config)
    point = _checked(config, asked)
    from genenv_core.training.memory.needs import check_needs, needs

    updates = needs(config, given)
    check_needs(config, updates)
    from flows.running.environment import prepare

    prepare(home)
    from flows.running.local_server import in_process, local_api
    from tasks.policies.trainer import ended

    with local_api(Path(os.environ["PREFECT_HOME"]), home) as server, ended():
        from flows.cli.runs.live import RunView

        view = RunView(config, quiet=quiet, point=point)
        view.note("starting: libraries and the Prefect API" if server else "starting: libraries")
        log_to(home / "runs" / str(config.run_id))
        if killed := last_end(config):
            logging.getLogger("genenv.run").warning("%s", killed)
            view.note(escape(killed), "bold yellow")
        for need in updates:
            logging.getLogger("genenv.run").info("memory %s", need.line())
        for line in _remarks(config, given, updates):
            view.warn(line)
        # The heavy imports, the workers' too, overlap with the server's start.
        _start_workers(config)
        from flows.coevolution import coevolution
        from flows.running.work import do_work

        with in_process(server), view:
            ready = time.perf_counter()
            try:
                do_work(
                    lambda: coevolution(config, asked.until, asked.force, asked.point), Terminated
                )
            except Terminated as error:
                raise Terminated(_where(config), error.number) from error
            finally:
                drain()
    return view, ready - started, time.perf_counter() - ready


@_configured
def plan(config: RunConfig, as_json: bool, asked: Asked) -> None:
    """Show what a run would reuse and what it would compute."""
    home, given = open_root(config)
    from flows.running.environment import prepare

    prepare(home)
    from flows.cli.runs.predicted import Predicted
    from flows.cli.tables import show_needs, show_plan
    from flows.planner import plan_run
    from genenv_core.storage.store.opening import open_store
    from genenv_core.training.memory.needs import needs

    point = _checked(config, asked)
    entries = plan_run(config, asked.until, asked.force, asked.point)
    predicted = Predicted(open_store(config.root, writable=False), config, entries)
    if not as_json:
        for line in _asked_models(config):
            typer.echo(line)
    show_plan(entries, config, predicted.values(), point, as_json=as_json)
    if not as_json:
        predicted.show()
        updates = needs(config, given)
        show_needs(*_memory_shown(config, given, updates), _remarks(config, given, updates))


def _asked_models(config: RunConfig) -> list[str]:
    """Return what the given models answered when they were asked how they are used, a line each."""
    from genenv_core.exchange.external import probes_of

    return [f"{field}: {'; '.join(probe.lines)}" for field, probe in probes_of(config).items()]


def open_root(config: RunConfig) -> tuple[Path, Given]:
    """Return this machine's folder of the root, probed for writing, and the inputs, checked."""
    from flows.running.environment import check_home
    from genenv_core.exchange.external import given_to, offline_input, teacher_input
    from genenv_core.storage.records.readers import check_readers
    from genenv_core.storage.sql.sources import look_at_runs
    from genenv_core.storage.store.opening import home_of, open_store

    check_home(home_of(config.root))  # before the store makes the folder
    given = given_to(config)
    offline_input(config)
    teacher_input(config)
    store = open_store(config.root)
    check_readers(config.root, config.roots.read)
    look_at_runs(store)
    return store.home, given


def _checked(config: RunConfig, asked: Asked) -> BranchPoint | None:
    """Return where the run branches off, None for nowhere.

    Raises ConfigError, before anything is started, for what it cannot be asked: to branch off where
    the settings do not fit, to end in what it takes over, or another draw of what was never drawn.
    """
    from genenv_core.storage.records.branches import find_branch
    from genenv_core.storage.records.draws import next_draws
    from genenv_core.storage.store.opening import open_store

    store = open_store(config.root)
    branch = find_branch(store, config, asked.point)
    if branch:
        branch.check_later(asked.until, asked.force)
    if asked.force:
        next_draws(store, str(config.run_id), asked.force.stage, asked.force.epoch)
    return branch.point if branch else None


def _memory_shown(config: RunConfig, given: Given, updates: list[Need]) -> tuple[list[str], str]:
    """Return what the updates will need, a line each, and why this machine lacks it, or ''.

    Returns nothing for the tiny models of bootstrap, which fit anywhere.
    """
    from genenv_core.training.memory.needs import check_needs

    training = config.training
    if not (training.own_processes or training.memory_gb or given.agent_model or given.env_model):
        return [], ""
    lines = [need.line() for need in updates]
    try:
        check_needs(config, updates)
    except ConfigError as error:
        return lines, str(error)
    return lines, ""


def _remarks(config: RunConfig, given: Given, updates: list[Need]) -> list[str]:
    """Return a line for each setting or lack of memory with which a given model will fare badly."""
    if not (given.agent_model or given.env_model):
        return []
    import psutil

    from genenv_core.config.meant_for_tiny import meant_for_tiny
    from genenv_core.training.memory.needs import lack_of_memory

    lack = lack_of_memory(config, updates, psutil.virtual_memory().available)
    return [*meant_for_tiny(config), *([lack] if lack else [])]


def _start_workers(config: RunConfig) -> None:
    """Start the training workers, unless the run is finished or its updates are elsewhere."""
    from genenv_core.storage.records.runs import RunLog
    from genenv_core.storage.store.opening import open_store
    from tasks.policies.trainer import trainer

    finished = RunLog(open_store(config.root), str(config.run_id)).keys(config.epochs)
    if not (LAST in finished or config.placement.work_pools() or config.training.own_processes):
        trainer().start(config.execution.updates_at_once)


def _where(config: RunConfig) -> str:
    """Return which stages of this process the next run continues."""
    from genenv_core.storage.records.runs import RunLog
    from genenv_core.storage.store.process import identity
    from tasks.stage.stores import artifacts_of

    attempts = RunLog(artifacts_of(config.root).store, str(config.run_id)).attempts()
    own = identity(os.getpid())
    stages = [
        f"{attempt.stage} of epoch {attempt.epoch}"
        for attempt in attempts
        if attempt.process == own and attempt.state in (StageState.INTERRUPTED, StageState.RUNNING)
    ]
    return " and ".join(stages)
