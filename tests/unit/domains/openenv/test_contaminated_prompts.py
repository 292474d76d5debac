"""Tasks of a server that say what a held-out task says, under other arguments.

Invariants: a new task with 13 words in a row of one held-out prompt is rejected as contaminated,
though its arguments are others; words that another data task has too, the form of the prompts,
reject nothing; tasks of domains that write their own prompts are not compared, nor are those of
one beside a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from genenv_core.domains.openenv import openenv
from genenv_core.domains.protocol import Domain
from genenv_core.domains.registry import get_domain
from genenv_core.epoch.rows import data_tasks
from genenv_core.epoch.writing.contamination import HeldoutPrompts
from genenv_core.epoch.writing.intake import Intake
from genenv_core.types import Rejection, TaskDraft, TaskSource
from schemas.registry import empty
from tests.mutations import mutation
from tests.unit.domains.openenv.double import Sums, SumsServer, serving
from tests.unit.domains.openenv.test_openenv_server import PLACE

CONTAMINATION = "genenv_core/domains/kit/known_items.py"
ITEMS = ("ducks", "geese", "hens", "cows", "pigs", "dogs", "cats", "bees", "ants", "bats")


class Riddles(Sums):
    """Ten riddles, each of which many seeds tell."""

    said = "A farmer has {item} in the barn and {item} in the garden; how many {item} are there?"

    def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        found = super().reset({"first": 2, "second": 3})
        found["observation"]["said"] = self.said.format(item=ITEMS[data["seed"] % len(ITEMS)])
        return found


class Alike(Riddles):
    """One riddle for all seeds: what is asked for stays with the server."""

    said = "A farmer has a secret number of animals in the barn; how many are there?"


@pytest.fixture
def server() -> Iterator[SumsServer]:
    with serving(session=Riddles) as started:
        yield started


def found(domain: Domain, programs: str, held: list[TaskDraft], base: list[TaskDraft]) -> list[Any]:
    """Return the rejections of programs beside these data tasks."""
    sources = {TaskSource.BASE: base, TaskSource.VALIDATION: held[:1], TaskSource.TEST: held[1:]}
    intake = Intake(
        domain, data_tasks(sources, "0" * 10), empty("tasks"), guard=False, epoch=1, scope="0" * 10
    )
    for program in programs.split():
        for one in domain.parse(program):
            intake.add(one, source="generated")
    return intake.output().tables["tasks"]["rejection"].to_list()


def seeds(domain: Any, *, heldout: bool, riddle: int) -> list[str]:
    """Return the programs that tell a riddle, held out or not."""
    told = ({"seed": 10 * tens + riddle} for tens in range(10))
    return [f'{{"seed":{one["seed"]}}}' for one in told if domain.is_heldout(one) is heldout]


def task(domain: Domain, program: str) -> TaskDraft:
    made = domain._task({"seed": int(program[8:-1])})  # type: ignore[attr-defined]
    assert isinstance(made, TaskDraft)
    return made


@mutation(
    "prompts of a server's held-out tasks are not compared",
    "genenv_core/domains/kit/served/served_domain.py", "compares_prompts = True", "pass",
)  # fmt: skip
@mutation(
    "a repeated prompt is no reason to reject", "genenv_core/epoch/writing/intake.py",
    "old = old or self._prompts.refused(draft)", "pass",
)  # fmt: skip
def test_a_task_that_says_what_a_heldout_one_says_is_contaminated(server: SumsServer) -> None:
    domain = openenv({"url": server.url, "seeds": 100})
    held = [one for one in range(10) if seeds(domain, heldout=True, riddle=one)][:2]
    tests = [task(domain, seeds(domain, heldout=True, riddle=one)[0]) for one in held]
    free = next(one for one in range(10) if one not in held)
    base = [task(domain, seeds(domain, heldout=False, riddle=free)[0])]
    same = seeds(domain, heldout=False, riddle=held[0])[0]
    other = seeds(domain, heldout=False, riddle=free)[1]
    said = found(domain, f"{same} {other}", tests, base)
    assert said == [Rejection.CONTAMINATED.value, None]


@mutation(
    "what two held-out prompts say tells a task", CONTAMINATION,
    "shared.union(said) & runs.keys()", "set(said) & runs.keys()",
)  # fmt: skip
@mutation(
    "what a base task says too tells a held-out task", CONTAMINATION,
    "shared.union(said) & runs.keys()", "shared & runs.keys()",
)  # fmt: skip
@pytest.mark.parametrize(("of_tests", "of_base"), [(2, 0), (1, 1)])
def test_the_form_of_prompts_rejects_nothing(of_tests: int, of_base: int) -> None:
    with serving(session=Alike) as server:
        domain = openenv({"url": server.url, "seeds": 100})
        tests, base = domain.heldout_tasks(0, of_tests), domain.base_tasks(0, 3)
        assert found(domain, base[2].program, tests, base[:of_base]) == [None]


@mutation(
    "prompts of all domains are compared", "genenv_core/epoch/writing/contamination.py",
    "if not compares_prompts(own_task(self._domain, draft)[0]):", "if False:",
)  # fmt: skip
def test_other_domains_are_not_compared(server: SumsServer) -> None:
    desk = get_domain("desk")
    (held, *_), (base, *_) = desk.heldout_tasks(0, 1), desk.base_tasks(0, 1)
    data = data_tasks({TaskSource.BASE: [base], TaskSource.TEST: [held]}, "0" * 10)
    assert HeldoutPrompts(desk, data).refused(held) is None
    options = {"url": server.url, "seeds": 100}
    parts = [{"name": PLACE, "options": options}, {"name": "desk"}]
    several = get_domain("several", {"parts": parts})
    drafts = several.heldout_tasks(0, 4)
    base = several.base_tasks(0, 2)
    data = data_tasks({TaskSource.BASE: base, TaskSource.TEST: drafts}, "0" * 10)
    compared = {one.family for one in drafts if HeldoutPrompts(several, data).refused(one)}
    assert compared == {"openenv/task"}
