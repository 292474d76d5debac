"""Sets a clock ahead, to see what depends on the time; imports no other module of genenv.

While it is on, it replaces Python's own functions: `time.time` and its kin, `datetime.now` and
`today`, also where a module has them under a name of its own. Code that asks the system without
Python sees the true time.
"""

from __future__ import annotations

import datetime
import sys
import sysconfig
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

AHEAD_S = 400 * 86_400 + 7 * 3600 + 13 * 60 + 7
"""Seconds by which the clock is ahead: another year, month, weekday, hour, minute and second."""

_LIBRARIES = tuple(map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))


class _AsTrue(type):
    """The type of a class in place of a true one; it counts the true one's instances as its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.__mro__[1])


class LaterDatetime(datetime.datetime, metaclass=_AsTrue):
    """The class `datetime` with a clock that is ahead."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        """Return the time ahead."""
        return _DATETIME.now(tz) + datetime.timedelta(seconds=AHEAD_S)

    @classmethod
    def utcnow(cls) -> Any:
        """Return the time ahead in UTC, without a zone."""
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)  # noqa: UP017

    @classmethod
    def today(cls) -> Any:
        """Return the time ahead."""
        return cls.now()


class LaterDate(datetime.date, metaclass=_AsTrue):
    """The class `date` with a clock that is ahead."""

    @classmethod
    def today(cls) -> Any:
        """Return the day ahead."""
        return LaterDatetime.now().date()


_DATETIME, _DATE = datetime.datetime, datetime.date
_TIME, _TIME_NS = time.time, time.time_ns
_LOCALTIME, _GMTIME, _STRFTIME = time.localtime, time.gmtime, time.strftime


def _later() -> float:
    return _TIME() + AHEAD_S


def _later_ns() -> int:
    return _TIME_NS() + AHEAD_S * 10**9


def _later_local(seconds: float | None = None) -> time.struct_time:
    return _LOCALTIME(_later() if seconds is None else seconds)


def _later_utc(seconds: float | None = None) -> time.struct_time:
    return _GMTIME(_later() if seconds is None else seconds)


def _later_text(form: str, *at: Any) -> str:
    return _STRFTIME(form, *(at or [_later_local()]))


_INSTEAD: dict[int, Any] = {
    id(true): later
    for true, later in (
        (_DATETIME, LaterDatetime), (_DATE, LaterDate), (_TIME, _later), (_TIME_NS, _later_ns),
        (_LOCALTIME, _later_local), (_GMTIME, _later_utc), (_STRFTIME, _later_text),
    )
}  # fmt: skip


def clocks(own: str) -> list[tuple[dict[str, Any], str]]:
    """Return each place (namespace, name) of a clock, outside of libraries.

    Python's modules `time` and `datetime` count, and so do the modules of the package `own`,
    wherever they lie.
    """
    found: list[tuple[dict[str, Any], str]] = []
    for name, module in list(sys.modules.items()):
        inside: dict[str, Any] = getattr(module, "__dict__", {})
        file = inside.get("__file__") or ""
        foreign = not file or file.startswith(_LIBRARIES)
        asked = name.partition(".")[0] == own or module in (time, datetime) or not foreign
        if asked and name != __name__:
            found += [(inside, key) for key, value in list(inside.items()) if id(value) in _INSTEAD]
    return found


@contextmanager
def clock_ahead(places: list[tuple[dict[str, Any], str]]) -> Generator[None]:
    """Set the clocks at these places, as `clocks` returns them, ahead inside of the block."""
    true = [(inside, key, inside[key]) for inside, key in places]
    for inside, key, value in true:
        inside[key] = _INSTEAD.get(id(value), value)
    try:
        yield
    finally:
        for inside, key, value in true:
            inside[key] = value
