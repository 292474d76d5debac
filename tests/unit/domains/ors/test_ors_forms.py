"""What goes to a server of ORS and comes from it, without one.

Invariants: a stream of events gives its result only once it has its end; an answer of a task
becomes the call that gives it; the agent reads the texts of blocks.
"""

from __future__ import annotations

from typing import Any

import pytest

from genenv_core.domains.kit.served.client import RefusedByServer, ServerAnswer
from genenv_core.domains.ors.events import events, result_of, session_of
from genenv_core.domains.ors.tools import OrsForm, tell
from genenv_core.domains.steps import EnvironmentLost
from genenv_core.domains.tool_calls import written
from genenv_core.errors import ConfigError
from tests.mutations import mutation
from tests.unit.domains.ors.double import TOOLS


@mutation(
    "a stream that breaks off is a result", "genenv_core/domains/ors/events.py",
    """        if name == "end":""", """        if name in ("chunk", "end"):""",
)  # fmt: skip
def test_a_stream_is_a_result_at_its_end() -> None:
    stream = ': ping\r\n\r\nevent: task_id\ndata: t\n\nevent: chunk\ndata: {"a\n\n'
    with pytest.raises(EnvironmentLost, match="there stopped in the middle of its answer"):
        result_of(stream, "there")
    assert result_of(stream + 'event: end\rdata:  ": 1}\r\r', "there") == '{"a ": 1}'
    with pytest.raises(EnvironmentLost, match="stopped in the middle"):
        result_of(f"{stream}event: end\ndata: 1", "there")  # no empty line: not all of it came
    with pytest.raises(RefusedByServer, match="EXECUTION_ERROR: no such row at all"):
        result_of("event: error\ndata: no such row\ndata: at all\n\n", "there")
    assert session_of(stream, "there") == "t"
    with pytest.raises(EnvironmentLost, match="there names no session"):
        session_of("event: end\ndata:\n\n", "there")
    assert list(events("data\nid: 3\n\n")) == [("", "")]


def test_an_answer_becomes_the_call_that_gives_it() -> None:
    form = OrsForm(TOOLS)
    assert [tool["function"]["name"] for tool in form.tools] == ["hint", "say"]
    say = {"name": "say", "arguments": {"sum": "7"}}
    assert form.answered("7") == form.answered(7) == form.answered(say) == written(say)
    assert form.actions(written(say)) == [("say", {"name": "say", "input": {"sum": "7"}})]
    count: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
    count = {"name": "count", "description": "Counts.", "input_schema": count}
    counted = {"name": "count", "arguments": {"n": 7}}
    assert OrsForm([count]).answered(7) == written(counted)
    with pytest.raises(ConfigError, match="7 is no call with name and arguments, and 2 tools take"):
        OrsForm([*TOOLS, count]).answered(7)


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "image", "data": "xxx", "mimeType": "image/png"}], "[image image/png]"),
        ([], ""),
        ([3], "[block]"),
    ],
)
def test_the_agent_reads_texts(blocks: list[Any], told: str) -> None:
    assert tell(ServerAnswer({"blocks": blocks, "reward": 1}, 1.0, True, {"right": "7"})) == told
