"""Finds a benchmark by name: genenv's own, or one of a package with an entry point of the group.

It loads only the package of the chosen one. An entry point in `genenv.benchmarks` names the
module's `BENCHMARK`.
"""

from __future__ import annotations

from genenv_core.benchmarks.protocol import Benchmark
from genenv_core.errors import ConfigError
from genenv_core.machine.plugin_failures import failures_named
from genenv_core.plugins import BENCHMARKS, check_installed, known_names, point_of


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
