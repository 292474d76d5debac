"""API-Bank's items, attempted by a model.

Invariants: the recorded call, made as a tool call, gets the verdict that the official spelling
gets, for every item, and so does the recorded response; the model sees the dialogue before the
item, with calls and answers, and nothing after it; the tools are those of the dialogue at level 1,
and what was searched for so far at levels 2 and 3; chat templates write the calls out; one turn
decides, its first call counts, and nothing that a model says raises.
"""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from genenv_core.benchmarks.api_bank import BENCHMARK
from genenv_core.benchmarks.api_bank.dialogues import (
    GO_ON,
    DialogueTurn,
    chat,
    found_tools,
    written,
)
from genenv_core.benchmarks.api_bank.parsing.finding import find_call, plain_arguments
from genenv_core.benchmarks.api_bank.parsing.reading import full_arguments
from genenv_core.benchmarks.api_bank.scoring import RecordedCall
from genenv_core.benchmarks.api_bank.suite import ApiBank
from genenv_core.benchmarks.api_bank.tools import schema, spelled
from genenv_core.benchmarks.api_bank.training import ApiBankDomain
from genenv_core.benchmarks.protocol import NamesGold
from genenv_core.play.template.bootstrap import CHAT_TEMPLATE
from genenv_core.types import Call, JsonObject, Said, TaskDraft
from tests.examples import some
from tests.mutations import mutation
from tests.unit.benchmarks.api_bank import api_bank_cases as cases
from tests.unit.benchmarks.data import deep, official
from tests.unit.domains.played_turns import call, hostile, played

LOADING = "genenv_core/benchmarks/api_bank/loading.py"

AGENDA = "AddAgenda-AddAlarm-GetUserToken-level-2-1.jsonl"
SEARCHED = "AddAgenda-level-3-1.jsonl"
NOT_FOUND = 14
"""Calls of level 2 whose tool the searcher did not find before; the official files have it so."""


@cache
def bank(folder: Path) -> ApiBankDomain:
    return ApiBankDomain.from_options({"data": str(folder)})


@pytest.fixture
def domain() -> ApiBankDomain:
    return bank(official("apibank"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> ApiBankDomain:
    """Return the domain with a download made by hand."""
    return bank(cases.write_download(tmp_path_factory.mktemp("api_bank")))


def suite_of(domain: ApiBankDomain) -> ApiBank:
    assert isinstance(domain.suite, ApiBank)
    return domain.suite


def draft(domain: ApiBankDomain, item: str) -> TaskDraft:
    return next(one for one in domain.items() if one.spec["item"] == item)


def as_said(gold: Any) -> str:
    return call(gold.tool.name, **gold.arguments) if isinstance(gold, RecordedCall) else gold


@pytest.mark.slow
def test_gold_that_is_played_gets_the_verdict_of_gold(domain: ApiBankDomain) -> None:
    suite, missing = suite_of(domain), 0
    drafts = domain.items()
    assert len(drafts) == 1307
    for one in drafts:
        item = one.spec["item"]
        gold = suite.gold[item]
        messages, done = played(domain, one, [as_said(gold)])
        assert done and messages[-1]["role"] == "assistant"
        found = domain.verdict(one, messages)
        if not isinstance(gold, RecordedCall):
            assert found == suite.judge(item, gold, "match") and found.valid
            continue
        text = cases.spelled(gold.tool.name, dict(gold.arguments))
        judged = suite.judge(item, text, "match")
        assert found.valid and judged.valid and found.parts["error"] == judged.parts["error"]
        assert suite.judge(item, suite.playable(item).prediction([_said(gold)]), "strict").valid
        wrong, _ = played(domain, one, [call(gold.tool.name, **{**gold.arguments, "extra": "x"})])
        assert not domain.score(one, wrong).success
        tools = [tool["function"]["name"] for tool in domain.tools_of(one)]
        missing += gold.tool.name not in tools
    assert missing == NOT_FOUND


def _said(gold: RecordedCall) -> Said:
    return Said("", (Call(gold.tool.name, dict(gold.arguments)),))


def test_the_small_download_is_played_too(small: ApiBankDomain) -> None:
    for one in small.items():
        messages, done = played(small, one, [as_said(suite_of(small).gold[one.spec["item"]])])
        assert done and small.score(one, messages).success, one.spec


@mutation(
    "a recorded call is shown as Python has it", "genenv_core/benchmarks/api_bank/suite.py",
    "return spelled(Call(gold.tool.name, dict(gold.arguments)))", "return str(gold)",
)  # fmt: skip
def test_the_right_answer_that_is_shown_is_judged_right(small: ApiBankDomain) -> None:
    """Of the official download, all 1,307 are: `test_gold_that_is_played_gets_...` spells alike."""
    suite = suite_of(small)
    assert isinstance(suite, NamesGold)
    assert {type(gold) for gold in suite.gold.values()} == {RecordedCall, str}
    for item, gold in suite.gold.items():
        shown = suite.expected(item)
        assert suite.judge(item, shown, "strict").valid
        assert isinstance(gold, RecordedCall) or shown == gold


def test_the_dialogue_before_an_item_is_shown(domain: ApiBankDomain) -> None:
    suite = suite_of(domain)
    messages = suite.playable(f"lv1/{AGENDA}#2").messages
    assert [message["role"] for message in messages] == [
        "system", "user", "assistant", "user", "assistant", "user",
        "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    asking, answered = messages[6], messages[7]
    assert asking["content"] == "Thank you."
    (made,) = asking.get("tool_calls", [])
    assert made["function"] == {
        "name": "GetUserToken",
        "arguments": {"username": "JaneSmith", "password": "password"},
    }
    assert answered == {
        "role": "tool",
        "name": "GetUserToken",
        "content": '{"token": "o8i7u6y5t4r3e2w1q0"}',
    }
    assert messages[-1]["content"] == GO_ON  # the assistant spoke last
    assert "Make the API call that comes next" in messages[0]["content"]
    assert "The current year is 2023." in messages[0]["content"]
    assert "ToolSearcher" not in messages[0]["content"]
    response = suite.playable(f"lv1/{AGENDA}#1").messages
    assert response[:8] == [response[0], *messages[1:8]] and len(response) == 8
    assert "Make no call" in response[0]["content"]


@mutation(
    "a model sees the recorded call that it should make", LOADING,
    "before = turns[:at]", "before = turns[: at + 1]",
)  # fmt: skip
def test_nothing_after_an_item_is_shown(domain: ApiBankDomain) -> None:
    suite = suite_of(domain)
    for item in [*suite.items][::9]:
        gold = suite.gold[item]
        messages = suite.playable(item).messages
        made = [one["function"] for m in messages for one in m.get("tool_calls", [])]
        before = [turn for turn in suite.download.items[item].before if turn.who == "tool"]
        assert [one["name"] for one in made] == [turn.name for turn in before]
        assert messages[-1]["role"] in ("user", "tool")
        if not isinstance(gold, RecordedCall) and len(gold) > 40:
            assert not any(gold in message["content"] for message in messages[1:])


@mutation(
    "tools that have to be searched for are there from the start", LOADING,
    "named = found_tools(before) if searches else called_tools(turns)",
    "named = called_tools(turns)",
)  # fmt: skip
def test_the_tools_are_those_that_are_known(domain: ApiBankDomain) -> None:
    def names(item: str) -> list[str]:
        tools = suite_of(domain).playable(item).tools
        return [tool["function"]["name"] for tool in tools]

    assert names(f"lv1/{AGENDA}#0") == names(f"lv1/{AGENDA}#4") == [
        "AddAgenda", "AddAlarm", "GetUserToken"
    ]  # fmt: skip
    assert names(f"lv2/{SEARCHED}#0") == ["ToolSearcher"]
    assert names(f"lv2/{SEARCHED}#2") == ["ToolSearcher", "GetUserToken", "AddAgenda"]
    assert names("lv3/0.0") == ["ToolSearcher"]
    assert names("lv3/0.1") == names("lv3/0.2") == ["ToolSearcher", "QueryMeeting"]
    assert names("lv3/0.response") == ["ToolSearcher", "QueryMeeting", "EmailReminder"]
    asked = suite_of(domain).playable("lv3/0.0").messages
    assert "2023" not in asked[0]["content"] and "ToolSearcher" in asked[0]["content"]
    # Level 3 has tools of its own under names that level 1 has too.
    tool = suite_of(domain).playable("lv3/0.1").tools[1]["function"]
    assert list(tool["parameters"]["properties"]) == ["user_name"]


def test_a_schema_says_types_and_what_may_be_left_out() -> None:
    declared = {
        "name": "Do",
        "description": "It does.",
        "input_parameters": {
            "a": {"type": "str", "description": "A."},
            "b": {"type": "int", "description": "[Optional] B."},
            "c": {"type": "list(str)", "description": "Only needed for the first call."},
            "d": {"type": "bool"},
            "e": {"type": "none of these"},
        },
    }
    function = schema(declared)["function"]
    kinds = {key: one["type"] for key, one in function["parameters"]["properties"].items()}
    assert kinds == {"a": "string", "b": "integer", "c": "array", "d": "boolean", "e": "string"}
    assert function["parameters"]["required"] == ["a", "d", "e"]
    assert (function["name"], function["description"]) == ("Do", "It does.")


def test_turns_become_messages_that_alternate() -> None:
    turns = [
        DialogueTurn("user", "hi"),
        DialogueTurn("assistant", "one"),
        DialogueTurn("assistant", "two"),
        DialogueTurn("tool", "A", {"x": 1}, {"y": [2]}),
        DialogueTurn("tool", "B", {}, "done"),
        DialogueTurn("assistant", "three"),
    ]
    messages = chat(turns)
    assert [(m["role"], m["content"]) for m in messages] == [
        ("user", "hi"),
        ("assistant", "one\ntwo"),
        ("tool", '{"y": [2]}'),
        ("assistant", ""),
        ("tool", "done"),
        ("assistant", "three"),
        ("user", GO_ON),
    ]
    assert [len(m.get("tool_calls", [])) for m in messages] == [0, 1, 0, 1, 0, 0, 0]
    assert chat(turns[:1]) == [{"role": "user", "content": "hi"}]
    assert written({"a": "é"}) == '{"a": "é"}' and written("x") == "x"


def test_what_the_searcher_finds_is_known_afterwards() -> None:
    turns = [
        DialogueTurn("tool", "ToolSearcher", {}, [{"name": "A"}, {"name": "B"}, "odd", {}]),
        DialogueTurn("tool", "A", {}, {"name": "no tool"}),
        DialogueTurn("tool", "ToolSearcher", {}, {"name": "A"}),
        DialogueTurn("tool", "ToolSearcher", {}, {"exception": "none"}),
    ]
    assert found_tools(turns) == ["ToolSearcher", "A", "B"]
    assert found_tools([]) == ["ToolSearcher"]


TEMPLATES = ("qwen2_5", "qwen3", "llama3_1")


@pytest.mark.parametrize("name", some(TEMPLATES, TEMPLATES[:1]))
def test_templates_write_the_dialogue_out(domain: ApiBankDomain, name: str) -> None:
    spec = importlib.util.find_spec("trl")
    assert spec and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "chat_templates"
    for item in [*suite_of(domain).items][::80]:
        sample = suite_of(domain).playable(item)
        text = rendered((folder / f"{name}.jinja").read_text(), sample.messages, sample.tools)
        for message in sample.messages:
            for made in message.get("tool_calls", []):
                arguments = json.dumps(made["function"]["arguments"], ensure_ascii=False)
                assert arguments in text and f'"{made["function"]["name"]}"' in text
            if message["role"] in ("user", "tool"):
                content = message["content"].strip()
                # Llama 3.1 has answers as JSON texts.
                assert content in text or json.dumps(content, ensure_ascii=False) in text
        for tool in sample.tools:
            assert tool["function"]["name"] in text


def test_the_tiny_template_writes_what_is_said_and_answered(domain: ApiBankDomain) -> None:
    sample = suite_of(domain).playable(f"lv1/{AGENDA}#2")
    text = rendered(CHAT_TEMPLATE, sample.messages, sample.tools)
    for message in sample.messages:
        assert f"<|{message['role']}|>{message['content']}" in text
    assert "tool_calls" not in text  # tiny models see the answers of earlier calls alone


def rendered(template: str, messages: Any, tools: Any) -> str:
    """Return a prompt as transformers renders it."""
    environment: Any = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def dumped(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment.filters["tojson"] = dumped
    return environment.from_string(template).render(
        messages=messages, tools=tools, add_generation_prompt=True, bos_token=""
    )


@pytest.mark.slow
def test_no_turn_raises_or_succeeds(domain: ApiBankDomain) -> None:
    for item in (f"lv1/{AGENDA}#0", f"lv1/{AGENDA}#1", "lv3/0.0", "lv3/0.response"):
        one = draft(domain, item)
        for turn in hostile("ToolSearcher" if item.startswith("lv3") else "GetUserToken"):
            messages, done = played(domain, one, [turn])
            assert done and not domain.score(one, messages).success, turn[:80]


@mutation(
    "the last call of a turn counts", "genenv_core/benchmarks/api_bank/playing.py",
    "return spelled(first.calls[0])", "return spelled(first.calls[-1])",
)  # fmt: skip
def test_the_first_call_of_the_first_turn_counts(small: ApiBankDomain) -> None:
    item = "lv1/GetUserToken.jsonl#0"
    sample = suite_of(small).playable(item)
    right = Call("GetUserToken", cases.GOLD["GetUserToken"])
    other = Call("GetToday", {})

    def valid(*said: Said) -> bool | None:
        return sample.judge(sample.prediction(said), "match").valid

    assert valid(Said("I call it.", (right,))) and valid(Said("", (right, other)))
    assert not valid(Said("", (other, right))) and not valid(Said(""), Said("", (right,)))
    assert not valid() and not valid(Said("", (), ("{",)))
    assert valid(Said(f"API-Request: {cases.spelled(right.name, right.arguments)}"))
    response = suite_of(small).playable("lv1/GetUserToken.jsonl#1")
    assert response.prediction([Said("It is done.", (right,))]) == "It is done."
    assert response.prediction([Said("", (right,))]) == spelled(right)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "[F()]"),
        ({"a": "x y", "b": 7}, "[F(a='x y', b='7')]"),
        ({"a": 40.5, "b": True, "c": None}, "[F(a='40.5', b='True', c='None')]"),
        ({"a": ["x", "it's"]}, '[F(a=["x", "it\'s"])]'),
        ({"a": "one\ntwo\r\nthree"}, "[F(a='one two three')]"),
        ({"a": [1], "b": "it's"}, "[F(a=[1], b='it\\'s')]"),
        ({"a": [1], "b": "['x']"}, "[F(a=[1], b='['x']')]"),
        ({"a-b c": "x"}, "[F(a_b_c='x')]"),
    ],
)
def test_a_call_is_spelled_as_the_finder_reads_it(arguments: JsonObject, text: str) -> None:
    assert spelled(Call("F", arguments)) == text
    found = find_call(text)
    assert found and found.text == text and found.name == "F"


def test_spelled_values_come_back() -> None:
    plain = spelled(Call("F", {"a": "x, y)] [z", "b": 12}))
    assert plain_arguments(plain[3:-2]) == {"a": "x, y)] [z", "b": "12"}
    lists = spelled(Call("F", {"a": ["x", {"b": 'say "hi"'}], "c": "it's"}))
    assert full_arguments(lists[3:-2]) == {"a": ["x", {"b": 'say "hi"'}], "c": "it's"}
    assert plain_arguments(spelled(Call("F", {"a": "it's"}))[3:-2])["a"] == "it"  # as officially
    assert spelled(Call("F", {"a": deep(5000)})) == "[F(a=[])]"


def test_items_carry_no_answer(domain: ApiBankDomain) -> None:
    one = draft(domain, f"lv1/{AGENDA}#0")
    assert one.ground_truth == "" and one.spec == {"item": f"lv1/{AGENDA}#0"}
    assert one.prompt.startswith("Can you add a schedule for me") and GO_ON not in one.prompt
    (made,) = domain.calls_of(one)
    assert made == Call("GetUserToken", {"username": "JaneSmith", "password": "password"})
    assert domain.calls_of(draft(domain, f"lv1/{AGENDA}#1")) == ()


def test_limits_and_headline_are_those_of_the_results(small: ApiBankDomain) -> None:
    suite = suite_of(small)
    names = {
        name
        for item in suite.items
        for name in suite.measures(item, suite.judge(item, "", "match"))
    }
    assert BENCHMARK.headline in names and BENCHMARK.limits.turns == 1
