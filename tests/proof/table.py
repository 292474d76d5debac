"""The slow suites, and which path asks for which: the one table of both.

A slow test is marked `slow`, and its file belongs to one suite, that of the longest path. A changed
path asks for the suites of one row of `ASKED_BY`, the longest that it begins with; a changed test
file asks for its own suite as well. A path that no row names asks for all suites, so that nothing
is left out because it is new.
`tests/unit/test_proof.py` holds the table against the tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Suite:
    """Slow tests of one subject.

    `tests` are files and folders below tests/. A `served` suite waits for servers or workers, which
    have deadlines: it plays in one process, beside a few others of its kind, and a test of it
    that fails is played once more.
    `needs` are make targets that install what the tests use beside `.venv`.
    """

    name: str
    tests: tuple[str, ...]
    served: bool = False
    needs: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the files and folders from the root of the repository."""
        return tuple(f"tests/{test}" for test in self.tests)

    def files(self, root: Path) -> list[str]:
        """Return the test files that are this suite's: below a folder may lie another's."""
        names = sorted(
            file.relative_to(root).as_posix() for file in (root / "tests").rglob("test_*.py")
        )
        return [name for name in names if suite_of(name) == self.name]


def in_turn(files: Iterable[str]) -> list[str]:
    """Return test files in the order in which they are begun: those of BEGUN_FIRST, the rest."""

    def rank(file: str) -> int:
        return next(
            (i for i, path in enumerate(BEGUN_FIRST) if file.startswith(path)), len(BEGUN_FIRST)
        )

    return sorted(files, key=rank)


SUITES = (
    Suite("simulations", ("unit/algorithm",)),
    Suite("benches", ("unit/benches",)),
    Suite("bfcl", ("unit/benchmarks",), needs=("bfcl-backends",)),
    Suite(
        "domains",
        (
            "unit/benchmarks/api_bank/test_api_bank_training.py",
            "unit/benchmarks/bamboogle/test_bamboogle_training.py",
            "unit/benchmarks/travelplanner/test_travelplanner_training.py",
            "unit/config/test_config.py",
            "unit/domains",
            "unit/play",
            "pipeline/test_benchmark_domains.py",
            "pipeline/test_dialogue.py",
            "pipeline/test_domain_example.py",
            "pipeline/test_lost_attempts.py",
            "pipeline/test_sets.py",
            "pipeline/test_trails.py",
        ),
    ),
    Suite("measuring", ("pipeline/test_benchmarks.py",)),
    Suite(
        "files",
        ("unit/exchange", "unit/benchmarks/downloads", "inspect_logs"),
        needs=("inspect",),
    ),
    Suite("sandbox", ("unit/schemas", "unit/storage/sql")),
    Suite("storage", ("unit/storage", "pipeline/test_gc_of_runs.py")),
    Suite("pages", ("unit/view",)),
    Suite("engines", ("unit/engines",)),
    Suite(
        "updates",
        (
            "unit/training",
            "pipeline/test_lora.py",
            "pipeline/test_own_algorithm.py",
            "pipeline/test_warm_start.py",
        ),
    ),
    Suite(
        "crashes",
        (
            "pipeline/test_crash.py",
            "pipeline/test_faults.py",
            "pipeline/test_lost_lease.py",
            "pipeline/test_two_at_once.py",
        ),
    ),
    Suite(
        "commands",
        (
            "unit/flows",
            "unit/report",
            "pipeline/test_branch.py",
            "pipeline/test_bundle.py",
            "pipeline/test_cli.py",
            "pipeline/test_compare.py",
            "pipeline/test_edges.py",
            "pipeline/test_force.py",
            "pipeline/test_limits.py",
            "pipeline/test_reading.py",
            "pipeline/test_views_of_runs.py",
        ),
    ),
    Suite("smollm2", ("pipeline/test_smollm2.py", "pipeline/test_laptop.py"), needs=("smollm2",)),
    # The longest first: several of these play at a time, and what begins last should be short.
    Suite(
        "s3",
        ("unit/storage/s3", "pipeline/test_s3.py", "pipeline/test_shared_root.py"),
        served=True,
    ),
    Suite("view", ("infra/test_view_in_browser.py",), served=True, needs=("browser",)),
    Suite("form", ("infra/test_browser.py",), served=True, needs=("browser",)),
    Suite(
        "placement",
        ("pipeline/test_placement.py", "pipeline/test_placement_s3.py"),
        served=True,
    ),
    Suite("kubernetes", ("infra/test_kubernetes.py",), served=True),
    Suite("alfworld", ("alfworld",), served=True, needs=("alfworld",)),
    Suite(
        "up",
        ("infra/test_up.py", "infra/test_postgresql.py", "pipeline/test_local_server.py"),
        served=True,
    ),
    Suite(
        "tracking",
        ("unit/tasks", "pipeline/test_telemetry.py", "pipeline/test_tracking_remote.py"),
        served=True,
        needs=("otel",),
    ),
    Suite("vllm", ("unit/engines/vllm",), served=True),
)

BEGUN_FIRST = (
    "tests/unit/training/test_training_launch.py",
    "tests/unit/training/test_training_starved.py",
    "tests/unit/domains/openenv/test_openenv_run.py",
    "tests/unit/exchange/test_environments_outside.py",
    "tests/unit/benches/test_bench_gpu.py",
    "tests/pipeline/",
)
"""Files whose tests take long. Begun last, one of them would leave a core idle at the end."""

BY_HAND = ("tests/gpu", "tests/vllm")
"""Slow tests of no suite: those of a GPU (`make test-gpu`), and those that need the environment of
vLLM, which takes 3.3 GB (`make test-vllm`)."""

ALL = tuple(suite.name for suite in SUITES)
NONE: tuple[str, ...] = ()
"""What `make test` plays is enough there."""

WRITING = ("domains", "commands")
"""Where pi_env writes tasks and pi_agent plays them."""

TRAINING_ON = ("domains", "alfworld")
"""Where a benchmark is a domain to train on."""

RUNNING = ("crashes", "commands", "placement", "kubernetes", "up", "form", "tracking", "s3")
"""Where stages run, wherever they run."""

STORING = ("storage", "crashes", "pages", "s3")
"""Where what is stored is written, found again and read."""

ASKED_BY: tuple[tuple[str, tuple[str, ...]], ...] = (
    # What is played and how, and what everything is installed from.
    ("tests/proof/", ALL),
    ("tests/conftest.py", ALL),
    ("tests/examples.py", ALL),
    ("tests/waiting.py", ALL),
    ("tests/same.py", ALL),
    (".ci/", ALL),
    ("Makefile", ALL),
    ("pyproject.toml", ALL),
    ("requirements", ALL),
    ("infra/torch", ALL),
    # Words.
    ("tests/proof/PROVEN", NONE),
    ("docs/", NONE),
    ("docs/examples/", ("domains",)),
    ("README.md", NONE),
    ("CHANGELOG.md", NONE),
    ("CONTRIBUTING.md", NONE),
    ("LICENSE", NONE),
    (".gitignore", NONE),
    (".dockerignore", NONE),
    (".pre-commit-config.yaml", NONE),
    # Tests. A file with slow tests asks for its own suite by itself.
    ("tests/__init__.py", NONE),
    ("tests/unit/", NONE),
    ("tests/unit/builders_", ("sandbox", "storage", "s3", "tracking", "pages")),
    ("tests/unit/benchmarks/", ("bfcl", "alfworld")),
    ("tests/unit/benchmarks/downloads/", NONE),
    ("tests/unit/benchmarks/measuring/", NONE),
    ("tests/unit/domains/", ("domains",)),
    ("tests/unit/engines/", ("engines", "vllm")),
    ("tests/unit/storage/s3/", ("s3",)),
    ("tests/unit/storage/store_contract.py", ("s3",)),
    ("tests/unit/training/", ("updates",)),
    ("tests/unit/view/", ("pages", "view")),
    ("tests/pipeline/test_", NONE),
    (
        "tests/pipeline/",
        ("commands", "crashes", "domains", "measuring", "updates", "placement", "s3", "tracking"),
    ),
    ("tests/hold", ("kubernetes", "placement", "up")),
    ("tests/infra/test_", NONE),
    ("tests/infra/cluster/", ("kubernetes",)),
    ("tests/infra/", ("kubernetes", "up", "form", "view", "placement")),
    ("tests/inspect_logs/", ("files",)),
    ("tests/alfworld/", ("alfworld",)),
    ("tests/bench/", ("benches",)),
    ("tests/mutations/", NONE),
    ("tests/storm/", ("crashes",)),
    ("tests/gpu/", NONE),
    ("tests/vllm/", NONE),
    # Orchestration and the command line.
    ("flows/__init__.py", ALL),
    ("flows/cli/", ("commands",)),
    ("flows/cli/machines/", ("commands", "up", "form", "view")),
    ("flows/cli/data/", ("commands", "files")),
    ("flows/cli/data/writing.py", ("commands", "files", "sandbox")),
    ("flows/view/", ("pages", "view")),
    ("flows/up/", ("up", "form", "kubernetes")),
    ("flows/deploy/", ("placement", "kubernetes", "up", "form")),
    ("flows/running/", RUNNING),
    ("flows/evidence/", ("commands",)),
    ("flows/benchmark.py", ("measuring", "alfworld")),
    ("flows/bundling.py", ("commands",)),
    ("flows/coevolution.py", (*RUNNING, "measuring")),
    ("flows/preparing.py", (*RUNNING, "measuring")),
    ("flows/state.py", (*RUNNING, "updates")),
    ("flows/comparing.py", ("commands",)),
    ("flows/replaying.py", ("commands",)),
    ("flows/shown/", ("commands", "sandbox", "pages")),
    ("flows/shown/prefect_artifacts.py", ("up", "form")),
    ("flows/", RUNNING),
    ("tasks/__init__.py", ALL),
    ("tasks/tracking/", ("tracking",)),
    ("tasks/placement/", ("placement", "kubernetes")),
    ("tasks/placement/task.py", RUNNING),
    ("tasks/policies/", ("updates", "domains")),
    ("tasks/upkeep/", ("storage", "s3")),
    ("tasks/stage/", RUNNING),
    ("tasks/stage/telemetry/", ("tracking",)),
    ("tasks/benchmark.py", ("measuring",)),
    ("tasks/warm_start.py", ("crashes", "commands", "domains", "updates", "smollm2")),
    ("tasks/", ("crashes", "commands", "domains", "updates")),
    # The core.
    ("genenv_core/algorithm/", ("simulations", *WRITING)),
    ("genenv_core/epoch/", WRITING),
    ("genenv_core/epoch/warm_starting.py", (*WRITING, "updates", "smollm2")),
    ("genenv_core/play/", ("domains", "alfworld", "measuring", "pages", "vllm", "smollm2")),
    ("genenv_core/domains/", ("domains",)),
    ("genenv_core/domains/arithmetic.py", ("domains", "smollm2")),
    ("genenv_core/benchmarks/", ("bfcl", "domains", "measuring")),
    ("genenv_core/benchmarks/alfworld/", ("alfworld",)),
    ("genenv_core/benchmarks/training/", TRAINING_ON),
    *(
        (f"genenv_core/benchmarks/{name}/training/", TRAINING_ON)
        for name in ("alfworld", "api_bank", "bamboogle", "bfcl", "travelplanner")
    ),
    ("genenv_core/benchmarks/measuring/", ("measuring", "alfworld")),
    ("genenv_core/benchmarks/downloads/", ("files",)),
    ("genenv_core/plugins.py", ("domains", "measuring", "placement")),
    ("genenv_core/exchange/", ("files",)),
    ("genenv_core/exchange/environments/", ("files", "domains")),
    ("genenv_core/exchange/examples/", ("files", "updates")),
    ("genenv_core/exchange/gguf.py", ("smollm2",)),
    ("genenv_core/bundle/", ("commands",)),
    ("genenv_core/compare/", ("commands", "simulations")),
    ("genenv_core/report/", ("commands", "pages")),
    ("genenv_core/spending/", ("commands",)),
    ("genenv_core/spending/needs.py", ("commands", "updates")),
    ("genenv_core/spending/prompts.py", ("commands", "updates")),
    ("genenv_core/machine/plugin_failures.py", (*RUNNING, "domains", "measuring")),
    ("genenv_core/evidence/", ("commands", "pages")),
    ("genenv_core/config/", ("commands", "placement")),
    ("genenv_core/config/presets/", ("commands", "placement", "domains")),
    ("genenv_core/config/presets/laptop.yaml", ("commands", "domains", "smollm2")),
    ("genenv_core/engines/", ("engines", "domains", "measuring", "vllm", "smollm2")),
    ("genenv_core/training/", ("updates", "benches", "crashes", "smollm2")),
    (
        "genenv_core/training/processes/workers.py",
        ("updates", "benches", "crashes", "smollm2", "domains"),
    ),
    ("genenv_core/storage/", STORING),
    ("genenv_core/storage/records/branches.py", (*STORING, "commands")),
    ("genenv_core/storage/records/draws.py", (*STORING, "commands")),
    ("genenv_core/storage/sql/", ("sandbox", "storage", "pages", "s3", "view")),
    ("genenv_core/storage/store/s3/", ("s3", "placement")),
    ("genenv_core/", RUNNING),
    ("schemas/", ("sandbox", "commands", "pages", "view")),
    # Beyond one machine.
    ("infra/kubernetes/", ("kubernetes",)),
    ("infra/images/", ("kubernetes",)),
    ("infra/prefect.yaml", ("kubernetes", "placement")),
    ("infra/alfworld.lock", ("alfworld",)),
    ("infra/bfcl.lock", ("bfcl",)),
    ("infra/inspect.lock", ("files",)),
    ("infra/otel.lock", ("tracking",)),
    ("infra/smollm2.lock", ("smollm2",)),
    ("infra/", ("kubernetes", "up", "form")),
)


def asked(changed: Iterable[str]) -> dict[str, list[str]]:
    """Return the suites that the changed paths ask for, in the order of the table, with who asks.

    Of the rows that a path begins with, the longest decides.
    """
    asking: dict[str, list[str]] = {name: [] for name in ALL}
    for path in sorted(changed):
        for name in _asked_by(path):
            asking[name].append(path)
    return {name: paths for name, paths in asking.items() if paths}


def suite_of(test: str) -> str | None:
    """Return the name of the suite that a test file belongs to: that of the longest path."""
    fitting = [
        (len(path), suite.name)
        for suite in SUITES
        for path in suite.paths
        if test == path or test.startswith(f"{path}/")
    ]
    return max(fitting)[1] if fitting else None


def named(path: str) -> bool:
    """Return whether a row of the table names the path."""
    return _row(path) is not None


def _row(path: str) -> tuple[str, ...] | None:
    rows = [row for row in ASKED_BY if path.startswith(row[0])]
    return max(rows, key=lambda row: len(row[0]))[1] if rows else None


def _asked_by(path: str) -> set[str]:
    row = _row(path)
    suites = set(ALL if row is None else row)
    own = suite_of(path) if path.rsplit("/", 1)[-1].startswith("test_") else None
    return suites | {own} if own else suites
