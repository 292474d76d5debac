"""`genenv copy`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli.options import Json, Root
from flows.cli.roots import existing


def copy(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run to copy.")],
    to: Annotated[str, typer.Argument(metavar="ROOT", help="Where to: a directory or s3://.")],
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Copy a run to another root, where it can be continued; the same command goes on."""
    from rich.progress import Progress

    from flows.cli.tables import console
    from genenv_core.storage.copying import copy_run
    from genenv_core.storage.registry import open_store

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
        told = {"run": run, "from": source.uri, "to": target.uri, "seconds": seconds}
        print(json.dumps({**told, **asdict(done)}))
        return
    print(
        f"run {run}: {done.stages} stages with {done.files} files ({done.bytes / 2**20:.1f} MiB); "
        f"{done.copied_files} files ({done.copied_bytes / 2**20:.1f} MiB) copied and compared "
        f"with their digests in {seconds:.1f} s, the others were there"
    )
    if done.retired:
        print(f"the weights of {done.retired} stages had been collected by gc and are not there")
    print(f"continue it with: genenv resume {run} --root {target.uri}")
