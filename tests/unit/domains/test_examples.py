"""The smallest domain of docs/domain.md, as a reader would write it.

Invariants: it has at most 60 lines; every base and held-out task passes admission;
the two sets are disjoint, whatever the seeds; no text makes the parser raise; a right answer
succeeds and another one fails.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_core.play.certificate import answer_verdict
from genenv_core.types import AgentHistory, Context, Rejected, Rejection, TaskDraft
from tests.unit.domains.checking import flaws

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture(scope="module")
def domain() -> Any:
    """Return the example with sums of at most three digits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return importlib.import_module("sums").Sums({"terms": 3})


def test_the_smallest_domain_has_sixty_lines() -> None:
    assert len((EXAMPLES / "sums.py").read_text().splitlines()) <= 60


def test_every_task_is_admitted(domain: Any) -> None:
    drafts = [*domain.base_tasks(1, 40), *domain.heldout_tasks(1, 20)]
    assert len({draft.fingerprint for draft in drafts}) == 60
    for draft in drafts:
        assert flaws(draft, domain) == []
        assert domain.parse(draft.program) == [draft]
        assert not answer_verdict(draft, domain, f"{draft.ground_truth}1").success
        assert domain.episode(draft, 0).step(draft.ground_truth).done


@pytest.mark.parametrize("seed", range(5))
def test_no_heldout_task_is_a_base_task(domain: Any, seed: int) -> None:
    heldout = {draft.program for draft in domain.heldout_tasks(seed, 400)}
    assert heldout.isdisjoint(draft.program for draft in domain.base_tasks(seed + 1, 400))


def test_pi_env_reads_the_success_rate_and_the_base_task(domain: Any) -> None:
    base = domain.base_tasks(0, 1)[0]
    for history, shown in ((AgentHistory(), "0.0"), (AgentHistory(0.26), "0.3")):
        (message,) = domain.env_messages(Context("c", "t", base, history))
        assert message["content"] == f"success {shown} , vary {base.program}"


@given(text=st.text() | st.from_regex(r"[0-9]( \+ [0-9])*", fullmatch=True))
def test_the_parser_never_raises(domain: Any, text: str) -> None:
    (parsed,) = domain.parse(text)
    assert isinstance(parsed, TaskDraft | Rejected)


def test_a_longer_sum_is_out_of_range(domain: Any) -> None:
    assert domain.parse("2 + 2 + 2 + 2")[0].reason == Rejection.OUT_OF_RANGE
