"""`genenv config`: show, schema, validate."""

from __future__ import annotations

import typer

from flows.cli.options import Overrides, Source
from flows.shown.json_text import json_text
from genenv_core.config.load import resolve, to_yaml
from genenv_core.config.schema import RunConfig
from genenv_core.config.several import with_the_list

app = typer.Typer(no_args_is_help=True, help="Show, describe and check configurations.")


@app.command()
def show(source: Source = "quickstart", set_: Overrides = None) -> None:
    """Print the resolved configuration, every field, as YAML."""
    typer.echo(to_yaml(resolve(source, overrides=set_ or ())), nl=False)


@app.command()
def schema() -> None:
    """Print the JSON schema of configurations."""
    typer.echo(json_text(with_the_list(RunConfig.model_json_schema()), indent=2))


@app.command()
def validate(source: Source, set_: Overrides = None) -> None:
    """Check a configuration; exit status 2 and one line when it is wrong."""
    config = resolve(source, overrides=set_ or ())
    typer.echo(f"{source} is valid: arm {config.arm.value}, {config.epochs} epochs")
