"""`genenv tag` and `genenv runs`: label runs, and find runs by their labels."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import Json, Root, check_run, existing
from flows.shown.json_text import json_text
from genenv_core.errors import ConfigError
from genenv_core.machine.wrong_values import closest


def tag(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run to label.")],
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="TAG", help="A tag to remove.")
    ] = None,
    note: Annotated[str | None, typer.Option(help="A sentence on the run; '' removes it.")] = None,
    pin: Annotated[
        bool | None,
        typer.Option("--pin/--unpin", help="Keep the weights of all its epochs from gc."),
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Give a run tags, a note or a pin; without any of them, show what it has."""
    from genenv_core.storage.records.labels import change_labels, change_of, read_labels

    change = change_of(tags or (), remove or (), note, pin)
    changes = change != change_of()
    store = existing(root, writable=changes)
    check_run(store, run)
    found = change_labels(store, run, change) if changes else read_labels(store, run)
    if as_json:
        print(json_text({"run_id": run, **found.model_dump()}))
        return
    print(f"run    {run}{', pinned' if found.pinned else ''}")
    print(f"tags   {', '.join(found.tags) or 'none'}")
    if found.note:
        print(f"note   {found.note}")
    if pin and (gone := _collected(store, run)):
        print(
            f"gc had collected the weights of {gone} of its stages before: `genenv gc --restore "
            f"{run}`, then `genenv resume {run}`, computes them again"
        )


def runs(
    tags: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", metavar="TAG", help="List runs with this tag; give it again for a second one."
        ),
    ] = None,
    arm: Annotated[str, typer.Option(help="List runs of this arm.")] = "",
    domain: Annotated[str, typer.Option(help="List runs on this domain.")] = "",
    name: Annotated[
        str,
        typer.Option(
            metavar="PATTERN", help="List runs whose name fits; * and ? match any letters."
        ),
    ] = "",
    pinned: Annotated[
        bool | None, typer.Option("--pinned/--not-pinned", help="List runs with a pin.")
    ] = None,
    finished: Annotated[
        bool | None,
        typer.Option("--finished/--unfinished", help="List runs that finished their epochs."),
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """List the runs of a root: all of them, or those that every option fits."""
    from flows.cli.runs.listing import Filter, show_runs
    from genenv_core.config.arms import Arm

    if arm and arm not in list(Arm):
        raise ConfigError(f"--arm {arm!r} is no arm; there are {', '.join(Arm)}{closest(arm, Arm)}")
    where = Filter(tuple(tags or ()), arm, domain, name, pinned, finished)
    show_runs(existing(root), as_json=as_json, where=where)


def _collected(store: object, run: str) -> int:
    """Return of how many stages of a run gc has collected the weights."""
    from genenv_core.storage import paths
    from genenv_core.storage.records.runs import RunLog
    from genenv_core.storage.store.protocol import Store

    there: Store = store  # pyright: ignore[reportAssignmentType]
    log = RunLog(there, run)
    return sum(
        there.size(paths.retired(stage, key)) is not None
        for epoch in log.epochs()
        for stage, key in log.keys(epoch).items()
    )
