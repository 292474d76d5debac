"""Examples of a warm start from a stored run, such as one that a teacher played.

Invariants: pi_agent has one right attempt of each task and its first turn alone, pi_env has each
valid task whose certificates all passed; later epochs and held-out tasks are left out; equal
examples have one digest, wherever the run lies, and a stage refuses others than were announced; a
run that is unknown, of another domain or without enough examples is refused in words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genenv_core.canonical import sha256
from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.data import DomainConfig
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError, DataError
from genenv_core.exchange.base_data import heldout_fingerprints
from genenv_core.exchange.examples.files import LEAST
from genenv_core.exchange.examples.given import examples_at, named_examples, warm_start_input
from genenv_core.exchange.examples.runs import examples_of_run
from genenv_core.storage.records.artifacts import ArtifactWriter
from genenv_core.storage.records.manifest import ExamplesRef, FileRef
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from genenv_core.types import Policy
from tasks.stage.inputs import identities
from tests.mutations import mutation
from tests.unit.builders_root import START
from tests.unit.builders_tables import world
from tests.unit.plugged import domain_of

RUNS = "genenv_core/exchange/examples/runs.py"
GIVEN = "genenv_core/exchange/examples/given.py"
TABLES = ("tasks", "certificates", "contexts", "traces", "trace_tokens", "scores")
DOMAIN = DomainConfig(name="arithmetic", options={"terms": 3})
PROMPT = [{"role": "user", "content": "2 + 3 ="}, {"role": "assistant", "content": "5"}]
"""A prompt with a turn of its own, as examples in a domain's prompt are."""


def announced(config: RunConfig) -> ExamplesRef | FileRef | None:
    """Return where the examples of a run of its domain lie."""
    return warm_start_input(config, domain_of(config))


def said(trace: str, turns: int) -> str:
    """Return the transcript of an attempt: each task has a request of its own."""
    request = {"role": "user", "content": f"of {trace.rpartition('-')[0]}"}
    answers = [
        message
        for turn in range(turns)
        for message in (
            {"role": "assistant", "content": f"{trace} says {turn}"},
            {"role": "tool", "content": "noted"},
        )
    ]
    return json.dumps([*PROMPT, request, *answers])


def frames(tasks: int, turns: int) -> dict[str, pl.DataFrame]:
    """Return the tables of two epochs, a few of which tell more than those of `world`."""
    made = world(tasks)
    traces = made["trace_tokens"]["trace_id"].to_list()
    made["trace_tokens"] = made["trace_tokens"].with_columns(
        messages=pl.Series([said(trace, turns) for trace in traces])
    )
    made["traces"] = made["traces"].with_columns(turns=pl.lit(turns, dtype=pl.Int64))
    # An attempt that succeeded without the whole reward.
    half = pl.col("trace_id") == "e0001-g000002-s0000"
    made["scores"] = made["scores"].with_columns(
        reward=pl.when(half).then(0.5).otherwise(pl.col("reward"))
    )
    valid = pl.when(pl.col("valid")).then(pl.col("task_id"))
    made["tasks"] = made["tasks"].with_columns(program="program of " + valid)
    bad = (pl.col("task_id") == "e0001-t000001") & (pl.col("flaw") == "leaks_answer")
    made["certificates"] = made["certificates"].with_columns(
        passed=~bad, detail=pl.when(bad).then(pl.lit("said")).otherwise(pl.lit(""))
    )
    return made


def stored(root: Path, *, tasks: int = 4, turns: int = 1, run: str = "teacher") -> LocalStore:
    """Return the store of a run with two finished epochs."""
    store, log, made = LocalStore(root), RunLog(LocalStore(root), run), frames(tasks, turns)
    log.open({"arm": "genenv", "seed": 0, "epochs": 2, "domain": DOMAIN.model_dump()}, START)
    for epoch in range(3):
        key = sha256(f"{run} {tasks} {turns} {epoch}".encode())
        writer = ArtifactWriter(store, "publish", {"run": run, "epoch": epoch}, key)
        for table in TABLES:
            frame = made[table]
            if "epoch" in frame.columns:
                frame = frame.filter(pl.col("epoch") == epoch)
            else:
                frame = frame.filter(pl.col("trace_id").str.starts_with(f"e{epoch:04d}"))
            writer.table(table, frame)
        writer.commit({})
        log.note_key(epoch, "publish", key)
    return store


def answers(store: LocalStore, epoch: int, heldout: Sequence[str] = ()) -> list[str]:
    found = examples_of_run(store, "teacher", epoch, heldout)
    assert all(messages[:2] == PROMPT and len(messages) == 3 for messages, _ in found[Policy.AGENT])
    return [answer for _, answer in found[Policy.AGENT]]


def programs(store: LocalStore, epoch: int, heldout: Sequence[str] = ()) -> list[str]:
    found = examples_of_run(store, "teacher", epoch, heldout)[Policy.ENV]
    assert all("success none" in messages[0]["content"] for messages, _ in found)
    return [answer.removeprefix("program of ") for _, answer in found]


@mutation(
    "a half right attempt is taught", RUNS, "AND s.success AND s.reward >= 1", "AND s.success"
)
@mutation(
    "held-out tasks are taught by way of a stored run", RUNS,
    'return row["fingerprint"] not in heldout', "return True",
)  # fmt: skip
@mutation(
    "attempts of later epochs are taught", RUNS,
    "WHERE s.epoch BETWEEN 1 AND {epoch}", "WHERE s.epoch <= 1 + {epoch}",
)  # fmt: skip
def test_pi_agent_has_one_right_attempt_of_each_task(tmp_path: Path) -> None:
    store = stored(tmp_path)
    # In `world` the tasks 0, 1, 2 and a base task succeed in 0, 1, 2 and 3 of four attempts.
    first = ["e0001-g000001-s0000", "e0001-g000002-s0001", "e0001-g000003-s0000"]
    assert answers(store, 1) == [f"{trace} says 0" for trace in first]
    # The base task was attempted in both epochs.
    later = ["e0002-g000001-s0000", "e0002-g000002-s0000"]
    assert answers(store, 2) == [f"{trace} says 0" for trace in (*first, *later)]
    assert answers(store, 1, ["1-1", "base-0"]) == [f"{first[1]} says 0"]


@mutation(
    "the last turn of an attempt is taught as if it were the first", RUNS,
    "first = said[-turns]", "first = said[-1]",
)  # fmt: skip
def test_of_an_attempt_with_several_turns_the_first_is_taught(tmp_path: Path) -> None:
    assert answers(stored(tmp_path, turns=2), 1)[0] == "e0001-g000001-s0000 says 0"


@mutation(
    "a task that failed a certificate is taught", RUNS, "HAVING bool_and(passed)", "HAVING true"
)
@mutation(
    "tasks of later epochs are taught", RUNS,
    "WHERE t.epoch BETWEEN 1 AND {epoch} AND t.valid", "WHERE t.valid",
)  # fmt: skip
def test_pi_env_has_the_tasks_whose_certificates_passed(tmp_path: Path) -> None:
    store = stored(tmp_path)
    assert programs(store, 1) == ["e0001-t000000", "e0001-t000002"]
    assert sorted(programs(store, 2)) == [
        "e0001-t000000",
        "e0001-t000002",
        *(f"e0002-t{index:06d}" for index in range(3)),
    ]
    assert programs(store, 1, ["1-0"]) == ["e0001-t000002"]


def config(root: Path, *overrides: str, name: str = "run:teacher", **fields: Any) -> RunConfig:
    given = ["models.agent=./a", "models.env=./e", "warm_start.steps=6"]
    named = [f"warm_start.examples={name}", "domain={name: arithmetic, options: {terms: 3}}"]
    fields = {"root": str(root), **fields}
    return resolve("tiny", overrides=[*given, *named, *overrides], fields=fields)


@dataclass(frozen=True)
class Inputs:
    """Of a stage."""

    examples: FileRef | ExamplesRef


@mutation(
    "where a teacher's run lies is in the key", "tasks/stage/inputs.py",
    "if isinstance(value, FileRef | ExamplesRef):", "if isinstance(value, FileRef):",
)  # fmt: skip
@mutation(
    "a stage takes other examples than were announced", GIVEN,
    "if digest_of(found) != ref.sha256:", "if False:",
)  # fmt: skip
def test_equal_examples_have_one_digest_wherever_they_lie(tmp_path: Path) -> None:
    store = stored(tmp_path / "one", tasks=12)
    stored(tmp_path / "two", tasks=12, run="again")
    LocalStore(tmp_path / "own")
    ref = announced(config(tmp_path / "one"))
    assert isinstance(ref, ExamplesRef)
    assert (ref.root, ref.run_id, ref.epoch) == (store.uri, "teacher", 2)
    # From another root, of a run with another name; the epoch is named.
    read = config(tmp_path / "own", f"roots.read=[{tmp_path / 'two'}]", name="run:again@2")
    other = announced(read)
    assert isinstance(other, ExamplesRef)
    assert other.run_id == "again" and identities(Inputs(other)) == identities(Inputs(ref))
    assert announced(config(tmp_path / "one", name="run:teacher@1")) != ref
    domain = get_domain(DOMAIN.name, DOMAIN.options)
    found = named_examples(config(tmp_path / "one"), domain, Policy)
    heldout = heldout_fingerprints(domain, read.seed, read.data)
    assert found == examples_at(ref, heldout) == examples_at(other, heldout)
    with pytest.raises(DataError, match="run:again: the run holds other examples than when this"):
        examples_at(other, ["1-0"])


@mutation("a run of another domain teaches", GIVEN, "if theirs != config.domain:", "if False:")
@mutation(
    "a stored run with too few examples begins a warm start", RUNS,
    "if (count := len(examples[policy])) < LEAST:", "if not (count := len(examples[policy])):",
)  # fmt: skip
@mutation("a run learns from itself", GIVEN, "if run == config.run_id:", "if False:")
def test_a_run_that_cannot_teach_is_refused_in_words(tmp_path: Path) -> None:
    stored(tmp_path, tasks=4)
    for made, error, words in (
        (
            config(tmp_path, name="run:nobody"),
            ConfigError,
            "no run 'nobody' in this root; known: t",
        ),
        (config(tmp_path, name="run:teacher@7"), ConfigError, "no such finished epoch, the last"),
        (config(tmp_path, run_id="teacher"), ConfigError, "run:teacher is this run itself"),
        (
            config(tmp_path, "domain.options={terms: 4}"),
            ConfigError,
            r"is of domain arithmetic \{'terms': 3\}, and this one of arithmetic \{'terms': 4\}",
        ),
        (
            config(tmp_path),
            DataError,
            f"epochs 1 to 2 have 5 tasks with an attempt of reward 1, .* needs {LEAST} or more",
        ),
        (
            config(tmp_path, "models.agent=bootstrap"),
            DataError,
            r"have 5 valid tasks of pi_env whose certificates passed \(generation.guard",
        ),
    ):
        with pytest.raises(error, match=words):
            announced(made)
