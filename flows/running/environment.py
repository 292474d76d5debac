"""Environment variables of the tools that genenv starts; set before any of them is imported."""

from __future__ import annotations

import os
from pathlib import Path

ROOT_VARIABLE = "GENENV_ROOT"
"""Where everything is kept, unless a command or a request says otherwise."""

MLFLOW_VARIABLE = "GENENV_MLFLOW_URL"
"""Where people open MLflow; `genenv up` sets it for its worker."""

QUIET = {
    # No tool sends telemetry.
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Libraries write to a terminal only through genenv.
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    # An interrupted run ends at once; the cleanup after it need not be shown.
    "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning",
}

INLINE = {
    # The terminal belongs to the live view; the log goes to the API and to run.log.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "60",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "genenv",
}


def prepare(root: Path | None = None) -> None:
    """Set the variables that are not set yet; with a root, Prefect's home lies under it."""
    for name, value in {**QUIET, **INLINE}.items():
        os.environ.setdefault(name, value)
    if root is not None:
        os.environ.setdefault("PREFECT_HOME", str(root / "prefect"))
