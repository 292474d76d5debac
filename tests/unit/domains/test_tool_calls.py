"""Tool calls in a policy's text.

Invariants: one module knows the marks, and finds what it writes; the place of each call in the
text is known, of those that cannot be read too; a call in a thought is none; what a domain of one's
own gives for calls is checked; a turn is text, calls and what was meant as a call, whatever it
holds; a mark in a JSON string ends nothing, whoever wrote the JSON.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from genenv_core.domains.desk import DeskDomain
from genenv_core.domains.desk.scoring import read_calls
from genenv_core.domains.tool_calls import (
    MARKS,
    SaidCall,
    calls_said,
    canonical,
    marked,
    read_one_call,
    reader_of,
    said,
    written,
)
from genenv_core.errors import DomainError
from genenv_core.exchange.chat_player import readable
from genenv_core.types import Call, Said
from tests.mutations import mutation

TOOL_CALLS = "genenv_core/domains/tool_calls.py"

NO_ARGUMENTS: list[dict[str, Any]] = [
    {},
    *({"arguments": value} for value in (None, {}, "", " ", "{}", "null", "\n{ }\n")),
]
"""Each spelling of a call without arguments."""

SHIP = {"name": "ship", "arguments": {"item": "gears", "total": 5}}


def test_what_is_written_is_found() -> None:
    text = written(SHIP)
    assert text == (
        '<tool_call>{"name": "ship", "arguments": {"item": "gears", "total": 5}}</tool_call>'
    )
    assert [one.body for one in marked(f"so {text}{text}</tool_")] == [text[11:-12]] * 2


def test_the_place_of_each_call_is_known() -> None:
    text = f"a {written(SHIP)} b <tool_call>[]</tool_call> c <tool_call>{{ and <tool_call"
    first, second, last = calls_said(text)
    assert text[first.start : first.end] == written(SHIP)
    assert (first.name, first.arguments) == ("ship", SHIP["arguments"])
    assert text[second.start : second.end] == "<tool_call>[]</tool_call>"
    assert text[last.start : last.end] == "<tool_call>{ and <tool_call"
    assert second.arguments is last.arguments is None
    broken = '<tool_call>{"name": "ship", "arguments": 3}</tool_call>'
    assert calls_said(broken) == [SaidCall(0, len(broken), "ship")]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"<think>{written(SHIP)}</think>done", 0),
        (f"{written(SHIP)}</think>{written(SHIP)}", 1),  # the template opened the thought
        (f"<think>{written(SHIP)}", 0),
        (f"{written(SHIP)} I <think></think> so", 1),  # spoken about
    ],
)
def test_a_call_in_a_thought_is_none(text: str, calls: int) -> None:
    assert len(calls_said(text)) == calls
    assert len(said(text).calls) == calls
    assert len(readable(text)) == calls


class Own(DeskDomain):
    """A domain that gives whatever it was made with for calls."""

    def __init__(self, *given: object) -> None:
        super().__init__()
        self.given: list[Any] = list(given)

    def read_calls(self, text: str) -> list[SaidCall]:
        return self.given


@mutation(
    "what a domain says of its calls is not asked for", TOOL_CALLS,
    "    if not isinstance(domain, ReadsCalls):\n", "    if True:\n",
)  # fmt: skip
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("add", "give SaidCall"),
        (SaidCall(2, 1), "from 2 to 1 in a text of 3 characters"),
        (SaidCall(0, 4), "from 0 to 4"),
        (SaidCall(0, 3, "add", {"x": {1}}), "arguments of 'add': Object of type set"),
    ],
)
def test_what_a_domain_gives_for_calls_is_checked(given: object, why: str) -> None:
    with pytest.raises(DomainError, match=why):
        reader_of(Own(given))("abc")
    assert reader_of(Own(SaidCall(0, 3)))("abc") == [SaidCall(0, 3)]
    assert reader_of(DeskDomain()) is calls_said


@mutation(
    "a call that cannot be read is not told", TOOL_CALLS,
    "found.append(body if one.arguments is None else",
    "found.append(Call('', {}) if one.arguments is None else",
)  # fmt: skip
@mutation(
    "a call that is never closed is text", TOOL_CALLS,
    "    if unclosed >= 0:\n", "    if unclosed < -1:\n",
)  # fmt: skip
@mutation(
    "calls that a model thinks of are made", TOOL_CALLS,
    "in_order(text[after_thought(text) :])", "in_order(text)",
)  # fmt: skip
def test_a_turn_has_text_calls_and_what_was_meant_as_one() -> None:
    text = (
        f"<think>maybe {written(SHIP)}</think> a {written(SHIP)} b <tool_call>[]</tool_call>"
        '<tool_call>{"name": "x", "arguments": "{\\"y\\": 1}"}</tool_call><tool_call>{"name'
    )
    assert said(text) == Said(
        "a  b",
        (Call("ship", {"item": "gears", "total": 5}), Call("x", {"y": 1})),
        ("[]", '{"name'),
    )


@mutation(
    "arguments under another name are none", TOOL_CALLS, "record.keys() <= _ALONE", "True",
)  # fmt: skip
@mutation(
    "a call's arguments may be a list", TOOL_CALLS,
    "if not isinstance(name, str) or not isinstance(arguments, dict):",
    "if not isinstance(name, str) or arguments is None:",
)  # fmt: skip
@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "null",
        '"ship"',
        '[{"name": "x", "arguments": {}}]',
        "{}",
        '{"name": "x", "parameters": {"y": 1}}',
        '{"name": "x", "arguments": null, "parameters": {"y": 1}}',
        '{"arguments": {}}',
        '{"name": 1, "arguments": {}}',
        '{"name": "x", "arguments": []}',
        '{"name": "x", "arguments": 0}',
        '{"name": "x", "arguments": false}',
        '{"name": "x", "arguments": "[]"}',
        '{"name": "x", "arguments": "{"}',
    ],
)
def test_what_is_no_call_is_malformed(body: str) -> None:
    whole, last = f"a <tool_call>{body}</tool_call> b", f"a <tool_call>{body}"
    assert said(whole) == Said("a  b", (), (body,))
    assert said(last) == Said("a", (), (body,))


def test_a_call_that_is_never_closed_is_malformed_and_those_before_it_count() -> None:
    right = Call("ship", dict(SHIP["arguments"]))
    text = f"a {written(SHIP)} b {written(SHIP)[:-1]}"
    assert said(text) == Said("a  b", (right,), (written(SHIP)[11:-1],))
    assert said(written(SHIP)[11:]) == Said(written(SHIP)[11:], (), ())  # never opened


@mutation(
    "a call needs arguments", TOOL_CALLS, "record.keys() <= _ALONE", "False",
)  # fmt: skip
@mutation(
    "an empty text is no arguments that can be read", TOOL_CALLS,
    'arguments.strip() in ("", "null")', "False",
)  # fmt: skip
@pytest.mark.parametrize("spelled", NO_ARGUMENTS)
def test_each_spelling_of_no_arguments_is_the_empty_object(spelled: dict[str, Any]) -> None:
    call = {"name": "go", **spelled}
    for text in (written(call), canonical("", [{"type": "function", "function": call}])):
        assert said(text) == Said("", (Call("go", {}),), ())


def test_calls_in_openais_form_become_a_turn() -> None:
    call = {"type": "function", "function": {"name": "go", "arguments": '{"to": "é"}'}}
    broken = {"function": {"name": "go", "arguments": "{"}}
    found = said(canonical("well", [call, SHIP, broken, 3]))
    assert found.text == "well"
    assert found.calls == (Call("go", {"to": "é"}), Call("ship", dict(SHIP["arguments"])))
    assert len(found.malformed) == 2


TEXTS = st.lists(
    st.sampled_from([*MARKS, "a", '"', "\\", "\n", " ", "{", "\u2028", "\U0001f600"])
    | st.text(max_size=3),
    max_size=6,
).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=3)


@mutation(
    "a mark in a string ends a call", TOOL_CALLS,
    "if json_body and parsed(json_body[1]) is not None:", "if False:",
)  # fmt: skip
@mutation(
    "marks stand in what is written", TOOL_CALLS,
    'OPEN + _MARK.sub(r"\\\\u003c", body)', "OPEN + body",
)  # fmt: skip
@settings(max_examples=40)
@given(ARGUMENTS, ARGUMENTS)
@example({"text": "see </tool_call> here"}, {"text": "<think> and </think>"})
@example({"<tool_call>": ["</think>", {"</tool_call>": '\\</tool_call>"'}]}, {"t": "<think>"})
def test_any_arguments_are_read_back_equal(first: dict[str, Any], second: dict[str, Any]) -> None:
    """As models write JSON, as genenv does, and as an endpoint gives it beside its text."""
    calls = [{"name": "f", "arguments": first}, {"name": "g", "arguments": second}]
    wanted = (Call("f", first), Call("g", second))
    ours = [written(call) for call in calls]
    theirs = [
        f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls
    ]
    apart = [
        {"function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}}
        for call in calls
    ]
    for text in ("\n".join(ours), "\n".join(theirs), canonical("", apart), canonical("", calls)):
        assert said(text) == Said("", wanted, ())
        assert said(f"<think>{text}</think>so {text}") == Said("so", wanted, ())
        assert said(f"{text}</think>so {text}") == Said("so", wanted, ())
    assert [read_one_call(text) for text in [*ours, *theirs]] == calls * 2
    assert not any(mark in text[11:-12] for text in ours for mark in MARKS)


@mutation(
    "a call after an open thought is thought", TOOL_CALLS,
    "        text += _CLOSED\n", "        pass\n",
)  # fmt: skip
@mutation(
    "a call after an open one is lost", TOOL_CALLS,
    "    return text + CLOSE if text.find(OPEN, end) >= 0 else text", "    return text",
)  # fmt: skip
@pytest.mark.parametrize(
    ("text", "malformed"),
    [
        ("<think> hm", ()),
        ("<think> hm <tool_call>{", ()),
        ('<tool_call>{"name": "x', ('{"name": "x',)),
        (f"{written(SHIP)}<tool_call>", ("",)),
        ("I say <think>", ()),
    ],
)
def test_calls_beside_a_text_stay_calls(text: str, malformed: tuple[str, ...]) -> None:
    """Whatever the text of an endpoint leaves open."""
    found = said(canonical(text, [SHIP]))
    assert found.calls[-1:] == (Call("ship", SHIP["arguments"]),)
    assert found.malformed == malformed


def test_a_malformed_call_beside_a_text_is_one() -> None:
    broken = {"function": {"name": "go", "arguments": "{</tool_call><tool_call>"}}
    found = said(canonical("", [broken, SHIP]))
    assert (len(found.calls), len(found.malformed)) == (1, 1)


def test_desk_reads_a_call_with_a_mark_in_a_string() -> None:
    text = (
        '<tool_call>{"name": "s</tool_call>", "arguments": {"item": "a", "total": 1}}</tool_call>'
    )
    (call,) = read_calls(text)
    assert not isinstance(call, str) and call.name == "s</tool_call>"


def test_hostile_texts_take_no_time() -> None:
    """A quadratic search would take hours here."""
    found = said("<tool_call>" * 300_000)
    assert (found.calls, len(found.malformed)) == ((), 1)
    assert len(said("<tool_call>{}" * 100_000 + "</tool_call>").malformed) == 1
    for unit in ('<tool_call>["a', '<tool_call>{"a</tool_call>', '<tool_call>["a\\"</tool_call>'):
        assert said(unit * 5_000).calls == ()
    deep = "[" * 100_000
    assert said(f"<tool_call>{deep}</tool_call>").malformed == (deep,)
