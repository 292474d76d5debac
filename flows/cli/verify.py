"""What `genenv verify` shows."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from rich.console import Console
from rich.progress import Progress

from flows.cli.tables import console
from genenv_core.storage.base import Store
from genenv_core.storage.verify import OUT_OF_SCOPE, Report, verify


def show(store: Store, *, as_json: bool) -> bool:
    """Verify a store and print what was found; returns whether it is whole."""
    started = time.perf_counter()
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        reading = bar.add_task("reading", total=None)
        report = verify(store, lambda done, total: bar.update(reading, completed=done, total=total))
    seconds = time.perf_counter() - started
    if as_json:
        print(json.dumps({"root": store.uri, "seconds": seconds, **asdict(report)}))
    else:
        _print(report, store, seconds)
    return not report.damaged


def _print(report: Report, store: Store, seconds: float) -> None:
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
