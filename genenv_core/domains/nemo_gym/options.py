"""Options of the domain nemo_gym, from `domain.options` of a configuration."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from genenv_core.domains.kit.served.options import ServedOptions
from genenv_core.types import JsonObject


class GymOptions(ServedOptions):
    """Where the tasks of a resources server are.

    `family`, `difficulty` and `answer` are fields of a row, which neither policy reads. The answer
    is the agent's last turn, or a call, `{"name": ..., "arguments": ...}`.
    """

    url_variable: ClassVar[str] = "GENENV_NEMO_GYM_URL"
    python_variable: ClassVar[str] = "GENENV_NEMO_GYM_PYTHON"
    package: ClassVar[str] = "nemo-gym"

    rows: str = Field(min_length=1)
    """A file of JSON lines; each is a task, with `responses_create_params`. A relative path begins
    in the folder where genenv starts."""
    split_field: str | None = Field(default=None, min_length=1)
    """The field of a row that names its split; None: all rows are of `split`."""

    @property
    def meaning(self) -> JsonObject:
        """Return the options that decide tasks and verdicts, without the path of the rows."""
        return {name: one for name, one in super().meaning.items() if name != "rows"}
