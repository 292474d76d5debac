"""API-Bank's verdicts, levels 1 to 3.

Invariants: on calls made by hand the verdicts are the official harness's, those it accepts and
those it refuses; all of the official gold is right, in both modes, also where the harness refuses
it (lists, renamed arguments, rows that are not there); no changed call passes for a gold one; ids
count samples as the official loop does; ROUGE-L is that of the package rouge 1.0.1; no prediction
raises, hangs or makes a verdict that is not JSON; a download with some levels is read, one with
none or a broken one is refused.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from genenv_core.benchmarks.api_bank import BENCHMARK
from genenv_core.benchmarks.api_bank.loading import DIALOGUES
from genenv_core.benchmarks.api_bank.loading import REQUESTS as REQUESTS_FILE
from genenv_core.benchmarks.api_bank.parsing.finding import plain_arguments
from genenv_core.benchmarks.api_bank.parsing.reading import (
    UnreadableError,
    full_arguments,
    read_list,
)
from genenv_core.benchmarks.api_bank.rouge import rouge_l
from genenv_core.benchmarks.api_bank.scoring import RecordedCall
from genenv_core.benchmarks.api_bank.searching import Search
from genenv_core.benchmarks.api_bank.suite import ApiBank, load
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.benchmarks.registry import get_benchmark
from genenv_core.benchmarks.summary import Tally
from genenv_core.errors import ConfigError, DataError
from tests.mutations import mutation
from tests.unit.benchmarks.api_bank.api_bank_cases import (
    BOB,
    CASES,
    DOCUMENTS,
    GOLD,
    GOLD_OF_OURS,
    NOON,
    REQUESTS,
    RESPONSE,
    spelled,
    write_download,
)
from tests.unit.benchmarks.data import official

SCORING = "genenv_core/benchmarks/api_bank/scoring.py"
VALUES = "genenv_core/benchmarks/api_bank/values.py"

ALL = {**GOLD, **GOLD_OF_OURS}
GOLD_COUNTS = {"lv1 calls": 399, "lv2 calls": 135, "lv3 calls": 245}
RESPONSE_COUNTS = {"lv1 responses": 375, "lv2 responses": 103, "lv3 responses": 50}
MODES = ("match", "strict")
UNCOMPARED = {
    "DeleteAgenda": ("content", "location"),
    "DeleteReminder": ("content",),
    "EmailReminder": ("content",),
    "SearchEngine": ("keyword",),
}
"""The free text that the official tools do not compare; they look at what the call does."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> ApiBank:
    return load(write_download(tmp_path_factory.mktemp("api_bank")))


@cache
def official_suite(folder: Path) -> ApiBank:
    return load(folder)


def judged(suite: ApiBank, name: str, said: Any, mode: str = "match") -> ItemVerdict:
    return suite.judge(f"lv1/{name}.jsonl#0", said, mode)


def of_ours(name: str, **changed: Any) -> str:
    """Return a recorded call with other values; None leaves one out."""
    both = {**ALL[name], **changed}
    return spelled(name, {key: value for key, value in both.items() if value is not None})


@mutation(
    "a call that does not reach to the last bracket of its line is found",
    "genenv_core/benchmarks/api_bank/parsing/finding.py", 'line.rfind(")]")', 'line.find(")]")',
)  # fmt: skip
@mutation(
    "one half of the words is enough for free text of a call", VALUES,
    "2 * len(ours & theirs) > len(ours | theirs)", "2 * len(ours & theirs) >= len(ours | theirs)",
)  # fmt: skip
@mutation(
    "a call may give arguments that the recorded one has not", SCORING,
    "extra = [name for name in said if name not in gold.arguments]", "extra = list[str]()",
)  # fmt: skip
@mutation(
    "a call that fails on the databases is right", SCORING,
    "if wrong or need is None or wanted is None:", "if True:",
)  # fmt: skip
@mutation(
    "a query that finds another row is right", "genenv_core/benchmarks/api_bank/state.py",
    "(any_row or found == wanted)", "True",
)  # fmt: skip
@mutation(
    "a number of a call may have a sign", VALUES,
    'if kind == "int" and text.isdigit():', 'if kind == "int":',
)  # fmt: skip
@pytest.mark.parametrize(
    ("case", "right"), CASES, ids=[f"{n}-{c[0][0]}" for n, c in enumerate(CASES)]
)
def test_calls_are_judged_as_the_official_harness_does(
    suite: ApiBank, case: tuple[str, str], right: bool
) -> None:
    assert judged(suite, *case).valid is right


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("mode", MODES)
def test_every_gold_call_is_right(suite: ApiBank, name: str, mode: str) -> None:
    verdict = judged(suite, name, of_ours(name), mode)
    assert (verdict.valid, verdict.score, verdict.reason) == (True, 1.0, "")
    assert verdict.parts["call"] == of_ours(name)


LISTS = [
    ("AddMeeting", "attendees", "['Ann Lee', 'Bob']", True),
    ("AddMeeting", "attendees", '["Ann Lee", "Bob"]', True),
    ("AddMeeting", "attendees", "['Ann Lee','Bob',]", True),
    ("AddMeeting", "attendees", "['Bob', 'Ann Lee']", False),
    ("AddMeeting", "attendees", "['Ann Lee']", False),
    ("AddMeeting", "attendees", "Ann Lee, Bob", False),
    ("AddMeeting", "attendees", "['Ann Lee', 'Bob'", False),
    ("AddMeeting", "attendees", "[['Ann Lee', 'Bob']]", False),
    (
        "RecordHealthData",
        "health_data",
        "[{'name': 'weight', 'value': 70}, {'value': '80', 'name': 'pulse'}]",
        True,
    ),
    ("RecordHealthData", "health_data", "[{'name': 'pulse', 'value': '80'}]", False),
    ("RecordHealthData", "health_data", "[{'name': 'pulse'}, {'name': 'weight'}]", False),
    ("RecordHealthData", "health_data", "['pulse', 'weight']", False),
]


@mutation(
    "lists in quotes are cut at the second quote", SCORING,
    "full_arguments(inside) if gold.has_list else plain_arguments(inside)",
    "plain_arguments(inside)",
)  # fmt: skip
@pytest.mark.parametrize(("name", "key", "value", "right"), LISTS)
def test_lists_are_read_quoted_or_not(
    suite: ApiBank, name: str, key: str, value: str, right: bool
) -> None:
    quoted = of_ours(name, **{key: value})
    bare = quoted.replace(f"{key}='{value}'", f"{key}={value}")
    assert judged(suite, name, quoted).valid is right
    assert judged(suite, name, bare).valid is right
    assert judged(suite, name, f"Well: {bare} and [Other(a=['b'])]").valid is right


def test_a_call_with_a_list_is_read_to_its_end(suite: ApiBank) -> None:
    good = of_ours("AddMeeting").replace(
        "Project review with Bob", "Project: it\\'s (Bob) [x], y=1"
    )
    verdict = judged(suite, "AddMeeting", good)
    assert verdict.parts["wrong"] == ["meeting_topic"]
    for bad in (
        "attendees=['a', 'b'",
        "attendees=['a', 'b'], attendees=['a']",
        "['a']",
        "attendees=",
    ):
        said = judged(suite, "AddMeeting", f"[AddMeeting({bad})]").parts["error"]
        assert said == "unreadable_arguments", bad


def test_arguments_have_todays_names_or_the_recorded_ones(suite: ApiBank) -> None:
    assert judged(suite, "TimedSwitch", f"[TimedSwitch(name='77', time='{NOON}', on='True')]").valid
    both = f"[TimedSwitch(name='77', device_id='77', time='{NOON}', on='True')]"
    assert judged(suite, "TimedSwitch", both).parts["extra"] == ["device_id"]
    assert judged(suite, "TimedSwitch", of_ours("TimedSwitch", on="true")).valid
    assert not judged(suite, "TimedSwitch", of_ours("TimedSwitch", on="False")).valid
    assert not judged(suite, "TimedSwitch", of_ours("TimedSwitch", on="1")).valid


def test_keywords_of_a_search_are_compared_word_by_word(suite: ApiBank) -> None:
    assert judged(suite, "ToolSearcher", "[ToolSearcher(keywords='Add a  Meeting')]").valid
    assert not judged(suite, "ToolSearcher", "[ToolSearcher(keywords='AddAMeeting')]").valid
    level_3 = suite.judge("lv3/0.0", "[ToolSearcher(keywords='get weather')]", "match")
    assert level_3.valid
    assert not suite.judge("lv3/0.0", "[ToolSearcher(keywords='getweather')]", "match").valid


@mutation(
    "a word that most documents have counts against them",
    "genenv_core/benchmarks/api_bank/searching.py", "one if one >= 0 else floor", "one",
)  # fmt: skip
@pytest.mark.parametrize(
    ("keyword", "places"),
    [
        ("care of cats", {1, 2}),
        ("Cats!", {0, 1}),
        ("the sea", {1, 3}),
        ("bread and trains", {3, 4}),
        ("the", {1, 3}),
        ("and the", {0, 4}),
    ],
)
def test_a_search_ranks_as_the_package_rank_bm25(keyword: str, places: set[int]) -> None:
    assert Search(DOCUMENTS).found(keyword) == places


@pytest.mark.parametrize(
    ("call", "said", "right"),
    [
        (1, "[GetWeatherForCoordinates(latitude='40.71280', longitude=74.006)]", False),
        (1, "[GetWeatherForCoordinates(latitude='40.71280', longitude='74.006')]", True),
        (1, "[GetWeatherForCoordinates(latitude='40.7128', longitude='-74.006')]", False),
        (1, "[GetWeatherForCoordinates(latitude='40.7', longitude='74.006')]", False),
        (2, f"[EmailReminder(content='Rain', time='{NOON}', recipient='ann@x.org')]", True),
        (2, f"[EmailReminder(content=' ', time='{NOON}', recipient='ann@x.org')]", False),
        (2, f"[EmailReminder(content='Rain', time='{NOON}', recipient='bob@x.org')]", False),
        (3, "[MovieRecommendations(preferences=['Action', 'Drama'])]", True),
        (3, "[MovieRecommendations(preferences=['Drama', 'Action'])]", False),
        (4, "[LikeCount(post_id='4')]", True),
        (4, "[LikeCount(post_id=4)]", True),
        (4, "[LikeCount(post_id='4.0')]", False),
    ],
)
def test_calls_of_level_3_are_judged_as_the_official_harness_does(
    suite: ApiBank, call: int, said: str, right: bool
) -> None:
    assert suite.judge(f"lv3/0.{call}", said, "match").valid is right


@mutation(
    "what the tools do not compare counts where the recorded call fails", SCORING,
    "unvouched = rule is anything and wanted is None", "unvouched = False",
)  # fmt: skip
def test_nothing_vouches_for_an_argument_where_the_recorded_call_fails(tmp_path: Path) -> None:
    recorded = {**GOLD["DeleteAgenda"], "content": "Long gone", "time": "2020-01-01 00:00:00"}
    suite = load(write_download(tmp_path, {"DeleteAgenda": recorded}))
    assert judged(suite, "DeleteAgenda", spelled("DeleteAgenda", recorded)).valid
    for changed in ({"token": BOB}, {"content": "x"}, {"location": "x"}):
        verdict = judged(suite, "DeleteAgenda", spelled("DeleteAgenda", {**recorded, **changed}))
        assert verdict.parts["wrong"] == [*changed]


@mutation(
    "API-Bank's mode strict refuses the official prefix", SCORING, ".removeprefix(PREFIX)", ""
)
def test_strict_wants_the_call_alone_and_the_recorded_text(suite: ApiBank) -> None:
    call = of_ours("AddAgenda")
    for said in (f" {call}\n", f"API-Request: {call}", f"\nAPI-Request:{call}"):
        assert judged(suite, "AddAgenda", said, "strict").valid
    for said in (
        f"I call API-Request: {call}",
        f"API-Request: API-Request: {call}",
        f"{call}.",
        of_ours("AddAgenda", content="Review the budget"),
        of_ours("AddAgenda", token=BOB),
    ):
        assert judged(suite, "AddAgenda", said).valid
        assert not judged(suite, "AddAgenda", said, "strict").valid
    assert judged(suite, "QueryStock", of_ours("QueryStock", date="2023-3-1"), "strict").valid


def test_a_wrong_call_says_what_is_wrong(suite: ApiBank) -> None:
    def parts(said: str) -> dict[str, Any]:
        return dict(judged(suite, "GetUserToken", said).parts)

    named = {"missing": [], "extra": [], "wrong": []}
    assert parts("Hello") == {"kind": "call", "call": "", "error": "no_call", **named}
    assert parts("[GetToday()]")["error"] == "wrong_api"
    assert parts("[GetUserToken(username='ann', pass='x')]") == {
        "kind": "call",
        "call": "[GetUserToken(username='ann', pass='x')]",
        "error": "wrong_arguments",
        "missing": ["password"],
        "extra": ["pass"],
        "wrong": [],
    }
    verdict = judged(suite, "GetUserToken", "[GetUserToken(username='ann', password='x')]")
    assert verdict.parts["wrong"] == ["password"]
    assert verdict.reason == "wrong_arguments; wrong: password"
    failed = judged(suite, "DeleteAgenda", of_ours("DeleteAgenda", token="nobody"))
    assert failed.parts["wrong"] == ["token", "content", "location"]


ROUGE = [
    ("the cat sat", "the cat sat on the mat", 0.75),
    ("the cat sat on the mat", "the cat sat on the mat", 1.0),
    ("a dog", "the cat", 0.0),
    ("on the mat sat the cat", "the cat sat on the mat", 0.6),
    ("the the the", "the", 1.0),
    ("the", "the the cat", 0.6667),
    ("The cat", "the cat", 0.5),
    ("cat.", "cat", 1.0),
    ("a b. c d.", "c d. a b.", 1.0),
    ("a b c d", "a b. c d", 1.0),
    ("a  b\tc", "a b c", 1.0),
    ("a b. ", "a b", 0.8),
    ("! on is . ", "! is .", 0.6667),
    ("mat, a The", "mat, The", 0.8),
    (".. sat é cat mat sat", ".. sat é mat sat", 0.8571),
    ("on  The ! cat", " on a .. .. é mat sat . ..", 0.2),
    ("", "a", 0.0),
    ("...", "a", 0.0),
    ("a", "...", 0.0),
    ("a b a c a b", "b a c b a c", 1.0),
    ("b a c", "a b x c", 0.5714),
    ("x y. y x z", "x z y", 1.0),
]


@mutation(
    "words of a response count as often as they occur", "genenv_core/benchmarks/api_bank/rouge.py",
    "len({word for words in ours for word in words})",
    "len([word for words in ours for word in words])",
)  # fmt: skip
@pytest.mark.parametrize(("said", "gold", "wanted"), ROUGE)
def test_rouge_l_is_that_of_the_package_rouge(said: str, gold: str, wanted: float) -> None:
    assert round(rouge_l(said, gold), 4) == wanted


def test_responses_have_their_rouge_l_as_the_score(suite: ApiBank) -> None:
    item = "lv1/GetUserToken.jsonl#1"
    assert suite.items[item] == "lv1 responses"
    said = suite.judge(item, RESPONSE, "match")
    assert (said.valid, said.score) == (True, 1.0)
    assert said.parts == {"kind": "response", "rouge_l": 1.0}
    low = suite.judge(item, "The weather has been wonderful lately", "match")
    assert (low.valid, low.score) == (False, 0.1429)
    assert low.reason == "ROUGE-L 0.1429 is below 0.2"
    call = suite.judge(item, spelled("GetUserToken", GOLD["GetUserToken"]), "match")
    assert (call.valid, call.score) == (False, 0.0)
    assert judged(suite, "GetUserToken", RESPONSE).parts["error"] == "no_call"


def test_only_level_3_drops_the_speaker_of_a_response(suite: ApiBank) -> None:
    gold = REQUESTS[0]["response"]
    assert suite.judge("lv3/0.response", f"AI: {gold}", "match").score == pytest.approx(1.0)
    assert suite.judge("lv1/GetToday.jsonl#1", f"AI: {RESPONSE}", "match").score < 1.0


@mutation(
    "a sample after a call has no number when it is the user's",
    "genenv_core/benchmarks/api_bank/loading.py", "            number += 1",
    '            number += rows[at]["role"] != "User"',
)  # fmt: skip
def test_items_are_numbered_as_the_official_loop_counts_samples(tmp_path: Path) -> None:
    write_download(tmp_path, {"GetToday": {}})
    call = {"role": "API", "api_name": "GetToday", "param_dict": {}}
    said = {"role": "AI", "text": RESPONSE}
    turns = [said, call, {"role": "User", "text": "?"}, call, call, said]
    folder = tmp_path / DIALOGUES["lv1"]
    text = "\n".join(map(json.dumps, turns))
    (folder / "GetToday.jsonl").write_text(text, encoding="utf-8")
    (folder / "Empty.jsonl").write_text("", encoding="utf-8")
    suite = load(tmp_path)
    items = {item: group for item, group in suite.items.items() if item.startswith("lv1")}
    assert items == {
        "lv1/GetToday.jsonl#0": "lv1 calls",
        "lv1/GetToday.jsonl#2": "lv1 calls",
        "lv1/GetToday.jsonl#3": "lv1 calls",
        "lv1/GetToday.jsonl#4": "lv1 calls",
        "lv1/GetToday.jsonl#5": "lv1 responses",
    }
    assert list(suite.items)[-6:] == [*(f"lv3/0.{n}" for n in range(5)), "lv3/0.response"]


def test_metrics_are_the_accuracy_of_calls_and_the_mean_rouge_l(suite: ApiBank) -> None:
    tally = Tally()
    for item, said in {
        "lv1/GetToday.jsonl#0": "[GetToday()]",
        "lv2/GetToday.jsonl#0": "no",
        "lv1/GetToday.jsonl#1": "Is there anything else?",
    }.items():
        tally.add(item, suite.measures(item, suite.judge(item, said, "match")))
    found = {metric.name: (metric.items, metric.value) for metric in tally.metrics()}
    score = round(rouge_l("Is there anything else?", RESPONSE), 4)
    assert found == {
        "lv1 calls": (1, 1.0),
        "calls": (2, 0.5),
        "lv2 calls": (1, 0.0),
        "lv1 responses": (1, pytest.approx(score)),
    }
    assert 0 < score < 1


HOSTILE: list[Any] = [
    None,
    True,
    0,
    -1.5,
    float("nan"),
    [],
    {},
    ["[GetToday()]"],
    {"call": {"deep": [[[[{}]]]]}},
    "\x00",
    "\ud800",
    "[" * 100_000,
    "[a(" * 50_000 + ")]",
    "[AddMeeting(" + "[" * 100_000 + ")]",
    "[AddMeeting(attendees=" + "[" * 100_000 + "])]",
    "[AddMeeting(attendees='" + "{'a':" * 50_000 + ")]",
    "[AddMeeting(attendees=['" + "\\'" * 50_000 + ")]",
    "[AddMeeting(token='" + "x" * 1_000_000 + ")]",
    "[BookHotel(hotel_name='Grand', check_in_time='2023-05-01', room_count='"
    + "9" * 10_000
    + "')]",
    "[BookHotel(hotel_name='Grand', check_in_time='2023-05-01', room_count='²')]",
    "[BookHotel(hotel_name=Grand, check_in_time='" + "1-" * 50_000 + "', room_count=2)]",
    "[GetUserToken(" + "a" * 1_000_000 + ")]",
    "[GetUserToken(" + "a=" * 300_000 + ")]",
    "[GetUserToken(" + "a=[" * 200_000 + ")]",
    "[GetUserToken(" + "a='" * 200_000 + ")]",
    "[GetUserToken(" + "a " * 300_000 + ")]",
    "[GetUserToken(a" + " " * 1_000_000 + ")]",
    "[SendEmail(receiver='" + "a" * 500_000 + "', subject='Hello', content='See you at noon')]",
    "[Calculator(formula=')(')]",
    "[SearchEngine(keyword='" + "the " * 250_000 + "')]",
    "x" * 1_000_000,
    "a. " * 300_000,
    "the call " * 11_000,
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_no_prediction_raises_or_takes_long(suite: ApiBank, mode: str) -> None:
    items = [item for item in suite.items if not item.startswith("lv2")]
    for said in HOSTILE:
        began = time.process_time()
        for item in items if not isinstance(said, str) or len(said) < 1000 else items[:4]:
            verdict = suite.judge(item, said, mode)
            # A response of many words may share some with gold.
            assert verdict.valid is False or suite.items[item].endswith("responses")
            assert len(json.dumps(verdict.parts)) < 200_000
        for name in ("AddMeeting", "BookHotel", "SendEmail", "SearchEngine", "RecordHealthData"):
            assert judged(suite, name, said, mode).valid is False
        assert time.process_time() - began < 5, str(said)[:60]


def test_arguments_are_read_as_the_patterns_of_the_harness_find_them() -> None:
    assert plain_arguments("a='x', b = \"y z\",c=3") == {"a": "x", "b": "y z", "c": "3"}
    assert plain_arguments("a=[1, [2]], b='c'") == {"a": "[1, [2]]", "b": "c"}
    assert plain_arguments("a='', b='c'") == {"a": "', b="}
    assert plain_arguments("a=-5, b=, c=d=e, f='") == {"c": "d"}
    assert plain_arguments("a='[{'b': 'c'}]'") == {"a": "[{"}


def test_values_in_a_list_are_json_or_python() -> None:
    assert read_list("[1, -2.5, 'a', \"b\", True, none_]".replace("none_", "null")) == [
        1,
        -2.5,
        "a",
        "b",
        True,
        None,
    ]
    assert full_arguments("a={'k': [1]}, b=x-1 ") == {"a": {"k": [1]}, "b": "x-1"}
    for bad in ("[a]", "[1 2]", "[1", "[1] x", "{}", "['a]", "[{1: 2}]", "[" * 30 + "]" * 30, ""):
        with pytest.raises(UnreadableError):
            read_list(bad)


def test_a_download_with_one_level_is_enough(tmp_path: Path) -> None:
    whole = load(write_download(tmp_path))
    for kept in (*DIALOGUES, "lv3"):
        folder = write_download(tmp_path / kept)
        for level, place in DIALOGUES.items():
            if level != kept:
                shutil.rmtree(folder / place)
        if kept == "lv3":
            shutil.rmtree(folder / "init_database")
        else:
            (folder / REQUESTS_FILE).unlink()
        suite = load(folder)
        wanted = {item: group for item, group in whole.items.items() if item.startswith(kept)}
        assert dict(suite.items) == wanted
        assert suite.digest != whole.digest
    assert load(write_download(tmp_path / "again")).digest == whole.digest


def test_a_download_with_no_level_or_without_what_it_needs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"level-1-given-desc.*level-2-toolsearcher.*level-3\.json"
    ):
        load(tmp_path)
    for missing in ("api_docs.json", "init_database/Account.json", "init_database/Agenda.json"):
        folder = write_download(tmp_path / missing.replace("/", "_"))
        (folder / missing).unlink()
        with pytest.raises(ConfigError, match=missing):
            load(folder)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("api_docs.json", "{}", "lv1_lv2"),
        ("api_docs.json", "[", "no JSON"),
        ("init_database/Agenda.json", '{"1": {"username": "ann"}}', "content"),
        ("init_database/Account.json", "[]", "token"),
        ("test-data/level-3.json", '[{"response": "x"}]', "apis"),
        ("test-data/level-3.json", '[{"apis": []}]', "response"),
        (f"{DIALOGUES['lv1']}/GetToday.jsonl", "[1]", "role"),
        (f"{DIALOGUES['lv1']}/GetToday.jsonl", '{"role": "API", "api_name": "No"}', "has no No"),
        (
            f"{DIALOGUES['lv1']}/GetToday.jsonl",
            '{"role": "API", "api_name": "BookHotel", "param_dict": {"room_count": "two"}}',
            "no int",
        ),
        (
            f"{DIALOGUES['lv1']}/GetToday.jsonl",
            '{"role": "API", "api_name": "GetToday", "param_dict": []}',
            "param_dict",
        ),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, file: str, text: str, said: str) -> None:
    folder = write_download(tmp_path)
    (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=said) as caught:
        load(folder)
    assert Path(file).name.removesuffix(".json") in str(caught.value) or "init_database" in str(
        caught.value
    )


def test_the_registry_knows_it() -> None:
    assert get_benchmark("api_bank") is BENCHMARK
    assert list(BENCHMARK.modes) == ["match", "official", "strict"]  # the first is the default


def gold_spelled(gold: RecordedCall) -> str:
    return spelled(gold.tool.name, dict(gold.arguments))


@pytest.mark.parametrize("mode", MODES)
def test_all_official_gold_is_right(mode: str) -> None:
    folder = official("apibank")
    suite = official_suite(folder)
    counts = Counter(suite.items.values())
    assert counts == {**GOLD_COUNTS, **RESPONSE_COUNTS}
    said: dict[str, str] = {}
    for level in ("1", "2"):
        for kind in ("api", "response"):
            for row in json.loads((folder / f"test-data/level-{level}-{kind}.json").read_text()):
                said[f"lv{level}/{row['file']}#{row['id']}"] = row["expected_output"]
    for row in json.loads((folder / "test-data/level-3-batch-inf.json").read_text()):
        said[f"lv3/{row['sample_id']}.{row['api_id']}"] = row["output"]
    for number, row in enumerate(
        json.loads((folder / "test-data/level-3-batch-inf-response.json").read_text())
    ):
        said[f"lv3/{number}.response"] = row["output"]
    assert said.keys() == suite.items.keys()
    right: Counter[str] = Counter()
    for item, text in said.items():
        right[suite.items[item]] += suite.judge(item, text, mode).valid is True
    assert right == counts


def test_no_changed_call_passes_for_an_official_gold_one() -> None:
    suite = official_suite(official("apibank"))
    tried = 0
    for item, gold in suite.gold.items():
        if not isinstance(gold, RecordedCall):
            continue
        arguments = dict(gold.arguments)
        changed = [{**arguments, "surprise": "x"}]
        changed += [{k: v for k, v in arguments.items() if k != name} for name in arguments]
        changed += [
            {**arguments, name: f"{value} zzz zzy zzx zzw zzv zzu zzt zzs zzr zzq zzp zzo"}
            for name, value in arguments.items()
            if name not in UNCOMPARED.get(gold.tool.name, ())
        ]
        for said in [
            "",
            f"[{gold.tool.name}X()]",
            gold_spelled(gold)[:-1],
            *(spelled(gold.tool.name, one) for one in changed),
        ]:
            verdict = suite.judge(item, said, "match")
            assert verdict.valid is False, (item, said)
            tried += 1
    assert tried > 5000
