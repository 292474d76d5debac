"""Tasks of each benchmark's kind go through every stage of a run, with models that know texts.

Invariants: what pi_env writes is parsed, certified and admitted, and what repeats an item is
rejected as contaminated; no item of the benchmark is ever a task; attempts have the turns that the
benchmark asks for, and are judged as it judges; both policies are updated and published or say why
not; all views and the report answer; a finished run is all hits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tasks.policies.engine as engines
from flows.planner import plan_run
from genenv_core.benchmarks.training.benchmark_domain import ITEM, BenchmarkDomain
from genenv_core.config.schema import RunConfig
from genenv_core.domains.protocol import SeedData
from genenv_core.domains.registry import get_domain
from tests.pipeline.builders import manifests, run, sql, tiny
from tests.pipeline.knowing import Knowing, KnowingEngine, untrained
from tests.pipeline.test_sets import answers_everywhere
from tests.unit.benchmarks.alfworld.household import LIGHT, SIMPLE, write_game
from tests.unit.benchmarks.alfworld.test_alfworld_training import TRAIN, chosen, interpreter, world
from tests.unit.benchmarks.data import official
from tests.unit.benchmarks.travelplanner import test_travelplanner_training as trips

Options = dict[str, Any]
Repeats = Callable[[BenchmarkDomain[Any]], str]

JUDGED = """
SELECT program, messages, success, reward FROM trace_tokens
JOIN scores USING (run_id, trace_id) JOIN tasks USING (run_id, task_id)
"""

ATTEMPTS = """
SELECT traces.task_id, turns, success, error FROM scores JOIN traces USING (run_id, trace_id)
"""

SMALL = (
    "data.base_tasks=8",
    "data.validation_tasks=3",
    "data.test_tasks=4",
    "generation.tasks=6",
    "generation.max_generations=36",
    "generation.candidates=1",
    "generation.max_tokens=6000",
    "rollout.max_tokens=6000",
    "rollout.max_length=16000",
    "rollout.max_turns=6",
    "gates.min_entropy=0",
)


def _said_too(domain: BenchmarkDomain[Any], field: str, words: str = "") -> str:
    """Return a base task in which a field also says these words, else those of an item."""
    asked = words or next(one.prompt for one in domain.items() if len(one.prompt.split()) > 13)
    program = json.loads(domain.base_tasks(5, 1)[0].program)
    return json.dumps({**program, field: f"{program[field]} {asked}"})


def bfcl(folder: Path, patch: pytest.MonkeyPatch) -> tuple[Options, Repeats]:
    options = {"data": str(official("bfcl")), "explain": False}
    return options, lambda domain: _said_too(domain, "question")


def api_bank(folder: Path, patch: pytest.MonkeyPatch) -> tuple[Options, Repeats]:
    options = {"data": str(official("apibank")), "explain": False}
    return options, lambda domain: _said_too(domain, "request")


def bamboogle(folder: Path, patch: pytest.MonkeyPatch) -> tuple[Options, Repeats]:
    asked = "Who led the land in which the oldest of all known lighthouses was built?"
    (folder / "test.csv").write_text(f"Question,Answer\n{asked},Nobody\n")
    options = {"data": str(folder), "explain": False}
    return options, lambda domain: _said_too(domain, "question", asked)


def travelplanner(folder: Path, patch: pytest.MonkeyPatch) -> tuple[Options, Repeats]:
    options = {"data": str(trips.write(folder)), "stage": "two_stage"}
    return options, lambda domain: _said_too(domain, "query", f"Or: {trips.worded(27)}")


def alfworld(folder: Path, patch: pytest.MonkeyPatch) -> tuple[Options, Repeats]:
    for number in range(TRAIN):
        kind = LIGHT if number % 4 < 2 else SIMPLE
        write_game(folder / "data", f"train/kind-{number}/trial", kind, **world(number))
    write_game(folder / "data", "valid_seen/a/trial", **world(100))
    patch.setenv("GENENV_ALFWORLD_PYTHON", interpreter(folder))
    return {"data": str(folder / "data")}, lambda _: chosen("valid_seen/a/trial")


def played(
    root: Path,
    folder: Path,
    patch: pytest.MonkeyPatch,
    name: str,
    options: Options,
    repeats: Repeats,
) -> RunConfig:
    """Play one epoch of a domain with models that know its texts; return its configuration."""
    domain = get_domain(name, options)
    assert isinstance(domain, BenchmarkDomain) and isinstance(domain, SeedData)
    texts = [repeats(domain), "no task", *(text for _, text in domain.env_examples(77, 40, 0.6))]
    openings = [domain.agent_messages(draft) for draft in domain.base_tasks(0, 8)]
    more = [message["content"] for messages in openings for message in messages]
    models = untrained(folder / "models", domain, [*texts, *more])
    knowing = Knowing(texts)
    knowing.listen(domain, patch)
    patch.setattr(engines, "open_engine", lambda setup: KnowingEngine(setup, knowing))
    given = [f"domain.options={json.dumps(options)}", f"domain.name={name}"]
    both = [f"models.agent={models}", f"models.env={models}"]
    config = tiny(root, *given, *both, *SMALL, epochs=1, run_id=f"kind-{name}")
    run(config)
    return config


def went_well(config: RunConfig, most_turns: int) -> None:
    """Check what the tables of a played run say."""
    tasks = sql(config, "SELECT * FROM tasks WHERE source = 'generated'")
    made = tasks.filter("valid")
    assert made.height == 6 and made["family"].n_unique() > 1
    assert set(tasks.filter(~pl.col("valid"))["rejection"]) >= {"unparseable", "contaminated"}
    specs = sql(config, "SELECT spec FROM tasks")["spec"].drop_nulls()
    assert not any(ITEM in json.loads(spec) for spec in specs)
    assert sql(config, "SELECT min(passed) AS m FROM certificates")["m"][0]
    attempts = sql(config, ATTEMPTS)
    assert set(made["task_id"]) <= set(attempts["task_id"])
    assert set(attempts["success"]) == {True, False}
    assert set(attempts["error"]) == {""} and attempts["turns"].max() == most_turns
    judged(config)
    of_run = manifests(config)
    assert of_run[1, "grpo_update"].facts["action"] == "updated"
    assert of_run[1, "rwr_update"].facts["action"] == "updated"
    assert of_run[1, "publish"].facts["published"] == {"agent": True, "env": True}
    answers_everywhere(config)
    assert {entry.status for entry in plan_run(config)} == {"hit"}


def judged(config: RunConfig) -> None:
    """Hold each stored verdict against the benchmark's own on the stored transcript."""
    domain: Any = get_domain(config.domain.name, config.domain.options)
    rows = sql(config, JUDGED)
    assert rows.height >= 24
    for program, messages, success, reward in rows.iter_rows():
        (draft,) = domain.parse(program)
        verdict = domain.verdict(draft, json.loads(messages))
        assert (verdict.valid, verdict.score) == (success, reward)


@pytest.mark.slow  # the fastest of them is in the default run
@pytest.mark.parametrize(
    ("make", "most_turns"), [(bfcl, 1), (api_bank, 2), (travelplanner, 6), (alfworld, 6)]
)
def test_tasks_of_a_benchmarks_kind_go_through_a_whole_run(
    make: Any, most_turns: int, api: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, repeats = make(tmp_path, monkeypatch)
    config = played(tmp_path / "root", tmp_path, monkeypatch, make.__name__, options, repeats)
    went_well(config, most_turns)


@pytest.mark.slow
def test_tasks_of_bamboogles_kind_go_through_a_whole_run(
    api: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, repeats = bamboogle(tmp_path, monkeypatch)
    config = played(tmp_path / "root", tmp_path, monkeypatch, "bamboogle", options, repeats)
    went_well(config, 1)
