"""Certificates of tasks.

Invariants: of 1,000 seeded defects of twenty kinds all are found, in each domain, and the flaw that
names the kind is among those found; of 1,000 sound tasks none is refused; what cannot be checked
without a solution is not in a certificate; the checks come in one order, each with a short detail
exactly when something was found; a part is said only as whole words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from genenv_core.domains.desk import DeskDomain
from genenv_core.domains.desk.desk_domain import DeskOptions
from genenv_core.domains.trails import TrailsDomain
from genenv_core.domains.trails.trails_domain import TrailsOptions
from genenv_core.play.certificate import answer_verdict, certify
from genenv_core.types import Flaw, Message, TaskDraft, Verdict
from tests.examples import some
from tests.mutations import mutation
from tests.unit.domains.checking import flaws
from tests.unit.play.defects import DOMAINS, KINDS, defects, sound

CERTIFICATE = "genenv_core/play/certificate.py"

SOME_AND_ALL = pytest.mark.parametrize("count", some((200, 1000), (200,)))


@mutation(
    "a judge that accepts anything is sound", CERTIFICATE, "domain.trivial_answers(draft)),", "[]),"
)
@mutation(
    "a canary may pass", CERTIFICATE,
    "_accepted(draft, domain, CANARIES)", "_accepted(draft, domain, [])",
)  # fmt: skip
@mutation(
    "a request may give a part of the answer away", CERTIFICATE,
    "[draft.ground_truth]), *parts]", "[draft.ground_truth])]",
)  # fmt: skip
@mutation(
    "a verdict may change", CERTIFICATE, "verdict != verdicts[0] for verdict in verdicts",
    "verdict.success and not verdict.reward for verdict in verdicts",
)  # fmt: skip
@mutation("one attempt of the domain is enough", CERTIFICATE, "ATTEMPTS = 10", "ATTEMPTS = 1")
@SOME_AND_ALL
@pytest.mark.parametrize("name", DOMAINS)
def test_all_defects_are_found_and_named(name: str, count: int) -> None:
    missed: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for kind, draft, domain in defects(name, count, seed=0):
        tried[kind.break_.__name__] += 1
        found = {check.flaw for check in flaws(draft, domain)}
        missed[kind.break_.__name__] += kind.flaw not in found
    assert len(tried) == len(KINDS) == 20
    assert not +missed, missed


@SOME_AND_ALL
@pytest.mark.parametrize("name", DOMAINS)
def test_no_sound_task_is_refused(name: str, count: int) -> None:
    variants = DOMAINS[name]
    each = count // len(variants)
    refused = [
        (draft.program, flaws(draft, domain))
        for seed, domain in enumerate(variants)
        for draft in sound(domain, seed, each)
        if flaws(draft, domain)
    ]
    assert not refused


@pytest.mark.parametrize(
    "domain",
    [
        DeskDomain(DeskOptions(max_calls=12, max_operand=99, dialogue=True)),
        DeskDomain(DeskOptions(max_calls=12, max_operand=99)),
        TrailsDomain(TrailsOptions(max_looks=10, explain=True)),
    ],
)
def test_the_largest_tasks_are_sound_too(domain: Any) -> None:
    assert not [draft.program for draft in sound(domain, 3, 100) if flaws(draft, domain)]


class Sums:
    """A domain of sums without a solution; a task's spec says how it judges."""

    name = "sums"
    version = "1"
    tools: Sequence[Any] = ()

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        return [{"role": "user", "content": draft.prompt}]

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        return ["", "ok", draft.prompt]

    def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        question, answer = messages
        assert question == {"role": "user", "content": draft.prompt}
        assert answer["role"] == "assistant"
        text = answer["content"]
        right = {
            "exact": text == draft.ground_truth,
            "never": False,
            "unless empty": text != "",
            "raises": None,
        }[draft.spec["judge"]]
        if right is None:
            raise ValueError("no such sum")
        # A soft reward is no success: a certificate must look at `success`.
        return Verdict(reward=1.0 if right else 0.9, success=right)


SUMS: Any = Sums()
WITHOUT_A_SOLUTION = [
    Flaw.LEAKS_ANSWER,
    Flaw.REJECTS_GROUND_TRUTH,
    Flaw.ACCEPTS_TRIVIAL,
    Flaw.ACCEPTS_CANARY,
    Flaw.UNSTEADY_VERDICT,
    Flaw.UNKNOWN_TOOL,
]


def task(judge: str = "exact", prompt: str = "3 bolts and 4 more?", truth: str = "7") -> TaskDraft:
    return TaskDraft(prompt, {"judge": judge}, truth, "3 + 4", "f", 1.0, "3 + 4")


def test_what_nobody_can_say_is_not_in_a_certificate() -> None:
    assert [check.flaw for check in certify(task(), SUMS)] == WITHOUT_A_SOLUTION
    assert not flaws(task(), SUMS)
    (draft,) = DeskDomain().base_tasks(0, 1)
    assert {check.flaw for check in certify(draft, DeskDomain())} == set(Flaw)


def test_checks_come_in_one_order_with_short_details() -> None:
    found = flaws(replace(task("unless empty", prompt="7 " * 500), program="+ " * 500), SUMS)
    assert [check.flaw for check in found] == [
        Flaw.LEAKS_ANSWER,
        Flaw.ACCEPTS_TRIVIAL,
        Flaw.ACCEPTS_CANARY,
    ]
    assert all(0 < len(check.detail) <= 100 for check in found)


@pytest.mark.parametrize("truth", ["yes", "No", "true", "B"])
def test_an_answer_of_a_closed_set_may_stand_in_the_request(truth: str) -> None:
    draft = replace(task(prompt="Is 7 odd (A: yes, B: no, true or false)?"), ground_truth=truth)
    assert Flaw.LEAKS_ANSWER not in [check.flaw for check in flaws(draft, SUMS)]


@mutation(
    "the domain's own leaks are not asked for", CERTIFICATE,
    "if not isinstance(domain, NamesLeaks):", "if True:",
)  # fmt: skip
def test_the_domain_says_what_a_leak_is() -> None:
    class Extractive(type(SUMS)):  # type: ignore[misc]
        def leaks(self, draft: TaskDraft) -> list[str]:
            if draft.prompt == "broken":
                raise ValueError("no passage")
            return ["hint"]

    def found(prompt: str) -> list[str]:
        checks = flaws(replace(task("7"), prompt=prompt), Extractive())
        return [check.detail for check in checks if check.flaw is Flaw.LEAKS_ANSWER]

    assert found("the passage says 7") == []
    assert found("the passage says a hint") == ["the request says 'hint'"]
    (broken,) = found("broken")
    assert broken == "the domain cannot say what a leak is: ValueError: no passage"


def test_a_judge_that_raises_fails_the_ground_truth_and_ends_nothing() -> None:
    (check,) = flaws(task("raises"), SUMS)
    assert check.flaw is Flaw.REJECTS_GROUND_TRUTH
    assert "no such sum" in check.detail


def test_a_broken_spec_is_unreachable_and_ends_nothing() -> None:
    trails = TrailsDomain()
    (draft,) = trails.base_tasks(0, 1)
    found = flaws(replace(draft, spec={"asked": draft.spec["asked"], "cards": {}}), trails)
    assert [check.flaw for check in found] == [Flaw.UNREACHABLE]


def test_the_verdict_is_on_a_transcript_with_one_answer() -> None:
    assert answer_verdict(task(), SUMS, "7") == Verdict(1.0, True)
    assert answer_verdict(task(), SUMS, "8").success is False
