"""The arguments that reset an episode: pi_env's programs, under a JSON schema.

A program is one JSON object. Where the server takes any arguments, `domain.options.reset` is its
schema. Where the server has its own tasks, a program names one of them by split and index, so
pi_env chooses among fixed tasks. Otherwise a program is a seed.
"""

# jsonschema has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any, cast

from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import Draft202012Validator

from genenv_core.canonical import canonical_json
from genenv_core.errors import ConfigError, one_line
from genenv_core.types import JsonObject

PLACE = "domain.options.reset"

MOST_SEED = 2**31 - 1


class ResetSchema:
    """A schema of reset arguments: it reads programs, and draws random ones.

    Args:
        schema: a JSON schema of an object. To draw from it, each property is a whole number or
            a number with `minimum` and `maximum`, a boolean, or an `enum` or `const`.

    Raises ConfigError for an invalid schema, or for one that allows no draw.
    """

    def __init__(self, schema: JsonObject) -> None:
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise ConfigError(f"{PLACE}: no JSON schema: {one_line(error, 200)}") from error
        self.schema: JsonObject = {
            "type": "object",
            "additionalProperties": False,
            "required": sorted(schema.get("properties", {})),
            **schema,
        }
        if self.schema["type"] != "object" or not self.schema.get("properties"):
            raise ConfigError(
                f"{PLACE}: reset arguments are an object: give type object, and properties"
            )
        self._validator: Any = Draft202012Validator(self.schema)
        self.draw(random.Random(0))

    @property
    def text(self) -> str:
        """The schema as one line of JSON."""
        return spelled(self.schema)

    def draw(self, rng: random.Random) -> JsonObject:
        """Return random arguments: each property, also an optional one, uniformly."""
        properties = cast("Mapping[str, Any]", self.schema["properties"])
        return {name: _drawn(rng, name, properties[name]) for name in sorted(properties)}

    def read(self, text: str) -> JsonObject | str:
        """Return the arguments that a text spells, or the reason why not; never raises."""
        try:
            value: object = json.loads(text)
            wrong = cast(Any, best_match(self._validator.iter_errors(value)))
        except (ValueError, RecursionError) as error:
            return f"no JSON: {one_line(error, 80)}"
        if wrong is not None:
            where = ".".join(map(str, wrong.absolute_path))
            return f"{where or 'it'}: {one_line(wrong.message, 120)}"
        return cast(JsonObject, value)


def spelled(arguments: JsonObject) -> str:
    """Return the canonical spelling of a program, or of a schema."""
    return canonical_json(arguments).decode()


def of_tasks(splits: Mapping[str, int]) -> JsonObject:
    """Return the schema of programs that name a task of a split, from the number in each split."""
    most = max(splits.values()) - 1
    return {
        "properties": {
            "split": {"enum": sorted(splits)},
            "index": {"type": "integer", "minimum": 0, "maximum": most},
        }
    }


def of_seeds(count: int) -> JsonObject:
    """Return the schema of programs that are seeds."""
    return {"properties": {"seed": {"type": "integer", "minimum": 0, "maximum": count - 1}}}


def _drawn(rng: random.Random, name: str, schema: object) -> object:
    one = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    if "const" in one:
        return one["const"]
    if "enum" in one:
        return rng.choice(one["enum"])
    kind, low, high = one.get("type"), one.get("minimum"), one.get("maximum")
    if kind == "boolean":
        return rng.random() < 0.5
    if isinstance(low, int | float) and isinstance(high, int | float) and low <= high:
        if kind == "integer":
            return rng.randint(int(low), int(high))
        if kind == "number":
            return round(rng.uniform(low, high), 3)
    raise ConfigError(
        f"{PLACE}: {name}: nothing can be drawn from {one!r:.100}: give an enum, a boolean, or a "
        "number with minimum and maximum"
    )
