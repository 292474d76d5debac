"""Admission of tasks.

Invariants: a task with a sound spec passes unchanged; each flaw has its own check and its own
reason, with a detail for people; the held-out set is checked first, so that nothing leaks from it;
the prompt leaks an answer only when it holds it as whole words; the domain judges transcripts that
open with its own messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from genenv_core.algorithm.admission import admit, answer_verdict
from genenv_core.domains.desk import DeskDomain
from genenv_core.types import Message, Rejected, Rejection, TaskDraft, Verdict

DESK = DeskDomain()


class Sums:
    """A domain of sums. A task's spec makes it judge correctly, or incorrectly in one way."""

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
            "always": True,
            "unless empty": text != "",
            "echo": text in (draft.ground_truth, draft.prompt),
        }[draft.spec["judge"]]
        # A soft reward is no success: admission must look at `success`.
        return Verdict(reward=1.0 if right else 0.9, success=right)


SUMS: Any = Sums()


def task(judge: str = "exact", prompt: str = "3 bolts and 4 more?", truth: str = "7") -> TaskDraft:
    return TaskDraft(prompt, {"judge": judge}, truth, "3 + 4", "f", 1.0, "3 + 4")


def reason(draft: TaskDraft, **known: set[str]) -> Rejection:
    sets: dict[str, Any] = {"batch": set(), "history": set(), "heldout": set()} | known
    outcome = admit(draft, SUMS, **sets)
    assert isinstance(outcome, Rejected)
    assert outcome.detail
    return outcome.reason


def test_a_sound_task_passes_unchanged() -> None:
    draft = task()
    assert admit(draft, SUMS, batch={"1 + 1"}, history={"2 + 2"}, heldout={"5 + 5"}) is draft


def test_each_flaw_has_its_reason() -> None:
    assert reason(task(), heldout={"3 + 4"}) is Rejection.IN_HELDOUT
    assert reason(task(), batch={"3 + 4"}) is Rejection.DUPLICATE
    assert reason(task(), history={"3 + 4"}) is Rejection.DUPLICATE_OF_HISTORY
    assert reason(task(prompt="Is it 7?")) is Rejection.LEAKS_ANSWER
    assert reason(task("never")) is Rejection.REJECTS_GROUND_TRUTH


@pytest.mark.parametrize(
    ("judge", "accepted"), [("always", "''"), ("unless empty", "'ok'"), ("echo", "'3 bolts")]
)
def test_empty_constant_and_echoed_answers_are_tried(judge: str, accepted: str) -> None:
    outcome = admit(task(judge), SUMS, batch=(), history=(), heldout=())
    assert isinstance(outcome, Rejected)
    assert outcome.reason is Rejection.ACCEPTS_TRIVIAL
    assert outcome.detail.startswith(f"the spec accepts {accepted}")


def test_heldout_is_named_before_duplicates_and_duplicates_before_flaws() -> None:
    everywhere = {"3 + 4"}
    flawed = task("never", prompt="7")
    known = {"batch": everywhere, "history": everywhere, "heldout": everywhere}
    assert reason(flawed, **known) is Rejection.IN_HELDOUT
    assert reason(flawed, batch=everywhere, history=everywhere) is Rejection.DUPLICATE
    assert reason(flawed, history=everywhere) is Rejection.DUPLICATE_OF_HISTORY


@pytest.mark.parametrize(
    ("prompt", "truth", "leaks"),
    [
        ("7 bolts", "7", True),
        ("17 bolts", "7", False),  # another number
        ("70 bolts", "7", False),
        ("the city of Paris.", "Paris", True),
        ("Parisian bolts", "Paris", False),
        ("say 3.5 aloud", "3.5", True),
        ("say 315 aloud", "3.5", False),  # the dot is no wildcard
        ("call<x>now", "<x>", True),  # edges that are no letters need no blank beside them
        ("bolts", "", False),  # no ground truth, nothing to leak
    ],
)
def test_a_leak_is_the_answer_in_whole_words(prompt: str, truth: str, leaks: bool) -> None:
    outcome = admit(task(prompt=prompt, truth=truth), SUMS, batch=(), history=(), heldout=())
    leaked = isinstance(outcome, Rejected) and outcome.reason is Rejection.LEAKS_ANSWER
    assert leaked is leaks


def test_details_are_short() -> None:
    long = replace(task("unless empty"), program="+ " * 500)
    for known in ({"heldout": {"3 + 4"}}, {"batch": {"3 + 4"}}, {}):
        sets: dict[str, Any] = {"batch": (), "history": (), "heldout": ()} | known
        outcome = admit(long, SUMS, **sets)
        assert isinstance(outcome, Rejected)
        assert 0 < len(outcome.detail) <= 100


def test_the_verdict_is_on_a_transcript_with_one_answer() -> None:
    assert answer_verdict(task(), SUMS, "7") == Verdict(1.0, True)
    assert answer_verdict(task(), SUMS, "8").success is False


def test_desk_tasks_are_admitted_and_broken_ones_are_not() -> None:
    sets: dict[str, Any] = {"batch": (), "history": (), "heldout": ()}
    drafts = DESK.base_tasks(0, 50)
    assert [admit(draft, DESK, **sets) for draft in drafts] == drafts
    draft = drafts[0]
    other = next(d for d in drafts if d.spec != draft.spec)
    wrong = admit(replace(draft, spec=other.spec), DESK, **sets)
    assert isinstance(wrong, Rejected) and wrong.reason is Rejection.REJECTS_GROUND_TRUTH
    rejected = admit(replace(draft, prompt=f"Write {draft.ground_truth}."), DESK, **sets)
    assert isinstance(rejected, Rejected) and rejected.reason is Rejection.LEAKS_ANSWER
    again = admit(draft, DESK, **sets | {"batch": {draft.fingerprint}})
    assert isinstance(again, Rejected) and again.reason is Rejection.DUPLICATE
