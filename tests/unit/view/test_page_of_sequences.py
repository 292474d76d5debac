"""The page of an attempt whose conversation began anew.

Invariants: it has the tokens of all sequences in order, each sampled one once, and the whole text
of each prompt; it says where each sequence begins, what its prompt was made from, and in plain
words how often that was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from flows.view.app import application
from genenv_core.storage.sql.lookup import beginning
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_sequences import RUN, ForgetfulRoot, forgetful_root

LOOKUP = "genenv_core/storage/sql/lookup.py"
TRACE = "flows/view/pages/trace.py"
PAGE = "flows/view/templates/trace.html.j2"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ForgetfulRoot:
    return forgetful_root(tmp_path_factory.mktemp("sequences") / "root")


@pytest.fixture(scope="module")
def client(made: ForgetfulRoot) -> Iterator[TestClient]:
    with TestClient(application(made.store), base_url="http://localhost") as browser:
        yield browser


class TokensOfPage(HTMLParser):
    """The tokens of a page by sequence: what says that it begins, its ids, texts and classes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.begins: list[str] = [""]
        self.ids: list[list[int]] = [[]]
        self.texts: list[str] = [""]
        self.sampled: list[int] = []
        self._depth, self._in = 0, ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "div" and (self._depth or given.get("class") == "tokens"):
            self._depth += 1
            if self._depth == 2:
                self._in = "begins"
                self.begins.append("")
                self.ids.append([])
                self.texts.append("")
        elif tag == "span" and self._depth:
            self._in = "token"
            ident = int((given["title"] or "").split(",")[0].removeprefix("id "))
            self.ids[-1].append(ident)
            if re.search(r"\bp\d", given["class"] or ""):
                self.sampled.append(ident)

    def handle_data(self, data: str) -> None:
        if self._in == "begins":
            self.begins[-1] += data
        elif self._in == "token":
            self.texts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "div" and self._depth > 0
        self._in = ""


@mutation(
    "a page shows the first sequence alone", TRACE,
    "trainer.first, further.rows)", "trainer.first, [])",
)  # fmt: skip
@mutation(
    "a page does not say where a sequence begins", PAGE, "{% if part.begins %}", "{% if false %}"
)
@mutation(
    "a sequence on a page has not its prompt", TRACE,
    "ids, logprobs, mask = with_prompt(one)",
    'ids, logprobs, mask = one["token_ids"], one["logprobs"], one["loss_mask"]',
)  # fmt: skip
@mutation(
    "a page says 1 times", TRACE,
    'return {1: "once", 2: "twice"}.get(count', 'return {2: "twice"}.get(count', by="[1]",
)  # fmt: skip
@mutation(
    "a page says 2 times", TRACE,
    'return {1: "once", 2: "twice"}.get(count', 'return {1: "once"}.get(count', by="[2]",
)  # fmt: skip
@pytest.mark.parametrize("place", some(range(3), (1, 2)))
def test_a_page_has_each_sequence_and_each_sampled_token_once(
    place: int, made: ForgetfulRoot, client: TestClient
) -> None:
    text = client.get(f"/runs/{RUN}/traces/{made.traces[place]}").text
    found = TokensOfPage(text)
    kept = made.kept[place]
    assert found.sampled == [token for _, one in kept for token in one.token_ids]
    whole: list[tuple[int, ...]] = []
    for request, completion in kept:
        if whole and request.prompt_ids[: len(whole[-1])] == whole[-1]:
            whole.pop()
        whole.append((*request.prompt_ids, *completion.token_ids))
    opening = len(kept[0][0].prompt_ids)
    assert found.ids == [list(whole[0][opening:]), *map(list, whole[1:])]
    for shown, ids in zip(found.texts[1:], whole[1:], strict=True):
        assert shown.replace("<|im_end|>", "").replace("<|im_start|>", "") == made.chat.decode(ids)
        assert "look" in shown  # what the agent saw before, in the new prompt
    turns = {0: (1, 2, 3), 1: (1,), 2: (2, 3)}[place]
    assert found.begins == [""] + [
        f"Sequence {number} begins with a prompt at turn {turn}, made from sequence {number - 1}."
        for number, turn in enumerate(turns, 1)
    ]
    often = ("3 times", "once", "twice")[place]
    assert f"The conversation began anew {often}:" in text


@mutation(
    "a sequence without a parent has one on its page", LOOKUP,
    'if row["parent"] is None:', "if False:",
)  # fmt: skip
@mutation(
    "a branch in the middle seems to be one from the end", LOOKUP,
    'if row["branch_turn"] < row["turn"]', "if False",
)  # fmt: skip
@pytest.mark.parametrize(
    ("parent", "branch_turn", "said"),
    [
        (None, 0, "made from no other sequence."),
        (0, 1, "made from sequence 0 before turn 1."),
        (1, 4, "made from sequence 1."),
    ],
)
def test_a_sequence_says_what_it_was_made_from(
    parent: int | None, branch_turn: int, said: str
) -> None:
    row = {"sequence": 2, "turn": 4, "parent": parent, "branch_turn": branch_turn}
    assert beginning(row) == f"Sequence 2 begins with a prompt at turn 4, {said}"
