"""Finds a benchmark by name: genenv's own, or one of a package with an entry point of the group.

It loads only the package of the chosen one. An entry point in `genenv.benchmarks` names the
module's `BENCHMARK`.
"""

from __future__ import annotations

from pathlib import Path

from genenv_core.benchmarks.protocol import Benchmark, PlayableSuite
from genenv_core.errors import ConfigError
from genenv_core.machine.plugin_failures import failures_named
from genenv_core.plugins import BENCHMARKS, check_installed, known_names, point_of

SUITE = ("items", "digest", "composites", "judge", "measures", "playable")
"""The parts of a suite."""


def known_benchmarks() -> list[str]:
    """Return the names that `get_benchmark` accepts, sorted; raises ConfigError without any."""
    check_installed(BENCHMARKS)
    return known_names(BENCHMARKS)


def get_benchmark(name: str) -> Benchmark:
    """Return the benchmark of this name; genenv's own wins over another one of the same name.

    Raises ConfigError for an unknown name, and for one whose object does not load or is no
    benchmark.
    """
    point = point_of(BENCHMARKS, name, "benchmark")
    with failures_named("benchmark", name, point):
        found: object = point.load()
    if not isinstance(found, Benchmark):
        raise ConfigError(
            f"benchmark {name!r}: {point.value} is a {type(found).__name__} and has to be a "
            "Benchmark of genenv_core.benchmarks.protocol"
        )
    if found.name != name:
        raise ConfigError(
            f"benchmark {name!r}: {point.value} calls itself {found.name!r}: give it one name"
        )
    return found


def suite_of(benchmark: Benchmark, folder: Path) -> PlayableSuite:
    """Return a benchmark's items and scorer, as its `load` reads them from a download.

    Raises what `load` raises, and ConfigError where it returns something that is no suite.
    """
    found = benchmark.load(folder)
    lacking = [part for part in SUITE if not hasattr(found, part)]
    if lacking:
        raise ConfigError(
            f"benchmark {benchmark.name!r}: load returned a {type(found).__name__} without "
            f"{', '.join(lacking)}: write what Suite and PlayableSuite of "
            "genenv_core.benchmarks.protocol have"
        )
    return found
