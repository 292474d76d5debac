"""Finding a benchmark by name; only the chosen one's package is loaded."""

from __future__ import annotations

from importlib import import_module

from genenv_core.benchmarks.protocol import Benchmark
from genenv_core.errors import ConfigError

_PACKAGES = {
    "alfworld": "genenv_core.benchmarks.alfworld",
    "api_bank": "genenv_core.benchmarks.api_bank",
    "bamboogle": "genenv_core.benchmarks.bamboogle",
    "bfcl": "genenv_core.benchmarks.bfcl",
    "travelplanner": "genenv_core.benchmarks.travelplanner",
}


def known_benchmarks() -> list[str]:
    """Return the names that `get_benchmark` accepts, sorted."""
    return sorted(_PACKAGES)


def get_benchmark(name: str) -> Benchmark:
    """Return the benchmark of this name; raises ConfigError for any other."""
    if name not in _PACKAGES:
        raise ConfigError(f"benchmark {name!r} is unknown; known: {', '.join(known_benchmarks())}")
    benchmark: Benchmark = import_module(_PACKAGES[name]).BENCHMARK
    return benchmark
