"""The model that writes the tasks of the arm offline: a checkpoint, or a chat endpoint."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from genenv_core.config.sections.endpoint import check_endpoint
from genenv_core.config.sections.models import is_hub_id, template_variables, uncommitted
from genenv_core.config.sections.section import Section


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
        check_endpoint("teacher", self.url, self.model_name, self.request)
        return self

    def _checkpoint(self) -> None:
        template_variables("teacher.chat_template_kwargs", self.chat_template_kwargs)
        for name in ("revision", "chat_template_kwargs"):
            if self.model is None and getattr(self, name):
                raise ValueError(
                    f"teacher.{name} does nothing without teacher.model: set that or remove this"
                )
        hub = self.model is not None and is_hub_id(self.model)
        if self.model is not None and hub and self.revision is None:
            raise ValueError(uncommitted("teacher.model", self.model, "teacher.revision"))
        if self.revision is not None and not hub:
            raise ValueError(
                f"teacher.revision does nothing for {self.model!r}, which is no hub id: remove it"
            )
        if self.model == "bootstrap":
            raise ValueError(
                "teacher.model 'bootstrap' names no checkpoint: bootstrap's own pi_env writes the "
                "tasks of arm static; name a directory or a hub id"
            )
