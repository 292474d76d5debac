"""The optional SimulatedTools protocol: what lets pi_env play the tools of a domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from genenv_core.types import JsonObject, Message, TaskDraft


@runtime_checkable
class SimulatedTools(Protocol):
    """A domain whose observations a language model can write in place of the tools.

    `observation_schema` is the JSON schema of what pi_env writes: an object for one observation,
    whose field `content` is the text that the agent sees and whose field `name`, where there is
    one, is the tool's. An engine that can hold generations to a schema does; what does not fit
    becomes a failed observation.
    """

    observation_schema: JsonObject

    def tool_messages(self, draft: TaskDraft, messages: Sequence[Message]) -> list[Message] | None:
        """Return pi_env's prompt for what the tools answer to the last message.

        None when the transcript calls for no answer, which ends the episode.
        """
        ...
