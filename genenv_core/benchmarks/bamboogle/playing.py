"""A question as a model attempts it: one turn, or searches and then a turn that answers.

The published file has questions and answers alone, and no harness. So genenv decides how to put a
question: the last line of the answer is marked, as self-ask marks it, and `scoring.extracted` reads
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from genenv_core.benchmarks.protocol import ItemVerdict
from genenv_core.types import Call, JsonObject, Message, Observation, Said

Search = Callable[[str], str]
"""What a search engine answers to a query: passages as text. It raises nothing on any query."""

SEARCH = "search"

_HOW = (
    "Answer the question. {how}End with one line that says\n"
    "Final answer: ...\n"
    "and there the answer alone, in as few words as possible and without a full stop."
)
ALONE = _HOW.format(how="Work it out step by step. ")
WITH_PASSAGES = _HOW.format(how="The passages before it say what you need. ")
WITH_SEARCH = _HOW.format(
    how=f"Call the tool {SEARCH} to look things up, one fact after the other. A turn without a "
    "call is your answer. "
)
"""The rules that the model reads before the question, where it can search."""

MOST_SEARCHES = 8
"""Most searches of one turn; the attempt refuses those beyond."""

LONGEST = 1000
"""Most characters of a query; the attempt refuses longer ones."""

TOOL: JsonObject = {
    "type": "function",
    "function": {
        "name": SEARCH,
        "description": "Find the passages that say most about a query.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "A few words to look for."}},
            "required": ["query"],
        },
    },
}


@dataclass(frozen=True, slots=True)
class BamboogleQuestion:
    """A question with its judge, the passages before it, and a search engine."""

    question: str
    verdict: Callable[[Any, str], ItemVerdict]
    passages: Sequence[str] = ()
    search: Search | None = None
    explained: bool = True
    """Whether the rules of answering open the attempt."""

    @property
    def messages(self) -> Sequence[Message]:
        """The rules of answering, where `explained`, and the question after its passages."""
        alone = WITH_PASSAGES if self.passages else ALONE
        rules = WITH_SEARCH if self.search else alone
        asked = "\n".join([*self.passages, self.question])
        user: Message = {"role": "user", "content": asked}
        return ({"role": "system", "content": rules}, user) if self.explained else (user,)

    @property
    def tools(self) -> Sequence[JsonObject]:
        """The tool `search` where there is a search engine."""
        return (TOOL,) if self.search else ()

    def begin(self, seed: int) -> QuestionAttempt:
        """Return a fresh attempt; nothing in it is random."""
        return QuestionAttempt(self.search)

    def prediction(self, said: Sequence[Said]) -> str:
        """Return the text of the last turn."""
        return said[-1].text if said else ""

    def judge(self, prediction: Any, mode: str) -> ItemVerdict:
        """Return the verdict on any JSON value as the answer."""
        return self.verdict(prediction, mode)


class QuestionAttempt:
    """One attempt: without a search engine any turn ends it, with one a turn without a call."""

    def __init__(self, search: Search | None) -> None:
        self._search = search

    def answer(self, said: Said) -> Observation:
        """Return the results of the searches."""
        if self._search is None or not (said.calls or said.malformed):
            return Observation()
        answers = [self._found(call, place) for place, call in enumerate(said.calls)]
        answers += [_UNREADABLE] * len(said.malformed)
        messages: list[Message] = [
            {"role": "tool", "name": SEARCH, "content": text} for text in answers
        ]
        return Observation(tuple(messages), done=False)

    def _found(self, call: Call, place: int) -> str:
        assert self._search is not None
        query = call.arguments.get("query")
        if call.name != SEARCH:
            return f"error: there is no tool {call.name[:40]!a}; call {SEARCH} with a query"
        if not isinstance(query, str) or call.arguments.keys() != {"query"}:
            return f"error: {SEARCH} takes one argument, query, which is text"
        if place >= MOST_SEARCHES:
            return f"error: this turn has more than {MOST_SEARCHES} searches; ask again"
        if not query.strip() or len(query) > LONGEST:
            return f"error: a query has 1 to {LONGEST} characters; ask for a few words"
        return self._search(query) or f"nothing found for {query[:80]!a}; try other words"


_UNREADABLE = (
    "error: the call is no JSON; write "
    '<tool_call>{"name": "search", "arguments": {"query": "..."}}</tool_call>'
)
