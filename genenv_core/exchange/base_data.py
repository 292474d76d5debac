"""Base tasks from files that others wrote: JSONL, CSV, Parquet, Hugging Face datasets, verl.

Every row becomes a task, or a `BadRow` that names the place, the field and the reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from genenv_core.config.sections.data import BaseField, DataConfig
from genenv_core.domains.protocol import Domain, ReadsAnswers
from genenv_core.errors import ConfigError, DataError, DomainError
from genenv_core.exchange.base_rows import (
    CONVERT,
    ENDINGS,
    BadRow,
    RowPlace,
    form_of,
    lacking,
    rows_of,
    value_of,
)
from genenv_core.ids import seed_from
from genenv_core.named_files import unreadable
from genenv_core.types import Rejected, TaskDraft, TaskSource

OWN_COLUMNS: dict[str, Mapping[BaseField, str]] = {
    "verl": {"prompt": "prompt", "ground_truth": "reward_model.ground_truth"},
}
"""Mapping of a format that has column names of its own; the others have `program`."""

BASE_FILE = "data.base_file"

LISTED = 10
"""Bad rows that genenv shows to people; it writes all of them into a file."""


@dataclass(frozen=True, slots=True)
class BaseData:
    """What a file holds: tasks in its order, rows without a task, and how many tasks repeated."""

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
    field: str = BASE_FILE,
) -> BaseData:
    """Return the first `count` tasks of a file or dataset folder.

    Equal tasks count once, unless `repeats`. `heldout` are fingerprints that no base task may have:
    training on such a task would spoil the evaluation. `field` names the file in errors, which
    offer settings on how to read it for data.base_file alone. Raises DataError at the first bad row
    unless `skip_bad`, and when no task is left; ConfigError when the domain cannot read what the
    mapping names.
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
    of_base = field == BASE_FILE
    skipping = ", or skip such rows (data.skip_bad; genenv import --skip-bad)" if of_base else ""
    for place, row in rows_of(path, kind, list(columns.values()), of_base=of_base):
        if len(drafts) >= count:
            break
        for item in _tasks(place, row, columns, domain, heldout):
            if isinstance(item, BadRow):
                if not skip_bad:
                    raise DataError(f"{item}; correct or remove the row of {field}{skipping}")
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
    """Return the fingerprints of the held-out tasks of a run with this seed."""
    return fingerprints(heldout_drafts(domain, seed, data))


def fingerprints(drafts: Mapping[TaskSource, Sequence[TaskDraft]]) -> set[str]:
    """Return the fingerprints of drafts of every source."""
    return {draft.fingerprint for of_source in drafts.values() for draft in of_source}


def heldout_drafts(
    domain: Domain, seed: int, data: DataConfig
) -> dict[TaskSource, list[TaskDraft]]:
    """Return the held-out tasks of a run with this seed by source.

    A draw decides which are for validation, so that both sets are alike. Raises DomainError when
    the domain does not return as many as it was asked for.
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
    kind = "hf" if os.path.isdir(path) else ENDINGS.get(path.suffix.lower())
    if kind is None and (why := unreadable(path)):
        raise ConfigError(f"data.base_file {path}: {why}")
    if kind is None and (form := form_of(path)) and form[1] != CONVERT:
        raise ConfigError(f"data.base_file {path}: is {form[0]}: {form[1]}")
    if kind is None:
        raise ConfigError(
            f"data.base_file {path}: its ending says no format; set data.base_format to jsonl, "
            "csv, parquet, hf or verl"
        )
    return kind


def _tasks(
    place: RowPlace,
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
        text = _as_text(name, value_of(row, column))
        if text is None:
            yield BadRow(place, column, f"{lacking(row, column)}, expected {_EXPECTED[name]}")
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
