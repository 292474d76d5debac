"""Options of the domain ors, from `domain.options` of a configuration."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from genenv_core.domains.kit.served.options import ServedOptions


class OrsOptions(ServedOptions):
    """Which of a server's environments to play.

    `family`, `difficulty` and `answer` are fields of the server's own task, which neither policy
    reads. The answer is a call, `{"name": ..., "arguments": ...}`, or the one argument of the one
    tool that takes one.
    """

    url_variable: ClassVar[str] = "GENENV_ORS_URL"
    python_variable: ClassVar[str] = "GENENV_ORS_PYTHON"
    package: ClassVar[str] = "ors-sdk"

    environment: str | None = Field(default=None, min_length=1)
    """One of the environments that the server lists; None: the first of them."""
