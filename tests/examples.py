"""How many examples a property test plays: few by default, all in `make test-all`."""

from __future__ import annotations

import os

USUAL = 25
ALL = "GENENV_EXAMPLES"
"""The environment variable that asks for every example, with the value `all`."""


def many(examples: int) -> int:
    """Return `examples` where all are asked for, else at most `USUAL`."""
    return examples if os.environ.get(ALL) == "all" else min(examples, USUAL)
