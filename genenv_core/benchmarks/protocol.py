"""Defines a benchmark: items with ids, verdicts on predictions, and their sums.

Each benchmark is a package, whose `BENCHMARK` an entry point names; genenv's own lie beside this
module. Scorers neither sample nor store nor know a model, so that others can import them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from genenv_core.types import JsonObject, Message, Observation, Said

Ratio = tuple[float, float]
"""What one item adds to a metric: its points, and the most points that it could have."""


@dataclass(frozen=True, slots=True)
class ItemVerdict:
    """The verdict on one prediction of an item.

    `valid` is None when the benchmark cannot score the prediction; `reason` then says why. `score`
    is in [0, 1]. `parts` explain it, constraint by constraint or as an error's type, as plain JSON.
    """

    valid: bool | None
    score: float = 0.0
    reason: str = ""
    parts: JsonObject = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Composite:
    """A weighted mean of metrics, without a value while one of them has no item."""

    name: str
    weights: Mapping[str, float]


class Suite(Protocol):
    """A benchmark's items, read from a download.

    The caller may rely on: `judge` is deterministic and raises nothing, whatever the prediction is,
    as long as the id is one of `items` and the mode one of the benchmark's.
    """

    items: Mapping[str, str]
    """The group of each item, by id, in the official order: a category, a level, a split."""

    digest: str
    """SHA-256 of the files behind the items (`genenv_core.benchmarks.files.digest_of`)."""

    composites: Sequence[Composite]

    def judge(self, item: str, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on any JSON value as the prediction of an item."""
        ...

    def measures(self, item: str, verdict: ItemVerdict) -> Mapping[str, Ratio]:
        """Return what a verdict with `valid` True or False adds to each metric, by its name."""
        ...


class Playing(Protocol):
    """One attempt of a model at an item."""

    def answer(self, said: Said) -> Observation:
        """Return the environment's answer to a turn of the model.

        A tool's answer is a message of the role tool, one for each call in their order. It may
        raise; the turn then does not count.
        """
        ...


class Playable(Protocol):
    """An item that a model can attempt, whatever samples its text.

    The caller may rely on: `prediction` and `judge` are deterministic and raise nothing, so they
    can judge stored attempts again.
    """

    @property
    def messages(self) -> Sequence[Message]:
        """The messages that open an attempt."""
        ...

    @property
    def tools(self) -> Sequence[JsonObject]:
        """The tools that the model may call, in OpenAI's form."""
        ...

    def begin(self, seed: int) -> Playing:
        """Return a fresh attempt; may raise."""
        ...

    def prediction(self, said: Sequence[Said]) -> Any:
        """Return the prediction of the turns of one attempt."""
        ...

    def judge(self, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on any JSON value as the prediction."""
        ...


@runtime_checkable
class NamesGold(Protocol):
    """A suite that says, for people, what an item's right answer is."""

    def expected(self, item: str) -> str:
        """Return the right answer of the item with this id; '' for an item without one."""
        ...


class PlayableSuite(Suite, Protocol):
    """A suite whose items a model can attempt."""

    def playable(self, item: str) -> Playable:
        """Return the item with this id."""
        ...


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """Bounds of one attempt: the model's turns, tokens of one turn, tokens of all, and seconds.

    The seconds are for a model behind an endpoint. An attempt that genenv samples shares its time
    with all others of a batch, so tokens bound it.
    """

    turns: int
    turn_tokens: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark's name, its modes of scoring, and the function that reads its download.

    `modes` says in a line what each mode does; the first is the default. `load` raises ConfigError
    for a missing or wrong file.
    """

    name: str
    modes: Mapping[str, str]
    prediction: str
    """The form of a prediction, for help and errors."""

    load: Callable[[Path], PlayableSuite]
    limits: AttemptLimits
    headline: str
    """The metric that stands for the benchmark in a table of several."""
