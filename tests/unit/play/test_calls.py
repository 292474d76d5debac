"""The calls of a transcript as data.

Invariants: what was said stays word for word, and what was added can be taken away again; each
answer belongs to its call; a tool's answer shows a call where the domain does not say how its agent
writes them, a failed step does not; templates, pi_env's prompts and endpoints see what they saw
before; `read_calls` that fails breaks its attempt alone.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from genenv_core.domains.desk import DeskDomain
from genenv_core.domains.desk.desk_domain import DeskOptions
from genenv_core.domains.tool_calls import SaidCall, reader_of, written
from genenv_core.exchange.chat_player import readable
from genenv_core.play.attempt import AttemptBounds, Play
from genenv_core.play.calls import as_said, calls_made, said_calls, with_calls, with_calls_of
from genenv_core.play.chat import ChatFormat
from genenv_core.play.driver import run_episodes
from genenv_core.play.fidelity import answered
from genenv_core.play.transcript import ToolCall, openai_messages, turns
from genenv_core.types import Completion, FinishReason, Message, Rollout, SamplingParams
from tests.mutations import mutation
from tests.unit.builders_engine import CHATML, spell, tiny_tokenizer
from tests.unit.builders_rollout import EchoDomain, ScriptedEngine, flat
from tests.unit.play.test_rollout import draft_of

ASK: Message = {"role": "user", "content": "2 + 3?"}
CALL = written({"name": "add", "arguments": {"a": 2, "b": 3}})


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def tool(text: str, **more: Any) -> Message:
    found: Any = {"role": "tool", "content": text, **more}
    return found


class Plus(DeskDomain):
    """A domain whose agent writes a call as `add(2, 3)`; the second number may be missing."""

    def read_calls(self, text: str) -> list[SaidCall]:
        return [
            SaidCall(m.start(), m.end(), "add", {"a": int(m[1]), "b": int(m[2])} if m[2] else None)
            for m in re.finditer(r"add\((\d+)(?:, (\d+))?\)", text)
        ]


def rollout(messages: list[Message], turns: int = 1) -> Rollout:
    return Rollout("t", 0, (1,), (2,), (0.0,), (1,), tuple(messages), turns, FinishReason.STOP)


def test_calls_and_answers_know_each_other() -> None:
    text = f"so {CALL} and {CALL}"
    found = with_calls([ASK, said(text), tool("5", name="add"), tool("five"), said("5")])
    first, second = said_calls(found[1])
    assert first == {
        "id": "call_1_0",
        "type": "function",
        "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'},
        "span": [3, 3 + len(CALL)],
        "well_formed": True,
    }
    assert [m.get("tool_call_id") for m in found] == [None, None, "call_1_0", second["id"], None]
    assert [m["content"] for m in found] == ["2 + 3?", text, "5", "five", "5"]
    assert calls_made(found, 2) == 2 and calls_made(found, 1) == 0


def test_a_domain_says_what_calls_of_its_own_form_are() -> None:
    messages = [ASK, said("First add(2, 3), then add(4)."), tool("5"), tool("what?"), said("5")]
    found = with_calls(messages, reader_of(Plus()))
    assert [(c["function"], c["well_formed"]) for c in said_calls(found[1])] == [
        ({"name": "add", "arguments": '{"a": 2, "b": 3}'}, True),
        ({"name": "add", "arguments": "add(4)"}, False),
    ]
    assert turns(found)[1].parts == ("First ", ToolCall("add", {"a": 2, "b": 3}), ", then add(4).")
    asked = openai_messages(found)
    assert asked[1]["content"] == "First , then ."
    assert [json.loads(c["function"]["arguments"]) for c in asked[1]["tool_calls"]] == [
        {"a": 2, "b": 3},
        {"text": "add(4)"},
    ]
    assert [m["role"] for m in asked] == ["user", "assistant", "tool", "tool", "assistant"]


def test_a_tool_that_answers_shows_a_call() -> None:
    found = with_calls([ASK, said("2 PLUS 3"), tool("5", name="add"), said("5")])
    (call,) = said_calls(found[1])
    assert call["function"] == {"name": "add", "arguments": "2 PLUS 3"}
    assert (call["span"], call["well_formed"]) == ([0, 8], None)
    assert turns(found)[1].parts == ("2 PLUS 3",)
    assert [m["role"] for m in openai_messages(found)] == ["user", "assistant", "tool", "assistant"]


@mutation(
    "a step that failed shows a call", "genenv_core/play/calls.py",
    'answering = [i for i in answering if not answers[i].get("error")]', "pass",
)  # fmt: skip
def test_a_step_that_failed_shows_no_call() -> None:
    messages = [ASK, said("2 PLUS 3"), tool("error: cut", error=True), said("5")]
    assert with_calls(messages) == messages
    broken = [ASK, said("<tool_call>{add"), tool("error: cut", error=True)]
    (call,) = said_calls(with_calls(broken)[1])  # here there is one, which cannot be read
    assert (call["well_formed"], call["function"]["name"]) == (False, "")


def test_a_user_answers_a_call_that_waits() -> None:
    found = with_calls([ASK, said(CALL), {"role": "user", "content": "It is 5."}, said("5")])
    assert found[2] == {"role": "user", "content": "It is 5.", "tool_call_id": "call_1_0"}
    assert openai_messages(found)[2]["role"] == "tool"
    both: list[Message] = [said(CALL), tool("5"), {"role": "user", "content": "Go on."}]
    assert "tool_call_id" not in with_calls(both)[2]


@pytest.mark.parametrize(
    "messages",
    [
        [ASK, said(CALL), tool("5", simulated=True), said("no call"), tool("what?"), said("5")],
        [ASK, said("2 PLUS 3"), {"role": "user", "content": "5"}],
        [ASK, {"role": "assistant", "content": "", "tool_calls": [{"function": {}}]}, tool("x")],
        [said(CALL), ASK, said(CALL + CALL)],
        [ASK],
        [],
    ],
)
def test_what_was_added_can_be_taken_away(messages: list[Message]) -> None:
    kept = json.dumps(messages)
    found = with_calls(messages)
    assert as_said(found) == messages and json.dumps(messages) == kept
    assert with_calls(found) == found
    assert with_calls(found, lambda text: [SaidCall(0, len(text), "other", {})]) == found or not (
        any(map(said_calls, found))
    )


def test_halves_of_characters_can_be_stored() -> None:
    body = '{"name": "\\ud83d", "arguments": {"a": "\\ud83d", "b": "é"}}'
    (call,) = said_calls(with_calls([said(f"<tool_call>{body}</tool_call>")])[0])
    assert call["function"] == {"name": "?", "arguments": '{"a": "?", "b": "é"}'}


def test_read_calls_that_fails_breaks_its_attempt() -> None:
    class Broken(DeskDomain):
        def read_calls(self, text: str) -> list[SaidCall]:
            raise ValueError("two\nlines")

    made = rollout([ASK, said(CALL)])
    found = with_calls_of(made, Broken())
    assert found.finish_reason is FinishReason.ERROR and found.messages == made.messages
    assert found.error == "domain desk: read_calls failed: ValueError: two"
    assert with_calls_of(made, DeskDomain()).messages == tuple(with_calls(made.messages))
    assert with_calls_of(rollout([ASK], 0), Broken()).error == ""


class Watched(ChatFormat):
    """A chat format that keeps every message that it is given."""

    seen: list[Message]

    def first_prompt(self, messages: Any, tools: Any = ()) -> tuple[int, ...]:
        self.seen = [*messages]
        return super().first_prompt(messages, tools)

    def continuation(
        self, messages_after_turn: Any, completion_ids: Any = (), tools: Any = ()
    ) -> tuple[int, ...]:
        self.seen += messages_after_turn
        return super().continuation(messages_after_turn, completion_ids, tools)


class OwnEcho(EchoDomain):
    """Every text is a call."""

    def read_calls(self, text: str) -> list[SaidCall]:
        return [SaidCall(0, len(text), "echo", {})]


@mutation(
    "a finished attempt does not name its calls", "genenv_core/play/driver.py",
    "[with_calls_of(one.rollout(), self._play.domain) for one in group]",
    "[one.rollout() for one in group]",
)  # fmt: skip
@pytest.mark.parametrize("domain", [EchoDomain, OwnEcho])
def test_no_template_sees_what_was_added(domain: type[EchoDomain]) -> None:
    chat, draft = Watched(tiny_tokenizer(CHATML), name="tiny"), draft_of(3)
    ids = (*spell("abba"), 1)
    completion = Completion(ids, (-0.5,) * len(ids), FinishReason.STOP)
    play = Play(
        domain(), ScriptedEngine(lambda *_: completion), chat, AttemptBounds(1, 5, 500),
        SamplingParams(max_tokens=30), lambda *_: 0,
    )  # fmt: skip
    (one,) = flat(run_episodes([("t", draft)], play))
    assert calls_made(one.messages, one.turns) == one.turns == 3
    answers = [message for message in one.messages if message["role"] == "tool"]
    assert all("tool_call_id" in message for message in answers)
    assert len(chat.seen) == 3 and not any(
        {"tool_calls", "tool_call_id"} & message.keys() for message in chat.seen
    )
    plain = ChatFormat(tiny_tokenizer(CHATML), name="plain")
    asked = plain.first_prompt([{"role": "user", "content": draft.prompt}])
    between = [plain.continuation([tool(f"turn {turn}: abba")], ids) for turn in (1, 2)]
    assert (one.prompt_ids, one.token_ids) == (asked, ids + between[0] + ids + between[1] + ids)


@mutation(
    "pi_env is asked again with the calls named", "genenv_core/play/fidelity.py",
    "messages = as_said(messages)", "messages = list(messages)",
)  # fmt: skip
def test_pi_env_is_asked_again_about_the_words_alone() -> None:
    class Dumping(DeskDomain):
        """Its prompt for the tools' answer has all that the messages have."""

        def tool_messages(self, draft: Any, messages: Any) -> list[Message]:
            return [{"role": "user", "content": json.dumps(list(messages))}]

    domain = Dumping(DeskOptions(dialogue=True))
    draft = domain.base_tasks(0, 1)[0]
    opening = domain.agent_messages(draft)
    text = domain.answer_turns(draft)[0]
    said_once = [*opening, said(text), tool("recorded", name="ship", simulated=True)]
    (again,) = answered(domain, draft, 0, with_calls(said_once))
    assert list(again.before) == said_once[:-1] and list(again.said.messages) == said_once[-1:]


@mutation(
    "an endpoint reads calls that its model only meant", "genenv_core/exchange/chat_player.py",
    "return [call for call in calls_said(text) if call.arguments is not None]",
    "return calls_said(text)",
)  # fmt: skip
def test_a_model_behind_an_endpoint_reads_what_it_wrote() -> None:
    broken = "<tool_call>{add</tool_call>"
    messages = [
        ASK,
        said(f"{CALL} {broken}"),
        tool("5"),
        tool("what?"),
        said("2 PLUS 3"),
        tool("x"),
    ]
    asked = openai_messages(with_calls(messages, readable, infer=False))
    assert [m["role"] for m in asked] == ["user", "assistant", "tool", "user", "assistant", "user"]
    assert asked[1]["content"] == f" {broken}"
    assert len(asked[1]["tool_calls"]) == 1 and "tool_calls" not in asked[4]
