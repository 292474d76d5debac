"""Frames to Parquet bytes and back.

Bytes depend on the frame alone: no timestamp, no Arrow or pandas schema, one chunk, one writer
version. So a part can be named by its content. Layout (measured, see FACTS): scalar tables in row
groups of 16384 because queries scan them, payload tables in groups of 512 because queries fetch
single rows; zstd 1; BYTE_STREAM_SPLIT on logprobs.

Departure from FACTS: token ids have a dictionary encoding, not BYTE_STREAM_SPLIT, which DuckDB
1.5.5 refuses for integers ("only supported for FLOAT or DOUBLE data"). The size is equal for a
small vocabulary, and a quarter more for one of 150,000.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import io
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from genenv_core.errors import IntegrityError, NotFound, SchemaError
from schemas.registry import metadata_of, model_columns, schema, spec

SCALAR_ROWS = 16384
PAYLOAD_ROWS = 512
TABLE_KEY = "genenv.table"
VERSION_KEY = "genenv.schema_version"

_ELSEWHERE = "read it with the genenv that wrote it, and start new runs in another root"


def to_parquet(table: str, frame: pl.DataFrame) -> bytes:
    """Return a validated frame as Parquet; equal frames give equal bytes.

    Raises SchemaError for other columns or types than the table's.
    """
    found = spec(table)
    wanted = schema(table)
    if frame.schema != wanted:
        raise SchemaError(
            f"table {table}: {_difference(frame.schema, wanted)}: "
            "pass the frame through schemas.validate.validate before it is written"
        )
    arrow = frame.rechunk().to_arrow().combine_chunks()
    repeated, split, plain = _encodings(table)
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer,
        arrow.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=repeated,
        column_encoding=dict.fromkeys(split, "BYTE_STREAM_SPLIT"),
        write_statistics=plain,
        store_schema=False,
    ) as writer:
        rows = PAYLOAD_ROWS if found.kind == "payload" else SCALAR_ROWS
        writer.write_table(arrow, row_group_size=rows)
        writer.add_key_value_metadata({TABLE_KEY: table, VERSION_KEY: str(found.version)})
    return buffer.getvalue()


def has_footer(path: Path) -> bool:
    """Return whether a file ends as a Parquet file does: its footer's length, then the mark."""
    size = path.stat().st_size
    if size < 12:
        return False
    with path.open("rb") as handle:
        handle.seek(-8, io.SEEK_END)
        tail = handle.read()
    return tail[4:] == b"PAR1" and int.from_bytes(tail[:4], "little") <= size - 12


def read_parquet(
    table: str, source: bytes | Path | str, *, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """Return the rows of one file of the table, or only some columns of them.

    Raises:
        NotFound: there is no such file.
        IntegrityError: the bytes are no Parquet file.
        SchemaError: another table's file, another schema version, or other columns or types.
    """
    name = "the given bytes" if isinstance(source, bytes) else str(source)
    with _opened(table, name, source) as (parquet, lacking, earlier):
        needed = [*(columns or ()), *_needed(table, lacking)]
        asked = columns and [earlier.get(column, column) for column in needed]
        arrow = parquet.read(columns=asked)
    return _as_now(table, name, arrow, lacking, earlier, columns)


def check_file(table: str, path: Path | str) -> None:
    """Look at a file's footer, and read no row; raises as `read_parquet` does for what it finds."""
    with _opened(table, str(path), path) as (parquet, lacking, earlier):
        empty = parquet.schema_arrow.empty_table()
    _as_now(table, str(path), empty, lacking, earlier, None)


@contextmanager
def _opened(
    table: str, name: str, source: bytes | Path | str
) -> Generator[tuple[pq.ParquetFile, tuple[str, ...], dict[str, str]]]:
    """Return a file of the table, the columns that it lacks, and old names by new ones."""
    try:
        with pq.ParquetFile(io.BytesIO(source) if isinstance(source, bytes) else source) as parquet:
            version = _version(table, name, parquet.metadata.metadata or {})
            yield (parquet, *_older(table, name, version))
    except FileNotFoundError as error:
        raise NotFound(f"table {table}: there is no file {name}") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise IntegrityError(f"table {table}: {name} is no whole Parquet file: {error}") from error


def _as_now(
    table: str,
    name: str,
    arrow: pa.Table,
    lacking: Sequence[str],
    earlier: Mapping[str, str],
    columns: Sequence[str] | None,
) -> pl.DataFrame:
    """Return rows of a file with the columns of today; raises SchemaError for any other ones."""
    frame = pl.DataFrame(arrow).rename({old: new for new, old in earlier.items()}, strict=False)
    wanted = schema(table)
    if columns is not None:
        unknown = [column for column in columns if column not in wanted]
        if unknown:
            raise SchemaError(f"table {table} has no column {', '.join(unknown)}")
        wanted = pl.Schema({column: wanted[column] for column in columns})
    if lacking:
        types = schema(table)
        frame = frame.with_columns(pl.lit(None, types[name]).alias(name) for name in lacking)
        frame = frame.with_columns(value.alias(name) for name, value in _assumed(table, lacking))
        frame = frame.select(name for name in wanted if name in frame.columns)
    if columns is not None:
        frame = frame.select(columns)
    if frame.schema != wanted:
        raise SchemaError(
            f"table {table}: {name}: {_difference(frame.schema, wanted)}, so another version of "
            f"genenv wrote it: {_ELSEWHERE}"
        )
    return frame


def _assumed(table: str, lacking: Sequence[str]) -> list[tuple[str, pl.Expr]]:
    """Return, with its value, each column that a file lacks and that is not null there."""
    values = spec(table).assumed
    return [(name, pl.sql_expr(values[name])) for name in lacking if name in values]


def _needed(table: str, lacking: Sequence[str]) -> set[str]:
    """Return the columns of a file from which the values of lacking columns are computed."""
    made_of = (value.meta.root_names() for _, value in _assumed(table, lacking))
    return {name for names in made_of for name in names} - set(lacking)


def _encodings(table: str) -> tuple[list[str], list[str], list[str]]:
    """Return the leaf columns to encode by dictionary, to split by byte, to keep statistics of."""
    repeated: list[str] = []
    split: list[str] = []
    counted: list[str] = []
    for name, dtype in schema(table).items():
        metadata = metadata_of(model_columns(table)[name])
        if isinstance(dtype, pl.List):
            leaf = f"{name}.list.element"
            (split if dtype.inner.is_float() else repeated).append(leaf)
            continue
        if metadata.get("dictionary"):
            repeated.append(name)
        # Free text would put its longest values into every footer.
        if "dictionary" in metadata or dtype != pl.String:
            counted.append(name)
    return repeated, split, counted


def _version(table: str, name: str, metadata: dict[bytes, bytes]) -> int:
    """Return the schema version of a file of the table."""
    holder = metadata.get(TABLE_KEY.encode(), b"").decode()
    version = metadata.get(VERSION_KEY.encode(), b"").decode()
    if holder != table:
        raise SchemaError(
            f"table {table}: {name} holds {f'table {holder}' if holder else 'no table of genenv'}"
        )
    if not version.isdigit():
        raise SchemaError(f"table {table}: {name} has schema version {version!r}, no number")
    return int(version)


def _older(table: str, name: str, version: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return which columns an older file lacks, which are null, and old names by new ones."""
    known = spec(table).version
    lacking = spec(table).added_since(version) if version <= known else None
    if lacking is None:
        remedy = "upgrade genenv to read it"
        if version < known:
            remedy = _ELSEWHERE
        raise SchemaError(
            f"table {table}: {name} has schema version {version} and this genenv knows {known}: "
            f"{remedy}"
        )
    return lacking, spec(table).earlier_names(version)


def _difference(given: pl.Schema, wanted: pl.Schema) -> str:
    for name, dtype in wanted.items():
        if name not in given:
            return f"column {name} is missing"
        if given[name] != dtype:
            return f"column {name} has type {given[name]}, not {dtype}"
    for name in given:
        if name not in wanted:
            return f"column {name} is unknown"
    return f"columns are in the order {', '.join(given)}"
