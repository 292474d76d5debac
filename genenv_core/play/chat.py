"""From messages to token ids and back, for one checkpoint's tokenizer and chat template.

What a policy sampled stays the ids that it sampled. The tokenizer encodes only text that no policy
wrote: the first prompt, and what the template puts between two turns of the agent. To find the
latter, genenv renders a conversation with a placeholder for the agent's text, and takes what
follows it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

from genenv_core.engines.tokenizers import load_tokenizer
from genenv_core.errors import ModelError
from genenv_core.machine.json_files import checkpoint_file
from genenv_core.play.native_calls import hidden_tokens, native_format, rewritten
from genenv_core.play.template.control import BREAK
from genenv_core.play.template.ends import ASKED, PLACEHOLDER, ends_of
from genenv_core.play.template.mending import LEARNED, Mending, mending_of
from genenv_core.play.template.probe import ONE, Probe, check_opening, show_all, unread
from genenv_core.play.template.rendering import Rendering
from genenv_core.types import JsonObject, Message, Policy

OPENINGS = 4096
"""First prompts to keep: an epoch attempts the same tasks in several ways, and rendering takes
time."""


class ChatFormat:
    """The chat template of one checkpoint, as token ids.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        name: the checkpoint's name in errors.
        extra_stop_ids: stop tokens that the checkpoint declares beyond its tokenizer's end
            token.
        variables: what the template gets besides messages and tools, in every rendering.

    Raises `ModelError` where the template is missing, refuses a conversation, or drops its content.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        name: str,
        extra_stop_ids: Sequence[int] = (),
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        self._name = name
        self._opening = lru_cache(maxsize=OPENINGS)(self._opening_of)
        if not tokenizer.chat_template:
            raise ModelError(
                f"checkpoint {name}: its tokenizer has no chat template; put one into "
                "chat_template.jinja beside the tokenizer, or use an instruction-tuned model"
            )
        for variable in variables or {}:
            if variable not in str(tokenizer.chat_template):
                raise ModelError(
                    f"checkpoint {name}: its chat template has no variable {variable!r}, so the "
                    "chat_template_kwargs of models would do nothing: correct or remove it"
                )
        self._rendering = Rendering(tokenizer, name=name, variables=variables or {})
        self._calls = native_format(tokenizer)
        self._hidden = hidden_tokens(tokenizer)
        end = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
        self.stop_token_ids = ends_of(self._rendering, [*end, *extra_stop_ids])
        """The tokens that end the agent's turn; the first one is what the template writes."""
        self.mending, self._unread = self._mended()

    def _mended(self) -> tuple[Mending, Sequence[str]]:
        """Return what genenv has to write for the template, and the cases of calls it misreads.

        Where it cannot read back a call in the template's own form, genenv offers tools in its own
        form.
        """
        ask, mending = self._rendering, mending_of(self._rendering)
        if mending is LEARNED:
            return mending, ()
        missed = unread(ask, mending, self.stop_token_ids, self.said)
        if ONE not in missed and not mending.tools:
            return mending, missed
        self._calls = None  # the form of a call is the one that genenv writes
        mending = replace(mending, tools=True, calls=True)
        return mending, unread(ask, mending, self.stop_token_ids, self.said)

    @classmethod
    def load(
        cls, checkpoint: Path, variables: Mapping[str, Any] | None = None, tokenizer: Any = None
    ) -> ChatFormat:
        """Return the chat format of a checkpoint directory; pass a loaded `tokenizer` of it."""
        tokenizer = load_tokenizer(checkpoint) if tokenizer is None else tokenizer
        return cls(
            tokenizer,
            name=str(checkpoint),
            extra_stop_ids=_declared_stop_ids(checkpoint),
            variables=variables,
        )

    def probe(self, policy: Policy) -> Probe:
        """Return the result of probing the checkpoint: how genenv uses its template.

        Raises `ModelError` where its template hides what this policy has to see, or does not open
        its turn, and for pi_agent where no form of a call reads back equal.
        """
        show_all(self._rendering, self.mending, policy)
        check_opening(self._rendering)
        if policy is Policy.AGENT and ONE in self._unread:
            raise ModelError(
                f"checkpoint {self._name}: its tokenizer does not read back a call of a tool in "
                "any form that genenv knows; use another model, or repair its tokenizer"
            )
        ends = tuple(self._rendering.decode([token]) for token in self.stop_token_ids)
        return Probe(ends, self.mending.said, tuple(self._unread))

    def first_prompt(
        self, messages: Sequence[Message], tools: Sequence[JsonObject] = ()
    ) -> tuple[int, ...]:
        """Return the token ids that open an attempt, up to where the agent starts to write.

        A cache keeps the last `OPENINGS` of them.
        """
        return self._opening(json.dumps([list(messages), list(tools)]))

    def _opening_of(self, conversation: str) -> tuple[int, ...]:
        messages, tools = json.loads(conversation)
        told = self.mending.messages(messages, tools)
        return self._rendering.ids(self._rendering.text(told, () if self.mending.tools else tools))

    def continuation(
        self,
        messages_after_turn: Sequence[Message],
        completion_ids: Sequence[int] = (),
        tools: Sequence[JsonObject] = (),
    ) -> tuple[int, ...]:
        """Return the ids between the agent's completion and its next one, where it has `tools`.

        They close the agent's turn, hold `messages_after_turn` (the environment's answer), and open
        the next turn. They leave out a stop token with which `completion_ids` already closed the
        turn, so that completion + continuation is what the template would have written.
        """
        ids = self._suffix_ids(messages_after_turn, offered=bool(tools) and not self.mending.tools)
        if completion_ids and completion_ids[-1] in self.stop_token_ids:
            closing = self._rendering.leading_marks(ids)
            if completion_ids[-1] in closing:
                return ids[closing.index(completion_ids[-1]) + 1 :]
        return ids

    def completion(self, text: str) -> tuple[int, ...]:
        """Return the ids of a turn with this text, its stop token included.

        A policy may spell a text with other tokens too. These are the tokenizer's own behind a
        prompt, if the text changes no token of the prompt: SentencePiece puts a blank before a text
        on its own.
        """
        before, said = self._opened, self._rendering.agents(text)
        ids = self._rendering.ids(before + said)
        known = self._rendering.ids(before)
        follows = ids[: len(known)] == known
        own = ids[len(known) :] if follows else self._rendering.ids(BREAK + said)
        return (*own, self.stop_token_ids[0])

    @cached_property
    def _opened(self) -> str:
        """The text of a prompt, up to where the agent starts to write."""
        return self._rendering.text([ASKED])

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of a completion, without special tokens other than marks of calls."""
        hidden = self._hidden
        ids = [token for token in token_ids if hidden is None or token not in hidden]
        return self._rendering.decode(ids, special=hidden is not None)

    def said(self, completion_ids: Sequence[int], tools: Sequence[JsonObject] = ()) -> str:
        """Return the text of an agent's turn, its tool calls as domains read them.

        `tools` are those that the agent has.
        """
        native = self._calls
        if native is None:
            return self.decode(completion_ids)
        ids = list(completion_ids)
        if not native.ended and ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        return rewritten(self._rendering.decode(ids), native.template, tools)

    def _suffix_ids(self, messages: Sequence[Message], *, offered: bool) -> tuple[int, ...]:
        """Return the ids that follow an agent's text when `messages` come after it.

        It renders no tools, also where they are `offered`: templates name them before the first
        answer or not at all.
        """
        opening: list[Message] = [
            {"role": "user", "content": "."},
            {"role": "assistant", "content": PLACEHOLDER},
        ]
        encode = self._rendering.ids
        text = self._rendering.text(self.mending.messages([*opening, *messages]), offered=offered)
        head, found, suffix = text.partition(PLACEHOLDER)
        if not found:
            raise ModelError(
                f"checkpoint {self._name}: its chat template drops the text of an assistant "
                "message, so the turns of an episode cannot be joined; repair chat_template.jinja"
            )
        before, whole = encode(head + PLACEHOLDER), encode(text)
        if whole[: len(before)] == before:
            return whole[len(before) :]
        # The placeholder's last letters merged with what follows: tokenise that on its own.
        return encode(suffix)


def _declared_stop_ids(checkpoint: Path) -> tuple[int, ...]:
    """Return the end tokens in generation_config.json, which may list several; () without one.

    Raises `ModelError` where one is no token id.
    """
    declared = (checkpoint_file(checkpoint, "generation_config.json") or {}).get("eos_token_id")
    if declared is None:
        return ()
    ends = cast(list[Any], declared if isinstance(declared, list) else [declared])
    if wrong := [end for end in ends if type(end) is not int or end < 0]:
        raise ModelError(
            f"checkpoint {checkpoint}: eos_token_id in generation_config.json names {wrong[0]!r}, "
            "which is no id of a token (a whole number): repair or delete it"
        )
    return tuple(ends)
