"""What a person asks for beside a configuration; it belongs to the command, not to the run."""

from __future__ import annotations

from dataclasses import dataclass

from genenv_core.config.branching import BranchPoint
from genenv_core.config.schema import RunConfig
from genenv_core.config.until import Until, read_forced, read_until


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where a run begins and ends, and what it draws anew.

    Args:
        until: the last stage to carry out; None: the run's last one.
        force: a stage to draw anew, or None.
        point: where the run branches off from another one, or None.
        said_in: what stands before the name of an option in errors: `--`, or the field of a form.
    """

    until: Until | None = None
    force: Until | None = None
    point: BranchPoint | None = None
    said_in: str = "--"

    @classmethod
    def read(
        cls,
        config: RunConfig,
        until: str | None,
        force: str | None,
        point: BranchPoint | None,
        said_in: str = "--",
    ) -> RunOptions:
        """Return what these texts ask for; raises ConfigError."""
        return cls(
            read_until(until, config, f"{said_in}until") if until else None,
            read_forced(force, config, f"{said_in}force") if force else None,
            point,
            said_in,
        )


NO_OPTIONS = RunOptions()
