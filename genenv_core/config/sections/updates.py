"""What the two updates learn from, and how far they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from genenv_core.config.sections.section import Section

PayRule = Literal["alpha", "learnability", "signal"]
"""Rules by which pi_env is paid for a task: see `genenv_core/algorithm/pay/`."""

KlReference = Literal["start", "bootstrap"]
"""The reference of a KL term: the checkpoint that the update started from, or the run's first."""


class MixtureConfig(Section):
    """What an agent update trains on: shares of its groups, drawn from D_train."""

    new: float = Field(default=0.6, ge=0, le=1)
    """Share of this epoch's generated tasks."""
    base: float = Field(default=0.2, ge=0, le=1)
    """Share of base tasks, attempted again by the current agent."""
    history: float = Field(default=0.2, ge=0, le=1)
    """Share of stored groups of earlier epochs."""
    max_policy_age: int = Field(default=2, ge=1, le=1000)
    """Oldest admissible group of the history share, in policy versions behind the current one."""

    @model_validator(mode="after")
    def _sum(self) -> Self:
        total = self.new + self.base + self.history
        if abs(total - 1) > 1e-9:
            raise ValueError(f"mixture.new + base + history is {total:g} and must be 1")
        if self.new == 0:
            raise ValueError("mixture.new is 0: the agent would never learn from generated tasks")
        return self


class UpdateSettings(Section):
    """Fields that the settings of every update have, whatever its loss.

    Each section declares these fields again, at their place among its own.
    """

    if TYPE_CHECKING:
        learning_rate: float
        micro_batch_rows: int
        max_grad_norm: float


class GrpoConfig(UpdateSettings):
    """Group-relative policy optimisation of pi_agent, computed by TRL's GRPOTrainer.

    Adam's moments start at zero in each update: an update is a stage, computed from its key alone,
    and no optimizer state is an input of it.
    """

    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    """Learning rate, constant over an update once it is warmed up."""
    warmup_steps: int = Field(default=0, ge=0, le=1000)
    """First optimizer steps of an update in which the rate rises to learning_rate in equal parts;
    0: the first step has it already. Adam's first steps are long ones, for a pretrained model most
    of the KL that an update costs."""
    passes: int = Field(default=2, ge=1, le=100)
    """Passes over the update's groups (TRL: num_iterations)."""
    groups_per_step: int = Field(default=8, ge=1, le=10_000)
    """Groups in one optimizer step; the last step of a pass may hold fewer."""
    micro_batch_rows: int = Field(default=64, ge=1, le=10_000)
    """Most rows in one forward and backward pass of a process; lower it when memory runs out."""
    max_groups: int = Field(default=256, ge=1, le=100_000)
    """Most groups an update draws from D_train, all sources together."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """Lower clip of the probability ratio: 1 - clip_low."""
    clip_high: float = Field(default=0.28, gt=0, le=10)
    """Upper clip of the probability ratio: 1 + clip_high."""
    delta: float | None = Field(default=None, gt=1, le=1000)
    """Largest probability ratio that counts where the advantage is negative, which clip_high does
    not bound; above 1 + clip_high. None: no bound (TRL: delta, the two-sided clip)."""
    mask_truncated: bool = False
    """Whether the loss leaves out a rollout that a limit of length or turns cut off; its reward
    still counts in its group."""
    max_mismatch: float | None = Field(default=None, gt=0, le=100)
    """Largest distance, in nats, of the trainer's logprob of a sampled token before the update from
    the engine's; the loss leaves tokens above it out. None: all count."""
    kl_coef: float = Field(default=0.0, ge=0, le=10)
    """Weight of the KL to the reference; 0: no KL."""
    kl_reference: KlReference = "start"
    """The reference of kl_coef's KL: start, the checkpoint that the update started from, or
    bootstrap, the first one of the run, pi_agent^0."""
    scale_rewards: Literal["group", "none"] = "group"
    """group divides advantages by the standard deviation of a group's rewards; none does not."""
    loss_type: Literal["dapo", "grpo", "dr_grpo", "bnpo"] = "dapo"
    """How TRL normalises the token losses."""
    max_grad_norm: float = Field(default=1.0, gt=0, le=1000)
    """Gradient norm above which gradients are scaled down."""
    attribution: bool = False
    """Whether an update also measures what each of its groups teaches: how far its gradient is
    aligned with that of the validation tasks' P(answer), for the table `influence` and the view
    `taught`. It needs a domain that writes answers, and changes no weight."""

    @property
    def of_its_loss(self) -> dict[str, Any]:
        """Return the changed fields that only GRPO's own loss reads, by name."""
        names = ("clip_low", "clip_high", "delta", "scale_rewards", "loss_type", "attribution")
        return {
            name: value
            for name in names
            if (value := getattr(self, name)) != type(self).model_fields[name].default
        }

    @model_validator(mode="after")
    def _useful(self) -> Self:
        if self.delta is not None and self.delta <= 1 + self.clip_high:
            raise ValueError(
                f"grpo.delta is {self.delta:g} and must be above 1 + grpo.clip_high = "
                f"{1 + self.clip_high:g}, or it would clip where clip_high does not"
            )
        if self.kl_reference != "start" and not self.kl_coef:
            raise ValueError(
                f"grpo.kl_reference {self.kl_reference} does nothing with grpo.kl_coef 0: set a "
                "kl_coef, or remove kl_reference"
            )
        return self


GRPO = "grpo"
"""The algorithm of the agent's update that is part of genenv."""


class AgentUpdateConfig(Section):
    """Which algorithm the stage grpo_update carries out.

    The section grpo has the settings of the loop, whatever the algorithm.
    """

    algorithm: str = Field(default=GRPO, min_length=1, max_length=1000)
    """grpo, an algorithm registered under the entry-point group genenv.updates, or a class by its
    place, as in my_algorithm.py:Mine or package.module:Mine (docs/algorithm.md)."""
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Options of an algorithm of one's own, which validates them; grpo has none."""

    @property
    def own(self) -> bool:
        """Return whether the algorithm is not genenv's."""
        return self.algorithm != GRPO

    @model_validator(mode="after")
    def _options(self) -> Self:
        if self.options and not self.own:
            raise ValueError(
                "agent_update.options does nothing for grpo, whose settings are section grpo: "
                "remove it, or name an algorithm of your own in agent_update.algorithm"
            )
        return self


class RwrConfig(UpdateSettings):
    """Reward-weighted regression of pi_env with a KL leash to the initial simulator."""

    pay: PayRule = "alpha"
    """The pay of pi_env for a task, from 0 to 1. alpha: R_env. learnability: 4 s (1 - s), the
    mean over what attempts and prediction say of the skill s. signal: the expected norm of the
    advantages of another group, as a share of the largest. The band stays with alpha."""
    lambda_: float = Field(default=4.0, ge=0, le=100, alias="lambda")
    """Temperature of the weight w = exp(lambda pay); 0 weighs all rows alike."""
    weight_by: Literal["row", "family"] = "family"
    """row: w as it is. family: w divided by the number of the update's rows of the same task family
    plus the mean number of a family, so that pi_env does not end up writing one kind of task."""
    learning_rate: float = Field(default=1e-3, gt=0, le=1)
    """Learning rate, constant over an update."""
    steps: int = Field(default=16, ge=1, le=100_000)
    """Most optimizer steps an update, each over all of its rows."""
    steps_per_row: float = Field(default=0.5, gt=0, le=100_000)
    """Most optimizer steps for each row of an update, lest pi_env learn few rows by heart."""
    micro_batch_rows: int = Field(default=64, ge=1, le=10_000)
    """Most rows in one forward and backward pass of a process; lower it when memory runs out."""
    max_grad_norm: float = Field(default=1.0, gt=0, le=1000)
    """Gradient norm above which gradients are scaled down."""
    kl_coef: float = Field(default=0.03, ge=0, le=100)
    """Weight of KL(pi_env || pi_env^0), nats a sequence, beside the NLL, nats a token."""
    kl_cap: float = Field(default=40.0, gt=0, le=1e6)
    """Largest KL to the initial simulator, nats a sequence along the leash's rows, that an update
    may end on."""
    kl_cap_action: Literal["pull", "roll_back"] = "pull"
    """Above the cap: `pull` steps on the KL term alone until the KL is under it, and rolls back if
    it still is not at the end; `roll_back` restores the last state under it and stops."""
    kl_rows: int = Field(default=64, ge=1, le=100_000)
    """Most generations along which an update computes its KL: of this epoch, kept or rejected."""
    probe_generations: int = Field(default=64, ge=2, le=100_000)
    """Fresh generations of the new pi_env along which genenv measures its KL for the gate. Where
    pi_env plays the tools, also the number of its answers that measure the fidelity."""
    rehearsal: float = Field(default=0.0, ge=0, lt=1)
    """Share of an update's rows that are texts of the first pi_env, drawn anew in each epoch, with
    weight 1: pi_env keeps what it could write. The leash alone lets it forget, because a KL along
    its own texts does not see what it no longer writes. 0: none."""
    window_epochs: int = Field(default=1, ge=1, le=1000)
    """Rows of D_env of the last this many epochs take part in an update. pi_env wrote older rows
    for a weaker agent, and would memorise them if it trained on them again."""
