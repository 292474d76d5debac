"""`genenv run` and `genenv plan`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
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
from flows.cli.session import drain, last_end, log_to
from flows.running.signals import Terminated, heed_ends
from genenv_core.config.branching import read_point
from genenv_core.config.load import FREE_SECTIONS, continued, read_override, resolve, run_name
from genenv_core.config.run_options import NO_OPTIONS, RunOptions
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import LAST, update_of
from genenv_core.types import Policy
from schemas.enums import StageState

if TYPE_CHECKING:
    from flows.cli.runs.live import RunView
    from flows.preparing import Prepared
    from genenv_core.config.until import Until
    from genenv_core.storage.store.protocol import Store

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


def _configured(command: Callable[[RunConfig, bool, RunOptions], None]) -> Callable[..., None]:
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
        command(config, as_json, RunOptions.read(config, until, force, point))

    with_options.__doc__ = command.__doc__
    return with_options


@_configured
def run(config: RunConfig, as_json: bool, options: RunOptions) -> None:
    """Run a co-evolution; what is finished already is reused."""
    heed_ends()
    execute(config, options, as_json=as_json)


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
    from tasks.upkeep.started_in import go_where_started

    store = existing(root)
    check_run(store, run_id)
    # The root may have been moved or mounted elsewhere since.
    fields = {"epochs": epochs, "root": store.uri, "run_id": run_id}
    info = RunLog(store, run_id).info()
    go_where_started(info)
    recorded = info.config
    changes = dict(read_override(text, "--set") for text in set_ or ())
    config = continued(recorded, run_id, changes, "--set", fields)
    options = RunOptions.read(config, until, force, None)
    if config.benchmark.certifies:
        from flows.cli.data.certifying.certify_model import certify_configured

        certify_configured(config, as_json=as_json)
    elif config.benchmark.given:
        from flows.cli.data.measured import measure_configured

        measure_configured(config, as_json=as_json)
    else:
        execute(config, options, as_json=as_json)


def execute(config: RunConfig, options: RunOptions = NO_OPTIONS, *, as_json: bool) -> None:
    """Run a resolved configuration with a Prefect API and a live view; returns when it is done."""
    view, start_s, run_s = carry_out(config, options, quiet=as_json)
    view.finish(start_s, run_s, options.until)


def carry_out(
    config: RunConfig, options: RunOptions, *, quiet: bool
) -> tuple[RunView, float, float]:
    """Run a resolved configuration; returns its view, and the seconds to start and to run."""
    started = time.perf_counter()
    prepared = _prepared(config, options)
    config, home = prepared.config, prepared.store.home
    from flows.running.local_server import in_process, local_api
    from tasks.policies.trainer import ended

    with local_api(Path(os.environ["PREFECT_HOME"]), home) as server, ended():
        from flows.cli.runs.live import RunView

        branch = prepared.branch
        view = RunView(config, quiet=quiet, point=branch.point if branch else None)
        view.note("starting: libraries and the Prefect API" if server else "starting: libraries")
        log_to(home / "runs" / str(config.run_id))
        if killed := last_end(prepared.store, str(config.run_id)):
            logging.getLogger("genenv.run").warning("%s", killed)
            view.note(escape(killed), "bold yellow")
        for need in prepared.updates:
            logging.getLogger("genenv.run").info("memory %s", need.line())
        for line in _remarks(prepared):
            view.warn(line)
        # The heavy imports, the workers' too, overlap with the server's start.
        _start_workers(config, prepared.store, prepared.options.until)
        from flows.coevolution import play_as_flow
        from flows.running.work import do_work

        with in_process(server), view:
            ready = time.perf_counter()
            try:
                do_work(lambda: play_as_flow(prepared), Terminated)
            except Terminated as error:
                where = _where(prepared.store, str(config.run_id))
                raise Terminated(where, error.number) from error
            finally:
                drain()
    return view, ready - started, time.perf_counter() - ready


@_configured
def plan(config: RunConfig, as_json: bool, options: RunOptions) -> None:
    """Show what a run would reuse and what it would compute; refuse what `genenv run` refuses."""
    prepared = _prepared(config, options, judges_memory=False)
    config, branch = prepared.config, prepared.branch
    from flows.cli.runs.predicted import Predicted
    from flows.planner import plan_of
    from flows.shown.tables import show_needs, show_plan

    entries = plan_of(prepared)
    predicted = Predicted(prepared.store, config, entries)
    if not as_json:
        for field, probe in prepared.probes.items():
            typer.echo(f"{field}: {'; '.join(probe.lines)}")
    point = branch.point if branch else None
    show_plan(entries, config, predicted.values(), point, as_json=as_json)
    if not as_json:
        predicted.show()
        show_needs(_memory_lines(prepared), _remarks(prepared))
    prepared.check_memory()


def _prepared(config: RunConfig, options: RunOptions, *, judges_memory: bool = True) -> Prepared:
    """Return a run that may start here; raises as `prepare`."""
    from flows.running import environment
    from genenv_core.storage.store.opening import home_of

    environment.prepare(home_of(config.root))  # before libraries are loaded, which read it once
    from flows.preparing import prepare

    return prepare(config, options, judges_memory=judges_memory)


def _memory_lines(prepared: Prepared) -> list[str]:
    """Return what the updates will need, a line each.

    Returns nothing for the tiny models of bootstrap, which fit anywhere.
    """
    training, given = prepared.config.training, prepared.inputs.given
    fits_anywhere = training.one_process_on_cpus and not training.memory_gb
    if fits_anywhere and not (given.agent_model or given.env_model):
        return []
    return [need.line() for need in prepared.updates]


def _remarks(prepared: Prepared) -> list[str]:
    """Return a line for each setting or lack of memory with which a given model will fare badly."""
    if not (prepared.inputs.given.agent_model or prepared.inputs.given.env_model):
        return []
    import psutil

    from genenv_core.config.meant_for_tiny import meant_for_tiny
    from genenv_core.spending.needs import lack_of_memory

    config, free = prepared.config, psutil.virtual_memory().available
    lack = lack_of_memory(config, prepared.updates, free)
    return [*meant_for_tiny(config), *([lack] if lack else [])]


def _start_workers(config: RunConfig, store: Store, until: Until | None) -> None:
    """Start the training workers where this command plans an update that it computes itself.

    Otherwise the first stage that needs a worker starts it, as a warm start does.
    """
    from genenv_core.config.arms import ARMS
    from genenv_core.storage.records.runs import RunLog
    from tasks.policies.trainer import trainer

    finished = LAST in RunLog(store, str(config.run_id)).keys(config.epochs)
    reached = until is None or until.covers(update_of(Policy.AGENT), 1)
    planned = ARMS[config.arm].trains_agent and reached
    training, at_once = config.training, config.execution.updates_at_once
    if planned and not (finished or config.placement.work_pools() or training.own_processes):
        # On a GPU they take turns.
        trainer().start(1 if training.on_gpus else at_once, training.device)


def _where(store: Store, run_id: str) -> str:
    """Return which stages of this process the next run continues."""
    from genenv_core.storage.records.runs import RunLog
    from genenv_core.storage.store.process import identity

    attempts = RunLog(store, run_id).attempts()
    own = identity(os.getpid())
    stages = [
        f"{attempt.stage} of epoch {attempt.epoch}"
        for attempt in attempts
        if attempt.process == own and attempt.state in (StageState.INTERRUPTED, StageState.RUNNING)
    ]
    return " and ".join(stages)
