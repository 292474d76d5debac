"""pi_env in the place of the tools: its prompt, and what counts as an observation it wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from genenv_core.attempts import describe, failure
from genenv_core.chat import ChatFormat
from genenv_core.domains.base import Domain
from genenv_core.domains.simulated import SimulatedTools
from genenv_core.errors import ConfigError, DomainError
from genenv_core.types import (
    Completion,
    FinishReason,
    Grammar,
    JsonObject,
    Message,
    Observation,
    TaskDraft,
)

SIMULATED_TURN = -2
"""`seed_of` is asked for this turn, and lower ones, for the simulated answer to turn 0, 1, ..."""

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


class Simulator:
    """The tools of a domain, played by pi_env.

    Args:
        domain: must implement `SimulatedTools`, else ConfigError.
        chat: the chat format of pi_env's checkpoint.
        max_length: tokens of one prompt and its answer together.
    """

    def __init__(self, domain: Domain, chat: ChatFormat, *, max_length: int) -> None:
        if not isinstance(domain, SimulatedTools):
            raise ConfigError(
                f"tools.execution is simulated, and the domain {domain.name!r} does not say how "
                "pi_env plays its tools: set inline or pool, or give it SimulatedTools"
            )
        self.chat = chat
        self._domain, self._name = domain, domain.name
        self._max_length = max_length

    def prompt(
        self, draft: TaskDraft, messages: Sequence[Message]
    ) -> tuple[int, ...] | Observation:
        """Return the ids that ask pi_env, or the observation where there is nothing to ask."""
        try:
            asked = self._domain.tool_messages(draft, messages)
        except Exception as error:
            raise DomainError(
                f"domain {self._name}: tool_messages failed: {describe(error)}"
            ) from error
        if asked is None:
            return Observation()
        ids = self.chat.first_prompt(asked)
        if len(ids) >= self._max_length:
            return _failed(f"the simulator's prompt has {len(ids)} tokens, max_length is reached")
        return ids

    def grammar(self) -> Grammar:
        """Return the domain's schema of an observation, for an engine that can sample by it."""
        return Grammar("json", json.dumps(self._domain.observation_schema))

    def read(self, completion: Completion) -> Observation:
        """Return the observation that pi_env wrote, a failed one where it does not fit."""
        if completion.finish_reason is FinishReason.ERROR:
            return _failed(completion.error)
        if completion.finish_reason is FinishReason.LENGTH:
            return _failed(f"the answer was cut after {len(completion.token_ids)} tokens")
        text = self.chat.decode(completion.token_ids)
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            return _failed("the answer is no JSON")
        wrong = misfit(value, self._domain.observation_schema)
        if wrong:
            return _failed(f"the answer does not fit the schema: {wrong}")
        answer: Message = {"role": "tool", "content": value["content"]}
        if "name" in value:
            answer["name"] = value["name"]
        return Observation((answer,), done=False, simulated=True)


def misfit(value: Any, schema: JsonObject) -> str:
    """Return where a value leaves the schema of one observation, '' when it fits.

    The schema is flat: an object whose properties have a type and perhaps an enum.
    """
    if not isinstance(value, dict):
        return "it is no object"
    record = cast(JsonObject, value)
    properties: dict[str, JsonObject] = schema.get("properties", {})
    for name in ("content", *schema.get("required", ())):
        if name not in record:
            return f"{name} is missing"
    for name, found in record.items():
        if name not in properties:
            return f"{name[:40]} is unknown"
        expected = properties[name]
        kind = _TYPES[expected.get("type", "string")]
        wrong = not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool)
        if wrong or ("enum" in expected and found not in expected["enum"]):
            return f"{name} has another value than the schema allows"
    return ""


def _failed(reason: str) -> Observation:
    observation = failure(SimulationError(reason))
    return Observation(observation.messages, done=False, simulated=True, failed=True)


class SimulationError(Exception):
    """pi_env gave no observation; only ever told to the agent."""
