"""The domain arithmetic, which a pretrained model of 100 M parameters can learn on a CPU.

Invariants: each level has several hundred programs, and there are 240 held-out tasks and a
validation set; base tasks, examples and held-out tasks never meet, whatever the seeds; texts that
are no task have their reason; the result is worked out from left to right and stays at or above
zero; nothing that the request says is right; the agent's examples are mostly easy ones; prompts are
one short sentence and a request.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.domains.protocol import ConstrainsEnv, KnowsSolution, SeedData, WritesAnswers
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError
from genenv_core.play.certificate import answer_verdict
from genenv_core.types import AgentHistory, Context, Rejected, TaskDraft
from tests.mutations import mutation
from tests.unit.domains.checking import flaws
from tests.unit.domains.domain_contract import DomainContract

DOMAIN = "genenv_core/domains/arithmetic.py"
FIRST, OTHERS = 50, 9


@pytest.fixture(scope="module")
def domain() -> Any:
    return get_domain("arithmetic", {})


def task(domain: Any, text: str) -> TaskDraft:
    (found,) = domain.parse(text)
    assert isinstance(found, TaskDraft), found
    return found


def added(program: str) -> int:
    return sum(int(term) for term in re.findall("-?[0-9]+", program.replace("- ", "-")))


def test_the_easiest_level_has_several_hundred_programs(domain: Any) -> None:
    spelled = (
        f"{left} {sign} {right}"
        for left in range(1, FIRST + 1)
        for sign in "+-"
        for right in range(1, OTHERS + 1)
    )
    tasks = [text for text in spelled if isinstance(domain.parse(text)[0], TaskDraft)]
    # 450 sums, 414 differences from zero up, less the nine that leave what they take, as 8 - 4.
    assert len(tasks) == 855
    open_ones = {draft.program for draft in domain.base_tasks(0, 1000) if draft.difficulty == 1}
    assert len(open_ones) > 400


class TestArithmetic(DomainContract):
    """The contract."""

    heldout, examples = 264, 300
    protocols = (SeedData, ConstrainsEnv, WritesAnswers, KnowsSolution)
    not_allowed = ("", "1 + 2 + 3 + 4 + 5")
    alien = ()  # the request alone says what is right


def test_heldout_tasks_are_of_all_levels_alike(domain: Any) -> None:
    levels = Counter(draft.difficulty for draft in domain.heldout_tasks(0, 264))
    assert levels == {1: 88, 2: 88, 3: 88}


def test_results_are_worked_out(domain: Any) -> None:
    for draft in domain.base_tasks(3, 60):
        assert int(draft.ground_truth) == added(draft.program)
        assert domain.answer_turns(draft) == [turn.says for turn in domain.solution(draft)]
        assert domain.episode(draft, 0).step(draft.ground_truth).done


@mutation(
    "a sum is worked out from right to left", DOMAIN,
    "results[-1] + (int(number)", "int(number) + (results[-1]",
)  # fmt: skip
def test_a_task_is_its_request_its_result_and_its_family(domain: Any) -> None:
    draft = task(domain, " 13 + 8 - 4 ")
    assert (draft.program, draft.prompt) == ("13 + 8 - 4", "13 + 8 - 4 =")
    assert (draft.ground_truth, draft.family, draft.difficulty) == ("17", "minus2", 2)
    assert task(domain, "9 + 9").family == "plus1"


@mutation("a number may be larger than the largest", DOMAIN, "if number > most:", "if number > 99:")
@mutation(
    "a result may fall below zero on the way", DOMAIN, "if min(results) < 0:", "if value < 0:"
)
@mutation("the request may say its result", DOMAIN, "if value in numbers:", "if False:")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unparseable"),
        ("13", "unparseable"),
        ("13 + 8 =", "unparseable"),
        ("13+8", "unparseable"),
        ("13 * 8", "unparseable"),
        ("0 + 8", "unparseable"),
        ("13 + 08", "unparseable"),
        ("13 + 100", "unparseable"),
        ("13 + ٨", "unparseable"),
        ("13 + 8\n7 + 2", "unparseable"),
        ("51 + 8", "out_of_range"),
        ("13 + 10", "out_of_range"),
        ("1 + 2 + 3 + 4 + 5", "out_of_range"),
        ("4 - 8", "inconsistent"),
        ("4 - 8 + 9", "inconsistent"),
        ("4 - 2", "inconsistent"),
        ("16 - 3 + 3", "inconsistent"),
    ],
)
def test_a_text_that_is_no_task_has_its_reason(domain: Any, text: str, reason: str) -> None:
    (found,) = domain.parse(text)
    assert isinstance(found, Rejected) and found.reason == reason


@given(text=st.text() | st.from_regex(r"[0-9]{1,3}( [+-] [0-9]{1,3})*", fullmatch=True))
def test_the_parser_never_raises_and_its_tasks_are_sound(domain: Any, text: str) -> None:
    (found,) = domain.parse(text)
    if isinstance(found, TaskDraft):
        assert flaws(found, domain) == []


@pytest.mark.parametrize(
    ("said", "right"),
    [("17", True), (" 17.", True), ("18", False), ("13 + 8 - 4 = 17", False), ("", False)],
)
def test_the_answer_is_the_number_alone(domain: Any, said: str, right: bool) -> None:
    assert answer_verdict(task(domain, "13 + 8 - 4"), domain, said).success == right


@mutation(
    "a domain cannot say how hard the agent's examples are", "genenv_core/domains/kit/levels.py",
    "weights = self.example_weights()", "weights = mixed_weights(self.highest())",
)  # fmt: skip
@mutation(
    "the agent's examples are as hard as base tasks", DOMAIN,
    "return env_weights(self.highest(), 1.0)", "return super().example_weights()",
)  # fmt: skip
def test_the_agents_examples_are_mostly_easy_ones(domain: Any) -> None:
    asked = [messages[-1]["content"] for messages, _ in domain.agent_examples(1, 600)]
    signs = Counter(len(re.findall("[+-]", text)) for text in asked)
    assert signs[1] > 0.7 * 600 and signs[3] > 10


def test_prompts_are_short(domain: Any) -> None:
    draft = task(domain, "13 + 8 - 4")
    rules, asked = domain.env_messages(Context("c", "t", draft, AgentHistory(0.26)))
    assert rules["content"] == (
        "Write 2 to 4 numbers with + or - between them, the first up to 50, the others up to 9."
    )
    assert asked["content"] == "success 3/10; base: 13 + 8 - 4 ; new:"
    rules, asked = domain.agent_messages(draft)
    assert rules["content"] == "Answer with the number alone."
    bare = get_domain("arithmetic", {"explain": False})
    (asked,) = bare.env_messages(Context("c", "t", draft, AgentHistory()))
    assert asked["content"] == "success none; base: 13 + 8 - 4 ; new:"


@mutation(
    "without minus there are differences", DOMAIN, "and not self.options.minus:", "and False:"
)
def test_options_bound_what_is_written() -> None:
    plus: Any = get_domain("arithmetic", {"minus": False, "terms": 2, "first": 9})
    assert all(" + " in draft.program for draft in plus.base_tasks(0, 60))
    assert plus.parse("9 - 4")[0].reason == "out_of_range"
    assert plus.parse("10 + 9")[0].reason == "out_of_range"
    assert "with + between them, the first up to 9," in plus.env_prompt(None, "9 + 4")[0]["content"]
    with pytest.raises(ConfigError, match=r"has only about .* held-out tasks with terms"):
        plus.heldout_tasks(0, 60)
    with pytest.raises(ConfigError, match=r"domain.options.terms: expected 8 or less, got 9"):
        get_domain("arithmetic", {"terms": 9})
