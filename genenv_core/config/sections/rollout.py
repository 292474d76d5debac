"""How pi_agent attempts tasks, and who plays the tools."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from genenv_core.config.sections.section import Section


class RolloutConfig(Section):
    """How pi_agent attempts tasks."""

    n: int = Field(default=8, ge=1, le=1024)
    """Attempts at each task: the size of a group."""
    max_tokens: int = Field(default=48, ge=1, le=131_072)
    """Longest completion of one turn, in tokens."""
    max_turns: int = Field(default=8, ge=1, le=1000)
    """Turns after which genenv cuts an episode; pi_agent never answers the last observation."""
    max_length: int = Field(default=1024, ge=2, le=1_000_000)
    """Longest rollout, prompt included, in tokens; a longer one ends with finish reason length."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Sampling temperature of pi_agent; GRPO divides its logits by the same number."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus of pi_agent's sampling. Below 1 the update's ratio uses untruncated logprobs."""
    shard_groups: int = Field(default=32, ge=1, le=100_000)
    """Groups that are sampled and committed together; a crash costs no more than these."""
    logprob_rows: int = Field(default=16, ge=0, le=10_000)
    """Rollouts whose logprobs genenv computes again with the trainer's arithmetic, to compare them
    with the engine's; 0: no comparison, and no gate."""
    max_logprob_gap: float = Field(default=0.1, gt=0, le=100)
    """Largest mean difference of the two, nats a token; above it the stage fails, because an update
    would learn from wrong ratios."""


class RefillConfig(Section):
    """Further tasks for those whose attempts teach pi_agent nothing: all rewards of a group equal.

    DAPO's dynamic sampling (arXiv 2503.14476) goes on until a batch is full of groups with a
    signal. Here an epoch has a reserve: the tasks that pi_env wrote beyond those chosen.
    """

    groups: int = Field(default=0, ge=0, le=100_000)
    """Groups with a signal that an epoch wants of its new tasks: those that the agent update may
    use. While it has fewer, it attempts tasks of its reserve, as many at once as it lacks groups.
    0: no refill."""
    max_tasks: int | None = Field(default=None, ge=1, le=10_000_000)
    """Most new tasks attempted an epoch, those chosen at first included; None: all that pi_env
    wrote, generation.tasks x generation.candidates at most."""

    @model_validator(mode="after")
    def _wanted(self) -> Self:
        if self.max_tasks is not None and not self.groups:
            raise ValueError(
                f"refill.max_tasks {self.max_tasks} does nothing with refill.groups 0: set "
                "refill.groups to the groups that an epoch wants, or remove refill.max_tasks"
            )
        return self


def most_tasks(refill: RefillConfig, *, tasks: int, candidates: int) -> int:
    """Return the most new tasks that an epoch attempts.

    It chooses `tasks` at first, and pi_env writes `candidates` tasks for each of these.
    """
    if not refill.groups:
        return tasks
    return min(refill.max_tasks or tasks * candidates, tasks * candidates)


class ToolsConfig(Section):
    """Who answers the agent between its turns."""

    execution: Literal["inline", "workers", "simulated"] = "inline"
    """inline: the domain's code at once, all attempts in step; workers: the domain's code in
    threads beside, each attempt on its own, for tools that take time; simulated: pi_env plays the
    tools (training only, evaluation executes them)."""
    timeout_s: float = Field(default=30.0, gt=0, le=86_400)
    """Longest step of a domain's tools in a worker; a longer one becomes a failed observation."""
    max_errors: int = Field(default=3, ge=1, le=1000)
    """Failed observations in a row after which an attempt counts as broken."""
    max_tokens: int = Field(default=96, ge=1, le=131_072)
    """Longest observation that pi_env writes in place of the tools, in tokens."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Sampling temperature of pi_env in place of the tools."""

    @model_validator(mode="after")
    def _used(self) -> Self:
        useless = {
            "inline": ("timeout_s", "max_tokens", "temperature"),
            "workers": ("max_tokens", "temperature"),
            "simulated": (),
        }
        for name in useless[self.execution]:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"tools.{name} does nothing with tools.execution {self.execution}: remove it "
                    "or change the execution"
                )
        return self
