"""The simulated classes of bfcl-eval, and calls of their public methods.

They come with the package bfcl-eval, which is no dependency: `make bfcl-backends` installs it
without its own dependencies. This module imports only the modules of the classes, which need mpmath
alone. They are untyped: the `Any` here does not leave `turns`.
"""

from __future__ import annotations

import decimal
import inspect
import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from types import FunctionType
from typing import Any, cast

from genenv_core.benchmarks.bfcl.turns.costs import refuse_costly
from genenv_core.benchmarks.bfcl.turns.texts import NoCall, addressed, read_call
from genenv_core.types import JsonObject

PACKAGE = "bfcl-eval"
VERSION = "2026.3.23"
COMMAND = "make bfcl-backends"

_FOLDER = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
CLASSES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""The module of each class that an item may name."""

_STATELESS = ("MathAPI",)
_ALTERED = {"TravelAPI": "CREDIT_CARD_EXTENSION"}
"""Data of modules that calls alter: all instances pay with the same cards of the long context."""


class Absent(Exception):
    """The back ends are missing; the message says why, with a remedy."""


class Side:
    """Fresh instances of an item's classes, for the model's calls or for gold's.

    `instances` are by class. Raises what a class raises on a scenario that it cannot load.
    """

    def __init__(
        self, classes: Mapping[str, type[Any]], config: JsonObject, long: bool, name: str
    ) -> None:
        self.instances: dict[str, Any] = {}
        self._named: dict[str, str] = {}
        self._methods: dict[tuple[str, str], Callable[..., Any]] = {}
        for class_name, kind in classes.items():
            instance = self.instances[class_name] = kind()
            if class_name not in _STATELESS:
                scenario = deepcopy(config.get(class_name, {}))
                instance._load_scenario(scenario, long_context=long)
            address = f"{name}_{class_name}_instance"
            for method in _public(kind):
                self._named[method] = address
                self._methods[address, method] = getattr(instance, method)

    @property
    def methods(self) -> Set[str]:
        """Return the names of the public methods."""
        return self._named.keys()

    def state(self, name: str) -> JsonObject:
        """Return the public attributes of a class's instance, not copied."""
        attributes = cast("JsonObject", vars(self.instances[name]))
        return {key: value for key, value in attributes.items() if not key.startswith("_")}

    def run(self, text: str) -> str:
        """Return the result of a call as text, or the text of its error; never raises."""
        try:
            call = read_call(addressed(text, self._named))
            method = self._methods.get((call.instance, call.method))
            if method is None:
                raise NoCall(f"no function {call.method!r}")
            instance = getattr(method, "__self__", None)
            refuse_costly(instance, call.method, call.arguments, call.named)
            return _as_text(method(*call.arguments, **call.named))
        except Exception as error:  # whatever a back end raises is the call's result
            return f"error: {error}"


@dataclass(frozen=True, slots=True)
class Left:
    """The data that calls have left in the classes, shared by all instances and not copied."""

    data: Sequence[JsonObject]
    defaults: Sequence[tuple[Any, ...] | None]
    precision: int
    digits: int


class Backends:
    """The classes, as in a process that has just begun.

    `data` are dicts of their modules that calls alter. `precision` is mpmath's context, whose
    `prec` calls alter. Only one thread at a time uses the classes.
    """

    def __init__(
        self, classes: Mapping[str, type[Any]], data: Sequence[JsonObject], precision: Any
    ) -> None:
        self._classes = classes
        self._precision = precision
        self._lock = threading.Lock()
        self._data = [(one, deepcopy(one)) for one in data]
        self._defaults = [
            (function, deepcopy(function.__defaults__))
            for kind in classes.values()
            for function in vars(kind).values()
            if isinstance(function, FunctionType) and _mutable(function.__defaults__)
        ]

    @contextmanager
    def fresh(self) -> Generator[None]:
        """Reset the classes for the block, and restore precisions after it."""
        with self._alone():
            for data, whole in self._data:
                data.clear()
                data.update(deepcopy(whole))
            for function, defaults in self._defaults:
                function.__defaults__ = deepcopy(defaults)
            yield

    @contextmanager
    def resumed(self, left: Left) -> Generator[None]:
        """Put the data that the calls of one attempt left into the classes, for the block."""
        with self._alone():
            for (data, _), content in zip(self._data, left.data, strict=True):
                data.clear()
                data.update(content)
            for (function, _), defaults in zip(self._defaults, left.defaults, strict=True):
                function.__defaults__ = defaults
            self._precision.prec = left.precision
            decimal.getcontext().prec = left.digits
            yield

    def left(self) -> Left:
        """Return the data from which `resumed` continues; call it inside `fresh` or `resumed`."""
        return Left(
            [dict(data) for data, _ in self._data],
            [function.__defaults__ for function, _ in self._defaults],
            self._precision.prec,
            decimal.getcontext().prec,
        )

    @contextmanager
    def _alone(self) -> Generator[None]:
        with self._lock:
            before = self._precision.prec
            try:
                with decimal.localcontext():
                    yield
            finally:
                self._precision.prec = before

    def side(self, names: Sequence[str], config: JsonObject, long: bool, name: str) -> Side:
        """Return fresh instances of these classes; `name` separates the sides of an item."""
        return Side({one: self._classes[one] for one in names}, config, long, name)


@cache
def backends() -> Backends | Absent:
    """Return the back ends, or why they are missing; look for them once in a process."""
    try:
        found = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return Absent(f"the multi-turn back ends are not installed: say {COMMAND}")
    if found != VERSION:
        return Absent(f"the multi-turn back ends are of {PACKAGE} {found}: say {COMMAND}")
    try:
        return _load()
    except (ImportError, AttributeError) as error:
        return Absent(f"the multi-turn back ends cannot be loaded ({error}): say {COMMAND}")


def _load() -> Backends:
    modules = {name: import_module(f"{_FOLDER}.{one}") for name, one in CLASSES.items()}
    classes = {name: getattr(module, name) for name, module in modules.items()}
    altered = [getattr(modules[name], one) for name, one in _ALTERED.items()]
    return Backends(classes, altered, import_module("mpmath").mp)


@cache
def _public(kind: type[Any]) -> tuple[str, ...]:
    methods = inspect.getmembers(kind, inspect.isfunction)
    return tuple(name for name, _ in methods if not name.startswith("_"))


def _mutable(defaults: tuple[Any, ...] | None) -> bool:
    return any(isinstance(one, list | dict | set) for one in defaults or ())


def _as_text(value: Any) -> str:
    if type(value) is dict:
        with suppress(Exception):  # a number of mpmath or a set is no JSON
            return json.dumps(value)
    return str(cast("object", value))
