"""What a domain of levels draws: distinct tasks, held-out ones apart, and its seed data."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from typing import Any

import pytest

from genenv_core.domains.kit.episode import ToolEpisode
from genenv_core.domains.kit.levels import SeededTasks, drawn_turn
from genenv_core.domains.kit.tools import Tools, call
from genenv_core.domains.parts import in_heldout
from genenv_core.domains.protocol import SeedExample, SolutionTurn
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError
from genenv_core.types import AgentHistory, Message, TaskDraft
from tests.mutations import mutation

LEVELS = "genenv_core/domains/kit/levels.py"


def twice(text: str) -> str:
    """Return the text two times."""
    return text * 2


TOOLBOX = Tools(twice)


class Words(SeededTasks):
    """Words of as many letters as the level; an attempt looks one up, and says it."""

    name = "words"

    def highest(self) -> int:
        return 3

    def draw_task(self, rng: random.Random, level: int) -> TaskDraft:
        word = "".join(rng.choices("abcdefgh", k=level))
        return TaskDraft(f"say {word}", {}, word, f"program {word}", f"k{level}", level, word)

    def limited_by(self) -> str:
        return "8 letters"

    def asked_of_env(self, history: AgentHistory, base: TaskDraft) -> list[Message]:
        return [{"role": "user", "content": f"{history.success_rate} {base.program}"}]

    def agent_messages(self, draft: TaskDraft) -> list[Message]:
        return [{"role": "user", "content": draft.prompt}]

    def episode(self, draft: TaskDraft, seed: int) -> ToolEpisode:
        return ToolEpisode(TOOLBOX, None)

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        look = call(twice, text=draft.ground_truth)
        return [SolutionTurn(look), SolutionTurn(draft.ground_truth)]

    def one_turn(self, draft: TaskDraft, rng: random.Random) -> SeedExample:
        return drawn_turn(self, draft, rng)


@mutation(
    "base tasks of a domain of levels are held out",
    LEVELS,
    "by_weight(rng, self.base_weights()), heldout=False",
    "by_weight(rng, self.base_weights()), heldout=True",
)
@mutation(
    "held-out tasks of a domain of levels are open",
    LEVELS,
    "in_turn(), heldout=True",
    "in_turn(), heldout=False",
)
def test_base_tasks_and_held_out_ones_are_distinct_and_apart() -> None:
    domain = Words()
    base = [task.fingerprint for task in domain.base_tasks(3, 150)]
    held = [task.fingerprint for task in domain.heldout_tasks(3, 40)]

    assert len(set(base)) == 150 and not any(map(in_heldout, base))
    assert len(set(held)) == 40 and all(map(in_heldout, held))
    assert base == [task.fingerprint for task in domain.base_tasks(3, 150)]
    assert base != [task.fingerprint for task in domain.base_tasks(4, 150)]


@mutation(
    "held-out tasks of levels stand in the order of their levels",
    LEVELS,
    "heldout=True)\n        rng.shuffle(drafts)",
    "heldout=True)",
)
def test_held_out_tasks_have_levels_in_equal_shares_and_any_order() -> None:
    held = Words().heldout_tasks(0, 6)
    assert Counter(task.difficulty for task in held) == {1: 2, 2: 2, 3: 2}
    assert [task.difficulty for task in held] != [1, 2, 3, 1, 2, 3]


@mutation("too few tasks do not say what bounds them", LEVELS, "bounds=self.limited_by(),\n", "")
@mutation(
    "too few tasks do not say how to get more", LEVELS, "            more=self.more_tasks,\n", ""
)
def test_too_few_tasks_are_an_error_that_says_what_bounds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Words, "more_tasks", "take more letters")
    words = (
        r"words has only about \d+ base tasks with 8 letters, 900 wanted: lower data.base_tasks, "
        "or take more letters"
    )
    with pytest.raises(ConfigError, match=words):
        Words().base_tasks(0, 900)


@mutation(
    "the agent's examples have the levels of base tasks",
    LEVELS,
    "weights = self.example_weights()",
    "weights = self.base_weights()",
)
@mutation(
    "the agent's examples all stop at the first turn",
    LEVELS,
    "for says in turns[:chosen]",
    "for says in turns[:0]",
)
def test_examples_of_the_agent_stop_at_any_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Words, "example_weights", lambda self: [0, 0, 1])
    examples = Words().agent_examples(0, 30)

    assert {len(messages) for messages, _ in examples} == {1, 3}
    for messages, says in examples:
        word = messages[0]["content"].removeprefix("say ")
        assert len(word) == 3
        if len(messages) == 1:
            assert says == call(twice, text=word)
        else:
            assert messages[2]["content"] == word * 2 and says == word


@mutation(
    "pi_env's examples end with a request",
    LEVELS,
    "self.draw_open(rng, weights).program",
    "self.draw_open(rng, weights).prompt",
)
@mutation(
    "pi_env's examples have a base as hard as what it writes",
    LEVELS,
    "self.draw_open(rng, base_weights))",
    "self.draw_open(rng, weights))",
)
def test_examples_of_pi_env_have_a_base_and_another_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Words, "base_weights", lambda self: [1, 0, 0])
    monkeypatch.setattr(Words, "written_weights", lambda self, easy_skew: [0, easy_skew, 1])
    examples = Words().env_examples(0, 40, 2.0)

    rates = {messages[0]["content"].split()[0] for messages, _ in examples}
    assert "None" in rates and len(rates) > 5
    assert {len(messages[0]["content"].split()[-1]) for messages, _ in examples} == {1}
    assert {len(program.removeprefix("program ")) for _, program in examples} == {2, 3}


class SteepWords(Words):
    """Words of up to ten letters, of which base tasks and pi_env begin with one or two."""

    steep = True

    def highest(self) -> int:
        return 10


@mutation(
    "base tasks of a steep domain are mixed", LEVELS,
    "return steep_weights(most) if self.steep else mixed_weights(most)",
    "return mixed_weights(most)",
)  # fmt: skip
@mutation(
    "pi_env of a steep domain begins as any other", LEVELS,
    "return skewed_weights(steep_weights(most), easy_skew)",
    "return env_weights(most, easy_skew)",
)  # fmt: skip
@mutation(
    "the agent of a steep domain knows easy tasks alone", LEVELS,
    "return even_weights(most) if self.steep", "return steep_weights(most) if self.steep",
)  # fmt: skip
@mutation(
    "every domain of levels is steep", LEVELS, "steep: bool = False", "steep: bool = True"
)  # fmt: skip
def test_a_steep_domain_begins_with_the_easiest_fifth_and_an_agent_of_all_levels() -> None:
    """.96 of the easiest fifth, and two of the ten equal parts of the rest: .968 in all."""
    steep = SteepWords()
    base, later = steep.base_weights(), steep.written_weights(0.0)
    assert base == steep.written_weights(1.0)
    assert base[:2] == pytest.approx([0.484] * 2) and base[2:] == pytest.approx([0.004] * 8)
    assert later == steep.example_weights() == pytest.approx([0.1] * 10)
    drawn = Counter(task.difficulty for task in steep.base_tasks(0, 50))
    assert drawn[1] + drawn[2] > 40
    usual = Words()
    assert usual.base_weights() == usual.example_weights() != usual.written_weights(1.0)
    assert usual.base_weights()[2] > 0.1


@pytest.mark.parametrize(
    ("name", "options", "digest"),
    [
        ("desk", {}, "42edc2067e76"),
        ("desk", {"max_calls": 12, "steep": True}, "722156a2d728"),
        ("desk", {"max_calls": 8, "steep": True, "dialogue": True}, "ca3a5164ce3f"),
        ("trails", {}, "8704c36d15e0"),
        ("trails", {"max_looks": 10, "history": 2}, "42afc00200bb"),
        ("trails", {"max_looks": 10, "steep": True}, "600216ea0704"),
        ("arithmetic", {}, "adf1e6eb7ce5"),
    ],
)
def test_what_a_seed_draws_stays_what_it_is(
    name: str, options: dict[str, Any], digest: str
) -> None:
    """Other draws make other runs of the same seed, so no change of code may bring them."""
    domain = get_domain(name, options)
    assert isinstance(domain, SeededTasks)
    tasks = [*domain.base_tasks(7, 60), *domain.heldout_tasks(7, 30)]
    shown = [*domain.agent_examples(7, 60), *domain.env_examples(7, 60, 0.5)]
    told = json.dumps([[(task.prompt, task.program) for task in tasks], shown])
    assert hashlib.sha256(told.encode()).hexdigest()[:12] == digest
