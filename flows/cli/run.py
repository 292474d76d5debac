"""`genenv run` and `genenv plan`."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import ConfiguredRoot, Json, Overrides, Root, Source
from flows.cli.roots import check_run, existing
from flows.signals import Terminated, heed_sigterm, supervise
from genenv_core.config.load import resolve, run_name, validated
from genenv_core.config.schema import RunConfig
from genenv_core.errors import ConfigError
from genenv_core.storage.manifest import FileRef

Epochs = Annotated[int | None, typer.Option(help="Number of epochs; more continue the same run.")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random.")]
RunId = Annotated[str | None, typer.Option(help="Name of the run.")]

Given = dict[str, FileRef | None]
"""What a run reads from outside of its store, by name."""


def run(
    source: Source = "quickstart",
    set_: Overrides = None,
    epochs: Epochs = None,
    seed: Seed = None,
    root: ConfiguredRoot = None,
    run_id: RunId = None,
    as_json: Json = False,
) -> None:
    """Run a co-evolution; what is finished already is reused."""
    heed_sigterm()
    execute(configure(source, set_, epochs, seed, root, run_id), as_json=as_json)


def resume(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run that was started here.")],
    epochs: Epochs = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Continue a run with the configuration it was started with."""
    heed_sigterm()
    from genenv_core.storage.runs import RunLog

    store = existing(root)
    check_run(store, run_id)
    # The root may have been moved or mounted elsewhere since.
    fields = {"epochs": epochs, "root": store.uri, "run_id": run_id}
    recorded = RunLog(store, run_id).info().config
    execute(validated(recorded, f"run {run_id}", fields), as_json=as_json)


def execute(config: RunConfig, *, as_json: bool) -> None:
    """Run a resolved configuration with a Prefect API and a live view; returns when it is done."""
    started = time.perf_counter()
    _need_server(config)
    home, given = open_root(config)
    memory = _memory_needed(config, given)
    from flows.environment import prepare

    prepare(home)
    from flows.local_server import in_process, local_api

    with local_api(Path(os.environ["PREFECT_HOME"]), home) as server:
        from flows.cli.live import RunView

        view = RunView(config, quiet=as_json)
        view.note("starting: libraries and the Prefect API" if server else "starting: libraries")
        _log_to(home / "runs" / str(config.run_id))
        for line in memory:
            logging.getLogger("genenv.run").info("memory %s", line)
        # The heavy imports overlap with the server's start.
        from prefect import tags

        from flows.coevolution import coevolution
        from flows.failures import as_the_stage_told
        from flows.orphans import mark_orphans, process_tags
        from tasks import services

        with in_process(server), tags(*process_tags()), view:
            ready = time.perf_counter()
            mark_orphans()
            try:
                with as_the_stage_told(view):
                    supervise(lambda: coevolution(config))
            except Terminated as error:
                raise Terminated(_where(config)) from error
            finally:
                services.close()
                drain()
    view.finish(ready - started, time.perf_counter() - ready)


def plan(
    source: Source = "quickstart",
    set_: Overrides = None,
    epochs: Epochs = None,
    seed: Seed = None,
    root: ConfiguredRoot = None,
    run_id: RunId = None,
    as_json: Json = False,
) -> None:
    """Show what a run would reuse and what it would compute."""
    config = configure(source, set_, epochs, seed, root, run_id)
    home, given = open_root(config)
    from flows.environment import prepare

    prepare(home)
    from flows.cli.tables import show_needs, show_plan
    from flows.planner import plan_run

    show_plan(plan_run(config), config, as_json=as_json)
    if not as_json:
        show_needs(*_memory_told(config, given))


def configure(
    source: str,
    overrides: list[str] | None,
    epochs: int | None,
    seed: int | None,
    root: str | None,
    run_id: str | None,
) -> RunConfig:
    """Return the resolved configuration, with a run id."""
    fields = {"epochs": epochs, "seed": seed, "root": root, "run_id": run_id}
    config = resolve(source, overrides=overrides or (), fields=fields)
    return config.model_copy(update={"run_id": run_name(config, source)})


def open_root(config: RunConfig) -> tuple[Path, Given]:
    """Return this machine's folder of the root, probed for writing, and the inputs, checked."""
    from genenv_core.inputs import external_inputs, offline_input
    from genenv_core.storage.registry import open_store

    given = external_inputs(config)
    offline_input(config)
    return open_store(config.root).home, given


def _memory_needed(config: RunConfig, given: Given) -> list[str]:
    """Return what the updates will need of a device, a line each.

    Raises ConfigError when that cannot be had here.
    """
    from genenv_core.training.needs import check_needs

    return [need.told() for need in check_needs(config, given)]


def _memory_told(config: RunConfig, given: Given) -> tuple[list[str], str]:
    """Return what the updates will need, a line each, and why that cannot be had here, or ''.

    Nothing for the tiny models of bootstrap, which fit anywhere.
    """
    from genenv_core.training.needs import check_needs, needs

    training = config.training
    if not (training.launched or training.memory_gb or given["agent_model"] or given["env_model"]):
        return [], ""
    try:
        return [need.told() for need in check_needs(config, given)], ""
    except ConfigError as error:
        return [need.told() for need in needs(config, given)], str(error)


def _need_server(config: RunConfig) -> None:
    """Raise ConfigError when stages are on work pools and no server is named that has any."""
    pools = config.placement.pools()
    if not pools or os.environ.get("PREFECT_API_URL"):
        return
    from flows.up.previous import live_api
    from genenv_core.storage.registry import home_of

    if live_api(home_of(config.root).resolve()) is None:
        stage, pool = next(iter(pools.items()))
        raise ConfigError(
            f"placement.{stage} {pool!r} is a work pool of a Prefect server, and there is none: "
            "set PREFECT_API_URL to one's API (http://HOST:4200/api), start `genenv up` on this "
            f"root, or set placement.{stage}=inline"
        )


def drain() -> None:
    """Send what Prefect still holds back for its server, before the server stops."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    with contextlib.suppress(Exception):  # a server that is gone already must not hide the outcome
        APILogWorker.drain_all(timeout=5)
        EventsWorker.drain_all(timeout=5)


def _log_to(folder: Path) -> None:
    """Send genenv's log lines to a file of the run; the terminal shows the live view instead."""
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(folder / "run.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    # Records that no handler takes would go to the terminal; Prefect has such while it is ending.
    logging.lastResort = logging.NullHandler()
    logger = logging.getLogger("genenv")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _where(config: RunConfig) -> str:
    """Return which stages of this process the next run continues."""
    from genenv_core.storage.process import identity
    from genenv_core.storage.runs import RunLog
    from tasks.stores import artifacts_of

    attempts = RunLog(artifacts_of(config.root).store, str(config.run_id)).attempts()
    own = identity(os.getpid())
    stages = [
        f"{attempt.stage} of epoch {attempt.epoch}"
        for attempt in attempts
        if attempt.process == own and attempt.state in ("interrupted", "running")
    ]
    return " and ".join(stages)
