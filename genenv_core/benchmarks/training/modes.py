"""Finds a benchmark's mode of scoring by name."""

from __future__ import annotations

from genenv_core.benchmarks.protocol import Benchmark
from genenv_core.errors import ConfigError
from genenv_core.machine.wrong_values import closest


def mode_of(benchmark: Benchmark, asked: str | None, place: str) -> str:
    """Return the mode of scoring that is asked for, or the benchmark's first one.

    Raises ConfigError, which names the `place` of an unknown one.
    """
    mode = asked or next(iter(benchmark.modes))
    if mode not in benchmark.modes:
        known = "; ".join(f"{one}: {what}" for one, what in benchmark.modes.items())
        raise ConfigError(
            f"{place} {mode!r}: {benchmark.name} has no such mode{closest(mode, benchmark.modes)}; "
            f"it has {known}"
        )
    return mode
