"""The two policies: given ones, or tiny ones that bootstrap makes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from pydantic import Field, ValidationInfo, field_validator, model_validator

from genenv_core.config.sections.section import Section
from genenv_core.machine.wrong_values import worded
from genenv_core.types import Policy

TEMPLATE_ARGUMENTS = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "compiled_template",
        "continue_final_message",
        "conversation",
        "conversations",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "sanitize_control_tokens",
        "self",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)
"""Arguments of `apply_chat_template` and names that it gives to templates, all set by genenv."""


DATE = "strftime_now"
"""The function by which chat templates ask for today's date; as a variable, the date they get."""

EXAMPLE_DATE = "2026-01-31"


COMMIT = worded(r"^[0-9a-f]{40}$", "the whole id of a commit: 40 digits and letters from a to f")


class ModelsConfig(Section):
    """The two policies. `bootstrap` builds a tiny model; anything else is a directory or hub id."""

    agent: str = Field(default="bootstrap", min_length=1)
    """pi_agent: `bootstrap`, a Hugging Face checkpoint directory, or a hub id."""
    agent_revision: str | None = Field(default=None, pattern=COMMIT)
    """Commit of the hub repository of pi_agent; genenv refuses a hub id without it."""
    env: str = Field(default="bootstrap", min_length=1)
    """pi_env: `bootstrap`, a Hugging Face checkpoint directory, or a hub id."""
    env_revision: str | None = Field(default=None, pattern=COMMIT)
    """Commit of the hub repository of pi_env; genenv refuses a hub id without it."""
    agent_chat_template_kwargs: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Variables for the chat template of pi_agent, such as {enable_thinking: false} for Qwen3;
    a template that writes today's date gets that of strftime_now."""
    env_chat_template_kwargs: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Variables for the chat template of pi_env."""

    @field_validator("agent_chat_template_kwargs", "env_chat_template_kwargs")
    @classmethod
    def _variables(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return template_variables(f"models.{info.field_name}", given)

    @model_validator(mode="before")
    @classmethod
    def _directories(cls, values: Any) -> Any:
        return with_folders(values, {policy: f"{policy}_revision" for policy in Policy})

    @model_validator(mode="after")
    def _revisions(self) -> Self:
        for policy in Policy:
            name, revision = getattr(self, policy), getattr(self, f"{policy}_revision")
            hub = is_hub_id(name)
            if hub and revision is None:
                raise ValueError(uncommitted(f"models.{policy}", name, f"models.{policy}_revision"))
            if revision is not None and not hub:
                raise ValueError(
                    f"models.{policy}_revision does nothing for {name!r}, which is no hub id: "
                    "remove it"
                )
            if name == "bootstrap" and getattr(self, f"{policy}_chat_template_kwargs"):
                raise ValueError(
                    f"models.{policy}_chat_template_kwargs does nothing for the model that "
                    "bootstrap makes: remove it"
                )
        return self


def chat_template_kwargs(models: ModelsConfig, policy: Policy) -> dict[str, Any]:
    """Return the variables for the chat template of a policy.

    A stage passes its own view of `models`, of which this reads only the policy's field, so that
    the stage declares no other.
    """
    if policy is Policy.AGENT:
        return models.agent_chat_template_kwargs
    return models.env_chat_template_kwargs


def template_variables(field: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a chat template; raises ValueError for one that it cannot take."""
    given = {
        name: value.isoformat() if isinstance(value, date) else value
        for name, value in given.items()
    }
    for name, value in given.items():
        if name == DATE:
            _check_date(field, value)
        if name in TEMPLATE_ARGUMENTS:
            raise ValueError(f"{field} {name!r} is set by genenv itself: remove it")
        finite = not isinstance(value, float) or math.isfinite(value)
        if not finite or not isinstance(value, str | int | float | None):
            raise ValueError(
                f"{field} {name!r} should be true, false, null, a text or a finite number, "
                f"got {value!r}"
            )
    return given


def _check_date(field: str, value: object) -> None:
    try:
        datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError(
            f"{field} {DATE!r} is the date that the template gets, such as {EXAMPLE_DATE}, got "
            f"{value!r}"
        ) from None


def is_hub_id(name: str) -> bool:
    """Return whether a model's name is a hub id, not a directory."""
    return name != "bootstrap" and re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", name) is not None


def with_folders(values: Any, revisions: Mapping[str, str]) -> Any:
    """Return a section's values with ./ before a directory whose name looks like a hub id.

    A name with a commit is a hub id and stays. So a recorded name means the same wherever it is
    read.

    Args:
        values: the values that a person gave the section.
        revisions: field of a model -> field of the commit.
    """
    if not isinstance(values, Mapping):
        return values
    given = cast("Mapping[str, Any]", values)
    folders = {
        name: f"./{model}"
        for name, revision in revisions.items()
        if isinstance(model := given.get(name), str) and given.get(revision) is None
        if is_hub_id(model) and os.path.isdir(model)
    }
    return {**given, **folders}


def uncommitted(field: str, name: str, revision: str) -> str:
    """Return the error about a hub id without a commit, which may be meant as a directory.

    `field` holds the id `name`; `revision` is the field of the commit.
    """
    return (
        f"{field} {name!r} is no directory (looked for {Path(name).absolute()}), and as the id of "
        f"a hub repository it needs a commit: name the directory, or set {revision}"
    )


class ModelSizeConfig(Section):
    """Shape of a tiny Llama-architecture model made by bootstrap."""

    hidden_size: int = Field(default=64, ge=8, le=4096, multiple_of=4)
    """Width of the residual stream."""
    layers: int = Field(default=2, ge=1, le=64)
    """Number of decoder layers."""
    heads: int = Field(default=4, ge=1, le=64)
    """Number of attention heads; divides hidden_size."""
    intermediate_size: int = Field(default=160, ge=8, le=16384)
    """Width of the MLP."""


class BootstrapConfig(Section):
    """Warm start of the tiny models from generated seed data; unused when both models are given."""

    easy_skew: ClassVar[float] = 1.0
    """pi_env starts easy: nearly all that it writes has the lowest difficulty."""

    agent: ModelSizeConfig = Field(default_factory=lambda: ModelSizeConfig(layers=3))
    """Shape of pi_agent."""
    env: ModelSizeConfig = Field(default_factory=lambda: ModelSizeConfig())
    """Shape of pi_env."""
    agent_steps: int = Field(default=3600, ge=1, le=1_000_000)
    """Most supervised steps of pi_agent; it stops earlier, unfinished on purpose, at agent_target
    (desk: after about 1100)."""
    env_steps: int = Field(default=720, ge=1, le=1_000_000)
    """Supervised steps of pi_env: two thirds on all difficulties, one third on easy ones."""
    batch_rows: int = Field(default=32, ge=1, le=4096)
    """Rows in a step; rows of a step have about the same length."""
    learning_rate: float = Field(default=3e-3, gt=0, le=1)
    """Peak learning rate, warmed up over 5 % and decayed by a cosine."""
    agent_target: float = Field(default=0.72, gt=0, le=1)
    """Greedy success on fresh seed examples at which the warm start of pi_agent stops; below 1, so
    that something is left to learn."""
