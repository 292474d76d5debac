"""Arguments and options that several commands have, and the root and run that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genenv_core.addresses import DEFAULT_ROOT
from genenv_core.config.load import preset_names, resolve
from genenv_core.domains.registry import SEVERAL
from genenv_core.errors import ConfigError
from genenv_core.named_files import unwritable, why_not_written, write_output

if TYPE_CHECKING:
    from genenv_core.config.schema import RunConfig
    from genenv_core.storage.store.protocol import Store


Source = Annotated[
    str, typer.Argument(help=f"A preset ({', '.join(preset_names())}) or a YAML file.")
]
SourceOrNone = Annotated[
    str | None,
    typer.Argument(
        metavar="SOURCE",
        help=f"A preset ({', '.join(preset_names())}) or a YAML file; quickstart by default, with "
        "--from the configuration of that run.",
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field, e.g. rwr.steps=4."),
]
RunOrAll = Annotated[
    str | None, typer.Argument(metavar="RUN", help="A run; without one, all runs.")
]
Root = Annotated[
    str | None,
    typer.Option(
        help=f"The root that keeps all runs: a directory or s3:// (default: {DEFAULT_ROOT}).",
        envvar="GENENV_ROOT",
    ),
]
ConfiguredRoot = Annotated[
    str | None,
    typer.Option(
        help="The root that keeps all runs: a directory or s3:// (default: as configured).",
        envvar="GENENV_ROOT",
    ),
]
"""The root of a run that starts, which its configuration names too."""
ModelName = Annotated[
    str | None, typer.Option("--model-name", help="Name of the model at that URL.", metavar="NAME")
]
KeyEnv = Annotated[
    str | None,
    typer.Option(
        "--key-env", help="Environment variable that holds the key of that URL.", metavar="VAR"
    ),
]
"""With the name before, of a model behind a URL, which `--model` names."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def existing(root: str | None, *, writable: bool = False) -> Any:
    """Return the store of a root that is there already; looking must not create one."""
    from genenv_core.storage.store.opening import check_slashes, open_once, open_store

    name = root or DEFAULT_ROOT
    check_slashes(name)
    missing = f"there is no run under {name}: start one with `genenv run`, or name another --root"
    if "://" not in name and not os.path.isdir(Path(name) / "runs"):  # whatever the name
        raise ConfigError(missing)
    writable = writable or "://" not in name
    store = open_once(name) if writable else open_store(name, writable=False)
    if "://" in name and not store.names("runs"):
        raise ConfigError(missing)
    return store


def check_output(option: str, output: Path | None, *, folder: bool = False) -> None:
    """Raise ConfigError where a file, or a `folder`, cannot be written, before work is done for it.

    None is an output that nobody asked for. `option` is the one that names the output.
    """
    if output is not None and (why := unwritable(output, folder=folder)):
        raise ConfigError(f"{option} {output}: {why}")


def written_to(option: str, output: Path, data: bytes) -> None:
    """Write a file that an option names; raises ConfigError, with what to do."""
    try:
        write_output(output, data)
    except OSError as error:
        raise not_written(option, output, error) from error


def not_written(option: str, output: Path, error: OSError) -> ConfigError:
    """Return the error for an output that could not be written after all."""
    return ConfigError(f"{option} {output}: {why_not_written(output, error)}")


def check_run(store: Store, run: str) -> None:
    """Raise ConfigError, naming the runs that there are, when the store has no such run."""
    from genenv_core.storage.records.runs import unknown_run

    if unknown := unknown_run(store, run):
        raise ConfigError(unknown)


def epochs_of(text: str | None) -> tuple[int, int] | None:
    """Return the epochs that `--epochs` names, both ends included; raises ConfigError."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    if not found or int(found[2] or found[1]) < int(found[1]):
        raise ConfigError(f"--epochs {text!r}: expected first:last such as 3:8, or one epoch")
    return int(found[1]), int(found[2] or found[1])


def config_of_domain(name: str, set_: Sequence[str] | None) -> RunConfig:
    """Return a small run's configuration with the domain that a command names.

    `several` is named by `--set domains=[...]`. Raises ConfigError.
    """
    given = list(set_ or ())
    joined = name == SEVERAL and any(one.startswith("domains=") for one in given)
    return resolve("tiny", overrides=given if joined else [f"domain.name={name}", *given])
