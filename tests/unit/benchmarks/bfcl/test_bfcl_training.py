"""The domain bfcl's training side.

Invariants: base tasks, held-out tasks and examples are distinct, deterministic and disjoint; each
of them is sound, says what it asks for, and is what its program spells; no text makes the reader
raise, and each flaw of a generation has its reason; BFCL's own checker accepts each ground truth; a
generation that repeats an item is rejected; a user's rows are tasks, and broken ones are refused.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from genenv_core.benchmarks.bfcl.playing import NO_FUNCTION
from genenv_core.benchmarks.bfcl.training import BfclDomain, BfclOptions
from genenv_core.benchmarks.bfcl.training.catalogue import CATALOGUE
from genenv_core.benchmarks.bfcl.training.descriptions import described
from genenv_core.benchmarks.bfcl.training.drawing import MOST_CALLS, draw_program
from genenv_core.benchmarks.bfcl.training.made import NOTHING_FITS
from genenv_core.benchmarks.bfcl.training.program import KINDS, LONGEST, Program, read_program
from genenv_core.domains.protocol import ConstrainsEnv, KnowsSolution, SeedData
from genenv_core.domains.registry import get_domain
from genenv_core.domains.tool_calls import written as call_text
from genenv_core.errors import ConfigError, DataError, DomainError
from genenv_core.play.certificate import answer_verdict
from genenv_core.types import AgentHistory, Context, JsonObject, Rejected, Rejection, TaskDraft
from tests.unit.benchmarks.bfcl.test_bfcl import written
from tests.unit.domains.checking import flaws
from tests.unit.domains.domain_contract import DomainContract

QUESTION = (
    "Please tell me which ferries leave the harbour of Piraeus for Naxos on the first of May."
)
FERRIES = {
    "name": "ferries.find",
    "description": "Finds ferries.",
    "parameters": {
        "type": "dict",
        "properties": {"origin": {"type": "string"}, "target": {"type": "string"}},
        "required": ["origin", "target"],
    },
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a download of one item."""
    folder = tmp_path / "bfcl"
    folder.mkdir()
    question = [[{"role": "user", "content": QUESTION}]]
    gold = [{"ferries.find": {"origin": ["Piraeus"], "target": ["Naxos"]}}]
    item = {"id": "simple_python_0", "question": question, "function": [FERRIES]}
    written(folder, "simple_python", [item], [{"id": "simple_python_0", "ground_truth": gold}])
    return folder


@pytest.fixture
def domain(data: Path) -> BfclDomain:
    """Return the domain on that download."""
    found = get_domain("bfcl", {"data": str(data)})
    assert isinstance(found, BfclDomain)
    return found


def spelled(value: object) -> str:
    return json.dumps(value)


def parsed(domain: BfclDomain, value: object) -> TaskDraft | Rejected:
    (found,) = domain.parse(value if isinstance(value, str) else spelled(value))
    return found


def task(domain: BfclDomain, value: object) -> TaskDraft:
    found = parsed(domain, value)
    assert isinstance(found, TaskDraft), found
    return found


USER = [{"role": "user", "content": "x"}]


class TestBfcl(DomainContract):
    """The contract."""

    protocols = (KnowsSolution, ConstrainsEnv, SeedData)
    alien = (
        {},
        {"messages": []},
        {"messages": [], "functions": [FERRIES], "ground_truth": []},
        {"messages": USER, "functions": [], "ground_truth": []},
        {"messages": USER, "functions": [FERRIES], "ground_truth": [5]},
        {"messages": USER, "functions": [FERRIES], "ground_truth": [{"other": {}}]},
    )

    def apart(self, draft: TaskDraft) -> str:
        return draft.prompt


def test_base_tasks_are_of_all_kinds_and_no_items(domain: BfclDomain) -> None:
    drafts = domain.base_tasks(1, 100)
    assert {draft.family for draft in drafts} == set(KINDS)
    assert not any("item" in draft.spec for draft in drafts)
    for draft in drafts:
        assert domain.episode(draft, 0).step(draft.ground_truth).done
        assert answer_verdict(draft, domain, draft.ground_truth).success


def test_examples_are_right(domain: BfclDomain) -> None:
    for prompt, answer in domain.agent_examples(3, 40):
        assert [message["role"] for message in prompt] == ["system", "user"]
        assert answer.startswith(("<tool_call>", NO_FUNCTION))
    rates = Counter[str]()
    for prompt, answer in domain.env_examples(3, 40, 1.0):
        assert task(domain, answer).program == answer
        assert prompt[0]["role"] == "system" and prompt[-1]["content"].endswith("; new:")
        rates[prompt[-1]["content"].split(";")[0]] += 1
    assert len(rates) > 3


@pytest.mark.parametrize("difficulty", range(1, 9))
def test_a_difficulty_is_calls_and_functions_that_are_not_called(difficulty: int) -> None:
    rng = random.Random(difficulty)
    seen: set[str] = set()
    for _ in range(60):
        program = draw_program(rng, difficulty)
        assert program.difficulty == difficulty and len(program.calls) <= MOST_CALLS
        assert read_program(program.spelled(), 8) == program
        seen.add(program.family)
    many = {"parallel"} if 1 < difficulty <= MOST_CALLS else set()
    more = {"multiple", "parallel_multiple"} if difficulty > 1 else {"simple"}
    assert seen == {"irrelevance"} | many | more


def test_a_catalogue_s_requests_fit_its_functions() -> None:
    for name, entry in CATALOGUE.items():
        assert described(entry.function) == entry.function, name
        rng = random.Random(name)
        drawn = [entry.draw(rng) for _ in range(30)]
        assert len({sentence for sentence, _ in drawn}) > 10, name
        for sentence, arguments in drawn:
            found = read_program(
                spelled({"question": sentence, "functions": [name],
                         "calls": [{"name": name, "arguments": arguments}]}), 6)  # fmt: skip
            assert isinstance(found, Program), (sentence, found)
    assert 12 <= len(CATALOGUE) <= 20


def test_a_request_lets_values_be_worked_out() -> None:
    for seed in range(20):
        sentence, arguments = CATALOGUE["restaurants.book_table"].draw(random.Random(seed))
        found = re.search(r"for (\d) adults and (\d) child.* half past (\d)", sentence)
        assert found is not None
        adults, children, hour = map(int, found.groups())
        assert arguments["people"] == adults + children
        assert arguments["time"] == f"{hour + 12}:30"
        assert arguments.get("outdoors", False) is ("open air" in sentence)


def call_of(name: str, **arguments: Any) -> JsonObject:
    return {"name": name, "arguments": arguments}


OVEN = call_of("kitchen.set_oven", mode="grill", temperature=200, minutes=20)
GOOD: JsonObject = {
    "question": "Grill it at 200 degrees for twenty minutes, for the flat of Ada.",
    "functions": [
        "kitchen.set_oven",
        {
            "name": "move",
            "description": "Moves in.",
            "parameters": {
                "type": "object",
                "properties": {
                    "who": {"type": "object", "properties": {"name": {"type": "string"}}},
                    "rent": {"type": "number", "default": 5},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "floor": {"type": "integer"},
                    "lift": {"type": "boolean"},
                },
                "required": ["who"],
            },
        },
    ],
    "calls": [OVEN, call_of("move", who={"name": "Ada"}, tags=["a"])],
}


def test_a_generation_with_a_function_of_its_own_is_a_task(domain: BfclDomain) -> None:
    found = task(domain, GOOD)
    assert flaws(found, domain) == []
    assert (found.family, found.difficulty) == ("parallel_multiple", 2.0)
    tools = {tool["function"]["name"] for tool in domain.tools_of(found)}
    assert tools == {"kitchen_set_oven", "move"}
    assert task(domain, found.program) == found
    # What is optional and has a default may be given it; what has none may not be made up.
    for more, expected in (({"rent": 5}, True), ({"rent": 6}, False), ({"lift": True}, False)):
        calls = [
            call_of("kitchen_set_oven", **OVEN["arguments"]),
            call_of("move", who={"name": "ada"}, tags=["A"], **more),
        ]
        answer = "".join(map(call_text, reversed(calls)))
        assert answer_verdict(found, domain, answer).success is expected, more


def test_an_argument_that_is_the_default_may_be_left_out(domain: BfclDomain) -> None:
    value = copy.deepcopy(GOOD)
    value["calls"] = [call_of("move", who={"name": "Ada"}, rent=5)]
    found = task(domain, value)
    for arguments, expected in (
        ({"who": {"name": "Ada"}}, True), ({"who": {"name": "Ada"}, "rent": 5.0}, True),
        ({"who": {}}, False),
    ):  # fmt: skip
        answer = call_text({"name": "move", "arguments": arguments})
        assert answer_verdict(found, domain, answer).success is expected, arguments


def nested(depth: int) -> JsonObject:
    value: JsonObject = {"type": "string"}
    for _ in range(depth):
        value = {"type": "array", "items": value}
    return value


def changed(place: str, value: Any = None) -> JsonObject:
    """Return GOOD with another value at a place, or without it."""
    found = copy.deepcopy(GOOD)
    *way, last = (int(part) if part.isdecimal() else part for part in place.split("/"))
    inner: Any = found
    for part in way:
        inner = inner[part]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return found


PARAMETERS = "functions/1/parameters"
MUTATIONS: list[tuple[object, Rejection, str]] = [
    ("[]", Rejection.UNPARSEABLE, "no JSON object"),
    (f"```json\n{json.dumps(GOOD)}\n```", Rejection.UNPARSEABLE, "no JSON object"),
    ("x" * (LONGEST + 1), Rejection.OUT_OF_RANGE, "characters"),
    (changed("calls"), Rejection.UNPARSEABLE, "the fields are not question, functions, calls"),
    ({**GOOD, "more": 1}, Rejection.UNPARSEABLE, "the fields are not"),
    (changed("question", 5), Rejection.UNPARSEABLE, "question is no text"),
    (changed("calls", {}), Rejection.UNPARSEABLE, "calls no list"),
    (changed("question", " "), Rejection.OUT_OF_RANGE, "the question has no characters"),
    (changed("question", "x" * 2_001), Rejection.OUT_OF_RANGE, "more than 2000"),
    (changed("question", "Do \ud800 it."), Rejection.UNPARSEABLE, "surrogate"),
    ({**GOOD, "functions": []}, Rejection.OUT_OF_RANGE, "one function at least"),
    (changed("functions", list(CATALOGUE)[:7]), Rejection.OUT_OF_RANGE, "7 functions"),
    (changed("calls", [OVEN] * 7), Rejection.OUT_OF_RANGE, "7 calls"),
    ({**GOOD, "functions": ["kitchen.set_oven", *list(CATALOGUE)[4:9]],
      "calls": [{**OVEN, "arguments": {**OVEN["arguments"], "minutes": n}} for n in (1, 2)]},
     Rejection.OUT_OF_RANGE, "the difficulty is 7"),
    (changed("functions/0", "no_such"), Rejection.INCONSISTENT, "no name of the catalogue"),
    (changed("functions/1", 5), Rejection.INCONSISTENT, "function 1: neither a name nor an object"),
    (changed("functions/1", GOOD["functions"][0]), Rejection.INCONSISTENT, "have one name"),
    (changed("functions/1/name", "a b"), Rejection.INCONSISTENT, "no name of a function"),
    (changed("functions/1/description", 5), Rejection.INCONSISTENT, "description is no text"),
    (changed(PARAMETERS), Rejection.INCONSISTENT, "parameters have no properties"),
    (changed(f"{PARAMETERS}/required", ["x"]), Rejection.INCONSISTENT, "what is no property"),
    (changed(f"{PARAMETERS}/properties/lift", {"type": "any"}), Rejection.INCONSISTENT, "'lift'"),
    (changed(f"{PARAMETERS}/properties/tags/items"), Rejection.INCONSISTENT, "items: its type"),
    (changed(f"{PARAMETERS}/properties/rent/default", "5"), Rejection.INCONSISTENT, "its default"),
    (changed(f"{PARAMETERS}/properties/rent/enum", ["5"]), Rejection.INCONSISTENT, "its enum"),
    (changed(f"{PARAMETERS}/properties/tags", nested(4)), Rejection.INCONSISTENT, "4 levels"),
    (changed("calls/0", 5), Rejection.UNPARSEABLE, "call 0 is no object"),
    (changed("calls/0/arguments"), Rejection.INCONSISTENT, "'mode' is required"),
    (changed("calls/0/name", "no_such"), Rejection.UNKNOWN_TOOL, "call 0 is of no function"),
    (changed("calls/0/name", "kitchen_set_oven"), Rejection.UNKNOWN_TOOL, "call 0"),
    (changed("calls/0/arguments/minutes"), Rejection.INCONSISTENT, "'minutes' is required"),
    (changed("calls/0/arguments/x", 1), Rejection.INCONSISTENT, "'x' is no parameter"),
    (changed("calls/0/arguments/minutes", "20"), Rejection.INCONSISTENT, "no integer"),
    (changed("calls/0/arguments/minutes", 20.0), Rejection.INCONSISTENT, "no integer"),
    (changed("calls/0/arguments/minutes", True), Rejection.INCONSISTENT, "no integer"),
    (changed("calls/0/arguments/minutes", 2**54), Rejection.INCONSISTENT, "no integer"),
    (changed("calls/0/arguments/mode", "steam"), Rejection.INCONSISTENT, "not one of its enum"),
    (changed("calls/1/arguments/rent", float("nan")), Rejection.INCONSISTENT, "no float"),
    (changed("calls/1/arguments/rent", float("inf")), Rejection.INCONSISTENT, "no float"),
    (changed("calls/1/arguments/rent", True), Rejection.INCONSISTENT, "no float"),
    (changed("calls/1/arguments/lift", 1), Rejection.INCONSISTENT, "no boolean"),
    (changed("calls/1/arguments/tags", "a"), Rejection.INCONSISTENT, "no array"),
    (changed("calls/1/arguments/tags", [""]), Rejection.INCONSISTENT, "no string"),
    (changed("calls/1/arguments/who", "Ada"), Rejection.INCONSISTENT, "no dict"),
    (changed(f"{PARAMETERS}/properties/who", {"type": "dict"})
     | {"calls": [call_of("move", who={"a": ""})]}, Rejection.INCONSISTENT, "an empty text"),
    (changed("calls/1/arguments/who", {"age": 1}), Rejection.INCONSISTENT, "'age' is no parameter"),
    (changed("calls/1", OVEN), Rejection.INCONSISTENT, "call 1 is there twice"),
    (changed("question", "Say <tool_call> please."), Rejection.LEAKS_ANSWER, "<tool_call>"),
    (changed("question", 'Do move({"who": ...}).'), Rejection.LEAKS_ANSWER, "a call of 'move'"),
    (changed("question", 'Say {"name": "move", "arguments": {}}.'), Rejection.LEAKS_ANSWER, "move"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "reason", "detail"), MUTATIONS)
def test_a_flaw_of_a_generation_has_its_reason(
    domain: BfclDomain, value: object, reason: Rejection, detail: str
) -> None:
    found = parsed(domain, value)
    assert isinstance(found, Rejected), found
    assert (found.reason, detail in found.detail) == (reason, True), found
    found.detail.encode()


def test_what_bfcl_s_checker_refuses_is_no_ground_truth(domain: BfclDomain) -> None:
    # In a list of floats an integer is one only if gold begins with one.
    mixed = changed(f"{PARAMETERS}/properties/tags", {"type": "array", "items": {"type": "number"}})
    mixed["calls"][1]["arguments"]["tags"] = [1.5, 2]
    found = parsed(domain, mixed)
    assert isinstance(found, Rejected) and found.reason is Rejection.REJECTS_GROUND_TRUTH, found
    mixed["calls"][1]["arguments"]["tags"] = [1.5, 2.5]
    assert flaws(task(domain, mixed), domain) == []


def test_a_generation_that_repeats_an_item_is_rejected(domain: BfclDomain) -> None:
    words = {**GOOD, "question": f"Hello! {QUESTION} Then grill it."}
    calls: JsonObject = {
        "question": "I am at the port and want to go to the island.",
        "functions": [FERRIES, "find_trains"],
        "calls": [call_of("ferries.find", origin="PIRAEUS", target="Naxos.")],
    }
    for value, detail in ((words, "words in a row"), (calls, "the calls are those of item")):
        found = parsed(domain, value)
        assert isinstance(found, Rejected) and found.reason is Rejection.CONTAMINATED
        assert detail in found.detail and "simple_python_0" in found.detail
    calls["calls"][0]["arguments"]["target"] = "Paros"
    assert task(domain, calls).family == "multiple"


NONE_FITS: JsonObject = {
    "question": "What will the weather be in Turin tomorrow?",
    "functions": ["log_run", "track_parcel"],
    "calls": [],
}


def test_where_nothing_fits_the_agent_has_to_say_so(domain: BfclDomain) -> None:
    found = task(domain, NONE_FITS)
    assert (found.family, found.difficulty) == ("irrelevance", 2.0)
    assert flaws(found, domain) == []
    call = call_text(call_of("track_parcel", number="1"))
    for answer, expected in (
        (NOTHING_FITS, True), ("no function tells the weather.", True),
        ("<think>?</think>\nNo function.", True), ("", False), ("none", False),
        ("Sunny. No function is needed.", False), (f"{NOTHING_FITS}{call}", False), (call, False),
        (f"{NOTHING_FITS} <tool_call>{{", False),
    ):  # fmt: skip
        assert answer_verdict(found, domain, answer).success is expected, answer
    # A request that itself says so would be answered by an echo.
    echo = {**NONE_FITS, "question": "No function tells the weather, does it?"}
    assert [check.flaw.value for check in flaws(task(domain, echo), domain)] == ["accepts_trivial"]


def test_a_wrong_answer_fails(domain: BfclDomain) -> None:
    for draft in domain.base_tasks(2, 60):
        calls = json.loads(draft.program)["calls"]
        if not calls:
            continue
        texts = draft.ground_truth.split("\n")
        wrong = ["\n".join(texts[:-1]), "\n".join([*texts, texts[0]])]
        wrong.append(f"{draft.ground_truth}\n<tool_call>{{")
        (name, arguments), *_ = ((one["name"], one["arguments"]) for one in map(_body, texts))
        for key, value in arguments.items():
            rest = [*texts[1:]]
            other = {**arguments, key: [value]}
            wrong.append("\n".join([call_text({"name": name, "arguments": other}), *rest]))
        for answer in wrong:
            assert not answer_verdict(draft, domain, answer).success, answer


def _body(text: str) -> JsonObject:
    return json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))


def test_calls_without_arguments_can_be_right(domain: BfclDomain) -> None:
    clock = {"name": "now", "description": "", "parameters": {"properties": {}, "type": "dict"}}
    found = task(domain, {"question": "What time is it?", "functions": [clock],
                          "calls": [call_of("now")]})  # fmt: skip
    assert flaws(found, domain) == []


def test_pi_env_is_told_the_success_by_family_and_the_base_task(domain: BfclDomain) -> None:
    base = domain.base_tasks(0, 1)[0]
    history = AgentHistory(0.4, {"simple": (3, 8), "irrelevance": (1, 4)})
    rules, asked = domain.env_messages(Context("c", "t", base, history))
    assert asked["content"] == (
        f"families: irrelevance 1/4, simple 3/8; success 4/10; base: {base.program} ; new:"
    )
    assert all(f"{name}(" in rules["content"] for name in CATALOGUE)
    example = rules["content"].splitlines()[-1]
    assert flaws(task(domain, example), domain) == []
    short = BfclDomain(BfclOptions(data=domain.options.data, explain=False))
    (only,) = short.env_messages(Context("c", "t", base, AgentHistory()))
    assert only["content"] == f"success none; base: {base.program} ; new:"


def test_the_grammar_allows_what_is_drawn(domain: BfclDomain) -> None:
    base = domain.base_tasks(0, 40)
    grammar = domain.env_grammar(Context("c", "t", base[0], AgentHistory()))
    assert grammar.kind == "json"
    checker = jsonschema.Draft202012Validator(json.loads(grammar.text))
    for value in (*(json.loads(draft.program) for draft in base), GOOD, NONE_FITS):
        assert checker.is_valid(value)
    for value in ({**GOOD, "more": 1}, changed("calls"), changed("calls/0/arguments", 5)):
        assert not checker.is_valid(value)


def test_an_item_has_no_solution_here_and_its_draft_no_answer(domain: BfclDomain) -> None:
    (item,) = domain.items()
    assert item.ground_truth == "" and "Naxos" not in json.dumps(item.spec)
    with pytest.raises(DomainError, match="stay in the download"):
        domain.solution(item)
    assert domain.calls_of(item)[0].arguments == {"origin": "Piraeus", "target": "Naxos"}


ROW: JsonObject = {
    "question": [[{"role": "system", "content": "Be brief."},
                  {"role": "user", "content": "Go up."}]],
    "function": [
        {"name": "lift.go", "description": "Moves.", "parameters": {"type": "dict", "properties": {
            "by": {"type": "integer"}, "how": {"type": "string"},
            "at": {"type": "dict", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        }, "required": ["by"]}}
    ],
    "ground_truth": [{"lift.go": {"by": [1, 2], "how": ["", "slow"], "at": [{"x": [3, 4]}]}}],
}  # fmt: skip


def with_rows(data: Path, *rows: object) -> BfclDomain:
    path = data.parent / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return BfclDomain(BfclOptions(data=str(data), train=str(path)))


def numbered(count: int) -> list[JsonObject]:
    rows = [copy.deepcopy(ROW) for _ in range(count)]
    for number, row in enumerate(rows):
        row["question"][0][1]["content"] = f"Go up, says number {number}."
    return rows


def test_a_user_s_rows_come_first(data: Path) -> None:
    found = with_rows(data, *numbered(40), *numbered(3))
    base, held = found.base_tasks(0, 60), found.heldout_tasks(0, 30)
    of_rows = [draft for draft in (*base, *held) if "lift.go" in draft.program]
    assert len(of_rows) == len({draft.program for draft in of_rows}) == 40
    assert all("lift.go" in draft.program for draft in base[:25])
    assert any("lift.go" in draft.program for draft in held)
    assert not {draft.program for draft in base} & {draft.program for draft in held}
    assert found.version != BfclDomain(BfclOptions(data=str(data))).version
    before = found.version
    assert with_rows(data, *numbered(41)).version != before
    for draft in of_rows:
        assert flaws(draft, found) == []
        assert found.agent_messages(draft)[0]["content"].endswith("Be brief.")
        assert json.loads(draft.program)["calls"] == [call_of("lift.go", by=1, at={"x": 3})]
    # All values that the row lists are right.
    for arguments, expected in (
        ({"by": 2, "how": "slow", "at": {"x": 4}}, True), ({"by": 3, "at": {"x": 4}}, False),
    ):  # fmt: skip
        answer = call_text({"name": "lift_go", "arguments": arguments})
        assert answer_verdict(of_rows[0], found, answer).success is expected


def test_a_row_that_repeats_an_item_is_left_out(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repeated = copy.deepcopy(ROW)
    repeated["question"][0][1]["content"] = QUESTION
    found = with_rows(data, repeated, *numbered(2))
    drafts = [*found.base_tasks(0, 5), *found.heldout_tasks(0, 5)]
    assert sum("lift.go" in draft.program for draft in drafts) == 2
    assert "left_out=1" in caplog.text and "simple_python_0" in caplog.text


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (5, "row 1: no object"), ({**ROW, "question": []}, "one turn"),
        ({**ROW, "question": [[], []]}, "one turn"), ({**ROW, "question": "x"}, "'question'"),
        ({**ROW, "question": [[{"role": "system", "content": "x"}]]}, "ends with the user's"),
        ({**ROW, "ground_truth": None}, "'ground_truth'"),
        ({**ROW, "ground_truth": [{"lift.go": {"by": 1}}]}, "'ground_truth'"),
        ({**ROW, "ground_truth": [{"lift.go": {"by": ["1"]}}]}, "inconsistent: .*no integer"),
        ({**ROW, "ground_truth": [{"other": {}}]}, "unknown_tool"),
        ({**ROW, "function": [{"name": "x"}]}, "inconsistent"),
        ({**ROW, "function": None}, "unparseable"),
    ],
)  # fmt: skip
def test_a_broken_row_is_refused(data: Path, row: object, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        with_rows(data, row).base_tasks(0, 1)


def test_bad_options_are_refused(data: Path) -> None:
    for options, problem in (
        ({"train": str(data / "none.jsonl")}, "there is no such file"), ({"hardest": 0}, "hardest"),
        ({"hardest": 9}, "hardest"), ({"other": 1}, "other"), ({"mode": "x"}, "mode"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=problem):
            get_domain("bfcl", {"data": str(data), **options})
    easy = get_domain("bfcl", {"data": str(data), "hardest": 1})
    assert {draft.difficulty for draft in easy.base_tasks(0, 30)} == {1.0}
    found = easy.parse(spelled(GOOD))[0]
    assert isinstance(found, Rejected) and found.reason is Rejection.OUT_OF_RANGE
