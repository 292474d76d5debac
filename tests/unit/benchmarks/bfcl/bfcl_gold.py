"""Predictions made of BFCL's gold answers: for each parameter the first value that gold lists."""

from __future__ import annotations

from typing import Any

from genenv_core.benchmarks.bfcl.categories import Language, Matching
from genenv_core.benchmarks.bfcl.rows import Row


def gold_prediction(row: Row) -> list[dict[str, Any]]:
    """Return calls with gold's first values; a parameter that gold leaves out is left out."""
    return [_call(row, call) for call in row.gold]


def _call(row: Row, gold: dict[str, Any]) -> dict[str, Any]:
    ((name, accepted),) = gold.items()
    simple = row.category.kind is Matching.SIMPLE
    function = next(one for one in row.functions if simple or one["name"] == name)
    needed, described = (function["parameters"][key] for key in ("required", "properties"))
    arguments = {
        parameter: _argument(values, described.get(parameter, {}), row.category.language)
        for parameter, values in accepted.items()
        if parameter in needed or values[0] != ""
        if parameter in described or "" not in values
    }
    return {function["name"]: arguments}


def _argument(values: list[Any], description: dict[str, Any], language: Language) -> Any:
    value = next((one for one in values if one != ""), "")
    element = description.get("items", {}).get("type")
    if isinstance(value, dict):
        value = _dict(value)
    if isinstance(value, list) and element == "dict":
        value = [_dict(one) for one in value]
    if language is Language.PYTHON or isinstance(value, str):
        return value
    return _java(value, description["type"], element) if language is Language.JAVA else _js(value)


def _dict(gold: dict[str, Any]) -> dict[str, Any]:
    # Where gold should list values and has a text, that text is tried.
    return {
        key: values if isinstance(values, str) else next(one for one in values if one != "")
        for key, values in gold.items()
        if isinstance(values, str) or any(one != "" for one in values)
    }


def _java(value: Any, kind: str, element: str | None) -> str:
    if kind == "long":
        return f"{value}L"
    if kind == "HashMap":
        puts = " ".join(f'put("{key}", {_literal(one)});' for key, one in value.items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
    if kind == "Array":
        return f"new {element}[]{{{', '.join(map(str, value))}}}"
    if kind == "ArrayList":
        suffix = "L" if element == "long" else ""
        quoted = element == "String"
        elements = (f'"{one}"' if quoted else f"{one}{suffix}" for one in value)
        return f"new ArrayList<>(Arrays.asList({', '.join(elements)}))"
    return _literal(value)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _js(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_js, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_js(one)}' for key, one in value.items())}}}"
    return _literal(value)
