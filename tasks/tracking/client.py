"""Reaches MLflow: a database under the root, or a server elsewhere that may be away.

genenv sends each request to a server once, because MLflow's own retries would make a thing twice
when the first answer got lost. It looks each thing up before it makes it.
"""

# MLflow's client has few types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import logging
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.tracking import user_of
from genenv_core.errors import ConfigError, one_line
from genenv_core.machine.shortage import shortage
from genenv_core.storage.store.opening import home_of
from tasks.tracking.database import create_database, database_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

URI_VARIABLE = "MLFLOW_TRACKING_URI"
"""MLflow's own variable; a URI in the configuration wins over it."""

PROBE_S = 5.0
"""How long a server may take to answer at all."""

REQUEST_S = 30
"""Longest wait for one answer, unless MLFLOW_HTTP_REQUEST_TIMEOUT says otherwise."""


SPOKEN = {
    "mlflow": logging.WARNING,
    "alembic": logging.WARNING,
    "mlflow.store.db.utils": logging.CRITICAL,
}
"""Levels of MLflow's loggers.

Its migrations announce themselves line by line. It logs an error of its database with its stack and
all values, and raises it as well; genenv reports that one in a line.
"""


def tracking_uri(config: RunConfig, root: Path) -> str:
    """Return the URI of the configuration or the environment, or the SQLite file under the root."""
    configured = config.tracking.uri or os.environ.get(URI_VARIABLE)
    return configured or database_of(root)


def is_remote(uri: str) -> bool:
    """Return whether the URI is a server's."""
    return uri.startswith(("http://", "https://"))


def check_tracking(config: RunConfig) -> None:
    """Raise ConfigError for uploads without a server that takes them."""
    tracking = config.tracking
    if not (tracking.enabled and tracking.upload):
        return
    uri = tracking_uri(config, home_of(config.root))
    if not is_remote(uri):
        raise ConfigError(
            f"tracking.upload true: only an MLflow server takes uploads, and this run is logged to "
            f"{shown(uri)}: give tracking.uri or {URI_VARIABLE} as http://..., or leave "
            "tracking.upload out"
        )


def unreachable(uri: str) -> str | None:
    """Return why a server does not answer; None when it does, and without a server."""
    if not is_remote(uri):
        return None
    address = shown(uri).rstrip("/")
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=PROBE_S):
            return None
    except urllib.error.HTTPError as error:
        # Behind a proxy, 5xx is how an absent server looks; any other answer is one.
        return f"it answers {error.code} {error.reason}" if error.code >= 500 else None
    except (OSError, ValueError) as error:
        return f"no answer ({getattr(error, 'reason', error)})"


def shown(uri: str) -> str:
    """Return the URI without its secrets."""
    user = user_of(uri) or ""
    bare = uri.replace(f"://{user}@", "://", 1)
    return re.sub("([?&](?:password|token)=)[^&]*", r"\1***", bare)


def scrubbed(error: BaseException, uri: str) -> str:
    """Return an error in one line, without the credentials of the URI or of the environment."""
    text = one_line(error).partition(" [SQL: ")[0]  # SQLAlchemy adds the statement and its values
    user = user_of(uri) or ""
    secrets = [user, user.partition(":")[2], *re.findall("[?&](?:password|token)=([^&]*)", uri)]
    secrets += [urllib.parse.unquote(secret) for secret in secrets]
    secrets += [
        os.environ.get(name, "") for name in ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
    ]
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    described = f"{type(error).__name__}: {text[:300]}"
    what = shortage(error)
    return f"{what} ({described})" if what else described


def open_client(config: RunConfig, root: Path) -> MlflowClient:
    """Return a client of the tracking store; creates the SQLite file when missing."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(REQUEST_S))
    from mlflow import MlflowClient

    for name, level in SPOKEN.items():
        logging.getLogger(name).setLevel(level)
    uri = tracking_uri(config, root)
    if uri == database_of(root):
        create_database(root)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def repository(artifact_uri: str, **more: Any) -> ArtifactRepository:
    """Return MLflow's repository behind a reference; MLflow finds this by its entry points."""
    from tasks.tracking.references import repository

    return repository(artifact_uri, **more)
