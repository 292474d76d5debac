"""Names a run in MLflow, whose services take fewer characters than the configuration.

An experiment may have a slash in its name (`team/grpo`), a registered model may not. Authors choose
the keys of options and request fields freely, but MLflow restricts the names of parameters.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from genenv_core.canonical import sha256

LONGEST = 250
"""Characters of a parameter's name (mlflow.utils.validation)."""

_NOT_IN_MODELS = re.compile(r"[^\w .()+=@-]")
_NOT_IN_PARAMETERS = re.compile(r"[^\w ./:-]")


def model_name(experiment: str, policy: str) -> str:
    """Return the registered model of a policy: `team/grpo` has the model `team-grpo-agent`.

    MLflow refuses `/` and `:`, and a quotation mark would end the text of a search.
    """
    name = _NOT_IN_MODELS.sub("-", experiment)
    return f"{'-' + name[1:] if name.startswith('..') else name}-{policy}"


def parameter_names(given: Iterable[str]) -> dict[str, str]:
    """Return each name with the name that MLflow takes for it; no two of these are equal."""
    names: dict[str, str] = {}
    for name in sorted(given, key=lambda one: (one != _fitted(one), one)):
        fitted = _fitted(name)
        if fitted in names.values():
            fitted = f"{fitted[: LONGEST - 9]}-{sha256(name.encode())[:8]}"
        names[name] = fitted
    return names


def _fitted(name: str) -> str:
    fitted = _NOT_IN_PARAMETERS.sub("_", name)
    if posixpath.normpath(fitted) != fitted or fitted.startswith(("..", "/")):  # no path of its own
        fitted = fitted.replace("/", "_")
    return fitted[:LONGEST]
