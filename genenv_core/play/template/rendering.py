"""A checkpoint's chat template at work: conversations as text, and that text as token ids.

What neither the template nor the agent wrote is text: where a message or a tool spells a control
token, its letters are encoded, not the token. transformers marks such places in what a template is
given, and encodes the marked text (`transformers.utils.chat_template_utils`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from genenv_core.domains.tool_calls import MARKS
from genenv_core.errors import ModelError
from genenv_core.play.template.surroundings import DATE, UNSAID, answered, draws
from genenv_core.types import JsonObject, Message

CALL_ID = "genenv000"
"""Nine letters and digits, as Mistral's templates demand it."""

OTHERS = frozenset({"user", "tool"})
"""Roles whose texts the world writes: no token of the tokenizer is meant in them. What the domain
and the agent write may hold the marks of calls and thoughts, which some tokenizers have as tokens.
"""


EXAMPLE = "2026-01-31"


class Refused(ModelError):
    """A template raised an error instead of rendering a conversation."""


class Rendering:
    """The chat template of one tokenizer.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        name: what to call the checkpoint in errors.
        variables: what the template is given besides messages and tools, in every rendering;
            `strftime_now` is the date that it is told.
    """

    def __init__(self, tokenizer: Any, *, name: str, variables: Mapping[str, Any]) -> None:
        self.tokenizer, self.name = tokenizer, name
        self._date = variables.get(DATE)
        self._variables = {key: value for key, value in variables.items() if key != DATE}
        added: Mapping[int, Any] = tokenizer.added_tokens_decoder
        special = set(cast("list[int]", tokenizer.all_special_ids))
        self.marks: Mapping[int, str] = {
            index: token.content
            for index, token in added.items()
            if token.special or index in special or not token.content.isspace()
        }
        """The tokens that stand for themselves, by id: special ones, and those that were added."""
        source = str(tokenizer.chat_template)
        control = {
            token.content
            for index, token in added.items()
            if index in self.marks
            and (token.special or index in special or token.content in source)
        }
        if drawn := draws(source):
            raise ModelError(
                f"checkpoint {name}: its chat template draws at random ({drawn}), so one key would "
                "have other prompts in every run: remove that from chat_template.jinja"
            )
        self._strict = _pattern(control)
        self._lenient = _pattern(control - set(MARKS))

    def text(
        self, messages: Sequence[Message], tools: Sequence[JsonObject] = (), *, opening: bool = True
    ) -> str:
        """Return the text of a conversation, for `ids`.

        With `opening`, it ends where the next turn of the agent begins. Raises `Refused` where the
        template raises an error, and asks its surroundings for what no setting says.
        """
        tokenizer = self.tokenizer
        try:
            template = str(tokenizer.get_chat_template(tools=list(tools) or None))
            return str(
                tokenizer.apply_chat_template(
                    [self._told(message) for message in messages],
                    chat_template=answered(template, self._date),
                    tools=[_marked(tool, self._strict) for tool in tools] or None,
                    add_generation_prompt=opening,
                    tokenize=False,
                    **self._variables,
                )
            )
        except Exception as error:  # jinja2's errors, and whatever a template raises on purpose
            if str(error) == UNSAID:
                raise ModelError(
                    f"checkpoint {self.name}: its chat template writes today's date, so one key "
                    "would have other prompts every day: set the date, for example "
                    "agent_chat_template_kwargs or env_chat_template_kwargs of models to "
                    f"{{{DATE}: {EXAMPLE}}}"
                ) from error
            roles = ", ".join(message["role"] for message in messages)
            raise Refused(
                f"checkpoint {self.name}: its chat template refused the roles ({roles}): "
                f"{type(error).__name__}: {error}; use a checkpoint whose template knows them, or "
                "repair chat_template.jinja"
            ) from error

    def ids(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a rendered text."""
        from transformers.utils.chat_template_utils import encode_marked_chat

        if _START in text:
            encode: Any = encode_marked_chat
            return tuple(encode(self.tokenizer, text))
        # The template writes its own special tokens; more would double the start token.
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def spoken(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a text that the agent could have written."""
        return self.ids(_marked(text, self._lenient))

    def leading_marks(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """Return the ids up to the first that is neither a mark nor blank."""
        for place, token in enumerate(token_ids):
            if token not in self.marks and self.decode([token]).strip():
                return tuple(token_ids[:place])
        return tuple(token_ids)

    def decode(self, token_ids: Sequence[int], *, special: bool = True) -> str:
        """Return the text of token ids, with special tokens or without."""
        return str(
            self.tokenizer.decode(
                list(token_ids),
                skip_special_tokens=not special,
                clean_up_tokenization_spaces=False,
            )
        )

    def _told(self, message: Message) -> JsonObject:
        """Return a message as templates take it; some want to know which call a tool answers."""
        role = message["role"]
        named = {"tool_call_id": CALL_ID} if role == "tool" else {}
        pattern = self._strict if role in OTHERS else self._lenient
        return {**named, **_marked(cast(JsonObject, message), pattern), "role": role}


_START, _END = "\U000f0000", "\U000f0001"
"""Private characters between which transformers takes a control token for text."""


@lru_cache
def _compiled(tokens: tuple[str, ...]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(re.escape, tokens))) if tokens else None


def _pattern(tokens: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds these tokens, the longest first; None without any."""
    return _compiled(tuple(sorted(tokens, key=lambda token: (-len(token), token))))


def _marked(value: Any, pattern: re.Pattern[str] | None) -> Any:
    """Return a value with its control tokens marked as text, in keys and texts of any depth."""
    if isinstance(value, str):
        if pattern is None or not pattern.search(value):
            return value
        plain = value.replace(_START, "").replace(_END, "")
        return pattern.sub(f"{_START}\\g<0>{_END}", plain)
    if isinstance(value, dict):
        items = cast(JsonObject, value).items()
        return {_marked(key, pattern): _marked(inner, pattern) for key, inner in items}
    if isinstance(value, list | tuple):
        return [_marked(inner, pattern) for inner in cast("list[Any]", value)]
    return value
