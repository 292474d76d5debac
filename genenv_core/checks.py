"""One check for numbers that must be finite, so that a NaN never travels."""

from __future__ import annotations

import math
from collections.abc import Iterable

from genenv_core.errors import NumericalError


def finite(values: Iterable[float], where: str) -> list[float]:
    """Return the values as a list; raises NumericalError naming `where` and the first bad index."""
    checked = list(values)
    for index, value in enumerate(checked):
        if not math.isfinite(value):
            raise NumericalError(f"{where}: value {index} is {value}, expected a finite number")
    return checked
