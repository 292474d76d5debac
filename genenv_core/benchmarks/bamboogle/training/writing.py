"""Reads what pi_env writes, a question with passages, and checks that it takes several hops.

A passage is about the thing that its title names. A passage leads to another when it says the
other's title. The question says the title of the passage to start from; the answer stands in a
passage that cannot be the first one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from genenv_core.benchmarks.bamboogle.scoring import contains, normalized
from genenv_core.benchmarks.bamboogle.searching import Passage
from genenv_core.benchmarks.training.words import says
from genenv_core.types import JsonObject, Rejected, Rejection, TaskDraft

_YEAR = re.compile(r"\d{4}")


class WrittenPassage(BaseModel, use_attribute_docstrings=True):
    """A passage as pi_env writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(min_length=1, max_length=80)
    """The thing that the passage is about."""
    text: str = Field(min_length=1, max_length=600)
    """One to three sentences about it."""


class WrittenQuestion(BaseModel, use_attribute_docstrings=True):
    """A generation of pi_env."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str = Field(min_length=8, max_length=300)
    """What the agent is asked."""
    answer: str = Field(min_length=1, max_length=60)
    """The one right answer, as a passage says it."""
    passages: list[WrittenPassage] = Field(min_length=2, max_length=16)
    """What there is to know; some of it is not needed."""


def hops(question: str, answer: str, passages: Sequence[Passage]) -> int | Rejected:
    """Return how many passages an agent has to read in turn, or why this is no question.

    A question takes at least 2 hops.
    """
    titles = [passage.title for passage in passages]
    if not question.rstrip().endswith("?"):
        return Rejected(Rejection.INCONSISTENT, "the question does not end with ?")
    if len({title.casefold() for title in titles}) < len(titles):
        return Rejected(Rejection.INCONSISTENT, "two passages have one title")
    if not normalized(answer):
        return Rejected(Rejection.INCONSISTENT, "the answer has no word")
    if contains(question, answer):
        return Rejected(Rejection.LEAKS_ANSWER, f"the question says the answer {answer!r}")
    holding = {p.title for p in passages if contains(f"{p.title}: {p.text}", answer)}
    if not holding:
        return Rejected(Rejection.INCONSISTENT, f"no passage says the answer {answer!r}")
    asked = [title for title in titles if says(question, title)]
    if not asked:
        return Rejected(Rejection.INCONSISTENT, "the question names no passage's title")
    for passage in passages:
        if passage.title in holding and any(_about(passage, title) for title in asked):
            return Rejected(
                Rejection.INCONSISTENT, f"the passage {passage.title!r} is enough to answer"
            )
    way = path(question, answer, passages)
    if not way:
        return Rejected(
            Rejection.INCONSISTENT, f"the passages do not lead from {asked[0]!r} to the answer"
        )
    return len(way)


def draft_of(written: WrittenQuestion, asked: Callable[[JsonObject], str]) -> TaskDraft | Rejected:
    """Return the task that a generation spells, or why it spells no task; `asked` is the prompt."""
    passages = [Passage(one.title, one.text) for one in written.passages]
    length = hops(written.question, written.answer, passages)
    if isinstance(length, Rejected):
        return length
    others = len(passages) - length
    spec = written.model_dump()
    return TaskDraft(
        prompt=asked(spec),
        spec=spec,
        ground_truth=said_as(written.answer),
        program=written.model_dump_json(),
        family=f"hops{min(length, 4)} {_kind(written.answer)}",
        difficulty=float(2 * min(length, 4) - 3 + (others > 2)),
        fingerprint=fingerprint(written.question, written.answer),
    )


def said_as(answer: str) -> str:
    """Return an answer as the agent says it."""
    return f"Final answer: {answer}"


def fingerprint(question: str, answer: str) -> str:
    """Return the text that all spellings of one task share."""
    return f"{normalized(question)} => {normalized(answer)}"


def path(question: str, answer: str, passages: Sequence[Passage]) -> list[str]:
    """Return the titles to look up in turn; [] where no passages lead to the answer."""
    asked = [p.title for p in passages if says(question, p.title)]
    holding = {p.title for p in passages if contains(f"{p.title}: {p.text}", answer)}
    ways = {title: [title] for title in asked}
    queue = list(asked)
    while queue:
        title = queue.pop(0)
        if title in holding:
            return ways[title]
        for following in _leads(passages, title):
            if following not in ways:
                ways[following] = [*ways[title], following]
                queue.append(following)
    return []


def _leads(passages: Sequence[Passage], title: str) -> list[str]:
    text = next(p.text for p in passages if p.title == title)
    return [p.title for p in passages if p.title != title and says(text, p.title)]


def _about(passage: Passage, title: str) -> bool:
    return passage.title == title or says(passage.text, title)


def _kind(answer: str) -> str:
    if _YEAR.fullmatch(answer.strip()):
        return "year"
    return "number" if any(character.isdigit() for character in answer) else "words"
