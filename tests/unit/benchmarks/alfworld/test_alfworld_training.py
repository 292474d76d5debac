"""ALFWorld as a domain, with a process that plays made-up games.

Invariants: the items are the games of seen and unseen rooms, never train games; base and held-out
tasks are train games, disjoint whatever the seeds, certified sound, and read back from their
programs; what repeats an item, is held out, is out of range, is broken or is no JSON is rejected
with the right reason; without what plays the games, the domain is refused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from genenv_core.benchmarks.alfworld.training.alfworld_domain import AlfworldDomain
from genenv_core.domains.parts import in_heldout
from genenv_core.domains.protocol import ConstrainsEnv, KnowsSolution, SeedData
from genenv_core.domains.registry import get_domain
from genenv_core.domains.tool_calls import written
from genenv_core.errors import ConfigError
from genenv_core.play.certificate import answer_verdict
from genenv_core.types import AgentHistory, Context, Message, Rejected, Rejection, TaskDraft
from tests.unit.benchmarks.alfworld.household import LIGHT, PROCESS, SIMPLE, WALK, write_game
from tests.unit.domains.domain_contract import DomainContract

TRAIN = 40


def world(number: int) -> dict[str, Any]:
    """Return what makes a made-up game a game of its own."""
    return {
        "walkthrough": [f"go to desk {number}", *(f"take mug {n} from desk {number}"
                        for n in range(number % 6)), f"move mug {number} to shelf 2"],
        "grammar": f'"rhs": "Your task is to: put some mug on shelf {number}."',
        "pddl_problem": f"(define (problem x) (:objects desk{number}))",
    }  # fmt: skip


def interpreter(folder: Path) -> str:
    """Write what stands for the Python of the games, and return its path."""
    (folder / "process.py").write_text(PROCESS)
    script = folder / "python"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {folder / 'process.py'}\n")
    script.chmod(0o755)
    return str(script)


def domain_of(data: Path) -> Iterator[AlfworldDomain]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GENENV_ALFWORLD_PYTHON", interpreter(data.parent))
        domain = get_domain("alfworld", {"data": str(data)})
        assert isinstance(domain, AlfworldDomain)
        yield domain
        domain._games.pool.close()


@pytest.fixture
def spoilt(tmp_path: Path) -> Iterator[AlfworldDomain]:
    for name, more in (("lost", {"broken": True}), ("odd", {"walkthrough": [1]})):
        write_game(tmp_path / "data", f"train/{name}/trial", **world(7) | more)
    yield from domain_of(tmp_path / "data")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AlfworldDomain]:
    folder = tmp_path_factory.mktemp("alfworld")
    data = folder / "data"
    for number in range(TRAIN):
        kind = LIGHT if number % 2 else SIMPLE
        write_game(data, f"train/kind-{number}/trial", kind, **world(number))
    write_game(data, "train/twin/trial", **world(100) | {"walkthrough": ["look", *WALK]})
    write_game(data, "train/same/trial", **world(101) | {"walkthrough": ["look", *WALK]})
    write_game(data, "train/early/trial", **world(104) | {"walkthrough": []})
    write_game(data, "valid_seen/a/trial", **world(100) | {"walkthrough": WALK})
    write_game(data, "valid_unseen/b/trial", LIGHT, **world(201))
    yield from domain_of(data)


def chosen(game: Any, done: Any = 0, **more: Any) -> str:
    return json.dumps({"game": game, "done": done, **more})


def played(domain: AlfworldDomain, draft: TaskDraft, commands: list[str]) -> list[Message]:
    messages, episode = domain.agent_messages(draft), domain.episode(draft, 0)
    for command in commands:
        says = written({"name": "act", "arguments": {"command": command}})
        observation = episode.step(says)
        messages += [{"role": "assistant", "content": says}, *observation.messages]
        if observation.done:
            break
    return messages


def test_items_are_the_games_to_evaluate_on(made: AlfworldDomain) -> None:
    seen, unseen = made.items()
    assert (seen.family, unseen.family) == ("seen", "unseen")
    assert seen.spec == {"item": "valid_seen/a/trial/game.tw-pddl"} and not seen.ground_truth
    assert seen.prompt == "Your task is to: put some mug on shelf 100."
    assert made.tools_of(seen)[0]["function"]["name"] == "act"
    messages = played(made, seen, WALK)
    assert made.verdict(seen, messages).valid and made.score(seen, messages).success
    assert not made.score(seen, messages[:-2]).success
    assert made.protocol() == {"admissible": False}


def test_a_command_may_fail_and_the_attempt_goes_on(made: AlfworldDomain) -> None:
    messages = played(made, made.items()[0], ["dance", WALK[0], *WALK[1:]])
    assert [m["content"] for m in messages if m["role"] == "tool"] == [
        "Nothing happens.", "Good.", "Good.", "Good."
    ]  # fmt: skip
    assert len(made.read_calls(messages[2]["content"])) == 1


@pytest.mark.parametrize("opened", ["<think>", ""])  # by the model, by its chat template
def test_calls_that_cannot_be_read_are_answered_last(made: AlfworldDomain, opened: str) -> None:
    right = written({"name": "act", "arguments": {"command": "look"}})
    text = f"{opened}{right}</think> <tool_call>[]</tool_call> {right}"
    first, last = made.read_calls(text)
    assert text[first.start : first.end] == right and first.arguments == {"command": "look"}
    assert last.arguments is None


class TestAlfworld(DomainContract):
    """The contract."""

    heldout = 5
    protocols = (SeedData, ConstrainsEnv, KnowsSolution)
    refuses_heldout = True
    prompts_are_apart = False  # the game says what to do
    alien = (
        {},
        {"game": 1, "before": [], "left": []},
        {"game": "x", "before": [], "left": []},
        {"game": "x", "left": []},
    )
    test_the_grammar_allows_what_is_drawn_and_not_everything = None  # it lists games, see below

    @pytest.fixture
    def domain(self, made: AlfworldDomain) -> AlfworldDomain:
        return made

    def apart(self, draft: TaskDraft) -> str:
        return draft.spec["game"]


def test_base_tasks_begin_where_a_game_begins_or_later(made: AlfworldDomain) -> None:
    drafts = made.base_tasks(0, 60)
    for draft in drafts:
        assert draft.difficulty == len(made.solution(draft)) == len(made.calls_of(draft))
    whole = [draft for draft in drafts if not draft.spec["before"]]
    assert 8 < len(whole) < 40 and {draft.family for draft in drafts} == {SIMPLE, LIGHT}


def test_heldout_tasks_are_whole_games(made: AlfworldDomain) -> None:
    for seed in range(5):
        assert not any(draft.spec["before"] for draft in made.heldout_tasks(seed, 5))


def test_no_base_task_repeats_an_item(made: AlfworldDomain) -> None:
    drafts = made.base_tasks(0, 110)
    assert all(isinstance(made._unless_known(draft), TaskDraft) for draft in drafts)
    copied = made._train.task("twin/trial", 0)
    assert isinstance(made._unless_known(copied), Rejected)
    assert made._train.open.count("twin/trial") == 1
    assert "twin/trial" not in {draft.spec["game"] for draft in drafts}


def test_too_many_tasks_are_refused(made: AlfworldDomain) -> None:
    sides = (
        (made.base_tasks, r"\d+ base tasks, 10000 wanted: lower data\.base_tasks"),
        (made.heldout_tasks, r"\d+ held-out tasks, 10000 wanted: lower data\.validation_tasks or"),
    )
    for draw, said in sides:
        with pytest.raises(ConfigError, match=said + r".*, or download json_2\.1\.1/train"):
            draw(0, 10_000)


def open_game(made: AlfworldDomain, least: int = 3) -> str:
    games = [game for game in made._train.open if game.startswith("kind")]
    return next(game for game in games if made._train.length(game) >= least)


REFUSED: dict[str, tuple[Callable[[str], str], Rejection, str]] = {
    "words": (lambda game: "let us play", Rejection.UNPARSEABLE, "no JSON"),
    "cut": (lambda game: chosen(game)[:-1], Rejection.UNPARSEABLE, "no JSON"),
    "list": (lambda game: f"[{chosen(game)}]", Rejection.UNPARSEABLE, "no JSON object"),
    "dropped": (lambda game: json.dumps({"game": game}), Rejection.UNPARSEABLE, "'done'"),
    "more": (lambda game: chosen(game, why="easy"), Rejection.UNPARSEABLE, "'why'"),
    "text": (lambda game: chosen(game, "1"), Rejection.UNPARSEABLE, "done is no whole number"),
    "bool": (lambda game: chosen(game, True), Rejection.UNPARSEABLE, "done is no whole number"),
    "half": (lambda game: chosen(game, 0.5), Rejection.UNPARSEABLE, "done is no whole number"),
    "null": (lambda game: chosen(None), Rejection.UNPARSEABLE, "game is no text"),
    "below": (lambda game: chosen(game, -1), Rejection.OUT_OF_RANGE, "done is not in 0..2"),
    "above": (lambda game: chosen(game, 3), Rejection.OUT_OF_RANGE, "done is not in 0..2"),
    "huge": (lambda game: chosen(game, 10**300), Rejection.OUT_OF_RANGE, "done is not in"),
    "unknown": (lambda game: chosen("kind-x/trial"), Rejection.OUT_OF_RANGE, "no train game"),
    "odd": (lambda game: chosen("\ud800"), Rejection.UNPARSEABLE, "half of a character"),
    "item": (
        lambda game: chosen("valid_seen/a/trial/game.tw-pddl"), Rejection.CONTAMINATED, "the item"
    ),
    "short item": (lambda game: chosen("valid_seen/a/trial"), Rejection.CONTAMINATED, "the item"),
    "copied": (lambda game: chosen("twin/trial"), Rejection.CONTAMINATED, "house and goal"),
    "same calls": (lambda game: chosen("same/trial", 1), Rejection.CONTAMINATED, "the calls are"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("game", "reason", "detail"),
    [
        ("lost/trial", Rejection.ENGINE_ERROR, "SyntaxError"),
        ("odd/trial", Rejection.INCONSISTENT, "no list of texts"),
    ],
)
def test_a_broken_game_costs_one_generation(
    spoilt: AlfworldDomain, game: str, reason: Rejection, detail: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(
        "genenv_core.benchmarks.alfworld.training.alfworld_domain.in_heldout", lambda game: False
    )
    (found,) = spoilt.parse(chosen(game))
    assert isinstance(found, Rejected) and found.reason is reason and detail in found.detail


@pytest.mark.parametrize(("spoilt", "reason", "detail"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_task_is_rejected(
    made: AlfworldDomain, spoilt: Callable[[str], str], reason: Rejection, detail: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def held(game: str) -> bool:
        return game.startswith("kind") and in_heldout(game)

    monkeypatch.setattr("genenv_core.benchmarks.alfworld.training.alfworld_domain.in_heldout", held)
    game = next(g for g in made._train.open if g.startswith("kind") and made._train.length(g) == 3)
    (found,) = made.parse(spoilt(game))
    assert isinstance(found, Rejected)
    assert found.reason is reason and detail in found.detail, found


def test_a_walkthrough_that_does_not_win_is_rejected(
    made: AlfworldDomain, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = open_game(made)
    walk = made._train.walk(game)
    for wrong in (walk[:-1], [*walk, "look"]):
        monkeypatch.setattr(made._train, "walk", lambda _, wrong=wrong: wrong)
        (found,) = made.parse(chosen(game))
        assert isinstance(found, Rejected) and found.reason is Rejection.REJECTS_GROUND_TRUTH


def test_a_fence_around_the_object_is_taken_off(made: AlfworldDomain) -> None:
    program = chosen(open_game(made), 1)
    (draft,) = made.parse(f"```json\n{program}\n```\n")
    assert isinstance(draft, TaskDraft) and draft.program == program


def test_the_more_is_done_the_less_is_left(made: AlfworldDomain) -> None:
    game = open_game(made)
    walk = made._train.walk(game)
    for done in range(len(walk)):
        (draft,) = made.parse(chosen(game, done))
        assert isinstance(draft, TaskDraft) and draft.difficulty == len(walk) - done
        shown = made.agent_messages(draft)[1]["content"]
        assert [f"> {command}" in shown for command in walk] == [n < done for n in range(len(walk))]
        assert answer_verdict(draft, made, draft.ground_truth).success
        assert played(made, draft, walk[done:])[-1]["content"] == "Good."


def context(base: TaskDraft, name: str = "c1", **rates: tuple[int, int]) -> Context:
    return Context(name, "t1", base, AgentHistory(0.7, rates))


def test_pi_env_is_shown_games_that_it_may_choose(made: AlfworldDomain) -> None:
    base = made.base_tasks(0, 1)[0]
    system, user = made.env_messages(context(base, **{SIMPLE: (3, 8)}))
    lines = user["content"].splitlines()
    assert len(lines) == 10 and lines[-1] == f"success 7/10; base: {base.program} ; new:"
    assert lines[-2] == f"success by kind: {SIMPLE} 3/8"
    assert any(line.startswith(base.spec["game"]) for line in lines[:8])
    assert '"done"' in system["content"]
    assert made.env_messages(context(base)) == made.env_messages(context(base))
    assert made.env_messages(context(base)) != made.env_messages(context(base, "c2"))


def test_the_grammar_allows_what_parse_reads(made: AlfworldDomain) -> None:
    base = made.base_tasks(0, 1)[0]
    grammar = made.env_grammar(context(base))
    schema = json.loads(grammar.text)
    assert grammar.kind == "json"
    check = Draft202012Validator(schema)
    for game in schema["properties"]["game"]["enum"]:
        assert check.is_valid({"game": game, "done": 0})
        (found,) = made.parse(chosen(game))
        assert not isinstance(found, Rejected) or found.reason is not Rejection.UNPARSEABLE
    assert not check.is_valid({"game": "x", "done": 0})


def test_seed_examples_are_right(made: AlfworldDomain) -> None:
    for messages, _ in made.env_examples(0, 30, 1.0):
        assert "twin" not in messages[-1]["content"]
    for messages, text in made.agent_examples(1, 30):
        assert messages[0]["role"] == "system" and text.count("<tool_call>") == 1
    assert len(made.agent_examples(0, 500)) == 500


def test_options_are_read(made: AlfworldDomain, monkeypatch: pytest.MonkeyPatch) -> None:
    data = made.options.data
    listed = AlfworldDomain.from_options({"data": data, "admissible": True, "mode": "strict"})
    item = listed.items()[0]
    assert listed.protocol() == {"admissible": True}
    assert "Commands that can be carried out now" in listed.agent_messages(item)[1]["content"]
    capitals = [command.upper() for command in WALK]
    assert played(listed, item, capitals)[-1]["content"].startswith("Nothing happens.")
    assert not listed.verdict(item, played(listed, item, capitals)).valid
    for options, why in [
        ({"mode": "loose"}, "no such mode; it has official: .*; strict: "),
        ({"games": 1}, "admissible"),
    ]:
        with pytest.raises(ConfigError, match=why):
            AlfworldDomain.from_options({"data": data, **options})
    monkeypatch.setenv("GENENV_ALFWORLD_PYTHON", "/nowhere/python")
    with pytest.raises(ConfigError, match="`make alfworld`"):
        AlfworldDomain.from_options({"data": data})
