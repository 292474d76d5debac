"""One check for numbers that must be finite, so that a NaN never travels."""

from __future__ import annotations

import math
from collections.abc import Iterable

from genenv_core.errors import NumericalError


def not_finite(numbers: Iterable[tuple[str, float]]) -> str:
    """Return name and value of the first number that is NaN or infinite, '' without one."""
    return next((f"{name} is {value}" for name, value in numbers if not math.isfinite(value)), "")


def finite(values: Iterable[float], where: str) -> list[float]:
    """Return the values as a list; raises NumericalError naming `where` and the first bad index."""
    checked = list(values)
    if bad := not_finite((f"{where}: value {i}", value) for i, value in enumerate(checked)):
        raise NumericalError(f"{bad}, expected a finite number")
    return checked
