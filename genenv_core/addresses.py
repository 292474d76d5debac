"""Makes addresses for people: pages of `genenv view`, and the root of a command."""

from __future__ import annotations

import os
import shlex
from urllib.parse import quote

VIEW_VARIABLE = "GENENV_VIEW_URL"
"""Where people open `genenv view`; `genenv up` sets it for its worker."""

DEFAULT_ROOT = "./genenv-data"


def at_root(root: str) -> str:
    """Return the option that names a root in a shown command; '' for the default root."""
    return "" if root == DEFAULT_ROOT else f" --root {shlex.quote(root)}"


def page_of(run: str, *below: object, base: str | None = None) -> str:
    """Return the address of a run's page, or of one below it; '' without a view.

    Without `base`, the view is the one that the environment names.
    """
    base = os.environ.get(VIEW_VARIABLE, "") if base is None else base
    return base + path_of(run, *below) if base else ""


def path_of(run: str, *below: object) -> str:
    """Return the path of a run's page in a view, or of one below it, with escaped names."""
    return "".join(f"/{quote(str(part), safe='')}" for part in ("runs", run, *below))
