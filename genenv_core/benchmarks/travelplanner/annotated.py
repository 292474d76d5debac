"""The annotated plans of a split, which only its training side has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from genenv_core.benchmarks.files import read_lines
from genenv_core.benchmarks.travelplanner.queries import column_of, literal
from genenv_core.errors import DataError
from genenv_core.types import JsonObject

COLUMN = "annotated_plan"


class Annotated:
    """Plans by the ids of their queries; the first look reads the files."""

    def __init__(self, files: Mapping[str, Sequence[Path]]) -> None:
        """Take each split's files: of its queries, and with plans beside them."""
        self._files = files

    def of(self, item: str) -> list[JsonObject] | None:
        """Return the days of an annotated plan, None without one; raises DataError."""
        return self._plans.get(item)

    @cached_property
    def _plans(self) -> Mapping[str, list[JsonObject]]:
        plans: dict[str, list[JsonObject]] = {}
        for split, (queries, *beside) in self._files.items():
            for index, value in column_of(queries, COLUMN).items():
                plans[f"{split}/{index}"] = _days(value, f"{queries}, query {index}")
            for path in beside:
                for place, row in enumerate(read_lines(path), 1):
                    record = cast(JsonObject, row) if isinstance(row, dict) else {}
                    item = f"{split}/{record.get('idx', place)}"
                    plans[item] = _days(record.get("plan"), f"{path}, line {place}")
        return plans


def gold_files(data: Path, split: str) -> list[Path]:
    """Return the files beside a split's queries that hold annotated plans."""
    return sorted(data.glob(f"{split}_gold*.jsonl"))


def _days(value: Any, where: str) -> list[JsonObject]:
    """Return a plan's days that are not empty; the official column has the query before them."""
    try:
        plan = cast("list[Any]", literal(value))
        if len(plan) == 2 and isinstance(plan[1], list):
            plan = cast("list[Any]", plan[1])
        return [dict(cast(JsonObject, day)) for day in plan if day]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise DataError(
            f"{where}: no annotated plan: {type(error).__name__}: {error}; download the file again"
        ) from error
