"""How true pi_env is in the place of the tools: its answers against the domain's own code.

The check plays a stored attempt again: the domain's own episode gets the agent's actions, and says
at each turn what pi_env should have said. Three questions, in this order:

- schema: did the answer fit the domain's observation schema? A missing answer, one that is no JSON,
  and one that was cut off do not.
- state: is it of the same kind as the true one? Both are observations, or both are errors; neither
  ends the episode where the other goes on; and where both name a tool, it is the same one.
- content: how similar are the two texts? Token F1 (`genenv_core.domains.kit.texts.similarity`), 1
  for equal ones. It exists only where both gave an observation.

The fidelity of an answer is its content where schema and state are right, else 0. The reason: an
answer that the agent cannot read, or one from a world in which something else happens, is as wrong
as a false text, and a mean of three shares would let a liar with a perfect form pass. The
definition is ours; only the similarity has a source.

What it cannot see: token F1 ignores case, punctuation and articles, so `-5` for `5` is no lie. Only
answers count for which the attempt asked pi_env. Where the domain has no prompt for it (an agent's
text without a call, a call that cannot be read), pi_env said nothing, true or false.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from genenv_core.domains.kit.texts.similarity import token_f1
from genenv_core.domains.protocol import Domain, Episode, SimulatedTools
from genenv_core.domains.steps import FAILURES, stepped
from genenv_core.play.calls import as_said
from genenv_core.types import Message, Observation, TaskDraft


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How true one answer is.

    `content` is in [0, 1], None unless both answers were observations.
    """

    schema: bool
    state: bool
    content: float | None

    @property
    def value(self) -> float:
        """Return the one number, in [0, 1]."""
        return (self.content or 0.0) if self.schema and self.state else 0.0


@dataclass(frozen=True, slots=True)
class Answered:
    """One turn of an attempt at which pi_env wrote the answer.

    Args:
        turn: of the agent, from 0.
        before: the transcript in pi_env's prompt; its last message is the agent's.
        said: pi_env's answer.
        truth: the answer of the domain's own code; done without messages after its end.
    """

    turn: int
    before: tuple[Message, ...]
    said: Observation
    truth: Observation

    @property
    def fidelity(self) -> Fidelity:
        """Return how true the answer is."""
        return fidelity(self.said, self.truth)


def fidelity(said: Observation, truth: Observation) -> Fidelity:
    """Return how true an answer of pi_env is, given that of the domain's own code."""
    content = None
    if not (said.failed or truth.failed) and said.messages and truth.messages:
        content = token_f1(text_of(said), text_of(truth))
    return Fidelity(
        not said.failed, _kind(said) == _kind(truth) and _same_tool(said, truth), content
    )


def text_of(observation: Observation) -> str:
    """Return the texts of an observation, a line for each message."""
    return "\n".join(message["content"] for message in observation.messages)


def answered(
    domain: Domain, draft: TaskDraft, seed: int, messages: Sequence[Message]
) -> Iterator[Answered]:
    """Yield every turn of a stored attempt at which pi_env wrote the answer, if it has any.

    `messages` is the whole transcript, `seed` that of the episode. The domain's tools run here, one
    after the other and without a time limit. A step whose failure the agent saw counts as not
    having happened, as in the attempt. Whatever the domain's code raises is its answer.
    """
    if not isinstance(domain, SimulatedTools) or not any(m.get("simulated") for m in messages):
        return
    messages = as_said(messages)  # the form in which pi_env read them
    tools = _OwnTools(domain, draft, seed)
    turn = 0
    for place in range(len(domain.agent_messages(draft)), len(messages)):
        if messages[place]["role"] != "assistant":
            continue
        seen = tuple(takewhile(lambda m: m["role"] != "assistant", messages[place + 1 :]))
        if seen:
            before = tuple(messages[: place + 1])
            failed = any(message.get("error") for message in seen)
            truth = tools.answer(before[-1]["content"], happened=not failed)
            if _is_asked(domain, draft, before):
                said = Observation(seen, done=False, simulated=True, failed=failed)
                yield Answered(turn, before, said, truth)
        turn += 1


class _OwnTools:
    """The domain's own episode, played beside an attempt in which pi_env plays the tools."""

    def __init__(self, domain: Domain, draft: TaskDraft, seed: int) -> None:
        self._domain, self._draft, self._seed = domain, draft, seed
        self._episode: Episode | None = None
        self._happened: list[str] = []
        self._ended = False

    def answer(self, action: str, *, happened: bool) -> Observation:
        """Return the true answer; `happened` says whether the step counts in the attempt."""
        if self._ended:
            return Observation()
        truth = stepped(self._take, action)
        if happened:
            self._happened.append(action)
            self._ended = truth.done
        elif not truth.failed:
            self._episode = None  # it took a step that the attempt did not
        return truth

    def _take(self, action: str) -> Observation:
        if self._episode is None:
            self._episode = self._domain.episode(self._draft, self._seed)
            for earlier in self._happened:
                stepped(self._episode.step, earlier)
        return self._episode.step(action)


def _is_asked(domain: SimulatedTools, draft: TaskDraft, before: Sequence[Message]) -> bool:
    try:
        return domain.tool_messages(draft, before) is not None
    except FAILURES:
        return False


def _kind(observation: Observation) -> tuple[bool, bool, bool]:
    return observation.failed, observation.done, bool(observation.messages)


def _same_tool(said: Observation, truth: Observation) -> bool:
    """Return whether pi_env names only tools that the true answer names, if that names any."""
    named, true = ({m["name"] for m in one.messages if "name" in m} for one in (said, truth))
    return not true or named <= true
