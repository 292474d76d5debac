"""`genenv copy`, `genenv verify`, `genenv gc`, `genenv compact`: a root and its files."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import Json, Root, RunOrAll, check_run, existing
from flows.shown.json_text import json_text
from flows.shown.tables import console, plain_table
from genenv_core.addresses import at_root
from genenv_core.errors import ConfigError

if TYPE_CHECKING:
    from genenv_core.storage.store.protocol import Store
    from genenv_core.storage.upkeep.collected import Collected
    from genenv_core.storage.upkeep.verify import VerifyReport

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Remove nothing, list what gc would remove.")
]
Keep = Annotated[
    int, typer.Option(min=1, metavar="N", help="Keep the checkpoints of the last N epochs.")
]
Age = Annotated[
    float, typer.Option(min=0, metavar="HOURS", help="Keep files younger than this many hours.")
]
Drop = Annotated[str, typer.Option(metavar="RUN", help="Forget a run and remove its stages.")]
Restore = Annotated[
    str, typer.Option(metavar="RUN", help="Remove nothing; let RUN compute its weights again.")
]


def copy(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run to copy.")],
    to: Annotated[str, typer.Argument(metavar="ROOT", help="Target: a directory or s3://.")],
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Copy a run to another root, where it can be continued. The same command resumes a copy."""
    from rich.progress import Progress

    from genenv_core.storage.store.opening import open_store
    from genenv_core.storage.upkeep.copying import copy_run

    source, target = existing(root), open_store(to)
    began = time.monotonic()
    out = console()
    with Progress(console=out, transient=True, disable=as_json or not out.is_terminal) as bar:
        task = bar.add_task("files")
        done = copy_run(
            source, target, run, lambda count, total: bar.update(task, completed=count, total=total)
        )
    seconds = time.monotonic() - began
    if as_json:
        summary = {"run": run, "from": source.uri, "to": target.uri, "seconds": seconds}
        print(json_text({**summary, **asdict(done)}))
        return
    print(
        f"run {run}: {done.stages} stages with {done.files} files ({done.bytes / 2**20:.1f} MiB); "
        f"{done.copied_files} files ({done.copied_bytes / 2**20:.1f} MiB) copied and compared "
        f"with their digests in {seconds:.1f} s, the others were already there"
    )
    if done.retired:
        print(f"gc had collected the weights of {done.retired} stages: they are not in the copy")
    print(f"continue it with: genenv resume {run}{at_root(target.uri)}")


def verify(root: Root = None, as_json: Json = False) -> None:
    """Read every file of a root and name those that are damaged; exit status 1 if any is."""
    if not verified(existing(root), as_json=as_json):
        raise typer.Exit(1)


def verified(store: Store, *, as_json: bool) -> bool:
    """Verify a store and print what was found; returns whether it is whole."""
    from rich.console import Console
    from rich.progress import Progress

    from genenv_core.storage.upkeep.verify import verify as read_all

    started = time.perf_counter()
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        reading = bar.add_task("reading", total=None)
        report = read_all(
            store, lambda done, total: bar.update(reading, completed=done, total=total)
        )
    seconds = time.perf_counter() - started
    if as_json:
        print(json_text({"root": store.uri, "seconds": seconds, **asdict(report)}))
    else:
        _show_report(report, store, seconds)
    return not report.damaged


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
    from genenv_core.storage.upkeep.collected import CollectionRule
    from genenv_core.storage.upkeep.gc import collect

    store = existing(root, writable=True)
    if restore and (drop_run or dry_run):
        raise ConfigError("--restore collects nothing: leave --drop-run and --dry-run out")
    if restore:
        _restore(store, restore, as_json)
        return
    rule = CollectionRule(keep_checkpoints, older_than, drop_run)
    found = collect(store, rule, datetime.now(UTC), dry_run=dry_run)
    if as_json:
        print(json_text({"root": store.uri, "dry_run": dry_run, **asdict(found)}))
    else:
        _show_collected(found, dry_run)


def compact(run: RunOrAll = None, root: Root = None, as_json: Json = False) -> None:
    """Merge the small files of runs, so that queries open few; runs also do it themselves."""
    from genenv_core.storage.records.runs import list_runs
    from genenv_core.storage.upkeep.compaction import compact as merge

    store = existing(root, writable=True)
    if run is not None:
        check_run(store, run)
    done = {name: merge(store, name) for name in ([run] if run else list_runs(store))}
    if as_json:
        print(json_text({name: asdict(what) for name, what in done.items()}))
        return
    for name, what in done.items():
        print(
            f"{name}: {what.merged} files merged into {what.written} "
            f"({what.bytes / 2**20:.1f} MiB), {what.segments} segments written"
        )


def _restore(store: Store, run: str, as_json: bool) -> None:
    from genenv_core.storage.records.retention import restore
    from genenv_core.storage.records.runs import RunLog

    check_run(store, run)
    log = RunLog(store, run)
    count = restore(store, log, int(log.info().config["epochs"]))
    if as_json:
        print(json_text({"run": run, "restored": count}))
        return
    print(f"{count} updates of run {run} will be computed again by the command that started it")


def _show_collected(found: Collected, dry_run: bool) -> None:
    from genenv_core.storage.upkeep.collected import KINDS

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


def _show_report(report: VerifyReport, store: Store, seconds: float) -> None:
    from genenv_core.storage.upkeep.verify import OUT_OF_SCOPE

    out = console()

    def say(text: str, style: str | None = None) -> None:
        out.print(text, style=style, markup=False, soft_wrap=True)

    for damage in report.damaged:
        say(f"{damage.path}: {damage.problem}", "red")
        for use in damage.named_by:
            say(f"  named by {use}")
        say(f"  {damage.remedy}")
    for path in report.unknown:
        say(f"{path}: unknown, left alone", "yellow")
    say(
        f"{report.files} files, {report.bytes / 2**20:.1f} MiB of {store.uri} read in "
        f"{seconds:.1f} s: {len(report.damaged)} damaged, {len(report.unknown)} unknown",
        "bold",
    )
    say(f"not read: {OUT_OF_SCOPE}", "dim")
