"""Base tasks from files that others wrote: JSONL, CSV, Parquet, Hugging Face datasets, verl.

Every row becomes a task, or a `BadRow` that names the place, the field and the reason.
"""

# pyarrow has no stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import csv
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from genenv_core.config.sections.data import BaseField, DataConfig
from genenv_core.domains.protocol import Domain, ReadsAnswers
from genenv_core.errors import ConfigError, DataError, DomainError, one_line
from genenv_core.ids import seed_from
from genenv_core.storage.files import unreadable
from genenv_core.types import Rejected, TaskDraft, TaskSource

OWN_COLUMNS: dict[str, Mapping[BaseField, str]] = {
    "verl": {"prompt": "prompt", "ground_truth": "reward_model.ground_truth"},
}
"""Mapping of a format that has column names of its own; the others have `program`."""

LISTED = 10
"""Bad rows that are shown to people; all of them go to a file."""

_ENDINGS = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}


class Place(NamedTuple):
    """Where a row is: `base.csv:7` (a line, from 1) or `base.parquet: row 7` (from 1)."""

    path: Path
    where: str

    def __str__(self) -> str:
        """Return it with the whole path."""
        return f"{self.path}{self.where}"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no task: where it is, which field ('' for the whole row), and why."""

    place: Place
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


@dataclass(frozen=True, slots=True)
class BaseData:
    """What a file gave: tasks in its order, rows that are none, and how many tasks repeated."""

    drafts: list[TaskDraft]
    bad: list[BadRow] = field(default_factory=list[BadRow])
    repeated: int = 0


def read_base(
    path: Path,
    domain: Domain,
    *,
    format_: str = "auto",
    mapping: Mapping[BaseField, str] | None = None,
    count: int = 10**9,
    skip_bad: bool = False,
    repeats: bool = False,
    heldout: Collection[str] = (),
) -> BaseData:
    """Return the first `count` tasks of a file or dataset folder.

    Equal tasks count once, but for `repeats`. `heldout` are fingerprints that no base task may
    have: training on such a task would spoil the evaluation. Raises DataError at the first bad row
    unless bad rows are skipped, and when no task is left; ConfigError when the domain cannot read
    what the mapping names.
    """
    kind = format_ if format_ != "auto" else _kind(path)
    columns = mapping or OWN_COLUMNS.get(kind) or {"program": "program"}
    if "program" not in columns and not isinstance(domain, ReadsAnswers):
        raise ConfigError(
            f"data.base_mapping: domain {domain.name} reads no tasks from prompt and ground_truth: "
            "map program to the column that holds its programs"
        )
    drafts: list[TaskDraft] = []
    seen: set[str] = set()
    bad: list[BadRow] = []
    repeated = 0
    for place, row in _rows(path, kind):
        if len(drafts) >= count:
            break
        for item in _tasks(place, row, columns, domain, heldout):
            if isinstance(item, BadRow):
                if not skip_bad:
                    raise DataError(
                        f"{item}; correct or remove the row, or skip such rows (data.skip_bad; "
                        "genenv import --skip-bad)"
                    )
                bad.append(item)
            elif item.fingerprint in seen and not repeats:
                repeated += 1
            else:
                seen.add(item.fingerprint)
                drafts.append(item)
    if not drafts:
        first = f": all rows are bad, the first is {bad[0]}" if bad else ""
        raise DataError(f"{path}: holds no task{first}")
    return BaseData(drafts[:count], bad, repeated)


def configured_base(
    data: DataConfig, path: Path, domain: Domain, heldout: Collection[str]
) -> BaseData:
    """Return the base data of a file as the configuration says; see `read_base`."""
    return read_base(
        path,
        domain,
        format_=data.base_format,
        mapping=data.base_mapping,
        count=data.base_tasks,
        skip_bad=data.skip_bad,
        heldout=heldout,
    )


def heldout_fingerprints(domain: Domain, seed: int, data: DataConfig) -> set[str]:
    """Return the fingerprints of the tasks that a run with this seed is measured on."""
    return fingerprints(heldout_drafts(domain, seed, data))


def fingerprints(drafts: Mapping[TaskSource, Sequence[TaskDraft]]) -> set[str]:
    """Return the fingerprints of drafts of every source."""
    return {draft.fingerprint for of_source in drafts.values() for draft in of_source}


def heldout_drafts(
    domain: Domain, seed: int, data: DataConfig
) -> dict[TaskSource, list[TaskDraft]]:
    """Return these tasks by source. Which are for validation is drawn, so both sets are alike.

    Raises DomainError when the domain does not return as many as it is asked for.
    """
    count = data.validation_tasks + data.test_tasks
    drafts = domain.heldout_tasks(seed_from(seed, "heldout"), count)
    if len(drafts) != count:
        raise DomainError(
            f"domain {domain.name}: heldout_tasks returned {len(drafts)} tasks and {count} were "
            "asked for (data.validation_tasks + data.test_tasks): mend it, or lower these"
        )
    rng = np.random.default_rng(seed_from(seed, "validation"))
    chosen = set(rng.choice(len(drafts), size=data.validation_tasks, replace=False).tolist())
    return {
        TaskSource.VALIDATION: [draft for i, draft in enumerate(drafts) if i in chosen],
        TaskSource.TEST: [draft for i, draft in enumerate(drafts) if i not in chosen],
    }


def _kind(path: Path) -> str:
    kind = "hf" if os.path.isdir(path) else _ENDINGS.get(path.suffix.lower())
    if kind is None:
        raise ConfigError(
            f"data.base_file {path}: its ending says no format; set data.base_format to jsonl, "
            "csv, parquet, hf or verl"
        )
    return kind


def _tasks(
    place: Place,
    row: dict[str, Any] | BadRow,
    columns: Mapping[BaseField, str],
    domain: Domain,
    heldout: Collection[str],
) -> Iterator[TaskDraft | BadRow]:
    if isinstance(row, BadRow):
        yield row
        return
    values: dict[BaseField, str] = {}
    for name, column in columns.items():
        text = _as_text(name, _value(row, column))
        if text is None:
            shown = repr(_value(row, column))[:80]
            yield BadRow(place, column, f"is {shown}, expected {_EXPECTED[name]}")
            return
        values[name] = text
    if "program" in values:
        column, made = columns["program"], domain.parse(values["program"])
    else:
        column = columns["prompt"]
        reader = cast(ReadsAnswers, domain)
        made = [reader.from_answer(values["prompt"], values["ground_truth"])]
    for item in made:
        if isinstance(item, Rejected):
            why = item.detail or f"no task of domain {domain.name}"
            yield BadRow(place, column, f"{_shown(values)!r} is {item.reason.value}: {why}")
        elif item.fingerprint in heldout:
            yield BadRow(place, column, f"{_shown(values)!r} is a held-out task")
        else:
            yield item


def _shown(values: Mapping[BaseField, str]) -> str:
    """Return the text of a row that says most about it, shortened."""
    return (values.get("program") or values["prompt"])[:80]


_EXPECTED = {
    "program": "a text",
    "prompt": "a text or chat messages that end with the user's",
    "ground_truth": "a text or JSON",
}


def _as_text(name: BaseField, value: Any) -> str | None:
    """Return a field's text: of messages the last one of the user; JSON values as JSON."""
    if isinstance(value, str):
        return value if value.strip() else None
    if value is None or name == "program":
        return None
    if name == "ground_truth":
        return json.dumps(value, ensure_ascii=False)
    if not isinstance(value, list):
        return None
    said = [cast(dict[str, Any], m) for m in cast(list[Any], value) if isinstance(m, dict)]
    texts = [m.get("content") for m in said if m.get("role") == "user"]
    return texts[-1] if texts and isinstance(texts[-1], str) else None


def _value(row: dict[str, Any], column: str) -> Any:
    """Return a column's value; where no column has the whole name, dots lead into structures."""
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        value = cast(dict[str, Any], value).get(name) if isinstance(value, dict) else None
    return value


def _rows(path: Path, kind: str) -> Iterator[tuple[Place, dict[str, Any] | BadRow]]:
    """Yield each row with its place: `file:line` of texts, `file: row n` from 1 of the others."""
    if not os.path.isdir(path) and (why := unreadable(path)):
        raise DataError(f"{path}: {why}")
    try:
        if kind == "jsonl":
            yield from _jsonl(path)
        elif kind == "csv":
            yield from _csv(path)
        elif kind == "hf":
            yield from _folder(path)
        else:
            yield from _parquet(path)
    except (OSError, UnicodeDecodeError, pa.ArrowException, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as {kind}: {one_line(error, 200)}") from error


def _jsonl(path: Path) -> Iterator[tuple[Place, dict[str, Any] | BadRow]]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = Place(path, f":{number}")
            try:
                row: Any = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield place, BadRow(place, "", f"is no JSON ({error})")
                continue
            if isinstance(row, dict):
                yield place, cast(dict[str, Any], row)
            else:
                yield place, BadRow(place, "", f"is {line.strip()[:40]!r}, expected a JSON object")


def _csv(path: Path) -> Iterator[tuple[Place, dict[str, Any] | BadRow]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        for row in reader:
            place = Place(path, f":{reader.line_num}")
            extra = row.pop(cast(Any, None), None)
            if extra is not None:
                yield place, BadRow(place, "", f"has {len(extra)} more values than the header")
            else:
                yield place, dict(row)


def _parquet(path: Path) -> Iterator[tuple[Place, dict[str, Any] | BadRow]]:
    number = 0
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=4096):
            for row in batch.to_pylist():
                number += 1
                yield Place(path, f": row {number}"), row


def _folder(path: Path) -> Iterator[tuple[Place, dict[str, Any] | BadRow]]:
    """Yield the rows of a dataset folder: Parquet files, or what `save_to_disk` wrote."""
    files = sorted(file for file in path.rglob("*.parquet") if file.is_file())
    train = [file for file in files if "train" in file.relative_to(path).as_posix()]
    for file in train or files:
        yield from _parquet(file)
    if files:
        return
    from datasets import DatasetDict, load_from_disk  # seconds to load, and seldom needed

    try:
        dataset: Any = load_from_disk(str(path))
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: no Hugging Face dataset: neither *.parquet files nor what save_to_disk writes"
        ) from error
    if isinstance(dataset, DatasetDict):
        if "train" not in dataset:
            raise DataError(f"{path}: no split train; splits there: {', '.join(map(str, dataset))}")
        dataset = dataset["train"]
    for number, row in enumerate(dataset, start=1):
        yield Place(path, f": row {number}"), row
