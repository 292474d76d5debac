"""Plays the attempt in which the agent says the reference answer, and computes its probability.

Where a domain writes answers, a policy's expected success needs no sampling: one forward pass over
this attempt gives the probability that the policy, sampled, says exactly this. It is a lower bound
of the expected success, because a domain may accept other spellings, and because other tokens may
spell the same text. Where the conversation begins anew, the pass is over each of its sequences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from genenv_core.domains.protocol import Domain, WritesAnswers
from genenv_core.domains.steps import EPISODE_TURN, FAILURES, error_line, stepped
from genenv_core.engines.protocol import ScoresTokens, TokenSequence
from genenv_core.errors import DomainError
from genenv_core.play.asked import judged
from genenv_core.play.attempt import Attempt, Play, open_group
from genenv_core.types import Completion, FinishReason, TaskDraft


def answer_probabilities(tasks: Sequence[tuple[str, TaskDraft]], play: Play) -> list[float] | None:
    """Return the probability of each task's reference answer; None where nobody can know it.

    Nobody can with a domain that is no `WritesAnswers`, or with an engine that is no
    `ScoresTokens`. Turns have the settings of `play`, and the domain's tools run. An answer that
    does not fit into the bounds has probability 0. Raises DomainError for an answer that the domain
    does not accept.
    """
    domain, engine = play.domain, play.engine
    if not isinstance(domain, WritesAnswers) or not isinstance(engine, ScoresTokens):
        return None
    fitting = reference_attempts(tasks, play, domain)
    placed = [(index, one) for index, made in fitting.items() for one in made.sequences]
    scored = engine.logprobs(
        [TokenSequence(one.prompt_ids, one.token_ids) for _, one in placed], play.params
    )
    said: dict[int, list[float]] = {index: [] for index in fitting}
    for (index, one), logprobs in zip(placed, scored, strict=True):
        said[index] += [p for p, mask in zip(logprobs, one.loss_mask, strict=True) if mask]
    return [math.exp(math.fsum(said[i])) if i in said else 0.0 for i in range(len(tasks))]


def reference_attempts(
    tasks: Sequence[tuple[str, TaskDraft]], play: Play, domain: WritesAnswers
) -> dict[int, Attempt]:
    """Return the attempts that say the reference answers, by the place of their task.

    A task whose answer does not fit into the bounds has none. `play.domain` is `domain`; its engine
    computes nothing. Raises DomainError as `answer_probabilities` does.
    """
    single = replace(play, bounds=replace(play.bounds, n=1))
    made = ((i, _answered(name, draft, single, domain)) for i, (name, draft) in enumerate(tasks))
    return {index: attempt for index, attempt in made if attempt is not None}


def _answered(task_id: str, draft: TaskDraft, play: Play, domain: WritesAnswers) -> Attempt | None:
    """Return the attempt that says the reference answer; None when it does not fit."""
    (attempt,) = open_group(task_id, draft, play)
    try:
        turns = domain.answer_turns(draft)
        episode = play.domain.episode(draft, play.seed_of(task_id, 0, EPISODE_TURN))
    except FAILURES as error:
        raise _refused(play.domain, task_id, error_line(error)) from error
    for text in turns:
        ids = play.chat.completion(text)
        if attempt.finish is None and len(ids) > play.params.max_tokens:
            attempt.end(FinishReason.LENGTH)
        if attempt.finish is not None:
            break
        said = attempt.take(Completion(ids, (0.0,) * len(ids), FinishReason.STOP), play.chat)
        assert said is not None
        attempt.observe(stepped(episode.step, said), play.chat, play.bounds)
    if attempt.finish is FinishReason.LENGTH or not attempt.turns:
        return None
    if attempt.finish is not FinishReason.STOP:
        raise _refused(play.domain, task_id, attempt.error or "the episode goes on after it")
    verdict = judged(play.domain, draft, attempt.messages)
    if not verdict.success:
        raise _refused(play.domain, task_id, verdict.failure)
    return attempt


def _refused(domain: Domain, task_id: str, why: str) -> DomainError:
    return DomainError(
        f"domain {domain.name}: its answer_turns are not the answer to task {task_id}: {why}"
    )
