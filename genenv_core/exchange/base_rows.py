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
from genenv_core.named_files import looked_for, unreadable

LONGEST_FIELD = 2**31 - 1
"""Characters of a field of a CSV file."""

ENDINGS = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}
"""The format of a file by its ending."""

UNPACK, AS_UTF8, CONVERT = "unpack it first", "save it as UTF-8", "convert it to JSONL"

_BEGINNINGS = {
    b"PAR1": ("Parquet", CONVERT),
    b"ARROW1": ("Arrow", CONVERT),
    b"\x1f\x8b": ("gzip", UNPACK),
    b"\x28\xb5\x2f\xfd": ("zstd", UNPACK),
    b"BZh": ("bzip2", UNPACK),
    b"\xfd7zXZ\x00": ("xz", UNPACK),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", UNPACK),
    b"PK\x03\x04": ("a zip archive or a spreadsheet", "unpack it, or save the sheet as JSONL"),
    b"SQLite format 3": ("SQLite", CONVERT),
    b"%PDF": ("PDF", CONVERT),
    b"\x89PNG": ("a picture", CONVERT),
    b"\x93NUMPY": ("an array of numpy", CONVERT),
    b"\x80\x04": ("a pickle", CONVERT),
    b"\x80\x05": ("a pickle", CONVERT),
    b"version https://git-lfs": (
        "a pointer of Git LFS, not the file",
        "run `git lfs pull` where it lies",
    ),
    b"\xff\xfe\x00\x00": ("text in UTF-32", AS_UTF8),
    b"\x00\x00\xfe\xff": ("text in UTF-32", AS_UTF8),
    b"\xff\xfe": ("text in UTF-16", AS_UTF8),
    b"\xfe\xff": ("text in UTF-16", AS_UTF8),
}
"""How a file begins -> its form, and what to do where that is not the expected one."""

TAR_AT, TAR = 257, b"ustar"
"""Where a tar archive has its mark (POSIX.1-1988), and the mark."""


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


def lacking(row: dict[str, Any], column: str) -> str:
    """Return, as the words of an error, that a row lacks a column, or its value there."""
    value, top = value_of(row, column), column.partition(".")[0]
    if value is None and column not in row and top not in row:
        return f"is missing (the row has {one_line(', '.join(map(str, row)), 100) or 'nothing'})"
    return f"is {one_line(repr(value), 80)}"


def rows_of(
    path: Path, kind: str, columns: Sequence[str], *, of_base: bool = False
) -> Iterator[tuple[RowPlace, dict[str, Any] | BadRow]]:
    """Yield each row with its place: `file:line` of texts, `file: row n` from 1 of the others.

    `of_base` says that data.base_format and data.base_mapping tell how to read the file.
    Raises DataError, which names the file, for one that cannot be read as `kind`, for one without
    the columns, and for a folder whose training data is missing or ambiguous.
    """
    folder = os.path.isdir(path)
    if not (folder and kind == "hf") and (why := unreadable(path)):
        raise DataError(f"{path}: {why}{looked_for(path)}")
    try:
        if not folder and (form := _other_form(path, kind)):
            name, remedy = form
            if of_base and name in ("Parquet", "JSON"):
                remedy = (
                    "give it the ending of its form, name that (data.base_format; genenv import "
                    "--format), or convert it to JSONL"
                )
            raise DataError(f"{path}: is {name} and is read as {kind}: {remedy}")
        if kind == "jsonl":
            yield from _json(path)
        elif kind == "csv":
            yield from _csv(path)
        elif kind == "hf":
            yield from _folder(path, columns)
        else:
            yield from _parquet(path, columns)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}{_not_text(path)}: {AS_UTF8}") from error
    except (OSError, ValueError, OverflowError, pa.ArrowException, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as {kind}: {one_line(error, 200)}") from error


def form_of(path: Path) -> tuple[str, str] | None:
    """Return the form of a file by its first bytes, and what to do about it; None for a text."""
    with path.open("rb") as file:
        head = file.read(TAR_AT + len(TAR))
    if head[TAR_AT:] == TAR:
        return "a tar archive", UNPACK
    begin = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for mark, form in _BEGINNINGS.items():
        if begin.startswith(mark):
            return form
    if begin.lower().startswith((b"<!doctype", b"<html")):
        return "HTML", "fetch the file that the page offers"
    if b"\0" in head:
        return "binary, or text in UTF-16", f"{CONVERT}, as UTF-8"
    return None


def _other_form(path: Path, kind: str) -> tuple[str, str] | None:
    """Return `form_of` a file, None where that is no other form than `kind`."""
    found = form_of(path)
    with path.open("rb") as file:
        head = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    if kind in ("parquet", "verl"):
        text = ("JSON", CONVERT) if head.startswith((b"{", b"[")) else None
        unsaid = found is None or found[0] in ("Parquet", "binary, or text in UTF-16")
        return text if unsaid else found
    if kind == "csv" and "".join(head.decode(errors="replace").split()).startswith(('{"', '[{"')):
        return "JSON", CONVERT
    return found


def _not_text(path: Path) -> str:
    """Return the place and the bytes of the first line that is no UTF-8."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                around = line[max(0, error.start - 10) : error.start + 10]
                return (
                    f":{number}: is no text in UTF-8 (byte 0x{line[error.start]:02x} in {around})"
                )
    return ": is no text in UTF-8"


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
                yield place, BadRow(place, "", _no_json(line, error))
                continue
            yield _object(place, row)


def _no_json(line: str, error: Exception) -> str:
    """Return why a line is no JSON; in JSON lines no comma stands between objects."""
    try:
        json.loads(line.rstrip().removesuffix(","))
    except (ValueError, RecursionError):
        return f"is no JSON ({error})"
    return "is no JSON: it ends with a comma, and JSON lines have none between objects"


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
        wanted = _tops(path, file.schema_arrow.names, columns)
        for batch in file.iter_batches(batch_size=4096, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                yield RowPlace(path, f": row {number}"), row


def _tops(path: Path, names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the columns of a file that hold the wanted ones, which dots may lead into.

    Raises DataError where the file lacks one.
    """
    tops = {column if column in names else column.partition(".")[0]: None for column in columns}
    for top in tops:
        if top not in names:
            raise DataError(
                f"{path}: has no column {top!r}, only {one_line(', '.join(names), 200)}: say which "
                "column holds what (data.base_mapping; genenv import --map)"
            )
    return list(tops)


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
    dataset = dataset.select_columns(_tops(path, dataset.column_names, columns))
    for number, row in enumerate(dataset, start=1):
        yield RowPlace(path, f": row {number}"), row


def training_files(path: Path) -> list[Path]:
    """Return the files of the split train, as the library `datasets` finds them.

    The README names the configurations. Raises DataError for several of them without a default one,
    and for files that are neither JSON, CSV nor Parquet.
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
