"""A typed Python function as a tool: its schema in OpenAI's form, and its validated arguments.

The schema comes from the signature (pydantic's JSON schema) and the docstring: the first paragraph
describes the tool, the section `Args:` its parameters (Google style). `Annotated[int,
Field(description=..., ge=0)]` gives both in the signature, bounds included, and wins.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from genenv_core.errors import DomainError
from genenv_core.types import JsonObject

Function = Callable[..., object]

NO_MORE = ConfigDict(extra="forbid")
"""Refuses arguments that the schema does not have."""

SHOWN_ERRORS = 3
"""Most wrong arguments that one error names."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_SECTION = re.compile(r"^(Args|Arguments|Returns|Raises|Yields|Examples?|Notes?):\s*$", re.M)
_PARAMETER = re.compile(r"^\s*\*{0,2}(\w+)(?: \([^)]*\))?:\s*(.*)$")
_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class WrongArguments(Exception):
    """The arguments of a call do not fit; the message says which, and what the tool takes."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One function: its name, its schema, and whether it takes the state of the episode first."""

    name: str
    function: Function
    schema: JsonObject
    takes_state: bool
    model: type[BaseModel]
    fields: Mapping[str, str]
    """The model's field for each parameter; fields have other names, as `copy` would hide a
    method."""

    def arguments(self, given: JsonObject) -> dict[str, Any]:
        """Return the arguments to call the function with; raises WrongArguments.

        pydantic reads them as JSON, so enums, tuples and dates come in their types. It reads them
        strictly at any depth: a bool is no int, a text no number, and an unknown argument is an
        error.
        """
        try:
            text = json.dumps(given, allow_nan=False)
            read = self.model.model_validate_json(text, strict=True, extra="forbid")
        except (ValueError, RecursionError) as error:
            raise WrongArguments(f"{_wrong(error)}; {self.takes()}") from error
        return {parameter: getattr(read, field) for parameter, field in self.fields.items()}

    def takes(self) -> str:
        """Return a sentence on the parameters, for errors."""
        if not self.fields:
            return f"{self.name} takes no arguments"
        return f"{self.name} takes {', '.join(self.fields)}"

    def described(self) -> str:
        """Return the tool on one line, as rules for an agent show it."""
        text = str(self.schema["function"]["description"])
        return f"{self.name}({', '.join(self.fields)}): {' '.join(text.split())}"


def signature_of(function: Function, state: type | None = None) -> Signature:
    """Return a function as a tool.

    Args:
        function: the function, with a type for each parameter.
        state: the type of an episode's state. A function whose first parameter has this type
            gets the state there; the agent never sees that parameter.

    Raises:
        DomainError: the function cannot be a tool; the message says what to change.
    """
    name = getattr(function, "__name__", "")
    if not _NAME.fullmatch(name):
        raise DomainError(f"tool {function!r}: write it as a function with def; it has no name")
    if inspect.iscoroutinefunction(function):
        raise DomainError(f"tool {name}: it is async; write it with def")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise DomainError(f"tool {name}: {error}; import its types where it is defined") from error
    parameters = list(inspect.signature(function).parameters.values())
    first = hints.get(parameters[0].name) if parameters else None
    takes_state = state is not None and first is state
    about, described = read_docstring(inspect.getdoc(function) or "")
    fields: dict[str, Any] = {}
    for place, parameter in enumerate(parameters[takes_state:]):
        if parameter.kind not in _BY_KEYWORD:
            raise DomainError(f"tool {name}{_place(function)}: {_nameless(parameter)}")
        if parameter.name not in hints:
            raise DomainError(f"tool {name}: the parameter {parameter.name} has no type; add one")
        fields[f"a{place}"] = _field(parameter, hints[parameter.name], described)
    try:
        model = create_model(name, __config__=NO_MORE, **fields)
        model.model_rebuild()
        schema = {"name": name, "description": about, "parameters": _parameters(model)}
    except PydanticUserError as error:
        raise DomainError(
            f"tool {name}: pydantic has no JSON schema for a parameter's type: {error.message}"
        ) from error
    known = {parameter.name: f"a{i}" for i, parameter in enumerate(parameters[takes_state:])}
    tool = {"type": "function", "function": schema}
    return Signature(name, function, tool, takes_state, model, known)


def _place(function: Function) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""


def _nameless(parameter: inspect.Parameter) -> str:
    """Return why no call can give a parameter, and what to do."""
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        return f"{parameter.name} stands before /, and a call gives its arguments by name: drop /"
    stars = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else "*"
    return (
        f"{stars}{parameter.name} takes any arguments, and no schema could say which: write each "
        "one as a parameter with a name and a type (of a decorator: put functools.wraps on what "
        "it returns)"
    )


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of a docstring, and its text on each parameter."""
    about = " ".join(_SECTION.split(text)[0].strip().split("\n\n")[0].split())
    pieces = _SECTION.split(text)[1:]
    described: dict[str, str] = {}
    for section, body in zip(pieces[::2], pieces[1::2], strict=True):
        if section not in ("Args", "Arguments"):
            continue
        lines = inspect.cleandoc(body).splitlines()
        last = ""
        for line in lines:
            found = None if line[:1].isspace() else _PARAMETER.match(line)
            if found:
                last = found[1]
                described[last] = found[2].strip()
            elif last and line.strip():
                described[last] = f"{described[last]} {line.strip()}".strip()
    return about, described


def _field(parameter: inspect.Parameter, hint: Any, described: Mapping[str, str]) -> Any:
    empty = parameter.default is inspect.Parameter.empty
    default = ... if empty else parameter.default
    said = FieldInfo.from_annotation(hint).description
    about = said or described.get(parameter.name)
    return hint, Field(default, alias=parameter.name, description=about)


class _Untitled(GenerateJsonSchema):
    """pydantic's JSON schema without titles, which repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _parameters(model: type[BaseModel]) -> JsonObject:
    schema = model.model_json_schema(schema_generator=_Untitled)
    defined = schema.pop("$defs", {})
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return cast(JsonObject, _inlined(schema, defined, ()))


def _inlined(value: Any, defined: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """Return a schema with its references filled in, which small models read better."""
    if isinstance(value, list):
        return [_inlined(item, defined, inside) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    record = cast(JsonObject, value)
    reference = record.get("$ref")
    if not isinstance(reference, str):
        return {key: _inlined(item, defined, inside) for key, item in record.items()}
    name = reference.rpartition("/")[2]
    if name in inside:
        raise DomainError(f"the type {name} holds itself; a tool's parameter cannot")
    rest = {key: item for key, item in record.items() if key != "$ref"}
    whole = {key: item for key, item in defined[name].items() if key != "title"} | rest
    return _inlined(whole, defined, (*inside, name))


def _wrong(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "the arguments are nested too deeply"
    if not isinstance(error, ValidationError):
        return "NaN and infinities are no numbers"
    errors = error.errors(include_url=False, include_context=False)
    told = [f"{'.'.join(map(str, one['loc']))[:60]!a}: {one['msg']}" for one in errors]
    more = f" (and {len(told) - SHOWN_ERRORS} more)" if len(told) > SHOWN_ERRORS else ""
    return "; ".join(told[:SHOWN_ERRORS]) + more
