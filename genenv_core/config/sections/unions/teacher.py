"""What writes the tasks of the arm offline: a checkpoint, a chat endpoint, or a file's author."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Discriminator, Field, model_validator

from genenv_core.config.sections.endpoint import NamedEndpoint
from genenv_core.config.sections.models import (
    COMMIT,
    is_hub_id,
    template_variables,
    uncommitted,
    with_folders,
)
from genenv_core.config.sections.section import Section
from genenv_core.config.sections.unions.alternatives import NOTHING, Alternatives, by


class NoTeacher(Section):
    """No teacher: all arms but offline."""


class ModelTeacher(Section):
    """A checkpoint that genenv samples."""

    model: str = Field(min_length=1)
    """A Hugging Face checkpoint directory or a hub id; sampled by compute.engine."""
    revision: str | None = Field(default=None, pattern=COMMIT)
    """Commit of the hub repository of `model`; genenv refuses a hub id without it."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Variables for the chat template of `model`, such as {enable_thinking: false} for Qwen3."""

    @model_validator(mode="before")
    @classmethod
    def _directory(cls, values: Any) -> Any:
        return with_folders(values, {"model": "revision"})

    @model_validator(mode="after")
    def _checkpoint(self) -> Self:
        template_variables("teacher.chat_template_kwargs", self.chat_template_kwargs)
        hub = is_hub_id(self.model)
        if hub and self.revision is None:
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
        return self


class EndpointTeacher(NamedEndpoint):
    """A model behind a chat endpoint; execution.teacher says how genenv asks it."""

    section = "teacher"


class FileTeacher(Section):
    """A file of tasks."""

    file: str
    """A JSONL file of {"program": ...} lines, written by a stronger teacher."""


TEACHERS = Alternatives(
    "teacher", "teachers", {"model": ModelTeacher, "url": EndpointTeacher, "file": FileTeacher}
)

TeacherConfig = Annotated[
    Annotated[NoTeacher, NOTHING]
    | Annotated[ModelTeacher, by("model")]
    | Annotated[EndpointTeacher, by("url")]
    | Annotated[FileTeacher, by("file")],
    Discriminator(TEACHERS.tag),
    BeforeValidator(TEACHERS.checked),
]
"""The teacher of a run: the field that a person gives says which one it is."""


def writes(teacher: TeacherConfig) -> bool:
    """Return whether a teacher is a model that writes a set of tasks, not a file that has some."""
    return isinstance(teacher, ModelTeacher | EndpointTeacher)
