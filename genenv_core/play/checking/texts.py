"""Checks how a domain reads texts: pi_env's texts in `parse`, and calls in the agent's texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from genenv_core.domains.protocol import Domain, right_turns
from genenv_core.domains.steps import FAILURES, error_line, stepped
from genenv_core.domains.tool_calls import reader_of
from genenv_core.play.asked import embedded, raised, shown, wrong_drafts
from genenv_core.play.checking.calling import called, limited
from genenv_core.play.checking.shapes import DomainFault
from genenv_core.types import Observation, TaskDraft

HOSTILE = (
    "",
    " \n\t",
    "\0",
    "\ud83d",
    "null",
    "[]",
    "{}",
    '{"question": 7}',
    '{"a": ' * 2000,
    "[" * 5000,
    "NaN",
    "-1e999",
    "<tool_call>{</tool_call>",
    "💥 \u202e﷽",
    "A" * 100_000,
    "1 + " * 5000,
    "'; DROP TABLE tasks; --",
)
"""Texts that a model may write; `parse` must not raise on any of them."""

ACTIONS = ("", "<tool_call>{", "A" * 10_000)
"""Texts that an agent may say in place of an answer."""


def of_parse(domain: Domain) -> Iterator[DomainFault]:
    """Yield where `parse` fails on a text that is no task."""
    for text in HOSTILE:
        with limited("parse", f" on {shown(text)}"):
            try:
                found = domain.parse(text)
            except FAILURES as error:
                yield DomainFault("parse", f"{raised(error)} on {shown(text)}", "return Rejected")
                continue
        if wrong := wrong_drafts(found):
            yield DomainFault("parse", f"{wrong.found} for {shown(text)}", wrong.remedy)


def of_calls(domain: Domain, drafts: Sequence[TaskDraft]) -> Iterator[DomainFault]:
    """Yield where a domain does not find the calls in its agent's texts."""
    read = reader_of(domain)
    for text in (*HOSTILE, *ACTIONS):
        with limited("read_calls", f" on {shown(text)}"):
            try:
                read(text)
            except FAILURES as error:
                what = f"fails on {shown(text)}: {error_line(error)}"
                yield DomainFault("read_calls", what, "return [] for a text without a call")
    for draft in drafts:
        episode = domain.episode(draft, 0)
        task = f" on task {shown(draft.prompt)}"
        for text in called("solution", lambda d=draft: right_turns(domain, d), task):
            seen = stepped(episode.step, text)
            known = called("read_calls", lambda t=text: read(t), f" on {shown(text)}")
            if not known and not seen.failed and _tools_speak(seen):
                yield DomainFault(
                    "read_calls",
                    f"tools answer {shown(text)}, in which there is no call",
                    "write read_calls(text), which gives the place, name and arguments of each "
                    "call (ReadsCalls), so that tables and exports have them",
                )


def _tools_speak(observation: Observation) -> bool:
    return any(message["role"] == "tool" for message in observation.messages)


def of_embedding(domain: Domain, drafts: Sequence[TaskDraft]) -> Iterator[DomainFault]:
    """Yield what is wrong with the vectors of requests, where the domain has an embedding."""
    prompts = [draft.prompt for draft in drafts]
    first, again = (called("embed", lambda: embedded(domain, prompts)) for _ in range(2))
    if first is not None and again is not None and (first != again).any():
        yield DomainFault(
            "embed",
            "gives equal requests other vectors when it is called again",
            "switch dropout off",
        )
