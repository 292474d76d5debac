"""`genenv run` and `genenv plan`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import ConfiguredRoot, Json, Overrides, Root, Source, check_run, existing
from flows.cli.session import drain, log_to, need_server
from flows.running.signals import Terminated, heed_sigterm
from genenv_core.config.load import resolve, run_name, validated
from genenv_core.config.schema import RunConfig
from genenv_core.config.stages import LAST
from genenv_core.errors import ConfigError
from schemas.enums import StageState

if TYPE_CHECKING:
    from genenv_core.exchange.external import Given

Epochs = Annotated[int | None, typer.Option(help="Number of epochs; more continue the same run.")]


def _configured(command: Callable[[RunConfig, bool], None]) -> Callable[..., None]:
    """Return the command with the options that make its configuration."""

    def with_options(
        source: Source = "quickstart",
        set_: Overrides = None,
        epochs: Epochs = None,
        seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.")] = None,
        root: ConfiguredRoot = None,
        run_id: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
        as_json: Json = False,
    ) -> None:
        fields = {"epochs": epochs, "seed": seed, "root": root, "run_id": run_id}
        config = resolve(source, overrides=set_ or (), fields=fields)
        command(config.model_copy(update={"run_id": run_name(config, source)}), as_json)

    with_options.__doc__ = command.__doc__
    return with_options


@_configured
def run(config: RunConfig, as_json: bool) -> None:
    """Run a co-evolution; what is finished already is reused."""
    if config.benchmark.given:
        raise ConfigError(
            "section benchmark: a model is measured by `genenv eval`, which makes such a "
            "configuration itself: remove the section"
        )
    heed_sigterm()
    execute(config, as_json=as_json)


def resume(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run that was started here.")],
    epochs: Epochs = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Continue a run with the configuration it was started with."""
    heed_sigterm()
    from genenv_core.storage.records.runs import RunLog

    store = existing(root)
    check_run(store, run_id)
    # The root may have been moved or mounted elsewhere since.
    fields = {"epochs": epochs, "root": store.uri, "run_id": run_id}
    recorded = RunLog(store, run_id).info().config
    config = validated(recorded, f"run {run_id}", fields)
    if config.benchmark.given:
        from flows.cli.data.measured import measure_configured

        measure_configured(config, as_json=as_json)
    else:
        execute(config, as_json=as_json)


def execute(config: RunConfig, *, as_json: bool) -> None:
    """Run a resolved configuration with a Prefect API and a live view; returns when it is done."""
    started = time.perf_counter()
    need_server(config)
    home, given = open_root(config)
    from genenv_core.training.memory.needs import check_needs

    needs = check_needs(config, given)
    from flows.running.environment import prepare

    prepare(home)
    from flows.running.local_server import in_process, local_api
    from tasks.policies.trainer import ended

    with local_api(Path(os.environ["PREFECT_HOME"]), home) as server, ended():
        from flows.cli.runs.live import RunView

        view = RunView(config, quiet=as_json)
        view.note("starting: libraries and the Prefect API" if server else "starting: libraries")
        log_to(home / "runs" / str(config.run_id))
        for need in needs:
            logging.getLogger("genenv.run").info("memory %s", need.line())
        # The heavy imports, the workers' too, overlap with the server's start.
        _start_workers(config)
        from flows.coevolution import coevolution
        from flows.running.work import do_work

        with in_process(server), view:
            ready = time.perf_counter()
            try:
                do_work(lambda: coevolution(config), Terminated)
            except Terminated as error:
                raise Terminated(_where(config)) from error
            finally:
                drain()
    view.finish(ready - started, time.perf_counter() - ready)


@_configured
def plan(config: RunConfig, as_json: bool) -> None:
    """Show what a run would reuse and what it would compute."""
    home, given = open_root(config)
    from flows.running.environment import prepare

    prepare(home)
    from flows.cli.tables import show_needs, show_plan
    from flows.planner import plan_run

    show_plan(plan_run(config), config, as_json=as_json)
    if not as_json:
        show_needs(*_memory_shown(config, given))


def open_root(config: RunConfig) -> tuple[Path, Given]:
    """Return this machine's folder of the root, probed for writing, and the inputs, checked."""
    from genenv_core.exchange.external import given_to, offline_input, teacher_input
    from genenv_core.storage.store.opening import open_store

    given = given_to(config)
    offline_input(config)
    teacher_input(config)
    return open_store(config.root).home, given


def _memory_shown(config: RunConfig, given: Given) -> tuple[list[str], str]:
    """Return what the updates will need, a line each, and why this machine lacks it, or ''.

    Returns nothing for the tiny models of bootstrap, which fit anywhere.
    """
    from genenv_core.training.memory.needs import check_needs, needs

    training = config.training
    if not (training.own_processes or training.memory_gb or given.agent_model or given.env_model):
        return [], ""
    try:
        return [need.line() for need in check_needs(config, given)], ""
    except ConfigError as error:
        return [need.line() for need in needs(config, given)], str(error)


def _start_workers(config: RunConfig) -> None:
    """Start the training workers, unless the run is finished or its updates are elsewhere."""
    from genenv_core.storage.records.runs import RunLog
    from genenv_core.storage.store.opening import open_store
    from tasks.policies.trainer import trainer

    finished = RunLog(open_store(config.root), str(config.run_id)).keys(config.epochs)
    if not (LAST in finished or config.placement.work_pools() or config.training.own_processes):
        trainer().start()


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
