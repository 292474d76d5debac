"""Attempts whose conversation begins anew: several sequences, made and told apart.

Invariants: what begins anew is a whole prompt of its own, and the earlier sequence keeps its ids as
they are; the bound of tokens holds for each sequence and that of turns for all; the transcript
marks where it began, and a call before it has no answer in it; what is no prompt is the
environment's failure, in words; a step repeated after a lost episode begins anew as before.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from genenv_core.domains.steps import stepped
from genenv_core.domains.trails.trails_domain import TrailsDomain
from genenv_core.errors import ConfigError
from genenv_core.exchange.environments.refusing import check_givable
from genenv_core.ids import seed_from
from genenv_core.play.attempt import AttemptBounds, Play
from genenv_core.play.calls import with_calls
from genenv_core.play.certificate import certify
from genenv_core.play.chat import ChatFormat
from genenv_core.play.checking.domain_checks import check_shortly
from genenv_core.play.driver import run_episodes
from genenv_core.play.simulator import Simulator
from genenv_core.play.transcript import turns
from genenv_core.types import (
    Completion,
    FinishReason,
    Message,
    Observation,
    Rollout,
    SamplingParams,
    TaskDraft,
    Verdict,
)
from tests.mutations import mutation
from tests.unit.builders_engine import CHATML, tiny_tokenizer
from tests.unit.builders_rollout import EchoDomain, EchoEpisode, ScriptedEngine, flat

ATTEMPT = "genenv_core/play/attempt.py"
STEPS = "genenv_core/domains/steps.py"

END_ID = 1
AGAIN = "abba abba abba abba"
CHAT = ChatFormat(tiny_tokenizer(CHATML), name="tiny")


def asked(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


class ForgetfulEpisode(EchoEpisode):
    """Begins anew after its first step, with what the agent then said."""

    def step(self, action: str) -> Observation:
        seen = super().step(action)
        if len(self.seen) != 1:
            return seen
        return Observation(tuple(asked(AGAIN)), done=False, anew=True)


class ForgetfulDomain(EchoDomain):
    def episode(self, draft: TaskDraft, seed: int) -> EchoEpisode:
        self.episodes.append(ForgetfulEpisode(int(draft.spec["turns"]), seed))
        return self.episodes[-1]


def played(turns_: int = 3, **bounds: int) -> tuple[Rollout, ScriptedEngine]:
    """Return an attempt in which each turn is one token, and the engine that was asked."""
    engine = ScriptedEngine(
        lambda call, _: Completion((20 + call, END_ID), (-0.5, -0.25), FinishReason.STOP)
    )
    limits = AttemptBounds(**{"n": 1, "max_turns": 5, "max_length": 500, **bounds})
    draft = TaskDraft("do it", {"turns": turns_}, "", "do it", "f", 1.0, "do it")
    play = Play(ForgetfulDomain(), engine, CHAT, limits, SamplingParams(30), seed_from)
    (rollout,) = flat(run_episodes([("t", draft)], play))
    return rollout, engine


@mutation(
    "what begins anew is a continuation", ATTEMPT,
    "elif observation.begins_anew:", "elif observation.begins_anew and not self.turns:",
)  # fmt: skip
@mutation("the earlier sequence is lost", ATTEMPT, "self.before.append(self._sequence())", "pass")
@mutation(
    "a sequence has the turn of another one", ATTEMPT,
    "self.turn, self.message = self.turns, len", "self.turn, self.message = 0, len",
)  # fmt: skip
@mutation(
    "a sequence is made from no history", ATTEMPT,
    "parent=len(self.before) - 1 if self.before else None", "parent=None",
)  # fmt: skip
@mutation(
    "what the agent said last did not lead to the new prompt", ATTEMPT,
    "branch_turn=self.turn,", "branch_turn=max(0, self.turn - 1),",
)  # fmt: skip
@mutation("the transcript has no mark", STEPS, 'answered[0]["anew"] = True', "pass")
def test_a_prompt_anew_is_a_sequence_of_its_own() -> None:
    made, engine = played()
    first, again = CHAT.first_prompt(asked("do it")), CHAT.first_prompt(asked(AGAIN))
    between = CHAT.continuation([{"role": "tool", "content": "turn 2: abba"}], (END_ID,))
    assert (made.prompt_ids, made.token_ids, made.logprobs, made.loss_mask) == (
        first, (20, END_ID), (-0.5, -0.25), (1, 1),
    )  # fmt: skip
    (more,) = made.more
    assert (more.turn, more.message, more.prompt_ids) == (1, 2, again)
    assert (more.parent, more.branch_turn) == (0, 1)
    assert more.token_ids == (21, END_ID, *between, 22, END_ID)
    assert more.loss_mask == (1, 1, *[0] * len(between), 1, 1)
    assert more.logprobs == (-0.5, -0.25, *[0.0] * len(between), -0.5, -0.25)
    assert (made.turns, made.finish_reason, made.sampled) == (3, FinishReason.STOP, 6)
    prompts = [request.prompt_ids for batch, _ in engine.calls for request in batch]
    assert prompts == [first, again, (*again, 21, END_ID, *between)]
    seeds = [request.seed for batch, _ in engine.calls for request in batch]
    assert seeds == [seed_from("t", 0, turn) for turn in range(3)]
    assert [place for place, one in enumerate(made.messages) if one.get("anew")] == [2]
    assert [turn.name for turn in turns(made.messages)][2] == "anew"


@mutation(
    "a prompt without room is sampled from", ATTEMPT,
    "if len(prompt) >= bounds.max_length:", "if False:",
)  # fmt: skip
def test_bounds_of_tokens_hold_for_a_sequence_and_those_of_turns_for_all() -> None:
    whole, _ = played()
    longest = max(len(one.prompt_ids) + len(one.token_ids) for one in whole.sequences)
    total = sum(len(one.prompt_ids) + len(one.token_ids) for one in whole.sequences)
    assert longest < total
    assert played(max_length=longest + 1)[0] == whole
    ended, _ = played(max_turns=1)
    assert (ended.turns, ended.more, ended.finish_reason) == (1, (), FinishReason.LENGTH)
    room = len(CHAT.first_prompt(asked(AGAIN)))
    assert room >= len(CHAT.first_prompt(asked("x"))) + 2  # the first turn fits
    draft = TaskDraft("x", {"turns": 3}, "", "x", "f", 1.0, "x")
    engine = ScriptedEngine(lambda *_: Completion((20, END_ID), (-0.5, -0.5), FinishReason.STOP))
    limits = AttemptBounds(n=1, max_turns=5, max_length=room)
    play = Play(ForgetfulDomain(), engine, CHAT, limits, SamplingParams(30), seed_from)
    (short,) = flat(run_episodes([("t", draft)], play))
    assert (short.turns, short.more, short.finish_reason) == (1, (), FinishReason.LENGTH)


@mutation(
    "a turn of nobody may stand in a new prompt", STEPS,
    '- {"system", "user"}', '- {"system", "user", "assistant"}',
)  # fmt: skip
@pytest.mark.parametrize(
    ("observation", "said"),
    [
        (Observation((), done=False, anew=True), "no messages"),
        (Observation(tuple(asked("x")), done=False, failed=True, anew=True), "failed"),
        (
            Observation(({"role": "assistant", "content": "x"},), done=False, anew=True),
            "role 'assistant'",
        ),
        (Observation(({"role": "tool", "content": "x"},), done=False, anew=True), "role 'tool'"),
    ],
)
def test_what_is_no_prompt_is_the_environments_failure(observation: Observation, said: str) -> None:
    seen = stepped(lambda: observation)
    assert seen.failed and not seen.anew
    assert said in seen.messages[0]["content"]


@mutation(
    "a new prompt answers the call before it", "genenv_core/play/calls.py",
    "answers[:end]", "answers",
)  # fmt: skip
def test_a_new_prompt_answers_no_call() -> None:
    call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    messages: list[Message] = [
        *asked("q"),
        {"role": "assistant", "content": call},
        {"role": "user", "content": "again", "anew": True},
    ]
    named = with_calls(messages)
    assert len(named[1].get("tool_calls", ())) == 1
    assert "tool_call_id" not in named[2]


def tasks_of(domain: TrailsDomain) -> list[TaskDraft]:
    return [draft for draft in domain.base_tasks(0, 12) if draft.difficulty >= 3]


def said_of(domain: TrailsDomain, draft: TaskDraft) -> list[Observation]:
    episode = domain.episode(draft, 0)
    return [episode.step(turn.says) for turn in domain.solution(draft)]


@mutation(
    "all looks are shown", "genenv_core/domains/trails/trails_domain.py", "looks[-most:]", "looks",
)  # fmt: skip
def test_trails_shows_the_request_and_the_last_looks() -> None:
    domain = TrailsDomain.from_options({"history": 2})
    draft = tasks_of(domain)[0]
    *looks, last = said_of(domain, draft)
    assert last.done and not last.anew
    assert all(one.anew and not one.done for one in looks)
    shown = [one.messages[0]["content"].split(" ; ") for one in looks]
    assert [len(one) for one in shown[:3]] == [2, 3, 3]
    assert {one[0] for one in shown} == {draft.prompt}
    assert shown[2][1] == shown[1][2] and shown[1][1] == shown[0][1]  # the oldest leaves
    plain = said_of(TrailsDomain(), draft)
    told = [one.messages[0]["content"] for one in plain[:-1]]
    assert [one[-1].split()[-1] for one in shown] == [text.split()[-1] for text in told]
    assert not any(one.anew for one in plain)


def test_trails_with_a_history_is_a_domain_that_checks_accept() -> None:
    domain = TrailsDomain.from_options({"history": 1})
    draft = tasks_of(domain)[0]
    check_shortly(domain, base=12, heldout=6)
    assert all(check.passed for check in certify(draft, domain))
    examples = domain.agent_examples(0, 40)
    assert {len(messages) for messages, _ in examples} == {1}
    assert any(" ; " in messages[0]["content"] for messages, _ in examples)


@mutation(
    "a certificate judges another transcript than training", "genenv_core/play/certificate.py",
    "messages += as_observed(observation)", "messages += observation.messages",
)  # fmt: skip
def test_a_certificate_judges_the_transcript_that_training_stores() -> None:
    marked: list[int] = []

    class Noting(TrailsDomain):
        def score(self, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
            marked.append(sum(bool(one.get("anew")) for one in messages))
            return super().score(draft, messages)

    domain = Noting.from_options({"history": 1})
    draft = tasks_of(domain)[0]
    certify(draft, domain)
    assert max(marked) == len(domain.solution(draft)) - 1


def test_where_one_conversation_is_all_there_is_it_is_refused() -> None:
    domain = TrailsDomain.from_options({"history": 1})
    with pytest.raises(ConfigError, match="begins the conversation anew"):
        Simulator(domain, CHAT, max_length=100)
    with pytest.raises(ConfigError, match="begins the conversation anew"):
        check_givable(domain)
    Simulator(TrailsDomain(), CHAT, max_length=100)
    check_givable(TrailsDomain())
