"""What every section of the configuration has in common."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

STRICT = ConfigDict(
    frozen=True,
    extra="forbid",
    use_attribute_docstrings=True,
    populate_by_name=True,
    allow_inf_nan=False,
)
"""How everything that people fill in is read: nothing unknown, nothing changed afterwards."""


class Section(BaseModel):
    """What the sections share."""

    model_config = STRICT

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse what pydantic would read as 1 or 0."""
        kind = cls.model_fields[str(info.field_name)].annotation
        kinds = set(get_args(kind)) or {kind}
        if isinstance(value, bool) and bool not in kinds and kinds & {int, float}:
            raise PydanticCustomError("no_number", "Input should be a number, not true or false")
        return value
