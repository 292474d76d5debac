"""`genenv export` and `genenv import`: pools and base tasks in other formats."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Overrides, Root, existing
from genenv_core.errors import ConfigError
from genenv_core.exchange import Format, Pool


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run.")],
    pool: Annotated[Pool, typer.Option(help="d_train: rollouts; d_env: generations.")],
    format_: Annotated[Format, typer.Option("--format", help="The data set's format.")] = "hf",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A new folder (default: RUN-POOL-FORMAT)."),
    ] = None,
    epochs: Annotated[
        str | None, typer.Option(help="Epochs, both ends included: 3:8, or 5.")
    ] = None,
    kept: Annotated[bool, typer.Option("--kept", help="d_env: only what the filter kept.")] = False,
    min_reward: Annotated[
        float | None, typer.Option(help="Least R_agent (d_train) or R_env (d_env).")
    ] = None,
    root: Root = None,
) -> None:
    """Write a pool as a data set: Parquet for Hugging Face tools or verl, or JSONL."""
    from genenv_core.exchange import export as core
    from genenv_core.storage.sql.sources import open_tables

    selection = core.Selection(_epochs(epochs), kept, min_reward)
    folder = output or Path(f"{run}-{pool}-{format_}")
    with open_tables(existing(root), [run]) as connection:
        done = core.export(connection, run, pool, format_, folder, selection)
    typer.echo(f"{done.folder}: {done.rows} rows, {done.bytes / 1e6:.1f} MB, see its README.md")
    for what, count in done.changes.items():
        typer.echo(f"  {count} {what}")


def import_(
    source: Annotated[Path, typer.Argument(help="A file, or a Hugging Face dataset folder.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The JSONL file to write.")],
    format_: Annotated[
        str, typer.Option("--format", help="jsonl, csv, parquet, hf or verl; auto: by its ending.")
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
    from genenv_core.storage.files import unreadable, write_output

    if not os.path.isdir(source) and (why := unreadable(source)):
        raise ConfigError(f"{source}: {why}")
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
        raise ConfigError(f"-o {output}: cannot be written: {error.strerror}") from error
    repeated = f", {found.repeated} repeated ones left out" if found.repeated else ""
    typer.echo(f"{output}: {len(lines)} tasks of domain {domain.name}{repeated}")
    if found.bad:
        typer.echo(f"skipped rows: {len(found.bad)}, all are in {skipped}; the first:")
        for row in found.bad[:LISTED]:
            typer.echo(f"  {row}")


def _epochs(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    if not found or int(found[2] or found[1]) < int(found[1]):
        raise ConfigError(f"--epochs {text!r}: expected first:last such as 3:8, or one epoch")
    return int(found[1]), int(found[2] or found[1])
