"""Whether a training task repeats an item of a benchmark.

Invariants: 13 words in a row are a repetition, and 12 are none; of a shorter item all words are,
and fewer are not; an item of under five words is compared by its calls alone; case and punctuation
tell no words apart; equal calls are a repetition in any order and spelling, and other calls are
none; what an item repeats is named. `says` answers as the pattern of whole words does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.benchmarks.training.benchmark_domain import ITEM, BenchmarkDomain
from genenv_core.benchmarks.training.words import says
from genenv_core.domains.kit.known_items import LEAST, WORDS, KnownItems
from genenv_core.types import Call, Rejected, Rejection, TaskDraft
from tests.mutations import mutation

CONTAMINATION = "genenv_core/domains/kit/known_items.py"
DOMAIN = "genenv_core/benchmarks/training/benchmark_domain.py"
SAYS = "genenv_core/benchmarks/training/words.py"
SPELLED = ["".join(letters) for size in range(4) for letters in product("aé1_ .²\n", repeat=size)]

LONG = [f"w{number}" for number in range(20)]
SHORT = ["who", "built", "the", "tower", "there", "and", "why"]
BOOK = Call("book", {"place": "Rome", "days": 2, "with": {"a": [1, "x y"], "b": None}})
PAY = Call("pay", {"sum": 3.5})


def known(*items: tuple[str, str, tuple[Call, ...]]) -> KnownItems:
    return KnownItems(items)


def text(words: list[str]) -> str:
    return " ".join(words)


@mutation(
    "twelve words in a row are a repetition of an item", CONTAMINATION, "WORDS = 13", "WORDS = 12"
)
@mutation(
    "the last run of words of a task is not compared", CONTAMINATION,
    "range(len(words) - length + 1)", "range(len(words) - length)",
)  # fmt: skip
def test_thirteen_words_in_a_row_are_a_repetition_and_twelve_are_not() -> None:
    assert (WORDS, LEAST) == (13, 5)
    items = known(("long", text(LONG), ()))
    for start in range(len(LONG) - WORDS + 1):
        run = LONG[start : start + WORDS]
        found = items.repeated(text(["so", *run, "then"]), ())
        assert found == "13 words in a row are those of item long"
        assert items.repeated(text(["so", *run[1:], "then"]), ()) == ""
        assert items.repeated(text([*run[:6], "or", *run[6:]]), ()) == ""


@mutation(
    "an item with fewer than 13 words may be repeated", CONTAMINATION,
    "if len(words) >= LEAST:", "if len(words) >= WORDS:",
)  # fmt: skip
@mutation(
    "a part of a short item is a repetition of it", CONTAMINATION,
    "length = min(WORDS, len(words))", "length = min(LEAST, len(words))",
)  # fmt: skip
def test_of_a_shorter_item_all_words_are_a_repetition() -> None:
    items = known(("short", text(SHORT), ()))
    assert items.repeated(text(["tell", *SHORT, "please"]), ()) == (
        "7 words in a row are those of item short"
    )
    for fewer in (SHORT[1:], SHORT[:-1], SHORT[::-1], ["who", *SHORT[2:]]):
        assert items.repeated(text(["tell", *fewer, "please"]), ()) == ""


@pytest.mark.parametrize(("words", "counts"), [(WORDS, True), (LEAST, True), (LEAST - 1, False)])
def test_an_item_of_very_few_words_is_not_compared_by_them(words: int, counts: bool) -> None:
    whole = text(LONG[:words])
    assert bool(known(("few", whole, ())).repeated(whole, ())) == counts


@mutation(
    "words are compared with their case", CONTAMINATION,
    "_WORD.findall(text.casefold())", "_WORD.findall(text)",
)  # fmt: skip
def test_case_and_punctuation_tell_no_words_apart() -> None:
    items = known(("short", "Who built the tower of STRASSE?", ()))
    assert items.repeated("who, built (the) -- tower... of straße!", ())
    assert not items.repeated("whobuilt the tower of strasse", ())


def test_the_item_that_is_repeated_is_named() -> None:
    items = known(("one", text(LONG), ()), ("two", text(SHORT), ()), ("three", "", (PAY,)))
    assert items.repeated(text(LONG), ()).endswith(" one")
    assert items.repeated(text(SHORT), ()).endswith(" two")
    assert items.repeated("", (PAY,)) == "the calls are those of item three"


@mutation(
    "an item's calls in another order are no repetition", CONTAMINATION,
    "tuple(sorted(json.dumps(_plain([call.name, call.arguments])) for call in calls))",
    "tuple(json.dumps(_plain([call.name, call.arguments])) for call in calls)",
)  # fmt: skip
@mutation(
    "2.0 is another argument than 2", CONTAMINATION,
    "        return int(value)\n", "        return value\n",
)  # fmt: skip
@pytest.mark.parametrize(
    "calls",
    [
        (BOOK, PAY),
        (PAY, BOOK),
        (Call("BOOK", {"days": 2.0, "with": {"b": None, "a": [1, "X-Y"]}, "place": "rome!"}), PAY),
    ],
)
def test_equal_calls_are_a_repetition_in_any_order_and_spelling(calls: tuple[Call, ...]) -> None:
    assert known(("both", "", (BOOK, PAY))).repeated("words of its own", calls)


@mutation(
    "calls of an item's tools are its calls, whatever their arguments", CONTAMINATION,
    "json.dumps(_plain([call.name, call.arguments]))", "json.dumps(_plain([call.name]))",
)  # fmt: skip
@pytest.mark.parametrize(
    "calls",
    [
        (),
        (BOOK,),
        (BOOK, PAY, PAY),
        (replace(BOOK, name="look"), PAY),
        (replace(BOOK, arguments={**BOOK.arguments, "days": 3}), PAY),
        (replace(BOOK, arguments={**BOOK.arguments, "more": 1}), PAY),
        (replace(BOOK, arguments={"place": "Rome", "days": 2}), PAY),
    ],
)
def test_other_calls_are_no_repetition(calls: tuple[Call, ...]) -> None:
    assert known(("both", "", (BOOK, PAY))).repeated("words of its own", calls) == ""


@mutation(
    "calls without arguments are a repetition", CONTAMINATION,
    "if calls and any(call.arguments for call in calls):", "if calls:",
)  # fmt: skip
def test_calls_without_arguments_tell_nothing() -> None:
    look = (Call("look", {}),)
    assert known(("bare", "", look), ("none", "", ())).repeated("words", look) == ""
    assert known(("none", "", ())).repeated("words", ()) == ""


@dataclass
class Turnless:
    """An item without turns, whose verdict is given."""

    found: ItemVerdict
    messages: tuple[Any, ...] = ()

    def prediction(self, said: Any) -> list[Any]:
        return list(said)

    def judge(self, prediction: Any, mode: str) -> ItemVerdict:
        assert mode == "official"
        return self.found


class Fixed(BenchmarkDomain[Any]):
    """A domain with one item, whose generations are drafts of their own text."""

    def __init__(self, found: ItemVerdict | None = None) -> None:
        self.name, self.mode = "fixed", "official"
        self.found = found
        self.suite = cast(Any, SimpleNamespace(items={"only": "group"}))

    def item(self, item: str) -> Any:
        messages = [{"role": "user", "content": text(SHORT)}]
        return Turnless(self.found, tuple(messages)) if self.found else SimpleNamespace(
            messages=messages
        )  # fmt: skip

    def read(self, text: str) -> list[TaskDraft | Rejected]:
        if not text:
            return [Rejected(Rejection.UNPARSEABLE, "nothing")]
        return [TaskDraft(text, {}, "", text, "group", 1.0, text)]

    made = base_tasks = heldout_tasks = env_messages = cast(Any, None)


@mutation(
    "a generation may repeat an item of a benchmark", DOMAIN,
    "return Rejected(Rejection.CONTAMINATED, why) if why else draft", "return draft",
)  # fmt: skip
def test_a_generation_that_repeats_an_item_is_rejected() -> None:
    domain = Fixed()
    (found,) = domain.parse(f"Say: {text(SHORT)}.")
    assert found == Rejected(Rejection.CONTAMINATED, "7 words in a row are those of item only")
    (found,) = domain.parse("another question about a tower")
    assert isinstance(found, TaskDraft)
    (found,) = domain.parse("")
    assert isinstance(found, Rejected) and found.reason is Rejection.UNPARSEABLE


@mutation(
    "a verdict that could not be told is a success", DOMAIN,
    "success = found.valid is True", "success = found.valid is not False",
)  # fmt: skip
@mutation(
    "an attempt is a success by its score", DOMAIN,
    "success = found.valid is True", "success = found.score > 0",
)  # fmt: skip
@pytest.mark.parametrize(
    ("valid", "reason", "failure"),
    [(True, "", ""), (False, "two  calls\nwhere", "two calls where"), (False, "", "wrong"),
     (None, "no games", "no games"), (None, "", "wrong")],
)  # fmt: skip
def test_only_a_verdict_that_says_valid_is_a_success(
    valid: bool | None, reason: str, failure: str
) -> None:
    """One that could not be told has failed, whatever its score."""
    domain = Fixed(ItemVerdict(valid, 0.75, reason))
    (item,) = domain.items()
    assert item.spec == {ITEM: "only"}
    scored = domain.score(item, domain.agent_messages(item))
    assert (scored.reward, scored.success, scored.failure) == (0.75, valid is True, failure)


@mutation("words need not begin", SAYS, "if not (_of_word(text[start - 1 : start]) or ", "if not (")
@mutation("words need not end", SAYS, " or _of_word(text[end : end + 1])", "")
@mutation("words are looked for once", SAYS, "start = text.find(words, start + 1)", "break")
@mutation("_ is between words", SAYS, ' or letter == "_"', "")
@pytest.mark.parametrize("words", ["", "a", "é", "1", "_", ".", "aa", "a ", ".a", "a.a", "²"])
def test_words_are_said_where_the_pattern_of_whole_words_is_found(words: str) -> None:
    pattern = re.compile(rf"(?<!\w){re.escape(words)}(?!\w)")
    assert [t for t in SPELLED if says(t, words)] == [t for t in SPELLED if pattern.search(t)]
