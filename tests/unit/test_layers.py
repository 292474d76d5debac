"""Layers and light imports.

Invariants: flows -> tasks -> genenv_core + schemas, never back, and no module imports another in a
circle, not even inside a function or by way of its package; the rooms of the storage import only
the rooms before them, and the scorers of benchmarks only words, errors and how names are found;
genenv_core and schemas import neither prefect nor mlflow, tasks no mlflow and no SDK of
OpenTelemetry at import; only modules that sample or train import torch, and packages that need it,
at load; no relative imports (the code version follows absolute ones); help, validation, the
algorithm and the tables load neither torch nor prefect nor mlflow; what is asked before a run is
asked by one module.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.mutations import mutation
from tests.waiting import BOUND_S

REPOSITORY = Path(__file__).parents[2]
LAYERS = {
    "flows": {"flows", "tasks", "genenv_core", "schemas"},
    "tasks": {"tasks", "genenv_core", "schemas"},
    "genenv_core": {"genenv_core", "schemas"},
    "schemas": {"genenv_core", "schemas"},
}
CORE_FOR_SCHEMAS = ("genenv_core.types", "genenv_core.errors")
"""All that `schemas` may take from the core: words and errors, no behaviour."""

CORE_FOR_BENCHMARKS = (
    "genenv_core.types",
    "genenv_core.errors",
    "genenv_core.plugins",
    "genenv_core.machine.plugin_failures",
    "genenv_core.domains.kit.marked_answers",
)
"""The same for the scorers of benchmarks, which know neither engines nor storage."""

BESIDE_SCORERS = re.compile(
    r"genenv_core\.benchmarks\.(\w+\.training|training|measuring|downloads)\b"
)
"""The rooms of the wing that are no scorers: where one trains, measures and downloads."""

SOURCES = "genenv_core.benchmarks.downloads.sources"
"""Plain data of what a download is made of, which a benchmark's module `source` fills in."""

STORAGE_ROOMS = ("store", "records", "upkeep", "sql")
"""The rooms of `genenv_core.storage`, in order; a module beside them knows none of them."""

EXTENDS_MLFLOW = "tasks.tracking.references"
"""Subclasses of MLflow's own, which functions import."""

SENDS_SPANS = "tasks.stage.telemetry.sending"
"""All of OpenTelemetry's SDK, which functions import."""

ELSEWHERE = (
    "genenv_core.exchange.environments.openenv_app",
    "genenv_core.exchange.environments.verifiers_tasks",
)
"""Modules that travel in an export, and import what is installed where it is played."""

HEAVY = {"torch", "transformers", "trl", "vllm", "accelerate", "peft", "datasets", "safetensors"}
MODELS = ("genenv_core.engines.", "genenv_core.training.")
"""Where models are sampled and trained; `LIGHT` within it must still load without torch."""

LIGHT = (
    "genenv_core.engines.protocol",
    "genenv_core.engines.adapters",
    "genenv_core.training.requests",
    "genenv_core.training.grpo.advantages",
    "genenv_core.training.updates.algorithm",
    "genenv_core.training.updates.table",
    "genenv_core.training.memory.estimate",
    "genenv_core.training.processes.launch",
    "genenv_core.spending.needs",
)


def module_of(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    return {
        module_of(path): ast.parse(path.read_text(encoding="utf-8"))
        for layer in LAYERS
        for path in sorted((REPOSITORY / layer).rglob("*.py"))
    }


def imports(tree: ast.AST, *, at_load: bool = False) -> Iterator[tuple[str, int]]:
    """Yield each imported name and its line; `at_load` skips functions and type checking."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or ""), node.lineno
            for alias in node.names:
                yield "." * node.level + f"{node.module}.{alias.name}", node.lineno
        elif at_load and (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        ):
            continue
        else:
            yield from imports(node, at_load=at_load)


def offences(layer: str, allowed: set[str] | None, banned: set[str], *, at_load: bool) -> list[str]:
    found: list[str] = []
    for module, tree in modules().items():
        if module.split(".")[0] != layer:
            continue
        for name, line in imports(tree, at_load=at_load):
            top = name.split(".")[0]
            if top in banned or (allowed is not None and top in LAYERS and top not in allowed):
                found.append(f"{module}:{line} imports {name}")
    return found


def test_the_walk_sees_the_code() -> None:
    known = {name for name, _ in imports(modules()["tasks.placement.task"])}
    assert {"prefect.task", "genenv_core.storage.records.keys", "functools"} <= known
    late = ast.parse("import a\ndef f():\n    import b\nclass C:\n    import c\n")
    assert [name for name, _ in imports(late)] == ["a", "b", "c"]
    assert [name for name, _ in imports(late, at_load=True)] == ["a", "c"]
    for layer in LAYERS:
        assert sum(module.split(".")[0] == layer for module in modules()) > 5


@pytest.mark.parametrize("layer", LAYERS)
def test_no_layer_looks_back(layer: str) -> None:
    assert offences(layer, LAYERS[layer], {"tests"}, at_load=False) == []


def loaded_by(name: str, module: str) -> Iterator[str]:
    """Yield what Python loads for an import in a module: first the packages around what it names.

    Those around the module itself are at work already.
    """
    parts = name.split(".")
    for count in range(1, len(parts)):
        package = ".".join(parts[:count])
        if not module.startswith(f"{package}.") and module != package:
            yield package
    yield name


def test_modules_import_one_another_in_no_circle() -> None:
    known = modules()
    graph = {
        name: {m for n, _ in imports(tree) for m in loaded_by(n, name)} & known.keys()
        for name, tree in known.items()
    }
    assert sum(map(len, graph.values())) > 500
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_rooms_of_the_storage_know_only_the_rooms_before_them() -> None:
    order = {room: place for place, room in enumerate(STORAGE_ROOMS, start=1)}

    def room(module: str) -> str:
        rest = module.removeprefix("genenv_core.storage.")
        return rest.split(".")[0] if rest != module else ""

    assert {room(name) for name in modules()} >= order.keys()
    found = [
        f"{module}:{line} imports {name}"
        for module, tree in modules().items()
        if module.startswith("genenv_core.storage.")
        for name, line in imports(tree)
        if order.get(room(name), 0) > order.get(room(module), 0)
    ]
    assert found == []


@pytest.mark.parametrize("layer", ["genenv_core", "schemas"])
def test_core_and_tables_know_neither_prefect_nor_mlflow(layer: str) -> None:
    assert offences(layer, None, {"prefect", "mlflow"}, at_load=False) == []


@pytest.mark.parametrize("layer", ["flows", "tasks", "schemas"])
def test_torch_is_not_loaded_outside_of_the_core(layer: str) -> None:
    assert offences(layer, None, HEAVY, at_load=True) == []


@pytest.mark.parametrize(
    ("library", "only"), [("mlflow", EXTENDS_MLFLOW), ("opentelemetry", SENDS_SPANS)]
)
def test_what_few_need_is_loaded_only_when_it_is_used(library: str, only: str) -> None:
    at_load = {
        module: {name for name, _ in imports(tree, at_load=True)}
        for module, tree in modules().items()
    }
    first = {module: {n.split(".")[0] for n in names} for module, names in at_load.items()}
    assert [module for module, names in first.items() if library in names] == [only]
    assert [module for module, names in at_load.items() if only in names] == []


def test_torch_is_loaded_only_where_models_are_sampled_or_trained() -> None:
    found = [
        f"{module}:{line} imports {name}"
        for module, tree in modules().items()
        for name, line in imports(tree, at_load=True)
        if name.split(".")[0] in HEAVY and (not module.startswith(MODELS) or module in LIGHT)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("package", "known"),
    [
        ("schemas", CORE_FOR_SCHEMAS),
        ("genenv_core.benchmarks", CORE_FOR_BENCHMARKS),
    ],
)
def test_what_others_may_import_alone_takes_little_from_the_core(
    package: str, known: tuple[str, ...]
) -> None:
    found = [
        f"{module}:{line} imports {name}"
        for module, tree in modules().items()
        if f"{module}.".startswith(f"{package}.") and not BESIDE_SCORERS.match(module)
        for name, line in imports(tree)
        if f"{name}.".startswith(("genenv_core.", "schemas."))
        and (
            not f"{name}.".startswith((f"{package}.", *(f"{one}." for one in known)))
            or (BESIDE_SCORERS.match(name) and not f"{name}.".startswith(f"{SOURCES}."))
        )
    ]
    assert found == []


ASKS = "flows.preparing"
ASKED_BEFORE_A_RUN: dict[str, set[str]] = {
    "genenv_core.machine.allowances.check_allowances": set(),
    "genenv_core.exchange.examples.given.warm_start_input": set(),
    "genenv_core.exchange.external.given_to": set(),
    "genenv_core.exchange.external.offline_input": {"flows.epoch"},
    "genenv_core.exchange.external.probes_of": set(),
    "genenv_core.exchange.external.teacher_input": {"flows.epoch"},
    "genenv_core.benchmarks.measuring.items.check_categories": set(),
    "genenv_core.play.checking.domain_checks.check_shortly": set(),
    "genenv_core.storage.records.branches.find_branch": set(),
    "genenv_core.storage.records.draws.next_draws": set(),
    "genenv_core.storage.records.readers.check_readers": set(),
    "genenv_core.storage.sql.sources.look_at_runs": set(),
    "genenv_core.spending.needs.check_needs": set(),
    "genenv_core.spending.needs.needs": set(),
    "tasks.placement.api.check_placement": set(),
    "tasks.policies.measured.endpoint_of": set(),
    "tasks.policies.measured.model_of": set(),
    "tasks.tracking.client.check_tracking": set(),
}
"""What `ASKS` asks -> which other modules of flows and tasks may.

An epoch reads the files of its arm anew, because their content is in the keys of its stages.
"""


@mutation(
    "a flow asks for itself what a run needs", "flows/coevolution.py",
    "from tasks.publish import PublishInputs, publish\n",
    "from tasks.placement.api import check_placement\n"
    "from tasks.publish import PublishInputs, publish\n",
)  # fmt: skip
def test_what_is_asked_before_a_run_is_asked_in_one_place() -> None:
    found: dict[str, set[str]] = {name: set() for name in ASKED_BEFORE_A_RUN}
    for module, tree in modules().items():
        for name, _ in imports(tree):
            if name in found and module.startswith(("flows.", "tasks.")):
                found[name].add(module)
    assert found == {name: {ASKS, *others} for name, others in ASKED_BEFORE_A_RUN.items()}


OPEN_ANEW = {
    "flows.cli.machines.doctor",  # tries what the root can do
    "flows.cli.machines.up",
    "flows.cli.options",  # to look, without writing
    "flows.cli.upkeep",  # the other root of a copy
    "flows.view.serve",
    "tasks.tracking.references",
}
"""Who opens a store of its own; all others take the one that this process has open."""


@mutation(
    "a flow opens the root anew", "tasks/stage/stores.py",
    "import open_once, place_of\n", "import open_once, place_of, open_store as open_store\n",
)  # fmt: skip
def test_a_root_is_opened_by_few() -> None:
    found = {
        module
        for module, tree in modules().items()
        for name, _ in imports(tree)
        if name == "genenv_core.storage.store.opening.open_store"
    }
    assert {name for name in found if name.startswith(("flows.", "tasks."))} == OPEN_ANEW


def test_there_are_no_relative_imports() -> None:
    found = [
        f"{module}:{line}"
        for module, tree in modules().items()
        for name, line in imports(tree)
        if name.startswith(".")
    ]
    assert found == []


def loaded(code: str) -> tuple[str, set[str]]:
    """Run code in a new process; returns its output and the packages that it loaded."""
    script = (
        "import contextlib, io, json, sys\n"
        "with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):\n"
        + "".join(f"    {line}\n" for line in code.splitlines())
        + "print(json.dumps([out.getvalue(), sorted(n for n in sys.modules if '.' not in n)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=BOUND_S,
        check=True,
    )
    output, names = json.loads(done.stdout.splitlines()[-1])
    return output, set(names)


WEIGHTY = HEAVY | {"prefect", "mlflow"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("sys.argv = ['genenv', '--help']", "co-evolves"),
        ("sys.argv = ['genenv', 'run', '--help']", "--epochs"),
        ("sys.argv = ['genenv', 'config', 'validate', 'tiny']", "tiny is valid"),
    ],
    ids=["help", "run-help", "validate"],
)
def test_the_command_line_answers_without_torch_prefect_or_tables(code: str, expected: str) -> None:
    output, names = loaded(f"{code}\nfrom flows.cli.app import main\nmain()")
    assert expected in output
    assert "typer" in names
    assert names & (WEIGHTY | {"polars", "pandera", "duckdb"}) == set()


def test_algorithm_tables_and_storage_load_neither_torch_nor_prefect() -> None:
    light = [
        name
        for name in modules()
        if name.startswith(("genenv_core.", "schemas."))
        and (not name.startswith(MODELS) or name in LIGHT)
        and name not in ELSEWHERE
    ]
    assert len(light) > 40
    _, names = loaded("\n".join(f"import {name}" for name in light))
    assert {"polars", "pydantic"} <= names
    assert names & WEIGHTY == set()


@mutation(
    "a flow of a worker draws charts from the beginning", "flows/comparing.py",
    "from genenv_core.compare.judging import judge\n",
    "from genenv_core.compare.claim import claim as claim\n"
    "from genenv_core.compare.judging import judge\n",
)  # fmt: skip
@mutation(
    "a run begins DuckDB's thread with its imports", "genenv_core/report/__init__.py",
    "(`charts`) and laid out (`page`).\"\"\"\n",
    "(`charts`) and laid out (`page`).\"\"\"\n\nimport genenv_core.report.data as data\n",
)  # fmt: skip
def test_tasks_and_flows_load_without_torch_mlflow_and_matplotlib() -> None:
    wanted = {name for name in modules() if name.startswith("tasks.")} - {EXTENDS_MLFLOW}
    wanted |= {"flows.deploy.deployed", "flows.deploy.stage_on_pool"}
    first = "import flows.coevolution\nprint('duckdb' in sys.modules)\n"
    output, names = loaded(first + "\n".join(f"import {name}" for name in sorted(wanted)))
    assert output == "False\n"  # its import begins a thread, which no fork has
    assert "prefect" in names
    assert names & (HEAVY | {"mlflow", "matplotlib"}) == set()


@mutation(
    "a run's server waits for the tables", "flows/running/server_program.py",
    "import threading\nimport time\n", "import threading\nimport time\nimport schemas.registry\n",
)  # fmt: skip
def test_a_server_loads_nothing_else_of_ours() -> None:
    _, names = loaded("import flows.running.server_program")
    assert names & (WEIGHTY | {"polars", "pandas", "pydantic", "schemas", "tasks"}) == set()
