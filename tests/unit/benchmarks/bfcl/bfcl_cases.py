"""BFCL cases made by hand; each outcome was confirmed with the official checker.

The checker is that of bfcl-eval 2026.3.23. An outcome is our name for its error type, "" for a
valid prediction.
"""

from __future__ import annotations

from typing import Any

PYTHON, JAVA, JAVASCRIPT = "python", "java", "javascript"

VALUES: list[tuple[str, str, list[Any], list[tuple[Any, str]]]] = [
    # language, type (of elements after a blank), what gold lists, [(value, outcome), ...]
    (PYTHON, "integer", [5], [
        (5, ""), (6, "value"), (True, "type"), (5.0, "type"), ("5", "type"), (None, "type"),
        ([5], "type"), ({}, "type"),
    ]),
    (PYTHON, "integer", [1, ""], [(1, ""), (True, "type"), (1.0, "type"), ("", "type")]),
    (PYTHON, "integer", ["n"], [("n", ""), ("N", "value"), (5, "value")]),
    (PYTHON, "integer", [None], [(None, ""), (5, "value")]),
    (PYTHON, "integer", ["", 5], [("", "type"), (5, "")]),
    (PYTHON, "float", [5.0], [
        (5.0, ""), (5, ""), (5.5, "value"), (True, "type"), ("5.0", "type"),
        (10**400, "uncheckable"), (float("nan"), "value"), (float("inf"), "value"),
    ]),
    (PYTHON, "float", [5], [(5, ""), (5.0, "")]),
    (PYTHON, "boolean", [True], [
        (True, ""), (False, "value"), (1, "type"), (1.0, "type"), ("true", "type"),
    ]),
    (PYTHON, "string", ["New York, NY"], [
        ("New York, NY", ""), ("new york ny", ""), ("NEW-YORK_NY", ""), ("New York; NY", "string"),
        ("New\nYork NY", "string"), ("New York", "string"), ("", "string"), (["New York"], "type"),
        ("^n.e/w*york,ny", ""),
    ]),
    (PYTHON, "string", ["it's"], [('it"s', ""), ("its", "string"), ("it’s", "string")]),
    (PYTHON, "string", ["a", "b c"], [("B.C", ""), ("a", ""), ("ab", "string")]),
    (PYTHON, "string", ["a", ""], [("", ""), (" ", ""), (None, "type")]),
    (PYTHON, "string", [True], [(True, ""), ("true", "value"), (1, "type")]),
    (PYTHON, "string", ["x", None], [(None, "type"), ("none", "string")]),
    (PYTHON, "any", ["x"], [("X", ""), (5, "type")]),
    (PYTHON, "any", [5], [(5, ""), ("5", "value"), (True, "type")]),
    (PYTHON, "array integer", [[1, 2]], [
        ([1, 2], ""), ([2, 1], "list"), ([1], "list"), ([1, 2, 3], "list"), ([], "list"),
        ([1, 2.0], "element_type"), ([True, 2], "element_type"), (["1", 2], "element_type"),
        ((1, 2), "type"), ("[1, 2]", "type"), ([[1, 2]], "element_type"), (None, "type"),
    ]),
    (PYTHON, "array integer", [[1, 2], ""], [
        ([], ""), ("", "type"), ([9], "list"), (["x"], "list"),
    ]),
    (PYTHON, "array integer", ["xs", [1]], [
        ([1], ""), ([2], "value"), (["x", "s"], "value"), ("xs", ""), ("Xs", "value"),
    ]),
    (PYTHON, "array integer", [["", "a"]], [(["a", ""], "list"), (["", "A"], "")]),
    (PYTHON, "array float", [[1.0, 2.5]], [([1.0, 2.5], ""), ([1, 2.5], "element_type")]),
    (PYTHON, "array float", [[1, 2]], [([1, 2], ""), ([1.0, 2.0], "")]),
    (PYTHON, "array string", [["New York", "x"]], [
        (["new-york", "X"], ""), (["x", "New York"], "list"), (["New York"], "list"),
        (["New York", 5], "element_type"),
    ]),
    (PYTHON, "array string", [["a"], ["b", "c"]], [(["b", "c"], ""), (["a", "c"], "list")]),
    (PYTHON, "array array", [[[1, 2], ["a"]]], [
        ([[1, 2], ["a"]], ""), ([[1, 2], ["A"]], "list"), ([[True, 2.0], ["a"]], ""),
        ([[1, 2]], "list"),
    ]),
    (PYTHON, "tuple float", [[1.5, 2.5]], [
        ((1.5, 2.5), ""), ([1.5, 2.5], ""), ((1.5, 2), "element_type"), ((2.5, 1.5), "list"),
    ]),
    (PYTHON, "dict", [{"a": [1, 2], "b": ["x", ""]}], [
        ({"a": 1}, ""), ({"a": 2, "b": "X"}, ""), ({"a": True}, ""), ({"a": 1.0}, ""),
        ({"a": 3}, "dict_value"), ({"b": "x"}, "dict_key"), ({"a": 1, "c": 1}, "dict_key"),
        ({}, "dict_key"), ({"a": "1"}, "dict_value"), ([("a", 1)], "type"), ("{}", "type"),
        ({"a": 1, "b": ""}, ""), ({"A": 1}, "dict_key"), (None, "type"),
    ]),
    (PYTHON, "dict", [{"a": [1]}, {"b": [2]}], [
        ({"b": 2}, ""), ({"a": 1}, ""), ({"a": 1, "b": 2}, "dict_key"), ({"b": 3}, "dict_value"),
    ]),
    (PYTHON, "dict", [""], [({}, "dict_not_listed"), ("", "type")]),
    (PYTHON, "dict", ["", {}], [({}, ""), ({"a": 1}, "dict_key")]),
    (PYTHON, "dict", [{"a": [{"b": [1]}]}], [
        ({"a": {"b": [1]}}, ""), ({"a": {"b": 1}}, "dict_value"),
    ]),
    (PYTHON, "dict", [{"a": [["X y"]]}], [({"a": ["X y"]}, ""), ({"a": ["x y"]}, "dict_value")]),
    (PYTHON, "dict", [{"a": "xy"}], [({"a": "x"}, ""), ({"a": "xy"}, "dict_value"), ({}, "")]),
    (PYTHON, "array dict", [[{"a": [1]}, {"b": ["x"]}]], [
        ([{"a": 1}, {"b": "X"}], ""), ([{"b": "x"}, {"a": 1}], "dict_key"),
        ([{"a": 1}], "dicts_count"), ([{"a": 2}, {"b": "x"}], "dict_value"),
        ([{"a": 1}, 5], "element_type"), ([], "dicts_count"), ({"a": 1}, "type"),
    ]),
    (PYTHON, "array dict", [[{"a": [1]}], ""], [([], ""), ([5], "uncheckable"), ([{"a": 1}], "")]),
    (PYTHON, "array dict", [""], [([], ""), ([{}], "dicts_count"), ("", "type")]),
    (PYTHON, "number", [5], [(5, "uncheckable")]),
    (PYTHON, "array", [[5]], [([5], "uncheckable")]),
    (JAVA, "integer", [5], [
        ("5", ""), (5, "no_source_text"), ("5L", "type"), ("5.0", "type"), ("-5", "value"),
        ("05", ""), ("x", "type"), ("9" * 5000, "uncheckable"), ("5\n", ""), (" 5", "type"),
    ]),
    (JAVA, "long", [5], [("5L", ""), ("5l", ""), ("5", "type"), ("L", "type")]),
    (JAVA, "double", [0.5], [("0.5", ""), ("5e-1", ""), ("0.5f", "type"), (".5", "type")]),
    (JAVA, "float", [0.5], [("0.5f", ""), ("5e-1F", ""), ("0.5", "type"), ("1f", "value")]),
    (JAVA, "boolean", [True], [
        ("true", ""), (True, "no_source_text"), ("True", "type"), ("false", "value"),
    ]),
    (JAVA, "char", ["a"], [("a", ""), ("'a'", "string")]),
    (JAVA, "String", ["A b"], [("a-B", ""), ('"A b"', "string"), (["A b"], "no_source_text")]),
    (JAVA, "any", ["obj.x"], [("objx", ""), ("obj", "string")]),
    (JAVA, "any", [5.0], [("5.0", "value"), (5.0, "no_source_text")]),
    (JAVA, "Array integer", [[1, 2]], [
        ("new int[]{1, 2}", ""), ("new int[] { 1,2 }", ""), ("new Integer[]{1,,2}", ""),
        ("int[]{1, 2}", "type"), ("new int[]{1, x}", "element_type"), ("new int[]{}", "list"),
        ("x = new int[]{1, 2};", ""), ("new int[2]{1, 2}", "type"), ("new int[]{1,\n2}", "type"),
    ]),
    (JAVA, "Array String", [["-v"]], [
        ("new String[]{-v}", ""), ('new String[]{"-v"}', "list"),
    ]),
    (JAVA, "Array String", ["names"], [("names", ""), ("Names", "value")]),
    (JAVA, "ArrayList String", [["a", "b"]], [
        ('new ArrayList<>(Arrays.asList("a", "b"))', ""),
        ('new ArrayList<String>() {{ add("a"); add("b"); }}', ""),
        ("new ArrayList<>(Arrays.asList('a', xby))", ""),
        ('new ArrayList<>(List.of("a", "b"))', "type"),
        ('Arrays.asList("a", "b")', "type"),
        ("new ArrayList<>()", "list"),
        ("new ArrayList<>() {{ }}", "list"),
    ]),
    (JAVA, "ArrayList long", [[1, 2]], [
        ("new ArrayList<>(Arrays.asList(1L, 2L))", ""),
        ("new ArrayList<>(Arrays.asList(1, 2))", "element_type"),
    ]),
    (JAVA, "ArrayList any", [["a", 1]], [
        ("new ArrayList<>(Arrays.asList(a, 1))", "list"),
    ]),
    (JAVA, "HashMap", [{"a": [1], "b": ["x y", ""]}], [
        ('new HashMap<String, Object>() {{ put("a", 1); put("b", "X-Y"); }}', ""),
        ('new HashMap<>() { { put("a", 1); } }', ""), ('new HashMap<>() {put("a", 1L)}', ""),
        ('new HashMap<>() {{ put("a", "1"); }}', "dict_value"), ("new HashMap<>()", "dict_key"),
        ('new HashMap<>() {{ put("a", 1); put("c", 1); }}', "dict_key"),
        ('Map.of("a", 1)', "type"), ('new HashMap<>() {{ put("a", true); }}', ""),
    ]),
    (JAVA, "Set", [[1]], [("x", "uncheckable"), (5, "no_source_text")]),
    (JAVASCRIPT, "integer", [5], [("5", ""), (5, "no_source_text"), ("5.0", "type")]),
    (JAVASCRIPT, "float", [4.0], [("4", ""), ("4.0", ""), ("4e0", "type"), ("-4", "value")]),
    (JAVASCRIPT, "Bigint", [5], [("5n", ""), ("5", "type"), ("5n\n", "uncheckable")]),
    (JAVASCRIPT, "Boolean", [True], [("true", ""), ("1", "type"), ("false", "value")]),
    (JAVASCRIPT, "String", ["a b"], [
        ("'a b'", ""), ('"A-b"', ""), ("a b", ""), ("'a c'", "string"),
    ]),
    (JAVASCRIPT, "any", ["f(x)"], [("F(x)", ""), ("'f(x)'", "string")]),
    (JAVASCRIPT, "array String", [["a", "b"]], [
        ("['a', \"B\"]", ""), ("[a, b]", ""), ("new Array('a', 'b')", ""), (" ['a','b'] ", ""),
        ("['b', 'a']", "list"), ("[]", "list"), ("x = ['a']", "type"), ("['a', 'b'", "type"),
        (["a", "b"], "no_source_text"), ("['a', 'b'].sort()", ""),
    ]),
    (JAVASCRIPT, "array float", [[1.0, 2.0]], [("[1, 2]", ""), ("[1, '2']", "element_type")]),
    (JAVASCRIPT, "array float", ["", [1.0]], [("[]", ""), ("[x]", "list")]),
    (JAVASCRIPT, "array array", [[[1, 2], ["a"]]], [
        ("[[1, 2], ['a']]", ""), ("[ [1,2] , [a] ]", ""), ("new Array([1, 2], ['a'])", ""),
        ("[[1, 2], ['b']]", "list"), ("[[1, 2]]", "list"), ("[[1], 2]", "element_type"),
    ]),
    (JAVASCRIPT, "dict", [{"a": [1], "b": [["x"], ""]}], [
        ("{a: 1}", ""), ("{'a': 1, \"b\": ['x']}", ""), ("{a: 1, b: [x]}", ""), ("{}", "dict_key"),
        ("{a: 2}", "dict_value"), ("{a: 1, c: 2}", "dict_key"), ("a: 1", "type"),
        ("{a: '1'}", ""), ("{a: 1} + x", ""), ("{a:\n1}", "type"),
    ]),
    (JAVASCRIPT, "dict", [{"f": ["g(x, y)"]}], [("{f: g(x, y)}", ""), ("{f: 'g(x,y)'}", "")]),
]  # fmt: skip

GOLD_F: dict[str, Any] = {"m.f": {"x": [1], "y": ["b", ""]}}
GOLD_F2: dict[str, Any] = {"m.f": {"x": [2], "y": ["c"]}}
GOLD_G: dict[str, Any] = {"g": {"z": [True], "w": [3]}}
FUNCTIONS: list[dict[str, Any]] = [
    {"name": "m.f", "parameters": {
        "properties": {"x": {"type": "integer"}, "y": {"type": "string"}, "u": {"type": "string"}},
        "required": ["x"]}},
    {"name": "g", "parameters": {
        "properties": {"z": {"type": "boolean"}, "w": {"type": "integer"}}, "required": []}},
]  # fmt: skip

F, F2, G = {"m.f": {"x": 1}}, {"m.f": {"x": 2, "y": "C"}}, {"g": {"z": True, "w": 3}}

CALLS: list[tuple[str, list[dict[str, Any]], list[tuple[Any, str]]]] = [
    # kind of category, gold's calls, [(prediction, outcome), ...]
    ("simple", [GOLD_F], [
        ([F], ""), ([{"m.f": {"y": "B", "x": 1}}], ""), ([{"m.f": {"x": 1, "y": ""}}], ""),
        ([], "call_count"), ([F, F], "call_count"), ([G], "function_name"),
        ([{"m_f": {"x": 1}}], "function_name"), ([{"f": {"x": 1}}], "function_name"),
        ([{"M.f": {"x": 1}}], "function_name"), ([{"m.f": {"y": "b"}}], "required_missing"),
        ([{"m.f": {}}], "required_missing"), ([{"m.f": {"x": 1, "u": "b"}}], "parameter_unknown"),
        ([{"m.f": {"x": 1, "q": 5}}], "parameter_unknown"),
        ([{"m.f": {"x": 1, "y": "z"}}], "string"),
        (None, "format"), ("m.f(x=1)", "format"), (F, "format"), ([[F]], "format"),
        ([{}], "format"), ([{"m.f": [1]}], "format"), ([{"m.f": None}], "format"),
        ([{**F, **G}], "format"), ([None], "format"), ([F, 5], "format"), (1, "format"),
    ]),
    ("simple", [GOLD_F2], [([F2], ""), ([{"m.f": {"x": 2}}], "parameter_missing")]),
    ("multiple", [GOLD_G], [
        ([G], ""), ([F], "function_name"), ([G, G], "call_count"), ([], "call_count"),
        ([{"g": {"z": True}}], "parameter_missing"), ([{"g": {"z": True, "w": 4}}], "value"),
    ]),
    ("parallel", [GOLD_F, GOLD_F2, GOLD_G], [
        ([F, F2, G], ""), ([G, F2, F], ""), ([F2, F, G], ""), ([F, F2], "call_count"),
        ([F, F2, G, G], "call_count"), ([F, F, G], "unmatched_call"), ([G, G, G], "unmatched_call"),
        ([F, F2, {"g": {"z": 1, "w": 3}}], "unmatched_call"), ([], "call_count"),
        ([[F], F2, G], "format"),
    ]),
    # Each gold call takes the first that fits, and looks no further.
    ("parallel", [{"g": {"z": [True], "w": [3, 4]}}, GOLD_G], [
        ([{"g": {"z": True, "w": 4}}, G], ""), ([G, {"g": {"z": True, "w": 4}}], "unmatched_call"),
    ]),
    ("irrelevance", [], [
        ([F], "call_present"), ([{"any": {}}], "call_present"), ([F, G], "call_present"), ([], ""),
        ("no tool fits", ""), (None, ""), ([{}], ""), ([{"f": None}], ""), ([{**F, **G}], ""),
        (F, ""), ([[]], ""), (0, ""),
    ]),
    ("relevance", [], [
        ([F], ""), ([{"any": {}}], ""), ([], "call_absent"), ("text", "call_absent"),
        (None, "call_absent"), ([{}], "call_absent"), ([{"f": None}], "call_absent"),
        (F, "call_absent"), ([F, G], ""),
    ]),
]  # fmt: skip


def description_of(kind: str) -> dict[str, Any]:
    """Return the description of a parameter of a type, with that of its elements if it has one."""
    outer, _, inner = kind.partition(" ")
    return {"type": outer} | ({"items": {"type": inner}} if inner else {})
