"""What a benchmark is: items with ids, verdicts on predictions, and what these add up to.

Each benchmark is a package, whose `BENCHMARK` an entry point names; genenv's own lie beside this
module. Nothing here samples, stores or knows a model, so that others can import the scorers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from genenv_core.types import JsonObject, Message, Observation, Said

Ratio = tuple[float, float]
"""What one item adds to a metric: the points that it got, and the points that it could get."""


@dataclass(frozen=True, slots=True)
class ItemVerdict:
    """The verdict on one prediction of an item.

    `valid` is None when the prediction cannot be scored; `reason` then says why. `score` is in
    [0, 1]. `parts` say how it came about, constraint by constraint or as an error's type; they are
    plain JSON.
    """

    valid: bool | None
    score: float = 0.0
    reason: str = ""
    parts: JsonObject = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Composite:
    """A mean of metrics with weights; it has no value while one of them has no item."""

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
    """SHA-256 of the files that were read (`genenv_core.benchmarks.files.digest_of`)."""

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
        """Return what the environment answers to a turn of the model.

        A tool's answer is a message of the role tool, one for each call in their order. May raise;
        the turn then counts as not having happened.
        """
        ...


class Playable(Protocol):
    """An item that a model can attempt, whichever way its text comes about.

    The caller may rely on: `prediction` and `judge` are deterministic and raise nothing, so stored
    attempts can be judged again.
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
        """Return the prediction that the turns of one attempt come to."""
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
    """A suite whose items can be attempted."""

    def playable(self, item: str) -> Playable:
        """Return the item with this id."""
        ...


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """What bounds one attempt: the model's turns, tokens of one turn, tokens of all, and seconds.

    The seconds are for a model behind an endpoint. One that is sampled here shares its time with
    all others of a batch, and is bounded by its tokens.
    """

    turns: int
    turn_tokens: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark's name, its modes of scoring, and how its download is read.

    `modes` says in a line what each mode does; the first is the default. `load` raises ConfigError
    when a file is missing or is not what it should be.
    """

    name: str
    modes: Mapping[str, str]
    prediction: str
    """What a prediction looks like, for help and errors."""

    load: Callable[[Path], PlayableSuite]
    limits: AttemptLimits
    headline: str
    """The metric that stands for the benchmark in a table of several."""
