"""What is asked before the first stage of a run (`test_layers.py`: in one place alone).

Invariants: `genenv plan` refuses what `genenv run` refuses, in the same words, and so do a request
of the form and a comparison, before a server is started and before the run is opened; a word that
needs no library is refused before one is loaded; what an update lacks is refused by the plan after
it has shown the needs; a bundle asks nothing of the machine; a root is opened once.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.cli.app import app
from flows.deploy.requests import work_of
from flows.planner import plan_run
from flows.preparing import prepare, prepare_measurement
from genenv_core.config.branching import read_point
from genenv_core.config.load import resolve
from genenv_core.config.request import RunRequest
from genenv_core.config.run_options import RunOptions
from genenv_core.config.until import Until
from genenv_core.domains.arithmetic import Arithmetic
from genenv_core.errors import GenenvError
from genenv_core.storage.store import opening
from genenv_core.storage.store.local import LocalStore
from genenv_core.training.memory import devices
from genenv_core.types import JsonObject
from tests.mutations import mutation
from tests.proof.changes import REPOSITORY
from tests.unit.builders_engine import write_checkpoint
from tests.unit.test_layers import loaded

PREPARING = "flows/preparing.py"

SUMS = f"{REPOSITORY}/docs/examples/sums.py:Sums"

REFUSED = {
    "uploads": (["tracking.upload=true"], "tracking.upload true: only an MLflow server"),
    "work pool": (["placement.rollout=gpu"], "placement.rollout 'gpu' is a work pool of a Prefect"),
    "fault": (["execution.test_fault=rollout:1"], "execution.test_fault 'rollout:1' is for genenv"),
    "GPU": (["compute.device=cuda"], "generate_tasks samples on a GPU (compute.device cuda) and"),
    "benchmark": (["measure.benchmarks=[bfcl]"], "domain.options.data is not set"),
    "memory": (["training.memory_gb=0.001"], "grpo_update: the GRPO update needs about"),
    "measurement": (["arm=base", "benchmark.model=x"], "section benchmark: a model is measured by"),
    "root to read": (["roots.read=[/nowhere]"], "roots.read /nowhere: there is no such directory"),
    "base data": (["data.base_file=/nowhere"], "/nowhere: No such file"),
    "seed data": (
        [f"domain.name={SUMS}"],
        f"models.agent 'bootstrap': domain {SUMS} has no seed data",
    ),
    "model": (["models.agent=/nowhere"], "models.agent /nowhere: no such directory"),
}
"""What a run is refused for: settings, and how the words begin."""

KEYS_ALONE = ("uploads", "work pool", "GPU", "memory", "root to read", "seed data")
"""Those that do not concern what only looks at keys."""


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no server start, and no variable of this machine count."""
    for name in ("PREFECT_API_URL", "GENENV_BENCHMARKS", "GENENV_TEST_FAULTS", "GENENV_ROOT"):
        monkeypatch.delenv(name, raising=False)

    def started(*_: Any) -> None:
        raise AssertionError("a server was started")

    monkeypatch.setattr(devices, "gpus", lambda: [])

    monkeypatch.setattr("flows.running.local_server.LocalServer", started)


def refusal(work: Callable[[], Any]) -> str:
    with pytest.raises(GenenvError) as said:
        work()
    return str(said.value)


def said_by(command: str, settings: list[str], root: Path) -> str:
    words = [word for one in settings for word in ("--set", one)]
    arguments = [command, "tiny", "--root", str(root), *words]
    return refusal(lambda: app(arguments, standalone_mode=False))


@mutation("uploads without a server are found out after the start", PREPARING,
          "    check_tracking(config)\n", "", by="[uploads]")  # fmt: skip
@mutation("a work pool without a server is found out after the start", PREPARING,
          "    if api is None:\n", "    if False:\n", by="[work pool]")  # fmt: skip
@mutation("a fault for tests is found out after the start", PREPARING,
          "    if config.execution.test_fault:\n", "    if False:\n", by="[fault]")  # fmt: skip
@mutation("a benchmark that is not there is found out after the last epoch", PREPARING,
          "        _check_measured(config)\n", "", by="[benchmark]")  # fmt: skip
@mutation("a run takes the section of a measurement", PREPARING,
          "    if config.benchmark.given:\n        raise", "    if False:\n        raise",
          by="[measurement]")  # fmt: skip
@mutation("a domain without examples for tiny models is found out in bootstrap", PREPARING,
          "        _check_seed_data(config, domain)\n", "", by="[seed data]")  # fmt: skip
@mutation("a plan says nothing of memory", "flows/cli/runs/run.py",
          "    prepared.check_memory()\n", "", by="[memory]")  # fmt: skip
@pytest.mark.parametrize("case", REFUSED)
def test_the_plan_and_the_form_refuse_what_a_run_refuses(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, words = REFUSED[case]
    said = said_by("run", settings, tmp_path / "root")
    assert said.startswith(words)
    assert said_by("plan", settings, tmp_path / "root") == said
    config = resolve("tiny", overrides=settings, fields={"root": str(tmp_path / "root")})
    assert refusal(lambda: prepare(config)) == said
    assert not (tmp_path / "root" / "runs").exists()


@mutation("a domain without answers is found out after the first rollouts", PREPARING,
          "        if config.grpo.attribution:\n", "        if False:\n")  # fmt: skip
def test_attribution_of_a_domain_without_answers_is_refused(tmp_path: Path) -> None:
    trails, on = ["domain.name=trails"], {"root": str(tmp_path)}
    asked = resolve("tiny", overrides=[*trails, "grpo.attribution=true"], fields=on)
    said = refusal(lambda: prepare(asked))
    assert said.startswith("grpo.attribution: domain trails has no answer_turns, so P(answer) of")
    prepare(resolve("tiny", overrides=trails, fields=on))


def test_a_request_of_the_form_is_refused_before_the_run_is_opened(tmp_path: Path) -> None:
    request = RunRequest.model_validate(
        {"preset": "tiny", "root": str(tmp_path), "training": {"memory_gb": 0.001}}
    )
    assert refusal(lambda: work_of(request)).startswith(REFUSED["memory"][1])
    request = RunRequest.model_validate(
        {"preset": "tiny", "root": str(tmp_path), "force": "rollout@1"}
    )
    assert "has not finished rollout of epoch 1" in refusal(lambda: work_of(request))
    assert not (tmp_path / "runs").exists()


@mutation("a comparison looks at its first arm alone", "flows/cli/runs/compare.py",
          "{run.arm: run for run in runs}.values()", "runs[:1]")  # fmt: skip
def test_a_comparison_is_refused_for_any_of_its_arms(tmp_path: Path) -> None:
    root = tmp_path / "root"
    words = ["--arms", "base,genenv", "--seeds", "2", "--set", REFUSED["memory"][0][0]]
    asked = ["compare", "tiny", *words, "--root", str(root)]
    said = refusal(lambda: app(asked, standalone_mode=False))
    assert said.startswith(REFUSED["memory"][1])
    assert not (root / "runs").exists()


def test_a_plan_shows_the_needs_before_it_refuses_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said_by("plan", REFUSED["memory"][0], tmp_path / "root")
    shown = capsys.readouterr().out
    assert "memory of grpo_update:" in shown and "bootstrap" in shown


@mutation("a bundle asks for this machine's limits", PREPARING,
          "    if computes:\n        _check_place(config)\n    # No",
          "    _check_place(config)\n    # No")  # fmt: skip
def test_what_only_looks_at_keys_asks_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (10, 10))
    settings = [one for case in KEYS_ALONE for one in REFUSED[case][0]]
    config = resolve("tiny", overrides=settings, fields={"root": str(tmp_path)})
    assert {one.stage for one in plan_run(config)} >= {"bootstrap", "grpo_update"}
    assert "open files: 10" in refusal(lambda: prepare(config))


@mutation("a word is refused once the tables are loaded", PREPARING,
          "from genenv_core.storage.store.protocol import Store\n",
          "from genenv_core.storage.sql import sources as _\n"
          "from genenv_core.storage.store.protocol import Store\n")  # fmt: skip
def test_a_bad_word_is_refused_before_libraries_are_loaded(tmp_path: Path) -> None:
    words = ["run", "tiny", "--root", str(tmp_path / "root"), "--set", "tracking.upload=true"]
    code = f"sys.argv = ['genenv', *{words}]\nfrom flows.cli.app import main\nmain()"
    _, names = loaded(code)
    assert "typer" in names
    assert names & {"prefect", "polars", "pandera", "duckdb", "torch", "transformers"} == set()


@mutation("an option of the form is named as one of the command", PREPARING,
          'f"{options.said_in}{{}}".format', '"--{}".format')  # fmt: skip
@mutation("a run is asked to draw anew what it never drew", PREPARING,
          "    if options.force is None:\n", "    if True:\n")  # fmt: skip
def test_options_are_judged_by_what_the_root_has(tmp_path: Path) -> None:
    config = resolve("tiny", fields={"root": str(tmp_path), "run_id": "a"})
    force = RunOptions(force=Until(stage="rollout", epoch=1))
    assert "has not finished rollout of epoch 1" in refusal(lambda: prepare(config, force))
    options = RunOptions.read(config, None, None, None, "request.")
    branch = RunOptions(options.until, None, read_point("b@1"), "request.")
    assert refusal(lambda: prepare(config, branch)).startswith("request.from b@1: there is no run")


def test_a_measurement_is_refused_as_a_run_is(tmp_path: Path) -> None:
    settings = ["arm=base", "domain.name=bamboogle", f"benchmark.model={tmp_path}"]
    config = resolve("tiny", overrides=settings, fields={"root": str(tmp_path / "root")})
    placed = config.model_copy(
        update={"placement": config.placement.model_copy(update={"benchmark": "gpu"})}
    )
    said = refusal(lambda: prepare_measurement(placed))
    assert said.startswith("placement.benchmark 'gpu' is a work pool")
    assert not (tmp_path / "root").exists()


@mutation("a Prefect API that is away is an error of a library", PREPARING,
          "        with explained(None):\n", "        if True:\n")  # fmt: skip
def test_a_prefect_api_that_is_away_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    def away(config: Any) -> None:
        raise httpx.ConnectError("refused")

    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr("tasks.placement.api.check_placement", away)
    said = said_by("plan", REFUSED["work pool"][0], tmp_path / "root")
    assert said.startswith("the Prefect API at http://127.0.0.1:9/api does not answer: start it")


@mutation("the root is opened by whoever needs it", "genenv_core/storage/store/opening.py",
          "@cache\ndef _opened", "def _opened")  # fmt: skip
def test_a_root_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []

    class Counted(LocalStore):
        def __init__(self, root: Path, *, writable: bool = True) -> None:
            super().__init__(root, writable=writable)
            opened.append(root)

    monkeypatch.setattr(opening, "LocalStore", Counted)
    monkeypatch.chdir(tmp_path)
    app(["plan", "tiny", "--root", "root"], standalone_mode=False)
    assert opened == [tmp_path / "root"]


class Counted(Arithmetic):
    """A domain of one's own that counts how often it is made."""

    made = 0

    def __init__(self, options: JsonObject) -> None:
        super().__init__(options)
        Counted.made += 1


@mutation("a watch opens the domain once more", PREPARING,
          "    with standstills_said(config, domain):\n",
          "    with standstills_said(config):\n")  # fmt: skip
@mutation("a run is prepared with a domain for each check", PREPARING,
          "_check_seed_data(config, domain)\n",
          "_check_seed_data(config, get_domain(config.domain.name, config.domain.options))\n",
          )  # fmt: skip
def test_a_domain_is_opened_once_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that asks it is asked for: base data, examples, answers, lengths, made models."""
    monkeypatch.setattr(Counted, "made", 0)
    base, env = tmp_path / "base.jsonl", tmp_path / "env"
    write_checkpoint(env)
    base.write_text('{"program": "1 + 2"}\n', encoding="utf-8")
    settings = [f"domain.name={__name__}:Counted", f"data.base_file={base}", f"models.env={env}"]
    settings += ["warm_start.steps=2", "grpo.attribution=true"]
    config = resolve("tiny", overrides=settings, fields={"root": str(tmp_path / "root")})
    prepared = prepare(config)
    assert {need.stage for need in prepared.updates} >= {"warm_start", "rwr_update"}
    assert Counted.made == 1
