"""Records and values as JSON: the one form of all commands and pages.

Light on purpose: tables are loaded for a value alone that needs them.
"""

from __future__ import annotations

import json
from datetime import date, datetime, time
from typing import Any

from flows.shown.odd_numbers import with_odd, written


def json_text(value: Any, **form: Any) -> str:
    """Return records, lists or a value as JSON, each value as `genenv sql --json` writes it in a
    column.

    Whatever `genenv` writes as JSON comes from here, or from `spelling.json_of`, which writes
    tables. `form` is that of `json.dumps`.
    """
    return written(with_odd(value, value), default=_as_in_a_column, **form)


def _as_in_a_column(value: Any) -> Any:
    """Return what JSON holds of a value that it does not have, such as a date or bytes."""
    if isinstance(value, date | datetime | time | bytes):
        import polars as pl

        from flows.shown.spelling import json_of, spelled

        return json.loads(json_of(spelled(pl.DataFrame({"value": [value]}))))[0]["value"]
    return str(value)
