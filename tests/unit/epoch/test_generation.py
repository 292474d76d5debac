"""Texts and programs become tasks.

Invariants: sampling continues until enough tasks are admitted or max_generations is reached, each
time for the missing number; candidates are written beyond the tasks that are attempted; each
generation has its own seed by its place; a generation that is cut, fails or holds no task is a row
with its reason; an epoch without a valid task says why, and a second one stops the run; where the
domain's own code failed for each task, the stage fails and stores nothing; a task
equal to one of this epoch, of recent epochs or of the held-out set is rejected; one with a flaw is
rejected while the guard is on, and has its certificate either way; a teacher's
programs are read in windows, again from the first after the last, and compared with the held-out
set too; pi_env's prompt has base tasks and the agent's record on new tasks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest

from genenv_core.algorithm.success.model import Attempts
from genenv_core.config.sections.curriculum import CurriculumConfig, GenerationConfig
from genenv_core.epoch.attempting.choosing import features
from genenv_core.epoch.rows import Output, frame
from genenv_core.epoch.trouble import NARROW
from genenv_core.epoch.writing.contexts import agent_history
from genenv_core.epoch.writing.generation import (
    Writer,
    grammar_of,
    take_programs,
    write_tasks,
)
from genenv_core.errors import ConfigError, DomainError
from genenv_core.types import (
    AgentHistory,
    Completion,
    FinishReason,
    Grammar,
    Message,
    SampleRequest,
    SamplingParams,
    TaskDraft,
    Verdict,
)
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import (
    Chat,
    WordsDomain,
    data,
    draft,
    generated,
    seed_for,
    seed_parts,
)

GENERATION = "genenv_core/epoch/writing/generation.py"
INTAKE = "genenv_core/epoch/writing/intake.py"

NEVER = AgentHistory()


@dataclass
class Says:
    """An engine that returns given texts in order; '...' is truncated, '?' fails."""

    texts: list[str]
    calls: list[list[SampleRequest]] = field(default_factory=list)
    params: SamplingParams | None = None

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Completion]:
        """Return the next texts."""
        self.calls.append(list(requests))
        self.params = params
        said = [self.texts.pop(0) for _ in requests]
        kinds = {"...": FinishReason.LENGTH, "?": FinishReason.ERROR}
        return [
            Completion(
                tuple(map(ord, text)),
                (-1.0,) * len(text),
                kinds.get(text, FinishReason.STOP),
                "no room" if text == "?" else "",
            )
            for text in said
        ]


def write(engine: Says, **more: Any) -> Output:
    given: dict[str, Any] = {"tasks": 2, "candidates": 1, "tasks_per_context": 2}
    given |= {"max_generations": 6}
    settings = GenerationConfig(**given | more.pop("settings", {}))
    options: dict[str, Any] = {
        "data": data(["one", "two"], ["held"]),
        "recent": frame("tasks", [generated("t", "past"), generated("u", "r", rejection="x")]),
        "history": NEVER,
        "known": [],
        "curriculum": CurriculumConfig(),
        "progress": lambda done, total, unit: None,
    }
    writer = Writer(engine, Chat(), 3, more.pop("grammar", lambda context: None))
    return write_tasks(
        writer, more.pop("domain", WordsDomain()), settings,
        **options | more, epoch=2, scope="0123456789", seed=7, seed_for=seed_for,
    )  # fmt: skip


def outcomes(output: Output) -> list[tuple[Any, ...]]:
    return output.tables["tasks"].select("program", "valid", "rejection").rows()


@mutation(
    "pi_env is told how the agent did, though it should not be", GENERATION,
    "history if settings.condition_on_agent else AgentHistory(),", "history,",
)  # fmt: skip
@pytest.mark.parametrize(("told", "rate"), [(True, "0.25"), (False, "None")])
def test_pi_env_reads_how_the_agent_did_unless_it_should_not(told: bool, rate: str) -> None:
    engine = Says(["aa", "bb"])
    write(engine, history=AgentHistory(0.25), settings={"condition_on_agent": told})
    prompts = ["".join(map(chr, request.prompt_ids)) for request in engine.calls[0]]
    assert all(prompt.endswith(f" {rate}") for prompt in prompts), prompts


@mutation(
    "pi_env does not read the examples of its prompt", INTAKE,
    "context, env_prompt(self.domain, context),", "context, self.domain.env_messages(context),",
)  # fmt: skip
@mutation(
    "the table does not show the examples", INTAKE,
    "canonical_json(env_prompt(self.domain, context))",
    "canonical_json(self.domain.env_messages(context))",
)  # fmt: skip
def test_pi_env_reads_as_many_examples_as_are_asked_for() -> None:
    engine = Says(["aa", "bb"])
    output = write(engine, settings={"shots": 1})
    prompts = ["".join(map(chr, request.prompt_ids)) for request in engine.calls[0]]
    (stored,) = map(json.loads, output.tables["contexts"]["messages"])
    assert [message["role"] for message in stored] == ["user", "assistant", "user"]
    said = [message["content"] for message in stored]
    assert prompts == ["\n".join(said)] * 2
    # Of two base tasks, one is varied and the other is the answer.
    assert {said[0].removesuffix(" None"), said[1]} == {"one", "two"}


@mutation(
    "pi_env writes more than is missing", INTAKE,
    "missing = {name: count - self._of_domain[name] for name, count in split.items()}",
    "missing = dict(split)",
)  # fmt: skip
def test_sampling_goes_on_for_what_is_missing() -> None:
    engine = Says(["a!", "bb", "bb", "cc"])
    output = write(engine)
    assert [len(call) for call in engine.calls] == [2, 1, 1]
    assert outcomes(output) == [
        (None, False, "unparseable"),
        ("bb", True, None),
        ("bb", False, "duplicate"),
        ("cc", True, None),
    ]
    assert output.facts == {
        "generated": 4,
        "valid": 2,
        "rejected": {"unparseable": 1, "duplicate": 1},
        "attempted": 2,
    }


class ChosenWords(WordsDomain):
    """The same domain where the words are a set that is there."""

    def fixed_tasks(self) -> int | None:
        return 40


@mutation(
    "choices out of a fixed set are called narrow", GENERATION,
    "return tasks.clear() if fixed else tasks", "return tasks",
)  # fmt: skip
def test_only_what_is_written_can_be_too_narrow() -> None:
    words = [f"x{letter * 3}" for letter in "abcdefghij"]
    facts = [
        write(Says([*words, *"abcdefgh"]), domain=domain,
              data=data(["one", "three"], ["held"]),
              settings={"tasks": 10, "max_generations": 40}).facts
        for domain in (WordsDomain(), ChosenWords())
    ]  # fmt: skip
    assert "pi_env writes little else" in facts[0][NARROW] and NARROW not in facts[1]
    assert facts[1] == {name: fact for name, fact in facts[0].items() if name != NARROW}


def test_candidates_are_written_beyond_those_attempted() -> None:
    engine = Says(["aa", "bb", "!", "cc", "dd"])
    output = write(engine, settings={"candidates": 2})
    assert [len(call) for call in engine.calls] == [4, 1]
    assert (output.facts["valid"], output.facts["attempted"]) == (4, 2)
    counts = output.tables["tasks"]["choice"].value_counts().rows()
    assert set(counts) == {("random", 2), ("not_chosen", 2), (None, 1)}
    engine = Says(["aa", "bb", "!", "cc", "dd"])
    reserved = write(engine, settings={"candidates": 2}, reserve=True)
    counts = reserved.tables["tasks"]["choice"].value_counts().rows()
    assert set(counts) == {("random", 2), ("reserve", 2), (None, 1)}
    assert reserved.facts == output.facts


def test_the_choice_learns_from_what_is_known() -> None:
    rows = [Attempts(features(generated("t", word)), k, 8) for word, k in (("a", 8), ("bbb", 4))]
    output = write(
        Says(["a", "bbb", "c", "d"]),
        settings={"tasks": 1, "candidates": 4, "random_share": 0.0},
        known=rows * 9,
    )
    assert output.tables["tasks"].filter(choice="predicted")["program"].to_list() == ["bbb"]


def test_max_generations_ends_it() -> None:
    engine = Says(["!"] * 9)
    facts = write(engine).facts
    assert (facts["generated"], facts["valid"], facts["rejected"]) == (6, 0, {"unparseable": 6})
    assert [len(call) for call in engine.calls] == [2, 2, 2]


def test_an_epoch_without_a_task_has_the_commonest_reason_and_an_example() -> None:
    facts = write(Says(["past", "a!", "...", "b!", "past", "c!"])).facts
    assert facts["no_task"] == (
        "epoch 2 has no valid task: 6 rejected, 3 of them as unparseable, for example 'a!' (a!)"
    )
    assert "no_task" not in write(Says(["bb", "!"] * 3)).facts


class Broken(WordsDomain):
    """A domain whose judge fails for every word but one."""

    def score(self, task: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Raise an error for all but `fine`."""
        if task.program != "fine":
            raise KeyError("value")
        return super().score(task, messages)


class Strict(WordsDomain):
    """A domain whose judge accepts nothing."""

    def score(self, task: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return a failure."""
        return Verdict(0.0, False, "never")


@mutation(
    "an error of the domain's own code is blamed on pi_env, and the empty epoch is kept", INTAKE,
    "if len(raised) == len(self._flaws) >= SURE:", "if False:",
)  # fmt: skip
@mutation(
    "one task that breaks a domain ends a run", INTAKE,
    "len(raised) == len(self._flaws) >= SURE", "len(raised) >= SURE",
)  # fmt: skip
@mutation(
    "a verdict counts as an error of the domain", "genenv_core/play/certificate.py",
    "return self.detail.startswith((UNJUDGED, NO_LEAKS, NO_SOLUTION))", "return not self.passed",
)  # fmt: skip
def test_a_domain_that_fails_for_every_task_fails_the_stage() -> None:
    said = r"domain words: its own code fails for each of the 3 tasks .*KeyError.*; mend it"
    with pytest.raises(DomainError, match=said):
        write(Says(["!", "!", "!", "bb", "cc", "dd"]), domain=Broken())
    two = write(Says(["!", "!", "!", "!", "bb", "cc"]), domain=Broken())
    assert two.facts["rejected"] == {"unparseable": 4, "rejects_ground_truth": 2}
    one_is_fine = write(Says(["bb", "cc", "dd", "ee", "ff", "fine"]), domain=Broken())
    assert one_is_fine.facts["valid"] == 1
    flawed = write(Says(["!", "!", "!", "bb", "cc", "dd"]), domain=Strict())
    assert flawed.facts["rejected"] == {"unparseable": 3, "rejects_ground_truth": 3}


@mutation(
    "a text that was cut off is a task", INTAKE,
    "if written.finish_reason is FinishReason.LENGTH:", "if False:",
)  # fmt: skip
def test_what_is_no_whole_text_is_a_row_with_its_reason() -> None:
    output = write(Says(["...", "?", "bb", "cc"]))
    assert output.tables["tasks"].select("rejection", "rejection_detail").rows()[:2] == [
        ("truncated", "cut after 3 tokens"),
        ("engine_error", "no room"),
    ]
    assert output.tables["generations"].select("finish_reason", "error").rows()[:2] == [
        ("length", ""),
        ("error", "no room"),
    ]


@mutation("tasks of recent epochs are written again", INTAKE, "_fingerprints(recent)", "set[str]()")
def test_tasks_of_recent_epochs_and_of_the_held_out_set_are_rejected() -> None:
    output = write(Says(["past", "held", "r", "one"]))
    assert outcomes(output) == [
        ("past", False, "duplicate_of_history"),
        ("held", False, "in_heldout"),
        ("r", True, None),  # what was rejected then may be a task now
        ("one", True, None),  # a base task may be written again
    ]


def test_a_generation_may_hold_several_tasks() -> None:
    output = write(Says(["bb x! bb cc"]), settings={"tasks": 1})
    tasks = output.tables["tasks"]
    assert tasks["task_id"].to_list() == [f"t000002-01234567-{i:07d}" for i in range(4)]
    assert tasks["generation_id"].unique().to_list() == ["n000002-01234567-0000000"]
    assert tasks["valid"].to_list() == [True, False, False, True]
    assert output.facts["valid"] == 2


def test_rows_say_where_a_task_is_from() -> None:
    engine = Says(["bb", "cc"])
    output = write(engine)
    row = output.tables["tasks"].row(1, named=True)
    shown = {request.prompt_ids for request in engine.calls[0]}
    assert len(shown) == 1  # two generations of one context
    prompt = Chat().decode(shown.pop())
    assert prompt in ("one None", "two None")
    assert row == row | {
        "epoch": 2,
        "source": "generated",
        "generation_index": 1,
        "context_id": "c000002-000000",
        "base_task_id": "t0" if prompt == "one None" else "t1",
        "env_policy_version": 3,
        "choice": "random",
        "predicted_p": None,
        "prompt": "say cc",
        "ground_truth": "CC",
        "spec": "{}",
        "family": "k2",
        "env_prompt_tokens": len(prompt),
        "generation_tokens": 2,
        "generation_text": "cc",
    }
    generation = output.tables["generations"].row(1, named=True)
    assert generation == {
        "generation_id": row["generation_id"],
        "epoch": 2,
        "context_id": row["context_id"],
        "env_policy_version": 3,
        "finish_reason": "stop",
        "error": "",
        "grammar": None,
        "prompt_ids": list(map(ord, prompt)),
        "token_ids": [99, 99],
        "logprobs": [-1.0, -1.0],
    }
    (asked,) = output.tables["contexts"].rows(named=True)  # asked twice, kept once
    assert asked == {
        "context_id": row["context_id"],
        "epoch": 2,
        "base_task_id": row["base_task_id"],
        "messages": json.dumps([{"content": prompt, "role": "user"}], separators=(",", ":")),
    }


@mutation(
    "all generations have one seed", INTAKE,
    'seed_for("generation", place)', 'seed_for("generation", done)',
)  # fmt: skip
def test_each_generation_has_a_seed_of_its_own_by_its_place() -> None:
    engine = Says(["!", "!", "bb", "cc"])
    write(engine)
    seeds = [seed_parts(request.seed) for call in engine.calls for request in call]
    assert seeds == [f"generation/{index}" for index in range(4)]
    assert engine.params == SamplingParams(32, 1.0, 1.0, (0,))


def test_progress_is_reported_before_each_batch() -> None:
    seen: list[tuple[int, int, str]] = []
    write(Says(["!", "bb", "cc"]), progress=lambda *done: seen.append(done))
    assert seen == [(0, 2, "tasks"), (1, 2, "tasks")]


def test_a_grammar_is_asked_of_the_domain_or_refused() -> None:
    grammar = Grammar("regex", "[a-z]+")
    engine = Says(["bb", "cc"])
    write(engine, grammar=lambda context: grammar)
    assert [request.grammar for request in engine.calls[0]] == [grammar, grammar]
    plain, structured = (GenerationConfig(structured=flag) for flag in (False, True))
    assert grammar_of(WordsDomain(), plain)(None) is None
    with pytest.raises(ConfigError, match="the domain words has no grammar"):
        grammar_of(WordsDomain(), structured)


def programs(epoch: int, heldout: Sequence[str] = ()) -> Output:
    drafts = [draft(word) for word in ("aa", "bb", "cc")]
    tasks = data(["one"], heldout)
    return take_programs(
        drafts, WordsDomain(),
        data=tasks, count=2, guard=True, epoch=epoch, scope="0123456789",
    )  # fmt: skip


def test_programs_are_taken_in_windows_round_and_round() -> None:
    taken = {epoch: programs(epoch).tables["tasks"] for epoch in (1, 2, 3)}
    words = [taken[epoch]["program"].to_list() for epoch in taken]
    assert words == [["aa", "bb"], ["cc", "aa"], ["bb", "cc"]]
    assert all(rows["valid"].all() for rows in taken.values())
    assert taken[2].select("source", "generation_index", "generation_id", "context_id").rows() == [
        ("teacher", 2, None, None),
        ("teacher", 0, None, None),
    ]
    assert programs(1).tables["generations"].is_empty()


@mutation(
    "a teacher's programs may be held-out tasks", INTAKE,
    "_fingerprints(of_source(data, *HELDOUT))",
    "set[str]() if recent.is_empty() else _fingerprints(of_source(data, *HELDOUT))",
)  # fmt: skip
def test_a_program_of_the_held_out_set_is_rejected() -> None:
    output = programs(1, ["bb"])
    assert outcomes(output) == [("aa", True, None), ("bb", False, "in_heldout")]
    assert output.facts == {"generated": 2, "valid": 1, "rejected": {"in_heldout": 1}}


def test_a_window_longer_than_the_file_repeats_as_duplicates() -> None:
    output = take_programs(
        [draft("aa")], WordsDomain(),
        data=data(["one"]), count=2, guard=True, epoch=1, scope="0" * 10,
    )  # fmt: skip
    assert outcomes(output) == [("aa", True, None), ("aa", False, "duplicate")]


class Careless(WordsDomain):
    """A domain whose judge accepts any answer to a word with an x."""

    def score(self, task: TaskDraft, messages: Sequence[Message]) -> Verdict:
        """Return success for what it should not."""
        return Verdict(1.0, True) if "x" in task.program else super().score(task, messages)


@mutation(
    "a flawed task is attempted", INTAKE,
    "if flaw is None or not self._guard:", "if flaw is None or self._guard:",
)  # fmt: skip
@pytest.mark.parametrize("guard", [True, False])
def test_a_flawed_task_is_refused_while_the_guard_is_on(guard: bool) -> None:
    output = write(
        Says(["xx", "aa bb xx", "past"]),
        domain=Careless(),
        settings={"tasks": 3, "guard": guard, "max_generations": 3},
    )
    refused = [(not guard, "accepts_trivial" if guard else None)]
    told = [(valid, reason) for word, valid, reason in outcomes(output) if word == "xx"]
    assert told[:1] == refused
    certificates = output.tables["certificates"]
    checked = certificates["task_id"].unique(maintain_order=True).to_list()
    rows = output.tables["tasks"].filter(pl.col("task_id").is_in(checked))
    # A duplicate is refused before anybody looks at it; with the guard, a flawed one is no task
    # that a later one could equal.
    assert rows["program"].to_list() == ["xx", "aa", "bb", *(["xx"] if guard else [])]
    found = certificates.filter(~pl.col("passed"))
    assert set(found["flaw"]) == {"accepts_trivial", "accepts_canary"}
    assert (found["epoch"] == 2).all()
    assert set(certificates.filter(pl.col("task_id") == checked[1])["passed"]) == {True}


@mutation(
    "pi_env sees the agent's record on base tasks", "genenv_core/epoch/writing/contexts.py",
    'task_scores.filter(pl.col("source") == TaskSource.GENERATED.value).join(', "task_scores.join(",
)  # fmt: skip
def test_the_agents_record_is_of_generated_tasks() -> None:
    def row(task_id: str, source: str, k: int) -> dict[str, Any]:
        return {"task_id": task_id, "source": source, "successes": k, "n": 4}

    scores = frame(
        "task_scores",
        [row("a", "generated", 1), row("bb", "generated", 2), row("c", "generated", 4),
         row("t0", "base", 4)],
    )  # fmt: skip
    tasks = frame("tasks", [generated("a"), generated("bb"), generated("c")])
    with_base = pl.concat([tasks, data(["one"])])
    record = agent_history(scores, with_base)
    assert record == AgentHistory(7 / 12, {"k1": (5, 8), "k2": (2, 4)})
    assert agent_history(scores.clear(), tasks) == NEVER
    guessed = with_base.with_columns(chance=pl.lit(0.5))
    assert agent_history(scores, guessed).success_rate == pytest.approx((7 / 12 - 0.5) / 0.5)
