"""`genenv export` and `genenv import`: pools and base tasks in other formats."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from flows.cli.options import Overrides, Root, check_output, epochs_of, existing, not_written
from genenv_core.config.sections.data import BaseField, BaseFormat
from genenv_core.errors import ConfigError
from genenv_core.exchange import Format, Pool
from genenv_core.exchange.environments import EnvironmentFormat
from genenv_core.machine.wrong_values import closest

if TYPE_CHECKING:
    from genenv_core.exchange.environments.passports import TaskSelection
    from genenv_core.exchange.pools.export import Exported


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run.")],
    pool: Annotated[
        Literal[Pool, "tasks"] | None,
        typer.Option(
            help="d_train: rollouts; d_env: generations; tasks: what pi_env wrote, for openenv, "
            "verifiers and harbor; not for inspect."
        ),
    ] = None,
    format_: Annotated[
        Literal[Format, EnvironmentFormat, "inspect"],
        typer.Option(
            "--format",
            help="A data set of a pool (hf, jsonl, verl), an environment of its tasks (openenv, "
            "verifiers, harbor), or Inspect's logs.",
        ),
    ] = "hf",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A new folder (default: RUN-POOL-FORMAT)."),
    ] = None,
    epochs: Annotated[
        str | None, typer.Option(help="Epochs, both ends included: 3:8, or 5.")
    ] = None,
    kept: Annotated[bool, typer.Option("--kept", help="d_env: rows that the filter kept.")] = False,
    min_reward: Annotated[
        float | None, typer.Option(help="Least R_agent (d_train, inspect) or R_env (d_env).")
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            metavar="SOURCE",
            help="inspect: only attempts at these tasks: generated, base, teacher, validation, "
            "test, benchmark.",
        ),
    ] = None,
    p_hat: Annotated[
        str | None,
        typer.Option(help="tasks: success in the run, both ends included: 0.2:0.8."),
    ] = None,
    family: Annotated[
        list[str] | None, typer.Option(help="tasks: only those of this family; may be repeated.")
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(help="tasks: of several domains only those of this one; may be repeated."),
    ] = None,
    sound: Annotated[
        bool,
        typer.Option("--sound", help="tasks: only those whose certificate is sound."),
    ] = False,
    root: Root = None,
) -> None:
    """Write a pool as a data set or as an environment, or attempts as logs for `inspect view`."""
    from genenv_core.exchange.pools import export as core
    from genenv_core.storage.sql.sources import open_tables

    if min_reward is not None and not math.isfinite(min_reward):
        raise ConfigError(f"--min-reward {min_reward}: expected a finite number, such as 0.5")
    if format_ == "openenv" or format_ == "verifiers" or format_ == "harbor":
        idle = {
            f"--pool {pool}": pool not in (None, "tasks"),
            "--kept": kept,
            "--min-reward": min_reward is not None,
            "--tasks": bool(tasks),
        }
        for option in (name for name, given in idle.items() if given):
            raise ConfigError(
                f"{option} does nothing for --format {format_}, which has the tasks that pi_env "
                "wrote: leave it out"
            )
        selection = _selected(epochs, p_hat, family, domain, sound)
        _export_tasks(run, format_, output, selection, root)
        return
    for option, given in {
        "--p-hat": p_hat,
        "--family": family,
        "--domain": domain,
        "--sound": sound,
    }.items():
        if given:
            raise ConfigError(
                f"{option} works with --format openenv, verifiers and harbor alone: leave it out"
            )
    if pool == "tasks":
        raise ConfigError(
            "--pool tasks is for --format openenv, verifiers and harbor: name one of them"
        )
    if format_ == "inspect":
        if pool or kept:
            raise ConfigError(
                f"{'--pool' if pool else '--kept'} does nothing for --format inspect, which has "
                "all attempts of a run: leave it out"
            )
        _export_logs(run, output, epochs_of(epochs), min_reward, tasks or (), root)
        return
    if pool is None:
        raise ConfigError(f"--pool is missing: --format {format_} writes d_train or d_env")
    if tasks:
        raise ConfigError("--tasks works with --format inspect alone: leave it out")
    selection = core.PoolSelection(epochs_of(epochs), kept, min_reward)
    folder = output or Path(f"{run}-{pool}-{format_}")
    with open_tables(existing(root), [run]) as connection:
        done = core.export(connection, run, pool, format_, folder, selection)
    _say(done, "rows")


def _selected(
    epochs: str | None,
    p_hat: str | None,
    family: Sequence[str] | None,
    domain: Sequence[str] | None,
    sound: bool,
) -> TaskSelection:
    from genenv_core.exchange.environments.passports import TaskSelection

    return TaskSelection(
        epochs_of(epochs), _rates(p_hat), tuple(family or ()), sound, tuple(domain or ())
    )


def _export_tasks(
    run: str,
    format_: EnvironmentFormat,
    output: Path | None,
    selection: TaskSelection,
    root: str | None,
) -> None:
    from genenv_core.exchange.environments.writing import export_environment
    from genenv_core.storage.sql.sources import open_tables

    folder = output or Path(f"{run}-tasks-{format_}")
    with open_tables(existing(root), [run]) as connection:
        done = export_environment(connection, run, format_, folder, selection)
    _say(done, "tasks")


def _export_logs(
    run: str,
    output: Path | None,
    epochs: tuple[int, int] | None,
    min_reward: float | None,
    tasks: Sequence[str],
    root: str | None,
) -> None:
    from genenv_core.exchange.inspect_logs.reading import LogSelection, sources_of
    from genenv_core.exchange.inspect_logs.writing import export_logs
    from genenv_core.storage.sql.sources import open_tables

    selection = LogSelection(epochs, sources_of(tasks), min_reward)
    with open_tables(existing(root), [run]) as connection:
        done = export_logs(connection, run, output or Path(f"{run}-inspect"), selection)
    _say(done, "attempts")
    typer.echo(f"  inspect view --log-dir {shlex.quote(str(done.folder))}")


def _say(done: Exported, unit: str) -> None:
    typer.echo(f"{done.folder}: {done.rows} {unit}, {done.bytes / 1e6:.1f} MB, see its README.md")
    for what, count in done.changes.items():
        typer.echo(f"  {count} {what}")


def import_(
    source: Annotated[Path, typer.Argument(help="A file, or a Hugging Face dataset folder.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The JSONL file to write.")],
    format_: Annotated[
        BaseFormat, typer.Option("--format", help="Format of SOURCE; auto: by its ending.")
    ] = "auto",
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="program, or prompt and ground_truth."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip bad rows and list them.")
    ] = False,
    set_: Overrides = None,
) -> None:
    """Check base tasks of another format and write them as a file for data.base_file."""
    from genenv_core.config.load import resolve
    from genenv_core.domains.registry import get_domain
    from genenv_core.exchange.base_data import LISTED, heldout_fingerprints, read_base
    from genenv_core.named_files import unreadable, write_output

    if not os.path.isdir(source) and (why := unreadable(source)):
        raise ConfigError(f"{source}: {why}")
    check_output("-o", output)
    for pair in mapping or ():
        field, separator, _ = pair.partition("=")
        if not separator or field not in get_args(BaseField):
            known = get_args(BaseField)
            raise ConfigError(
                f"--map {pair!r}: expected FIELD=COLUMN, with one of the fields {', '.join(known)}"
                f"{closest(field, known)}"
            )
    given = [f"data.base_mapping.{pair}" for pair in mapping or ()]
    given += [f"data.base_file={source}", f"data.base_format={format_}"]
    config = resolve("quickstart", overrides=[*(set_ or ()), *given])
    domain = get_domain(config.domain.name, config.domain.options)
    found = read_base(
        source,
        domain,
        format_=config.data.base_format,
        mapping=config.data.base_mapping,
        skip_bad=skip_bad,
        heldout=heldout_fingerprints(domain, config.seed, config.data),
    )
    lines = [json.dumps({"program": draft.program}, ensure_ascii=False) for draft in found.drafts]
    try:
        write_output(output, "".join(f"{line}\n" for line in lines).encode())
        skipped = output.with_name(f"{output.name}.skipped.txt")
        if found.bad:
            skipped.write_text("".join(f"{row}\n" for row in found.bad), encoding="utf-8")
    except OSError as error:
        raise not_written("-o", output, error) from error
    repeated = f", {found.repeated} repeated ones left out" if found.repeated else ""
    typer.echo(f"{output}: {len(lines)} tasks of domain {domain.name}{repeated}")
    if found.bad:
        typer.echo(f"skipped rows: {len(found.bad)}, all are in {skipped}; the first:")
        for row in found.bad[:LISTED]:
            typer.echo(f"  {row}")


def _rates(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    found = re.fullmatch(r"([01](?:\.\d+)?):([01](?:\.\d+)?)", text)
    if not found or not float(found[1]) <= float(found[2]) <= 1:
        raise ConfigError(f"--p-hat {text!r}: expected lowest:highest from 0 to 1, such as 0.2:0.8")
    return float(found[1]), float(found[2])
