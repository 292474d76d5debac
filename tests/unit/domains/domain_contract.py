"""The contract of every domain, as one class of tests; a subclass names a domain.

Invariants: base and held-out tasks are distinct, sound and read back from their programs; the seed
alone decides what is drawn; what is held out is no base task and no example, by a hash and not by
luck; what pi_env learns from are tasks, easy ones first; pi_env is told the agent's success and the
base task; its grammar allows what is drawn, and not everything; no text makes the parser raise; the
task of another domain is refused.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from jsonschema import Draft202012Validator

from genenv_core.domains.parts import in_heldout
from genenv_core.domains.protocol import ConstrainsEnv, SeedData
from genenv_core.errors import DomainError
from genenv_core.types import (
    AgentHistory,
    Context,
    Grammar,
    JsonObject,
    Message,
    Rejected,
    TaskDraft,
)
from tests.mutations import mutation
from tests.unit.domains.checking import flaws

NO_PROGRAMS = ("", " ", "a trip", "{", "[]", "{}", "null", "NaN", "\ud800", "[" * 100_000,
               "{" * 100_000, '{"a":' * 900 + "1" + "}" * 900)  # fmt: skip


def written(domain: Any, seed: int, count: int, skew: float) -> list[TaskDraft]:
    """Return the tasks that the examples for pi_env write; its part as a tool is left out."""
    examples = domain.env_examples(seed, count, skew)
    assert len(examples) == count
    found = [domain.parse(text) for messages, text in examples
             if "; new:" in messages[-1]["content"]]  # fmt: skip
    assert found and all(isinstance(draft, TaskDraft) for (draft,) in found)
    return [draft for (draft,) in found]


def allowed(grammar: Grammar, text: str) -> bool:
    """Return whether pi_env can write the text."""
    if grammar.kind == "regex":
        return bool(re.fullmatch(grammar.text, text))
    try:
        return Draft202012Validator(json.loads(grammar.text)).is_valid(json.loads(text))
    except json.JSONDecodeError:
        return False


class DomainContract:
    """The tests; `domain` is a fixture of the module, or of the subclass.

    `base`, `heldout` and `examples` say how many are drawn, `protocols` what the domain is beside a
    domain, `not_allowed` which texts its grammar has to refuse, and `alien` which specs it does not
    know. Some refuse the program of a held-out task (`refuses_heldout`).
    """

    base, heldout, examples = 60, 20, 40
    protocols: ClassVar[Sequence[type]] = (SeedData, ConstrainsEnv)
    not_allowed: ClassVar[Sequence[str]] = ("", "{}")
    alien: ClassVar[Sequence[JsonObject]] = ({}, {"answer": 3})
    refuses_heldout = False
    by_hash = prompts_are_apart = True

    def apart(self, draft: TaskDraft) -> str:
        """Return what a base and a held-out task may not share; its hash tells which it is."""
        return draft.fingerprint

    def shows(self, message: str, prompt: str) -> bool:
        """Return whether a message is this request."""
        return message == prompt

    def test_it_is_more_than_a_domain(self, domain: Any) -> None:
        assert [one.__name__ for one in self.protocols if not isinstance(domain, one)] == []

    def test_tasks_are_distinct_and_sound_and_read_back(self, domain: Any) -> None:
        base, held = domain.base_tasks(1, self.base), domain.heldout_tasks(1, self.heldout)
        assert len({draft.fingerprint for draft in [*base, *held]}) == self.base + self.heldout
        for draft in [*base, *held]:
            assert flaws(draft, domain) == [], draft.prompt
            assert json.loads(json.dumps(draft.spec)) == draft.spec
            (found,) = domain.parse(draft.program)
            if draft in held and self.refuses_heldout:
                assert isinstance(found, Rejected) and found.reason == "in_heldout"
            else:
                assert found == draft

    def test_the_seed_alone_decides_what_is_drawn(self, domain: Any) -> None:
        for draw in (
            lambda seed: domain.base_tasks(seed, self.base),
            lambda seed: domain.heldout_tasks(seed, self.heldout),
            lambda seed: domain.agent_examples(seed, self.examples),
            lambda seed: domain.env_examples(seed, self.examples, 0.5),
        ):
            assert draw(3) == draw(3) != draw(4)

    @mutation(
        "questions about a fictional world are held out by luck",
        "genenv_core/domains/parts.py",
        "if in_heldout(draft.fingerprint) == heldout and draft.fingerprint not in drafts:",
        "if draft.fingerprint not in drafts:",
        by="unit/benchmarks/bamboogle/test_bamboogle_training.py::TestBamboogle::"
        "test_what_is_held_out_is_no_base_task_and_no_example",
    )  # fmt: skip
    @pytest.mark.parametrize("seed", range(2))
    def test_what_is_held_out_is_no_base_task_and_no_example(self, domain: Any, seed: int) -> None:
        held = domain.heldout_tasks(seed, self.heldout)
        base = domain.base_tasks(seed + 1, self.base)
        seen = [*base, *written(domain, seed, self.examples, 0.5)]
        apart, near = set(map(self.apart, held)), set(map(self.apart, seen))
        assert apart.isdisjoint(near)
        if self.by_hash:
            assert all(map(in_heldout, apart)) and not any(map(in_heldout, near))
        if not self.prompts_are_apart:
            return
        asked = {
            message["content"]
            for messages, _ in domain.agent_examples(seed, self.examples)
            for message in messages
        }
        prompts = [draft.prompt for draft in held]
        assert not any(self.shows(message, prompt) for message in asked for prompt in prompts)
        assert any(
            self.shows(message["content"], draft.prompt)
            for draft in base[:1]
            for message in domain.agent_messages(draft)
        )

    @mutation(
        "pi_env learns to choose a game without commands",
        "genenv_core/benchmarks/alfworld/training/alfworld_domain.py",
        "if length and self._admits(", "if self._admits(",
        by="unit/benchmarks/alfworld/test_alfworld_training.py::TestAlfworld::test_what_pi_env_learns_from_starts_easy",
    )  # fmt: skip
    def test_what_pi_env_learns_from_starts_easy(self, domain: Any) -> None:
        def mean(skew: float) -> float:
            drafts = written(domain, 1, 5 * self.examples, skew)
            return sum(draft.difficulty for draft in drafts) / len(drafts)

        assert mean(1.0) < 0.9 * mean(0.0)

    def test_pi_env_is_told_the_agents_success_and_the_base_task(self, domain: Any) -> None:
        for draft in domain.base_tasks(0, 2):
            for rate, said in ((None, "none"), (0.87, "9/10"), (0.92, "9/10"), (0.26, "3/10")):
                context = Context("c", "t", draft, AgentHistory(rate))
                asked = domain.env_messages(context)[-1]["content"]
                assert asked.endswith(f"success {said}; base: {draft.program} ; new:")

    def test_the_grammar_allows_what_is_drawn_and_not_everything(self, domain: Any) -> None:
        base = domain.base_tasks(1, self.base)
        grammar = domain.env_grammar(Context("c", "t", base[0], AgentHistory()))
        for draft in [*base, *domain.heldout_tasks(1, self.heldout)]:
            assert allowed(grammar, draft.program), draft.program
        assert [text for text in self.not_allowed if allowed(grammar, text)] == []

    def test_no_text_makes_the_parser_raise(self, domain: Any) -> None:
        for text in NO_PROGRAMS:
            (found,) = domain.parse(text)
            assert isinstance(found, Rejected) and found.detail.encode(), text[:20]
        rng, program = random.Random(0), domain.base_tasks(0, 1)[0].program
        for _ in range(200):
            text = list(program)
            for _ in range(rng.randint(1, 3)):
                text[rng.randrange(len(text))] = rng.choice('{}[]",:0- é\ud800')
            (found,) = domain.parse("".join(text))
            assert isinstance(found, Rejected | TaskDraft)

    def test_the_task_of_another_domain_is_refused(self, domain: Any) -> None:
        draft = domain.base_tasks(0, 1)[0]
        said: list[Message] = [{"role": "assistant", "content": "riga"}]
        assert domain.score(draft, said).success is False
        for spec in self.alien:
            with pytest.raises(DomainError, match=f"{domain.name}|made by this domain"):
                domain.score(replace(draft, spec=spec), said)
