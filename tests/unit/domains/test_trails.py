"""The embedded domain trails.

Invariants: parsing a program gives its task back; no text makes the parser, the tool or the judge
raise anything but DomainError; each flaw has its reason; every task is admitted; base, seed and
held-out data are distinct and disjoint for any seeds, and equal in every process; an agent that
reads each answer of the tool succeeds, and nothing before the last one gives the answer away;
pi_env in the place of the tool learns to say what the tool says; an answer that leaves the value
out, or names two, is no success.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genenv_core.domains import registry
from genenv_core.domains.kit.texts.similarity import normalize_answer, token_f1
from genenv_core.domains.parts import in_heldout
from genenv_core.domains.protocol import ConstrainsEnv, SeedData, SimulatedTools, WritesAnswers
from genenv_core.domains.trails import TrailsDomain, cards
from genenv_core.domains.trails.cards import (
    FIELDS,
    LINKS,
    MOST_LOOKS,
    PEOPLE,
    THINGS,
    Trail,
    cards_of,
    draw_trail,
)
from genenv_core.domains.trails.trails_domain import TrailsOptions, read_look
from genenv_core.domains.trails.wording import NO_CARD, TOOL, render_answer, render_look
from genenv_core.errors import ConfigError, DomainError
from genenv_core.play.calls import calls_made, with_calls
from genenv_core.play.certificate import answer_verdict
from genenv_core.play.simulator import checked, misfit
from genenv_core.types import AgentHistory, Context, Message, Rejected, Rejection, TaskDraft
from tests.mutations import mutation
from tests.unit.domains.checking import flaws
from tests.unit.domains.domain_contract import DomainContract

CARDS = "genenv_core/domains/trails/cards.py"
DOMAIN = "genenv_core/domains/trails/trails_domain.py"

TRAILS = TrailsDomain()
LONG = TrailsDomain(TrailsOptions(max_looks=MOST_LOOKS))
EXPLAINED = TrailsDomain(TrailsOptions(explain=True))

seeds = st.integers(0, 2**31 - 1)
trails = st.builds(
    lambda seed, looks: draw_trail(random.Random(seed), looks), seeds, st.integers(1, MOST_LOOKS)
)


def _task(text: str, trails: TrailsDomain = TRAILS) -> TaskDraft:
    (task,) = trails.parse(text)
    assert isinstance(task, TaskDraft), task
    return task


def _say(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _look(name: Any = TOOL, /, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def _play(task: TaskDraft, trails: TrailsDomain = TRAILS) -> list[Message]:
    """Return the attempt of an agent that knows the words of a request, and asks for the rest."""
    messages = trails.agent_messages(task)
    words = re.fullmatch(r"start at (\w+)(.*), and tell the (\w+)\.", messages[-1]["content"])
    assert words
    person, asked = words[1], words[3]
    episode = trails.episode(task, 0)
    for field in [*re.findall(r", go to the (\w+)", words[2]), asked]:
        messages.append(_say(render_look(person, field)))
        seen = episode.step(messages[-1]["content"])
        assert not seen.done and not seen.failed
        messages += seen.messages
        value = messages[-1]["content"]
        person = value if field in LINKS else person
    messages.append(_say(render_answer(person, asked, value)))
    assert episode.step(messages[-1]["content"]).done
    return messages


def test_golden_task() -> None:
    task = _task(" mara boss\tfriend town\n417")
    assert task.prompt == "start at mara, go to the boss, go to the friend, and tell the town."
    assert task.program == task.fingerprint == "mara boss friend town 417"
    assert (task.family, task.difficulty) == ("k3", 3.0)
    assert json.loads(json.dumps(task.spec)) == task.spec
    boss = task.spec["cards"]["mara"]["boss"]
    friend = task.spec["cards"][boss]["friend"]
    town = task.spec["cards"][friend]["town"]
    assert list(task.spec["cards"]) == ["mara", boss, friend]
    assert task.ground_truth == f"the town of {friend} is {town}"
    assert task.spec["asked"] == {"person": friend, "field": "town", "value": town}
    # Other cards make other tasks: then raise `version`.
    assert (boss, friend, town) == ("karl", "sven", "oslo")


@mutation(
    "a card names one person twice", CARDS,
    "if name not in (person, following)", "if name != person",
)  # fmt: skip
@given(trails)
def test_cards_name_others_and_lead_past_nobody_twice(trail: Trail) -> None:
    told = cards_of(trail)
    assert len(told) == trail.looks and next(iter(told)) == trail.start
    for person, card in told.items():
        assert list(card) == list(FIELDS)
        named = [card[link] for link in LINKS]
        assert len({person, *named}) == 1 + len(LINKS) and set(named) < set(PEOPLE)
        assert all(card[thing] in values for thing, values in THINGS.items())


def test_every_word_is_one_word_of_an_answer_and_means_one_thing() -> None:
    words = [*PEOPLE, *FIELDS, *(value for values in THINGS.values() for value in values)]
    assert len(set(words)) == len(words)
    assert all(normalize_answer(word) == [word] for word in words)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Rejection.UNPARSEABLE),
        ("mara", Rejection.UNPARSEABLE),
        ("mara 417", Rejection.UNPARSEABLE),
        ("mara town", Rejection.UNPARSEABLE),
        ("mary town 417", Rejection.UNPARSEABLE),
        ("MARA town 417", Rejection.UNPARSEABLE),
        ("mara car 417", Rejection.UNPARSEABLE),
        ("mara town 417 5", Rejection.UNPARSEABLE),
        ("mara town 0417", Rejection.UNPARSEABLE),
        ("mara town -1", Rejection.UNPARSEABLE),
        ("mara town 4.0", Rejection.UNPARSEABLE),
        ("mara town ٤", Rejection.UNPARSEABLE),  # another script's 4
        ("mara town 1000", Rejection.OUT_OF_RANGE),
        ("mara town " + "9" * 5000, Rejection.OUT_OF_RANGE),
        ("mara" + " boss" * 6 + " town 4", Rejection.OUT_OF_RANGE),
        ("mara boss 4", Rejection.INCONSISTENT),
        ("mara town pet 4", Rejection.INCONSISTENT),
        ("mara" + " town" * 7 + " 4", Rejection.OUT_OF_RANGE),  # range before sense
        ("mara town pet 1000", Rejection.OUT_OF_RANGE),
        ("mara" + " boss" * 7 + " car 4", Rejection.UNPARSEABLE),  # spelling before range
    ],
)
def test_each_flaw_of_a_program_has_its_reason(text: str, reason: Rejection) -> None:
    (rejected,) = TRAILS.parse(text)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason
    assert rejected.detail and len(rejected.detail) < 120


@settings(suppress_health_check=[HealthCheck.too_slow])  # all of Unicode is read for it
@given(
    st.text(max_size=80)
    | st.lists(st.sampled_from([*PEOPLE[:2], *FIELDS, "4", "x"]), max_size=9).map(" ".join)
    | st.text('<tool_call>{"name": look/', max_size=60)
)
def test_no_text_makes_the_parser_the_tool_or_the_judge_raise(text: str) -> None:
    (parsed,) = TRAILS.parse(text)
    assert isinstance(parsed, TaskDraft | Rejected)
    task = _task("mara town 417")
    assert 0 <= answer_verdict(task, TRAILS, text).reward <= 1
    for called in (text, f"<tool_call>{text}</tool_call>", _look(card=text, field=text)):
        try:
            TRAILS.episode(task, 0).step(called)
        except DomainError as error:
            assert len(str(error)) < 200


class TestTrails(DomainContract):
    """The contract."""

    examples = 100
    prompts_are_apart = False  # a request does not say the index of its cards
    protocols = (SeedData, ConstrainsEnv, SimulatedTools)

    @pytest.fixture
    def domain(self) -> TrailsDomain:
        return LONG


@pytest.mark.slow
def test_base_and_heldout_tasks_follow_the_shares() -> None:
    base, heldout = TRAILS.base_tasks(3, 256), TRAILS.heldout_tasks(3, 720)
    assert Counter(task.family for task in heldout) == {f"k{k}": 120 for k in range(1, 7)}
    families = Counter(task.family for task in base)
    assert families["k1"] > families["k3"] > families["k6"] > 0
    assert heldout[:6] != sorted(heldout[:6], key=lambda task: task.difficulty)


@settings(max_examples=5)
@given(seeds, seeds)
def test_heldout_never_meets_base_or_seed_data(left: int, right: int) -> None:
    short = TrailsDomain(TrailsOptions(max_looks=1))
    heldout = {task.fingerprint for task in short.heldout_tasks(left, 200)}
    assert heldout.isdisjoint(task.fingerprint for task in short.base_tasks(right, 300))
    with pytest.MonkeyPatch.context() as patch:
        begun = _given_to("one_turn", patch)
        short.agent_examples(right, 300)
        asked = short.env_examples(right, 300, 1.0)
    shown = [draft.program for draft in begun]
    for prompt, answer in asked:
        if base := re.search("base: (.*) ; new:", prompt[-1]["content"]):
            shown += [base[1], answer]
    assert len(begun) == 300 and len(shown) > 600
    assert not any(map(in_heldout, shown))
    assert heldout.isdisjoint(shown)


def test_when_tasks_are_used_up_the_message_says_what_to_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cards, "MOST_INDEX", 0)  # of one look there are 24 people * 3 fields
    short = TrailsDomain(TrailsOptions(max_looks=1))
    with pytest.raises(ConfigError, match=r"only about \d\d base .* max_looks 1, 73 .*base_tasks"):
        short.base_tasks(0, 73)
    with pytest.raises(ConfigError, match=r"held-out .*data\.validation_tasks or data\.test_tasks"):
        short.heldout_tasks(0, 73)


_PRINTED = """
from genenv_core.domains.trails import TrailsDomain
trails = TrailsDomain()
print(trails.base_tasks(1, 40), trails.heldout_tasks(1, 40), trails.agent_examples(1, 40),
      trails.env_examples(1, 40, 0.5), sep="|")
"""


@pytest.mark.slow
def test_another_process_makes_the_same_tasks_and_cards() -> None:
    def printed(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", _PRINTED]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    assert printed("1") == printed("2")
    assert str(TRAILS.base_tasks(1, 40)) in printed("3")


@pytest.mark.parametrize("max_looks", [1, 2, 3, MOST_LOOKS])
def test_the_grammar_allows_every_program_in_range_and_little_else(max_looks: int) -> None:
    trails = TrailsDomain(TrailsOptions(max_looks=max_looks))
    base = trails.base_tasks(0, 1)[0]
    grammar = trails.env_grammar(Context("c", "t", base, AgentHistory()))
    assert grammar.kind == "regex"
    for draft in [*trails.base_tasks(1, 200), *trails.heldout_tasks(1, 50)]:
        assert re.fullmatch(grammar.text, draft.program)
    links = [" boss"] * (max_looks - 1)
    for index in (0, 7, 10, 999):
        assert re.fullmatch(grammar.text, f"zeno{''.join(links)} pet {index}")
    wrong = ["", "mara 4", "mara town", "mara boss 4", "mary town 4", "mara town 1000"]
    wrong += ["mara town 07", "mara town 4 ", "mara  town 4", "mara town pet 4"]
    wrong.append(f"zeno{''.join(links)} boss pet 4")
    assert not any(re.fullmatch(grammar.text, text) for text in wrong)


def test_an_agent_that_reads_each_answer_succeeds_at_every_task() -> None:
    for task in [*LONG.base_tasks(5, 100), *LONG.heldout_tasks(5, 100)]:
        messages = _play(task, LONG)
        assert LONG.score(task, messages).reward == 1.0
        assert LONG.score(task, messages).success
        assert sum(message["role"] == "assistant" for message in messages) == task.difficulty + 1
        assert calls_made(with_calls(messages), len(messages)) == task.difficulty


@given(trails)
def test_each_answer_of_the_tool_is_news(trail: Trail) -> None:
    """Neither the request nor what the tool said before holds what it says next."""
    known: set[str] = set()
    for message in _play(_task(trail.program, LONG), LONG):
        words = set(re.findall(r"\w+", message["content"]))
        if message["role"] == "tool":
            assert len(words) == 1 and words.isdisjoint(known)
            known |= words
        elif message["role"] == "user":
            known |= words


@mutation(
    "a request gives its cards away", CARDS,
    'seed_from("trails", "cards", trail.program)', 'seed_from("trails", "cards", trail.request)',
)  # fmt: skip
def test_the_same_request_has_other_answers_in_other_indexes() -> None:
    answers = Counter(_task(f"mara boss town {index}").ground_truth for index in range(1000))
    assert len(answers) > 200  # of 23 others in 10 towns
    assert max(answers.values()) < 20


def test_an_agent_that_guesses_fails() -> None:
    tasks = [task for task in TRAILS.heldout_tasks(6, 600) if task.difficulty > 1]
    for guess in ("riga", "baker", "cat"):
        said = [TRAILS.score(task, [_say(guess)]).success for task in tasks]
        assert sum(said) < 0.06 * len(said)  # a tenth of those that ask for such a thing
    skips = 0
    for task in tasks:
        field = task.spec["asked"]["field"]
        seen = TRAILS.episode(task, 0).step(render_look(task.program.split()[0], field)).messages
        skips += TRAILS.score(task, [_say(seen[0]["content"])]).success
    assert skips < 0.15 * len(tasks)  # the things of the first card are not those of the last


@pytest.mark.parametrize(
    "call",
    [
        "<tool_call>",
        "<tool_call>look mara town</tool_call>",
        "<tool_call>[1]</tool_call>",
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"name": "look"}</tool_call>',
        '<tool_call>{"name": "look", "arguments": ["mara", "town"]}</tool_call>',
        _look("read", card="mara", field="town"),
        _look(card="mara"),
        _look(field="town"),
        _look(card=3, field="town"),
        _look(card="mara", field="TOWN"),
        _look(card="mara", field="car"),
        _look(card="mara", field=["town"]),
        _look(card="mara", field="town") * 2,
        _look(card="mara", field="town") + "<tool_call>",
        _look(card="mara", field="town")[:-3],
    ],
)
def test_a_bad_call_is_an_error_and_changes_nothing(call: str) -> None:
    task = _task("mara boss town 417")
    episode, boss = TRAILS.episode(task, 0), task.spec["cards"]["mara"]["boss"]
    for _ in range(2):
        with pytest.raises(DomainError) as raised:
            episode.step(call)
        assert len(str(raised.value)) < 200
        with pytest.raises(DomainError):
            TRAILS.tool_messages(task, [_say(call)])
        assert episode.step(_look(card="mara", field="boss")).messages[0]["content"] == boss
    assert not answer_verdict(task, TRAILS, call + task.ground_truth).success


@pytest.mark.parametrize(
    "call",
    [
        _look(card=" Mara ", field="boss"),
        _look(card="mara", field="boss", note="x"),
        f"I read on. {_look(card='mara', field='boss')} Well?",
        '<tool_call>\n{"arguments":{"field":"boss","card":"mara"},"name":"look"}\n</tool_call>',
    ],
)
def test_spelling_of_a_call_does_not_count(call: str) -> None:
    assert read_look(call) == ("mara", "boss")


def test_nobody_else_has_a_card() -> None:
    task = _task("mara boss town 417")
    episode, held = TRAILS.episode(task, 0), task.spec["cards"]
    for person in [*PEOPLE, "mary", ""]:
        for field in FIELDS:
            (seen,) = episode.step(render_look(person, field)).messages
            assert seen == {
                "role": "tool",
                "name": TOOL,
                "content": held[person][field] if person in held else NO_CARD,
            }


def _verdict(said: str) -> tuple[float, bool, str]:
    """Return the verdict on an answer; in capitals: {WHO}, {TOWN} and {ELSE}, another town."""
    task = _task("mara boss town 417")
    asked = task.spec["asked"]
    other = next(town for town in THINGS["town"] if town != asked["value"])
    text = said.format(WHO=asked["person"], TOWN=asked["value"], ELSE=other)
    verdict = answer_verdict(task, TRAILS, text)
    assert bool(verdict.failure) != verdict.success
    return round(verdict.reward, 2), verdict.success, verdict.failure


@pytest.mark.parametrize(
    ("said", "reward"),
    [
        ("the town of {WHO} is {TOWN}", 1.0),
        (" The town of {WHO} is {TOWN}!\n", 1.0),
        ("{TOWN}", 1.0),
        ("{TOWN}.", 1.0),
        ("{WHO}: {TOWN}", 1.0),
        ("the town of {WHO} is indeed {TOWN}", 0.91),
        ("town of {WHO}: {TOWN}", 0.89),
    ],
)
def test_right_answers_may_be_worded_otherwise(said: str, reward: float) -> None:
    assert _verdict(said) == (reward, True, "")


@mutation(
    "a similar answer may leave its value out", DOMAIN,
    "if OPEN in said or not named:", "if OPEN in said:",
)  # fmt: skip
@mutation(
    "a similar answer may name two values", DOMAIN, "if len(named) > 1:", "if len(named) > 2:"
)
@pytest.mark.parametrize(
    ("said", "reward", "failure"),
    [
        ("", 0.0, "no_answer"),
        ("...", 0.0, "no_answer"),
        ("the town of {WHO} is {TOWN}<tool_call>", 0.0, "no_answer"),
        ("the town of {WHO} is {ELSE}", 0.8, "wrong_value"),
        ("the town of mara is {ELSE}", 0.6, "wrong_value"),
        ("{ELSE}", 0.0, "wrong_value"),
        ("the town of mara is {TOWN}", 0.8, "wrong_words"),
        ("the pet of {WHO} is {TOWN}", 0.8, "wrong_words"),
        ("it is well known that the town of {WHO} is {TOWN}", 0.67, "wrong_words"),
        # Similar enough, but for the value: it is left out, or one of two.
        ("the town of {WHO} is", 0.0, "no_answer"),
        ("{WHO} town is", 0.0, "no_answer"),
        ("the town of {WHO} is {TOWN} {ELSE}", 0.0, "several_answers"),
        ("no card", 0.0, "no_answer"),
    ],
)
def test_each_flaw_of_an_answer_has_its_name_and_its_reward(
    said: str, reward: float, failure: str
) -> None:
    assert _verdict(said) == (reward, False, failure)


def test_an_attempt_that_ends_with_the_tool_has_no_answer() -> None:
    task = _task("mara town 417")
    messages = _play(task)
    assert messages[-2]["role"] == "tool"
    assert messages[-2]["content"] == task.spec["asked"]["value"]
    verdict = TRAILS.score(task, messages[:-1])
    assert (verdict.reward, verdict.success, verdict.failure) == (0.0, False, "no_answer")


@given(trails, trails)
def test_a_wrong_answer_earns_less_and_by_the_words_it_shares(left: Trail, right: Trail) -> None:
    task, other = _task(left.program, LONG), _task(right.program, LONG)
    verdict = answer_verdict(task, LONG, other.ground_truth)
    assert verdict.success is (task.ground_truth == other.ground_truth)
    assert verdict.success or verdict.reward < 1
    if left.fields[-1] == right.fields[-1]:
        assert verdict.reward >= token_f1(other.ground_truth, task.ground_truth) >= 0.4
    else:
        assert verdict.reward == 0


def test_score_refuses_a_spec_of_another_domain() -> None:
    alien = dataclasses.replace(_task("mara town 417"), spec={"answer": 3})
    with pytest.raises(DomainError, match="not made by this domain"):
        TRAILS.score(alien, [_say("riga")])
    with pytest.raises(DomainError, match="not made by this domain"):
        TRAILS.episode(alien, 0)


def test_more_than_one_wording_is_right_so_none_is_the_reference() -> None:
    assert not isinstance(TRAILS, WritesAnswers)


@pytest.mark.parametrize("trails", [TRAILS, EXPLAINED], ids=["bare", "explained"])
def test_pi_env_is_shown_the_card_that_was_asked_for(trails: TrailsDomain) -> None:
    assert isinstance(trails, SimulatedTools)
    task = _task("mara boss town 417", trails)
    held = task.spec["cards"]
    for person in (*held, next(name for name in PEOPLE if name not in held)):
        call = _say(render_look(person, "pet"))
        asked = trails.tool_messages(task, [*trails.agent_messages(task), call])
        told = ", ".join(f"{field} {value}" for field, value in held.get(person, {}).items())
        assert asked is not None
        assert asked[-1] == {
            "role": "user",
            "content": f"card of {person}: {told or NO_CARD} ; read pet ; answer:",
        }
        assert len(asked) == 1 + trails.options.explain
    assert trails.tool_messages(task, [_say("the pet is a cat")]) is None


def _given_to(method: str, patch: pytest.MonkeyPatch) -> list[TaskDraft]:
    """Return a list to which each call of a method of trails adds its task."""
    given: list[TaskDraft] = []
    played = getattr(TrailsDomain, method)

    def spied(self: TrailsDomain, draft: TaskDraft, rng: random.Random) -> Any:
        given.append(draft)
        return played(self, draft, rng)

    patch.setattr(TrailsDomain, method, spied)
    return given


@mutation(
    "pi_env learns to deny a card that there is", DOMAIN,
    "[name for name in PEOPLE if name not in cards]", "PEOPLE",
)  # fmt: skip
def test_pi_env_learns_to_say_what_the_tool_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed examples of the tool's part agree with the episode, whoever is asked for."""
    drawn = _given_to("_tool_example", monkeypatch)
    examples = TRAILS.env_examples(2, 600, 0.5)
    monkeypatch.undo()
    schema = checked(TRAILS.observation_schema)
    asked = [(found, answer) for prompt, answer in examples
             if (found := re.fullmatch(r"card of (\w+): (.*) ; read (\w+) ; answer:",
                                       prompt[-1]["content"]))]  # fmt: skip
    assert 100 < len(asked) == len(drawn) < 200
    contents: Counter[bool] = Counter()
    for (found, answer), task in zip(asked, drawn, strict=True):
        call = render_look(found[1], found[3])
        (said,) = TRAILS.episode(task, 0).step(call).messages
        assert json.loads(answer) == {"content": said["content"]}
        assert misfit(json.loads(answer), schema) == ""
        assert TRAILS.tool_messages(task, [_say(call)]) == [{"role": "user", "content": found[0]}]
        contents[said["content"] == NO_CARD] += 1
    assert min(contents[False], contents[True]) > 20


@mutation(
    "the option steep of trails does nothing", DOMAIN,
    "self.steep = self.options.steep", "self.steep = False",
)  # fmt: skip
def test_steep_trails_begin_with_the_shortest_fifth_and_an_agent_of_all_lengths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steep = TrailsDomain(TrailsOptions(steep=True, max_looks=MOST_LOOKS))

    def short(programs: list[str]) -> float:
        return sum(_task(program, steep).difficulty <= 2 for program in programs) / len(programs)

    # .96 of the shortest fifth, and two of the ten equal parts of the rest.
    base = [draft.program for draft in steep.base_tasks(0, 300)]
    assert short(base) == pytest.approx(0.968, abs=0.03)
    written = [text for _, text in steep.env_examples(1, 1200, 1.0) if "content" not in text]
    assert short(written) == pytest.approx(0.968, abs=0.02)
    assert max(_task(text, steep).difficulty for text in written) > 5
    drawn = _given_to("one_turn", monkeypatch)
    steep.agent_examples(1, 1000)
    looks = Counter(draft.difficulty for draft in drawn)
    assert sorted(looks) == list(range(1, MOST_LOOKS + 1)) and min(looks.values()) > 60
    tests = Counter(draft.difficulty for draft in steep.heldout_tasks(0, 100))
    assert tests == dict.fromkeys(range(1, MOST_LOOKS + 1), 10)


@pytest.mark.parametrize("trails", [TRAILS, EXPLAINED], ids=["bare", "explained"])
def test_seed_turns_are_those_of_a_right_attempt(
    trails: TrailsDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = _given_to("one_turn", monkeypatch)
    examples = trails.agent_examples(1, 200)
    monkeypatch.undo()
    turns: Counter[str] = Counter()
    for task, (prompt, answer) in zip(drawn, examples, strict=True):
        whole = _play(task, trails)
        assert whole[: len(prompt) + 1] == [*prompt, _say(answer)]
        turns["call" if "<tool_call>" in answer else "answer"] += 1
        turns["first"] += prompt[-1]["role"] == "user"
    assert min(turns.values()) > 40


def test_the_agents_rules_show_a_right_attempt_that_answers_no_task() -> None:
    task = _task("mara town 417", EXPLAINED)
    rules, request = EXPLAINED.agent_messages(task)
    assert rules["role"] == "system" and request["content"] == task.prompt
    assert all(f" {field}" in rules["content"] for field in (TOOL, *FIELDS))
    _, asked, _, *turns, said = rules["content"].splitlines()
    held: dict[str, dict[str, str]] = {}
    for turn in turns:
        person, field = read_look(turn)
        held.setdefault(person, {})[field] = turn.partition("</tool_call> [")[2].removesuffix("]")
    found = re.fullmatch(r"the (\w+) of (\w+) is (\w+)", said)
    assert found
    person, field, value = found.group(2, 1, 3)
    spec = {"cards": held, "asked": {"person": person, "field": field, "value": value}}
    shown = dataclasses.replace(task, prompt=asked, spec=spec)
    attempt = _play(shown, EXPLAINED)
    spoken = [message["content"] for message in attempt if message["role"] == "assistant"]
    assert spoken == [*(turn.partition(" [")[0] for turn in turns), said]
    # No card holds what the example shows, so copying it is never right.
    assert not {person, *held} & set(PEOPLE) and value not in THINGS[field]


def test_the_tools_rules_show_an_answer_that_no_card_holds() -> None:
    asked = EXPLAINED.tool_messages(_task("mara town 417"), [_say(render_look("mara", "town"))])
    assert asked is not None and asked[0]["role"] == "system"
    shown = re.search(r"\{.*?\}", asked[0]["content"])
    assert shown and misfit(json.loads(shown[0]), checked(EXPLAINED.observation_schema)) == ""
    values = {*PEOPLE, *(value for values in THINGS.values() for value in values), NO_CARD}
    assert json.loads(shown[0])["content"] not in values
    assert f'"{NO_CARD}"' in asked[0]["content"]


@pytest.mark.parametrize("max_looks", range(1, MOST_LOOKS + 1))
def test_the_simulators_rules_show_programs_that_are_tasks(max_looks: int) -> None:
    trails = TrailsDomain(TrailsOptions(explain=True, max_looks=max_looks))
    base = trails.base_tasks(0, 1)[0]
    rules, asked = trails.env_messages(Context("c", "t", base, AgentHistory(success_rate=0.9)))
    named = (f"1 to {max_looks} fields", "0 to 999", *FIELDS, *PEOPLE)
    assert all(name in rules["content"] for name in named)
    question, answer = rules["content"].splitlines()[-2:]
    shown = re.search("base: (.*) ; new:", question)
    assert shown and question.replace(shown[1], base.program) == asked["content"]
    assert not in_heldout(shown[1]) and not in_heldout(answer)
    for program in (shown[1], answer):
        task = _task(program, trails)
        assert flaws(task, trails) == []


def test_the_documentation_shows_a_whole_attempt_and_the_options() -> None:
    text = (Path(__file__).parents[3] / "docs/domain.md").read_text("utf-8")
    page = text.partition("## The domain trails")[2].partition("\n## ")[0]
    task = _task("mara boss friend town 417")
    for message in _play(task):
        assert f"\n[{message['role']}] {message['content']}\n" in page
    assert f"`{task.program}`" in page
    for name, field in TrailsOptions.model_fields.items():
        assert f"| `{name}` | {json.dumps(field.default)} |" in page


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"max_look": 3},
            r"options\.max_look is no option \(options of trails: max_looks, steep, history",
        ),
        ({"max_looks": 0}, r"domain\.options\.max_looks: .*got 0"),
        ({"max_looks": 11}, r"domain\.options\.max_looks: .*got 11"),
        ({"explain": "often"}, r"domain\.options\.explain: .*got 'often'"),
        ({"dialogue": True}, r"domain\.options\.dialogue is no option"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        registry.get_domain("trails", options)
