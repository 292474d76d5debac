"""Rows of files that others wrote, each with its place: JSON, CSV, Parquet, dataset folders.

It reads only the wanted columns, where the form of a file allows it, and a folder as the library
`datasets` reads it: its splits, its configurations, no hidden files.
"""

# pyarrow has no stubs, and datasets has few types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from genenv_core.errors import DataError, one_line
from genenv_core.storage.files import unreadable

LONGEST_FIELD = 2**31 - 1
"""Characters of a field of a CSV file."""

ENDINGS = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}
"""The format of a file by its ending."""

_BEGINNINGS = {
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"SQLite format 3": "SQLite",
    b"version https://git-lfs": "a pointer of Git LFS, not the file",
}


class RowPlace(NamedTuple):
    """Where a row is: `base.csv:7` (a line, from 1) or `base.parquet: row 7` (from 1)."""

    path: Path
    where: str

    def __str__(self) -> str:
        """Return it with the whole path."""
        return f"{self.path}{self.where}"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no task: where it is, which field ('' for the whole row), and why."""

    place: RowPlace
    field: str
    reason: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.place}: {self._what}"

    @property
    def short(self) -> str:
        """Return it with the file's name alone, which is the same wherever the file lies."""
        return f"{self.place.path.name}{self.place.where}: {self._what}"

    @property
    def _what(self) -> str:
        return f'field "{self.field}" {self.reason}' if self.field else self.reason


def value_of(row: dict[str, Any], column: str) -> Any:
    """Return a column's value; where no column has the whole name, dots lead into structures."""
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        value = cast(dict[str, Any], value).get(name) if isinstance(value, dict) else None
    return value


def rows_of(
    path: Path, kind: str, columns: Sequence[str]
) -> Iterator[tuple[RowPlace, dict[str, Any] | BadRow]]:
    """Yield each row with its place: `file:line` of texts, `file: row n` from 1 of the others.

    Raises DataError, which names the file, for one that cannot be read as `kind`, and for a folder
    without one choice of training data.
    """
    folder = os.path.isdir(path)
    if not folder and (why := unreadable(path)):
        raise DataError(f"{path}: {why}")
    try:
        if not folder and (form := _other_form(path, kind)):
            raise DataError(
                f"{path}: is {form} and is read as {kind}: give it the ending of its form or name "
                "that (data.base_format; genenv import --format), or convert it to JSONL"
            )
        if kind == "jsonl":
            yield from _json(path)
        elif kind == "csv":
            yield from _csv(path)
        elif kind == "hf":
            yield from _folder(path, columns)
        else:
            yield from _parquet(path, columns)
    except (OSError, ValueError, OverflowError, pa.ArrowException, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as {kind}: {one_line(error, 200)}") from error


def _other_form(path: Path, kind: str) -> str:
    """Return what a file is by its first bytes, '' where that is no other form than `kind`."""
    with path.open("rb") as file:
        head = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    found = next((form for mark, form in _BEGINNINGS.items() if head.startswith(mark)), "")
    if not found and head.lower().startswith((b"<!doctype", b"<html")):
        found = "HTML"
    if kind in ("parquet", "verl"):
        text = "JSON" if head.startswith((b"{", b"[")) else ""
        return "" if found == "Parquet" else found or text
    if kind == "csv" and "".join(head.decode(errors="replace").split()).startswith(('{"', '[{"')):
        return "JSON"
    return found


def _json(path: Path) -> Iterator[tuple[RowPlace, dict[str, Any] | BadRow]]:
    """Yield the rows of JSON lines, or of one array or object over any number of lines."""
    with path.open(encoding="utf-8-sig") as lines:
        whole = _whole(lines.read) if _not_lines(path) else None
    if whole is not None:
        for number, row in enumerate(whole, start=1):
            yield _object(RowPlace(path, f": row {number}"), row)
        return
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = RowPlace(path, f":{number}")
            try:
                row: Any = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield place, BadRow(place, "", f"is no JSON ({error})")
                continue
            yield _object(place, row)


def _not_lines(path: Path) -> bool:
    """Return whether the first line that is not empty is no JSON object."""
    with path.open(encoding="utf-8-sig") as lines:
        first = next((line for line in lines if line.strip()), "{}")
    try:
        return not isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return True


def _whole(read: Callable[[], str]) -> list[Any] | None:
    """Return the items of a text that is one JSON array, or one object; None for another."""
    try:
        value: Any = json.loads(read())
    except (json.JSONDecodeError, RecursionError):
        return None
    return cast(list[Any], value) if isinstance(value, list) else [value]


def _object(place: RowPlace, row: Any) -> tuple[RowPlace, dict[str, Any] | BadRow]:
    if isinstance(row, dict):
        return place, cast(dict[str, Any], row)
    shown = json.dumps(row, ensure_ascii=False)[:40]
    return place, BadRow(place, "", f"is {shown!r}, expected a JSON object")


def _csv(path: Path) -> Iterator[tuple[RowPlace, dict[str, Any] | BadRow]]:
    csv.field_size_limit(LONGEST_FIELD)
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        for row in reader:
            place = RowPlace(path, f":{reader.line_num}")
            extra = row.pop(cast(Any, None), None)
            if extra is not None:
                yield place, BadRow(place, "", f"has {len(extra)} more values than the header")
            else:
                yield place, dict(row)


def _parquet(
    path: Path, columns: Sequence[str]
) -> Iterator[tuple[RowPlace, dict[str, Any] | BadRow]]:
    number = 0
    with pq.ParquetFile(path) as file:
        wanted = _tops(file.schema_arrow.names, columns)
        for batch in file.iter_batches(batch_size=4096, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                yield RowPlace(path, f": row {number}"), row


def _tops(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the columns of a file that hold the wanted ones, which dots may lead into."""
    tops = (column if column in names else column.partition(".")[0] for column in columns)
    return [name for name in dict.fromkeys(tops) if name in names]


def _folder(
    path: Path, columns: Sequence[str]
) -> Iterator[tuple[RowPlace, dict[str, Any] | BadRow]]:
    """Yield the rows for training in a dataset folder, or in what `save_to_disk` wrote."""
    if not any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        for file in training_files(path):
            yield from rows_of(file, ENDINGS[file.suffix.lower()], columns)
        return
    from datasets import DatasetDict, load_from_disk  # seconds to load, and seldom needed

    dataset: Any = load_from_disk(str(path))
    if isinstance(dataset, DatasetDict):
        dataset = dataset[_train(path, list(map(str, dataset)))]
    dataset = dataset.select_columns(_tops(dataset.column_names, columns))
    for number, row in enumerate(dataset, start=1):
        yield RowPlace(path, f": row {number}"), row


def training_files(path: Path) -> list[Path]:
    """Return the files of the split train, as the library `datasets` finds them.

    Configurations are those of the README; without a default one, several are no choice. Raises
    DataError where there is not one choice, or files that are neither JSON, CSV nor Parquet.
    """
    from datasets.data_files import DataFilesPatternsDict, EmptyDatasetError
    from datasets.load import LocalDatasetModuleFactory

    try:
        module = LocalDatasetModuleFactory(str(path)).get_module()
    except (EmptyDatasetError, FileNotFoundError) as error:
        raise DataError(
            f"{path}: no Hugging Face dataset: neither data files nor what save_to_disk writes"
        ) from error
    found = module.builder_configs_parameters
    configs = {str(one.name): one for one in found.builder_configs or []}
    default = found.default_config_name
    if default not in configs:
        default = next(iter(configs)) if len(configs) == 1 else None
    if default is None:
        raise DataError(
            f"{path}: holds the configurations {', '.join(sorted(configs))}, and none is the "
            "default one: give the file of one of them"
        )
    data: Any = configs[default].data_files
    if isinstance(data, DataFilesPatternsDict):
        data = data.resolve(str(path.resolve()))
    files = [Path(file) for file in data[_train(path, list(map(str, data)))]]
    if strange := [file for file in files if file.suffix.lower() not in ENDINGS]:
        raise DataError(
            f"{path}: {strange[0].name} is neither JSON, CSV nor Parquet: convert it to JSONL"
        )
    return files


def _train(path: Path, splits: Sequence[str]) -> str:
    if "train" not in splits:
        raise DataError(
            f"{path}: no split train; splits there: {', '.join(splits)}: give the file of one"
        )
    return "train"
