"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from genenv_core.config.load import preset_names

DEFAULT_ROOT = "./genenv-data"

Source = Annotated[
    str, typer.Argument(help=f"A preset ({', '.join(preset_names())}) or a YAML file.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field, e.g. rwr.steps=4."),
]
Root = Annotated[
    str | None,
    typer.Option(
        help=f"Where everything is kept: a directory or s3:// (without it {DEFAULT_ROOT}).",
        envvar="GENENV_ROOT",
    ),
]
ConfiguredRoot = Annotated[
    str | None,
    typer.Option(
        help="Where everything is kept: a directory or s3:// (without it as configured).",
        envvar="GENENV_ROOT",
    ),
]
"""The root of a run that starts, which its configuration names too."""
Json = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
