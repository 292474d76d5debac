"""TravelPlanner's queries as a model plays them.

Invariants: a plan that is submitted gets the verdict that it has as a prediction, whatever it is; a
call that submits nothing can be made again; nothing that a model says raises, and an attempt ends
within its turns; alone, the request comes with the recorded reference information, and is refused
without; in two stages, tools print the database as the official reference information prints it.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from genenv_core.benchmarks.files import read_lines
from genenv_core.benchmarks.travelplanner.plan import parsed
from genenv_core.benchmarks.travelplanner.playing import (
    CALLS,
    IGNORED,
    SEARCHES,
    SOLE,
    TURNS,
    TWO_STAGE,
    Trip,
)
from genenv_core.benchmarks.travelplanner.reference import (
    headings,
    looked_up,
    recorded_files,
    shown,
)
from genenv_core.benchmarks.travelplanner.suite import BENCHMARK, TravelPlanner
from genenv_core.benchmarks.travelplanner.tables import NO_ROAD, printed
from genenv_core.errors import DataError
from genenv_core.types import Call, Observation, Said
from tests.mutations import mutation
from tests.unit.benchmarks.data import deep, official
from tests.unit.benchmarks.travelplanner.trips import (
    LONG,
    SHORT,
    long_trip,
    short_trip,
    short_with,
    write_download,
)

TRIPS = "genenv_core/benchmarks/travelplanner/playing.py"

PARTS = {
    "Restaurants in Lake": [
        {"Name": "Alpha", "Average Cost": 10, "Aggregate Rating": 4.0, "City": "Lake"},
        {"Name": "Beta", "Average Cost": 1200, "Aggregate Rating": 4.25, "City": "Lake"},
    ],
    "Taxi from Home to Lake": "taxi, from Home to Lake, cost: 1100",
}
TABLE = (
    " Name  Average Cost  Aggregate Rating City\n"
    "Alpha            10              4.00 Lake\n"
    " Beta          1200              4.25 Lake"
)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> TravelPlanner:
    """Return the small download, with reference information of its first query alone."""
    folder = write_download(tmp_path_factory.mktemp("trips"))
    (folder / "train_ref_info.jsonl").write_text(json.dumps(PARTS) + "\n")
    return BENCHMARK.load(folder)  # type: ignore[return-value]


@pytest.fixture(scope="module", params=[SOLE, TWO_STAGE])
def trip(request: pytest.FixtureRequest, suite: TravelPlanner) -> Trip:
    return suite.playable("train/1", request.param)


def submit(plan: Any) -> Said:
    return Said("", (Call("submit_plan", {"plan": plan}),))


def search(name: str, **arguments: Any) -> Said:
    return Said("", (Call(name, arguments),))


def test_the_request_comes_with_what_is_recorded(suite: TravelPlanner) -> None:
    system, user = suite.playable("train/1").messages
    assert "submit_plan" in system["content"] and "Look up" not in system["content"]
    assert user["content"] == (
        f"Restaurants in Lake:\n{TABLE}\n\nTaxi from Home to Lake:\n"
        "taxi, from Home to Lake, cost: 1100\n\nRequest: Home to Lake and back."
    )
    (tool,) = suite.playable("train/1").tools
    assert json.loads(json.dumps(tool))["function"]["name"] == "submit_plan"


def test_who_plans_alone_looks_nothing_up(suite: TravelPlanner) -> None:
    observation = suite.playable("train/1").begin(0).answer(search("CitySearch", state="Maine"))
    assert observation.messages[0]["content"] == (
        "Error: there is no tool 'CitySearch'; there is submit_plan."
    )


def test_without_what_is_recorded_nobody_plans_alone(suite: TravelPlanner) -> None:
    with pytest.raises(DataError, match=r"reference information of train/2.*two_stage"):
        suite.playable("train/2")
    assert suite.playable("train/2", TWO_STAGE).messages[1]["content"] == LONG["query"]


def test_two_stages_have_the_tools(suite: TravelPlanner) -> None:
    trip = suite.playable("train/1", TWO_STAGE)
    assert trip.messages[1]["content"] == SHORT["query"]
    assert "Look up" in trip.messages[0]["content"]
    assert [tool["function"]["name"] for tool in trip.tools] == [
        *("FlightSearch", "AttractionSearch", "RestaurantSearch", "AccommodationSearch"),
        *("GoogleDistanceMatrix", "CitySearch", "submit_plan"),
    ]


def test_a_plan_gets_the_verdict_of_a_prediction(suite: TravelPlanner, trip: Trip) -> None:
    for plan in (short_trip(), short_with(2, lunch="-"), [{}], [{}] * 9, long_trip()):
        observation = trip.begin(0).answer(submit(plan))
        assert observation.done and observation.messages[0].get("name") == "submit_plan"
        assert trip.prediction([submit(plan)]) == plan
        for mode in BENCHMARK.modes:
            assert trip.judge(plan, mode) == suite.judge("train/1", plan, mode)
    assert trip.judge(short_trip(), "official").valid
    assert trip.judge(trip.prediction([]), "official").parts["delivered"] is False


@mutation("a plan of no day is submitted", TRIPS, "if not days or not all(", "if not all(")
@pytest.mark.parametrize(
    "call",
    [
        Call("submit_plan", {}),
        Call("submit_plan", {"plan": None}),
        Call("submit_plan", {"plan": json.dumps(short_trip())}),
        Call("submit_plan", {"plan": {}}),
        Call("submit_plan", {"plan": []}),
        Call("submit_plan", {"plan": ["day 1"]}),
        Call("submit_plan", {"plan": [{}, None]}),
        Call("submit_plan", {"plan": short_trip(), "comment": "nice"}),
        Call("plan", {"plan": short_trip()}),
    ],
    ids=lambda call: str(call)[:60],
)
def test_a_call_that_submits_nothing_can_be_made_again(trip: Trip, call: Call) -> None:
    attempt, turns = trip.begin(0), [Said("", (call,)), submit(short_trip())]
    first, second = [attempt.answer(turn) for turn in turns]
    assert not first.done and first.messages[0]["content"].startswith("Error: ")
    assert second.done and trip.prediction(turns) == short_trip()
    assert trip.prediction(turns[:1]) is None


@mutation(
    "a second plan is submitted", TRIPS, "if submitted or number >= CALLS:", "if number >= CALLS:"
)
def test_the_first_plan_counts(trip: Trip) -> None:
    two = Said("", (*submit([{}]).calls, *submit(short_trip()).calls))
    observation = trip.begin(0).answer(two)
    assert observation.done and observation.messages[1]["content"] == IGNORED
    assert trip.prediction([two, submit(short_trip())]) == [{}]


HOSTILE = {
    "nothing": Said(""),
    "chatter": Said("Day 1: we fly to Lake. " * 10_000),
    "malformed": Said("", (), ("{", "[" * 100_000, "\ud800")),
    "no tool": search("BusSearch", city="Lake"),
    "odd tool": search("\ud800" * 1000),
    "no city": search("RestaurantSearch"),
    "number": search("RestaurantSearch", city=7),
    "surrogate": search("RestaurantSearch", city="\ud800"),
    "flight": search("FlightSearch", origin="\ud800", destination="\0", date="soon"),
    "long": search("FlightSearch", origin="Lake" * 100_000, destination="b", date="c"),
    "more": search("CitySearch", state="Maine", city="Lake"),
    "deep": search("CitySearch", state=deep(500)),
    "deep plan": submit(deep(500)),
    "many": Said("", search("FlightSearch", origin="a", destination="b", date="c").calls * 1_000),
}


@mutation("a tool repeats a long word", TRIPS, "[:100].strip()", ".strip()")
@pytest.mark.parametrize("turn", HOSTILE.values(), ids=HOSTILE)
def test_no_turn_raises_and_the_attempt_ends(trip: Trip, turn: Said) -> None:
    attempt, observations = trip.begin(0), list[Observation]()
    while not observations or not observations[-1].done:
        observations.append(attempt.answer(turn))
        for message in observations[-1].messages:
            assert len(message["content"]) < 1000
            json.dumps(message, ensure_ascii=False).encode()
    assert all(observation.messages for observation in observations[:-1])
    turns = len(observations)
    assert turns == TURNS[SOLE if trip.parts is not None else TWO_STAGE]
    assert trip.judge(trip.prediction([turn] * turns), "official").valid is False


@mutation(
    "who plans alone has thirty turns",
    TRIPS,
    "if self.parts is None else TURNS[SOLE]]:",
    "if self.parts is None else 30]:",
)
def test_what_comes_after_the_last_turn_does_not_count(trip: Trip) -> None:
    most = TURNS[SOLE if trip.parts is not None else TWO_STAGE]
    turns = [Said("well")] * most
    assert trip.prediction([*turns, submit(short_trip())]) is None
    assert trip.prediction([*turns[1:], submit(short_trip())]) == short_trip()


@mutation("a plan counts wherever it stands in a turn", TRIPS, "turn.calls[:CALLS]:", "turn.calls:")
def test_calls_beyond_the_bound_are_not_carried_out(trip: Trip) -> None:
    calls = search("CitySearch", state="Maine").calls * (CALLS - 1)
    within = Said("", (*calls, *submit(short_trip()).calls))
    beyond = Said("", (*calls, *calls[:1], *submit(short_trip()).calls))
    assert trip.begin(0).answer(within).done and trip.prediction([within]) == short_trip()
    observation = trip.begin(0).answer(beyond)
    assert not observation.done and observation.messages[-1]["content"] == IGNORED
    assert len(observation.messages) == CALLS + 1 and trip.prediction([beyond]) is None


def way(to: str, origin: str = "Home", **more: str) -> dict[str, str]:
    """Return the arguments of a search from one city to another."""
    return {"origin": origin, "destination": to, **more}


@mutation(
    "any mode of travel is looked up", TRIPS, "and texts[-1] not in MODES:", "and not texts[-1]:"
)
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("CitySearch", {"state": " Maine "}, "Lake, Port"),
        ("CitySearch", {"state": "Lake"}, "Error: there is no such state."),
        ("GoogleDistanceMatrix", way("Lake", mode="boat"),
         "Error: mode is one of self-driving, taxi."),
        ("AttractionSearch", {"city": "Port"},
         "Name  Latitude  Longitude Address Phone Website City\n"
         "Pier       1.0        1.0       a     p       w Port\n"
         "Beach       1.0        1.0       a     p       w Port"),
        ("AttractionSearch", {"city": "Nowhere"}, "There is no attraction in this city."),
        ("RestaurantSearch", {"city": "Port "}, "Bar 7"),
        ("RestaurantSearch", {"city": "port"}, "There is no restaurant in this city."),
        ("AccommodationSearch", {"city": "Lake"}, "Dorm Annex"),
        ("AccommodationSearch", {"city": "Home"}, "There is no accommodation in this city."),
        ("FlightSearch", way("Lake", date="2022-03-02"),
         "Flight Number  Price DepTime ArrTime ActualElapsedTime FlightDate OriginCityName "
         "DestCityName  Distance\n           F3     70   08:00   09:00            1 hour "
         "2022-03-02           Home         Lake     100.0"),
        ("FlightSearch", way("Lake", date="2022-03-09"),
         "There is no flight from Home to Lake on 2022-03-09."),
        ("GoogleDistanceMatrix", way("Lake", mode="self-driving"),
         "self-driving, from Home to Lake, duration: 1 hour, distance: 1,100 km, cost: 55"),
        ("GoogleDistanceMatrix", way("Home", "Lake", mode="taxi"),
         "taxi, from Lake to Home, duration: 1 hour, distance: 59.9 km, cost: 59"),
        *(("GoogleDistanceMatrix", way(to, mode="taxi"), NO_ROAD)
          for to in ("Hill", "Isle", "Nowhere")),
    ],
)  # fmt: skip
def test_tools_say_what_the_database_has(
    suite: TravelPlanner, name: str, arguments: dict[str, str], answer: str
) -> None:
    trip = suite.playable("train/1", TWO_STAGE)
    observation = trip.begin(0).answer(search(name, **arguments))
    (message,) = observation.messages
    assert message.get("name") == name and not observation.done
    lines = [line.strip() for line in message["content"].splitlines()]
    if "\n" in answer or len(lines) == 1:
        assert lines == [line.strip() for line in answer.splitlines()]
    else:
        assert any(answer in line for line in lines)


def test_incomplete_rows_are_not_there(suite: TravelPlanner) -> None:
    assert suite.tables
    assert "Silo" not in suite.tables.attractions("Lake")
    assert "Bare" not in suite.tables.accommodations("Lake")
    assert "F4" not in suite.tables.flights("Home", "Lake", "2022-03-01")


def test_tables_look_as_pandas_prints_them() -> None:
    rows = [
        {"Name": "A\nB", "price": "77", "minimum nights": "1.50"},
        {"Name": "C", "price": "1030.0", "minimum nights": "2.1234567"},
    ]
    assert printed(["Name", "price", "minimum nights"], rows) == (
        "Name  price  minimum nights\nA\\nB   77.0        1.500000\n   C 1030.0        2.123457"
    )


def test_a_plan_says_what_would_be_recorded_for_it(suite: TravelPlanner) -> None:
    query = suite.queries["train/2"]
    found = headings(parsed(long_trip(), query), LONG["date"])
    cities = [f"{what} in {city}" for city in ("Lake", "Port")
              for what in ("Attractions", "Restaurants", "Accommodations")]  # fmt: skip
    assert found[:6] == cities and len(found) == 15
    assert found[6:9] == [
        "Flight from Home to Lake on 2022-03-01",
        "Self-driving from Home to Lake",
        "Taxi from Home to Lake",
    ]
    assert suite.tables
    text = shown(looked_up(suite.tables, found))
    assert all(f"{heading}:\n" in text for heading in found)
    with pytest.raises(DataError, match="no heading"):
        looked_up(suite.tables, ["Weather in Lake"])


def test_the_official_csv_holds_reference_information_and_plans(tmp_path: Path) -> None:
    folder = write_download(tmp_path)
    recorded = [{"Description": name, "Content": "none"} for name in PARTS]
    rows = [{**row, "reference_information": repr(recorded), "annotated_plan": repr([row, plan])}
            for row, plan in ((SHORT, short_trip()), (LONG, [*long_trip(), {}]))]  # fmt: skip
    for split in ("train", "validation"):
        with (folder / f"{split}.csv").open("w", encoding="utf-8") as file:
            names = [name for name in rows[0] if name != "idx"]
            writer = csv.DictWriter(file, names, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
    suite = BENCHMARK.load(folder)
    assert isinstance(suite, TravelPlanner)
    trip = suite.playable("validation/2")
    assert trip.messages[1]["content"].endswith("none\n\nRequest: Home to Lake and back.")
    assert suite.plans.of("train/1") == short_trip() and suite.plans.of("train/2") == long_trip()
    assert suite.plans.of("train/3") is None


@pytest.mark.parametrize(
    ("name", "line", "why"),
    [
        ("train_ref_info.jsonl", "7", "no reference information"),
        ("train_reference_information_1.jsonl", '{"idx": 1, "reference_information": "f("}', "no"),
        ("train_ref_info.jsonl", '[{"Description": "x"}]', "KeyError"),
    ],
)
def test_broken_reference_information_is_named(
    tmp_path: Path, name: str, line: str, why: str
) -> None:
    folder = write_download(tmp_path)
    (folder / name).write_text(line)
    suite = BENCHMARK.load(folder)
    with pytest.raises(DataError, match=rf"{name}, line 1: .*{why}"):
        suite.playable("train/1")


def test_broken_plans_are_named(tmp_path: Path) -> None:
    folder = write_download(tmp_path)
    (folder / "train_gold.jsonl").write_text('{"idx": 1, "plan": "f("}')
    suite = BENCHMARK.load(folder)
    assert isinstance(suite, TravelPlanner)
    with pytest.raises(DataError, match=r"train_gold\.jsonl, line 1: no annotated plan"):
        suite.plans.of("train/1")


def test_the_headline_is_a_result(tmp_path: Path) -> None:
    folder = write_download(tmp_path)
    (folder / "train_queries.json").rename(folder / "validation_queries.json")
    suite = BENCHMARK.load(folder)
    assert BENCHMARK.headline in {composite.name for composite in suite.composites}
    assert BENCHMARK.limits.turns == TURNS[TWO_STAGE]
    measures = suite.measures("validation/1", suite.judge("validation/1", None, "official"))
    wanted = {name for composite in suite.composites for name in composite.weights}
    assert wanted <= set(measures)


# On the official data.


@pytest.fixture(scope="module")
def released() -> TravelPlanner:
    found = BENCHMARK.load(official("travelplanner"))
    assert isinstance(found, TravelPlanner)
    return found


def test_all_recorded_parts_are_what_the_tools_print(released: TravelPlanner) -> None:
    assert released.tables
    seen = 0
    for item in released.items:
        for heading, content in released.reference(item) or ():
            assert looked_up(released.tables, [heading]) == [(heading, content)], (item, heading)
            seen += 1
    assert seen == 675 + 360
    assert recorded_files(official("travelplanner"), "train")


def test_annotated_plans_are_looked_up_as_recorded(released: TravelPlanner) -> None:
    for item, split in released.items.items():
        if split == "train":
            query, plan = released.queries[item], released.plans.of(item)
            dates = [day.isoformat() for day in query.dates]
            wanted = {heading for heading, _ in released.reference(item) or ()}
            assert set(headings(parsed(plan, query), dates)) == wanted, item


def test_all_released_plans_get_their_verdicts_when_they_are_submitted(
    released: TravelPlanner,
) -> None:
    folder = official("travelplanner")
    files = (("train", "train_gold.jsonl"), ("validation", "validation_example_plans_180.jsonl"))
    rows = [(f"{split}/{row['idx']}", row["plan"])
            for split, name in files for row in read_lines(folder / name)]  # fmt: skip
    submitted, passed = 0, 0
    for item, plan in rows:
        if item not in released.items:
            continue
        stages = [TWO_STAGE, *([SOLE] if released.reference(item) else [])]
        for stage in stages:
            trip = released.playable(item, stage)
            done = trip.begin(0).answer(submit(plan)).done
            verdict = trip.judge(trip.prediction([submit(plan)]), "official")
            if done:
                submitted += 1
                assert verdict == released.judge(item, plan, "official"), item
            else:  # an empty plan is no plan either way
                assert not plan and verdict.parts["delivered"] is False, item
            passed += bool(verdict.valid)
    assert (submitted, passed) == (2 * 45 + 111 + 22, 2 * 45)


def test_search_tools_need_all_arguments() -> None:
    for tool in SEARCHES:
        parameters = tool["function"]["parameters"]
        assert parameters["required"] == list(parameters["properties"])
        assert parameters["additionalProperties"] is False
