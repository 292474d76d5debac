"""Attempts in which a made-up simulator plays the tools: truthful, noisy or lying."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from genenv_core.domains.desk import DeskDomain
from genenv_core.domains.trails import TrailsDomain
from genenv_core.domains.trails.wording import render_answer, render_look
from genenv_core.types import Message, TaskDraft

DESK = DeskDomain.from_options({"dialogue": True})
TRAILS = TrailsDomain.from_options({})
DOMAINS: tuple[Any, ...] = (DESK, TRAILS)

Simulates = Callable[[str, random.Random], str]
"""What is said for a true content."""


def truthful(content: str, rng: random.Random) -> str:
    """Return the truth."""
    return content


def lying(content: str, rng: random.Random) -> str:
    """Return another text."""
    return "nonsense"


def noisy(content: str, rng: random.Random) -> str:
    """Return another text three times in ten."""
    return lying(content, rng) if rng.random() < 0.3 else content


def right_turns(domain: Any, draft: TaskDraft) -> list[str]:
    """Return what an agent says that makes every call right."""
    if domain is DESK:
        return DESK.answer_turns(draft)
    fields = draft.program.split()[1:-1]
    people = draft.spec["cards"]
    looks = [render_look(name, field) for name, field in zip(people, fields, strict=True)]
    asked = draft.spec["asked"]
    return [*looks, render_answer(asked["person"], asked["field"], asked["value"])]


def simulated(
    domain: Any, draft: TaskDraft, turns: Sequence[str], says: Simulates, rng: random.Random
) -> list[Message]:
    """Return the transcript of an attempt, marked as the driver marks it."""
    messages: list[Message] = list(domain.agent_messages(draft))
    episode = domain.episode(draft, 0)
    for text in turns:
        messages.append({"role": "assistant", "content": text})
        if domain.tool_messages(draft, messages) is None:
            break
        (answer,) = episode.step(text).messages
        messages.append({**answer, "content": says(answer["content"], rng), "simulated": True})
    return messages
