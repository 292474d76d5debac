"""Student's t in SQL, so that an interval of a page is in the question that the page shows."""

from __future__ import annotations

import re
from functools import cache

from schemas.relations import views

Z = "1.959963984540054e0"
"""The .975 quantile of the normal distribution, as a double."""


def t975(df: str) -> str:
    """Return the .975 quantile of Student's t for an SQL expression of the degrees of freedom.

    It is that of the view `test_gains`, where the formula stands with its source.
    """
    written = re.sub(r"\bdf\b", f"({df})", re.sub(r"\bz\b", Z, _formula()))
    return f"CASE WHEN {df} < 1 THEN NULL ELSE {written} END"


def paired(pairs: str, by: str, least: int = 2) -> str:
    """Return the question for the mean of the differences `apart` of a relation, a row a `by`.

    `same` counts the differences and `others` the rows without one. `low` and `high` are the ends
    of the 95 % interval, that of Student's t over them, null for fewer than `least`.
    """
    return f"""SELECT *, apart - half AS low, apart + half AS high
FROM (
    SELECT *, CASE WHEN same >= {least} THEN se * {t975("same - 1")} END AS half
    FROM (
        SELECT {by}, count(apart) AS same, count(*) - count(apart) AS others,
            avg(apart) AS apart, stddev_samp(apart) / sqrt(count(apart)) AS se
        FROM {pairs} GROUP BY {by}
    )
)"""


@cache
def _formula() -> str:
    """Return what stands in `test_gains` for degrees `df` and the normal quantile `z`."""
    (gains,) = [view for view in views() if view.name == "test_gains"]
    (found,) = re.findall(r"CASE df\b.*?\bEND\b", gains.select, re.DOTALL)
    return " ".join(found.split())
