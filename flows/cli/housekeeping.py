"""`genenv gc` and `genenv compact`."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import Json, Root
from flows.cli.roots import check_run, existing

if TYPE_CHECKING:
    from genenv_core.storage.base import Store
    from genenv_core.storage.gc import Collected

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")]
Keep = Annotated[
    int, typer.Option(min=1, metavar="N", help="Checkpoints of the last N epochs stay.")
]
Age = Annotated[float, typer.Option(min=0, metavar="HOURS", help="Nothing that is younger goes.")]
Drop = Annotated[str, typer.Option(metavar="RUN", help="Forget a run, and collect its stages.")]
Restore = Annotated[
    str, typer.Option(metavar="RUN", help="Collect nothing; let RUN compute its weights again.")
]


def gc(
    root: Root = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    keep_checkpoints: Keep = 3,
    older_than: Age = 24.0,
    drop_run: Drop = "",
    restore: Restore = "",
) -> None:
    """Remove what no run needs: leftovers, forgotten stages, weights of superseded checkpoints."""
    from genenv_core.errors import ConfigError
    from genenv_core.storage.gc import Rule, collect

    store = existing(root, writable=True)
    if restore and (drop_run or dry_run):
        raise ConfigError("--restore collects nothing: leave --drop-run and --dry-run out")
    if restore:
        _restore(store, restore, as_json)
        return
    rule = Rule(keep_checkpoints, older_than, drop_run)
    found = collect(store, rule, datetime.now(UTC), dry_run=dry_run)
    if as_json:
        print(json.dumps({"root": store.uri, "dry_run": dry_run, **asdict(found)}))
    else:
        _show(found, dry_run)


def compact(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run; without one, all runs.")
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Merge the small files of long runs, so that queries open few; runs do it by themselves."""
    from genenv_core.storage.compaction import compact as merge
    from genenv_core.storage.runs import list_runs

    store = existing(root, writable=True)
    if run is not None:
        check_run(store, run)
    done = {name: merge(store, name) for name in ([run] if run else list_runs(store))}
    if as_json:
        print(json.dumps({name: asdict(what) for name, what in done.items()}))
        return
    for name, what in done.items():
        print(
            f"{name}: {what.merged} files merged into {what.written} "
            f"({what.bytes / 2**20:.1f} MiB), {what.segments} segments written"
        )


def _restore(store: Store, run: str, as_json: bool) -> None:
    from genenv_core.storage.retention import restore
    from genenv_core.storage.runs import RunLog

    check_run(store, run)
    log = RunLog(store, run)
    count = restore(store, log, int(log.info().config["epochs"]))
    if as_json:
        print(json.dumps({"run": run, "restored": count}))
        return
    print(f"{count} updates of run {run} will be computed again by the command that started it")


def _show(found: Collected, dry_run: bool) -> None:
    from flows.cli.tables import console, plain_table
    from genenv_core.storage.gc import KINDS

    table = plain_table()
    table.add_column("would go" if dry_run else "gone")
    table.add_column("number", justify="right")
    table.add_column("MiB", justify="right")
    for kind, what in found.kinds.items():
        if what.count:
            table.add_row(KINDS[kind], str(what.count), f"{what.bytes / 2**20:.1f}")
    out = console()
    if found.paths:
        out.print(table)
    verb = "would be freed" if dry_run else "freed"
    out.print(f"{len(found.paths)} files and folders, {found.bytes / 2**20:.1f} MiB {verb}")
