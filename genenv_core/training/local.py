"""The Trainer that runs in this process."""

from __future__ import annotations

from collections.abc import Callable

from genenv_core.training.base import GrpoRequest, RwrRequest, UpdateResult


class LocalTrainer:
    """Computes updates in this process, one at a time; see `genenv_core.training.base.Trainer`."""

    def __init__(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Make a trainer whose updates end at the next optimizer step once `stop` returns True."""
        self._stop = stop

    def grpo(self, request: GrpoRequest) -> UpdateResult:
        """Return the agent after one GRPO update, saved in `request.output` (with tokenizer)."""
        # Imported late: torch and TRL cost ten seconds, which a run full of cache hits never needs.
        from genenv_core.training.grpo import run_grpo

        return run_grpo(request, self._stop)

    def rwr(self, request: RwrRequest) -> UpdateResult:
        """Return pi_env after one RWR update, saved in `request.output` (with tokenizer)."""
        from genenv_core.training.rwr import run_rwr

        return run_rwr(request, self._stop)
