"""Plays one attempt at a server's task, in a session that another attempt may take away."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from genenv_core.domains.kit.served.client import (
    INVALID,
    RefusedByServer,
    ServerAnswer,
    ServerSession,
)
from genenv_core.domains.kit.served.forms import ActionForm
from genenv_core.domains.kit.served.sessions import Seats
from genenv_core.domains.kit.tools import ERROR
from genenv_core.domains.rewards import REWARD, rewarded
from genenv_core.types import JsonObject, Message, Observation

Tell = Callable[[ServerAnswer], str]
"""Turns an answer into the text that the agent reads."""

Rewards = dict[str, float | None]
"""The rewards of a step by name; the reward itself is None where the step has none."""


@dataclass(frozen=True, slots=True)
class EpisodeStage:
    """Where the attempts are played, and how.

    Args:
        seats: the sessions.
        form: turns the agent's turns into actions of the server.
        tell: turns the server's answers into text for the agent.
        repeatable: whether equal arguments and actions get equal answers.
        may_stop: whether the agent may end an attempt, by a turn without an action, before the
            server has given any reward.
        remedy: advice for answers that differ only in something meaningless; "" for none.
        others: names of the rewards beside the reward; None: all numbers of an answer.
    """

    seats: Seats
    form: ActionForm
    tell: Tell
    repeatable: bool
    may_stop: bool = False
    remedy: str = ""
    others: Collection[str] | None = ()


class ServedEpisode:
    """One attempt.

    Args:
        stage: where and how to play it.
        arguments: those of the reset.
        prompt: the text of the reset that the agent has read; a reset with another text fails.
    """

    def __init__(self, stage: EpisodeStage, arguments: JsonObject, prompt: str) -> None:
        self._stage, self._arguments, self._prompt = stage, arguments, prompt
        self._played: list[tuple[JsonObject, str, Rewards]] = []
        self._begun = False

    def step(self, action: str) -> Observation:
        """Return the server's answers to the actions of a turn.

        A turn without an action ends the attempt. An action that the server refuses gets the reason
        as its answer. Raises EnvironmentLost where the server is gone, and RuntimeError where it
        fails, answers otherwise than before, or ends the attempt without a reward.
        """
        actions = self._stage.form.actions(action)
        messages: list[Message] = []
        done, before = not actions, len(self._played)
        try:
            for name, arguments in actions:
                said, rewards, done = self._answer(arguments)
                messages += rewarded([self._message(name, said)], rewards)
                if done:
                    break
        except BaseException:  # the step has not happened: the next one begins anew before it
            del self._played[before:]
            self._stage.seats.leave(self)
            raise
        if done:
            self._stage.seats.leave(self)
            if actions or not self._stage.may_stop:
                self._check_rewarded()
        return Observation(tuple(messages), done=done)

    def _check_rewarded(self) -> None:
        if self._played and all(rewards[REWARD] is None for _, _, rewards in self._played):
            raise RuntimeError(
                "the attempt has ended and the server gave no reward, or one that is no number: "
                "let its environment give a reward with the last observation"
            )

    def _message(self, name: str, said: str) -> Message:
        if self._stage.form.role_of(name) == "user":
            return {"role": "user", "content": said}
        return {"role": "tool", "name": name, "content": said}

    def _answer(self, action: JsonObject | str) -> tuple[str, Rewards, bool]:
        """Return the text for the agent, the rewards, and whether the attempt is over."""
        if isinstance(action, str):
            return action, {REWARD: None}, False
        try:
            answer = self._of_server(action)
        except RefusedByServer as error:
            return f"{ERROR} {error.message}", {REWARD: None}, False
        said, rewards = self._stage.tell(answer), answer.rewards(self._stage.others)
        self._played.append((action, said, rewards))
        return said, rewards, answer.done

    def _of_server(self, action: JsonObject) -> ServerAnswer:
        """Return the server's answer; raises RefusedByServer for a wrong action."""
        stage = self._stage

        def ask(session: ServerSession, own: bool) -> ServerAnswer:
            if not own:
                self._begin(session)
            return session.step(action)

        try:
            return stage.seats.asked(
                self, ask, shared=stage.repeatable,
                final=lambda: self._begun and not stage.repeatable,
            )  # fmt: skip
        except RefusedByServer as error:
            if error.code == INVALID:
                raise
            raise RuntimeError(f"the server fails: {error}") from error

    def _begin(self, session: ServerSession) -> None:
        """Reset a session and repeat the played actions; raises RuntimeError for other answers."""
        stage = self._stage
        if self._begun and not stage.repeatable:
            raise RuntimeError(
                "the session is lost, and domain.options.repeatable is false: the attempt cannot "
                "be continued in another one"
            )
        heard = stage.tell(session.reset(self._arguments))
        if heard != self._prompt:
            raise self._differs("the reset", self._prompt, heard)
        self._begun = True
        for turn, (action, before, rewards) in enumerate(self._played, 1):
            answer = session.step(action)
            if (stage.tell(answer), answer.rewards(stage.others)) != (before, rewards):
                raise self._differs(f"action {turn}", before, stage.tell(answer))

    def _differs(self, what: str, before: str, now: str) -> RuntimeError:
        other = ", or set domain.options.repeatable to false" if self._stage.repeatable else ""
        return RuntimeError(
            f"the server answers {what} with {now!r:.80}, and before with {before!r:.80}: seed "
            f"what is random in it{self._stage.remedy}{other}"
        )
