"""Probes a checkpoint before its use: renders, encodes and reads back what a run will play with it.

One conversation shows each role to the chat template, which may hide none of it. The probe writes
calls of a tool as the agent would, encodes them, and reads them back. Where they do not come back
equal, genenv mends the messages in a way that results name, or refuses the checkpoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from genenv_core.domains.tool_calls import MARKS, said, written
from genenv_core.errors import ModelError
from genenv_core.play.template.ends import (
    ASKED,
    LOOK,
    PLACEHOLDER,
    SAID,
    SHOWN,
    THOUGHT,
)
from genenv_core.play.template.mending import Mending
from genenv_core.play.template.rendering import CALL_ID, Rendering, TemplateRefused
from genenv_core.types import Call, JsonObject, Message, Policy

Says = Callable[[Sequence[int], Sequence[JsonObject]], str]
"""(ids of a turn, the agent's tools) -> its text, with calls as domains read them."""

ONE = "a call"

CASES: Mapping[str, Sequence[JsonObject]] = {
    ONE: ({"at": "there"},),
    "several calls": ({"at": "here"}, {"at": "there"}),
    "a call without arguments": ({},),
    "a call whose text holds marks": ({"at": f'a {" b ".join(MARKS)} "c" \\ \n é'},),
    "a call after a thought": ({"at": "there"},),
}
"""The calls to write and read back: the arguments of each call of a turn, by the turn's name."""

_WORDS: Mapping[str, str] = {
    "system": "system messages",
    "user": "users' messages",
    "assistant": "the agent's own turns",
    "tool": "tools' answers (messages of the role tool)",
}

_HOLDS = "genenv{}holds"


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of probing a checkpoint.

    `ends` are the tokens that end a turn; `mended` names what genenv writes because the chat
    template does not; `unread` names the cases of calls that do not read back equal.
    """

    ends: tuple[str, ...]
    mended: tuple[str, ...]
    unread: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """The result in words, for people."""
        lines = [f"a turn ends with {' or '.join(self.ends)}", *self.mended]
        return [*lines, *(f"not read back equal: {case}" for case in self.unread)]

    @property
    def protocol(self) -> JsonObject:
        """What a result records of how genenv played the checkpoint; {} where it mended nothing."""
        told = [*self.mended, *self.lines[1 + len(self.mended) :]]
        return {"chat template": "; ".join(told)} if told else {}


def show_all(rendering: Rendering, mending: Mending, policy: Policy) -> None:
    """Raise ModelError unless a template writes all that this policy has to see.

    Both policies read messages of the system and of a user. pi_agent also sees its own turns and
    the tools' answers to them.
    """
    roles = ("system", "user") if policy is Policy.ENV else tuple(_WORDS)
    messages = [cast(Message, {"role": role, "content": _HOLDS.format(role)}) for role in roles]
    text = rendering.text(mending.messages(messages))
    for role in roles:
        if _HOLDS.format(role) not in text:
            raise ModelError(
                f"checkpoint {rendering.name}: its chat template drops {_WORDS[role]}, so the "
                "model would answer without having seen them; repair chat_template.jinja there, or "
                "use a model whose template writes them out"
            )


def check_opening(rendering: Rendering) -> None:
    """Raise ModelError where a prompt ends before what a template writes in front of a turn.

    Such a template ignores `add_generation_prompt`: the model would have to write the head of its
    own turn. Blanks are no head.
    """
    prompt = rendering.text([ASKED])
    if prompt != rendering.text([ASKED], opening=False):
        return
    before = rendering.text([ASKED, SAID], opening=False).partition(PLACEHOLDER)[0]
    head = before.removeprefix(prompt)
    if head != before and head.strip():
        raise ModelError(
            f"checkpoint {rendering.name}: its chat template writes {head[:SHOWN]!a} before a turn "
            "of the agent and not at the end of a prompt, so the model would have to write that "
            "itself: write it in chat_template.jinja behind the messages as well, where "
            "add_generation_prompt is true"
        )


def unread(rendering: Rendering, mending: Mending, ends: Sequence[int], says: Says) -> list[str]:
    """Return the cases that genenv does not read back equal from the agent's tokens."""
    return [case for case in CASES if not _equal(rendering, mending, ends, says, case)]


def _equal(
    rendering: Rendering, mending: Mending, ends: Sequence[int], says: Says, case: str
) -> bool:
    meant = tuple(Call("look", arguments) for arguments in CASES[case])
    for text in _spelt(rendering, mending, case):
        ids = rendering.ids(text)
        stop = next((at for at, token in enumerate(ids) if token in ends), len(ids) - 1)
        found = said(says(ids[: stop + 1], [LOOK]))
        return found.calls == meant and not found.malformed
    return False


def _spelt(rendering: Rendering, mending: Mending, case: str) -> Iterator[str]:
    """Yield the text of a turn in the template's own form, or in the form that genenv asks for."""
    calls = [{"name": "look", "arguments": arguments} for arguments in CASES[case]]
    thinks = case.endswith("thought")
    if mending.tools:
        thought = f"<think>{THOUGHT}</think>" if thinks else ""
        yield rendering.agents(thought + "\n".join(map(written, calls)))
        return
    turn: JsonObject = {"role": "assistant", "content": ""}
    turn["tool_calls"] = [{"id": CALL_ID, "type": "function", "function": call} for call in calls]
    if thinks:
        turn["reasoning_content"] = THOUGHT
    try:
        whole = rendering.text([ASKED, cast(Message, turn)], [LOOK], opening=False)
        opening = rendering.text([ASKED], [LOOK])
    except TemplateRefused:
        return
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(opening, whole, strict=False))
    yield whole[sum(1 for _ in same) :]
