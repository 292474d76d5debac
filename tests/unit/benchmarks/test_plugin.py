"""A benchmark of another package (plugin.py), registered by its metadata alone.

Invariants: it is known, accepted by the configuration and offered to people beside genenv's own;
it scores predictions as it says; its domain is sound; a package without pinned addresses has
nothing to fetch; what is no benchmark, has another name, reads no suite or has no domain, is
refused by name.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core.benchmarks.downloads.sources import source_of
from genenv_core.benchmarks.measuring.request import MeasuringOptions, measurement
from genenv_core.benchmarks.registry import get_benchmark, known_benchmarks, suite_of
from genenv_core.config.load import resolve
from genenv_core.domains.registry import get_domain, modules_of
from genenv_core.errors import ConfigError
from genenv_core.play.checking.domain_checks import check_shortly
from genenv_core.plugins import BENCHMARKS, DOMAINS
from tests.mutations import mutation
from tests.unit.benchmarks.plugin import BENCHMARK
from tests.unit.plugged import write_package

HERE = "tests.unit.benchmarks.plugin"
POINTS = {
    BENCHMARKS: {"backwards": f"{HERE}:BENCHMARK"},
    DOMAINS: {"backwards": f"{HERE}:Backwards"},
}
REGISTRY = "genenv_core/benchmarks/registry.py"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return its download, with the package on sys.path."""
    monkeypatch.syspath_prepend(write_package(tmp_path / "package", POINTS))
    (tmp_path / "backwards").mkdir()
    (tmp_path / "backwards" / "words.txt").write_text("genenv lark swim\n")
    return tmp_path / "backwards"


def test_it_is_one_of_the_benchmarks(data: Path) -> None:
    assert "backwards" in known_benchmarks() and get_benchmark("backwards") is BENCHMARK
    wanted = resolve("tiny", overrides=["measure.benchmarks=[bfcl, backwards]"])
    assert wanted.measure.benchmarks == ("bfcl", "backwards")
    config = measurement("backwards", MeasuringOptions("./m", data=str(data)))
    assert (config.domain.name, config.rollout.max_tokens) == ("backwards", 32)


def test_without_its_package_it_is_unknown() -> None:
    words = r"'backwards' is unknown; known: alfworld, .*in genenv\.benchmarks\)"
    for ask in (
        lambda: get_benchmark("backwards"),
        lambda: resolve("tiny", overrides=["measure.benchmarks=[backwards]"]),
    ):
        with pytest.raises(ConfigError, match=words):
            ask()


@pytest.mark.parametrize(
    ("item", "prediction", "valid"),
    [("0", " vneneg\n", True), ("1", "lark", False), ("2", "", False), ("2", ["miws"], False)],
)
def test_its_verdicts(data: Path, item: str, prediction: object, valid: bool) -> None:
    found = get_benchmark("backwards").load(data).judge(item, prediction, "official")
    assert (found.valid, found.score) == (valid, float(valid))


def test_predictions_are_scored_by_the_command(data: Path, tmp_path: Path) -> None:
    given = tmp_path / "p.jsonl"
    given.write_text('{"id": "0", "prediction": "vneneg"}\n{"id": "2", "prediction": "swim"}\n')
    command = ["eval", "backwards", "--data", str(data), "--predictions", str(given), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)["results"]
    assert [(one["name"], one["value"]) for one in result["metrics"]] == [("right", 0.5)]


@pytest.mark.parametrize("command", ["fetch", "check"])
def test_its_data_is_brought_by_hand_and_can_be_checked(
    data: Path, command: str, tmp_path: Path
) -> None:
    assert source_of("backwards").parts == ()
    folder = ["--to", str(tmp_path)] if command == "fetch" else ["--data", str(data)]
    done = CliRunner().invoke(app, ["data", command, "backwards", *folder])
    assert done.exit_code == 0, done.output
    assert ("bring its data yourself" if command == "fetch" else "long: 1 items") in done.output


def test_its_domain_is_sound_and_its_module_counts(data: Path) -> None:
    domain = get_domain("backwards", {"data": str(data)})
    check_shortly(domain, base=100, heldout=50)  # as many as `genenv domain check` draws
    assert set(modules_of("backwards", domain)) == {HERE}


@mutation(
    "anything may be a benchmark", REGISTRY,
    "if not isinstance(found, Benchmark):", "if False:", by="[no-benchmark]",
)  # fmt: skip
@mutation(
    "a benchmark is called as it likes", REGISTRY,
    "    if found.name != name:", "    if False:", by="[another-name]",
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("broken", f"{HERE}:load", "is a function and has to be a Benchmark"),
        ("forwards", f"{HERE}:BENCHMARK", "calls itself 'backwards'"),
        ("gone", "no_such_module:BENCHMARK", "Python finds no module 'no_such_module'"),
    ],
    ids=["no-benchmark", "another-name", "gone"],
)
def test_what_is_none_is_refused_by_name(
    name: str, value: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(write_package(tmp_path, {BENCHMARKS: {name: value}}))
    with pytest.raises(ConfigError, match=f"benchmark '{name}': .*{words}"):
        get_benchmark(name)


@mutation("a benchmark without verdicts is a suite", REGISTRY, "    if lacking:", "    if False:")
def test_what_load_returns_has_to_be_a_suite(data: Path) -> None:
    assert suite_of(BENCHMARK, data).items == {"0": "long", "1": "short", "2": "short"}
    broken = replace(BENCHMARK, load=lambda _: {"0": "long"})  # type: ignore[arg-type]
    words = "'backwards': load returned a dict without digest, composites, judge, measures, playabl"
    with pytest.raises(ConfigError, match=words):
        suite_of(broken, data)


@mutation(
    "a benchmark that no model can attempt is called an unknown domain",
    "genenv_core/benchmarks/measuring/request.py", "if name not in known_domains():", "if False:",
)  # fmt: skip
def test_a_benchmark_without_a_domain_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {BENCHMARKS: POINTS[BENCHMARKS]}
    monkeypatch.syspath_prepend(write_package(tmp_path, points))
    with pytest.raises(ConfigError, match=r"has no domain, .*in genenv\.domains; `genenv eval"):
        measurement("backwards", MeasuringOptions("./m", data=str(tmp_path)))
