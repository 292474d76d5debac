"""Bamboogle's questions, attempted by a model.

Invariants: gold, said as the rules want it, gets the verdict that a gold prediction gets, for every
question, with a search engine and without; the prediction is the last turn's text; a turn with a
call is answered call by call and goes on, one without ends the attempt; nothing that a model says
raises; the index finds what has the query's words, the rare ones first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genenv_core.benchmarks.bamboogle import BENCHMARK
from genenv_core.benchmarks.bamboogle.playing import (
    ALONE,
    LONGEST,
    MOST_SEARCHES,
    TOOL,
    WITH_PASSAGES,
    WITH_SEARCH,
    BamboogleQuestion,
)
from genenv_core.benchmarks.bamboogle.scoring import judged
from genenv_core.benchmarks.bamboogle.searching import (
    LONGEST_SHOWN,
    SHOWN,
    Index,
    Passage,
    read_corpus,
)
from genenv_core.benchmarks.bamboogle.suite import Bamboogle
from genenv_core.benchmarks.bamboogle.training import BamboogleDomain
from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.errors import ConfigError, DataError
from genenv_core.types import Call, Said
from tests.mutations import mutation
from tests.unit.benchmarks.data import official
from tests.unit.domains.played_turns import call, hostile, played

CORPUS = [
    Passage("Ada Lovelace", "Ada Lovelace was the daughter of Lord Byron."),
    Passage("Lord Byron", "Lord Byron was born in London."),
    Passage("London", "London is the capital of England, of the United Kingdom."),
    Passage("Byron Bay", "Byron Bay is a town."),
]


def verdict(prediction: Any, mode: str) -> ItemVerdict:
    return judged("London", prediction, mode)


def searched(*calls: Call, malformed: tuple[str, ...] = ()) -> list[str]:
    question = BamboogleQuestion("Where?", verdict, search=Index(CORPUS).search)
    observation = question.begin(0).answer(Said("", calls, malformed))
    assert not observation.done
    assert all((m["role"], m.get("name")) == ("tool", "search") for m in observation.messages)
    return [message["content"] for message in observation.messages]


@pytest.fixture(scope="module", params=["none", "corpus"])
def domain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the domain with the official questions, with a search engine and without."""
    corpus = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"title": p.title, "text": p.text}) for p in CORPUS))
    options = {"data": str(official("bamboogle")), "search": request.param}
    if request.param == "corpus":
        options["corpus"] = str(corpus)
    return BamboogleDomain.from_options(options)


def test_gold_that_is_played_gets_the_verdict_of_gold(domain: BamboogleDomain) -> None:
    suite, searches = domain.suite, domain.options.search != "none"
    assert isinstance(suite, Bamboogle) and len(domain.items()) == 125
    for draft in domain.items():
        gold = suite.gold[draft.spec["item"]]
        turns = [call("search", query=draft.prompt)] if searches else []
        turns.append(f"First this, then that.\nFinal answer: {gold}")
        messages, done = played(domain, draft, turns)
        assert done and len(messages) == (5 if searches else 3)
        found = domain.verdict(draft, messages)
        assert found == suite.judge(draft.spec["item"], turns[-1], "official")
        assert found.valid and found.parts["exact_match"] and domain.score(draft, messages).success
        wrong, _ = played(domain, draft, [*turns[:-1], f"Final answer: not {gold}"])
        assert not domain.score(draft, wrong).success


def test_a_question_is_put_as_it_is(domain: BamboogleDomain) -> None:
    draft = domain.items()[1]
    system, user = domain.agent_messages(draft)
    searches = domain.options.search != "none"
    assert system == {"role": "system", "content": WITH_SEARCH if searches else ALONE}
    assert user["content"] == draft.prompt
    assert (
        draft.prompt
        == "What rocket was the first spacecraft that ever approached Uranus launched on?"
    )
    assert list(domain.tools_of(draft)) == ([TOOL] if searches else [])
    assert draft.ground_truth == "" and "Titan" not in str(draft.spec)


@pytest.mark.slow
def test_no_turn_raises_or_succeeds(domain: BamboogleDomain) -> None:
    draft = domain.items()[0]
    for turn in hostile("search"):
        messages, done = played(domain, draft, [turn])
        assert done or domain.options.search != "none"
        assert not domain.score(draft, messages).success
    if domain.options.search != "none":
        chatter = [turn for turn in hostile("search") if not played(domain, draft, [turn])[1]]
        messages, done = played(domain, draft, chatter)
        assert len(chatter) > 15 and not done and not domain.score(draft, messages).success


@mutation(
    "the first turn of an attempt at a question is the answer",
    "genenv_core/benchmarks/bamboogle/playing.py", 'return said[-1].text if said else ""',
    'return said[0].text if said else ""',
)  # fmt: skip
def test_the_prediction_is_the_last_turns_text() -> None:
    question = BamboogleQuestion("Where?", verdict, search=Index(CORPUS).search)
    assert question.prediction([]) == ""
    assert question.prediction([Said("London"), Said("Paris")]) == "Paris"
    assert question.prediction([Said("London"), Said("", (Call("search", {}),))]) == ""
    assert question.judge("London", "official").valid
    assert not question.judge("Paris", "official").valid


def test_passages_stand_before_the_question() -> None:
    system, user = BamboogleQuestion("Where?", verdict, ("a: b", "c: d")).messages
    assert system["content"] == WITH_PASSAGES and user["content"] == "a: b\nc: d\nWhere?"


def test_calls_are_answered_one_by_one() -> None:
    found, unknown, other, malformed = searched(
        Call("search", {"query": "capital of England"}),
        Call("find", {"query": "x"}),
        Call("search", {"q": "x"}),
        malformed=("{",),
    )
    assert found.startswith("London: London is the capital")
    assert unknown == "error: there is no tool 'find'; call search with a query"
    assert "takes one argument, query" in other and "the call is no JSON" in malformed
    for wrong in (3, None, ["x"], {"query": "x"}):
        assert "query, which is text" in searched(Call("search", {"query": wrong}))[0]
    assert "query, which" in searched(Call("search", {"query": "x", "count": 9}))[0]
    for wrong in ("", "  ", "x" * (LONGEST + 1)):
        assert f"has 1 to {LONGEST} characters" in searched(Call("search", {"query": wrong}))[0]
    assert searched(Call("search", {"query": "zzz"})) == [
        "nothing found for 'zzz'; try other words"
    ]


def test_a_turn_has_a_bounded_number_of_searches() -> None:
    texts = searched(*[Call("search", {"query": "London"})] * (MOST_SEARCHES + 2))
    refused = [text for text in texts if "more than" in text]
    assert len(texts) == MOST_SEARCHES + 2 and len(refused) == 2


def test_without_a_search_engine_any_turn_is_the_last() -> None:
    attempt = BamboogleQuestion("Where?", verdict).begin(0)
    for said in (Said("London"), Said("", (Call("search", {"query": "x"}),)), Said("", (), ("{",))):
        assert attempt.answer(said).done


def test_the_index_ranks_by_rare_words() -> None:
    titles = [passage.title for passage in Index(CORPUS).ranked("Lovelace of Byron")]
    assert titles[0] == "Ada Lovelace" and set(titles[1:]) <= {"Lord Byron", "Byron Bay", "London"}
    assert len(Index(CORPUS * 3).ranked("Byron")) == SHOWN
    assert Index(CORPUS).ranked("BYRON bay!")[0].title == "Byron Bay"
    assert Index(CORPUS).ranked("nothing like that") == [] == Index([]).ranked("x")
    assert [p.title for p in Index(CORPUS[:1] * 2).ranked("Ada")] == ["Ada Lovelace"] * 2
    short = Index([Passage("a", "fox " + "word " * 99), Passage("b", "fox")])
    assert [p.title for p in short.ranked("fox")] == ["b", "a"]  # the shorter one says it louder


def test_bm25_by_hand() -> None:
    # Two passages of 2 and 4 words, mean 3; "fox" in one of them: log(1 + 1.5 / 1.5) = log 2.
    index = Index([Passage("a", "fox"), Passage("b", "dog dog dog")])
    assert [p.title for p in index.ranked("fox dog")] == ["b", "a"]
    # gain of fox: 2.2 / (1 + 1.2 * (.25 + .75 * 2 / 3)) = 1.16
    # gain of dog: 6.6 / (3 + 1.2 * (.25 + .75 * 4 / 3)) = 1.47
    assert [p.title for p in index.ranked("fox a dog")] == ["a", "b"]


@mutation(
    "a search finds common words as well as rare ones",
    "genenv_core/benchmarks/bamboogle/searching.py", "math.log1p(rarity) * gain", "gain",
)  # fmt: skip
def test_a_rare_word_counts_more_than_a_common_one_three_times() -> None:
    common = [Passage("p", "owl owl owl"), *[Passage("q", "owl")] * 4]
    assert Index([*common, Passage("r", "elk")]).ranked("owl elk")[0].title == "r"


def test_a_long_passage_is_shown_in_part() -> None:
    shown = Passage("t", "word\n" * 1000).shown()
    assert shown.startswith("t: word word") and len(shown) == LONGEST_SHOWN + 3


def test_a_corpus_is_rows_or_a_folder(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"title": "T", "text": "x", "id": 7}\n\n{"title": "U", "text": "y"}\n')
    found, digest = read_corpus(rows)
    assert found == [Passage("T", "x"), Passage("U", "y")] and len(digest) == 64
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "b.txt").write_text("one\n\ntwo\n")
    (folder / "a.txt").write_text("three")
    (folder / "c.md").write_text("not read")
    assert read_corpus(folder)[0] == [
        Passage("a", "three"),
        Passage("b", "one"),
        Passage("b", "two"),
    ]
    before = read_corpus(folder)[1]
    (folder / "a.txt").write_text("four")
    assert read_corpus(folder)[1] != before
    with pytest.raises(ConfigError, match="no such file"):
        read_corpus(tmp_path / "none")
    for text, problem in (
        ("", "no passages"),
        ("[]\n", "row 1"),
        ('{"title": 1, "text": "x"}', "row 1"),
    ):
        rows.write_text(text)
        with pytest.raises(DataError, match=problem):
            read_corpus(rows)
    (folder / "a.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match="no UTF-8"):
        read_corpus(folder)


def test_limits_and_headline_are_those_of_the_results() -> None:
    suite = Bamboogle([("Who?", "Ann")], "0" * 64)
    found = suite.measures("0", suite.judge("0", "Ann", "official"))
    assert BENCHMARK.headline in found
    assert BENCHMARK.limits.turns > 2 and BENCHMARK.limits.tokens >= BENCHMARK.limits.turn_tokens
