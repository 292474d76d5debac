"""The domain `bfcl`: BFCL's items to evaluate with, and genenv's own requests to train on.

BFCL has no training split. genenv draws training requests from a catalogue of functions, a user may
add rows in BFCL's format, and pi_env writes further ones. All are single-turn.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from genenv_core.benchmarks.bfcl import BENCHMARK
from genenv_core.benchmarks.bfcl.rows import Row
from genenv_core.benchmarks.bfcl.suite import Bfcl
from genenv_core.benchmarks.bfcl.tools import tool_names
from genenv_core.benchmarks.bfcl.training.drawing import draw_program
from genenv_core.benchmarks.bfcl.training.made import NOTHING_FITS, MadeTask, task_of
from genenv_core.benchmarks.bfcl.training.program import Program, read_program
from genenv_core.benchmarks.bfcl.training.rows import (
    GivenTask,
    first_calls,
    read_given,
    required_rows,
)
from genenv_core.benchmarks.bfcl.training.wording import asked, env_rules, schema
from genenv_core.benchmarks.bfcl.turns.backends import Absent, backends
from genenv_core.benchmarks.bfcl.turns.rows import TurnsRow
from genenv_core.benchmarks.training.benchmark_domain import ITEM, BenchmarkDomain, BenchmarkOptions
from genenv_core.domains.kit.levels import SeededTasks
from genenv_core.domains.parts import distinct, draw_open, in_heldout, with_rules
from genenv_core.domains.protocol import SeedExample, SolutionTurn
from genenv_core.domains.tool_calls import written
from genenv_core.errors import DomainError
from genenv_core.types import (
    AgentHistory,
    Call,
    Context,
    Grammar,
    JsonObject,
    Message,
    Rejected,
    TaskDraft,
)

_log = logging.getLogger(__name__)


class BfclOptions(BenchmarkOptions):
    """Options of the domain bfcl, from `domain.options` of the run's configuration."""

    hardest: int = Field(default=6, ge=1, le=8)
    """Largest difficulty of a training task: the number of its calls, plus the functions not
    called."""
    train: str | None = Field(default=None, min_length=1)
    """A file of your own rows in BFCL's format, one JSON object a line with question, function and
    ground_truth. Base and held-out tasks take these rows first, and then requests of the
    catalogue."""
    explain: bool = True
    """Whether pi_env's prompt opens with the rules; false for models that trained on such tasks
    before."""


class BfclDomain(SeededTasks, BenchmarkDomain[BfclOptions]):
    """The domain: the agent answers requests with calls, which BFCL's checker judges."""

    benchmark = BENCHMARK
    options_type = BfclOptions
    code_version = "1"

    def __init__(self, options: BfclOptions) -> None:
        """Read the download and the rows; raises ConfigError or DataError."""
        super().__init__(options)
        if options.train is not None:
            content = required_rows(Path(options.train)).read_bytes()
            self.version += f"-{hashlib.sha256(content).hexdigest()[:16]}"
        if self._left_out:
            self.version += "-single-turn"

    @cached_property
    def _left_out(self) -> str:
        """Why the multi-turn items cannot run here; '' if they can, or if there are none."""
        found = backends()
        turns = any(isinstance(row, TurnsRow) for row in self._rows.values())
        return str(found) if turns and isinstance(found, Absent) else ""

    @property
    def _rows(self) -> Mapping[str, Row | TurnsRow]:
        suite = self.suite
        assert isinstance(suite, Bfcl)
        return suite.rows

    def attempted(self) -> list[TaskDraft]:
        """Return the items, without the multi-turn ones where their back ends are not installed."""
        return [
            draft
            for draft in self.items()
            if not self._left_out or isinstance(self._rows[draft.spec[ITEM]], Row)
        ]

    def protocol(self) -> JsonObject:
        """Return which items an evaluation here leaves out and why, {} for none left out."""
        return {"left_out": f"multi-turn: {self._left_out}"} if self._left_out else {}

    def made(self, spec: JsonObject) -> MadeTask:
        """Return a training task; raises DomainError for a broken spec."""
        return task_of(spec)

    def highest(self) -> int:
        """Return the largest difficulty of a training task."""
        return self.options.hardest

    def draw_task(self, rng: random.Random, level: int) -> TaskDraft:
        """Return a random request of this difficulty for functions of the catalogue."""
        return _draft(draw_program(rng, level))

    def limited_by(self) -> str:
        """Return the option that bounds how many tasks there are."""
        return f"hardest {self.options.hardest}"

    def env_messages(self, context: Context) -> list[Message]:
        """Return pi_env's prompt: the agent's success by family, and a base task to vary."""
        return self.asked_of_env(context.history, context.base)

    def env_grammar(self, context: Context) -> Grammar:
        """Return the JSON schema of a generation, the same for each context."""
        return Grammar("json", json.dumps(schema(self.options.hardest)))

    def read(self, text: str) -> list[TaskDraft | Rejected]:
        """Return the one task that a text spells, or why it spells no task; never raises."""
        program = read_program(text, self.options.hardest)
        return [program if isinstance(program, Rejected) else _draft(program)]

    def calls_of(self, draft: TaskDraft) -> Sequence[Call]:
        """Return the calls of the right answer, with the first values that gold lists.

        A multi-turn item gives no calls: its calls do not answer one request.
        """
        if ITEM not in draft.spec:
            return first_calls(draft.spec["ground_truth"])
        row = self._rows[str(draft.spec[ITEM])]
        return first_calls(row.gold) if isinstance(row, Row) else ()

    def solution(self, draft: TaskDraft) -> list[SolutionTurn]:
        """Return the one turn with the right calls; raises DomainError for an item."""
        if ITEM in draft.spec:
            raise DomainError("bfcl: the answers of BFCL's items stay in the download")
        return [SolutionTurn(draft.ground_truth)]

    def trivial_answers(self, draft: TaskDraft) -> list[str]:
        """Return texts that call nothing, and calls of each function without arguments."""
        texts = [*super().trivial_answers(draft), draft.program]
        if ITEM in draft.spec:
            return texts
        gold: list[JsonObject] = draft.spec["ground_truth"]
        free = [
            all("" in listed for listed in values.values())
            for call in gold
            for values in call.values()
        ]
        if not any(free):  # or such a call may be the right one
            names = [tool["function"]["name"] for tool in self.tools_of(draft)]
            texts += [_said([Call(name, {})]) for name in names]
        if gold:
            texts.append(NOTHING_FITS)
        return texts

    def one_turn(self, draft: TaskDraft, rng: random.Random) -> SeedExample:
        """Return a request and the one turn with its right calls."""
        return self.agent_messages(draft), draft.ground_truth

    def distinct_tasks(
        self,
        rng: random.Random,
        count: int,
        pick: Callable[[Sequence[int]], int],
        *,
        heldout: bool,
    ) -> list[TaskDraft]:
        """Return `count` distinct tasks, all inside or outside of the held-out bucket.

        The user's rows come first. Raises ConfigError where there are fewer.
        """
        # By the question: with other functions beside it, it stays the same request.
        given = [draft for draft in self._given if in_heldout(draft.prompt) == heldout]
        rng.shuffle(given)
        given = given[:count]
        known = {draft.program for draft in given}

        def draw(level: int) -> TaskDraft:
            while True:
                draft = self.draw_task(rng, level)
                if in_heldout(draft.prompt) == heldout and draft.program not in known:
                    return draft

        return given + distinct(
            count - len(given),
            self.highest(),
            pick,
            draw,
            heldout=heldout,
            domain=self.name,
            bounds=self.limited_by(),
        )

    def draw_open(self, rng: random.Random, weights: Sequence[float]) -> TaskDraft:
        """Return a drawn task whose fingerprint and question are both not held out."""

        def draw(level: int) -> TaskDraft:
            while in_heldout((draft := self.draw_task(rng, level)).prompt):
                pass
            return draft

        return draw_open(rng, weights, draw)

    @cached_property
    def _given(self) -> list[TaskDraft]:
        """The user's rows without those that repeat an item of BFCL, whose number a warning logs.

        Raises ConfigError without the file, DataError for a broken row.
        """
        if self.options.train is None:
            return []
        path = Path(self.options.train)
        rows = [_draft(one.program, one) for one in read_given(path, self.options.hardest)]
        repeats = [(one, self._known.repeated(one.prompt, self.calls_of(one))) for one in rows]
        left_out = [why for _, why in repeats if why]
        if left_out:
            _log.warning("train=%s left_out=%d first=%r", path, len(left_out), left_out[0])
        return [draft for draft, why in repeats if not why]

    def asked_of_env(self, history: AgentHistory, base: TaskDraft) -> list[Message]:
        """Return pi_env's prompt: the agent's success by family, and a base task to vary."""
        rules = env_rules(self.options.hardest) if self.options.explain else ""
        return with_rules(rules, asked(history, base.program))


def _draft(program: Program, given: GivenTask | None = None) -> TaskDraft:
    """Return the task of a program, or of a row with its own messages and gold."""
    text = program.spelled()
    user: Message = {"role": "user", "content": program.question}
    spec: dict[str, Any] = {
        "messages": given.messages if given else [user],
        "functions": list(program.functions),
        "ground_truth": given.gold if given else program.gold,
    }
    names = [function["name"] for function in program.functions]
    tools = dict(zip(names, tool_names(names), strict=True))
    calls = [Call(tools[call.name], call.arguments) for call in program.calls]
    return TaskDraft(
        prompt=program.question,
        spec=spec,
        ground_truth=_said(calls) if calls else NOTHING_FITS,
        program=text,
        family=program.family,
        difficulty=float(program.difficulty),
        fingerprint=text,
    )


def _said(calls: Sequence[Call]) -> str:
    return "\n".join(written({"name": call.name, "arguments": call.arguments}) for call in calls)
