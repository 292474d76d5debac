"""TravelPlanner's verdicts on plans.

Invariants: each of the eight commonsense and five hard constraints holds for a plan that keeps it
and fails for one that breaks it, and no other fails with it; hard constraints are judged only on
complete plans within the database; a plan that is not delivered, or that cannot be read, fails and
stops nothing; rates have the official denominators; mode official keeps what the official evaluator
overlooks, and mode strict does not; texts are read as the official patterns read them, in linear
time. On the official data, the annotated plans pass and the example plans have the official
evaluator's numbers.
"""

from __future__ import annotations

import copy
import csv
import json
import random
import re
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from genenv_core.benchmarks.files import read_lines
from genenv_core.benchmarks.protocol import ItemVerdict, Suite
from genenv_core.benchmarks.registry import get_benchmark
from genenv_core.benchmarks.travelplanner.constraints.commonsense import COMMONSENSE
from genenv_core.benchmarks.travelplanner.constraints.hard import HARD
from genenv_core.benchmarks.travelplanner.database import FLIGHTS, ROOMS, Database, read_database
from genenv_core.benchmarks.travelplanner.plan import CELLS
from genenv_core.benchmarks.travelplanner.queries import read_queries
from genenv_core.benchmarks.travelplanner.suite import BENCHMARK, TravelPlanner
from genenv_core.benchmarks.travelplanner.text import from_to, name_and_city, without_state
from genenv_core.errors import ConfigError, DataError
from tests.examples import some
from tests.mutations import mutation
from tests.unit.benchmarks.data import official
from tests.unit.benchmarks.travelplanner.trips import (
    CABIN,
    FIRST,
    INN,
    LAST,
    LOFT,
    LONG,
    SHORT,
    Days,
    asking,
    changed,
    long_trip,
    short_trip,
    short_with,
    write_download,
)

TRAVELPLANNER_COMMONSENSE = "genenv_core/benchmarks/travelplanner/constraints/commonsense.py"
JUDGING = "genenv_core/benchmarks/travelplanner/judging.py"
PLAN = "genenv_core/benchmarks/travelplanner/plan.py"

TRAIN, VALIDATION = "train_gold.jsonl", "validation_example_plans_180.jsonl"
HARD_LIMIT_S = 5.0
"""Seconds that no verdict may take, however slow the machine; they take milliseconds."""


@pytest.fixture(scope="module")
def download(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_download(tmp_path_factory.mktemp("trips"))


@pytest.fixture(scope="module")
def database(download: Path) -> Database:
    return read_database(download)


@cache
def official_suite() -> Suite:
    return BENCHMARK.load(official("travelplanner"))


class Judge:
    """Judges plans of a query over the small database."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.file = folder / "query.json"

    def __call__(
        self, plan: Any, query: dict[str, Any] = SHORT, mode: str = "official"
    ) -> ItemVerdict:
        self.file.write_text(json.dumps([{**query, "idx": 1}]), encoding="utf-8")
        suite = TravelPlanner({"train/1": read_queries(self.file)[1]}, self.database, "")
        verdict = suite.judge("train/1", plan, mode)
        json.dumps(verdict.parts)
        return verdict


@pytest.fixture
def judge(database: Database, tmp_path: Path) -> Judge:
    return Judge(database, tmp_path)


def failed(verdict: ItemVerdict) -> set[str]:
    """Return the constraints that fail; each says why."""
    parts = {name: part for name, part in verdict.parts.items() if name != "delivered"}
    names = {name for name, part in parts.items() if part["passed"] is False}
    assert all(parts[name]["reason"] for name in names)
    return names


@pytest.mark.parametrize("mode", BENCHMARK.modes)
def test_good_plans_pass_everything(judge: Judge, mode: str) -> None:
    verdict = judge(short_trip(), mode=mode)
    assert (verdict.valid, verdict.score, verdict.reason) == (True, 1.0, "")
    assert all(verdict.parts[name]["passed"] is True for name in (*COMMONSENSE, "budget"))
    asked = set(HARD) - {"budget"}
    assert all(verdict.parts[name]["passed"] is None for name in asked)
    assert failed(judge(long_trip(), LONG, mode)) == set()


@mutation(
    "one room holds everybody", "genenv_core/benchmarks/travelplanner/constraints/hard.py",
    "room.price * math.ceil(query.people / room.occupancy)", "room.price",
)  # fmt: skip
def test_the_budget_is_for_all_people_nights_and_rides(judge: Judge) -> None:
    assert failed(judge(short_trip(), {**SHORT, "budget": 680})) == set()
    verdict = judge(short_trip(), {**SHORT, "budget": 679})
    assert failed(verdict) == {"budget"} and "680" in verdict.parts["budget"]["reason"]
    # Three people: 330 for flights, 450 for meals, two rooms of 80 for two nights.
    three = {**SHORT, "people_number": 3, "budget": 1100}
    assert failed(judge(short_trip(), three)) == set()
    assert failed(judge(short_trip(), {**three, "budget": 1099})) == {"budget"}


@pytest.mark.parametrize(
    ("means", "people", "cost"),
    # 1,100 km there and 59.9 km back; a car has 5 seats and a taxi 4.
    [("Self-driving", 5, 55 + 2), ("Self-driving", 6, 114), ("Taxi", 4, 1159), ("Taxi", 5, 2318)],
)
def test_rides_cost_by_km_and_vehicle(judge: Judge, means: str, people: int, cost: int) -> None:
    ride = short_with(1, transportation=f"{means}, from Home to Lake")
    ride = changed(ride, 3, transportation=f"{means}, from Lake to Home")
    rest = 150 * people + 160 * -(-people // 2)
    query = {**SHORT, "people_number": people, "budget": cost + rest}
    assert failed(judge(ride, query)) == set()
    assert failed(judge(ride, {**query, "budget": cost + rest - 1})) == {"budget"}


RICH = {**SHORT, "budget": 9000}
BROKEN: list[tuple[str, Days, dict[str, Any]]] = [
    ("within_current_city", short_with(1, dinner="Bar 7, Port"), SHORT),
    ("within_current_city", short_with(1, attraction="Pier, Port;"), SHORT),
    ("within_current_city", short_with(1, transportation="Taxi to Lake"), RICH),
    ("within_current_city",
     changed(changed(long_trip(), 1, accommodation=INN), 2, accommodation=LOFT), LONG),
    ("within_sandbox", short_with(2, lunch="Nowhere, Lake"), SHORT),
    ("within_sandbox", short_with(2, lunch="Lake"), SHORT),
    ("within_sandbox", short_with(2, attraction="Canyon, Lake;"), SHORT),
    ("within_sandbox", short_with(3, transportation=LAST.replace("F2", "F1")), SHORT),
    ("within_sandbox", short_with(1, transportation=FIRST.replace("F1", "F01")), SHORT),
    ("within_sandbox", short_with(1, transportation=FIRST.replace("F1", "F9")), SHORT),
    ("within_sandbox", short_with(1, transportation=FIRST.replace("F1", "F")), SHORT),
    ("diverse_restaurants", short_with(3, breakfast="Delta, Lake"), SHORT),
    ("diverse_attractions", short_with(2, attraction="Falls, Lake;"), SHORT),
    ("complete_information", short_with(2, lunch="-"), SHORT),
    ("complete_information", short_with(2, attraction=""), SHORT),
    ("complete_information", short_with(3, transportation="-"), SHORT),
    ("complete_information", short_trip(), {**SHORT, "visiting_city_number": 2}),
    ("minimum_nights", short_with(2, accommodation=LOFT), RICH),
    ("reasonable_city_route", long_trip(), {**LONG, "dest": "Texas"}),
]  # fmt: skip


@mutation(
    "any flight of the number flies where the plan goes", TRAVELPLANNER_COMMONSENSE,
    "(flight.origin, flight.destination) == ends", "bool(ends)",
)  # fmt: skip
@mutation(
    "one night is always enough", TRAVELPLANNER_COMMONSENSE, "nights < room.nights", "nights < 1"
)
@pytest.mark.parametrize(("constraint", "plan", "query"), BROKEN)
def test_a_broken_constraint_fails_alone(
    judge: Judge, constraint: str, plan: Days, query: dict[str, Any]
) -> None:
    for mode in BENCHMARK.modes:
        verdict = judge(plan, query, mode)
        assert (failed(verdict), verdict.valid) == ({constraint}, False)
        assert verdict.reason.startswith(f"{constraint}: ")


def test_a_car_goes_neither_with_flights_nor_with_taxis(judge: Judge) -> None:
    car, taxi = (f"{means}, from Lake to Home" for means in ("Self-driving", "Taxi"))
    conflict = {"non_conflicting_transportation"}
    assert failed(judge(short_with(3, transportation=car))) == conflict
    assert failed(judge(short_with(3, transportation=taxi))) - {"budget"} == set()
    ride = short_with(1, transportation="Self-driving, from Home to Lake")
    assert failed(judge(changed(ride, 3, transportation=taxi))) - {"budget"} == conflict
    # Nothing on day 1 is a fault of its own.
    assert conflict < failed(judge(short_with(1, transportation="-")))


@mutation(
    "a trip may end anywhere", TRAVELPLANNER_COMMONSENSE,
    "if cities[0] != cities[-1]:", "if not cities:",
)  # fmt: skip
@pytest.mark.parametrize(
    "cities",
    [
        ["from Home to Lake", "Lake", "Lake"],  # no way back
        ["from Hill to Lake", "Lake", "from Lake to Hill"],  # not from the origin
        ["from Home to Lake", "from Lake to Home", "Home"],  # home too early
        ["from Home to Nowhere", "Nowhere", "from Nowhere to Home"],
    ],
)
def test_a_route_is_a_round_trip_through_known_cities(judge: Judge, cities: list[str]) -> None:
    plan = [{**one, "current_city": city} for one, city in zip(short_trip(), cities, strict=True)]
    assert "reasonable_city_route" in failed(judge(plan))


def test_a_route_visits_a_city_once_and_stays_in_it(judge: Judge) -> None:
    back = ["from Home to Lake", "from Lake to Port", "Port", "from Port to Lake"]
    through = ["from Home to Lake", "Port", "Port", "Lake"]
    for cities in (back, through):
        plan = long_trip()
        for one, city in zip(plan, [*cities, "from Lake to Home"], strict=True):
            one["current_city"] = city
        assert "reasonable_city_route" in failed(judge(plan, LONG))


def test_states_in_brackets_are_left_out(judge: Judge) -> None:
    spelled = long_trip()
    for one in spelled:
        one["current_city"] = re.sub("(Lake|Port)", r"\1(Maine)", one["current_city"])
        one["accommodation"] = one["accommodation"].replace("Port", "Port(Maine)")
    assert failed(judge(spelled, LONG)) == set()


@mutation(
    "places that lack a value are in the database",
    "genenv_core/benchmarks/travelplanner/database.py",
    "if whole and any(value is None or value in MISSING for value in row.values()):",
    "if None in row.values():",
)  # fmt: skip
def test_rows_that_lack_a_value_are_not_in_the_database(judge: Judge) -> None:
    missing = {"within_sandbox"}
    assert failed(judge(short_with(1, attraction="Silo, Lake;"))) == missing
    flown = short_with(1, transportation=FIRST.replace("F1", "F4"))
    assert failed(judge(flown)) == missing
    bare = short_with(1, accommodation="Bare, Lake")
    assert failed(judge(changed(bare, 2, accommodation="Bare, Lake"))) == missing


def test_a_road_of_a_day_or_of_no_length_is_none(judge: Judge) -> None:
    for city in ("Hill", "Isle", "Lakeside"):
        ride = short_with(1, transportation=f"Taxi, from Home to {city}, Lake")
        assert failed(judge(ride)) == {"within_sandbox"}


@pytest.mark.parametrize(
    ("asked", "stay", "kept"),
    [
        ({"house_rule": "smoking"}, CABIN, False),
        ({"house_rule": "pets"}, CABIN, True),
        ({"house_rule": "pets"}, LOFT, False),
        ({"house_rule": "parties"}, LOFT, False),
        ({"house_rule": "children under 10"}, "Dorm Annex, Lake", False),
        ({"house_rule": "visitors"}, "Dorm Annex, Lake", True),
        ({"room_type": "entire room"}, LOFT, True),
        ({"room_type": "entire room"}, CABIN, False),
        ({"room_type": "private room"}, CABIN, True),
        ({"room_type": "private room"}, LOFT, False),
        ({"room_type": "shared room"}, "Dorm Annex, Lake", True),
        ({"room_type": "shared room"}, CABIN, False),
        ({"room_type": "not shared room"}, CABIN, True),
        ({"room_type": "not shared room"}, "Dorm Annex, Lake", False),
    ],
)
def test_rooms_are_of_the_kind_and_the_rule_that_is_asked(
    judge: Judge, asked: dict[str, str], stay: str, kept: bool
) -> None:
    plan = changed(short_with(1, accommodation=stay), 2, accommodation=stay)
    verdict = judge(plan, asking(SHORT, budget=9000, **asked))
    name = "room_rule" if "house_rule" in asked else "room_type"
    assert failed(verdict) == (set() if kept else {name})
    assert verdict.parts[name]["passed"] is kept


def test_every_cuisine_is_had_away_from_the_origin(judge: Judge) -> None:
    wanted = asking(SHORT, cuisine=["Italian", "French"], budget=9000)
    assert judge(short_trip(), wanted).parts["cuisine"]["passed"] is True
    wanted = asking(SHORT, cuisine=["Italian", "Mexican"], budget=9000)
    verdict = judge(short_trip(), wanted)
    assert failed(verdict) == {"cuisine"} and "Mexican" in verdict.reason
    assert failed(judge(short_with(3, lunch="Alpha Grill, Lake"), wanted)) == set()
    # What a day has after a meal at the origin does not count.
    tavern = short_with(3, breakfast="Tavern, Home", lunch="Alpha Grill, Lake")
    assert failed(judge(tavern, wanted)) == {"cuisine"}


def test_forbidden_transportation_is_found(judge: Judge) -> None:
    for forbidden, plan, query in (
        ("no flight", short_trip(), SHORT),
        ("no self-driving", long_trip(), LONG),
    ):
        verdict = judge(plan, asking(query, transportation=forbidden))
        assert failed(verdict) == {"transportation"}
    allowed = judge(short_trip(), asking(SHORT, transportation="no self-driving"))
    assert allowed.valid and allowed.parts["transportation"]["passed"] is True


@mutation(
    "hard constraints are judged on any plan", JUDGING,
    "judged = all(outcomes[name].passed for name in BEFORE_HARD)", "judged = True",
)  # fmt: skip
def test_hard_constraints_wait_for_a_complete_plan_within_the_database(judge: Judge) -> None:
    poor = asking(SHORT, budget=1, house_rule="smoking")
    assert failed(judge(short_trip(), poor)) == {"budget", "room_rule"}
    assert failed(judge(short_with(2, lunch="-"), poor)) == {"complete_information"}
    assert failed(judge(short_with(2, lunch="X, Lake"), poor)) == {"within_sandbox"}
    # Other faults do not keep them from being judged.
    again = short_with(3, breakfast="Delta, Lake")
    assert failed(judge(again, poor)) == {"budget", "room_rule", "diverse_restaurants"}


@mutation(
    "a plan that leaves out the last day is complete", TRAVELPLANNER_COMMONSENSE,
    "if len(given) != query.days:", "if not given:",
)  # fmt: skip
def test_too_few_days_or_values_are_incomplete(judge: Judge) -> None:
    assert "complete_information" in failed(judge(short_trip()[:2]))
    assert "complete_information" in failed(judge([*short_trip()[:2], {}]))
    unneeded = "You don't need to fill in the information for this or later days."
    plan = short_with(3, current_city=unneeded)
    assert "complete_information" in failed(judge(plan))
    # Half of six values a day are 15; cities count as well.
    sparse = changed(long_trip(), 2, breakfast=None, lunch=None, dinner=None)
    sparse = changed(sparse, 4, breakfast=None, lunch=None)
    assert failed(judge(sparse, LONG)) == set()
    verdict = judge(changed(sparse, 4, dinner=None), LONG)
    assert verdict.parts["complete_information"]["reason"] == "14 of 30 values are given"
    assert failed(verdict) == {"complete_information"}


def stay_at_lake() -> Days:
    """Return three days in Lake, without a way there."""
    meals = ["Alpha", "Beta", "Delta", "Epsilon", "Gamma, Inn", "Alpha Grill"]
    meals += ["Snack 12", "Snack 13", "Snack 14"]
    stay = [copy.deepcopy(short_trip()[1]) for _ in range(3)]
    for number, one in enumerate(stay):
        names = meals[3 * number : 3 * number + 3]
        eaten = zip(("breakfast", "lunch", "dinner"), names, strict=True)
        one.update({meal: f"{name}, Lake" for meal, name in eaten})
        one["attraction"] = f"{('Falls', 'Museum', 'Tower')[number]}, Lake;"
    return changed(stay, 1, transportation="Taxi, from Lake to Home")


def in_lower_case(plan: Days) -> Days:
    """Return a plan by car that does not say `Self-driving` with a capital."""
    return [
        {**one, "transportation": one["transportation"].replace("Self", "self")} for one in plan
    ]


DORM = "Dorm, Lake"
OVERLOOKED: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "no attraction of the database after the last semicolon": ("within_sandbox",
     short_with(2, attraction="Museum, Lake;Canyon, Lake"), SHORT),
    "a repetition after the last semicolon": ("diverse_attractions",
     short_with(2, attraction="Falls, Lake"), SHORT),
    "an attraction elsewhere after the last semicolon": ("within_current_city",
     short_with(1, attraction="Pier, Port"), SHORT),
    "a meal that has a letter of the city": ("within_current_city",
     short_with(2, lunch="Bar 7, Port"), SHORT),
    "an accommodation that has the last letter of the city": ("within_current_city",
     changed(long_trip(), 4, accommodation=LOFT), LONG),
    "a part of a name": ("within_sandbox", short_with(2, lunch="Gam, Lake"), SHORT),
    "no name": ("within_sandbox", short_with(2, lunch=", Lake"), SHORT),
    "a flight of another day": ("within_sandbox",
     short_with(1, transportation=FIRST.replace("F1", "F3")), RICH),
    "a means that nobody knows": ("within_sandbox",
     short_with(1, transportation="A walk from Home to Lake"), SHORT),
    "three days in the wrong city": ("reasonable_city_route", short_trip(),
     {**SHORT, "dest": "Port"}),
    "no way from the origin": ("reasonable_city_route", stay_at_lake(), RICH),
    "too many days": ("complete_information", [*short_trip(), short_trip()[1]], SHORT),
    "a meal that is null": ("complete_information", short_with(2, lunch=None), SHORT),
    "a restaurant in two spellings": ("diverse_restaurants",
     short_with(3, breakfast="Delta, Lake(Maine)"), SHORT),
    "too short a stay where two names match": ("minimum_nights",
     changed(short_with(1, accommodation=DORM), 2, accommodation=DORM), SHORT),
    "a forbidden means in lower case": ("transportation", in_lower_case(long_trip()),
     asking(LONG, transportation="no self-driving")),
}  # fmt: skip


@mutation(
    "a plan's last attraction is never looked at", PLAN,
    "if not strict:\n            return parts[:-1]", "if parts:\n            return parts[:-1]",
)  # fmt: skip
@mutation(
    "the official mode sees the last attraction", PLAN,
    "return parts[:-1]", "return [part for part in parts if part]",
)  # fmt: skip
@pytest.mark.parametrize("overlooked", OVERLOOKED)
def test_what_the_official_evaluator_overlooks_fails_in_mode_strict(
    judge: Judge, overlooked: str
) -> None:
    constraint, plan, query = OVERLOOKED[overlooked]
    assert judge(plan, query).valid is True
    assert failed(judge(plan, query, "strict")) == {constraint}


def test_days_without_content_are_not_too_many(judge: Judge) -> None:
    unneeded = "You don't need to fill in the information for this or later days."
    empty = [{}, None, "", {"current_city": "-"}, {"current_city": unneeded}, {"days": 4}]
    assert judge([*short_trip(), *empty], mode="strict").valid is True
    for more in ({"current_city": "Lake"}, "Lake", [1]):
        verdict = judge([*short_trip(), more], mode="strict")
        assert failed(verdict) == {"complete_information"}


@pytest.mark.parametrize("nothing", [None, [], {}, "", 0, False])
def test_what_is_not_delivered_fails_and_is_not_judged(judge: Judge, nothing: Any) -> None:
    verdict = judge(nothing)
    assert verdict.valid is False and verdict.reason == "no plan was delivered"
    assert verdict.parts["delivered"] is False
    assert all(verdict.parts[name]["passed"] is None for name in (*COMMONSENSE, *HARD))


LONG_TEXT = 10**6
HOSTILE: list[Any] = [
    5,
    True,
    "a plan",
    {"plan": short_trip()},
    [None],
    [[]],
    ["day"] * 3,
    [{}],
    [{}, {}, {}],
    [{"current_city": None}],
    [{"Current City": "Lake"}] * 3,
    short_with(1, current_city="from"),
    short_with(1, current_city=""),
    short_with(1, transportation="Flight Number: F1"),
    short_with(1, transportation="flight number F1, from Home to Lake"),
    short_with(2, transportation="Flight Number: F1"),
    short_with(1, transportation="Flight Number: F٣, from Home to Lake"),
    short_with(1, transportation=f"Flight Number: F{'9' * 5000}, from Home to Lake"),
    short_with(2, accommodation=None),
    short_with(2, dinner="\ud800, Lake"),
    [*short_trip()[:2], [short_trip()[2]]],
    [{name: LONG_TEXT * "x" for name in short_trip()[0]}] * 3,
    [{name: LONG_TEXT * ";" for name in short_trip()[0]}] * 3,
    [{name: 200_000 * "from  to , " for name in short_trip()[0]}] * 3,
    [{name: "from " + LONG_TEXT * " " + "to x" for name in short_trip()[0]}] * 3,
]
for value in (5, 1.5, True, ["Lake"], {"Lake": "Home"}, [[["Lake"]]], float("nan"), 10**400):
    HOSTILE += [short_with(2, **{cell: value}) for cell in (*CELLS, "current_city")]


@mutation(
    "a plan that cannot be read stops the run", JUDGING,
    "except UnreadablePlan as error:\n                found",
    "except KeyError as error:\n                found",
)  # fmt: skip
@pytest.mark.parametrize("mode", some(BENCHMARK.modes, list(BENCHMARK.modes)[:1]))
def test_no_prediction_stops_anything_and_none_of_these_passes(judge: Judge, mode: str) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for plan in (*HOSTILE, deep, [{name: deep for name in short_trip()[0]}] * 3):
        began = time.perf_counter()
        verdict = judge(plan, mode=mode)
        assert time.perf_counter() - began < HARD_LIMIT_S
        assert verdict.valid is False and verdict.reason and len(verdict.reason) < 300


def test_a_day_needs_no_number_and_may_say_more(judge: Judge) -> None:
    plan = short_with(2, days=["x"], notes="sunny")
    del plan[0]["days"]
    assert judge(plan).valid is True


@mutation(
    "constraints that were not judged are not counted",
    "genenv_core/benchmarks/travelplanner/suite.py", "(float(kept), float(query.hard_constraints))",
    "(float(kept), float(sum(passed[name] is not None for name in HARD)))",
)  # fmt: skip
def test_rates_have_the_official_denominators(judge: Judge, download: Path) -> None:
    path = download.parent / "asked.json"
    asked = asking(SHORT, budget=1, cuisine=["French"], house_rule="smoking", room_type=None)
    path.write_text(json.dumps([asked]), encoding="utf-8")
    suite = TravelPlanner({"validation/7": read_queries(path)[1]}, judge.database, "")
    assert suite.items == {"validation/7": "validation"}

    def rates(plan: Any) -> dict[str, tuple[float, float]]:
        measures = suite.measures("validation/7", suite.judge("validation/7", plan, "official"))
        return {name.removeprefix("validation "): ratio for name, ratio in measures.items()}

    nothing = rates(None)
    assert list(nothing) == [
        *("delivery", "commonsense micro", "commonsense macro"),
        *("hard micro", "hard macro", "final", "final easy"),
    ]
    assert nothing["commonsense micro"] == (0, 8) and nothing["hard micro"] == (0, 3)
    assert {ratio for name, ratio in nothing.items() if "micro" not in name} == {(0, 1)}
    # The plan costs more than 1 and the room forbids smoking; it has French food.
    some = rates(short_trip())
    assert some["delivery"] == some["commonsense macro"] == (1, 1)
    assert some["commonsense micro"] == (8, 8) and some["hard micro"] == (1, 3)
    assert some["hard macro"] == some["final"] == (0, 1)
    # Where hard constraints are not judged, all of them count as failed.
    gap = rates(short_with(2, lunch="-"))
    assert (gap["commonsense micro"], gap["commonsense macro"]) == ((7, 8), (0, 1))
    assert (gap["hard micro"], gap["hard macro"]) == ((0, 3), (0, 1))
    # The hard constraints may hold where a commonsense one fails.
    suite.queries = {"validation/7": read_queries(download / "train_queries.json")[1]}
    again = rates(short_with(3, breakfast="Delta, Lake"))
    assert (again["hard macro"], again["commonsense macro"], again["final"]) == (
        (1, 1),
        (0, 1),
        (0, 1),
    )


def test_texts_are_read_as_the_official_patterns_read_them() -> None:
    ends = re.compile(r"from\s+(.+?)\s+to\s+([^,]+)(?=[,\s]|$)")
    named = re.compile(r"(.*?),\s*([^,]+)(\(\w[\w\s]*\))?$")
    bracket = re.compile(r"^(.*?)\([^)]*\)")
    words = [
        "from",
        "to",
        " to ",
        "from ",
        " ",
        "  ",
        "\n",
        "\t",
        ",",
        "A",
        "b(c)",
        "(",
        ")",
        "\x1f",
    ]
    rng = random.Random(0)
    for _ in range(20_000):
        text = "".join(rng.choices(words, k=rng.randrange(1, 14)))
        went, found, cut = ends.search(text), named.search(text), bracket.search(text)
        assert from_to(text) == (went.groups() if went else None), repr(text)
        assert without_state(text) == (cut[1] if cut else text), repr(text)
        city = found and found[2].strip()
        wanted = (found[1].strip(), without_state(city or "").strip()) if found else ("-", "-")
        assert name_and_city(text) == wanted, repr(text)


@pytest.mark.parametrize(
    "text",
    ["from ", "from x \n", " ", "to ", ",", "(", " to", "from \n to", "from  to "],
)
def test_texts_are_read_in_linear_time(text: str) -> None:
    long = text * (LONG_TEXT // len(text))
    began = time.perf_counter()
    for hostile in (f"{long}to x", f"from {long}"):
        for read in (from_to, name_and_city, without_state):
            read(hostile)
    assert time.perf_counter() - began < HARD_LIMIT_S


def test_a_download_may_be_the_official_csv_or_lines(download: Path, tmp_path: Path) -> None:
    folder = write_download(tmp_path)
    wanted = read_queries(folder / "train_queries.json")
    rows = [{key: row[key] for key in row if key != "idx"} for row in (SHORT, LONG)]
    with (folder / "validation.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    with (folder / "train.csv").open("w", encoding="utf-8") as file:
        csv_rows = [{**row, "annotated_plan": "x" * 500_000} for row in rows]
        writer = csv.DictWriter(file, list(csv_rows[0]))
        writer.writeheader()
        writer.writerows(csv_rows)
    assert read_queries(folder / "validation.jsonl") == wanted
    assert read_queries(folder / "train.csv") == wanted
    suite = get_benchmark("travelplanner").load(folder)
    assert list(suite.items) == ["train/1", "train/2", "validation/1", "validation/2"]
    assert suite.judge("validation/1", short_trip(), "strict").valid is True


def test_a_slice_of_the_flights_will_do(tmp_path: Path) -> None:
    folder = write_download(tmp_path)
    flights = folder / "database" / FLIGHTS[0]
    flights.rename(folder / "database" / FLIGHTS[1])
    before = BENCHMARK.load(folder)
    assert before.judge("train/1", short_trip(), "official").valid is True
    (folder / "database" / FLIGHTS[1]).write_text("Price\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"slice\.csv: no flights"):
        BENCHMARK.load(folder)
    (folder / "database" / FLIGHTS[1]).unlink()
    with pytest.raises(ConfigError, match=r"clean_Flights_2022\.csv"):
        BENCHMARK.load(folder)


def test_a_broken_download_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_download(tmp_path)
    queries, rooms = folder / "train_queries.json", folder / "database" / ROOMS
    digest = BENCHMARK.load(folder).digest
    queries.write_text(json.dumps([SHORT]), encoding="utf-8")
    assert BENCHMARK.load(folder).digest != digest
    for broken in ({**SHORT, "date": []}, {**SHORT, "level": "odd"}, {"org": "Home"}):
        queries.write_text(json.dumps([SHORT, broken]), encoding="utf-8")
        with pytest.raises(DataError, match="query 2"):
            BENCHMARK.load(folder)
    queries.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="no list of queries"):
        BENCHMARK.load(folder)
    queries.unlink()
    with pytest.raises(ConfigError, match="no queries"):
        BENCHMARK.load(folder)
    write_download(folder)
    rooms.write_text(rooms.read_text(encoding="utf-8").replace(",80,", ",cheap,"), encoding="utf-8")
    with pytest.raises(DataError, match=r"clean_accommodations_2022\.csv.*cheap"):
        BENCHMARK.load(folder)
    rooms.write_text("NAME\n", encoding="utf-8")
    with pytest.raises(DataError, match="no column city"):
        BENCHMARK.load(folder)


# On the official data.


def test_annotated_plans_pass_everything() -> None:
    suite = official_suite()
    gold = {
        f"train/{row['idx']}": row["plan"] for row in read_lines(official("travelplanner") / TRAIN)
    }
    items = [item for item, split in suite.items.items() if split == "train"]
    assert list(gold) == items and len(items) == 45
    total: Counter[str] = Counter()
    for item in items:
        verdict = suite.judge(item, gold[item], "official")
        assert verdict.valid, (item, verdict.reason)
        for name, (got, of) in suite.measures(item, verdict).items():
            assert got == of
            total[name] += int(of)
    # The official denominators: 45 plans, 8 * 45 and 105 constraints.
    assert (total["train commonsense micro"], total["train hard micro"]) == (360, 105)
    strict = {item for item in items if not suite.judge(item, gold[item], "strict").valid}
    # Its day 4 has an attraction of the city that was left on day 3.
    assert strict == {"train/42"}


def test_the_example_plans_have_the_official_evaluators_numbers() -> None:
    suite = official_suite()
    passed: Counter[str] = Counter()
    rates: Counter[str] = Counter()
    possible: Counter[str] = Counter()
    for row in read_lines(official("travelplanner") / VALIDATION):
        item = f"validation/{row['idx']}"
        if item not in suite.items:
            continue
        verdict = suite.judge(item, row["plan"], "official")
        passed.update(
            name for name in (*COMMONSENSE, *HARD) if verdict.parts[name]["passed"] is True
        )
        for name, (got, of) in suite.measures(item, verdict).items():
            rates[name.removeprefix("validation ")] += int(got)
            possible[name.removeprefix("validation ")] += int(of)
        if suite.judge(item, row["plan"], "strict").valid:
            assert verdict.valid
    # The official evaluator's counts on the 126 queries that are there.
    assert {name: rates[name] for name in OFFICIAL_RATES} == OFFICIAL_RATES
    assert passed == OFFICIAL_PASSES
    assert (possible["delivery"], possible["hard micro"]) == (126, 366)


OFFICIAL_RATES = {
    "delivery": 111,
    "commonsense micro": 605,
    "commonsense macro": 2,
    "hard micro": 40,
    "hard macro": 7,
    "final": 0,
}
OFFICIAL_PASSES = {
    "within_current_city": 82,
    "within_sandbox": 33,
    "reasonable_city_route": 66,
    "diverse_restaurants": 99,
    "non_conflicting_transportation": 92,
    "diverse_attractions": 111,
    "minimum_nights": 47,
    "complete_information": 75,
    "budget": 8,
    "room_rule": 8,
    "cuisine": 4,
    "room_type": 11,
    "transportation": 9,
}


def test_mutated_annotated_plans_fail_on_the_constraint_that_is_broken() -> None:
    """Each of the 45 plans, broken in one way; a few ways do not fit every plan."""
    suite = official_suite()
    failures: Counter[str] = Counter()
    for row in read_lines(official("travelplanner") / TRAIN):
        item, plan = f"train/{row['idx']}", [day for day in row["plan"] if day]
        for constraint, broken in _broken(plan).items():
            verdict = suite.judge(item, broken, "official")
            assert constraint in failed(verdict), (item, constraint)
            failures[constraint] += 1
    assert failures == dict.fromkeys(COMMONSENSE.keys() - {"minimum_nights"}, 45)


def _broken(plan: Days) -> dict[str, Days]:
    second = plan[1]
    drives = "self-driving" in plan[0]["transportation"].lower()
    other = ("Flight Number: F1, " if drives else "Self-driving, ") + plan[-1]["current_city"]
    return {
        "within_current_city": changed(plan, 1, accommodation="Nowhere"),
        "within_sandbox": changed(plan, 2, lunch=f"No such place, {second['current_city']}"),
        "reasonable_city_route": [plan[1], plan[0], *plan[2:]],
        "diverse_restaurants": changed(plan, 2, lunch=second["dinner"]),
        "diverse_attractions": changed(plan, 2, attraction=2 * second["attraction"]),
        "non_conflicting_transportation": changed(plan, len(plan), transportation=other),
        "complete_information": plan[:-1],
    }
