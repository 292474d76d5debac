"""pi_env in the place of the tools: its prompt, and what counts as an observation of its own."""

# jsonschema has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry

from genenv_core.domains.protocol import Domain, SimulatedTools, begins_anew
from genenv_core.domains.steps import FAILURES, error_line, failure
from genenv_core.errors import ConfigError
from genenv_core.play.chat import ChatFormat
from genenv_core.types import (
    Cause,
    Completion,
    FinishReason,
    Grammar,
    JsonObject,
    Message,
    Observation,
    TaskDraft,
)

SIMULATED_TURN = -2
"""The turn with which a caller asks `seed_of` for the seed of the simulated answer to turn 0; later
turns count down from it."""


class Simulator:
    """The tools of a domain, played by pi_env.

    Args:
        domain: has to implement `SimulatedTools`, else ConfigError.
        chat: the chat format of pi_env's checkpoint.
        max_length: tokens of one prompt and its answer together.

    Raises ConfigError for a domain that begins the conversation anew, and for an invalid schema.
    """

    def __init__(self, domain: Domain, chat: ChatFormat, *, max_length: int) -> None:
        if not isinstance(domain, SimulatedTools):
            raise ConfigError(
                f"tools.execution is simulated, and the domain {domain.name!r} does not say how "
                "pi_env plays its tools: set inline or workers, or give it SimulatedTools"
            )
        if begins_anew(domain):
            raise ConfigError(
                f"tools.execution is simulated, and with these options the domain {domain.name!r} "
                "begins the conversation anew: pi_env writes what a tool says, and no prompts; set "
                "inline or workers"
            )
        self.chat = chat
        self._domain, self._name = domain, domain.name
        self._max_length = max_length
        self._only_tool = _only_tool(domain.tools)
        try:
            self._schema = checked(domain.observation_schema)
        except ValueError as error:
            raise ConfigError(
                f"domain {domain.name!r}: its observation_schema is no JSON schema: {error}"
            ) from error

    def prompt(
        self, draft: TaskDraft, messages: Sequence[Message]
    ) -> tuple[int, ...] | Observation:
        """Return the ids of pi_env's prompt, or an observation where there is nothing to ask.

        The observation ends the episode, or is a failure where the prompt fails or is too long.
        """
        try:
            asked = self._domain.tool_messages(draft, messages)
        except FAILURES as error:
            return _failed(f"domain {self._name}: tool_messages failed: {error_line(error)}")
        if asked is None:
            return Observation()
        ids = self.chat.first_prompt(asked)
        if len(ids) >= self._max_length:
            return _failed(f"the simulator's prompt has {len(ids)} tokens, max_length is reached")
        return ids

    def grammar(self) -> Grammar:
        """Return the domain's schema of an observation, for an engine that can sample under it."""
        return Grammar("json", json.dumps(self._domain.observation_schema))

    def read(self, completion: Completion) -> Observation:
        """Return the observation that pi_env wrote; a failed one where it does not fit the schema.

        An observation without a tool's name gets that of the domain's tool, where there is only
        one.
        """
        if completion.finish_reason is FinishReason.ERROR:
            return _failed(completion.error, Cause.ENGINE)
        if completion.finish_reason is FinishReason.LENGTH:
            return _failed(f"the answer was cut after {len(completion.token_ids)} tokens")
        text = self.chat.decode(completion.token_ids)
        try:
            value: Any = json.loads(text)
            wrong = misfit(value, self._schema)
        except (ValueError, RecursionError):
            return _failed("the answer is no JSON")
        if wrong:
            return _failed(f"the answer does not fit the schema: {wrong}")
        answer: Message = {"role": "tool", "content": value["content"]}
        name = value.get("name", self._only_tool)
        if name is not None:
            answer["name"] = name
        return Observation((answer,), done=False, simulated=True)


def checked(schema: JsonObject) -> Any:
    """Return the validator of a JSON schema, which loads no reference.

    Raises ValueError for an invalid schema.
    """
    kind: Any = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ValueError(error.message) from error
    return kind(schema, registry=Registry())


def misfit(value: Any, validator: Any) -> str:
    """Return where a value leaves the schema of one observation, '' when it fits.

    It also refuses fields that the schema does not name, unless the schema allows further ones.
    """
    if not isinstance(value, dict):
        return "it is no object"
    record, schema = cast(JsonObject, value), cast(JsonObject, validator.schema)
    for name in ("content", *schema.get("required", ())):
        if name not in record:
            return f"{name} is missing"
    unknown = [name for name in record if name not in schema.get("properties", {})]
    if unknown and not {"additionalProperties", "patternProperties"} & schema.keys():
        return f"{unknown[0][:40]} is unknown"
    error = best_match(validator.iter_errors(record))
    if error is None:
        texts = [name for name in ("content", "name") if not isinstance(record.get(name, ""), str)]
        return f"{texts[0]} is no text" if texts else ""
    if error.validator == "additionalProperties":
        return f"{(unknown or ['a field'])[0][:40]} is unknown"
    place = ".".join(map(str, error.absolute_path)) or "it"
    return f"{place} has another value than the schema allows"


def _only_tool(tools: Sequence[JsonObject]) -> str | None:
    """Return the name of the only tool; None for several tools, or for one without a name."""
    names = [tool.get("function", tool).get("name") for tool in tools]
    return names[0] if len(names) == 1 else None


def _failed(reason: str, cause: Cause = Cause.ENVIRONMENT) -> Observation:
    observation = failure(SimulationError(reason))
    return replace(observation, simulated=True, cause=cause)


class SimulationError(Exception):
    """pi_env gave no observation; only the agent sees the message."""
