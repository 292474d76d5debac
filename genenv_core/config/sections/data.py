"""The kind of task, the data that the game starts from, and the tasks that measure it."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from genenv_core.config.sections.section import Section


class DomainConfig(Section):
    """Which kind of task the game is about."""

    name: str = Field(default="desk", min_length=1, max_length=1000)
    """Domain name: a built-in, one registered under the entry-point group genenv.domains, or a
    class by its place, as in my_domain.py:Units or package.module:Units. `several` joins others: a
    list `domains: [{name, weight, options, as}]` beside the sections stands for it."""
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Options of the domain itself; each domain validates its own."""


BaseFormat = Literal["auto", "jsonl", "csv", "parquet", "hf", "verl"]
BaseField = Literal["program", "prompt", "ground_truth"]
"""Fields that a base task is read from: its program alone, or a prompt and its answer."""


class DataConfig(Section):
    """The data that the game starts from, and the tasks that measure it."""

    base_tasks: int = Field(default=256, ge=1, le=1_000_000)
    """Number of base tasks that the domain provides (most tasks taken of base_file, when given)."""
    base_file: str | None = None
    """A file of base tasks, or a folder with a Hugging Face dataset; None: the domain's own."""
    base_format: BaseFormat = "auto"
    """Format of base_file: hf is a dataset folder (its split train), verl is Parquet with
    `prompt` and `reward_model.ground_truth`; auto goes by the name's ending, a folder is hf."""
    base_mapping: dict[BaseField, str] = Field(default_factory=dict[BaseField, str])
    """Field of a task -> column of base_file, dots lead into structures: {program: extra_info.text}
    or, where the domain reads tasks from these, {prompt: question, ground_truth: answer}. Empty:
    {program: program}, or verl's own columns."""
    skip_bad: bool = False
    """Whether genenv skips and lists rows of base_file that are no task; else the first one stops
    the run."""
    validation_tasks: int = Field(default=240, ge=1, le=100_000)
    """Held-out tasks that gates and the choice of the best checkpoint read. Never trained on, and
    no generated task may equal one."""
    test_tasks: int = Field(default=720, ge=1, le=100_000)
    """Held-out tasks on which reports measure success. Nothing in the loop reads them; no update
    trains on them, and no generated task may equal one."""
    set_tasks: int = Field(default=0, ge=0, le=1_000_000)
    """Tasks of the one set that arm static, or the model of section teacher, writes before epoch 1.
    Each epoch attempts the next generation.tasks of it, without a choice by prediction. 0: as many
    as one epoch attempts, the same in each."""

    @model_validator(mode="after")
    def _base(self) -> Self:
        given = self.model_fields_set & {"base_format", "base_mapping", "skip_bad"}
        for name in sorted(given):
            default = type(self).model_fields[name].get_default(call_default_factory=True)
            if self.base_file is None and getattr(self, name) != default:
                raise ValueError(
                    f"data.{name} does nothing without data.base_file: set that or remove this"
                )
        if self.base_mapping and "program" in self.base_mapping and len(self.base_mapping) > 1:
            raise ValueError(
                "data.base_mapping names program beside prompt or ground_truth: a task is read "
                "from its program alone, or from both of the others"
            )
        if set(self.base_mapping) in ({"prompt"}, {"ground_truth"}):
            raise ValueError(
                "data.base_mapping needs prompt and ground_truth together, or program alone"
            )
        return self
