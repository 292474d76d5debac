"""API-Bank's training requests.

Invariants: every drawn request is sound, repeats no item, and comes back from its program; held-out
requests are no base requests and no examples, whatever the seeds; a generation whose API does not
exist, whose arguments do not fit, whose values nobody says, or whose request gives a call away is
refused with the reason; one that repeats an item is contaminated; a wrong call ends an attempt, and
a right one is answered with what is on record, by pi_env too; a user's requests take the place of
drawn ones.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema.validators import Draft202012Validator

from genenv_core.benchmarks.api_bank.training import ApiBankDomain
from genenv_core.benchmarks.api_bank.training.drawing import FORMATS, draw, format_of
from genenv_core.benchmarks.api_bank.training.wording import ENV_RULES, OBSERVATION_SCHEMA
from genenv_core.benchmarks.api_bank.training.writing import DEEPEST
from genenv_core.domains.protocol import (
    ConstrainsEnv,
    KnowsSolution,
    SeedData,
    SimulatedTools,
    WritesAnswers,
)
from genenv_core.errors import ConfigError, DataError
from genenv_core.play.simulator import checked, misfit
from genenv_core.types import AgentHistory, Context, Rejected, Rejection, TaskDraft
from tests.examples import many, some
from tests.mutations import mutation
from tests.unit.benchmarks.api_bank import api_bank_cases as cases
from tests.unit.benchmarks.data import official
from tests.unit.domains.checking import flaws
from tests.unit.domains.domain_contract import DomainContract
from tests.unit.domains.played_turns import call, hostile, played

WRITING = "genenv_core/benchmarks/api_bank/training/writing.py"

TIME = "Format: %Y-%m-%d %H:%M:%S"
FORMATTED = {"time": TIME, "check_in_time": "Format: %Y-%m-%d", "date": "Format: %Y-%m-%d"}
MAIL = "Tell ida@x.example about it. Say 'late' as the subject and 'See you' as the content."
GOOD: dict[str, Any] = {
    "request": "Put the pottery class into my calendar, in Room 12, on May 4th at half past two. "
    "My token is k7x2p9.",
    "api": "AddAgenda",
    "arguments": {
        "token": "k7x2p9",
        "content": "pottery class",
        "time": "2023-05-04 14:30:00",
        "location": "Room 12",
    },
}
CHAIN: dict[str, Any] = {
    "request": "I am tilda, my password is pear5. Remind me of the pottery class on "
    "2023-05-04 14:30:00.",
    "api": "AddReminder",
    "arguments": {
        "token": "q8w3e4",
        "content": "pottery class",
        "time": "2023-05-04 14:30:00",
    },
    "before": [
        {
            "api": "GetUserToken",
            "arguments": {"username": "tilda", "password": "pear5"},
            "answer": {"token": "q8w3e4"},
        }
    ],
}


def write_download(folder: Path) -> Path:
    """Return a download made by hand, in which some arguments have a format."""
    cases.write_download(folder)
    docs = json.loads((folder / "api_docs.json").read_text())
    for tools in docs.values():
        for tool in tools:
            for name, declared in tool["input_parameters"].items():
                declared["description"] = FORMATTED.get(name, f"The {name}.")
    (folder / "api_docs.json").write_text(json.dumps(docs))
    return folder


def made(folder: Path, **options: Any) -> ApiBankDomain:
    return ApiBankDomain.from_options({"data": str(folder), **options})


@cache
def of_official(folder: Path) -> ApiBankDomain:
    return made(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_download(tmp_path_factory.mktemp("api_bank"))


@pytest.fixture(scope="module")
def domain(data: Path) -> ApiBankDomain:
    return made(data)


def read(domain: ApiBankDomain, value: Any) -> TaskDraft:
    (found,) = domain.parse(json.dumps(value))
    assert isinstance(found, TaskDraft), found
    return found


@mutation(
    "a drawn request may be one of the benchmark's",
    "genenv_core/benchmarks/api_bank/training/requests.py",
    "if isinstance(draft, TaskDraft) and self._fits(draft):", "if isinstance(draft, TaskDraft):",
)  # fmt: skip
@pytest.mark.parametrize("seed", some((1, 2, 3), (2,)))
def test_every_drawn_request_is_sound(seed: int) -> None:
    domain = of_official(official("apibank"))
    drafts = [*domain.base_tasks(seed, 200), *domain.heldout_tasks(seed, 40)]
    assert len({draft.fingerprint for draft in drafts}) == 240
    for draft in drafts[:: 8 if seed > 1 else 1]:
        assert flaws(draft, domain) == []
        assert domain.parse(draft.program) == [draft]
        messages, done = played(domain, draft, domain.answer_turns(draft))
        assert done and domain.score(draft, messages).success
        names = [tool["function"]["name"] for tool in domain.tools_of(draft)]
        assert len(names) == 4 and {c["api"] for c in draft.spec["calls"]} <= set(names)
    assert len({draft.family for draft in drafts}) > 8
    assert min(draft.difficulty for draft in drafts) == 1
    assert max(draft.difficulty for draft in drafts) > 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_every_drawn_request_of_more_seeds_is_sound(seed: int) -> None:
    domain = of_official(official("apibank"))
    for draft in [*domain.base_tasks(seed, 200), *domain.heldout_tasks(seed, 200)]:
        assert flaws(draft, domain) == [] and domain.parse(draft.program) == [draft]


class TestApiBank(DomainContract):
    """The contract, on a small download."""

    examples = 20
    protocols = (SeedData, ConstrainsEnv, KnowsSolution, WritesAnswers)
    not_allowed = ("", "{}", json.dumps({**GOOD, "arguments": []}))
    alien = (
        {},
        {"request": "x", "tools": ["none"], "calls": []},
        {"request": "x", "tools": [], "calls": [{"api": "none", "arguments": {}}]},
        {"request": "x", "tools": [], "calls": [7]},
    )


def test_drawn_dates_come_one_after_the_other() -> None:
    declared = {"type": "str", "description": "Format: %Y-%m-%d"}
    parameters = {key: declared for key in ("begin", "middle", "end")}
    docs = {"Stay": {"name": "Stay", "input_parameters": parameters}}
    for seed in range(30):
        drawn = draw(random.Random(seed), docs, 2)
        assert drawn and len(drawn.calls) == 1
        dates = list(drawn.calls[0].arguments.values())
        assert dates == sorted(set(dates))


def test_examples_are_calls_of_apis_that_are_shown(domain: ApiBankDomain) -> None:
    examples = domain.agent_examples(1, 80)
    assert all(answer.startswith("<tool_call>") for _, answer in examples)
    assert {len(messages) for messages, _ in examples} == {2, 4}  # the second turn of two calls too
    for prompt, text in domain.env_examples(2, 20, 0.5):
        api = json.loads(text)["api"]
        assert f"\n{api}: " in prompt[1]["content"]


def test_pi_env_reads_its_apis_the_agents_success_and_the_base_request(
    domain: ApiBankDomain,
) -> None:
    base = read(domain, GOOD)
    context = Context("c", "t", base, AgentHistory(0.46, {"calendar": (3, 8)}))
    system, user = domain.env_messages(context)
    assert user["content"].endswith(
        f"success 5/10; by family: calendar 3/8; base: {base.program} ; new:"
    )
    lines = user["content"].splitlines()
    assert lines[0] == "APIs:" and len(lines) == 12
    assert any(line.startswith("AddAgenda: ") and f"time (str): {TIME}" in line for line in lines)
    assert system["content"] == ENV_RULES
    validator = Draft202012Validator(json.loads(domain.env_grammar(context).text))
    assert validator.is_valid(GOOD) and validator.is_valid(CHAIN)
    for shown in ENV_RULES.splitlines()[-3:-1]:
        text = shown[shown.index("{") : shown.rindex("}") + 1]
        assert validator.is_valid(json.loads(text))


def changed(**arguments: Any) -> dict[str, Any]:
    """Return a request with other arguments; None leaves one out."""
    both = {**GOOD["arguments"], **arguments}
    return {**GOOD, "arguments": {key: one for key, one in both.items() if one is not None}}


def asked(request: str) -> dict[str, Any]:
    return {**GOOD, "request": f"{GOOD['request']} {request}"}


def earlier(**fields: Any) -> dict[str, Any]:
    return {**CHAIN, "before": [{**CHAIN["before"][0], **fields}]}


def mail(content: Any) -> dict[str, Any]:
    arguments = {"receiver": "ida@x.example", "subject": "late", "content": content}
    return {"request": MAIL, "api": "SendEmail", "arguments": arguments}


NESTED: Any = ["x"]
for _ in range(DEEPEST):
    NESTED = [NESTED]

MUTATED: list[tuple[Any, Rejection, str]] = [
    ("{'request': 1}", Rejection.UNPARSEABLE, "no JSON"),
    (json.dumps(changed(content=float("nan"))), Rejection.UNPARSEABLE, "no JSON"),
    (json.dumps(changed(content="\ud800")), Rejection.UNPARSEABLE, "surrogate"),
    ({k: v for k, v in GOOD.items() if k != "api"}, Rejection.UNPARSEABLE, "api"),
    ({**GOOD, "arguments": "x"}, Rejection.UNPARSEABLE, "arguments"),
    ({**GOOD, "hint": 1}, Rejection.UNPARSEABLE, "hint"),
    ({**GOOD, "request": "Do it"}, Rejection.OUT_OF_RANGE, "request"),
    ({**CHAIN, "before": CHAIN["before"] * 4}, Rejection.OUT_OF_RANGE, "before"),
    ({**GOOD, "api": "AddAgendas"}, Rejection.UNKNOWN_TOOL, "AddAgendas"),
    ({**GOOD, "api": "ToolSearcher"}, Rejection.UNKNOWN_TOOL, "ToolSearcher"),
    (earlier(api="GetToken"), Rejection.UNKNOWN_TOOL, "GetToken"),
    (changed(location=None), Rejection.INCONSISTENT, "location"),
    (changed(place="Room 12"), Rejection.INCONSISTENT, "place"),
    (changed(content=7), Rejection.INCONSISTENT, "7 is not of type"),
    (changed(content=NESTED), Rejection.OUT_OF_RANGE, "levels"),
    (changed(time="May 4th, 14:30"), Rejection.INCONSISTENT, "format %Y-%m-%d %H:%M:%S"),
    (changed(time="2023-05-04"), Rejection.INCONSISTENT, "format"),
    (changed(time="2023-05-05 14:30:00"), Rejection.INCONSISTENT, "does not say time"),
    # Neither Room 12 nor the 2 of the token is a day.
    (changed(time="2023-05-02 14:30:00"), Rejection.INCONSISTENT, "does not say time"),
    (changed(content="yoga class"), Rejection.INCONSISTENT, "does not say content 'yoga class'"),
    (changed(location="Room 1"), Rejection.INCONSISTENT, "does not say location"),
    (asked("Call AddAgenda for it."), Rejection.LEAKS_ANSWER, "AddAgenda"),
    (asked("Say <tool_call> then."), Rejection.LEAKS_ANSWER, "<tool_call>"),
    (mail("See 'you'"), Rejection.INCONSISTENT, "does not say content"),
    (earlier(answer="here it is: q8w3"), Rejection.INCONSISTENT, "no later call needs"),
    ({**CHAIN, "request": f"{CHAIN['request']} My token is q8w3e4."}, Rejection.INCONSISTENT,
     "no later call needs"),
    (earlier(arguments={"username": "otto", "password": "pear5"}), Rejection.INCONSISTENT,
     "does not say username"),
    ({**CHAIN, "before": []}, Rejection.INCONSISTENT, "does not say token"),
    ({**mail("'See you'"), "request": MAIL}, Rejection.REJECTS_GROUND_TRUTH, "wrong"),
]  # fmt: skip


@mutation(
    "a request need not say what its call needs", WRITING,
    "if unsaid := _unsaid(call, docs, known):", 'if unsaid := "":',
)  # fmt: skip
@mutation("an argument may have any type", WRITING, "if error is not None:", "if False:")
@pytest.mark.parametrize(("value", "reason", "detail"), MUTATED)
def test_a_changed_generation_is_refused_with_the_reason(
    domain: ApiBankDomain, value: Any, reason: Rejection, detail: str
) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    (found,) = domain.parse(text)
    assert isinstance(found, Rejected) and found.reason == reason, found
    assert detail in found.detail


def test_good_generations_are_tasks(domain: ApiBankDomain) -> None:
    one = read(domain, GOOD)
    # Four arguments; the time alone is said in other words.
    assert (one.family, one.difficulty) == ("calendar", 5.0)
    assert flaws(one, domain) == []
    assert domain.parse(f"```\n{json.dumps(GOOD, indent=1)}\n```") == [one]
    two = read(domain, CHAIN)
    assert (two.family, two.difficulty) == ("calendar chain", 8.0)
    assert flaws(two, domain) == []
    assert [turn.reveals for turn in domain.solution(two)] == [("q8w3e4",), ()]
    hotel = {
        "request": "Book two rooms of the Ritz for me from 2023-05-01.",
        "api": "BookHotel",
        "arguments": {"hotel_name": "Ritz", "check_in_time": "2023-05-01", "room_count": 2},
    }
    assert read(domain, hotel).difficulty == 3.0  # a small number counts as said in words
    meeting = {
        "request": "Note: kiln talk with Ida Dal and Bo Fen. My token is k7x2p9.",
        "api": "AddMeeting",
        "arguments": {
            "token": "k7x2p9",
            "meeting_topic": "kiln talk",
            "attendees": ["Ida Dal", "Bo Fen"],
        },
    }
    draft = read(domain, meeting)
    messages, _ = played(domain, draft, [call("AddMeeting", **meeting["arguments"])])
    assert domain.score(draft, messages).success
    switched = {
        "request": "Turn device 31 off, please, on 2023-05-04 14:30:00.",
        "api": "TimedSwitch",
        "arguments": {"device_id": "31", "time": "2023-05-04 14:30:00", "on": False},
    }
    assert flaws(read(domain, switched), domain) == []


@mutation(
    "an earlier call may be one of the benchmark's",
    "genenv_core/benchmarks/api_bank/training/api_bank_domain.py",
    "for call in self.calls_of(draft):",
    "for call in self.calls_of(draft)[-1:]:",
)  # fmt: skip
def test_a_generation_that_repeats_an_item_is_contaminated(domain: ApiBankDomain) -> None:
    agenda = cases.GOLD["AddAgenda"]
    repeated = {
        "request": f"Note {agenda['content']} in {agenda['location']} on {agenda['time']}, "
        f"token {agenda['token']}.",
        "api": "AddAgenda",
        "arguments": agenda,
    }
    token = cases.GOLD["GetUserToken"]
    before = {"api": "GetUserToken", "arguments": token, "answer": {"token": "q8w3e4"}}
    in_chain = {
        **CHAIN,
        "request": f"{CHAIN['request']} I am {token['username']}, and it is {token['password']}.",
        "before": [before],
    }
    for value in (repeated, in_chain):
        (found,) = domain.parse(json.dumps(value))
        assert isinstance(found, Rejected) and found.reason == Rejection.CONTAMINATED, found
        assert isinstance(domain.read(json.dumps(value))[0], TaskDraft)
    said = {**GOOD, "request": f"{cases.REQUESTS[0]['requirement']}. {GOOD['request']}"}
    (found,) = domain.parse(json.dumps(said))
    assert isinstance(found, Rejected) and found.reason == Rejection.CONTAMINATED
    assert "item lv3/0.0" in found.detail


@settings(max_examples=many(40))
@given(
    api=st.sampled_from(
        ["AddAgenda", "BookHotel", "AddMeeting", "TimedSwitch", "RecordHealthData"]
    ),
    arguments=st.dictionaries(
        st.sampled_from(["token", "content", "time", "location", "attendees", "on", "health_data"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    ),
)
def test_no_arguments_raise(domain: ApiBankDomain, api: str, arguments: Any) -> None:
    value = {"request": GOOD["request"], "api": api, "arguments": arguments}
    (found,) = domain.parse(json.dumps(value))
    assert isinstance(found, Rejected | TaskDraft)


@mutation(
    "a wrong call is answered as the right one",
    "genenv_core/benchmarks/api_bank/training/attempt.py",
    "if len(made) >= len(request.calls) or not request.are_right(made):",
    "if len(made) >= len(request.calls):",
)  # fmt: skip
def test_calls_are_judged_in_order(domain: ApiBankDomain) -> None:
    draft = read(domain, CHAIN)
    first, second = domain.answer_turns(draft)
    other = call("GetUserToken", username="tilda", password="plum")

    def score(*turns: str) -> tuple[bool, bool]:
        messages, done = played(domain, draft, turns)
        return done, domain.score(draft, messages).success

    assert score(first, second) == (True, True)
    assert score(f"First, the token.\n{first}", f"{second}") == (True, True)
    assert score(first + second) == (True, True)  # as the ground truth is judged
    assert score(first) == (False, False)
    assert score(second) == (True, False) and score(other) == (True, False)
    assert score(first, first) == (True, False) and score(first, "Done.") == (True, False)
    assert score(first + second + second) == (True, False)
    assert score(f"{first}<tool_call>{{</tool_call>") == (True, False)
    messages, _ = played(domain, draft, [first])
    assert messages[-1] == {
        "role": "tool",
        "name": "GetUserToken",
        "content": '{"token": "q8w3e4"}',
    }


def test_calls_are_compared_as_the_benchmark_compares_them(domain: ApiBankDomain) -> None:
    draft = read(domain, GOOD)

    def success(**arguments: Any) -> bool:
        messages, _ = played(
            domain, draft, [call("AddAgenda", **changed(**arguments)["arguments"])]
        )
        return domain.score(draft, messages).success

    assert success() and not success(time="2023-05-04 15:30:00") and not success(location=None)
    assert success(content="pottery class class")  # more than half of the words
    assert not success(content="yoga") and not success(token="k7x2p8")  # nobody's token is known
    # Somebody else's token is another one, though the official tool does not compare it.
    known = read(domain, {**changed(token=cases.ANN), "request": f"{GOOD['request']} {cases.ANN}"})
    messages, _ = played(
        domain, known, [call("AddAgenda", **changed(token=cases.BOB)["arguments"])]
    )
    assert not domain.score(known, messages).success
    strict = made(Path(str(domain.options.data)), mode="strict")
    messages, _ = played(
        strict, draft, [call("AddAgenda", **changed(content="pottery class class")["arguments"])]
    )
    assert not strict.score(draft, messages).success


@pytest.mark.slow
def test_hostile_turns_fail_in_training_too(domain: ApiBankDomain) -> None:
    for value in (GOOD, CHAIN):
        draft = read(domain, value)
        for turn in hostile("GetUserToken"):
            messages, done = played(domain, draft, [turn])
            assert done and not domain.score(draft, messages).success


def test_pi_env_plays_the_apis(domain: ApiBankDomain) -> None:
    assert isinstance(domain, SimulatedTools)
    draft = read(domain, CHAIN)
    first, second = domain.answer_turns(draft)

    def prompt(draft: TaskDraft, *turns: str) -> Any:
        messages = domain.agent_messages(draft)
        for turn in turns:
            messages.append({"role": "assistant", "content": turn})
            messages.append({"role": "tool", "content": "whatever"})
        return domain.tool_messages(draft, messages[:-1])

    system, user = prompt(draft, first)
    assert "You play APIs" in system["content"]
    assert user["content"] == (
        "call: [GetUserToken(username='tilda', password='pear5')] on record: "
        '{"token": "q8w3e4"}\nanswer:'
    )
    assert prompt(draft, second) is None and prompt(draft, first, second) is None
    assert prompt(draft, "Done.") is None and prompt(draft, "<tool_call>{") is None
    assert prompt(read(domain, GOOD), domain.answer_turns(read(domain, GOOD))[0]) is None
    assert prompt(domain.items()[0], first) is None
    answer = {"content": '{"token": "q8w3e4"}', "name": "GetUserToken"}
    assert misfit(answer, checked(OBSERVATION_SCHEMA)) == ""


def test_a_users_requests_take_the_place_of_drawn_ones(data: Path, tmp_path: Path) -> None:
    rows = [
        {"request": f"Play number {n}, will you?", "api": "PlayMusic",
         "arguments": {"music_name": f"nocturne {n}"}}
        for n in range(60)
    ]  # fmt: skip
    file = tmp_path / "train.jsonl"

    def write(*rows: Any) -> None:
        file.write_text("\n".join(map(json.dumps, rows)))

    write(*rows)
    domain = made(data, train=str(file))
    base, heldout = domain.base_tasks(1, 30), domain.heldout_tasks(1, 5)
    prompts = {draft.prompt for draft in [*base, *heldout]}
    assert len(prompts) == 35 and prompts <= {row["request"] for row in rows}
    for draft in [*base, *heldout]:
        assert flaws(draft, domain) == []
    with pytest.raises(ConfigError, match="wanted: lower"):
        domain.base_tasks(1, 60)
    version = domain.version
    write(*rows[1:])
    assert made(data, train=str(file)).version != version
    for row, problem in (
        ([], "row 1"),
        ({**rows[0], "api": "Play"}, "there is no API"),
        ({**rows[0], "arguments": {}}, "music_name"),
        ({**rows[0], "arguments": cases.GOLD["PlayMusic"]}, "are those of item"),
    ):
        write(row)
        with pytest.raises(DataError, match=problem):
            made(data, train=str(file))
    with pytest.raises(ConfigError, match="no such file"):
        made(data, train=str(tmp_path / "none"))


def test_a_download_without_apis_to_call_is_named(tmp_path: Path) -> None:
    folder = cases.write_download(tmp_path, {"GetToday": {}})
    (folder / "test-data/level-3.json").unlink()
    with pytest.raises(ConfigError, match="no APIs to make requests for"):
        made(folder).base_tasks(1, 1)


def test_rules_can_be_left_out_for_tiny_models(data: Path) -> None:
    domain = made(data, explain=False)
    draft = read(domain, CHAIN)
    context = Context("c", "t", draft, AgentHistory())
    for messages in (domain.agent_messages(draft), domain.env_messages(context)):
        assert [message["role"] for message in messages] == ["user"]
    assert "\nGetUserToken: username password\n" in domain.env_messages(context)[0]["content"]
    assert flaws(draft, domain) == []
    first = {"role": "assistant", "content": domain.answer_turns(draft)[0]}
    asked = domain.tool_messages(draft, [*domain.agent_messages(draft), first])  # type: ignore[list-item]
    assert asked and [message["role"] for message in asked] == ["user"]
    assert domain.agent_messages(domain.items()[0])[0]["role"] == "system"


def test_formats_are_found_in_descriptions() -> None:
    assert format_of({"description": "When. Format: %Y-%m-%d %H:%M:%S"}) == FORMATS[0]
    assert format_of({"description": "When. Format: %Y-%m-%d."}) == "%Y-%m-%d"
    assert format_of({"description": "Format: %m-%d"}) == "%m-%d"
    assert format_of({"description": "When."}) == format_of({}) == ""
