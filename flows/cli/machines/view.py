"""`genenv view`: the local page over the runs of a root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import Root, existing
from genenv_core.addresses import at_root
from genenv_core.errors import ConfigError

if TYPE_CHECKING:
    from genenv_core.storage.store.protocol import Store

HOST, PORT = "127.0.0.1", 4300


def view(
    context: typer.Context,
    root: Root = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than this machine's own needs a token.")
    ] = HOST,
    demo: Annotated[
        bool, typer.Option("--demo", help="Open a small finished run, which is built once.")
    ] = False,
) -> None:
    """Open a read-only page on tasks, traces and what they made; Ctrl-C ends it."""
    from flows.cli.machines.demo import RUN, demo_root
    from flows.view.serve import listen, serve

    if demo:
        # GENENV_ROOT names the root of the other commands: it contradicts nobody here.
        source = context.get_parameter_source("root")
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigError("--demo has a root of its own: leave out --root, or --demo")
        from genenv_core.storage.store.local import LocalStore

        listen(host, port).close()  # refuses before it builds
        store: Store = LocalStore(demo_root(typer.echo), writable=False)
    else:
        store = existing(root)

    def say(address: str) -> None:
        typer.echo(f"{address}\nread-only over {store.uri}; Ctrl-C ends it")
        if demo:
            at = at_root(store.uri)
            typer.echo(f"these read it too:\n  genenv sql{at}\n  genenv report {RUN}{at}")

    serve(store, host, port, say)
