"""A model measured on a benchmark, with a real Prefect flow, a real engine and a real endpoint.

Invariants: every item is attempted, judged as predictions are, and kept as a task, a trace and a
verdict; what is finished is reused, and a killed measurement goes on at the item that was cut off;
a checkpoint of a run, a folder, a version in MLflow and an endpoint are measured in one way; the
result says how it came about and what was not run; two models of one run are measured on the same
items; bad input is refused before any work. A task set
that is certified is attempted likewise: its flaws, attempts and checks are rows, and a certificate
that was cut off ends with the rows of one that never was.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from aiohttp import web
from typer.testing import CliRunner

from flows.cli.app import app
from flows.deploy.benchmark_request import BenchmarkRequest
from genenv_core.benchmarks.bamboogle import BENCHMARK
from genenv_core.benchmarks.measuring.expected import right_answer
from genenv_core.benchmarks.measuring.request import MeasuringOptions, certification, measurement
from genenv_core.benchmarks.measuring.table import read_measured, written
from genenv_core.config.schema import RunConfig
from genenv_core.domains.tool_calls import said as read
from genenv_core.epoch.trouble import troubles
from genenv_core.errors import ConfigError, EngineError, ModelError
from genenv_core.storage.records.artifacts import Artifacts
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.sql.catalog import query
from genenv_core.storage.sql.lookup import look_up
from genenv_core.storage.sql.sources import open_tables
from genenv_core.storage.store.local import LocalStore
from genenv_core.storage.store.opening import open_store
from genenv_core.storage.upkeep.verify import verify
from genenv_core.types import JsonObject
from tests.mutations import mutation
from tests.pipeline.builders import manifests, run, sql, states, tiny
from tests.pipeline.commands import REPOSITORY, environment, refused
from tests.pipeline.commands import said as told
from tests.unit.benchmarks import plugin
from tests.unit.benchmarks.test_plugin import POINTS as PLUGGED
from tests.unit.builders_runs import age
from tests.unit.exchange.test_chat_endpoint import Server, said, server
from tests.unit.exchange.test_environments import given_away, with_config
from tests.unit.plugged import write_package
from tests.waiting import BOUND_S, until

pytestmark = pytest.mark.slow

QUESTIONS = ["Who swam?", "What sank?", "When was it?", "Where is it?", "Why not?", "Which one?"]
ANSWERS = ["Ada Lark", "the Orca", "1912", "in Oslo", "rain", "the second"]
SHORT = ("rollout.max_length=512", "rollout.max_tokens=8", "rollout.shard_groups=4")
SECRET = "sk-very-secret"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bamboogle")
    rows = [f'"{q}","{a}"' for q, a in zip(QUESTIONS, ANSWERS, strict=True)]
    (folder / "test.csv").write_text("\n".join(["Question,Answer", *rows]) + "\n")
    return folder


@pytest.fixture(scope="module")
def trained(begun: Callable[[Path], None], tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Return a run in a root of its own, which a test collects and whose versions one counts."""
    root = tmp_path_factory.mktemp("trained") / "root"
    begun(root)
    config = tiny(root, "tracking.enabled=true", epochs=1, run_id="measured-run")
    run(config)
    return config


def config_of(root: str | Path, data: Path, *overrides: str, **asked: Any) -> RunConfig:
    from tasks.policies.measured import named

    given = MeasuringOptions(**asked, data=str(data))
    fields = {"root": str(root)}
    return named(measurement("bamboogle", given, overrides=(*SHORT, *overrides), fields=fields))


def measured(config: RunConfig) -> Any:
    from flows.benchmark import measure

    return measure(config)


def right(body: JsonObject) -> web.Response:
    """Answer as gold does, but for the last question."""
    asked = body["messages"][-1]["content"]
    place = next(place for place, question in enumerate(QUESTIONS) if question in asked)
    answer = ANSWERS[place] if place < len(ANSWERS) - 1 else "no idea"
    return said(f"Let me think.\nFinal answer: {answer}")


def _is_readable(config: RunConfig, checkpoint: str) -> None:
    """Look an attempt up: as text, with its checkpoint, its prompt and the verdict."""
    row = sql(config, "SELECT trace_id, item, valid, score, reason FROM benchmark_items LIMIT 1")
    trace_id, item, *verdict = row.row(0)
    store, run_id = LocalStore(Path(config.root)), str(config.run_id)
    record = look_up(store, trace_id, run_id)
    assert record.facts["ground_truth"] == ""
    assert right_answer(store, run_id, record.facts) == ANSWERS[int(item)]
    (group,) = record.groups
    (found,) = group.traces
    assert found.sampled_by == checkpoint
    assert [found.facts[name] for name in ("success", "reward", "failure")] == verdict
    # The small vocabulary has not all letters; the marks are the template's.
    assert found.shown.startswith("<|system|>") and found.shown.endswith("<|assistant|>")
    sampled = "".join(token.text for token in found.tokens if token.sampled)
    assert sampled.startswith(found.messages[-1]["content"])


@mutation(
    "tokens of a measurement are numbers", "genenv_core/storage/sql/lookup.py",
    "        return _measured_tokenizer(store, log) if policy is Policy.AGENT else None\n",
    "        return None\n",
)  # fmt: skip
def test_a_checkpoint_of_a_run_is_measured_and_its_attempts_can_be_asked_for(
    trained: RunConfig, data: Path
) -> None:
    config = config_of(trained.root, data, model="run:measured-run")
    assert config.benchmark.model == "run:measured-run@1"
    assert str(config.run_id).startswith("eval-measured-run-1-bamboogle-s0-")
    facts = measured(config).facts
    assert (facts["items"], facts["attempts"], facts["not_run"]) == (6, 6, {})
    # The tiny agent never ends its text. A run that measures its agent shows this of every stage.
    (endless,) = troubles(facts)
    assert endless.startswith("bamboogle: 6 of 6 attempts were cut off")
    assert facts["protocol"] == {"search": "none"}
    rows = sql(
        config,
        "SELECT i.item, i.valid, i.score, i.parts, t.source, t.prompt, r.response_tokens, "
        "k.messages FROM benchmark_items AS i JOIN tasks AS t USING (task_id) "
        "JOIN traces AS r USING (trace_id) JOIN trace_tokens AS k USING (trace_id) ORDER BY i.item",
    )
    assert rows["item"].to_list() == [str(place) for place in range(6)]
    assert set(rows["source"]) == {"benchmark"}
    suite = BENCHMARK.load(data)
    for row, question in zip(rows.iter_rows(named=True), QUESTIONS, strict=True):
        assert question in row["prompt"]
        turn = read(json.loads(row["messages"])[-1]["content"])
        verdict = suite.judge(row["item"], turn.text, "official")
        assert (row["valid"], row["score"]) == (verdict.valid, verdict.score)
        assert json.loads(row["parts"]) == verdict.parts
        assert 0 < row["response_tokens"] <= 8
    found = sql(config, "SELECT metric, points, low, high, items, not_run FROM benchmarks")
    assert set(found["metric"]) == {"exact_match", "f1", "contains", "lenient"}
    checkpoint = sql(trained, "SELECT agent_checkpoint FROM epochs WHERE epoch = 1").item()
    (part,) = [p for p in manifests(config).values() if p.stage == "benchmark"]
    assert part.key_parts["inputs"]["model"] == f"{checkpoint}@1"  # lineage, by digest
    _is_readable(config, checkpoint)
    history = states(config)
    measured(config)
    assert states(config) == history == [(0, "benchmark", "computed")]


def test_an_agent_is_measured_before_and_after_on_the_same_items(
    trained: RunConfig, data: Path, tmp_path: Path
) -> None:
    """The model that bootstrap makes is no folder, so epoch 0 stands for it."""
    from flows.cli.data.measured import MeasuredBenchmark
    from flows.evidence.before_after import before_of, compared, configured, data_in
    from tasks.policies.measured import named

    (tmp_path / "bamboogle").symlink_to(data)
    with pytest.raises(ConfigError, match=r"no folder bfcl and no folder api_bank: `genenv data"):
        data_in(str(tmp_path))
    store = LocalStore(Path(trained.root))
    before = before_of("measured-run", RunLog(store, "measured-run").info().config)
    assert before == "run:measured-run@0"
    made: list[MeasuredBenchmark] = []
    for model in (before, "run:measured-run"):
        asked = configured(
            "bamboogle", model, tmp_path, 3, fields={"root": trained.root}, overrides=SHORT
        )
        made.append(MeasuredBenchmark(named(asked), Artifacts(store).load(measured(named(asked)))))
    chosen = [set(sql(one.config, "SELECT item FROM benchmark_items")["item"]) for one in made]
    assert chosen[0] == chosen[1] and len(chosen[0]) == 3
    rows = compared(*made)
    assert [(row.metric, row.items) for row in rows] == [("exact_match", 3), ("f1", 3)]
    assert compared(made[0], MeasuredBenchmark(made[1].config, failure="broke")) == []


def test_a_benchmark_of_another_package_is_measured(
    trained: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.policies.measured import named

    monkeypatch.syspath_prepend(write_package(tmp_path / "package", PLUGGED))
    (tmp_path / "words.txt").write_text("lark orca swim genenv\n")
    asked = MeasuringOptions("run:measured-run", data=str(tmp_path))
    fields = {"root": trained.root}
    config = named(measurement("backwards", asked, overrides=SHORT, fields=fields))
    facts = measured(config).facts
    assert (facts["benchmark"], facts["items"], facts["attempts"]) == ("backwards", 4, 4)
    rows = sql(
        config,
        "SELECT i.item, i.category, i.valid, i.score, k.messages FROM benchmark_items AS i "
        "JOIN trace_tokens AS k USING (trace_id) ORDER BY i.item",
    )
    assert rows["category"].to_list() == ["short", "short", "short", "long"]
    suite = plugin.load(tmp_path)
    for row in rows.iter_rows(named=True):
        said_last = read(json.loads(row["messages"])[-1]["content"]).text
        verdict = suite.judge(row["item"], said_last, "official")
        assert (row["valid"], row["score"]) == (verdict.valid, verdict.score)
    (found,) = sql(config, "SELECT benchmark, metric, headline, items FROM benchmarks").rows()
    assert found == ("backwards", "right", True, 4)


def test_equal_measurements_have_equal_bits_and_only_what_counts_is_in_the_key(
    trained: RunConfig, data: Path, tmp_path: Path
) -> None:
    from flows.planner import plan_run

    config = config_of(trained.root, data, model="run:measured-run")
    (planned,) = plan_run(config)
    assert planned.status == "hit"
    (planned,) = plan_run(
        config_of(trained.root, data, "rollout.max_tokens=9", model="run:measured-run")
    )
    assert planned.status == "miss"
    elsewhere = Artifacts(LocalStore(Path(trained.root)))
    manifest = manifests(trained)[(1, "grpo_update")]
    folder = elsewhere.checkpoint(manifest, "agent")
    again = config_of(tmp_path / "root", data, model=str(folder))
    measured(again)
    same = (
        "SELECT item, token_ids, logprobs FROM benchmark_items "
        "JOIN trace_tokens USING (trace_id) ORDER BY item"
    )
    assert sql(again, same).equals(sql(config, same))


def test_a_version_in_mlflow_is_measured(trained: RunConfig, data: Path) -> None:
    from tasks.tracking.names import model_name

    name = f"models:/{model_name('genenv', 'agent')}/1"
    config = config_of(trained.root, data, "benchmark.items=2", model=name)
    facts = measured(config).facts
    assert (facts["items"], facts["not_run"]) == (2, {"questions": 4})
    wrong = config_of(trained.root, data, model="models:/nobody/7")
    with pytest.raises(ModelError, match="MLflow has no such version"):
        measured(wrong)


def test_an_endpoint_is_measured_and_asked_only_for_what_is_missing(
    api: None, server: Server, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", SECRET)
    lost = threading.Event()

    def sometimes(body: JsonObject) -> web.Response:
        if not lost.is_set() and "Where is it?" in body["messages"][-1]["content"]:
            return web.json_response({"error": {"message": "busy"}}, status=503)
        return right(body)

    server.always = sometimes
    overrides = (
        "execution.benchmark={key_env: MODEL_KEY, retries: 0, concurrency: 2}",
        "benchmark.request={top_k: 5}",
    )
    config = config_of(tmp_path / "r", data, *overrides, model=server.url, model_name="big")
    assert str(config.run_id).startswith("eval-big-bamboogle-")
    with pytest.raises(EngineError, match=r"1 of \d tasks had no answer.*503"):
        measured(config)
    lost.set()
    server.bodies.clear()
    facts = measured(config).facts
    assert facts["metrics"]["exact_match"] == pytest.approx(5 / 6)
    asked = [body["messages"][-1]["content"] for body in server.bodies]
    # Of the first shard only the lost one; the second shard had not begun, or was kept.
    assert any("Where is it?" in text for text in asked)
    assert not any("Who swam?" in text for text in asked)
    assert {body["top_k"] for body in server.bodies} == {5}
    assert set(server.headers) == {f"Bearer {SECRET}"}
    rows = sql(config, "SELECT prompt_tokens, response_tokens, finish_reason FROM traces")
    assert set(rows.rows()) == {(5, 2, "stop")}
    texts = sql(config, "SELECT response_text FROM trace_tokens")["response_text"]
    assert all("Final answer:" in text for text in texts)
    for path in (tmp_path / "r").rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


@mutation(
    "a measurement at a precision attempts all items", "tasks/benchmark.py",
    "len(tasks), asked.precision", "len(tasks), None",
)  # fmt: skip
def test_a_measurement_ends_at_its_precision_and_goes_on_within_a_round(
    api: None, server: Server, tmp_path: Path
) -> None:
    """All right: 30 of 60 items do. Half right: all 60, in two rounds, the second broken off."""
    many = tmp_path / "bamboogle"
    many.mkdir()
    rows = "".join(f"What is number {place}?,n{place}\n" for place in range(60))
    (many / "test.csv").write_text(f"Question,Answer\n{rows}")
    known = "execution.benchmark={retries: 0, concurrency: 1}"
    precise = (known, "benchmark.precision=0.05")
    half_known, lost = False, threading.Event()

    def answers(body: JsonObject) -> web.Response:
        if half_known and not lost.is_set() and len(server.bodies) > 40:
            return web.json_response({"error": {"message": "busy"}}, status=503)
        number = int(body["messages"][-1]["content"].partition("number ")[2].partition("?")[0])
        wrong = half_known and number % 2
        return said(f"Final answer: {'no idea' if wrong else f'n{number}'}")

    server.always = answers
    given = {"model": server.url, "model_name": "big"}
    facts = measured(config_of(tmp_path / "r", many, *precise, **given)).facts
    assert (facts["items"], facts["not_run"]) == (30, {"questions": 30})
    assert facts["metrics"]["exact_match"] == 1.0 and len(server.bodies) == 30
    half_known, server.bodies = True, []
    config = config_of(tmp_path / "r", many, *precise, "seed=1", **given)
    with pytest.raises(EngineError, match=r"in a row failed.*503"):
        measured(config)
    lost.set()
    facts = measured(config).facts
    assert (facts["items"], facts["not_run"]) == (60, {})
    assert facts["metrics"]["exact_match"] == 0.5
    found = sql(config, "SELECT count(*), count(DISTINCT item) FROM benchmark_items")
    assert found.row(0) == (60, 60)
    asked = [body["messages"][-1]["content"] for body in server.bodies if body["messages"]]
    assert len(set(asked)) == 60 and len(asked) < 120


def test_a_killed_measurement_goes_on_at_the_item_that_was_cut_off(
    server: Server, data: Path, tmp_path: Path
) -> None:
    stuck, root = threading.Event(), str(tmp_path / "r")

    def slowly(body: JsonObject) -> web.Response:
        if len(server.bodies) > 3:
            stuck.set()
            return web.json_response({"error": {"message": "busy"}}, status=503)
        return right(body)

    server.always = slowly
    command = [
        "eval", "bamboogle", "--data", str(data), "--model", server.url, "--model-name", "big",
        "--root", root, "--json", "--items", "out.jsonl",
        "--set", "execution.benchmark={retries: 50, backoff_seconds: 1, concurrency: 1}",
    ]  # fmt: skip
    child = subprocess.Popen(
        [sys.executable, "-m", "flows.cli.app", *command],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert stuck.wait(BOUND_S)
        until(lambda: any(b.count(b"\n") >= 3 for b in _journals(tmp_path)))
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert not (tmp_path / "out.jsonl").exists()
    server.always, server.bodies = right, []
    done = told(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    asked = [body["messages"][-1]["content"] for body in server.bodies]
    assert len(asked) == 3
    result = json.loads(done.stdout)
    assert result["model"] == {"model": None, "url": server.url, "model_name": "big"}
    assert result["limits"]["temperature"] == 0.0 and result["engine"] is None
    (one,) = result["results"]
    metrics = {metric["name"]: metric for metric in one["metrics"]}
    assert metrics["exact_match"]["value"] == pytest.approx(5 / 6)
    assert metrics["exact_match"]["low"] < 5 / 6 < metrics["exact_match"]["high"]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(line["id"], line["valid"]) for line in lines] == [
        (str(place), place < 5) for place in range(6)
    ]
    # Its verdicts are those that the same answers get as a file of predictions.
    given = [
        {"id": str(place), "key": 0, "prediction": f"Final answer: {answer}"}
        for place, answer in enumerate([*ANSWERS[:5], "no idea"])
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, given)) + "\n")
    scored = told(
        "eval", "bamboogle", "--data", str(data), "--predictions", "p.jsonl", "--json", cwd=tmp_path
    )
    other = json.loads(scored.stdout)
    assert other["data"]["digest"] == result["data"]["digest"]
    assert other["results"][0]["metrics"] == one["metrics"]
    shown = told("resume", result["run_id"], "--root", root, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "reused: everything was there" in shown.stdout and "83.3" in shown.stdout
    with open_tables(open_store(root)) as connection:
        table = written(read_measured(connection))
    assert f"| big at {server.url} |" in table and "83.3 [" in table
    assert "| GenEnv 7B | 79.1 | 54.5 | 41.8 | 76.0 | 16.6 | 53.6 |" in table


def _journals(root: Path) -> Iterator[bytes]:
    for path in root.rglob("attempts.jsonl"):
        yield path.read_bytes()


def test_what_is_measured_stays_through_gc(trained: RunConfig, data: Path) -> None:
    config = config_of(trained.root, data, model="run:measured-run")
    measured(config)
    age(LocalStore(Path(trained.root)))
    done = told("gc", "--root", str(trained.root), "--json", cwd=Path(trained.root))
    assert done.returncode == 0, done.stderr
    assert verify(LocalStore(Path(trained.root))).damaged == []
    history = states(config)
    measured(config)
    assert states(config) == history


BAD = [
    ((), ("--model or --predictions",)),
    (("--model", "m", "--predictions", "p"), ("--model or --predictions",)),
    (("--predictions", "p", "--limit", "3"), ("--limit does nothing beside --predictions",)),
    (("--model", "http://127.0.0.1:1/v1"), ("benchmark.url needs benchmark.model_name: set it",)),
    (("--model", "http://me:key@host/v1", "--model-name", "m"), ("no address like",)),
    (("--model", "m", "--model-name", "n"), ("model_name is of a model behind a URL",)),
    (("--model", "m", "--set", "arm=genenv"), ("arm base",)),
    (("--model", "m", "--set", "benchmark.simulator=x"), ("tools.execution simulated",)),
    (
        ("--model", "http://127.0.0.1:1/v1", "--model-name", "m", "--key-env", "sk-x"),
        ("execution.benchmark.key_env is the name of",),
    ),
]


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_options_are_refused(
    arguments: tuple[str, ...], words: tuple[str, ...], data: Path
) -> None:
    done = CliRunner().invoke(app, ["eval", "bamboogle", "--data", str(data), *arguments])
    assert isinstance(done.exception, ConfigError) and done.exception.exit_status == 2
    for word in words:
        assert word in str(done.exception)
    assert "sk-x" not in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "no/such/folder"), ("benchmark.model no/such/folder", "no such directory")),
        (("--model", "run:nobody"), ("no run 'nobody'",)),
        (("--model", "run:measured-run@9"), ("no such finished epoch", "the last one is 1")),
        (("--model", "m", "--mode", "kind"), ("mode 'kind'", "official")),
        (
            ("--model", "http://127.0.0.1:1/v1", "--model-name", "m", "--key-env", "NO_SUCH"),
            ("NO_SUCH, which is not set",),
        ),
    ],
)
def test_a_model_that_cannot_be_measured_is_refused_before_any_work(
    trained: RunConfig,
    data: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    done = told(
        "eval", "bamboogle", "--data", str(data), "--root", str(trained.root), *arguments,
        cwd=tmp_path,
    )  # fmt: skip
    refused(done, 2, *words)


def test_the_form_makes_the_same_run_as_the_command(trained: RunConfig, data: Path) -> None:
    from flows.deploy.requests import measurement_of
    from flows.preparing import prepare_measurement

    request = BenchmarkRequest.model_validate(
        {
            "benchmark": "bamboogle",
            "model": "run:measured-run",
            "data": str(data),
            "changes": list(SHORT),
            "root": trained.root,
        }
    )
    expected = config_of(trained.root, data, model="run:measured-run")
    assert prepare_measurement(measurement_of(request)).config == expected


def test_pi_env_plays_the_search_where_it_is_asked_to(trained: RunConfig, data: Path) -> None:
    config = config_of(
        trained.root,
        data,
        "domain.options.search=simulated",
        "tools.execution=simulated",
        "benchmark.simulator=run:measured-run",
        "benchmark.items=2",
        model="run:measured-run",
    )
    facts = measured(config).facts
    assert (facts["items"], facts["protocol"]) == (2, {"search": "simulated"})


def test_a_run_measures_its_agent_on_what_is_due(
    begun: Callable[[Path], None], data: Path, tmp_path: Path
) -> None:
    begun(tmp_path / "r")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "bamboogle").symlink_to(data)
    asked = f"measure={{benchmarks: [bamboogle], every: 2, data: {tmp_path / 'all'}, items: 2}}"
    config = tiny(tmp_path / "r", asked, epochs=3, run_id="trains")
    run(config)
    history, found = states(config), _headlines(config)
    names = found["run_id"].to_list()
    assert [name.rpartition("-s0-")[0] for name in names] == [
        "eval-trains-2-bamboogle",
        "eval-trains-3-bamboogle",
    ]
    assert set(found.select("items", "not_run").rows()) == {(2, 4)}
    # The same measurement by hand is the same run.
    by_hand = measurement(
        "bamboogle",
        MeasuringOptions("run:trains", data=str(tmp_path / "all" / "bamboogle"), items=2),
        fields={"root": config.root, **{"compute": config.compute.model_dump(by_alias=True)}},
    )
    from tasks.policies.measured import named

    assert named(by_hand).run_id == names[1]
    again = config.model_copy(update={"measure": config.measure.model_copy(update={"every": 1})})
    run(again)
    assert states(config) == history
    assert _headlines(config).height == 3


def _headlines(config: RunConfig) -> pl.DataFrame:
    with open_tables(open_store(config.root, writable=False)) as connection:
        text = "SELECT run_id, items, not_run FROM benchmarks WHERE headline ORDER BY 1"
        return query(connection, text)


def test_a_run_that_could_not_be_measured_later_is_refused_before_any_work(
    api: None, tmp_path: Path
) -> None:
    config = tiny(
        tmp_path / "r", f"measure={{benchmarks: [bfcl], data: {tmp_path}}}", epochs=1, run_id="x"
    )
    with pytest.raises(ConfigError, match="bfcl"):
        run(config)
    assert manifests(config) == {}


def test_a_key_is_named_beside_other_settings_of_the_endpoint() -> None:
    asked = MeasuringOptions("http://127.0.0.1:1/v1", "m", key_env="KEY")
    config = measurement("bamboogle", asked, overrides=("execution.benchmark.retries=1",))
    asking = config.execution.benchmark
    assert (asking.key_env, asking.retries) == ("KEY", 1)
    assert config.benchmark.attempt_seconds == BENCHMARK.limits.seconds


def test_a_domain_that_is_no_benchmark_cannot_be_measured(trained: RunConfig, data: Path) -> None:
    config = config_of(trained.root, data, model="run:measured-run")
    other = config.model_copy(update={"domain": trained.domain})
    with pytest.raises(ConfigError, match="'desk' is no benchmark"):
        measured(other)


__all__ = ["REPOSITORY", "server"]


ASKED_ONCE = "execution.benchmark={retries: 0, concurrency: 2, backoff_seconds: 0}"
CERTIFIED_TABLES = {
    "certified_sets": "name",
    "set_flaws": "task_id, flaw",
    "scores": "trace_id",
    "trace_tokens": "trace_id",
    "tasks": "task_id",
}
"""Tables of a certificate, and the order of their rows."""


def set_config(root: Path, url: str, *overrides: str, **asked: Any) -> RunConfig:
    from tasks.policies.measured import named

    given = MeasuringOptions(**{"model": url, "model_name": "big", "samples": 4, **asked})
    domain = {"name": "arithmetic"}
    fields = {"root": str(root)}
    return named(
        certification(domain, given, (4, 2), overrides=(ASKED_ONCE, *overrides), fields=fields)
    )


def certificate_of(config: RunConfig) -> JsonObject:
    return dict(measured(config).facts)


def sometimes_right(body: JsonObject) -> web.Response:
    """Answer right by the seed of the request, so that attempts differ and can be repeated."""
    asked = re.findall(r"[0-9 +-]+[0-9]", body["messages"][-1]["content"])[-1]
    numbers = [int(one) for one in asked.replace("- ", "+ -").split("+")]
    return said(str(sum(numbers) + (body["seed"] % 3 == 0)))


def rows_of_set(config: RunConfig) -> dict[str, list[tuple[Any, ...]]]:
    leaves_out = "EXCLUDE (run_id, arm)"
    return {
        table: sql(config, f"SELECT * {leaves_out} FROM {table} ORDER BY {order}").rows()
        for table, order in CERTIFIED_TABLES.items()
    }


@mutation(
    "verdicts of a certified set are not kept with its attempts", "tasks/policies/certifying.py",
    'frame("scores", verdicts_of(with_messages(traces, tokens), by_id, domain))',
    'frame("scores", [])',
)  # fmt: skip
def test_a_certificate_that_was_cut_off_goes_on_and_ends_with_the_same_rows(
    api: None, server: Server, tmp_path: Path
) -> None:
    lost = threading.Event()

    def cut_off(body: JsonObject) -> web.Response:
        if len(server.bodies) > 10 and not lost.is_set():
            return web.json_response({"error": {"message": "busy"}}, status=503)
        return sometimes_right(body)

    short = "rollout.shard_groups=2"
    server.always = sometimes_right
    whole = set_config(tmp_path / "whole", server.url, short)
    facts = certificate_of(whole)
    assert len(server.bodies) == facts["verdicts"] == facts["attempts"] == 24
    assert (facts["tasks"], facts["attempted"], facts["flawed"]) == (6, 6, 0)
    assert states(whole) == [(0, "benchmark", "computed")]
    certificate_of(whole)
    assert len(server.bodies) == 24  # all reused
    server.bodies.clear()
    server.always = cut_off
    broken = set_config(tmp_path / "broken", server.url, short)
    assert str(broken.run_id).startswith("certify-big-arithmetic-s0-")
    with pytest.raises(EngineError, match="503"):
        certificate_of(broken)
    lost.set()
    server.bodies.clear()
    assert certificate_of(broken) == facts
    assert 0 < len(server.bodies) < 24
    found = rows_of_set(broken)
    assert found == rows_of_set(whole)
    names = [row[0] for row in found["certified_sets"]]
    assert {"any_flaw", "unreachable", "reachable", "signal", "chance"} <= set(names)
    right = sum(row[5] for row in found["scores"])
    assert 0 < right < 24
    (headroom,) = [row for row in found["certified_sets"] if row[0] == "headroom"]
    assert headroom[1] == pytest.approx(1 - right / 24) and headroom[4] == 6


def test_an_endpoint_that_refuses_leaves_no_rows(api: None, server: Server, tmp_path: Path) -> None:
    server.always = lambda body: web.json_response(
        {"error": {"message": "who are you"}}, status=401
    )
    config = set_config(tmp_path / "r", server.url)
    with pytest.raises(EngineError, match="401"):
        certificate_of(config)
    assert sql(config, "FROM certified_sets").is_empty()


def test_a_folder_is_attempted_through_its_own_code(server: Server, tmp_path: Path) -> None:
    """The whole command: it names the run, whose rows `genenv sql` has, and reuses all of it."""
    folder = given_away(tmp_path, "verifiers", with_config({"name": "desk"}))[0]
    server.always = lambda body: said("nothing")
    words = [
        *("certify", str(folder), "--model", server.url, "--model-name", "big"),
        *("--samples", "2", "--root", str(tmp_path / "root"), "--page", str(tmp_path / "p.html")),
        *("-o", str(tmp_path / "rows.csv")),
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    asked = len(server.bodies)
    tasks = int(re.findall(r"certifies (\d+) task", done.output)[0])
    assert asked >= 2 * tasks > 0
    assert re.search(rf"attempts {tasks} tasks?, each 2 times: {2 * tasks} attempts", done.output)
    run = re.findall(r"run (certify-big-exported_folder-s0-\w+)", done.output)[0]
    assert (tmp_path / "rows.csv").read_text().startswith("check,estimate,low,high,n,unit,limit,")
    assert "Checks of the attempts" in done.output or "separating" in done.output
    assert "separating" in (tmp_path / "p.html").read_text()
    query = "SELECT count(DISTINCT task_id) FROM set_flaws WHERE set_name = 'generated'"
    told = CliRunner().invoke(
        app, ["sql", query, "--root", str(tmp_path / "root"), "--format", "csv"]
    )
    assert told.output.split()[-1] == str(tasks)
    again = CliRunner().invoke(app, ["resume", run, "--root", str(tmp_path / "root")])
    assert again.exit_code == 0 and "separating" in again.output
    assert len(server.bodies) == asked
