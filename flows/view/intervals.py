"""Intervals in SQL, so that a page's question contains its intervals.

The view `test_gains` has their formulas, with their sources; this module reads them from it.
"""

from __future__ import annotations

import re
from functools import cache

from schemas.relations import views

Z = "1.959963984540054e0"
"""The .975 quantile of the normal distribution, as a double."""

ENDS = ("greatest", "least")
"""How `test_gains` limits the lower and the upper end of an interval to possible values."""


def t975(df: str) -> str:
    """Return SQL for the .975 quantile of Student's t, from SQL for the degrees of freedom.

    The view `test_gains` has the formula, with its source.
    """
    written = re.sub(r"\bdf\b", f"({df})", re.sub(r"\bz\b", Z, _formula()))
    return f"CASE WHEN {df} < 1 THEN NULL ELSE {written} END"


def paired(pairs: str, by: str, least: int = 2, verdicts: str = "false") -> str:
    """Return the question for means of the column `apart` of a relation, with a row for each `by`.

    `same` counts the differences and `others` the rows without one. `low` and `high` are the ends
    of the 95 % interval, as in the view `test_gains`, null for fewer than `least`. `verdicts` is
    the condition for rows to be verdicts on tasks.
    """
    centred = _of_view(r"(?<=SELECT\n)\s+\*,\s+CASE WHEN verdicts.*?(?=\s+FROM paired)")
    low, high = (_of_view(rf"CASE WHEN verdicts THEN {end}\(.*?END") for end in ENDS)
    return f"""SELECT {by}, tasks AS same, others, gain AS apart, {low} AS low, {high} AS high
FROM (
    SELECT *, CASE WHEN tasks >= {least} THEN se * {t975("df")} END AS half
    FROM (
        SELECT {centred}
        FROM (
            SELECT {by}, count(apart) AS tasks, count(*) - count(apart) AS others,
                avg(apart) AS gain, stddev_samp(apart) / sqrt(count(apart)) AS gain_se,
                sum(apart ** 2) AS squares,
                {verdicts} AND count(apart) > 1 AND bool_and(apart IN (-1, 0, 1)) AS verdicts
            FROM {pairs} GROUP BY {by}
        )
    )
)"""


def _formula() -> str:
    """Return the formula of `test_gains` for degrees `df` and the normal quantile `z`."""
    return _of_view(r"CASE df\b.*?\bEND\b")


@cache
def _of_view(pattern: str) -> str:
    """Return the only part of `test_gains` that fits a pattern, on one line."""
    (gains,) = [view for view in views() if view.name == "test_gains"]
    (found,) = re.findall(pattern, gains.select, re.DOTALL)
    return " ".join(found.split())
