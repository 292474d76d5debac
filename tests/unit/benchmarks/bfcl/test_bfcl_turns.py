"""BFCL's multi-turn verdicts.

Invariants: a text is one call of a public method of the item's own classes with literal arguments,
or an error, and nothing else of it runs; each item has fresh instances, and what calls leave in the
classes is gone for the next; state and responses are compared after each turn in which gold calls
something; no prediction raises or takes long; without the package such items have no verdict and
the others have theirs; with it all 800 gold answers are right and broken ones are wrong.
"""

from __future__ import annotations

import ast
import decimal
import json
import re
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from genenv_core.benchmarks.bfcl import BENCHMARK, suite
from genenv_core.benchmarks.bfcl.categories import MULTI_TURN
from genenv_core.benchmarks.bfcl.faults import ErrorType
from genenv_core.benchmarks.bfcl.suite import Bfcl
from genenv_core.benchmarks.bfcl.turns import backends as backends_module
from genenv_core.benchmarks.bfcl.turns.backends import (
    CLASSES,
    VERSION,
    Absent,
    Backends,
    Side,
    backends,
)
from genenv_core.benchmarks.bfcl.turns.checks import MOST_CALLS, MOST_CHARACTERS, check_turns
from genenv_core.benchmarks.bfcl.turns.costs import POWER_BITS, WALK
from genenv_core.benchmarks.bfcl.turns.rows import TurnsRow
from genenv_core.benchmarks.bfcl.turns.texts import LONGEST, NoCall, addressed, read_call
from genenv_core.errors import DataError
from tests.mutations import mutation
from tests.unit.benchmarks.bfcl.test_bfcl import F, written
from tests.unit.benchmarks.data import deep, official

BACKENDS = "genenv_core/benchmarks/bfcl/turns/backends.py"
CHECKS = "genenv_core/benchmarks/bfcl/turns/checks.py"

CARDS: dict[str, Any] = {"spare": {"balance": 100}}
RAN: list[str] = []
"""What ran in the double without being asked for by a call of a public method."""


class Shelf:
    """A double of a class of bfcl-eval's."""

    def _load_scenario(self, scenario: dict[str, Any], long_context: bool = False) -> None:
        self.items: list[Any] = scenario.get("items", [])
        self.long = long_context
        self.cards = CARDS
        self._looks = 0
        if scenario.get("broken"):
            raise KeyError("broken")

    def put(self, item: Any, labels: Any = None) -> dict[str, Any]:
        self.items.append(item)
        return {"put": item}

    def tag(self, label: str, labels: list[str] = []) -> dict[str, Any]:  # noqa: B006
        labels.append(label)
        return {"labels": labels}

    def look(self) -> dict[str, Any]:
        self._looks += 1
        return {"items": self.items}

    def echo(self, text: str) -> str:
        return text

    def pay(self, amount: float) -> dict[str, Any]:
        self.cards["spare"]["balance"] -= amount
        return self.cards["spare"]

    def _secret(self) -> str:
        RAN.append("_secret")
        return "secret"


class MathAPI:
    """A double of the class without a scenario."""

    def power(self, base: Any, exponent: Any) -> dict[str, Any]:
        return {"result": base**exponent}

    def square_root(self, number: float, precision: int) -> Any:
        decimal.getcontext().prec = precision
        return {"result": decimal.Decimal(number).sqrt()}

    def look(self) -> str:
        return "MathAPI looks"


def double() -> Backends:
    CARDS["spare"] = {"balance": 100}
    Shelf.tag.__defaults__ = ([],)
    return Backends({"Shelf": Shelf, "MathAPI": MathAPI}, [CARDS], SimpleNamespace(prec=53))


def side_of(*classes: str, items: Any = ()) -> Side:
    config = {"Shelf": {"items": list(items)}}
    return double().side(classes or ("Shelf",), config, False, "model_i")


def row_of(*gold: list[str], classes: Any = ("Shelf",), config: Any = None) -> TurnsRow:
    scenario = {"Shelf": {"items": [1]}} if config is None else config
    return TurnsRow("multi_turn_base_0", MULTI_TURN[0], classes, scenario, gold)


def outcome(row: TurnsRow, prediction: Any) -> str:
    fault = check_turns(prediction, row, double())
    return fault.type.value if fault else ""


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("put(1)", ([1], {})),
        ("put (item=-1.5)", ([], {"item": -1.5})),
        (" \tput\n('a', labels=['b', {'c': (None,)}])", (["a"], {"labels": ["b", {"c": (None,)}]})),
        ("(put(item='a' 'b'))  # why", ([], {"item": "ab"})),
        ("put(item={1, 2})", ([], {"item": {1, 2}})),
        (r"put('\d')", ([r"\d"], {})),
    ],
)  # fmt: skip
def test_a_call_with_literals_is_read(text: str, given: Any) -> None:
    call = read_call(addressed(text, {"put": "x"}))
    assert (call.instance, call.method, (call.arguments, call.named)) == ("x", "put", given)


HOSTILE = [
    "__import__('os').system('touch /tmp/genenv-was-here')",
    "put(__import__('os').getpid())",
    "put(item=open('/etc/passwd').read())",
    "eval('1')", "exec('1')", "print('x')", "str('x')", "len([1])", "exit()", "kill()", "quit()",
    "_secret()", "self._secret()", "model_i_Shelf_instance._secret()", "put.__self__._secret()",
    "model_i_Shelf_instance.__class__()", "__class__()", "__init__()", "_load_scenario({})",
    "model_ground_truth_i_Shelf_instance.put(1)", "Shelf.put(1)", "Shelf()", "getattr(1, 'real')",
    "put(item=put)", "put(item=look())", "put(look())", "put(1)()", "put(1).x", "put(1)[0]",
    "(lambda: put(1))()", "lambda: 1", "[put(i) for i in (1, 2)]", "put(item=[i for i in (1, 2)])",
    "put(item=f'{1}')", "put(item=1 + 1)", "put(item=9**9**9)", "put(item='a' * 10**10)",
    "put(item=not 1)", "put(item=nan)", "put(item=true)", "put(item=x)", "put(*[1])",
    "put(**{'item': 1})", "put(item=1, item=2)", "put(1), look()", "put(1); look()",
    "put(1)\nlook()", "put(1) or look()", "x = put(1)", "(x := put(1))", "import os", "del put",
    "await put(1)", "yield", "ｐｕｔ(1)", "", " ", "put", "put(", "put)", "put(1))", "put(item=)",
    "put(1", "'a text'", "1", "None", "...", "\0", "put('\0')", "\ud800", "put('\ud800", "\\",
    "'''", "put(item=0777)", "no_such()", "add(a=1, b=2)",
    "(" * 10_000, "put(" * 10_000, "put(" + "[" * 10_000, "put(x=" + "-" * 99_000 + "1)",
    "put(" + "1+" * 45_000 + "1)", "put" + ".a" * 45_000 + "()", "put" + "()" * 45_000,
    "put(" + "not " * 20_000 + "1)", "lambda:" * 10_000 + "1", "put(x=a" + "[0]" * 30_000 + ")",
    "put(" + "1<" * 45_000 + "1)", "put(item=" + "9" * 5_000 + ")", "a" * 10**6, " " * 10**6,
    "put(item='" + "x" * 10**6 + "')", "put(" + "*" * 50_000, "put(item=" + "{1:" * 10_000,
]  # fmt: skip
"""Texts that are no call with literals of a public method of the double."""


@mutation(
    "a call may name a private method", BACKENDS,
    'if not name.startswith("_"))', "if name)", by="[_secret()]",
)  # fmt: skip
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:30])
def test_nothing_but_a_call_with_literals_runs(text: str) -> None:
    RAN.clear()
    side = side_of(items=[1])
    begun = time.process_time()
    assert side.run(text).startswith("error: ")
    assert time.process_time() - begun < 2
    shelf = side.instances["Shelf"]
    assert (shelf.items, shelf._looks, CARDS) == ([1], 0, {"spare": {"balance": 100}})
    assert not RAN and not Path("/tmp/genenv-was-here").exists()


def test_a_call_longer_than_the_longest_is_not_read() -> None:
    text = "put(item='{}')"
    assert read_call(addressed(text.format("x" * (LONGEST - 20)), {"put": "x"})).method == "put"
    with pytest.raises(NoCall, match="more than"):
        read_call(addressed(text.format("x" * LONGEST), {"put": "x"}))


def test_a_result_is_a_text() -> None:
    side = side_of("MathAPI", "Shelf")
    assert side.run("put(item='é')") == '{"put": "\\u00e9"}'
    assert side.run("look()") == '{"items": ["\\u00e9"]}'  # of the class that comes last
    assert side.run("put(item={1})") == "{'put': {1}}"  # a set is no JSON
    assert side.run("echo('as it is')") == "as it is"
    assert side.run("echo([1])") == "[1]"
    assert side.run("square_root(2, 3)") == "{'result': Decimal('1.41')}"
    assert "missing 1 required" in side.run("put()")


def test_a_name_before_a_parenthesis_changes_in_quoted_texts_too() -> None:
    # The official executor writes the instance there, which differs from gold's.
    assert side_of().run("echo('put (1), see (2)')") == "model_i_Shelf_instance.put(1), see(2)"
    row = row_of(["put(item='see (2)')"])
    assert outcome(row, [[["put(item='see(2)')"]]]) == ""
    row = row_of(["put(item='put (2)')"])
    assert outcome(row, [[["put(item='put (2)')"]]]) == "state"


def test_a_turn_must_lead_to_gold_s_state() -> None:
    row = row_of(["put(item=2)"], ["look()"])
    for first, expected in (
        ([["put(item=2)"]], ""),
        ([["look()", "put(2)"]], ""),
        ([["look()"], ["put(item=2)"]], ""),
        ([[], ["put(item=2)"], [""], "Done.", None, [1], ["put(3)", 1]], ""),
        ([["put(item=2)", "put(item=x)"]], ""),
        ([["put(item=3)"]], "state"),
        ([["put(item=2)", "put(item=2)"]], "state"),
        ([["look()"]], "state"),
        ([["no such call"]], "state"),
        ([], "turn_empty"),
        ("put(item=2)", "turn_empty"),
        ([[""]], "turn_empty"),
        (["put(item=2)"], "turn_empty"),
    ):
        assert outcome(row, [first, [["look()"]]]) == expected, first


@mutation(
    "what earlier turns gave counts no more", CHECKS,
    "        given.update(", "        given = Counter(",
)  # fmt: skip
@mutation(
    "gold's result of two calls is found in one", CHECKS,
    "Counter(map(_mark, wanted)) - given", "Counter({*map(_mark, wanted)}) - given",
)  # fmt: skip
def test_gold_s_results_must_be_among_those_so_far_as_often() -> None:
    row = row_of(["look()"], ["look()", "echo(text='a')"])
    assert outcome(row, [[["look()"]], [["echo(text='b')"]]]) == "response"
    # What an earlier turn gave counts still, and each turn looks at all of it.
    assert outcome(row, [[["look()"]], [["echo('a')"]]]) == ""
    assert outcome(row, [[["look()", "echo('a')"]], [["echo('b')"]]]) == ""
    assert outcome(row, [[["look()"]], [["echo('a')"], ["echo('a')", "look()"]]]) == ""
    long = row_of([f"echo('{'é' * 5000}')"])
    assert outcome(long, [[[f"echo(text='{'é' * 5000}')"]]]) == ""
    assert outcome(long, [[[f"echo('{'é' * 4999}')"]]]) == "response"
    twice = row_of(["look()", "look()"])
    assert outcome(twice, [[["look()"]]]) == "response"
    assert outcome(twice, [[["look()", "echo('x')"], ["look()"]]]) == ""
    fault = check_turns([[["echo('b')"]], []], row, double())
    assert fault is not None
    assert fault.more == {"turn": 0, "gold_call": 0, "missing": 1}


@mutation(
    "a turn in which gold calls nothing is compared", CHECKS,
    "        if not wanted:\n            continue\n", "",
)  # fmt: skip
def test_a_turn_without_gold_s_calls_is_not_compared() -> None:
    row = row_of([], ["put(item=2)"])
    assert outcome(row, [[], [["put(item=2)"]]]) == ""
    assert outcome(row, [[["look()"]], [["put(item=2)"]]]) == ""
    assert outcome(row, [[["put(item=2)"]], [["look()"]]]) == ""
    assert outcome(row, [[["put(item=2)", "put(item=2)"]], [["look()"]]]) == "state"


@mutation(
    "both sides of an item play with the same scenario", BACKENDS,
    "scenario = deepcopy(config.get(class_name, {}))", "scenario = config.get(class_name, {})",
)  # fmt: skip
@mutation(
    "what calls leave in the classes stays for the next item", BACKENDS,
    "data.update(deepcopy(whole))", "data.update(whole)",
)  # fmt: skip
def test_both_sides_have_instances_of_their_own_and_each_item_fresh_ones() -> None:
    found, row = double(), row_of(["put(item=2)", "pay(amount=30)"], ["pay(30)"])
    for _ in range(3):
        assert check_turns([[list(turn)] for turn in row.gold], row, found) is not None
        assert row.config == {"Shelf": {"items": [1]}}
    # Defaults and cards are the class's, so that both sides share them within an item, as in an
    # official run: what the model's calls left there shows in gold's results.
    row = row_of(["pay(amount=30)"], ["tag(label='a')"])
    for _ in range(3):
        assert outcome(row, [[["pay(30)"]], [["tag('a')"]]]) == "response"
        fault = check_turns([[["pay(30)", "pay(30)"]], [["tag('a')", "tag('a')"]]], row, found)
        assert fault is not None and fault.more["turn"] == 0
    row = row_of(["echo(text='')"])
    for _ in range(3):
        assert check_turns([[["echo('')", "pay(1)", "tag('b')"]]], row, found) is None
        with found.fresh():
            side = found.side(["Shelf"], {}, False, "x")
            assert side.run("pay(10)") == '{"balance": 90}'
            assert side.run("tag('a')") == '{"labels": ["a"]}'


def test_precisions_are_put_back() -> None:
    precision = SimpleNamespace(prec=53)
    found = Backends({"MathAPI": MathAPI}, [], precision)
    before = decimal.getcontext().prec
    with found.fresh():
        precision.prec = 7
        assert "1.4" in found.side(["MathAPI"], {}, False, "x").run("square_root(2, 2)")
    assert (decimal.getcontext().prec, precision.prec) == (before, 53)


def test_what_is_no_list_of_turns_is_wrong() -> None:
    row = row_of(["look()"])
    assert outcome(row, {"0": []}) == outcome(row, None) == outcome(row, "look()") == "format"
    assert outcome(row, []) == outcome(row, [[], []]) == outcome(row, [None, None]) == "turn_count"
    assert outcome(row, [None]) == outcome(row, [5]) == outcome(row, [False]) == "uncheckable"
    assert outcome(row, ["look()"]) == outcome(row, [{"look": {}}]) == "turn_empty"
    assert outcome(row_of(["look()"], config={"Shelf": {"broken": 1}}), [[]]) == "uncheckable"


def test_long_predictions_are_wrong() -> None:
    row = row_of(["look()"])
    assert outcome(row, [[["look()"] * MOST_CALLS]]) == ""
    assert outcome(row, [[["look()"] * MOST_CALLS, ["look()"]]]) == "too_long"
    assert outcome(row, [[["look()", "x" * (MOST_CHARACTERS - 5)]]]) == "too_long"


def test_calls_without_a_bound_on_their_cost_are_refused() -> None:
    side = side_of("MathAPI")
    for text in (
        f"power(3, {POWER_BITS})",
        "power(exponent=10**9, base=10)",
        "power(10, 10000000)",
    ):
        assert side.run(text).startswith("error: "), text
    assert "bits" in side.run(f"power(3, {POWER_BITS})")
    assert "precision" in side.run("square_root(2, precision=10000000)")
    assert side.run("power(2, 10)") == '{"result": 1024}'
    assert side.run("power(-1, 1000000001)") == '{"result": -1}'


def test_a_verdict_says_in_which_turn_and_what(monkeypatch: pytest.MonkeyPatch) -> None:
    found = double()
    monkeypatch.setattr(suite, "backends", lambda: found)
    items = Bfcl([row_of([], ["put(item=2)"])], "0" * 64)
    verdict = items.judge("multi_turn_base_0", [[], [["put(item=3)"]]], "official")
    assert verdict.reason == "turn 1: Shelf differs from gold's in items"
    assert verdict.parts == {
        "error_type": "state", "turn": 1, "instance": "Shelf", "attributes": ["items"],
    }  # fmt: skip
    assert items.measures("multi_turn_base_0", verdict) == {"multi_turn_base": (0, 1)}


def hostile_predictions() -> Iterator[Any]:
    for value in (
        None, True, 0, 1.5, float("nan"), 10**5000, "", "x" * 10**6, [], {}, [[]], [{}], [[[]]],
        [[[[]]]], [[[""]]], [[["look()", None]]], deep(10_000, list), deep(10_000, dict),
        [None] * 10**5, [[deep(10_000, list)]], {"turns": []}, [[[deep(10_000, dict)]]],
    ):  # fmt: skip
        yield from (value, [value], [[value]], [[[value]]], [[["put(item=2)"], value]])


def test_no_prediction_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    found = double()
    monkeypatch.setattr(suite, "backends", lambda: found)
    items = Bfcl([row_of(["put(item=2)"])], "0" * 64)
    for prediction in (*hostile_predictions(), [[HOSTILE[:60]]], [[[one] for one in HOSTILE[:60]]]):
        verdict = items.judge("multi_turn_base_0", prediction, "official")
        assert verdict.valid is not None and len(verdict.reason) < 400
        verdict.reason.encode()
        assert len(json.dumps(verdict.parts)) < 1000


QUESTION = {"id": "multi_turn_base_0", "involved_classes": ["TicketAPI"], "initial_config": {}}
ANSWER = {"id": "multi_turn_base_0", "ground_truth": [["logout()"], []]}


@pytest.mark.parametrize(
    ("version", "problem"),
    [(None, "are not installed: say make bfcl-backends"), ("2025.1.1", "are of bfcl-eval 2025.1.1"),
     (VERSION, r"cannot be loaded .*: say make bfcl-backends")],
)  # fmt: skip
def test_without_the_package_other_items_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, problem: str
) -> None:
    def installed(name: str) -> str:
        if version is None:
            raise backends_module.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(backends_module.metadata, "version", installed)
    monkeypatch.setattr(backends_module, "_FOLDER", "no_such_package")
    monkeypatch.setattr(suite, "backends", backends.__wrapped__)
    written(tmp_path, "multi_turn_base", [QUESTION], [ANSWER])
    written(tmp_path, "irrelevance", [{"id": "irrelevance_0"}])
    items = BENCHMARK.load(tmp_path)
    assert list(items.items.items()) == [
        ("irrelevance_0", "irrelevance"),
        ("multi_turn_base_0", "multi_turn_base"),
    ]
    verdict = items.judge("multi_turn_base_0", [[["logout()"]], []], "official")
    assert verdict.valid is None
    assert re.search(problem, verdict.reason)
    assert items.judge("irrelevance_0", [F], "official").valid is False


@pytest.mark.parametrize(
    ("question", "answer", "problem"),
    [
        ({"involved_classes": ["WebSearchAPI"]}, {}, "'involved_classes'"),
        ({"involved_classes": []}, {}, "'involved_classes'"),
        ({"involved_classes": [["TicketAPI"]]}, {}, "'involved_classes'"),
        ({"initial_config": {"TicketAPI": 5}}, {}, "'initial_config'"),
        ({}, {"ground_truth": ["logout()"]}, "'ground_truth'"),
        ({}, {"ground_truth": [[5]]}, "'ground_truth'"),
        ({}, {"id": "other"}, "is in one of them alone"),
    ],
)
def test_a_broken_item_is_refused(tmp_path: Path, question: Any, answer: Any, problem: str) -> None:
    written(tmp_path, "multi_turn_base", [QUESTION | question], [ANSWER | answer])
    with pytest.raises(DataError, match=problem):
        BENCHMARK.load(tmp_path)


def installed() -> Backends:
    found = backends()
    if isinstance(found, Absent):
        pytest.skip(str(found))
    return found


def gold_rows() -> list[TurnsRow]:
    items = BENCHMARK.load(official("bfcl"))
    assert isinstance(items, Bfcl)
    return [row for row in items.rows.values() if isinstance(row, TurnsRow)]


def renamed(call: str) -> str:
    return f"x{call.strip()}"


def positional(call: str) -> str:
    body = ast.parse(call.strip(), mode="eval").body
    assert isinstance(body, ast.Call)
    body.args += [one.value for one in body.keywords]
    body.keywords.clear()
    return ast.unparse(body)


@pytest.mark.slow
def test_all_gold_answers_are_right_and_broken_ones_are_wrong() -> None:
    found, rows = installed(), gold_rows()
    assert len(rows) == 800
    counts: dict[str, int] = {}
    begun = time.process_time()
    for row in rows:
        gold = [list(turn) for turn in row.gold]
        last = max(number for number, turn in enumerate(gold) if turn)
        whole = [[turn] for turn in gold]
        named = [[[renamed(call) for call in turn]] if turn else [] for turn in gold]
        for name, prediction, expected in (
            ("gold", whole, ""),
            ("a call a step", [[[call] for call in turn] for turn in gold], ""),
            ("errors beside", [[[*turn, "no_such()", "ls("]] for turn in gold], ""),
            ("positional", [[list(map(positional, turn))] for turn in gold], None),
            ("a turn less", whole[:-1], "turn_count"),
            ("a turn without calls", [*whole[:last], [], *whole[last + 1 :]], "turn_empty"),
            ("in the first turn", [[list(chain(*gold))], *([] for _ in gold[1:])], None),
            ("names that are none", named, None),
        ):
            fault = check_turns(prediction, row, found)
            if expected is None:
                counts[name] = counts.get(name, 0) + (fault is None)
            else:
                assert (fault.type.value if fault else "") == expected, (row.id, name, fault)
    assert time.process_time() - begun < 60
    # Gold's keywords are not always in the order of the parameters.
    assert counts["names that are none"] == 0 and 700 < counts["positional"] < 800
    assert counts["in the first turn"] < 10


@pytest.mark.slow
def test_the_classes_load_alone_and_keep_what_they_share() -> None:
    found = installed()
    loaded = [name for name in sys.modules if name.startswith("bfcl_eval.")]
    assert not [name for name in loaded if "multi_turn_eval" not in name and name.count(".") > 1]
    shared = {
        f"{module}.{name}": (value, json.dumps(value, default=repr))
        for module in loaded
        for name, value in vars(sys.modules[module]).items()
        if isinstance(value, dict | list) and not name.startswith("__")
    }
    assert len(shared) > 15
    for row in gold_rows()[::4]:
        assert check_turns([[list(turn)] for turn in row.gold], row, found) is None
    found.fresh().__enter__()
    changed = {
        name for name, (value, was) in shared.items() if json.dumps(value, default=repr) != was
    }
    # The weather of the long context has one entry that each call writes anew.
    assert {name.rpartition(".")[2] for name in changed} <= {"LONG_WEATHER_EXTENSION"}


@pytest.mark.slow
def test_no_public_method_is_one_that_the_official_executor_refuses() -> None:
    found = installed()
    side = found.side(list(CLASSES), {}, False, "x")
    assert len(side._methods) > 100
    refused = {"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"}
    assert not refused & {method for _, method in side._methods}


@pytest.mark.slow
def test_costly_calls_of_the_real_classes_end() -> None:
    side = installed().side(list(CLASSES), {}, True, "x")
    begun = time.process_time()
    for text in (
        "power(base=10, exponent=1000000000)",
        "logarithm(value=3, base=2, precision=1000000000)",
        "logarithm(value='1e999999999', base=2, precision=5)",
        "square_root(number=2, precision=1000000000)",
        "round_number(number=5, decimal_places=-1000000000)",
    ):
        assert side.run(text).startswith("error: "), text
    # A directory within itself, and one whose content doubles with each call.
    side.run("mkdir('a')")
    side.run("cp('a', 'a')")
    assert side.run("du()").startswith("error: ") and side.run("find()").startswith("error: ")
    side = installed().side(["GorillaFileSystem"], {}, False, "x")
    side.run("mkdir('a')")
    for number in range(40):
        side.run(f"cp('a', 'b{number}')")
        side.run(f"mv('b{number}', 'a')")
    for text in ("du()", "find()", "find(path='.', name='zz')", "find(name='x', path='./')"):
        assert f"{WALK}" in side.run(text), text
    assert time.process_time() - begun < 20


@pytest.mark.slow
def test_the_double_is_wrong_where_the_real_classes_are() -> None:
    found = installed()
    row = gold_rows()[0]
    for text in HOSTILE:
        fault = check_turns([[[text]], *([] for _ in row.gold[1:])], row, found)
        assert fault is not None and fault.type in (
            ErrorType.STATE,
            ErrorType.TURN_EMPTY,
            ErrorType.TOO_LONG,
        )
