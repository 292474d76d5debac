"""Refuses calls whose cost literal arguments do not bound, before they run.

The official executor runs them until memory, time or a limit of Python ends them. All but a few
(`round_number` by more than 100,000 places, a search of a huge tree) come to an error there too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

DIGITS = 1_000
"""The precision of a logarithm or square root."""

PLACES = 100_000
"""Most places before the point to round."""

POWER_BITS = 20_000
"""The size of an integer's power. Python prints no integer of more than 4,300 digits."""

WALK = 100_000
"""Most characters that a search of a tree may list: those of paths, and one for each entry."""


class Costly(ValueError):
    """A refused call: nothing bounds its cost."""


def refuse_costly(instance: Any, method: str, arguments: Sequence[Any], named: Any) -> None:
    """Raise Costly for a call of a method of `instance` that might not end."""
    check = _CHECKS.get((type(instance).__name__, method))
    if check is not None:
        check(instance, *arguments, **named)


def _logarithm(_: Any, value: Any = 0, base: Any = 0, precision: Any = 0, **__: Any) -> None:
    _refuse_precision(precision)
    for one in (value, base):
        # mpmath reads texts, and an exponent there needs that many digits.
        if isinstance(one, str) and (len(one) > DIGITS or re.search(r"[eE][+-]?\d{4}", one)):
            raise Costly("a number as a text with a large exponent")


def _square_root(_: Any, number: Any = 0, precision: Any = 0, **__: Any) -> None:
    _refuse_precision(precision)


def _refuse_precision(precision: Any) -> None:
    try:
        digits = int(precision)
    except (TypeError, ValueError, OverflowError):
        return
    if digits > DIGITS:
        raise Costly(f"a precision of more than {DIGITS} digits")


def _power(_: Any, base: Any = 0, exponent: Any = 0, **__: Any) -> None:
    integers = isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1
    if integers and exponent * base.bit_length() > POWER_BITS:
        raise Costly(f"a power of more than {POWER_BITS} bits")


def _round_number(_: Any, number: Any = 0, decimal_places: Any = 0, **__: Any) -> None:
    if isinstance(decimal_places, int) and decimal_places < -PLACES:
        raise Costly(f"rounding by more than {PLACES} places")


def _walk(system: Any, path: Any = ".", *_: Any, **__: Any) -> None:
    # Directories may hold one another after `cp`, and each level doubles.
    start = system._navigate_to_directory(path) if isinstance(path, str) else None
    total, left = 0, [(start, len(path) if isinstance(path, str) else 0)]
    while left:
        directory, length = left.pop()
        for name, entry in getattr(directory, "contents", {}).items():
            total += length + len(name) + 2
            if total > WALK:
                raise Costly(f"a tree with more than {WALK} characters of paths")
            left.append((entry, length + len(name) + 1))


def _du(system: Any, *_: Any, **__: Any) -> None:
    _walk(system)


_CHECKS: dict[tuple[str, str], Callable[..., None]] = {
    ("MathAPI", "logarithm"): _logarithm,
    ("MathAPI", "square_root"): _square_root,
    ("MathAPI", "power"): _power,
    ("MathAPI", "round_number"): _round_number,
    ("GorillaFileSystem", "find"): _walk,
    ("GorillaFileSystem", "du"): _du,
}
