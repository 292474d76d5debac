"""TravelPlanner as a domain.

Invariants: the items are validation queries, alone those with reference information; base and
held-out tasks are annotated train queries and variants of them, disjoint in their trips whatever
the seeds, certified sound, and read back from their programs; a generation is rejected with the
right reason where it has not the schema, names what the database has not, does not say its fields
or says its plan, breaks a constraint, is held out, or repeats an item.
"""

from __future__ import annotations

import copy
import csv
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from genenv_core.benchmarks.files import read_lines
from genenv_core.benchmarks.travelplanner.database import FLIGHTS
from genenv_core.benchmarks.travelplanner.training.travelplanner_domain import TravelPlannerDomain
from genenv_core.benchmarks.travelplanner.training.trips import SCHEMA, told, unsaid
from genenv_core.domains.protocol import ConstrainsEnv, KnowsSolution, SeedData
from genenv_core.domains.registry import get_domain
from genenv_core.domains.tool_calls import written
from genenv_core.errors import ConfigError, DataError
from genenv_core.play.certificate import answer_verdict
from genenv_core.types import AgentHistory, Context, Rejected, Rejection, TaskDraft
from tests.unit.benchmarks.data import official
from tests.unit.benchmarks.travelplanner.trips import (
    SHORT,
    changed,
    short_trip,
    short_with,
    write_download,
)
from tests.unit.domains.checking import flaws
from tests.unit.domains.domain_contract import DomainContract

Record = dict[str, Any]
STARTS = range(1, 25)
"""Days of March on which the trips of the train split begin; those of validation later."""

REPEATED = 26
"""The `idx` of a query of the train split for the trip of a validation query."""

UNCLEAR = {
    "validation/124": ["people_number"],
    "validation/162": ["smoking"],
    "validation/163": ["not shared room"],
}
"""Queries of the data set whose words do not say all of their fields, or in an odd way."""


def days(start: int) -> list[str]:
    return [(date(2022, 3, start) + timedelta(days=n)).isoformat() for n in range(3)]


def worded(start: int) -> str:
    """Return a request of 13 words, one of them its own."""
    return f"On March {start}, 2 people go from Home to Lake, 3 days at $680."


def query(start: int, **more: Any) -> Record:
    return {**SHORT, "idx": start, "date": days(start), "query": worded(start), **more}


def write(folder: Path) -> Path:
    """Write a download with both splits, annotated plans, and a month of flights."""
    repeated = query(27, idx=REPEATED, query="Home to Lake and back.")
    write_download(folder, [*(query(start) for start in STARTS), repeated])
    rows = [{"idx": n, "plan": [*short_trip(), {}]} for n in (*STARTS, REPEATED)]
    (folder / "train_gold.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "validation_queries.json").write_text(json.dumps([query(27), query(28)]))
    recorded = {"idx": 27, "reference_information": [{"Description": "All", "Content": "none"}]}
    (folder / "validation_reference_information.jsonl").write_text(json.dumps(recorded))
    with (folder / "database" / FLIGHTS[0]).open("a", newline="") as file:
        last = ["F9", 60, "20:00", "21:00", "1 hour", "2022-03-31", "Lake", "Home", 100]
        csv.writer(file).writerow(last)
    return folder


def domain_of(folder: Path, **options: Any) -> TravelPlannerDomain:
    found = get_domain("travelplanner", {"data": str(folder), **options})
    assert isinstance(found, TravelPlannerDomain)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("trips"))


@pytest.fixture(scope="module", params=["sole", "two_stage"])
def made(request: pytest.FixtureRequest, folder: Path) -> TravelPlannerDomain:
    return domain_of(folder, stage=request.param)


@pytest.fixture(scope="module")
def alone(folder: Path) -> TravelPlannerDomain:
    return domain_of(folder)


def submitted(plan: Any) -> str:
    return written({"name": "submit_plan", "arguments": {"plan": plan}})


def test_items_are_validation_queries_that_can_be_played(made: TravelPlannerDomain) -> None:
    alone = made.options.stage == "sole"
    items = made.items()
    assert [d.spec["item"] for d in items] == ["validation/27", "validation/28"][: 2 - alone]
    assert made.protocol() == {
        "stage": made.options.stage, "items": len(items), "left_out": int(alone)
    }  # fmt: skip
    for draft in items:
        assert draft.prompt == worded(int(draft.spec["item"][-2:])) and not draft.ground_truth
        assert ("All:\nnone" in made.agent_messages(draft)[1]["content"]) == alone
        assert len(made.tools_of(draft)) == (1 if alone else 7)
        says, messages = submitted(short_trip()), made.agent_messages(draft)
        observation = made.episode(draft, 0).step(says)
        messages += [{"role": "assistant", "content": says}, *observation.messages]
        assert observation.done and made.score(draft, messages).success
        assert made.verdict(draft, messages) == made.suite.judge(
            draft.spec["item"], short_trip(), "official"
        )
    with pytest.raises(DataError, match="two_stage") if alone else pytest.raises(KeyError):
        made.item("validation/28" if alone else "validation/99")


class TestTravelPlanner(DomainContract):
    """The contract, with the reference information and with tools."""

    examples = 20
    protocols = (SeedData, ConstrainsEnv, KnowsSolution)
    refuses_heldout = True
    by_hash = False  # of the query that a trip is a variant of
    alien = (
        {},
        {"query": {}},
        {"query": query(1)},
        {"query": 7, "reference": []},
        {"query": query(1), "reference": 7},
    )

    @pytest.fixture
    def domain(self, made: TravelPlannerDomain) -> TravelPlannerDomain:
        return made

    def apart(self, draft: TaskDraft) -> str:
        return draft.spec["query"]["date"][0]

    def shows(self, message: str, prompt: str) -> bool:
        return prompt in message


def test_base_tasks_are_of_all_levels(made: TravelPlannerDomain) -> None:
    drafts = made.base_tasks(0, 60)
    assert {draft.family for draft in drafts} == {f"{n} 3 days" for n in ("easy", "medium", "hard")}
    assert {draft.difficulty for draft in drafts} == {3.0, 4.0, 5.0, 6.0}


def test_every_trip_is_a_base_or_a_heldout_task(alone: TravelPlannerDomain) -> None:
    base = [draft for seed in range(4) for draft in alone.base_tasks(seed, 60)]
    held = [draft for seed in range(4) for draft in alone.heldout_tasks(seed, 20)]
    assert len({draft.spec["query"]["date"][0] for draft in [*base, *held]}) == len(STARTS)


def test_without_annotated_plans_there_is_nothing_to_train_on(tmp_path: Path) -> None:
    (write(tmp_path) / "train_gold.jsonl").unlink()
    domain = domain_of(tmp_path)
    for draw in (domain.base_tasks, domain.heldout_tasks):
        with pytest.raises(ConfigError, match="needs queries with annotated plans"):
            draw(0, 1)


def test_plans_that_fail_are_no_tasks(tmp_path: Path) -> None:
    folder = write(tmp_path)
    rows = [{"idx": n, "plan": short_with(2, lunch="-") if n % 2 else short_trip()}
            for n in STARTS]  # fmt: skip
    (folder / "train_gold.jsonl").write_text("\n".join(map(json.dumps, rows)))
    items = [*domain_of(folder)._train.open, *domain_of(folder)._train.heldout]
    assert sorted(items) == sorted(f"train/{n}" for n in STARTS if n % 2 == 0)


def edit(record: Record, place: str, value: Any) -> str:
    """Return a generation with another value at a place such as `fields.days`."""
    edited = copy.deepcopy(record)
    *parents, last = place.split(".")
    inner: Any = edited
    for name in parents:
        inner = inner[int(name) if name.isdigit() else name]
    if value is KeyError:
        del inner[last]
    else:
        inner[last] = value
    return json.dumps(edited)


def local(**more: Any) -> Record:
    return {**SHORT["local_constraint"], **{name.replace("_", " "): v for name, v in more.items()}}


REFUSED: dict[str, tuple[str, Any, Rejection, str]] = {
    "no query": ("query", KeyError, Rejection.UNPARSEABLE, "'query'"),
    "no plan": ("plan", KeyError, Rejection.UNPARSEABLE, "'plan'"),
    "more": ("notes", "x", Rejection.UNPARSEABLE, "'notes'"),
    "number as query": ("query", 7, Rejection.UNPARSEABLE, "query: 7"),
    "long query": ("query", "x" * 1001, Rejection.UNPARSEABLE, "query: "),
    "half a character": ("query", "\ud800", Rejection.UNPARSEABLE, "half of a character"),
    "no org": ("fields.org", KeyError, Rejection.UNPARSEABLE, "'org' is a required"),
    "null org": ("fields.org", None, Rejection.UNPARSEABLE, "fields.org"),
    "text as days": ("fields.days", "3", Rejection.UNPARSEABLE, "fields.days"),
    "four days": ("fields.days", 4, Rejection.UNPARSEABLE, "fields.days"),
    "true people": ("fields.people_number", True, Rejection.UNPARSEABLE, "people_number"),
    "no people": ("fields.people_number", 0, Rejection.UNPARSEABLE, "people_number"),
    "many people": ("fields.people_number", 9, Rejection.UNPARSEABLE, "people_number"),
    "text as budget": ("fields.budget", "680", Rejection.UNPARSEABLE, "budget"),
    "half a dollar": ("fields.budget", 680.5, Rejection.UNPARSEABLE, "budget"),
    "no number": ("fields.budget", float("nan"), Rejection.UNPARSEABLE, "budget"),
    "odd cuisine": ("fields.local_constraint", local(cuisine=["Martian"]), Rejection.UNPARSEABLE,
                    "cuisine"),
    "odd rule": ("fields.local_constraint", local(house_rule="shouting"), Rejection.UNPARSEABLE,
                 "house rule"),
    "odd constraint": ("fields.local_constraint", local(view="sea"), Rejection.UNPARSEABLE,
                       "local_constraint"),
    "plan as text": ("plan", "Day 1", Rejection.UNPARSEABLE, "plan"),
    "short plan": ("plan", short_trip()[:2], Rejection.UNPARSEABLE, "plan"),
    "day as text": ("plan", ["day"] * 3, Rejection.UNPARSEABLE, "plan."),
    "no dinner": ("plan.1.dinner", KeyError, Rejection.UNPARSEABLE, "'dinner'"),
    "null lunch": ("plan.1.lunch", None, Rejection.UNPARSEABLE, "plan.1.lunch"),
    "list as lunch": ("plan.1.lunch", ["Beta, Lake"], Rejection.UNPARSEABLE, "plan.1.lunch"),
    "two cities": ("fields.visiting_city_number", 2, Rejection.OUT_OF_RANGE, "visits 1 cities"),
    "five days": ("fields.days", 5, Rejection.OUT_OF_RANGE, "3 dates for 5 days"),
    "unknown org": ("fields.org", "Atlantis", Rejection.OUT_OF_RANGE, "no city 'Atlantis'"),
    "state": ("fields.dest", "Maine", Rejection.OUT_OF_RANGE, "no city 'Maine'"),
    "no date": ("fields.date", ["soon"] * 3, Rejection.OUT_OF_RANGE, "isoformat"),
    "next year": ("fields.date", ["2023-03-01", "2023-03-02", "2023-03-03"], Rejection.OUT_OF_RANGE,
                  "from 2022-03-01 to 2022-03-31"),
    "april": ("fields.date", ["2022-03-31", "2022-04-01", "2022-04-02"], Rejection.OUT_OF_RANGE,
              "from 2022-03-01 to 2022-03-31"),
    "gap": ("fields.date", ["2022-03-01", "2022-03-02", "2022-03-09"], Rejection.OUT_OF_RANGE,
            "one day after the other"),
    "other people": ("fields.people_number", 3, Rejection.INCONSISTENT, "people_number"),
    "other budget": ("fields.budget", 700, Rejection.INCONSISTENT, "budget"),
    "unsaid": ("fields.local_constraint", local(house_rule="pets"), Rejection.INCONSISTENT, "pets"),
    "unsaid cuisines": ("fields.local_constraint", local(cuisine=["French", "Mexican"]),
                        Rejection.INCONSISTENT, "French, Mexican"),
    "incomplete": ("plan.1.lunch", "-", Rejection.REJECTS_GROUND_TRUTH, "complete_information"),
    "invented": ("plan.1.lunch", "Zeta, Lake", Rejection.REJECTS_GROUND_TRUTH, "within_sandbox"),
    "repeated": ("plan.1.lunch", "Beta, Lake", Rejection.REJECTS_GROUND_TRUTH,
                 "diverse_restaurants"),
    "too dear": ("plan.1.lunch", "Alpha Grill, Lake", Rejection.REJECTS_GROUND_TRUTH, "budget"),
    "a day more": ("plan", [*short_trip(), {**short_trip()[2], "days": 4}],
                   Rejection.REJECTS_GROUND_TRUTH, "4 days, wanted 3"),
}  # fmt: skip


@pytest.fixture(scope="module")
def record(alone: TravelPlannerDomain) -> Record:
    """Return an annotated query as a generation."""
    return json.loads(alone._train.annotated(alone._train.open[0]).program)


@pytest.mark.parametrize(("place", "value", "reason", "detail"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_task_is_rejected(
    alone: TravelPlannerDomain, record: Record, place: str, value: Any, reason: Rejection,
    detail: str,
) -> None:  # fmt: skip
    assert isinstance(alone.parse(json.dumps(record))[0], TaskDraft)
    (found,) = alone.parse(edit(record, place, value))
    assert isinstance(found, Rejected)
    assert found.reason is reason and detail in found.detail, found


@pytest.mark.parametrize("said", ["the Beta", "beta", "flight F12345"])
def test_a_request_that_says_its_plan_is_rejected(
    alone: TravelPlannerDomain, record: Record, said: str
) -> None:
    plan = changed(record["plan"], 2, lunch="Beta House, Lake")
    query_ = alone.suite.queries[alone._train.open[0]]  # type: ignore[attr-defined]
    words = f"{query_.text} We like {said} House and F12345."
    plan[0]["transportation"] = "Flight Number: F12345, from Home to Lake"
    assert told(replace(query_, text=words), plan) in ("Beta House", "F12345")
    assert told(query_, plan) == ""
    leaky = edit(record, "query", f"{record['query']} We sleep in the gamma, inn.")
    (found,) = alone.parse(leaky)
    assert isinstance(found, Rejected) and found.reason is Rejection.LEAKS_ANSWER


def test_a_trip_of_the_benchmark_is_contaminated(
    alone: TravelPlannerDomain, record: Record
) -> None:
    for start in (27, 28):  # also the one that cannot be played alone
        one = copy.deepcopy(record)
        one["fields"]["date"] = days(start)
        one["query"] = f"2 people, Home to Lake, 3 days from March {start}, $680."
        (found,) = alone.parse(json.dumps(one))
        assert isinstance(found, Rejected) and found.reason is Rejection.CONTAMINATED
        assert f"the trip of item validation/{start}" in found.detail


def test_words_of_the_benchmark_are_contaminated(
    alone: TravelPlannerDomain, record: Record
) -> None:
    for start in (27, 28):
        text = f"{record['query']} Or: {worded(start)}"
        (found,) = alone.parse(edit(record, "query", text))
        assert isinstance(found, Rejected) and found.reason is Rejection.CONTAMINATED
        assert "13 words in a row" in found.detail


def test_an_annotated_query_that_repeats_an_item_is_no_task(made: TravelPlannerDomain) -> None:
    items = [*made._train.open, *made._train.heldout]
    assert sorted(items) == sorted(f"train/{start}" for start in STARTS)


def test_the_ground_truth_is_the_submitted_plan(made: TravelPlannerDomain) -> None:
    draft = made.base_tasks(0, 1)[0]
    (call,) = made.calls_of(draft)
    assert submitted(call.arguments["plan"]) == draft.ground_truth
    assert answer_verdict(draft, made, draft.ground_truth).success
    for answer in made.trivial_answers(draft):
        assert not answer_verdict(draft, made, answer).success
    assert made.calls_of(made.items()[0]) == [] and made.trivial_answers(made.items()[0])
    assert not answer_verdict(draft, made, submitted(short_with(2, lunch="-"))).success


def test_alone_a_task_comes_with_what_its_plan_needs(folder: Path) -> None:
    alone, two = domain_of(folder), domain_of(folder, stage="two_stage")
    draft = alone.base_tasks(0, 1)[0]
    text = alone.agent_messages(draft)[1]["content"]
    assert "Restaurants in Lake:\n" in text and "Alpha Grill" in text
    assert "Taxi from Lake to Home:\n" in text and text.endswith(f"Request: {draft.prompt}")
    assert two.agent_messages(draft)[1]["content"] == draft.prompt
    assert len(two.tools_of(draft)) == 7 and len(alone.tools_of(draft)) == 1


def context(base: TaskDraft, **rates: tuple[int, int]) -> Context:
    return Context("c1", "t1", base, AgentHistory(0.7, rates))


def test_pi_env_is_told_what_there_is(made: TravelPlannerDomain) -> None:
    base = made.base_tasks(0, 1)[0]
    system, user = made.env_messages(context(base, **{"easy 3 days": (3, 8)}))
    assert json.dumps(SCHEMA) in system["content"]
    assert "Restaurants in Lake:\n" in user["content"]
    assert "success by kind: easy 3 days 3/8" in user["content"]
    assert user["content"].endswith(f"success 7/10; base: {base.program} ; new:")


def test_seed_examples_are_right(made: TravelPlannerDomain) -> None:
    easy = [made.parse(text)[0] for _, text in made.env_examples(0, 20, 1.0)]
    assert all(isinstance(draft, TaskDraft) and draft.family == "easy 3 days" for draft in easy)
    examples = made.agent_examples(0, 40)
    assert len(examples) == 40
    for messages, text in examples:
        assert text.startswith("<tool_call>") and "submit_plan" in text
        assert not any(m["content"].startswith("Error") for m in messages)
        looked = [m for m in messages if m["role"] == "tool"]
        assert len(looked) == (0 if made.options.stage == "sole" else 9)


def test_options_are_read(folder: Path) -> None:
    assert domain_of(folder, mode="strict").mode == "strict"
    for options in ({"stage": "three"}, {"mode": "loose"}, {"rooms": 1}):
        with pytest.raises(ConfigError):
            domain_of(folder, **options)


# On the official data.


@pytest.fixture(scope="module")
def released() -> Callable[[str], TravelPlannerDomain]:
    data = str(official("travelplanner"))
    return lambda stage: TravelPlannerDomain.from_options({"data": data, "stage": stage})


def test_released_plans_get_their_verdicts(
    released: Callable[[str], TravelPlannerDomain],
) -> None:
    path = official("travelplanner") / "validation_example_plans_180.jsonl"
    plans = {f"validation/{row['idx']}": row["plan"] for row in read_lines(path)}
    counts: list[int] = []
    for stage in ("sole", "two_stage"):
        domain = released(stage)
        drafts = domain.items()
        counts.append(len(drafts))
        for draft in drafts:
            plan = plans[draft.spec["item"]]
            says, messages = submitted(plan), domain.agent_messages(draft)
            observation = domain.episode(draft, 0).step(says)
            messages += [{"role": "assistant", "content": says}, *observation.messages]
            wanted = domain.suite.judge(draft.spec["item"], plan or None, "official")
            assert domain.verdict(draft, messages) == wanted
    assert counts == [24, 126]


def test_released_queries_say_their_fields(
    released: Callable[[str], TravelPlannerDomain],
) -> None:
    queries = released("two_stage")._trips.queries
    found = {item: unsaid(query_) for item, query_ in queries.items()}
    assert {item: names for item, names in found.items() if names} == UNCLEAR


@pytest.mark.parametrize("stage", ["sole", "two_stage"])
@pytest.mark.slow
def test_tasks_of_the_released_split_are_sound(
    released: Callable[[str], TravelPlannerDomain], stage: str
) -> None:
    domain = released(stage)
    assert (len(domain._train.open), len(domain._train.heldout)) == (34, 11)
    for draft in domain.base_tasks(0, 40):
        assert flaws(draft, domain) == [] and domain.parse(draft.program) == [draft]
    assert len(domain.heldout_tasks(0, 60)) == 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_tasks_of_the_released_split_are_sound(
    released: Callable[[str], TravelPlannerDomain], seed: int
) -> None:
    domain = released("sole")
    for draft in domain.base_tasks(seed, 200):
        assert flaws(draft, domain) == [] and domain.parse(draft.program) == [draft]


def test_mode_strict_leaves_out_what_does_not_pass_it(
    released: Callable[[str], TravelPlannerDomain],
) -> None:
    strict = TravelPlannerDomain.from_options(
        {"data": str(official("travelplanner")), "mode": "strict"}
    )
    assert "train/42" not in [*strict._train.open, *strict._train.heldout]
    assert len([*strict._train.open, *strict._train.heldout]) == 44
