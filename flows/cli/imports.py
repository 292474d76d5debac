"""`genenv import`: base tasks of other formats, checked and written as genenv's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Overrides


def import_(
    source: Annotated[Path, typer.Argument(help="A file, or a Hugging Face dataset folder.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The JSONL file to write.")],
    format_: Annotated[
        str, typer.Option("--format", help="jsonl, csv, parquet, hf or verl; auto: by the ending.")
    ] = "auto",
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="program, or prompt and ground_truth."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Load the rest; bad rows are listed.")
    ] = False,
    set_: Overrides = None,
) -> None:
    """Check base tasks of another format and write them as a file for data.base_file."""
    import json

    from genenv_core.config.load import resolve
    from genenv_core.domains.registry import get_domain
    from genenv_core.errors import ConfigError
    from genenv_core.exchange.base_data import LISTED, heldout_fingerprints, read_base

    if not source.exists():
        raise ConfigError(f"{source}: No such file or directory")
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
        heldout=heldout_fingerprints(domain, config.seed, config.data.heldout_tasks),
    )
    lines = [json.dumps({"program": draft.program}, ensure_ascii=False) for draft in found.drafts]
    try:
        output.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
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
