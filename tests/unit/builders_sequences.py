"""A root with real attempts of `trails` with a history: of several sequences, and each another way.

The agent spells its texts letter by letter, as no tokenizer would, so that a token which somebody
spells anew is another one; each sampled token has a logprob of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from genenv_core.canonical import sha256
from genenv_core.config.load import dump, resolve
from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.domains.trails.trails_domain import TrailsDomain
from genenv_core.epoch.attempts import attempt
from genenv_core.epoch.rows import data_tasks, frame, to_tasks
from genenv_core.play.attempt import AttemptBounds, Play
from genenv_core.play.chat import ChatFormat
from genenv_core.play.driver import run_episodes
from genenv_core.storage.records.artifacts import ArtifactWriter
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from genenv_core.types import (
    Completion,
    FinishReason,
    Rollout,
    SampleRequest,
    SamplingParams,
    TaskDraft,
    TaskSource,
)
from tests.unit.builders_engine import CHATML, EOS_ID, tiny_tokenizer
from tests.unit.builders_root import START
from tests.unit.epoch.builders_epoch import seed_for, seed_parts

RUN = "forgetful"
OPTIONS = {"history": 2, "max_looks": 4}
"""Of the domain."""

BAD_CALL = "<tool_call>look</tool_call>"


@dataclass
class Speller:
    """An engine that says what each attempt says, letter by letter; it keeps what it was asked."""

    says: dict[int, list[str]]
    kept: dict[int, list[tuple[SampleRequest, Completion]]] = field(
        default_factory=dict[int, list[tuple[SampleRequest, Completion]]]
    )

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        return [self._sampled(request) for request in requests]

    def _sampled(self, request: SampleRequest) -> Completion:
        _, sample, turn = map(int, seed_parts(request.seed).split("/"))
        ids = (*letters(self.says[sample][turn]), EOS_ID)
        # Between .25 and .75, in steps that float32 has.
        first = 1024 * turn + 128 * sample
        logprobs = tuple(-0.5 - ((first + place) % 4096) / 8192 for place in range(len(ids)))
        made = Completion(ids, logprobs, FinishReason.STOP)
        self.kept.setdefault(sample, []).append((request, made))
        return made

    def close(self) -> None: ...


@dataclass
class ForgetfulAgent:
    """Plays attempts at the tasks of a stage."""

    play: Play

    def groups(
        self,
        batches: Sequence[Sequence[tuple[str, TaskDraft]]],
        *,
        n: int,
        params: SamplingParams,
        seed_of: Callable[[str, int, int], int],
    ) -> Iterator[tuple[int, list[Rollout]]]:
        play = replace(self.play, params=params, seed_of=seed_of)
        return run_episodes([one for batch in batches for one in batch], play)

    def answer_probabilities(self, *given: Any, **how: Any) -> None: ...


@dataclass(frozen=True)
class ForgetfulRoot:
    """The root, the ids of its traces, and what the engine read and gave in each of them."""

    store: LocalStore
    chat: ChatFormat
    traces: list[str]
    kept: list[list[tuple[SampleRequest, Completion]]]


def letters(text: str) -> tuple[int, ...]:
    """Return the ids of a text, each of one letter."""
    vocab = tiny_tokenizer().get_vocab()
    return tuple(vocab[{" ": "\u0120", "\n": "\u010a"}.get(letter, letter)] for letter in text)


def forgetful_root(root: Path) -> ForgetfulRoot:
    """Return a root with one run, one group of three attempts of 4, 2 and 3 sequences.

    The first solves its task with three looks; the second looks once and answers wrongly; the third
    makes a call that nobody can read, in the first sequence, looks twice and answers wrongly.
    """
    domain = TrailsDomain.from_options(OPTIONS)
    draft = next(one for one in domain.base_tasks(0, 40) if one.difficulty == 3)
    right = [turn.says for turn in domain.solution(draft)]
    wrong = "the pet of nobody is a fish"
    engine = Speller({0: right, 1: [right[0], wrong], 2: [BAD_CALL, *right[:2], wrong]})
    tokenizer = tiny_tokenizer(CHATML)
    chat = ChatFormat(tokenizer, name="tiny")
    bounds = AttemptBounds(n=3, max_turns=6, max_length=4000, max_errors=2)
    play = Play(domain, engine, chat, bounds, SamplingParams(400), lambda *_: 0)
    tasks = data_tasks({TaskSource.BASE: [draft]}, "0" * 8)
    ((_, tables),) = attempt(
        ForgetfulAgent(play), to_tasks(tasks), {0: range(1)},
        RolloutConfig(n=3, max_tokens=400), epoch=1, scope="0" * 8, policy_version=0,
        decode=chat.decode, seed_for=seed_for,
    )  # fmt: skip
    rewards = (1.0, 0.0, 0.0)
    scores = [
        {**{name: row[name] for name in ("trace_id", "epoch", "task_id", "group_id")},
         "reward": reward, "success": reward == 1, "failure": "" if reward else "wrong_value"}
        for row, reward in zip(tables["traces"].iter_rows(named=True), rewards, strict=True)
    ]  # fmt: skip
    pool = [
        {**{name: one for name, one in row.items() if name != "failure"},
         "policy_version": 0, "source": "base"}
        for row in scores
    ]  # fmt: skip
    store = LocalStore(root)
    log = RunLog(store, RUN)
    asked = resolve("tiny", overrides=["domain.name=trails"], fields={"run_id": RUN, "epochs": 1})
    log.open(dump(asked) | {"domain": {"name": "trails", "options": OPTIONS}}, START)
    folder = store.scratch()
    tokenizer.save_pretrained(folder)
    stages = {
        "bootstrap": (0, {"tasks": tasks}),
        "rollout": (1, tables),
        "score": (1, {"scores": frame("scores", scores)}),
        "pool": (1, {"d_train": frame("d_train", pool)}),
    }
    for stage, (epoch, made) in stages.items():
        key = sha256(stage.encode())
        writer = ArtifactWriter(store, stage, {"stage": stage}, key)
        for table, rows in made.items():
            writer.table(table, rows)
        if stage == "bootstrap":
            writer.checkpoint("agent", folder)
        writer.commit({})
        log.note_key(epoch, stage, key)
    traces = tables["traces"]["trace_id"].to_list()
    return ForgetfulRoot(store, chat, traces, [engine.kept[sample] for sample in range(3)])
