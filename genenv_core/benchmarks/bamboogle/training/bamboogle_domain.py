"""Bamboogle as a domain.

Bamboogle has no training split. genenv draws training questions about things that do not exist, and
puts all that an answer needs into passages; pi_env writes more of them. A user's own questions may
take their place.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field

from genenv_core.benchmarks.bamboogle import BENCHMARK
from genenv_core.benchmarks.bamboogle.playing import SEARCH, BamboogleQuestion, Search
from genenv_core.benchmarks.bamboogle.scoring import judged
from genenv_core.benchmarks.bamboogle.searching import Index, Passage, read_corpus
from genenv_core.benchmarks.bamboogle.suite import Bamboogle
from genenv_core.benchmarks.bamboogle.training.wording import (
    ENV_RULES,
    OBSERVATION_SCHEMA,
    SEARCH_RULES,
)
from genenv_core.benchmarks.bamboogle.training.world import LEVELS, draw
from genenv_core.benchmarks.bamboogle.training.writing import (
    WrittenQuestion,
    draft_of,
    fingerprint,
    path,
    said_as,
)
from genenv_core.benchmarks.training.benchmark_domain import BenchmarkEpisode, BenchmarkOptions
from genenv_core.benchmarks.training.own_tasks import read_written, task_request
from genenv_core.benchmarks.training.rows import RowsOrDrawn
from genenv_core.domains.parts import with_rules
from genenv_core.domains.protocol import SolutionTurn
from genenv_core.domains.tool_calls import OPEN, said, written
from genenv_core.errors import ConfigError, DataError, DomainError
from genenv_core.types import (
    AgentHistory,
    Context,
    Grammar,
    JsonObject,
    Message,
    Rejected,
    TaskDraft,
)


class BamboogleOptions(BenchmarkOptions, use_attribute_docstrings=True):
    """Options of the domain bamboogle."""

    search: Literal["none", "corpus", "simulated"] = "none"
    """What answers the tool `search`: nothing (the tool is not there), a local corpus, or pi_env
    (then with `tools.execution: simulated`). A training task's own passages take the place of the
    corpus."""
    corpus: str | None = Field(default=None, min_length=1)
    """For `search: corpus`: a JSONL file with title and text, or a folder of .txt files."""
    train: str | None = Field(default=None, min_length=1)
    """A JSONL file with question and answer, to train on in place of the fictional world."""
    explain: bool = True
    """Whether prompts open with rules; false is for tiny models made for this domain. The
    benchmark's own questions always do."""


class BamboogleDomain(RowsOrDrawn[BamboogleOptions]):
    """Questions of two hops, with a search engine or without."""

    benchmark = BENCHMARK
    options_type = BamboogleOptions
    code_version = "1"
    observation_schema = OBSERVATION_SCHEMA

    def __init__(self, options: BamboogleOptions) -> None:
        """Read the download, corpus and user's questions; raises ConfigError or DataError."""
        super().__init__(options)
        if (options.search == "corpus") != (options.corpus is not None):
            raise ConfigError(
                f"domain.options.search is {options.search} and corpus is {options.corpus}: "
                "corpus goes with search: corpus, and only with it"
            )
        self._corpus: Index | None = None
        self._corpus_digest = ""
        if options.corpus:
            passages, self._corpus_digest = read_corpus(Path(options.corpus))
            self._corpus = Index(passages)
            self.version += f"-{self._corpus_digest[:16]}"
        self.take_rows(options.train)

    def protocol(self) -> JsonObject:
        """Return the search engine that a result records, with the corpus' digest if it has one."""
        corpus = {"corpus": self._corpus_digest[:16]} if self._corpus else {}
        return {"search": self.options.search, **corpus}

    def item(self, item: str) -> BamboogleQuestion:
        """Return a question of the benchmark, with the search engine of the options."""
        return cast(Bamboogle, self.suite).playable(item, self._engine(()))

    def made(self, spec: JsonObject) -> BamboogleQuestion:
        """Return a training question; raises DomainError for a broken spec."""
        question, answer, passages = _read_spec(spec)
        engine = self._engine(passages)
        shown = () if engine else [passage.shown() for passage in passages]
        return BamboogleQuestion(
            question, partial(judged, answer), shown, engine, self.options.explain
        )

    def episode(self, draft: TaskDraft, seed: int) -> BenchmarkEpisode:
        """Return a fresh attempt; raises DomainError where only pi_env can answer searches."""
        if self.options.search == "simulated" and not draft.spec.get("passages"):
            raise DomainError(
                "bamboogle: search is simulated, so only pi_env answers searches: set "
                "tools.execution: simulated, or search: corpus"
            )
        return super().episode(draft, seed)

    def highest(self) -> int:
        """Return the highest level of the fictional world's questions."""
        return len(LEVELS)

    def draw_task(self, rng: random.Random, level: int) -> TaskDraft:
        """Return a random question of a level about the fictional world."""
        while True:
            drawn = draw(rng, level)
            passages = [{"title": one.title, "text": one.text} for one in drawn.passages]
            values = {"question": drawn.question, "answer": drawn.answer, "passages": passages}
            draft = self._draft_of(WrittenQuestion.model_validate(values))
            if isinstance(draft, TaskDraft):
                return draft

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt: the rules, the agent's success, and a question to vary."""
        return self.asked_of_env(context.history, context.base)

    def env_grammar(self, context: Context) -> Grammar:
        """Return the JSON schema of a generation, the same for each context."""
        return Grammar("json", json.dumps(WrittenQuestion.model_json_schema()))

    def read(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the one question that the text spells, or why it spells no question."""
        found = read_written(WrittenQuestion, text)
        return [found if isinstance(found, Rejected) else self._draft_of(found)]

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the answer; where there is a search engine, a search for each hop comes before it.

        Raises DomainError where the passages do not lead to the answer.
        """
        question, answer, passages = _read_spec(draft.spec)
        told = SolutionTurn(said_as(answer))
        if self.options.search == "none" or not passages:
            return [told]
        searches = [_searched(title) for title in path(question, answer, passages)]
        if not searches:
            raise DomainError(f"bamboogle: the passages do not lead to {answer!a}")
        # A good query may find the last passage first, so the answer may show from there on.
        return [SolutionTurn(searches[0], (answer,)), *map(SolutionTurn, searches[1:]), told]

    def tool_messages(self, draft: TaskDraft, messages: Sequence[Message]) -> list[Message] | None:
        """Return pi_env's prompt for the result of a search; None without a search.

        The prompt shows a training question's passages, so pi_env finds these. Raises DomainError
        on a call that is no search, as the tool answers it with an error.
        """
        spoken = messages[-1]["content"]
        if self.options.search == "none" or OPEN not in spoken:
            return None
        queries = [call.arguments.get("query") for call in said(spoken).calls]
        if not queries or not all(isinstance(query, str) and query for query in queries):
            raise DomainError("bamboogle: a call is no search with a query as text")
        _, _, passages = _read_spec(draft.spec) if "passages" in draft.spec else ("", "", ())
        shown = "\n".join(passage.shown() for passage in passages)
        known = f"passages:\n{shown}\n" if shown else ""
        asked = json.dumps(queries, ensure_ascii=False)
        return self._with_rules(SEARCH_RULES, f"{known}queries: {asked} ; found:")

    def _engine(self, passages: Sequence[Passage]) -> Search | None:
        """Return what answers searches about a question with these passages, if anything does."""
        if self.options.search == "none":
            return None
        if not passages and self._corpus:
            return self._corpus.search
        return lambda query: Index(passages).search(query)

    def _draft_of(self, found: WrittenQuestion) -> TaskDraft | Rejected:
        return draft_of(found, lambda spec: self.made(spec).messages[-1]["content"])

    def asked_of_env(self, history: AgentHistory, base: TaskDraft) -> list[Message]:
        """Return pi_env's prompt: the rules, the agent's success, and a question to vary."""
        return self._with_rules(ENV_RULES, task_request(history, base.program))

    def _with_rules(self, rules: str, content: str) -> list[Message]:
        return with_rules(rules if self.options.explain else "", content)

    def row(self, path: Path, number: int, row: Any) -> TaskDraft:
        """Return the task of a user's row, without passages; raises DataError for a broken row."""
        record = cast(JsonObject, row) if isinstance(row, dict) else {}
        question, answer = record.get("question"), record.get("answer")
        if not isinstance(question, str) or not isinstance(answer, str) or not answer.strip():
            raise DataError(f"{path}, row {number}: wanted question and answer as text: {row!a}")
        draft = TaskDraft(
            prompt=question,
            spec={"question": question, "answer": answer, "passages": []},
            ground_truth=said_as(answer),
            program=json.dumps({"question": question, "answer": answer}, ensure_ascii=False),
            family="given",
            difficulty=1.0,
            fingerprint=fingerprint(question, answer),
        )
        known = self._unless_known(draft)
        if isinstance(known, Rejected):
            raise DataError(f"{path}, row {number}: {known.detail} of Bamboogle; remove the row")
        return draft


def _searched(query: str) -> str:
    return written({"name": SEARCH, "arguments": {"query": query}})


def _read_spec(spec: JsonObject) -> tuple[str, str, list[Passage]]:
    try:
        passages = [Passage(str(one["title"]), str(one["text"])) for one in spec["passages"]]
        return str(spec["question"]), str(spec["answer"]), passages
    except (KeyError, TypeError) as error:
        raise DomainError(
            f"bamboogle: the spec {str(spec)[:120]} has no question, answer and passages; "
            "it was not made by this domain"
        ) from error
