"""A multi-turn domain and engines that follow a script, for the tests of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from genenv_core.engines.protocol import Engine
from genenv_core.types import (
    Completion,
    Context,
    JsonObject,
    Message,
    Observation,
    Rejected,
    Rollout,
    SampleRequest,
    SamplingParams,
    TaskDraft,
    Verdict,
)


@dataclass
class EchoEpisode:
    """Answers each action with the turn number; it is done after `turns` turns."""

    turns: int
    seed: int
    seen: list[str] = field(default_factory=list)

    def step(self, action: str) -> Observation:
        self.seen.append(action)
        if action == "boom":
            raise RuntimeError("the shelf fell over\nand more")
        answer: Message = {"role": "tool", "content": f"turn {len(self.seen)}: abba"}
        return Observation((answer,), done=len(self.seen) >= self.turns)


class EchoDomain:
    """A multi-turn domain. A task's spec sets the number of turns of its episodes."""

    name = "echo"
    version = "1"
    tools: Sequence[JsonObject] = ()

    def __init__(self) -> None:
        self.episodes: list[EchoEpisode] = []

    def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        return []

    def heldout_tasks(self, seed: int, count: int) -> list[TaskDraft]:
        return []

    def env_messages(self, context: Context) -> list[Message]:
        return []

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        return []

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        if draft.spec.get("broken"):
            raise KeyError("prompt")
        return [{"role": "user", "content": draft.prompt}]

    def episode(self, draft: TaskDraft, seed: int) -> EchoEpisode:
        if draft.spec.get("unstartable"):
            raise OSError("no room")
        self.episodes.append(EchoEpisode(int(draft.spec["turns"]), seed))
        return self.episodes[-1]

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        return Verdict(0.0, False)

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        return []


class ScriptedEngine:
    """Answers each request by a script, and records every call."""

    def __init__(self, script: Callable[[int, SampleRequest], Completion]) -> None:
        self.script = script
        self.calls: list[tuple[list[SampleRequest], SamplingParams]] = []

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        self.calls.append((list(requests), params))
        return [self.script(len(self.calls) - 1, request) for request in requests]

    def close(self) -> None: ...


class RecordingEngine(ScriptedEngine):
    """Passes calls on to a real engine, and records the completion of each request."""

    def __init__(self, engine: Engine) -> None:
        self.answers: dict[SampleRequest, Completion] = {}
        self.engine = engine
        super().__init__(lambda _, request: self.answers[request])

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        self.answers.update(zip(requests, self.engine.sample(requests, params), strict=True))
        return super().sample(requests, params)


def flat(made: Iterable[tuple[int, list[Rollout]]]) -> list[Rollout]:
    """Return all rollouts, in task order."""
    return [one for _, group in sorted(made, key=lambda item: item[0]) for one in group]
