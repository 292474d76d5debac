"""Small rows and a domain of words for the tests of the stages' computations.

A task of `WordsDomain` is a word, its answer the same word in capitals. pi_env writes words with
blanks between them, so one generation may hold several tasks; a word with an exclamation mark is
rejected. `Chat` makes a token id of each character.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from genenv_core.epoch.rows import data_tasks, draft_columns
from genenv_core.types import (
    Context,
    FinishReason,
    Message,
    Rejected,
    Rejection,
    Rollout,
    Task,
    TaskDraft,
    TaskSource,
    Verdict,
)


def draft(word: str) -> TaskDraft:
    """Return the draft of a word; its family is its length."""
    return TaskDraft(f"say {word}", {}, word.upper(), word, f"k{len(word)}", len(word), word)


class WordsDomain:
    """A domain of words that the agent must repeat in capitals."""

    name, version, tools = "words", "1", ()

    def env_messages(self, context: Context) -> list[Message]:
        """Return a prompt that names the base task and the agent's success rate."""
        rate = context.history.success_rate
        return [{"role": "user", "content": f"{context.base.program} {rate}"}]

    def parse(self, text: str) -> list[TaskDraft | Rejected]:
        """Return a task for each word."""
        return [
            Rejected(Rejection.UNPARSEABLE, word) if "!" in word else draft(word)
            for word in text.split() or ["!"]
        ]

    def agent_messages(self, task: TaskDraft) -> list[Message]:
        """Return the prompt."""
        return [{"role": "user", "content": task.prompt}]

    def score(self, task: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return reward 1 for the answer, 0.25 for other text, 0 for no text."""
        said = messages[-1]["content"]
        if said == task.ground_truth:
            return Verdict(1.0, True)
        return Verdict(0.25 if said else 0.0, False, "wrong")

    def trivial_answers(self, task: TaskDraft) -> list[str]:
        """Return the empty answer."""
        return [""]


class Chat:
    """A chat format in which a token is a character."""

    stop_token_ids = (0,)

    def first_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the characters of the messages, each in a line."""
        return tuple(map(ord, "\n".join(message["content"] for message in messages)))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the characters."""
        return "".join(map(chr, token_ids))


def seed_for(*parts: str | int) -> int:
    """Return a seed from which `seed_parts` gets the arguments back."""
    return int.from_bytes("/".join(map(str, parts)).encode(), "big")


def seed_parts(seed: int) -> str:
    """Return the arguments of `seed_for`, separated by slashes."""
    return seed.to_bytes((seed.bit_length() + 7) // 8, "big").decode()


def data(
    base: Sequence[str] = (), test: Sequence[str] = (), validation: Sequence[str] = ()
) -> pl.DataFrame:
    """Return the tasks of a bootstrap; their ids are t0, t1 ... over all sources."""
    words = {TaskSource.BASE: base, TaskSource.TEST: test, TaskSource.VALIDATION: validation}
    drafts = {source: [draft(word) for word in of_it] for source, of_it in words.items()}
    rows = data_tasks(drafts, "0" * 8)
    return rows.with_columns(task_id=pl.format("t{}", "generation_index"))


def generated(
    task_id: str, word: str = "", *, generation: str = "", rejection: str | None = None, **more: Any
) -> dict[str, Any]:
    """Return the row of a task that pi_env wrote and that was attempted, if it is valid."""
    return {
        "task_id": task_id,
        "epoch": 2,
        "source": "generated",
        "generation_id": generation or f"n-{task_id}",
        "generation_index": 0,
        "context_id": "c0",
        "base_task_id": "b0",
        "env_policy_version": 1,
        "valid": rejection is None,
        "rejection": rejection,
        "rejection_detail": "",
        "choice": "random" if rejection is None else None,
        "env_prompt_tokens": 1,
        "generation_tokens": 1,
        **draft_columns(draft(word or task_id)),
        **more,
    }


def task(task_id: str, source: TaskSource = TaskSource.GENERATED, context: str = "") -> Task:
    """Return a task whose word is its id."""
    return Task(task_id, source, draft(task_id), context)


def trace(group: str, sample: int, task_id: str, **more: Any) -> dict[str, Any]:
    """Return a row of `traces`."""
    return {
        "trace_id": f"{group}.{sample}",
        "epoch": 2,
        "task_id": task_id,
        "group_id": group,
        "sample_index": sample,
        "policy_version": 1,
        "turns": 1,
        "prompt_tokens": 3,
        "response_tokens": 5,
        "tool_calls": 0,
        "finish_reason": "stop",
        "error": "",
        **more,
    }


def rollout(task_id: str, sample: int, said: str, **more: Any) -> Rollout:
    """Return a rollout of one turn with this message of the agent."""
    ids = tuple(map(ord, said))
    return Rollout(
        **{
            "task_id": task_id,
            "sample_index": sample,
            "prompt_ids": (1, 2, 3),
            "token_ids": ids,
            "logprobs": (-0.5,) * len(ids),
            "loss_mask": (1,) * len(ids),
            "messages": ({"role": "assistant", "content": said},),
            "turns": 1,
            "finish_reason": FinishReason.STOP,
            **more,
        }
    )


@dataclass
class Player:
    """A pi_agent whose first `right[word]` attempts at a task succeed."""

    right: dict[str, int]
    order: list[int] | None = None
    probable: dict[str, float] | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    seeds: list[str] = field(default_factory=list)

    def groups(
        self, batches: Sequence[Sequence[tuple[str, TaskDraft]]], **how: Any
    ) -> Iterator[tuple[int, list[Rollout]]]:
        """Yield groups of one-turn rollouts, in `order` or else in task order."""
        seed_of = how.pop("seed_of")
        asked = [pair for batch in batches for pair in batch]
        self.calls.append({"batches": [[name for name, _ in b] for b in batches], **how})
        for index in self.order or range(len(asked)):
            task_id, wanted = asked[index]
            seeds = [seed_of(task_id, sample, 0) for sample in range(how["n"])]
            self.seeds += [seed_parts(seed) for seed in seeds]
            right = self.right.get(wanted.program, 0)
            yield (
                index,
                [
                    rollout(task_id, i, wanted.ground_truth if i < right else "no")
                    for i in range(how["n"])
                ],
            )

    def answer_probabilities(
        self, tasks: Sequence[tuple[str, TaskDraft]], **how: Any
    ) -> list[float] | None:
        """Return `probable[word]` of each task."""
        if self.probable is None:
            return None
        return [self.probable[wanted.program] for _, wanted in tasks]


def group(name: str, k: int, source: str = "generated", n: int = 4, **more: Any) -> dict[str, Any]:
    """Return the row of `task_scores` of a task with k successes of n."""
    return {
        "group_id": f"g-{name}",
        "task_id": name,
        "source": source,
        "n": n,
        "successes": k,
        "p_hat": k / n,
        "zero_signal": k in (0, n),
        **more,
    }
