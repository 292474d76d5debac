"""The embedded domain desk and the registry.

Invariants: parsing a rendered program gives it back, whatever the blanks; no text makes
the parser or the judge raise; each flaw has its reason; every generated task accepts its ground
truth, rejects every trivial answer, and passes admission; base, seed and held-out data are
distinct, deterministic and disjoint for any seeds; easy_skew shifts pi_env's seed data; bad names
and options are ConfigErrors that name the remedy.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genenv_core.domains import registry
from genenv_core.domains.desk import DeskDomain, DeskOptions
from genenv_core.domains.desk.program import (
    ITEMS,
    TOOL_NAMES,
    Clause,
    draw_program,
    parse_program,
    parse_request,
    render_answer,
    render_program,
)
from genenv_core.domains.desk.scoring import DeskCall, read_calls
from genenv_core.errors import ConfigError
from genenv_core.play.certificate import answer_verdict
from genenv_core.types import AgentHistory, Context, Message, Rejected, Rejection, TaskDraft
from tests.mutations import mutation
from tests.unit.domains.checking import flaws
from tests.unit.domains.domain_contract import DomainContract
from tests.unit.plugged import write_package

DESK = DeskDomain()


def _task(text: str, desk: DeskDomain = DESK) -> TaskDraft:
    (task,) = desk.parse(text)
    assert isinstance(task, TaskDraft), task
    return task


def _failure(program: str, answer: str) -> str:
    verdict = answer_verdict(_task(program), DESK, answer)
    assert verdict.reward == float(verdict.success)
    assert bool(verdict.failure) != verdict.success
    return verdict.failure


def _call(name: str, item: Any, total: Any, **more: Any) -> str:
    call = {"id": 1, "name": name, "arguments": {"item": item, "total": total}} | more
    return f"<tool_call>{json.dumps(call)}</tool_call>"


seeds = st.integers(0, 2**31 - 1)
programs = st.builds(
    lambda seed, calls: draw_program(random.Random(seed), calls, 9), seeds, st.integers(1, 6)
)


def test_golden_task() -> None:
    task = _task("+ 8 bolts 7 ; - 9 gears 4;*3 nuts 4")
    assert task.prompt == (
        "8 bolts in stock, receive 7 more; 9 gears in stock, ship 4 out; "
        "3 nuts in a box, pack 4 boxes."
    )
    assert task.ground_truth == (
        '<tool_call>{"id": 1, "name": "receive", "arguments": {"item": "bolts", "total": 15}}'
        '</tool_call><tool_call>{"id": 2, "name": "ship", "arguments": {"item": "gears", '
        '"total": 5}}</tool_call><tool_call>{"id": 3, "name": "pack", "arguments": '
        '{"item": "nuts", "total": 12}}</tool_call>'
    )
    assert task.program == task.fingerprint == "+ 8 bolts 7 ; - 9 gears 4 ; * 3 nuts 4"
    assert (task.family, task.difficulty) == ("k3", 3.0)
    assert {"", task.prompt} <= set(DESK.trivial_answers(task))


@given(programs, st.lists(st.sampled_from([" ", "  ", "\n", "\t"]), min_size=1, max_size=5))
def test_parsing_gives_a_rendered_program_back(
    program: tuple[Clause, ...], blanks: list[str]
) -> None:
    text = render_program(program)
    assert parse_program(text, max_calls=6, max_operand=9) == program
    pieces = text.split(" ")
    spaced = "".join(piece + blanks[index % len(blanks)] for index, piece in enumerate(pieces))
    assert _task(spaced).fingerprint == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Rejection.UNPARSEABLE),
        (";", Rejection.UNPARSEABLE),
        ("+ 8 bolts 7 ;", Rejection.UNPARSEABLE),
        ("+ 8 bolts", Rejection.UNPARSEABLE),
        ("+ 8 bolts 7 nuts", Rejection.UNPARSEABLE),
        ("/ 8 bolts 7", Rejection.UNPARSEABLE),
        ("+ 8 unicorns 7", Rejection.UNPARSEABLE),
        ("+ 08 bolts 7", Rejection.UNPARSEABLE),
        ("+ -8 bolts 7", Rejection.UNPARSEABLE),
        ("+ 8.0 bolts 7", Rejection.UNPARSEABLE),
        ("+ ٨ bolts 7", Rejection.UNPARSEABLE),  # another script's 8
        ("+ 8\u00a0bolts 7", Rejection.UNPARSEABLE),
        ("+ 8 BOLTS 7", Rejection.UNPARSEABLE),
        ("+ 0 bolts 7", Rejection.OUT_OF_RANGE),
        ("+ 8 bolts 10", Rejection.OUT_OF_RANGE),
        ("+ 8 bolts " + "9" * 5000, Rejection.OUT_OF_RANGE),
        (" ; ".join(["+ 8 bolts 7"] * 7), Rejection.OUT_OF_RANGE),
        ("- 3 nuts 9", Rejection.INCONSISTENT),
        ("- 3 nuts 99", Rejection.OUT_OF_RANGE),  # ranges before sense
        ("- 3 nuts 9 ; nonsense", Rejection.UNPARSEABLE),  # spelling before sense
    ],
)
def test_each_flaw_of_a_program_has_its_reason(text: str, reason: Rejection) -> None:
    (rejected,) = DESK.parse(text)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason
    assert rejected.detail and len(rejected.detail) < 120


@settings(suppress_health_check=[HealthCheck.too_slow])  # all of Unicode is read for it
@given(st.text(max_size=80) | st.text("+-*; 0123456789boltsnu", max_size=60))
def test_no_text_makes_the_parser_or_the_judge_raise(text: str) -> None:
    (parsed,) = DESK.parse(text)
    assert isinstance(parsed, TaskDraft | Rejected)
    assert answer_verdict(_task("+ 8 bolts 7"), DESK, text).success is False
    assert DESK.episode(_task("+ 8 bolts 7"), 0).step(text).done


@given(programs, programs)
def test_an_answer_fits_only_tasks_with_the_same_calls(
    left: tuple[Clause, ...], right: tuple[Clause, ...]
) -> None:
    same = [(c.name, c.item, c.total) for c in left] == [(c.name, c.item, c.total) for c in right]
    task = _task(render_program(left))
    assert answer_verdict(task, DESK, render_answer(right)).success is same


@pytest.mark.parametrize(
    "answer",
    [
        _call("receive", "bolts", 15),
        _call(" Receive", "BOLTS ", 15.0),
        _call("receive", "bolts", 15, id=7),
        '\n <tool_call> {"arguments":{"total":15,"item":"bolts"},"name":"receive"}\n</tool_call> ',
        '<tool_call>{"name": "receive", "arguments": "{\\"item\\": \\"bolts\\", \\"total\\": 15}"}'
        "</tool_call>",
    ],
)
def test_spelling_of_a_right_answer_does_not_count(answer: str) -> None:
    assert _failure("+ 8 bolts 7", answer) == ""


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ("", "no_tool_call"),
        ("15 bolts", "no_tool_call"),
        (_call("receive", "bolts", 15)[:-3], "truncated"),
        (_call("receive", "bolts", 15) + "<tool_", "truncated"),
        ("Sure! " + _call("receive", "bolts", 15), "extra_text"),
        (_call("receive", "bolts", 15) + "done", "extra_text"),
        ("<tool_call>receive bolts 15</tool_call>", "malformed_call"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "malformed_call"),
        ("<tool_call>[1]</tool_call>", "malformed_call"),
        (_call("receive", "bolts", "15"), "malformed_call"),
        (_call("receive", "bolts", True), "malformed_call"),
        (_call("receive", "bolts", float("nan")), "malformed_call"),
        (_call("receive", "bolts", 1).replace("1}}", "9" * 5000 + "}}"), "malformed_call"),
        (_call("receive", 15, 15), "malformed_call"),
        (_call("receive", "bolts", 15, extra=1), "malformed_call"),
        (_call("receive", "bolts", 15, arguments={"item": "bolts"}), "malformed_call"),
        (_call("receive", "bolts", 15) * 2, "wrong_count"),
        (_call("ship", "bolts", 15), "wrong_name"),
        (_call("receive", "nuts", 15), "wrong_item"),
        (_call("receive", "bolts", 16), "wrong_total"),
    ],
)
def test_each_flaw_of_an_answer_has_its_name(answer: str, failure: str) -> None:
    assert _failure("+ 8 bolts 7", answer) == failure


def test_order_of_calls_counts() -> None:
    task = _task("+ 8 bolts 7 ; * 3 nuts 4")
    calls = task.ground_truth.replace("><", ">\n<").split("\n")
    swapped = "".join(reversed(calls))
    assert answer_verdict(task, DESK, swapped).failure == "wrong_name"


def test_an_episode_is_one_turn_with_tool_results() -> None:
    task = _task("+ 8 bolts 7 ; * 3 nuts 4")
    seen = DESK.episode(task, 0).step(task.ground_truth)
    assert seen.done
    assert [message["role"] for message in seen.messages] == ["tool", "tool"]
    assert [message.get("name") for message in seen.messages] == ["receive", "pack"]
    assert (
        "malformed_call"
        in DESK.episode(task, 0).step("<tool_call>{</tool_call>").messages[0]["content"]
    )


class TestDesk(DomainContract):
    """The contract, with so short programs that what is drawn would meet by chance."""

    base, heldout, examples = 200, 50, 200
    not_allowed = ("", "+ 8 bolts", "+ 0 bolts 7", "+ 8 bolts 13", "+ 8 bolts 7 ;", "8 + bolts 7",
                   " ; ".join(["+ 8 bolts 7"] * 3))  # fmt: skip

    @pytest.fixture
    def domain(self) -> DeskDomain:
        return DeskDomain(DeskOptions(max_calls=2, max_operand=12))


def test_base_and_heldout_tasks_follow_the_shares() -> None:
    base, heldout = DESK.base_tasks(3, 256), DESK.heldout_tasks(3, 720)
    assert Counter(task.family for task in heldout) == {f"k{k}": 120 for k in range(1, 7)}
    families = Counter(task.family for task in base)
    assert families["k1"] > families["k3"] > families["k6"] > 0


def test_used_up_lengths_give_way_and_then_fail_with_the_remedy() -> None:
    desk = DeskDomain(DeskOptions(max_calls=2, max_operand=2))
    families = Counter(task.family for task in desk.heldout_tasks(0, 300))
    assert families["k1"] < 40 and families.total() == 300
    with pytest.raises(ConfigError, match=r"data\.validation_tasks or data\.test_tasks"):
        DeskDomain(DeskOptions(max_calls=1, max_operand=1)).heldout_tasks(0, 100)


def test_explained_prompts_open_with_the_rules() -> None:
    desk = DeskDomain(DeskOptions(explain=True))
    task = _task("+ 8 bolts 7", desk)
    rules, request = desk.agent_messages(task)
    assert rules["role"] == "system" and request["content"] == task.prompt
    assert not any(item in rules["content"] for item in ITEMS)  # its example answers no task
    context = Context("c", "t", task, AgentHistory())
    assert all(item in desk.env_messages(context)[0]["content"] for item in ITEMS)
    assert flaws(task, desk) == []


@pytest.mark.parametrize("dialogue", [False, True])
def test_the_agents_rules_name_every_tool_and_their_example_is_right(dialogue: bool) -> None:
    desk = DeskDomain(DeskOptions(explain=True, dialogue=dialogue))
    rules = desk.agent_messages(_task("+ 8 bolts 7", desk))[0]["content"]
    assert all(f" {name} " in rules for name in TOOL_NAMES.values())
    _, request, _, *turns = rules.splitlines()
    calls = [
        DeskCall("receive", "crates", 15),
        DeskCall("ship", "crates", 5),
        DeskCall("pack", "crates", 12),
    ]
    spec = {"calls": [dataclasses.asdict(call) for call in calls]}
    shown = dataclasses.replace(_task("+ 8 bolts 7"), prompt=request, spec=spec)
    assert parse_request(request) == "+ 8 crates 7 ; - 9 crates 4 ; * 3 crates 4"
    said: list[Message] = [{"role": "assistant", "content": turn} for turn in turns]
    assert desk.score(shown, said).success
    assert turns == desk.answer_turns(dataclasses.replace(shown, ground_truth="".join(turns)))


@mutation(
    "an explained simulator is shown numbers that it may not write",
    "genenv_core/domains/desk/wording.py", "min(left, max_operand), item, min(right, max_operand)",
    "left, item, right",
)  # fmt: skip
@pytest.mark.parametrize("options", [(1, 1), (2, 3), (3, 4), (6, 9), (12, 99)])
def test_the_simulators_rules_show_programs_that_are_tasks(options: tuple[int, int]) -> None:
    """Within all bounds: what the rules show parses, and an answer written like it is admitted."""
    max_calls, max_operand = options
    desk = DeskDomain(DeskOptions(explain=True, max_calls=max_calls, max_operand=max_operand))
    base = desk.base_tasks(0, 1)[0]
    rules, asked = desk.env_messages(Context("c", "t", base, AgentHistory(success_rate=0.9)))
    lines = rules["content"].splitlines()
    named = f"1 to {max_calls} clauses", f"from 1 to {max_operand}", *TOOL_NAMES.values()
    assert all(name in rules["content"] for name in named)
    question, answer = lines[-2:]
    assert re.sub("base: .* ; new:", f"base: {base.program} ; new:", question) == asked["content"]
    shown = [line.partition(":") for line in lines[1:4]]
    for program, _, meaning in shown:
        task = _task(program, desk)
        assert task.prompt.removesuffix(".") == meaning.partition(" (")[0].strip()
    assert {program[0] for program, _, _ in shown} == {"+", "-", "*"}
    assert flaws(_task(answer, desk), desk) == []


def test_the_documentation_shows_the_explained_prompts() -> None:
    desk = DeskDomain(DeskOptions(explain=True))
    task = _task("+ 8 bolts 7 ; * 3 nuts 4", desk)
    context = Context("c", "t", task, AgentHistory(success_rate=0.7))
    page = " ".join((Path(__file__).parents[3] / "docs/domain.md").read_text("utf-8").split())
    for message in [*desk.agent_messages(task), *desk.env_messages(context)]:
        assert " ".join(message["content"].split()) in page
    for name, field in DeskOptions.model_fields.items():
        assert f"| `{name}` | {json.dumps(field.default)} |" in page


def test_seed_examples_are_right_and_follow_the_skew() -> None:
    for prompt, answer in DESK.agent_examples(1, 200):
        assert prompt[-1]["role"] == "user" and isinstance(read_calls(answer), list)
    easy = [_task(text).difficulty for _, text in DESK.env_examples(1, 1000, 1.0)]
    even = [_task(text).difficulty for _, text in DESK.env_examples(1, 1000, 0.0)]
    assert sum(easy) / 1000 == pytest.approx(1.5, abs=0.15)
    assert sum(even) / 1000 == pytest.approx(3.5, abs=0.2)


@mutation(
    "the option steep of desk does nothing", "genenv_core/domains/desk/desk_domain.py",
    "self.steep = self.options.steep", "self.steep = False",
)  # fmt: skip
def test_a_steep_desk_begins_with_the_shortest_fifth_and_an_agent_of_all_lengths() -> None:
    steep = DeskDomain(DeskOptions(steep=True, max_calls=12, max_operand=4))

    def short(programs: list[str]) -> float:
        return sum(_task(program, steep).difficulty <= 2 for program in programs) / len(programs)

    base = [draft.program for draft in steep.base_tasks(0, 300)]
    # .96 of the shortest fifth, and two of the twelve equal parts of the rest.
    assert short(base) == pytest.approx(0.967, abs=0.03)
    written = [text for _, text in steep.env_examples(1, 1000, 1.0)]
    assert short(written) == pytest.approx(0.967, abs=0.02)
    assert max(_task(text, steep).difficulty for text in written) > 6
    assert short([text for _, text in steep.env_examples(1, 1000, 0.0)]) < 0.25
    calls = Counter(len(read_calls(answer)) for _, answer in steep.agent_examples(1, 1200))
    assert sorted(calls) == list(range(1, 13)) and min(calls.values()) > 60
    tests = Counter(len(draft.spec["calls"]) for draft in steep.heldout_tasks(0, 120))
    assert tests == dict.fromkeys(range(1, 13), 10)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_cals": 3}, r"domain\.options\.max_cals is no option.*max_calls"),
        ({"max_calls": 0}, r"domain\.options\.max_calls: .*got 0"),
        ({"max_operand": "many"}, r"domain\.options\.max_operand: .*got 'many'"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        registry.get_domain("desk", options)


def test_plug_ins_come_from_the_entry_point_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {
        "mine": "genenv_core.domains.desk:DeskDomain.from_options",
        "gone": "no_such_module:domain",
    }
    monkeypatch.syspath_prepend(write_package(tmp_path, {"genenv.domains": points}))
    assert {"desk", "gone", "mine", "trails"} < set(registry.known_domains())
    assert registry.get_domain("mine", {"max_calls": 2}).name == "desk"
    with pytest.raises(ConfigError, match="max_calls"):
        registry.get_domain("mine", {"max_calls": 99})
    with pytest.raises(ConfigError, match="no module 'no_such_module' for the plug-in"):
        registry.get_domain("gone")
