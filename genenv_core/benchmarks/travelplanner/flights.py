"""The flights of the database, 300 MB as a file, as arrays sorted by flight number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from genenv_core.errors import DataError

EPOCH = date(1970, 1, 1)
COLUMNS = ("Flight Number", "Price", "FlightDate", "OriginCityName", "DestCityName")


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight; the price in dollars is for one person."""

    price: float
    date: date
    origin: str
    destination: str


class Flights:
    """Looks flights up by number, 24 bytes each.

    Numbers are F and digits, as `F3573659`. The arrays are parallel, `(flights,)`: numbers in
    ascending order, then in the file's.
    """

    def __init__(self, table: pl.DataFrame) -> None:
        """Take the columns number, price, date, origin and destination; cities are categories."""
        table = table.sort("number", maintain_order=True)
        self._names: dict[int, str] = {}
        for cities in (table["origin"].unique(), table["destination"].unique()):
            self._names.update(zip(cities.to_physical(), cities.cast(pl.String), strict=True))
        self._numbers: NDArray[np.uint32] = table["number"].to_numpy()
        self._prices: NDArray[np.float64] = table["price"].to_numpy()
        self._dates: NDArray[np.int32] = table["date"].to_numpy()
        self._origins: NDArray[np.int_] = table["origin"].to_physical().to_numpy()
        self._destinations: NDArray[np.int_] = table["destination"].to_physical().to_numpy()

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def dates(self) -> tuple[date, date]:
        """Return the first and the last day with a flight; raises DataError without flights."""
        if not len(self):
            raise DataError("travelplanner: the database has no flights; download it again")
        days = (int(self._dates.min()), int(self._dates.max()))
        first, last = (date.fromordinal(EPOCH.toordinal() + day) for day in days)
        return first, last

    def numbered(self, number: str) -> Iterator[Flight]:
        """Return the flights of exactly this number, in the file's order."""
        digits = number[1:]
        # `int` would read other digits and leading zeros as the same number.
        if not number.startswith("F") or len(digits) > 9 or not digits.isascii():
            return
        if not digits.isdigit() or str(int(digits)) != digits:
            return
        wanted = np.uint32(int(digits))
        first = int(np.searchsorted(self._numbers, wanted, "left"))
        for place in range(first, int(np.searchsorted(self._numbers, wanted, "right"))):
            yield Flight(
                float(self._prices[place]),
                date.fromordinal(EPOCH.toordinal() + int(self._dates[place])),
                self._names[int(self._origins[place])],
                self._names[int(self._destinations[place])],
            )


def read_flights(path: Path, missing: frozenset[str]) -> Flights:
    """Return a file's flights without the rows that lack a value; raises DataError.

    A streaming scan checks every column for missing values, as the official evaluator does.
    """
    try:
        rows = pl.scan_csv(path, infer_schema=False, glob=False, null_values=sorted(missing))
        typed = rows.drop_nulls().select(
            pl.col("Flight Number").str.strip_prefix("F").cast(pl.UInt32).alias("number"),
            pl.col("Price").cast(pl.Float64).alias("price"),
            pl.col("FlightDate").str.to_date("%Y-%m-%d").to_physical().alias("date"),
            pl.col("OriginCityName").cast(pl.Categorical).alias("origin"),
            pl.col("DestCityName").cast(pl.Categorical).alias("destination"),
        )
        return Flights(typed.collect(engine="streaming"))
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"{path}: no flights: {error}; it needs the columns {', '.join(COLUMNS)}, numbers as "
            "F123 and dates as 2022-03-01; download the file again"
        ) from error
