"""Domains that are judged by the state, with the example of docs/domain.md.

Invariants: the example is sound and short, and the template of `genenv domain new --stateful` is
the same text; the calls of an attempt are played again for the verdict, over all its turns, and no
text earns what only calls do; the ground truth, a text of calls, succeeds; what follows the end of
an attempt counts nothing.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from flows.cli.domain import TEMPLATES, new
from genenv_core.domains.kit import StatefulDomain, call
from genenv_core.domains.protocol import SolutionTurn
from genenv_core.domains.tool_calls import as_read
from genenv_core.play.certificate import answer_verdict
from genenv_core.types import Message, TaskDraft
from tests.mutations import mutation
from tests.unit.domains.checking import flaws

REPOSITORY = Path(__file__).parents[4]
EXAMPLES = REPOSITORY / "docs" / "examples"
STATEFUL = "genenv_core/domains/kit/stateful.py"


@pytest.fixture(scope="module")
def diary() -> Any:
    """Return the module of the example."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return importlib.import_module("diary")


@pytest.fixture(scope="module")
def domain(diary: Any) -> Any:
    return diary.Diary({})


@pytest.fixture(scope="module")
def draft(domain: Any) -> TaskDraft:
    (found,) = domain.parse("move ana mon to tue 2 417")
    return found


def judged(domain: Any, draft: TaskDraft, *said: str) -> tuple[float, bool, str]:
    messages: list[Message] = domain.agent_messages(draft)
    messages += [{"role": "assistant", "content": text} for text in said]
    verdict = domain.score(draft, messages)
    return verdict.reward, verdict.success, verdict.failure


def test_the_example_is_short_and_is_the_template() -> None:
    source = (EXAMPLES / "diary.py").read_text("utf-8")
    assert len(source.splitlines()) <= 90
    assert source == (REPOSITORY / "flows/cli/templates/stateful.py.txt").read_text("utf-8")


def test_no_task_of_the_example_has_a_flaw(domain: Any) -> None:
    for draft in domain.base_tasks(3, 12):
        assert flaws(draft, domain) == []
        assert domain.parse(draft.program) == [draft]


@mutation(
    "a state is judged by the last turn alone", STATEFUL,
    "for message in messages:", "for message in messages[-1:]:",
)  # fmt: skip
@mutation(
    "what is said behind the end changes the state", STATEFUL,
    'episode.step(message["content"]).done:', 'not episode.step(message["content"]):',
)  # fmt: skip
def test_the_state_that_the_calls_lead_to_is_judged(
    diary: Any, domain: Any, draft: TaskDraft
) -> None:
    wrong, right = (0.0, False, "wrong_state"), (1.0, True, "")
    spec = draft.spec
    elsewhere = call(diary.move, number=spec["number"], day="wed", hour=9)
    assert judged(domain, draft, draft.ground_truth, "done") == right
    assert judged(domain, draft, draft.ground_truth) == right
    assert judged(domain, draft, elsewhere, draft.ground_truth, "done") == right
    assert judged(domain, draft, draft.ground_truth, elsewhere) == wrong
    assert judged(domain, draft, "done", draft.ground_truth) == wrong
    assert judged(domain, draft, "done") == judged(domain, draft) == wrong
    assert not domain.judge(draft, "done").success
    assert answer_verdict(draft, domain, draft.ground_truth).success


def test_without_a_way_of_its_own_the_ground_truth_is_what_solves(
    domain: Any, draft: TaskDraft
) -> None:
    turns = [SolutionTurn(draft.ground_truth), SolutionTurn("done")]
    plain: Any = type("Plain", (type(domain),), {"solve": StatefulDomain.solve})({})
    assert plain.solution(draft) == turns
    assert [turn.reveals for turn in domain.solution(draft)] == [()] * 4


@mutation(
    "people read calls as JSON", "genenv_core/domains/tool_calls.py",
    "    if not calls:\n        return text\n    lines", "    return text\n    lines",
)  # fmt: skip
def test_calls_are_shown_as_people_read_them(diary: Any) -> None:
    text = call(diary.move, number=3, day="tue", hour=9) + call(diary.find_free, day="wed")
    assert as_read(text) == 'move(number=3, day="tue", hour=9)\nfind_free(day="wed")'
    assert as_read(f"so: {text} then") == f"so:\n{as_read(text)}\nthen"
    for plain in ("", "7 bolts", "<tool_call>{broken"):
        assert as_read(plain) == plain


@pytest.mark.parametrize("stateful", [False, True])
def test_a_domain_that_is_begun_has_its_name_everywhere(stateful: bool, tmp_path: Path) -> None:
    new("booking", tmp_path, stateful)
    texts = [file.read_text("utf-8") for file in sorted(tmp_path.iterdir())]
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["booking.py", "test_booking.py"]
    assert all("booking" in text and "Booking" in text for text in texts)
    assert ("judge_state" in texts[0]) == stateful
    assert not any(name in text.lower() for text in texts for name in TEMPLATES.values())
