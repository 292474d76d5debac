"""The base classes of all sections of the configuration, and of all requests."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationInfo, field_validator
from pydantic_core import CoreSchema, PydanticCustomError

from genenv_core.machine.wrong_values import refuse_in_words

STRICT = ConfigDict(
    frozen=True,
    extra="forbid",
    use_attribute_docstrings=True,
    populate_by_name=True,
    allow_inf_nan=False,
)
"""How genenv reads what people fill in: it refuses unknown fields, and values stay as they are."""


class Section(BaseModel):
    """The base of all sections, which refuse fields that they do not name."""

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


class Request(BaseModel):
    """The base of all requests, which refuse fields that they do not name."""

    model_config = STRICT

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON schema, whose patterns say in words what they want."""
        made = handler(core_schema)
        for field in handler.resolve_ref_schema(made).get("properties", {}).values():
            refuse_in_words(field)
        return made
