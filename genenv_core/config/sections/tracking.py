"""What genenv logs to MLflow, and where."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from genenv_core.config.sections.section import Section
from genenv_core.machine.wrong_values import worded


def user_of(uri: str) -> str | None:
    """Return what stands before the "@" of a URI's host: a user, maybe with a password."""
    scheme, _, rest = uri.partition("://")
    # A database's password may have a "/" of its own; a file's path, which begins with one, names
    # no user.
    named = rest.partition("/")[0] if scheme.startswith("http") or rest[:1] == "/" else rest
    user, at, _ = named.rpartition("@")
    return user if at else None


class TrackingConfig(Section):
    """MLflow."""

    enabled: bool = True
    """Whether genenv logs runs, metrics and model versions to MLflow."""
    uri: str | None = None
    """MLflow tracking URI, such as http://host:5000; None: the environment's MLFLOW_TRACKING_URI,
    else a SQLite database under the root. Credentials only by MLflow's environment variables."""
    upload: bool = False
    """Whether genenv uploads the files of published checkpoints to a server that tracks elsewhere;
    else its model versions hold a reference and a digest."""
    experiment: str = Field(
        default="genenv",
        max_length=200,
        pattern=worded(r"^[^\x00-\x1f\x7f]+$", "one line of any characters that can be seen"),
    )
    """MLflow experiment; registered models are named after it: <experiment>-agent, -env, with "-"
    for "/", ":" and other marks that model names may not hold."""

    @field_validator("uri")
    @classmethod
    def _no_secret(cls, uri: str | None) -> str | None:
        """Refuse a password, as genenv keeps, shows and logs the configuration."""
        given = uri or ""
        user, rest = user_of(given), given.partition("://")[2]
        shown = user is not None and (given.startswith("http") or ":" in user)
        if shown or re.search("[?&](password|token)=", rest):
            raise ValueError(
                "tracking.uri holds a password: leave it out, and set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD (or all of it as MLFLOW_TRACKING_URI) where runs start"
            )
        return uri
