"""What goes to an OpenEnv server and comes from it, without one.

Invariants: an agent's turn becomes the action that the server's schema asks for, or a text that
says why not; reset arguments that are drawn are read back; what the agent reads is what was said.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from genenv_core.domains.kit.served.client import ServerAnswer
from genenv_core.domains.kit.served.programs import ResetSchema, of_tasks, spelled
from genenv_core.domains.openenv.actions import ActForm, McpForm, TextForm, form_of, takes_mcp
from genenv_core.domains.openenv.wording import tell
from genenv_core.domains.tool_calls import written
from genenv_core.errors import ConfigError
from tests.mutations import mutation

METADATA = {"metadata": {"type": "object"}}
TEXT = {"properties": {"message": {"type": "string"}, **METADATA}, "required": ["message"]}
MOVE = {
    "description": "Moves.",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}, **METADATA},
    "required": ["x", "y"],
}
PUT = {"name": "put", "description": "Adds.", "input_schema": {"type": "object"}}


@mutation(
    "a reasoning model's thought is part of its action", "genenv_core/domains/openenv/actions.py",
    "self._name: without_thought(text).strip()", "self._name: text.strip()",
)  # fmt: skip
def test_the_whole_turn_is_the_text_of_an_action() -> None:
    form = form_of(TEXT)
    assert isinstance(form, TextForm) and form.tools == () and form.role == "user"
    assert form.actions("<think>hm</think> look ") == [("", {"message": "look"})]


def test_a_call_of_act_has_the_fields_of_an_action() -> None:
    form = form_of(MOVE)
    assert isinstance(form, ActForm)
    (tool,) = form.tools
    assert tool["function"]["description"] == "Moves."
    assert sorted(tool["function"]["parameters"]["properties"]) == ["x", "y"]
    call = written({"name": "act", "arguments": {"x": 1, "y": 2}})
    assert form.actions(f"go {call}{call}") == [("act", {"x": 1, "y": 2})] * 2
    assert form.actions("I am done") == []
    assert form_of({**TEXT, "required": []}).role == "tool"


def test_calls_of_mcp_tools_are_the_servers() -> None:
    assert takes_mcp({"properties": {"tool_name": {}, "arguments": {}}}) and not takes_mcp(MOVE)
    form = McpForm([PUT])
    call = {"type": "call_tool", "tool_name": "put", "arguments": {"n": 1}}
    assert form.actions(written({"name": "put", "arguments": {"n": 1}})) == [("put", call)]
    unknown, broken = form.actions(
        written({"name": "take", "arguments": {}}) + "<tool_call>{</tool_call>"
    )
    assert unknown == ("take", "error: there is no tool 'take'; the tools are put")
    assert broken[1] == "error: the call is no JSON object with name and arguments"
    for listed in (None, [{}], ["put"]):
        with pytest.raises(ConfigError, match="lists tools that have no name"):
            McpForm(listed)


def test_arguments_that_are_drawn_are_read_back() -> None:
    schema = ResetSchema(
        {
            "properties": {
                "size": {"type": "integer", "minimum": 2, "maximum": 4},
                "rate": {"type": "number", "minimum": 0, "maximum": 1},
                "kind": {"enum": ["a", "b"]},
                "open": {"type": "boolean"},
                "by": {"const": "us"},
            }
        }
    )
    rng = random.Random(0)
    drawn = [schema.draw(rng) for _ in range(50)]
    assert [schema.read(spelled(one)) for one in drawn] == drawn
    assert {one["size"] for one in drawn} == {2, 3, 4} and {one["open"] for one in drawn} == {0, 1}
    assert (
        schema.read(spelled({**drawn[0], "size": 5})) == "size: 5 is greater than the maximum of 4"
    )
    assert "additional" in str(schema.read(spelled({**drawn[0], "more": 5}))).casefold()
    assert str(schema.read("{")).startswith("no JSON: ")
    assert ResetSchema(of_tasks({"train": 3, "test": 5})).read('{"index":4,"split":"test"}')


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({}, "give type object, and properties"),
        ({"type": "array", "properties": {"a": {}}}, "give type object"),
        ({"properties": {"a": {"type": "string"}}}, "a: nothing can be drawn from"),
        ({"properties": {"a": {"type": "integer", "minimum": 3}}}, "a: nothing can be drawn"),
        ({"properties": {"a": {"type": "whole"}}}, "no JSON schema: "),
    ],
)
def test_a_schema_that_nothing_can_be_drawn_from_is_refused(
    schema: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        ResetSchema(schema)


@pytest.mark.parametrize(
    ("observation", "metadata", "told"),
    [
        ({"said": "3 + 4 =", "note": None}, {"right": "7"}, "3 + 4 ="),
        ({"board": [1, 2], "turn": "x"}, {}, "board: [1,2]\nturn: x"),
        ({"metadata": {"said": "begin"}}, {"said": "begin", "right": "7"}, "begin"),
        ({"secret": 1, "said": "a"}, {}, "a"),
        ({"tool_name": "put", "result": {"content": [{"text": "2"}]}, "error": None}, {}, "2"),
        ({"tool_name": "put", "result": {"content": [], "data": [2]}, "error": None}, {}, "[2]"),
        (
            {"tool_name": "put", "result": {"content": [{"text": "no"}], "is_error": True}},
            {},
            "error: no",
        ),
        (
            {"tool_name": "put", "result": None, "error": {"message": "no\nsuch tool"}},
            {},
            "error: no such tool",
        ),
    ],
)
def test_the_agent_reads_what_the_server_says(
    observation: dict[str, Any], metadata: dict[str, Any], told: str
) -> None:
    assert tell(ServerAnswer(observation, None, False, metadata), ("secret", "right")) == told
