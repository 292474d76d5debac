"""Sets environment variables of the tools that genenv starts, before it imports any of them."""

from __future__ import annotations

import os
from pathlib import Path

from genenv_core.errors import ConfigError

ROOT_VARIABLE = "GENENV_ROOT"
"""The root, unless a command or a request names another one."""

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
    # TRL would import MLflow in every training process, for callbacks that genenv does not use.
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",
    # An interrupted run ends at once, and hides the cleanup after it.
    "PYTHONWARNINGS": "ignore:resource_tracker:UserWarning",
}

INLINE = {
    # The terminal belongs to the live view; the log goes to the API and to run.log.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "60",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "genenv",
}


LONGEST = 457
"""Most bytes of a root's path: SQLite opens no file whose path has more than 504, and that of the
deepest file, the scratch copy of MLflow's database, is 47 longer than its root's."""

_URL = "%?"
"""Characters with a meaning in the URLs by which Prefect and MLflow name their databases."""


def check_home(root: Path) -> None:
    """Raise ConfigError if the databases of Prefect and MLflow cannot lie in this folder."""
    place = os.path.realpath(root)  # Path.resolve() fails where links are a circle
    length = len(os.fsencode(place))
    if length > LONGEST:
        raise ConfigError(
            f"the root's path has {length} bytes, and SQLite opens databases in folders of up to "
            f"{LONGEST}: choose a shorter --root than {str(root)[:60]}..."
        )
    if odd := [char for char in _URL if char in place]:
        raise ConfigError(
            f"root {root}: Prefect and MLflow cannot open a database in a folder with "
            f"{' and '.join(odd)} in its path: choose another --root"
        )


LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""This machine's own addresses, as `NO_PROXY` names them."""


def check_working_folder() -> None:
    """Raise ConfigError if the command's working folder is gone."""
    try:
        os.getcwd()
    except OSError as error:
        raise ConfigError(
            f"the working folder cannot be used ({error.strerror}; it was removed or moved, or its "
            "disk is gone): change into a folder that exists, and give the command again"
        ) from error


def past_proxies() -> None:
    """Let every library, here and in child processes, ask this machine's servers directly.

    With HTTP_PROXY and its like alone, urllib, requests, httpx and botocore send a request for
    127.0.0.1 to the proxy, where other servers have that address. Names that are in NO_PROXY
    already stay. Some libraries read the variable in lower case first, others in upper case.
    """
    given = {name: os.environ.get(name, "") for name in ("no_proxy", "NO_PROXY")}
    either = given["no_proxy"] or given["NO_PROXY"]
    for name, value in given.items():
        listed = [part.strip() for part in (value or either).split(",") if part.strip()]
        missing = [address for address in LOOPBACK if address not in listed]
        if "*" not in listed:
            os.environ[name] = ",".join([*listed, *missing])


def quiet() -> None:
    """Keep the libraries' bars and notices off the terminal, unless the environment wants them.

    Some libraries read these variables at their first import, and the probe of a given model
    imports them before all else.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def prepare(root: Path | None = None) -> None:
    """Set the variables that are not set yet; with a root, put Prefect's home under it.

    Raises ConfigError for a root that cannot hold databases.
    """
    if root is not None:
        check_home(root)
    quiet()
    past_proxies()
    for name, value in INLINE.items():
        os.environ.setdefault(name, value)
    if root is not None:
        os.environ.setdefault("PREFECT_HOME", str(root / "prefect"))
