"""What a given model is taught, and how it is looked at.

Invariants: examples of a file that are kept for the looks are never taught, and all others come
once before any comes again; an answer counts when it is whole and the example's; a text counts when
it holds a task that is no held-out one, and may repeat another; a missed target says what to do.
"""

from __future__ import annotations

from typing import Any

import pytest

from genenv_core.config.sections.curriculum import GenerationConfig
from genenv_core.config.sections.training import LoraConfig, TrainingConfig
from genenv_core.config.sections.warm_start import WarmStartConfig
from genenv_core.domains.protocol import SeedExample
from genenv_core.epoch.trouble import troubles
from genenv_core.epoch.warm_starting import (
    FileLessons,
    OwnLessons,
    lesson_rows,
    reached,
    right_answers,
    short_of,
    valid_texts,
)
from genenv_core.training.updates.warm_start import of_warm_start
from genenv_core.types import Policy
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import Chat, WordsDomain, data, seed_for
from tests.unit.epoch.test_generation import Says

WARM = "genenv_core/epoch/warm_starting.py"


class Characters(Chat):
    """`Chat`, with what pi_agent's turns need beside."""

    def first_prompt(self, messages: Any, tools: Any = ()) -> tuple[int, ...]:
        return super().first_prompt(messages)

    def completion(self, text: str) -> tuple[int, ...]:
        return (*map(ord, text), 0)

    def said(self, token_ids: Any, tools: Any = ()) -> str:
        return self.decode(token_ids)


CHAT: Any = Characters()
ENGINE: Any = Says


def example(text: str) -> SeedExample:
    return [{"role": "user", "content": text}], text.upper()


def lessons(count: int = 8) -> FileLessons:
    agents, envs = ([example(f"{p}{i}") for i in range(count)] for p in "ae")
    return FileLessons({Policy.AGENT: agents, Policy.ENV: envs}, seed=3)


@mutation(
    "what is kept for the looks is taught", WARM,
    "= agents[:held], agents[held:]", "= agents[:held], agents",
)  # fmt: skip
@mutation(
    "the same examples of a file are taught in every round", WARM,
    "return found[first % size :][:count]", "return found[:count]",
)  # fmt: skip
def test_a_file_is_taught_in_turns_but_for_what_is_asked() -> None:
    asked = [answer for _, answer in lessons().asked(0, 64)]
    taught = [
        answer for first in (0, 4, 8) for _, answer in lessons().taught(Policy.AGENT, first, 4)
    ]
    assert len(asked) == 2 and len(taught) == 12
    assert {*taught} | {*asked} == {f"A{i}" for i in range(8)}
    assert len({*taught[:6]}) == len({*taught[6:]}) == 6  # whole turns, in another order
    assert taught[:6] != taught[6:] and not {*taught} & {*asked}
    assert len({a for _, a in lessons().taught(Policy.ENV, 0, 8)}) == 8
    assert len(lessons().asked(1, 1)) == 1


def test_own_examples_are_new_in_every_round() -> None:
    class Makes:
        def agent_examples(self, seed: int, count: int) -> list[SeedExample]:
            return [example(f"a{seed}-{i}") for i in range(count)]

        def env_examples(self, seed: int, count: int, easy_skew: float) -> list[SeedExample]:
            return [example(f"e{seed}-{easy_skew}") for _ in range(count)]

    own = OwnLessons(Makes(), 5, 0.25)
    rounds = [own.taught(Policy.AGENT, first, 2) for first in (0, 2)] + [own.asked(0, 2)]
    assert len({answer for one in rounds for _, answer in one}) == 6
    assert own.taught(Policy.AGENT, 2, 2) == rounds[1]
    assert own.taught(Policy.ENV, 0, 1)[0][1].endswith("-0.25")


def test_rows_are_the_prompt_and_the_answer_with_its_end() -> None:
    rows = lesson_rows(CHAT, [example("ab")], ())
    assert rows.rows() == [("e000000", [97, 98], [65, 66, 0])]


@mutation(
    "an answer that was cut off counts", WARM, "one.finish_reason is FinishReason.STOP\n", "True\n"
)
def test_an_answer_counts_when_it_is_whole_and_the_examples() -> None:
    engine = ENGINE(["A", " B ", "c", "..."])
    asked = [example("a"), example("b"), example("c"), example("...")]
    assert right_answers(engine, CHAT, asked, (), max_tokens=9) == 2
    assert (engine.params.temperature, engine.params.max_tokens) == (0.0, 9)
    assert engine.params.stop_token_ids == (0,)


@mutation(
    "a text of a warm start may be a held-out task", WARM,
    "Intake(domain, data, empty", 'Intake(domain, data.clear(), empty',
)  # fmt: skip
def test_a_text_counts_when_it_holds_a_task_and_may_repeat_another() -> None:
    engine = ENGINE(["new", "new", "bad! new", "bad!", "held", "...", "?", ""])
    domain: Any = WordsDomain()
    settings = GenerationConfig(temperature=0.7, top_p=0.9, max_tokens=9)
    valid = valid_texts(
        engine, CHAT, domain, settings, lambda context: None,
        data=data(["one", "two"], ["held"]), count=8, seed_for=seed_for,
    )  # fmt: skip
    assert valid == 3
    (requests,) = engine.calls
    prompts = {"".join(map(chr, request.prompt_ids)) for request in requests}
    assert prompts == {"one None", "two None"}  # as in epoch 1, without a history
    assert len({request.seed for request in requests}) == 8
    params = engine.params
    assert (params.temperature, params.top_p, params.max_tokens) == (0.7, 0.9, 9)


@mutation(
    "a target that a given model missed is not said", WARM,
    'told["reached"] < told["target"]', 'told["reached"] < 0',
)  # fmt: skip
@pytest.mark.parametrize(("right", "short"), [(5, True), (6, False)])
def test_a_missed_target_says_what_to_do(right: int, short: bool) -> None:
    settings = WarmStartConfig(steps=9, env_target=0.6)
    told = reached(Policy.ENV, settings, {"loss": 0.5}, steps=9, right=right, of=10)
    assert troubles(short_of({"agent": {"steps": 3.0}, "env": told})) == (
        [
            "pi_env: 9 of 9 steps, loss 0.500, 5 of 10 texts are valid tasks: "
            "warm_start.env_target 0.6 not reached: raise warm_start.steps, make the domain easier "
            "(domain.options) or give a larger model"
        ]
        if short
        else []
    )


@mutation(
    "a warm start hands on an adapter", "genenv_core/training/updates/warm_start.py",
    'update={"merge": True}', 'update={"merge": False}',
)  # fmt: skip
def test_adapters_are_merged_because_the_games_begin_without_one() -> None:
    whole = TrainingConfig()
    assert of_warm_start(whole) == whole
    assert of_warm_start(TrainingConfig(lora=LoraConfig(rank=4))).lora.merge
