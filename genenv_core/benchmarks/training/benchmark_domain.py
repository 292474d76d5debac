"""A benchmark as a domain: its items are tasks that the agent attempts, and its scorer judges them.

The items are for evaluation alone. A run trains on tasks of the benchmark's training side; the
package `training` of each benchmark says where these come from.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from genenv_core.benchmarks.protocol import Benchmark, ItemVerdict, Playable, PlayableSuite, Playing
from genenv_core.benchmarks.training.modes import mode_of
from genenv_core.domains.kit.known_items import KnownItems
from genenv_core.domains.parts import read_options
from genenv_core.domains.tool_calls import SaidCall, calls_said, said
from genenv_core.errors import ConfigError
from genenv_core.types import (
    Call,
    Context,
    JsonObject,
    Message,
    Observation,
    Rejected,
    Rejection,
    TaskDraft,
    Verdict,
)

DATA_VARIABLE = "GENENV_BENCHMARKS"
"""Environment variable: a folder with the downloads of all benchmarks, for runs without `data`."""

ITEM = "item"
"""The field of a spec that holds the id of an item; training tasks lack it."""


class BenchmarkOptions(BaseModel):
    """Options that every benchmark has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str | None = Field(default=None, min_length=1)
    """Folder of the official download; None: the benchmark's folder in GENENV_BENCHMARKS."""
    mode: str | None = None
    """How to judge an attempt; None: by the benchmark's first mode."""


Options = TypeVar("Options", bound=BenchmarkOptions)


class BenchmarkDomain(ABC, Generic[Options]):
    """A benchmark's items and training tasks; a subclass names the benchmark and its options."""

    benchmark: ClassVar[Benchmark]
    options_type: ClassVar[type[BenchmarkOptions]] = BenchmarkOptions
    code_version: ClassVar[str]
    """Raise it when the agent reads an item differently, or the code judges it differently."""

    tools: Sequence[JsonObject] = ()

    def __init__(self, options: Options) -> None:
        """Read the download; raises ConfigError or DataError."""
        self.name = self.benchmark.name
        self.options = options
        self.mode = mode_of(self.benchmark, options.mode, "domain.options.mode")
        self.suite = _suite(self.benchmark.load, _folder(self.name, options.data).absolute())
        self.version: str = f"{self.code_version}-{self.suite.digest[:16]}"

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the domain; raises ConfigError on bad options."""
        name = cls.benchmark.name
        read: Any = read_options(cls.options_type, options, name)
        return cls(read)

    def protocol(self) -> JsonObject:
        """Return the further options that a result records, such as a search tool."""
        return {}

    def items(self) -> list[TaskDraft]:
        """Return every item of the benchmark as a task, in the official order."""
        return [self._draft(item, group) for item, group in self.suite.items.items()]

    def attempted(self) -> list[TaskDraft]:
        """Return the items that the installed packages can play; `protocol` names the others."""
        return self.items()

    def _draft(self, item: str, group: str) -> TaskDraft:
        messages = self.item(item).messages
        return TaskDraft(
            prompt=messages[-1]["content"] if messages else "",
            spec={ITEM: item},
            ground_truth="",  # stays in the download, so that no pool or export holds it
            program="",
            family=group,
            difficulty=0.0,
            fingerprint=f"{self.name} {item}",
        )

    def playable(self, draft: TaskDraft) -> Playable:
        """Return what the agent attempts: an item of the suite, or a training task."""
        item = draft.spec.get(ITEM)
        return self.made(draft.spec) if item is None else self.item(str(item))

    def item(self, item: str) -> Playable:
        """Return the item with this id, to play as the options say."""
        return self.suite.playable(item)

    @abstractmethod
    def made(self, spec: JsonObject) -> Playable:
        """Return a training task; raises DomainError for a broken spec."""

    def tools_of(self, draft: TaskDraft) -> Sequence[JsonObject]:
        """Return the tools of this task."""
        return self.playable(draft).tools

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        """Return the messages that open an attempt."""
        return list(self.playable(draft).messages)

    def episode(self, draft: TaskDraft, seed: int) -> BenchmarkEpisode:
        """Return a fresh attempt."""
        return BenchmarkEpisode(self.playable(draft).begin(seed))

    def verdict(self, draft: TaskDraft, messages: Sequence[Message]) -> ItemVerdict:
        """Return the benchmark's own verdict on a transcript."""
        item = self.playable(draft)
        opening = len(item.messages)
        turns = [said(m["content"]) for m in messages[opening:] if m["role"] == "assistant"]
        return item.judge(item.prediction(turns), self.mode)

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return the verdict in the game's form; an attempt without a verdict has failed."""
        found = self.verdict(draft, messages)
        success = found.valid is True
        reason = "" if success else found.reason or "wrong"
        return Verdict(found.score, success, " ".join(reason.split())[:80])

    def read_calls(self, text: str) -> list[SaidCall]:
        """Return the calls of a turn; the benchmark answers those that it cannot read last."""
        return sorted(calls_said(text), key=lambda call: call.arguments is None)

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return an empty answer, a constant, and an echo of the prompt."""
        return ["", "none", draft.prompt]

    @abstractmethod
    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct tasks of the training side."""

    @abstractmethod
    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        """Return `count` distinct tasks of the training side that `base_tasks` never returns."""

    @abstractmethod
    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt for this context."""

    @abstractmethod
    def read(self, text: str) -> list[TaskDraft | Rejected]:
        """Return what `parse` returns before it compares the tasks with the benchmark's items."""

    def calls_of(self, draft: TaskDraft) -> Sequence[Call]:
        """Return the calls of a task's right answer, () for an answer without calls."""
        return ()

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the tasks in one generation; a task that repeats an item becomes a rejection."""
        return [
            found if isinstance(found, Rejected) else self._unless_known(found)
            for found in self.read(text)
        ]

    @cached_property
    def _known(self) -> KnownItems:
        return KnownItems(
            (draft.spec[ITEM], draft.prompt, self.calls_of(draft)) for draft in self.items()
        )

    def _unless_known(self, draft: TaskDraft) -> TaskDraft | Rejected:
        why = self._known.repeated(draft.prompt, self.calls_of(draft))
        return Rejected(Rejection.CONTAMINATED, why) if why else draft


class BenchmarkEpisode:
    """One attempt, whose actions are texts with calls as `genenv_core.domains.tool_calls` has them.

    The benchmark answers a call that it cannot read with an error, which never ends the run.
    """

    def __init__(self, playing: Playing) -> None:
        """Wrap an attempt."""
        self._playing = playing

    def step(self, action: str) -> Observation:
        """Return what the environment answers."""
        return self._playing.answer(said(action))


def folder_in(together: Path, name: str) -> Path:
    """Return a benchmark's folder inside `together`, named as it is or without underscores."""
    own, plain = together / name, together / name.replace("_", "")
    # By os.path, which takes a name that is too long for one that is not there.
    return plain if os.path.isdir(plain) and not os.path.isdir(own) else own


def _folder(name: str, data: str | None) -> Path:
    if data:
        return Path(data)
    together = os.environ.get(DATA_VARIABLE)
    if not together:
        raise ConfigError(
            f"domain.options.data is not set: name the folder of {name}'s official download "
            f"there (`genenv eval`: by --data), or set {DATA_VARIABLE} to a folder that has it as "
            f"{name}"
        )
    return folder_in(Path(together), name)


@cache
def _suite(load: Callable[[Path], PlayableSuite], folder: Path) -> PlayableSuite:
    """Return the suite; the cache reads it once a process."""
    return load(folder)
