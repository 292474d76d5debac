"""BFCL's items as a model plays them.

Invariants: functions become tools of JSON schema with names that interfaces take, and calls get
their own names back; a right answer, played turn by turn through the domain, gets the verdict that
gold predictions get, for every item; nothing that a model says raises, hangs or goes on for ever,
and none of it is right; the prediction that the turns give is what was played; a text of a call
reads back as this call or as none; attempts side by side do not see one another, and keep nothing
when they end; a turn ends as officially; withheld functions come in their turn.
"""

from __future__ import annotations

import dataclasses
import decimal
import gc
import json
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from genenv_core.benchmarks.bfcl import BENCHMARK, suite
from genenv_core.benchmarks.bfcl.calls import check_presence
from genenv_core.benchmarks.bfcl.categories import Category, Language, Matching
from genenv_core.benchmarks.bfcl.playing import RULES, SingleTurn
from genenv_core.benchmarks.bfcl.rows import Row
from genenv_core.benchmarks.bfcl.suite import Bfcl, check_row, verdict_of
from genenv_core.benchmarks.bfcl.tools import LONGEST_NAME, tool_names, tools_of
from genenv_core.benchmarks.bfcl.training import BfclDomain, BfclOptions, bfcl_domain
from genenv_core.benchmarks.bfcl.turns import playing
from genenv_core.benchmarks.bfcl.turns.backends import Absent, Backends, Side, backends
from genenv_core.benchmarks.bfcl.turns.playing import MORE, MOST_STEPS, ManyTurns, TurnsAttempt
from genenv_core.benchmarks.bfcl.turns.rows import TurnsRow
from genenv_core.benchmarks.bfcl.turns.spelling import spelled
from genenv_core.benchmarks.bfcl.turns.texts import NoCall, addressed, read_call
from genenv_core.domains.tool_calls import canonical
from genenv_core.domains.tool_calls import said as read_text
from genenv_core.domains.tool_calls import written as call_text
from genenv_core.errors import ConfigError, DataError
from genenv_core.types import Call, JsonObject, Message, Observation, Said, TaskDraft
from tests.mutations import mutation
from tests.unit.benchmarks.bfcl.bfcl_gold import gold_prediction
from tests.unit.benchmarks.bfcl.test_bfcl import written
from tests.unit.benchmarks.bfcl.test_bfcl_turns import double, row_of
from tests.unit.benchmarks.data import deep, official
from tests.unit.domains.test_tool_calls import NO_ARGUMENTS

PLAYING = "genenv_core/benchmarks/bfcl/playing.py"
TURNS = "genenv_core/benchmarks/bfcl/turns/playing.py"
SPELLING = "genenv_core/benchmarks/bfcl/turns/spelling.py"
TOOLS = "genenv_core/benchmarks/bfcl/tools.py"

NEVER_RIGHT = {
    "simple_java_36", "simple_java_64", "simple_java_65", "live_simple_106-63-0",
    "live_simple_112-68-0",
}  # fmt: skip
"""Items whose gold prediction is wrong; docs/benchmarks/bfcl.md says why."""

PLAY = {
    "name": "spotify.play",
    "description": "Plays.",
    "parameters": {
        "type": "dict",
        "properties": {"artist": {"type": "string"}, "minutes": {"type": "integer"}},
        "required": ["artist"],
    },
}
USER: Message = {"role": "user", "content": "Play ABBA."}


def said(*calls: tuple[str, JsonObject], text: str = "") -> Said:
    return Said(text, tuple(Call(name, arguments) for name, arguments in calls))


def single(kind: Matching = Matching.SIMPLE, *functions: JsonObject, gold: Any = ()) -> SingleTurn:
    language = Language.PYTHON
    wanted = gold or ([{"spotify.play": {"artist": ["ABBA"]}}] if kind.has_gold else [])
    row = Row("x_0", Category("x", kind, language), functions or [PLAY], wanted, [USER])
    return SingleTurn(
        row, lambda prediction, mode: verdict_of(check_row(row, prediction, mode == "underscores"))
    )


@pytest.mark.parametrize("spelled_as", NO_ARGUMENTS)
def test_a_call_without_arguments_is_right_however_it_is_spelled(spelled_as: JsonObject) -> None:
    """As in `live_simple_247-129-0`, in a text and as endpoints give it."""
    name = "version_api.VersionApi.get_version"
    parameters = {"type": "dict", "required": [], "properties": {}}
    item = single(
        Matching.SIMPLE,
        {"name": name, "description": "V.", "parameters": parameters},
        gold=[{name: {}}],
    )
    call = {"name": name.replace(".", "_"), **spelled_as}
    for text in (call_text(call), canonical("", [{"type": "function", "function": call}])):
        assert item.judge(item.prediction([read_text(text)]), "underscores").valid


def test_types_become_those_of_json_schema() -> None:
    described = {
        "a": {"type": "dict", "properties": {"b": {"type": "float"}}, "required": ["b"]},
        "c": {"type": "tuple", "items": {"type": "array", "items": {"type": "integer"}}},
        "d": {"type": "any", "description": "D.", "optional": True},
        "e": {"type": "string", "enum": ["x"], "default": "x"},
        "f": {"type": "array", "items": {"type": "dict", "properties": {"g": {"type": "float"}}}},
        "h": {"type": "", "items": 5},
    }
    function = {
        "name": "a.b",
        "description": "Does.",
        "parameters": {"type": "dict", "properties": described, "required": ["a"]},
        "response": {"type": "dict", "properties": {"z": {"type": "float"}}},
    }
    (tool,) = tools_of([function], Language.PYTHON)
    assert tool["type"] == "function"
    assert tool["function"]["name"] == "a_b"
    assert tool["function"]["description"] == (
        'Does. It returns {"type": "object", "properties": {"z": {"type": "number"}}}'
    )
    assert tool["function"]["parameters"] == {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": "object", "properties": {"b": {"type": "number"}}, "required": ["b"]},
            "c": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            "d": {"description": "D."},
            "e": {"type": "string", "enum": ["x"], "default": "x"},
            "f": {"type": "array", "items": {"type": "object", "properties": {
                "g": {"type": "number"}}}},
            "h": {},
        },
    }  # fmt: skip


def test_arguments_of_java_and_javascript_are_texts_that_name_their_type() -> None:
    described = {
        "a": {"type": "ArrayList", "description": "A.", "items": {"type": "long"}},
        "b": {"type": "any"},
        "c": {"type": "dict", "properties": {"x": {"type": "integer"}}},
    }
    function = {"name": "f", "parameters": {"type": "dict", "properties": described}}
    function["parameters"]["required"] = []
    for language, name in ((Language.JAVA, "Java"), (Language.JAVASCRIPT, "JavaScript")):
        tool = tools_of([function], language)[0]["function"]
        assert f"a function of {name};" in tool["description"]
        properties = tool["parameters"]["properties"]
        assert {one["type"] for one in properties.values()} == {"string"}
        assert properties["a"]["description"] == (
            f"A. Write a {name} expression of the type ArrayList as text. "
            "Its elements are of the type long."
        )
        assert properties["b"]["description"] == f"Write any {name} expression as text."
        assert '{"x": {"type": "integer"}}' in properties["c"]["description"]


@mutation("two functions have one tool", TOOLS, "while name != tool and", "while name == tool and")
def test_names_of_tools_are_allowed_and_distinct() -> None:
    names = ["a.b", "a_b", "a b", "é", "x" * 80, "x" * 81, "ok-1", ""]
    found = tool_names(names)
    assert found[:3] == ["a_b_2", "a_b", "a_b_3"] and found[6] == "ok-1"
    assert len(set(found)) == len(names)
    assert all(len(name) <= LONGEST_NAME for name in found)
    assert all(name.replace("-", "_").isidentifier() and name.isascii() for name in found)


@mutation(
    "a call keeps the tool's name", PLAYING, "self._names.get(call.name, call.name)", "call.name"
)
@mutation("dots of a call count", PLAYING, 'mode == "underscores" and', 'mode == "dots" and')
def test_a_prediction_has_the_item_s_own_names() -> None:
    item = single()
    turn = said(("spotify_play", {"artist": "ABBA"}))
    assert item.prediction([turn]) == [{"spotify.play": {"artist": "ABBA"}}]
    assert item.prediction([]) == item.prediction([Said("none")]) == []
    assert item.prediction([said(("other", {}))]) == [{"other": {}}]
    both = {"name": "spotify_play", "parameters": PLAY["parameters"]}
    assert single(Matching.MULTIPLE, PLAY, both).prediction(
        [said(("spotify_play_2", {}), ("spotify_play", {}))]
    ) == [{"spotify.play": {}}, {"spotify_play": {}}]
    for mode in BENCHMARK.modes:
        assert item.judge(item.prediction([turn]), mode).valid is True
        wrong = item.prediction([said(("spotify_play", {"artist": "Abba X"}))])
        assert item.judge(wrong, mode).valid is False
    # Only the first turn counts: the attempt ends with it.
    assert item.prediction([Said(""), turn]) == []
    assert item.begin(0).answer(turn).done


@mutation(
    "an unreadable call is none",
    PLAYING,
    "is Matching.IRRELEVANCE else text",
    "is Matching.SIMPLE else text",
)
@pytest.mark.parametrize("kind", [kind for kind in Matching if kind is not Matching.TURNS])
def test_a_call_that_cannot_be_read_is_wrong_in_every_category(kind: Matching) -> None:
    item = single(kind)
    right = said(("spotify_play", {"artist": "ABBA"})).calls
    for turn in (Said("", (), ("{",)), Said("", right, ("{",)), Said("", (), ("",))):
        assert item.judge(item.prediction([turn]), "official").valid is False, turn
    if kind is Matching.IRRELEVANCE:
        assert item.judge(item.prediction([Said("There is none.")]), "official").valid is True
        assert check_presence("{", kind) is None  # the text alone would be no call


def test_an_item_s_own_system_message_follows_the_rules() -> None:
    system: Message = {"role": "system", "content": "Be brief."}
    row = Row("x_0", Category("x", Matching.SIMPLE), [PLAY], [], [system, USER])
    messages = SingleTurn(row, lambda prediction, mode: verdict_of(None)).messages
    assert messages == [{"role": "system", "content": f"{RULES}\n\nBe brief."}, USER]
    assert single().messages == [{"role": "system", "content": RULES}, USER]


def test_an_item_without_a_question_is_judged_and_not_played(tmp_path: Path) -> None:
    written(tmp_path, "irrelevance", [{"id": "irrelevance_0"}])
    items = BENCHMARK.load(tmp_path)
    assert items.judge("irrelevance_0", [], "official").valid is True
    with pytest.raises(DataError, match="irrelevance_0 of BFCL has no 'question'"):
        items.playable("irrelevance_0")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"question": "Play."}, "'question'"), ({"question": [["Play."]]}, "'question'"),
        ({"question": [[{"role": "tool", "content": "x"}]]}, "'question'"),
        ({"question": [[], []]}, "2 turns"), ({"function": [5]}, "'function'"),
    ],
)  # fmt: skip
def test_a_broken_question_is_refused(tmp_path: Path, row: Any, problem: str) -> None:
    written(tmp_path, "irrelevance", [{"id": "irrelevance_0", **row}])
    with pytest.raises(DataError, match=problem):
        BENCHMARK.load(tmp_path)


DESCRIBED = {"name": "logout", "parameters": {"properties": {}, "required": []}}


def many_turns(data: Path, question: JsonObject, *described: object) -> Any:
    """Write a download of one multi-turn item and load it."""
    turns = [[{"role": "user", "content": "Log me out."}], []]
    basis = {"id": "multi_turn_base_0", "involved_classes": ["TicketAPI"], "initial_config": {}}
    answer = {"id": "multi_turn_base_0", "ground_truth": [["logout()"], []]}
    written(data, "multi_turn_base", [{**basis, "question": turns, **question}], [answer])
    (data / "multi_turn_func_doc").mkdir(exist_ok=True)
    lines = "".join(f"{json.dumps(one)}\n" for one in described)
    (data / "multi_turn_func_doc" / "ticket_api.json").write_text(lines)
    return BENCHMARK.load(data)


def test_a_download_describes_the_functions_of_classes(tmp_path: Path) -> None:
    items = many_turns(tmp_path, {"missed_function": {"1": ["logout"]}}, DESCRIBED)
    item = items.playable("multi_turn_base_0")
    assert names_of(item) == []
    assert [tool["function"]["name"] for tool in brought(item, 1)] == ["logout"]
    other = many_turns(tmp_path, {"missed_function": {}}, {**DESCRIBED, "name": "login"})
    assert names_of(other.playable("multi_turn_base_0")) == ["login"]
    assert many_turns(tmp_path, {"missed_function": {}}, DESCRIBED).digest != other.digest


@pytest.mark.parametrize(
    ("question", "described", "problem"),
    [
        ({"question": [[]]}, DESCRIBED, "1 turns where gold has 2"),
        ({"missed_function": {"x": []}}, DESCRIBED, "'missed_function'"),
        ({"missed_function": {"0": ["a", 5]}}, DESCRIBED, "'missed_function'"),
        ({}, {"name": "x"}, "not one described function a line"),
    ],
)
def test_a_broken_item_with_turns_is_refused(
    tmp_path: Path, question: Any, described: Any, problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        many_turns(tmp_path, question, described)


def turns_of(*texts: str | None) -> list[list[Message]]:
    return [[{"role": "user", "content": text}] if text else [] for text in texts]


def item_of(
    row: TurnsRow,
    monkeypatch: pytest.MonkeyPatch,
    missed: dict[int, list[str]] | None = None,
    found: Backends | None = None,
) -> ManyTurns:
    """Return an item on doubles of the classes, whose functions are described here."""
    shelf = found or double()
    monkeypatch.setattr(playing, "backends", lambda: shelf)
    monkeypatch.setattr(suite, "backends", lambda: shelf)
    texts = [None if missed and turn in missed else f"turn {turn}" for turn in range(len(row.gold))]
    row = dataclasses.replace(row, turns=turns_of(*texts), missed=missed or {})
    described = [
        {"name": name, "parameters": {"type": "dict", "properties": {}, "required": []}}
        for name in ("put", "tag", "look", "echo", "pay")
    ]
    items = Bfcl([row], "0" * 64, {"Shelf": described})
    found_item = items.playable(row.id)
    assert isinstance(found_item, ManyTurns)
    return found_item


def names_of(item: ManyTurns) -> list[str]:
    return [tool["function"]["name"] for tool in item.tools]


PUT, LOOK, DONE = said(("put", {"item": 2})), said(("look", {})), Said("Done.")


@mutation(
    "a turn without an end counts",
    TURNS,
    "        return turns\n",
    "        return turns + [steps] * bool(steps)\n",
)
def test_a_turn_goes_on_until_an_answer_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    item = item_of(row_of(["put(item=2)", "look()"], []), monkeypatch)
    attempt = item.begin(0)
    assert [message["content"] for message in item.messages] == [playing.RULES, "turn 0"]
    both = Said("Now:", (*PUT.calls, *LOOK.calls, Call("no.such", {})))
    observed = attempt.answer(both)
    assert not observed.done
    assert [(m["role"], m.get("name")) for m in observed.messages] == [
        ("tool", "put"), ("tool", "look"), ("tool", "no.such"),
    ]  # fmt: skip
    assert [m["content"] for m in observed.messages[:2]] == ['{"put": 2}', '{"items": [1, 2]}']
    assert "no function 'no.such'" in observed.messages[2]["content"]
    following = attempt.answer(DONE)
    assert (following.done, list(following.messages)) == (
        False,
        [{"role": "user", "content": "turn 1"}],
    )
    assert attempt.answer(DONE).done and attempt.answer(PUT).done
    prediction = item.prediction([both, DONE, DONE])
    assert prediction == [[["put(item=2)", "look()", "'no.such'()"]], []]
    assert item.judge(prediction, "official").valid is True
    # A turn that was not brought to its end is missing, so that the item fails.
    assert item.prediction([both]) == [] and item.prediction([both, DONE]) == prediction[:1]
    assert item.judge(prediction[:1], "official").valid is False


@mutation(
    "an unreadable call ends a turn",
    TURNS,
    "bool(said.calls or said.malformed)",
    "bool(said.calls)",
)
def test_wrong_calls_are_answered_with_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = item_of(row_of([]), monkeypatch).begin(0)
    turn = Said("", (Call("put", {}), Call("put", {"a b": 1}), Call("_secret", {})), ("{",))
    texts = [message["content"] for message in attempt.answer(turn).messages]
    assert "missing 1 required" in texts[0] and "unpacked" in texts[1]
    assert "no function '_secret'" in texts[2]
    assert texts[3] == playing.MALFORMED and len(texts) == 4
    only = attempt.answer(Said("", (), ("{", "}")))
    assert [m["content"] for m in only.messages] == [playing.MALFORMED] * 2 and not only.done


@mutation("steps of earlier turns count", TURNS, "self._turn + 1, 0", "self._turn + 1, self._steps")
@pytest.mark.parametrize("turn", [0, 1])
def test_one_step_too_many_ends_the_attempt_as_officially(
    monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    item = item_of(row_of([], ["put(item=2)"]), monkeypatch)
    attempt = item.begin(0)
    turns = [DONE] * turn + [PUT] + [LOOK] * (MOST_STEPS - 1)
    assert not any(attempt.answer(one).done for one in turns)
    assert MOST_STEPS == 20
    last = attempt.answer(LOOK)
    # It still runs, and the turn counts: in the last one all is judged as usual.
    assert last.done and len(last.messages) == 1
    prediction = item.prediction([*turns, LOOK])
    assert len(prediction) == turn + 1 and len(prediction[turn]) == MOST_STEPS + 1
    assert item.judge(prediction, "official").valid is (turn == 1)
    # What comes after it does not count.
    assert item.prediction([*turns, LOOK, DONE, DONE]) == prediction
    # One message less, and the attempt goes on; each turn has as many.
    assert len(item.prediction([*turns, DONE])) == turn + 1
    again = item_of(row_of([], [], []), monkeypatch).begin(0)
    assert not any(again.answer(one).done for one in ([LOOK] * MOST_STEPS + [DONE]) * 2)


@mutation(
    "functions kept back are there", TURNS, 'if one["function"]["name"] not in kept]', "if one]"
)
def test_functions_that_were_kept_back_come_in_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    item = item_of(row_of([], ["put(item=2)"], []), monkeypatch, {1: ["put", "tag"]})
    assert names_of(item) == ["look", "echo", "pay"]
    attempt = item.begin(0)
    (message,) = attempt.answer(DONE).messages
    functions, _, says = message["content"].rpartition("\n")
    assert message["role"] == "user" and says == MORE
    assert [tool["function"]["name"] for tool in json.loads(functions)] == ["put", "tag"]
    attempt.answer(PUT)
    assert attempt.answer(DONE).messages[0]["content"] == "turn 2"
    assert item.judge(item.prediction([DONE, PUT, DONE, DONE]), "official").valid is True
    # Officially too, a call of a function that was not told yet runs.
    early = item.begin(0).answer(PUT)
    assert early.messages[0]["content"] == '{"put": 2}'


def test_without_the_package_or_the_functions_an_item_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item = item_of(row_of(["look()"]), monkeypatch)
    absent = Absent("the back ends are not installed: say make bfcl-backends")
    monkeypatch.setattr(playing, "backends", lambda: absent)
    monkeypatch.setattr(suite, "backends", lambda: absent)
    with pytest.raises(ConfigError, match="make bfcl-backends"):
        item.begin(0)
    assert item.judge([[["look()"]]], "official").valid is None
    row = dataclasses.replace(row_of(["look()"]), turns=turns_of("turn 0"))
    bare = Bfcl([row], "0" * 64).playable(row.id)
    assert bare.messages
    with pytest.raises(ConfigError, match="multi_turn_func_doc/ has no functions of Shelf"):
        _ = bare.tools


def test_attempts_side_by_side_do_not_see_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    found = double()
    item = item_of(row_of([], []), monkeypatch, found=found)
    pay, tag = said(("pay", {"amount": 10})), said(("tag", {"label": "a"}))
    expected = ('{"balance": 90}', '{"balance": 80}', '{"labels": ["a"]}', '{"labels": ["a", "a"]}')
    first, second = item.begin(0), item.begin(1)
    for turn, texts in ((pay, expected[:2]), (tag, expected[2:])):
        for text in texts:
            for attempt in (first, second):
                assert attempt.answer(turn).messages[0]["content"] == text
            item.judge([[["pay(5)", "tag('b')"]], []], "official")  # a verdict in between


@mutation("a precision is forgotten", TURNS, "self._left = self._backends.left()", "pass")
def test_precisions_are_an_attempt_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    item = item_of(row_of([], classes=("MathAPI", "Shelf")), monkeypatch)
    before = decimal.getcontext().prec
    first, second = item.begin(0), item.begin(1)
    for precision in (3, 5):
        turn = said(("square_root", {"number": 2, "precision": precision}))
        first.answer(turn)
        assert (vars(first)["_left"].digits, vars(second)["_left"].digits) == (precision, before)
        for attempt in (second, first):
            attempt.answer(LOOK)
        assert (vars(first)["_left"].digits, vars(second)["_left"].digits) == (precision, before)
        assert decimal.getcontext().prec == before


def test_tools_that_say_too_much_end_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "MOST_RESULTS", 100)
    attempt = item_of(row_of([]), monkeypatch).begin(0)
    echo = said(("echo", {"text": "x" * 60}))
    assert not attempt.answer(echo).done
    assert attempt.answer(echo).done


@mutation("calls that are not judged run", TURNS, " or self._written > MOST_CHARACTERS:", ":")
@pytest.mark.parametrize("calls", [[("look", {})] * 2_001, [("put", {"item": "x" * 1_000_001})]])
def test_calls_beyond_what_is_judged_do_not_run(
    monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, JsonObject]]
) -> None:
    item = item_of(row_of(["look()"]), monkeypatch)
    monkeypatch.setattr(Side, "run", lambda side, text: pytest.fail("it runs"))
    attempt = item.begin(0)
    assert attempt.answer(said(*calls)) == Observation(done=True)
    assert item.judge(item.prediction([said(*calls)]), "official").valid is False


def test_an_attempt_that_has_ended_keeps_no_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    item = item_of(row_of([]), monkeypatch)
    attempt = item.begin(0)
    assert isinstance(attempt, TurnsAttempt)
    side: weakref.ref[Side] = weakref.ref(vars(attempt)["_side"])
    assert attempt.answer(DONE).done
    gc.collect()
    assert side() is None


@mutation(
    "calls beside an unreadable one are lost",
    TURNS,
    "steps.append([spelled(call) for call in one.calls])",
    "steps.append([] if one.malformed else [*map(spelled, one.calls)])",
)
def test_the_prediction_is_what_was_played(monkeypatch: pytest.MonkeyPatch) -> None:
    item = item_of(row_of(["put(item=2)"], ["look()"], []), monkeypatch)
    ran: list[str] = []
    run = Side.run

    def noted(side: Side, text: str) -> str:
        ran.append(text)
        return run(side, text)

    monkeypatch.setattr(Side, "run", noted)
    turns = [
        said(("put", {"item": "a'b\"\n"}), ("put", {"item": {"x": [None, True, 1.5]}})),
        Said("", (Call("tag", {"label": "é", "labels": ["\ud800"]}),), ("{",)), DONE,
        said(("look", {})), said(("echo", {"text": "put (1)"}), ("echo", {"class": 1})), DONE, DONE,
    ]  # fmt: skip
    attempt = item.begin(0)
    ends = [attempt.answer(turn).done for turn in turns]
    assert ends == [False] * 6 + [True]
    prediction = item.prediction(turns)
    assert [call for turn in prediction for step in turn for call in step] == ran
    assert [len(turn) for turn in prediction] == [2, 2, 0]


ARGUMENTS: list[JsonObject] = [
    {}, {"a": 1, "b": -1.5e300}, {"a": "it's \"so\"\n\\"}, {"a": [True, None, {"b c": [[]]}]},
    {"a": "\ud800 \0 é"}, {"a": {"1": {}}}, {"a": 10**400}, {"a": ""}, {"_x": "b=1)"},
]  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=repr)
def test_a_call_s_text_reads_back_as_the_call(arguments: JsonObject) -> None:
    read = read_call(addressed(spelled(Call("f", arguments)), {"f": "x"}))
    assert (read.method, read.arguments, read.named) == ("f", [], arguments)


NO_TEXT: list[Call] = [
    Call("f(", {}), Call("x.f", {}), Call("f(1) or f", {}), Call("", {}), Call("ｆ", {}),
    Call("f", {"a b": 1}), Call("f", {"a=1, b": 2}), Call("f", {"class": 1}), Call("f", {"": 1}),
    Call("f", {"ａ": 1}), Call("f", {"a": float("nan")}), Call("f", {"a": float("inf")}),
    Call("f", {"a": 10**5000}), Call("f);f", {}), Call("f\n", {}), Call("\ud800", {"a": 1}),
    Call("f", {"a": deep(100_000)}),
]  # fmt: skip


@mutation("a look-alike letter is a name", SPELLING, "name.isascii() and name", "name")
@pytest.mark.parametrize("call", NO_TEXT, ids=lambda call: ascii(call.name)[:20])
def test_a_call_without_a_text_reads_back_as_none(call: Call) -> None:
    text = spelled(call)
    text.encode()
    with pytest.raises(NoCall):
        read_call(addressed(text, {"f": "x", "a": "y"}))


HOSTILE: dict[str, str] = {
    "no text": "",
    "a text": "I will not.",
    "malformed": "<tool_call>{</tool_call>",
    "not closed": "<tool_call>" + call_text({"name": "spotify_play", "arguments": {}})[:-12],
    "no name": "<tool_call>{}</tool_call>",
    "a list": "<tool_call>[]</tool_call>",
    "unknown tool": call_text({"name": "no_such", "arguments": {"a": 1}}),
    "wrong types": call_text({"name": "spotify_play", "arguments": {"artist": [{}]}}),
    "unknown argument": call_text({"name": "spotify_play", "arguments": {"x": 1}}),
    "no number": '<tool_call>{"name": "spotify_play", "arguments": {"artist": NaN}}</tool_call>',
    "too many calls": call_text({"name": "spotify_play", "arguments": {"artist": "X"}}) * 2_001,
    "too many of the class": call_text({"name": "put", "arguments": {"item": 1}}) * 2_001,
    "deep": '<tool_call>{"name": "put", "arguments": {"item": ' + "[" * 100_000,
    "deep and closed": '<tool_call>{"name": "put", "arguments": {"item": '
    + "[" * 900 + "]" * 900 + "}}</tool_call>",
    "a long name": call_text({"name": "x" * 1_000, "arguments": {}}),
    "half a pair": call_text({"name": "\ud800", "arguments": {"\ud800": "\ud800"}}),
    "half a pair, known": call_text({"name": "echo", "arguments": {"text": "\ud800"}}),
    "chatter": "word " * 200_000,
    "long": call_text({"name": "put", "arguments": {"item": "x" * 1_000_001}}),
    "marks": "<tool_call>" * 50,
}  # fmt: skip


@pytest.fixture
def domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BfclDomain:
    """Return the domain on a download of three items, one of them with turns on doubles."""
    question = [[{"role": "user", "content": "Play some ABBA for me, please, and loudly."}]]
    gold = [{"spotify.play": {"artist": ["ABBA"]}}]
    simple = {"id": "simple_python_0", "question": question, "function": [PLAY]}
    written(tmp_path, "simple_python", [simple], [{"id": "simple_python_0", "ground_truth": gold}])
    relevant = {"id": "live_relevance_0", "question": question, "function": [PLAY]}
    written(tmp_path, "live_relevance", [relevant])
    found = BfclDomain(BfclOptions(data=str(tmp_path)))
    item = item_of(row_of(["put(item=2)"], ["look()"]), monkeypatch)
    assert isinstance(found.suite, Bfcl)
    found.suite.rows[item.row.id] = item.row
    found.suite.items[item.row.id] = "multi_turn_base"  # pyright: ignore[reportIndexIssue]
    return found


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_turn_raises_and_the_item_fails(domain: BfclDomain, text: str) -> None:
    for draft in domain.items():
        if draft.family == "live_relevance" and '<tool_call>{"name"' in text:
            continue  # any call is right there
        messages, done = list(domain.agent_messages(draft)), False
        episode = domain.episode(draft, 0)
        for _ in range(BENCHMARK.limits.turns):
            messages.append({"role": "assistant", "content": text})
            observed = episode.step(text)
            messages += observed.messages
            done = observed.done
            for message in observed.messages:
                json.dumps(message, ensure_ascii=False).encode()
                assert len(message.get("name", "")) <= LONGEST_NAME
            if done:
                break
        assert done, draft.spec
        assert domain.verdict(draft, messages).valid is False, draft.spec
        assert not domain.score(draft, messages).success


def test_without_the_package_items_of_several_turns_are_left_out_and_named(
    domain: BfclDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bfcl_domain, "backends", lambda: Absent("say make bfcl-backends"))
    alone = BfclDomain(domain.options)
    assert {draft.family for draft in alone.attempted()} == {"simple_python", "live_relevance"}
    assert len(alone.items()) == 3  # whose requests no training task may repeat
    assert alone.protocol() == {"left_out": "multi-turn: say make bfcl-backends"}
    monkeypatch.setattr(bfcl_domain, "backends", lambda: object())
    whole = BfclDomain(domain.options)
    assert whole.attempted() == whole.items()
    assert whole.protocol() == {}
    assert alone.version != whole.version  # so that its measurement is no hit later


def gold_turns(domain: BfclDomain, draft: TaskDraft) -> list[str]:
    """Return what an agent says that calls what gold calls."""
    assert isinstance(domain.suite, Bfcl)
    row = domain.suite.rows[draft.spec["item"]]
    item = domain.playable(draft)
    if isinstance(row, TurnsRow):
        assert isinstance(item, ManyTurns)
        turns: list[str] = []
        for turn in row.gold:
            if turn:
                turns.append("".join(_written(call, item) for call in turn))
            turns.append("That is all.")
        return turns
    if row.category.kind is Matching.RELEVANCE:
        calls: Sequence[JsonObject] = [{row.functions[0]["name"]: {}}]
    else:
        calls = gold_prediction(row)
    names = [function["name"] for function in row.functions]
    tools = dict(zip(names, tool_names(names), strict=True))
    said = [(tools[name], arguments) for call in calls for name, arguments in call.items()]
    texts = (call_text({"name": name, "arguments": arguments}) for name, arguments in said)
    return ["".join(texts) or "Nothing fits."]


def _written(call: str, item: ManyTurns) -> str:
    """Return a call of gold's as an agent writes it: with the parameters' names."""
    every = [*item.tools, *(one for turn in item.row.missed for one in brought(item, turn))]
    order = {one["function"]["name"]: one["function"]["parameters"]["properties"] for one in every}
    read = read_call(addressed(call, dict.fromkeys(order, "x")))
    named = {**dict(zip(order[read.method], read.arguments, strict=False)), **read.named}
    return call_text({"name": read.method, "arguments": named})


def brought(item: ManyTurns, turn: int) -> list[JsonObject]:
    return json.loads(item.turn(turn)[0]["content"].rpartition("\n")[0])


def check_gold(domain: BfclDomain, drafts: Iterator[TaskDraft]) -> int:
    """Play gold's calls; return of how many items."""
    count = 0
    for draft in drafts:
        messages, turns = list(domain.agent_messages(draft)), gold_turns(domain, draft)
        names = {tool["function"]["name"] for tool in domain.tools_of(draft)}
        assert names or draft.family == "live_irrelevance"
        episode = domain.episode(draft, 0)
        for number, text in enumerate(turns):
            messages.append({"role": "assistant", "content": text})
            observed = episode.step(text)
            messages += observed.messages
            assert observed.done is (number == len(turns) - 1), draft.spec
        item = str(draft.spec["item"])
        verdict = domain.verdict(draft, messages)
        assert verdict.valid is (item not in NEVER_RIGHT), (item, verdict)
        count += 1
    return count


def official_domain() -> BfclDomain:
    return BfclDomain(BfclOptions(data=str(official("bfcl"))))


def test_gold_played_in_one_turn_is_right_for_every_item() -> None:
    found = official_domain()
    drafts = (draft for draft in found.items() if not draft.family.startswith("multi_turn"))
    assert check_gold(found, drafts) == 2154


@pytest.mark.slow
def test_gold_played_in_turns_is_right_for_every_item() -> None:
    absent = backends()
    if isinstance(absent, Absent):
        pytest.skip(str(absent))
    found = official_domain()
    drafts = (draft for draft in found.items() if draft.family.startswith("multi_turn"))
    assert check_gold(found, drafts) == 800


def test_the_headline_is_a_category_of_the_download() -> None:
    assert BENCHMARK.headline in official_domain().suite.items.values()
    assert BENCHMARK.limits.turns >= 8 * (MOST_STEPS + 1)
