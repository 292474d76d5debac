"""Typed functions as tools.

Invariants: the schema says name, purpose, types, choices, defaults and bounds, from signature and
docstring; arguments are read strictly; each call gets one answer of the role tool with a name;
whatever goes wrong is an answer that begins with `error:` and says what to do; state goes to the
functions that declare it and to nobody else; a function that cannot be a tool is refused.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from genenv_core.canonical import NoJson
from genenv_core.domains.kit.tools import Tools, call, how_to_call, told
from genenv_core.domains.tool_calls import in_order
from genenv_core.errors import DomainError
from genenv_core.types import Call
from tests.mutations import mutation

SIGNATURES = "genenv_core/domains/kit/signatures.py"
KIT_TOOLS = "genenv_core/domains/kit/tools.py"


class Size(enum.Enum):
    """Not told: its values are."""

    SMALL = "small"
    LARGE = "large"


class Where(BaseModel):
    """Not told either."""

    title: str
    floor: int = 0


@dataclass
class Cart:
    held: list[str] = field(default_factory=list[str])


def order(
    item: str,
    count: Annotated[int, Field(ge=1, description="How many pieces.")],
    kind: Literal["new", "used"] = "new",
    size: Size = Size.SMALL,
    notes: list[str] | None = None,
) -> str:
    """Order pieces of an item.

    More is told here, and not to the agent.

    Args:
        item: What to order,
            by its name.
        count: Overruled by the signature.
        kind (str): New or used.

    Returns:
        item: is no parameter here.
    """
    return f"{count} {kind} {size.value} {item} {notes}"


def put(cart: Cart, item: str) -> int:
    """Put an item into the cart."""
    cart.held.append(item)
    return len(cart.held)


def stop(code: int) -> None:
    """Leave."""
    if code:
        raise SystemExit(code)


TOOLS = Tools(order, put, stop, state=Cart)


def said(name: str, **arguments: Any) -> str:
    return str(TOOLS.answer(Call(name, arguments), Cart())["content"])


@mutation(
    "a docstring overrules the signature", SIGNATURES,
    "about = said or described.get(parameter.name)",
    "about = described.get(parameter.name) or said",
)  # fmt: skip
def test_the_schema_says_what_signature_and_docstring_say() -> None:
    (schema,) = Tools(order).schemas
    assert schema == {
        "type": "function",
        "function": {
            "name": "order",
            "description": "Order pieces of an item.",
            "parameters": {
                "type": "object",
                "properties": {
                    "item": {"type": "string", "description": "What to order, by its name."},
                    "count": {"type": "integer", "minimum": 1, "description": "How many pieces."},
                    "kind": {
                        "type": "string",
                        "enum": ["new", "used"],
                        "default": "new",
                        "description": "New or used.",
                    },
                    "size": {
                        "type": "string",
                        "enum": ["small", "large"],
                        "default": "small",
                        "description": "Not told: its values are.",
                    },
                    "notes": {
                        "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                        "default": None,
                    },
                },
                "required": ["item", "count"],
                "additionalProperties": False,
            },
        },
    }


def test_types_of_ones_own_are_told_in_place_and_keep_a_field_named_title() -> None:
    def move(to: Where, day: date, copy: bool = False, model_config: str = "") -> str:
        return f"{to.title} {to.floor} {day.year} {copy} {model_config!r}"

    tools = Tools(move)
    parameters = tools.schemas[0]["function"]["parameters"]
    assert "$defs" not in parameters and "title" not in parameters
    assert parameters["properties"]["to"]["properties"].keys() == {"title", "floor"}
    assert parameters["properties"].keys() == {"to", "day", "copy", "model_config"}
    given_ = {"to": {"title": "hall"}, "day": "2024-02-29", "copy": True, "model_config": "x"}
    assert tools.answer(Call("move", given_))["content"] == "hall 0 2024 True 'x'"


def test_a_call_is_answered_by_the_function() -> None:
    assert said("order", item="nut", count=2) == "2 new small nut None"
    assert said("order", item="nut", count=2, size="large", notes=["x"]) == (
        "2 new large nut ['x']"
    )
    assert TOOLS.answer(Call("stop", {"code": 0})) == {
        "role": "tool",
        "name": "stop",
        "content": "done",
    }


@mutation(
    "a bool is an integer to a tool", SIGNATURES,
    'strict=True, extra="forbid")', 'strict=False, extra="forbid")',
)  # fmt: skip
@mutation(
    "a tool ignores arguments that it does not have", SIGNATURES,
    'strict=True, extra="forbid")', 'strict=True, extra="ignore")',
)  # fmt: skip
@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"item": "nut", "count": True}, "'count': Input should be a valid integer"),
        ({"item": "nut", "count": "2"}, "'count': Input should be a valid integer"),
        ({"item": "nut", "count": 2.5}, "'count': Input should be a valid integer"),
        ({"item": "nut", "count": 0}, "'count': Input should be greater than or equal to 1"),
        ({"item": "nut"}, "'count': Field required"),
        ({"item": "nut", "count": 1, "colour": 1}, "'colour': Extra inputs are not permitted"),
        ({"item": "nut", "count": 1, "kind": "old"}, "'kind': Input should be 'new' or 'used'"),
        ({"item": 3, "count": 1}, "'item': Input should be a valid string"),
        ({"item": "\ud83d", "count": 1}, "Invalid JSON"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], wrong: str) -> None:
    answer = said("order", **arguments)
    assert answer.startswith("error: ") and wrong in answer
    assert answer.endswith("; order takes item, count, kind, size, notes")


def test_not_all_of_many_wrong_arguments_are_named() -> None:
    answer = said("order", **{f"x{i}": i for i in range(10)})
    assert "(and 9 more)" in answer and len(answer) < 300


@mutation("NaN is a number to a tool", SIGNATURES, "allow_nan=False", "allow_nan=True")
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "NaN and infinities are no numbers; half takes of"),
        (float("inf"), "NaN and infinities are no numbers; half takes of"),
        (True, "'of': Input should be a valid number; half takes of"),
        ("1", "'of': Input should be a valid number; half takes of"),
    ],
)
def test_a_number_is_finite_and_no_bool(value: Any, why: str) -> None:
    def half(of: float) -> float:
        return of / 2

    assert Tools(half).answer(Call("half", {"of": 3}))["content"] == "1.5"
    assert Tools(half).answer(Call("half", {"of": value}))["content"] == f"error: {why}"


def test_types_inside_of_others_are_strict_too() -> None:
    def move(to: Where) -> int:
        return to.floor

    for floor, said_ in ((1, "1"), (True, "error: 'to.floor': "), ("1", "error: 'to.floor': ")):
        answer = Tools(move).answer(Call("move", {"to": {"title": "", "floor": floor}}))
        assert answer["content"].startswith(said_)
    answer = Tools(move).answer(Call("move", {"to": {"title": "", "colour": 1}}))
    assert answer["content"].startswith("error: 'to.colour': Extra inputs")


@mutation(
    "an exception of a tool ends the attempt", KIT_TOOLS,
    '        except FAILURES as error:\n            return f"{ERROR} {tool.name} failed',
    '        except OSError as error:\n            return f"{ERROR} {tool.name} failed',
)  # fmt: skip
def test_what_goes_wrong_is_an_answer_with_what_to_do() -> None:
    assert said("fly") == "error: there is no tool 'fly'; the tools are order, put, stop"
    assert Tools().answer(Call("fly", {}))["content"] == (
        "error: there is no tool 'fly'; there are no tools"
    )
    assert said("stop", code=3) == "error: stop failed: SystemExit: 3; change the arguments"
    unreadable = Tools(stop).answer('{"name": "sto')
    assert unreadable["name"] == "stop" and unreadable["content"] == (
        "error: the call is no JSON object with name and arguments; write "
        '<tool_call>{"name": "stop", "arguments": {"...": "..."}}</tool_call>'
    )
    assert TOOLS.answer('{"name": "put"}')["name"] == "put"
    assert TOOLS.answer("[]")["name"] == "unknown"


@mutation(
    "a tool that reaches nothing blames the agent", KIT_TOOLS,
    "        except UNREACHED:\n            raise\n", "",
)  # fmt: skip
@pytest.mark.parametrize("error", [ConnectionResetError("gone"), TimeoutError("no answer")])
def test_what_no_arguments_would_have_helped_is_raised(error: Exception) -> None:
    def ask() -> str:
        raise error

    with pytest.raises(type(error)):
        Tools(ask).answer(Call("ask", {}))


@given(st.text() | st.dictionaries(st.text(), st.recursive(st.none() | st.floats(), st.lists)))
def test_no_call_raises(given_: Any) -> None:
    one = given_ if isinstance(given_, str) else Call("order", given_)
    answer = TOOLS.answer(one, Cart())
    assert answer["role"] == "tool" and answer["content"].startswith("error: ")


@mutation(
    "the agent sees the parameter that holds the state", SIGNATURES,
    "takes_state = state is not None and first is state", "takes_state = False",
)  # fmt: skip
def test_state_goes_to_the_functions_that_declare_it() -> None:
    cart = Cart()
    assert [TOOLS.answer(Call("put", {"item": x}), cart)["content"] for x in "ab"] == ["1", "2"]
    assert cart.held == ["a", "b"]
    properties = [tool["function"]["parameters"]["properties"].keys() for tool in TOOLS.schemas]
    assert properties[1] == {"item"}
    assert said("put", item="a", cart={}).startswith("error: 'cart': Extra inputs")


@mutation(
    "a set is told in the order of its hashes", KIT_TOOLS,
    'value = sorted(cast("set[object]", value), key=str)',
    'value = sorted(cast("set[object]", value), key=str, reverse=True)',
)  # fmt: skip
def test_what_a_function_returns_is_told_as_text_or_json() -> None:
    values = ["a b", 3, 0.1, None, True, [1, "x"], {"a": Where(title="t")}, {"b", "a"}]
    assert [told(value) for value in values] == [
        *("a b", "3", "0.1", "done", "true", '[1,"x"]', '{"a":{"title":"t","floor":0}}'),
        '["a","b"]',
    ]
    assert told({"a": [date(2024, 2, 29), {"b", "a"}, Size.SMALL, Cart(["x"])], 3: (1, None)}) == (
        '{"a":["2024-02-29",["a","b"],"small",{"held":["x"]}],"3":[1,null]}'
    )
    assert told(iter([1, 2])) == "[1,2]"


class Raw(BaseModel):
    held: bytes = b"x"


@mutation(
    "bytes are told in quotes", KIT_TOOLS,
    "isinstance(value, bytes | bytearray", "isinstance(0, bytes | bytearray",
)  # fmt: skip
@mutation(
    "NaN is told as a word", KIT_TOOLS,
    "if lost or isinstance(value, bytes", "if isinstance(value, bytes",
)  # fmt: skip
@mutation(
    "bytes of a model are told as text", KIT_TOOLS,
    "        _plain(value.model_dump(by_alias=True), path, within)\n", "",
)  # fmt: skip
@pytest.mark.parametrize(
    ("value", "place"),
    [
        (b"abc", "it is b'abc' (bytes)"),
        (bytearray(b"abc"), "it is bytearray(b'abc') (bytearray)"),
        (b"\xff", "it is b'\\xff' (bytes)"),
        ({"slots": [1, 2, b"abc"]}, """["slots"][2] is b'abc' (bytes)"""),
        ([{"a": {3: (0, b"abc")}}], """[0]["a"][3][1] is b'abc' (bytes)"""),
        (Cart([b"abc"]), """["held"][0] is b'abc' (bytes)"""),  # type: ignore[list-item]
        ([Raw()], """[0]["held"] is b'x' (bytes)"""),
        ({"n": float("nan")}, '["n"] is nan (float)'),
        ([np.int64(3)], "[0] is np.int64(3) (int64)"),
        ({"a": np.arange(2)}, '["a"] is array([0, 1]) (ndarray)'),
        ({(1, 2): 3}, "it has the key (1, 2) (tuple)"),
        ([object()], "[0] is of the type object"),
    ],
)
def test_what_json_does_not_have_is_named_with_its_place(value: Any, place: str) -> None:
    def find() -> Any:
        return value

    with pytest.raises(NoJson) as caught:
        Tools(find).answer(Call("find", {}))
    assert str(caught.value) == (
        f"the result of the tool find: {place}: return text, or values that JSON has"
    )


def test_what_holds_itself_is_named() -> None:
    around: list[Any] = []
    around.append({"again": around})
    with pytest.raises(NoJson, match=r'\[0\]\["again"\] holds itself'):
        told(around)


def test_a_call_is_written_as_it_is_read() -> None:
    _, calls = in_order(call(order, item="nut", count=2) + call(stop, code=0))
    assert calls == [Call("order", {"item": "nut", "count": 2}), Call("stop", {"code": 0})]
    assert how_to_call([]) == "" and "<tool_call>" in how_to_call(TOOLS.schemas)
    assert TOOLS.described().splitlines()[1] == "put(item): Put an item into the cart."


class Nested(BaseModel):
    inner: list[Nested]


def untyped(x) -> None: ...  # pyright: ignore
def starred(*x: int) -> None: ...
def named(x: int, **more: int) -> None: ...
def strange(x: threading.Lock) -> None: ...  # pyright: ignore  # noqa: F821
def odd(x: Tools) -> None: ...
def nested(x: Nested) -> None: ...
def only(x: int, /) -> None: ...
async def later(x: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (untyped, "the parameter x has no type; add one"),
        (starred, r"tool starred \(test_tools.py, line \d+\): \*x takes any arguments"),
        (
            named,
            r"tool named \(test_tools.py, line \d+\): \*\*more takes any arguments.* write each",
        ),
        (only, "x stands before /, and a call gives its arguments by name: drop /"),
        (strange, "name 'threading' is not defined; import"),
        (odd, "pydantic has no JSON schema for a parameter's type"),
        (nested, "Nested holds itself"),
        (later, "it is async"),
        (lambda: 1, "write it as a function with def"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused(function: Any, why: str) -> None:
    with pytest.raises(DomainError, match=why):
        Tools(function)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(DomainError, match="two tools stop; rename one"):
        Tools(stop, stop)
