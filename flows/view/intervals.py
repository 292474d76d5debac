"""Student's t in SQL, so that an interval of a page is in the question that the page shows."""

from __future__ import annotations

Z = 1.959963984540054
"""The .975 quantile of the normal distribution."""


def t975(df: str) -> str:
    """Return the .975 quantile of Student's t for an SQL expression of the degrees of freedom.

    That of the view `test_gains`: a table for 1 and 2 degrees, else the expansion in 1 / degrees
    (Abramowitz and Stegun, 26.7.5), off by 4e-3 at 3 degrees and 3e-4 at 5.
    """
    terms = (
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
        (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / 92160,
    )
    series = " + ".join(
        f"{term:.9f} / CAST({df} AS DOUBLE) ** {power}" for power, term in enumerate(terms, 1)
    )
    return (
        f"CASE WHEN {df} < 1 THEN NULL WHEN {df} = 1 THEN 12.706204736 "
        f"WHEN {df} = 2 THEN 4.302652730 ELSE {Z} + {series} END"
    )
