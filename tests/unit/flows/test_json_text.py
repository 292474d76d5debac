"""One form of JSON for all commands and pages.

Invariants: a value is written by `genenv trace`, `genenv status` and the page as `genenv sql
--json` writes it in a column, inside of lists and structures too; nothing in `flows` writes JSON
for people in a way of its own.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.shown.json_text import json_text
from flows.shown.spelling import json_of, spelled
from flows.view.app import _data
from tests.mutations import mutation

JSON_TEXT = "flows/shown/json_text.py"
VALUES = [
    Decimal("12345678901234567890.10"),
    date(2024, 2, 29),
    datetime(2024, 2, 29, 12, 30, 0, 5),
    datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    time(3, 4, 5),
    b"a\xff",
    math.nan,
    math.inf,
    -math.inf,
    1.5,
    2**62,
    "a\n<b>",
    None,
    True,
]


@mutation(
    "NaN is no JSON in a record", JSON_TEXT,
    "return written(with_odd(value, value), default=_as_in_a_column", 
    "return written(value, default=_as_in_a_column",
)  # fmt: skip
@mutation(
    "a date is spelled as Python does", JSON_TEXT,
    "if isinstance(value, date | datetime | time | bytes):", "if isinstance(value, bytes):",
)  # fmt: skip
@mutation(
    "NaN in a tuple is no JSON", "flows/shown/odd_numbers.py",
    "isinstance(value, list | tuple)", "isinstance(value, list)",
)  # fmt: skip
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_record_is_written_as_a_column_is(value: Any) -> None:
    column = json_of(spelled(pl.DataFrame({"v": [value]}))).strip()
    written = json_text([{"v": value}], ensure_ascii=False, separators=(",", ":"))
    assert written == column
    (row,) = json.loads(column, parse_float=str)
    inside = json.loads(json_text({"a": [value, (value,)]}), parse_float=str)
    assert inside == {"a": [row["v"], [row["v"]]]}


def test_the_page_writes_the_same_and_no_tag() -> None:
    given = {"v": VALUES}
    assert str(_data(given)).replace("\\u003c", "<") == json_text(given)
    assert "<" not in _data(given)


@mutation(
    "trace has a JSON of its own", "flows/cli/runs/trace.py",
    "typer.echo(json_text(asdict(record)))", "typer.echo(json.dumps(asdict(record)))",
)  # fmt: skip
def test_nobody_writes_json_for_people_in_another_way() -> None:
    own = re.compile(r"dumps\(.*default=str\b|(?:print|echo|Markup)\([^)]*dumps\(")
    found = [
        f"{path}: {line.strip()}"
        for path in Path("flows").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if own.search(line) or "import dumps" in line
    ]
    assert found == []
