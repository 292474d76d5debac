"""The model that writes the tasks of the arm offline: a checkpoint, or a chat endpoint."""

from __future__ import annotations

import re
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from genenv_core.config.sections.models import is_hub_id, template_variables
from genenv_core.config.sections.section import Section

OWN_FIELDS = frozenset({"messages", "model", "n", "stream", "stream_options", "tools"})
"""Fields of a chat request that genenv sets itself."""

ENDPOINT = r"https?://[^\s/?#@]+(/[^\s?#]*)?"
"""What an address may be: without a user, a password or a query, where a key could stand."""


class TeacherConfig(Section):
    """A model as the teacher of arm offline: a checkpoint (`model`) or an endpoint (`url`)."""

    model: str | None = Field(default=None, min_length=1)
    """A Hugging Face checkpoint directory or a hub id; sampled by compute.engine."""
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    """Commit of the hub repository of `model`; a hub id without it is refused."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Variables for the chat template of `model`, such as {enable_thinking: false} for Qwen3."""
    url: str | None = Field(default=None, min_length=1)
    """An OpenAI-compatible endpoint, such as http://host:8000/v1; /chat/completions is added."""
    model_name: str | None = Field(default=None, min_length=1)
    """Name of the model at `url`."""
    request: dict[str, Any] = Field(default_factory=dict[str, Any])
    """More fields of each request to `url`; null leaves one of genenv's out. An endpoint that knows
    no max_tokens takes {max_tokens: null, max_completion_tokens: 512}."""

    @property
    def given(self) -> bool:
        """Return whether there is a model to ask."""
        return self.model is not None or self.url is not None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.model is not None and self.url is not None:
            raise ValueError("teacher.model and teacher.url are two teachers: remove one of them")
        self._checkpoint()
        self._endpoint()
        return self

    def _checkpoint(self) -> None:
        template_variables("teacher.chat_template_kwargs", self.chat_template_kwargs)
        for name in ("revision", "chat_template_kwargs"):
            if self.model is None and getattr(self, name):
                raise ValueError(
                    f"teacher.{name} does nothing without teacher.model: set that or remove this"
                )
        hub = self.model is not None and is_hub_id(self.model)
        if hub and self.revision is None:
            raise ValueError(
                f"teacher.model {self.model!r} is a hub id and needs its commit: set "
                "teacher.revision (a directory is written with a leading ./ or /)"
            )
        if self.revision is not None and not hub:
            raise ValueError(
                f"teacher.revision does nothing for {self.model!r}, which is no hub id: remove it"
            )
        if self.model == "bootstrap":
            raise ValueError(
                "teacher.model 'bootstrap' names no checkpoint: bootstrap's own pi_env writes the "
                "tasks of arm static; name a directory or a hub id"
            )

    def _endpoint(self) -> None:
        for name in ("model_name", "request"):
            if self.url is None and getattr(self, name):
                raise ValueError(
                    f"teacher.{name} does nothing without teacher.url: set that or remove this"
                )
        if self.url is None:
            return
        if not re.fullmatch(ENDPOINT, self.url):
            raise ValueError(
                "teacher.url is no address like https://host/v1, without a user and a query; a key "
                "goes into the environment variable that execution.teacher.key_env names"
            )
        if self.model_name is None:
            raise ValueError(
                f"teacher.url {self.url} serves models by name: set teacher.model_name to one"
            )
        for name in sorted(self.request):
            if name in OWN_FIELDS:
                raise ValueError(f"teacher.request {name!r} is set by genenv itself: remove it")
            if "api_key" in name.lower() or name.lower() == "authorization":
                raise ValueError(
                    f"teacher.request {name!r} looks like a secret, and configurations are kept, "
                    "shown and logged: name its variable in execution.teacher.key_env"
                )


class TeacherAsking(Section):
    """How an endpoint is asked; none of these is in a stage key."""

    key_env: str | None = None
    """Name (in capitals) of the environment variable with the key of teacher.url, set where
    generate_tasks is computed. None: no key is sent. The key itself goes into no file of genenv."""
    concurrency: int = Field(default=16, ge=1, le=10_000)
    """Requests to the endpoint at the same time."""
    request_seconds: float = Field(default=300.0, ge=0.1, le=86_400)
    """Longest wait for the answer to one request."""
    retries: int = Field(default=5, ge=0, le=100)
    """Further tries of one request after an answer 408, 409, 429 or 5xx, a lost connection or a
    time-out."""
    backoff_seconds: float = Field(default=1.0, ge=0, le=600)
    """Longest pause before the first further try; it doubles with each, up to 60 seconds. A pause
    that the endpoint asks for (Retry-After) is kept."""

    @field_validator("key_env")
    @classmethod
    def _a_name(cls, name: str | None) -> str | None:
        """Refuse what is no name, without repeating it: it may be the key itself."""
        if name is not None and not re.fullmatch("[A-Z_][A-Z0-9_]*", name):
            raise ValueError(
                "execution.teacher.key_env is the name of an environment variable, such as "
                "OPENAI_API_KEY, never a key: put the key into that variable"
            )
        return name
