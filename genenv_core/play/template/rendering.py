"""Renders conversations with a checkpoint's chat template, and encodes the text as token ids.

Texts of messages and tools stay text: where one spells a control token, the tokenizer encodes its
letters, not the token (`genenv_core.play.template.control`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genenv_core.config.sections.models import DATE, EXAMPLE_DATE
from genenv_core.domains.tool_calls import MARKS
from genenv_core.engines.tokenizers import WITH_TOOLS
from genenv_core.errors import ModelError
from genenv_core.play.template.control import BREAK, Breaker, encoded, special_ids
from genenv_core.play.template.surroundings import UNSAID, answered, draws
from genenv_core.types import JsonObject, Message

CALL_ID = "genenv000"
"""An id of nine letters and digits, as Mistral's templates demand."""

OTHERS = frozenset({"user", "tool"})
"""Roles whose texts come from outside: they may hold no token of the tokenizer. Texts of the domain
and the agent may hold the marks of calls and thoughts, which are tokens of some tokenizers."""


class TemplateRefused(ModelError):
    """A template raised an error instead of rendering a conversation."""


class Rendering:
    """The chat template of one tokenizer.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        name: the checkpoint's name in errors.
        variables: what the template gets besides messages and tools, in every rendering;
            `strftime_now` is its date.

    Raises ModelError for a template that draws at random.
    """

    def __init__(self, tokenizer: Any, *, name: str, variables: Mapping[str, Any]) -> None:
        self.tokenizer, self.name = tokenizer, name
        self._date = variables.get(DATE)
        self._variables = {key: value for key, value in variables.items() if key != DATE}
        added: Mapping[int, Any] = tokenizer.added_tokens_decoder
        special = special_ids(tokenizer)
        self.marks: Mapping[int, str] = {
            index: token.content
            for index, token in added.items()
            if index in special or not token.content.isspace()
        }
        """The tokens that stand for themselves, by id: special ones and added ones."""
        source = str(tokenizer.chat_template)
        control = {
            token.content
            for index, token in added.items()
            if index in self.marks and (index in special or token.content in source)
        }
        if drawn := draws(source):
            raise ModelError(
                f"checkpoint {name}: its chat template draws at random ({drawn}), so one key would "
                "have other prompts in every run: remove that from chat_template.jinja"
            )
        self._parted = source.startswith(WITH_TOOLS)
        self._strict = Breaker(control)
        self._lenient = Breaker(control - set(MARKS))

    def text(
        self,
        messages: Sequence[Message],
        tools: Sequence[JsonObject] = (),
        *,
        opening: bool = True,
        offered: bool = False,
    ) -> str:
        """Return the text of a conversation, for `ids`.

        With `opening`, it ends where the next turn of the agent begins. With `offered`, a
        checkpoint with two templates renders the one for tools, even without tools. Raises
        `TemplateRefused` where the template raises an error, and ModelError where it asks for a
        date that no setting gives.
        """
        tokenizer = self.tokenizer
        none: list[Any] | None = [] if offered and self._parted else None
        try:
            return str(
                tokenizer.apply_chat_template(
                    [self._told(message) for message in messages],
                    chat_template=answered(str(tokenizer.chat_template), self._date),
                    tools=[self._strict(tool) for tool in tools] or none,
                    add_generation_prompt=opening,
                    tokenize=False,
                    **self._variables,
                )
            )
        except Exception as error:  # jinja2's errors, and whatever a template raises on purpose
            if str(error) == UNSAID:
                raise ModelError(
                    f"checkpoint {self.name}: its chat template writes today's date, so one key "
                    "would have other prompts every day: set the date in its variables, for "
                    f"example models.agent_chat_template_kwargs={{{DATE}: {EXAMPLE_DATE}}}"
                ) from error
            roles = ", ".join(message["role"] for message in messages)
            raise TemplateRefused(
                f"checkpoint {self.name}: its chat template refused the roles ({roles}): "
                f"{type(error).__name__}: {error}; use a checkpoint whose template knows them, or "
                "repair chat_template.jinja"
            ) from error

    def ids(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a rendered text."""
        if BREAK in text:
            return encoded(text, self._encode)
        return tuple(self._encode(text))

    def _encode(self, text: str) -> list[int]:
        # The template writes its own special tokens; more would double the start token.
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def agents(self, text: str) -> str:
        """Return a text of the agent in the form for `ids`; the marks of calls stay tokens."""
        return self._lenient(text)

    def leading_marks(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """Return the ids before the first one that is neither a mark nor blank."""
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
        """Return a message for the template; some want to know which call a tool answers."""
        role = message["role"]
        named = {"tool_call_id": CALL_ID} if role == "tool" else {}
        mark = self._strict if role in OTHERS else self._lenient
        return {**named, **mark(message), "role": role}
