"""Says why a run stops at a limit: which one, what it spent, what is left, how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genenv_core.addresses import at_root
from genenv_core.config.load import run_name
from genenv_core.config.schema import RunConfig
from genenv_core.spending.spent import Reached, Spent, plain


def facts_of(
    config: RunConfig, limits: Sequence[Reached], spent: Spent, left: Sequence[tuple[int, str]]
) -> dict[str, Any]:
    """Return the reason as JSON values; `left` are the unfinished (epoch, stage), in order."""
    return {
        "limits": [one.model_dump() for one in limits],
        "spent": spent.model_dump(),
        "stages_left": len(left),
        "next": "{1} of epoch {0}".format(*left[0]) if left else "",
        "go_on": goes_on(run_name(config, "run"), config.root, limits),
    }


def said_of(limits: Sequence[Reached], left: Sequence[tuple[int, str]]) -> str:
    """Return in a sentence why a run stops and what is left, from measurements alone."""
    if not left:
        return f"{listed(limits)}; measurements are left"
    epoch, stage = left[0]
    many = f"{len(left)} stages are" if len(left) > 1 else "1 stage is"
    return f"{listed(limits)}; {many} left, from {stage} of epoch {epoch} on"


def listed(limits: Sequence[Reached]) -> str:
    """Return the reached limits, joined by commas."""
    return ", ".join(map(str, limits))


def goes_on(run: str, root: str, limits: Sequence[Reached]) -> str:
    """Return the command that continues a run with higher limits."""
    higher = "".join(f" --set limits.{one.limit}={plain(one.higher)}" for one in limits)
    return f"genenv resume {run}{at_root(root)}{higher}"
