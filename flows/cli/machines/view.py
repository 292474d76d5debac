"""`genenv view`: the local page over the runs of a root."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import Root, existing

HOST, PORT = "127.0.0.1", 4300


def view(
    root: Root = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than this machine's own needs a token.")
    ] = HOST,
) -> None:
    """Open a read-only page on tasks, traces and what they made; Ctrl-C ends it."""
    from flows.view.serve import serve

    store = existing(root)

    def say(address: str) -> None:
        typer.echo(f"{address}\nread-only over {store.uri}; Ctrl-C ends it")

    serve(store, host, port, say)
