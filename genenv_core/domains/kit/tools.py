"""Typed Python functions as the tools of a domain: schemas, and answers to the agent's calls.

`Tools(look, move)` has the schemas that the agent reads, and answers the calls in its text. Tools
that remember something share a state, one for each attempt: `Tools(put, total, state=Cart)`. A
function whose first parameter has this type as its annotation gets the state there; the agent does
not see that parameter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from genenv_core.canonical import NoJson, place_of, said_odd
from genenv_core.domains.kit.signatures import Function, Signature, WrongArguments, signature_of
from genenv_core.domains.steps import FAILURES, error_line
from genenv_core.domains.tool_calls import CLOSE, OPEN, parsed, written
from genenv_core.errors import DomainError
from genenv_core.types import Call, JsonObject, Message

UNREACHED = (ConnectionError, TimeoutError)
"""Errors of a tool that could not reach its source; other arguments would not have helped."""

ERROR = "error:"
"""How the answer to a failed call begins."""

DONE = "done"
"""The answer of a tool that returns None."""

RESULT = "return text, or values that JSON has"
"""The remedy for a tool that returns something else."""

_SHOWN = 40


class Tools:
    """A set of functions that an agent can call."""

    def __init__(self, *functions: Function, state: type | None = None) -> None:
        """Read the signatures.

        Raises DomainError for a function that cannot be a tool, and for two of one name.
        """
        self.state = state
        self._known: dict[str, Signature] = {}
        for function in functions:
            tool = signature_of(function, state)
            if tool.name in self._known:
                raise DomainError(f"there are two tools {tool.name}; rename one")
            self._known[tool.name] = tool

    @property
    def schemas(self) -> list[JsonObject]:
        """The tools in OpenAI's form, as chat templates read them."""
        return [tool.schema for tool in self._known.values()]

    def described(self) -> str:
        """Return a line for each tool, for an agent's rules; '' without tools."""
        return "\n".join(tool.described() for tool in self._known.values())

    def answer(self, call: Call | str, state: Any = None) -> Message:
        """Return the message that answers a call, or a text that was meant as one.

        An error becomes an answer that begins with `error:` and says what to do. Only
        ConnectionError, TimeoutError, and NoJson for a result that is neither text nor JSON are
        raised: then the step has failed, and not the agent. `state` is that of the attempt.
        """
        content = self._run(call, state) if isinstance(call, Call) else self._unreadable()
        return {"role": "tool", "name": self._meant(call)[:64], "content": content}

    def refused(self, call: Call | str, why: str) -> Message:
        """Return the message that answers a call which the episode does not make."""
        return {"role": "tool", "name": self._meant(call)[:64], "content": f"{ERROR} {why}"}

    def _run(self, call: Call, state: Any) -> str:
        tool = self._known.get(call.name)
        if tool is None:
            return f"{ERROR} there is no tool {call.name[:_SHOWN]!a}; {self._all()}"
        try:
            arguments = tool.arguments(call.arguments)
        except WrongArguments as error:
            return f"{ERROR} {error}"
        try:
            result = tool.function(*([state] if tool.takes_state else []), **arguments)
        except UNREACHED:
            raise
        except FAILURES as error:
            return f"{ERROR} {tool.name} failed: {error_line(error)}; change the arguments"
        try:
            return told(result)
        except NoJson as error:
            raise NoJson(f"the result of the tool {tool.name}: {error}: {RESULT}") from error

    def _unreadable(self) -> str:
        form = written({"name": next(iter(self._known), "..."), "arguments": {}})
        form = form.replace("{}", '{"...": "..."}')
        return f"{ERROR} the call is no JSON object with name and arguments; write {form}"

    def _meant(self, call: Call | str) -> str:
        """Return the tool's name in a call; for a call without one, that of the only tool."""
        if isinstance(call, Call):
            return call.name
        value = parsed(call)
        name = cast(JsonObject, value).get("name") if isinstance(value, dict) else None
        if isinstance(name, str):
            return name
        return next(iter(self._known)) if len(self._known) == 1 else "unknown"

    def _all(self) -> str:
        return f"the tools are {', '.join(self._known)}" if self._known else "there are no tools"


def call(tool: Function, **arguments: Any) -> str:
    """Return a call of a tool as the agent writes it; join such texts for several calls."""
    return written({"name": tool.__name__, "arguments": arguments})


def how_to_call(tools: Sequence[JsonObject]) -> str:
    """Return the sentence for an agent's rules on how to write calls; '' without tools."""
    if not tools:
        return ""
    return (
        f"A call is one JSON object between {OPEN} and {CLOSE}, such as "
        f"{OPEN}{json.dumps({'name': '...', 'arguments': {'...': '...'}})}{CLOSE}. Make calls and "
        "wait for what the tools say. A turn without a call is your answer."
    )


def told(result: object) -> str:
    """Return a tool's result as the agent reads it: a text as it is, other values as JSON.

    pydantic writes dates, enums, decimals, dataclasses and its own models. A set comes in the order
    of its texts, because Python's own order differs between processes. Raises NoJson, which names
    the place, for values without such a form: bytes, NaN, arrays.
    """
    if result is None:
        return DONE
    return result if isinstance(result, str) else to_json(_plain(result, "", ())).decode()


def _plain(value: object, path: str, inside: tuple[int, ...]) -> object:
    """Return a value in plain containers, whose leaves JSON can hold; raises NoJson."""
    if isinstance(value, str | int) or value is None:
        return value
    if id(value) in inside:
        raise NoJson(f"{path or 'it'} holds itself")
    within = (*inside, id(value))
    if isinstance(value, BaseModel):
        _plain(value.model_dump(by_alias=True), path, within)
        return value  # which has a way of its own to be written
    if is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {
            _key(key, path): _plain(one, f"{path}[{place_of(key)}]", within) for key, one in items
        }
    if isinstance(value, set | frozenset):
        value = sorted(cast("set[object]", value), key=str)
    if isinstance(value, list | tuple | Iterator):
        each = enumerate(cast("Iterator[object]", value))
        return [_plain(one, f"{path}[{place}]", within) for place, one in each]
    return _leaf(value, path)


def _key(key: object, path: str) -> object:
    if isinstance(key, tuple | bytes | frozenset):
        raise NoJson(said_odd(path, cast(object, key), "has the key"))
    return _leaf(key, path)


def _leaf(value: object, path: str) -> object:
    """Return a value that pydantic writes in only one way; raises NoJson for any other."""
    lost = isinstance(value, float) and not math.isfinite(value)
    if lost or isinstance(value, bytes | bytearray | memoryview):
        raise NoJson(said_odd(path, cast(object, value)))
    try:
        to_json(value)
    except PydanticSerializationError:
        raise NoJson(said_odd(path, value)) from None
    return value
