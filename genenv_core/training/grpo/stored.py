"""TRL's GRPOTrainer, fed with stored rollouts instead of from its own sampling, without a loss.

What every update of pi_agent on stored rollouts shares, whatever its loss: which rows a step has,
their logprobs, the reference of the KL, what is left out of the loss, and what was seen.

Departures from TRL, with their reasons:

- r_t = pi(t) / pi_sampled(t): the denominator is the stored *sampling* logprob. Without vLLM, TRL
  recomputes it under the current weights, which is wrong for rollouts of an older policy version.
- A pass is one loop epoch over all groups, in an order drawn from (seed, pass). Every step holds
  `groups_per_step` groups and the last one of a pass what is left; TRL would drop the remainder.
  `passes` therefore revisit the groups after all of them were seen, as in PPO. Row visits are
  counted while training, and an update that missed or repeated one is an error.
- A group may have fewer rows than n, as attempts that an environment or an engine broke have no
  verdict. Means over rows do not count them.
- An attempt may have several sequences, each a row. Its reward counts once in its group, and each
  of its rows has its advantage. What divides by rows divides by attempts.
- `max_mismatch` compares with the weights that the update starts from, before its first step (a
  resumed update too). TRL masks such tokens with vLLM alone, and weighs those that it keeps.
- `mask_truncated` goes by the stored end of the rollout. TRL looks for a last token of its
  tokenizer's, which rollouts of several turns or other stop tokens do not end on.
- Adam's moments start at zero: an update is a stage, and its key names all that it starts from. The
  candidate of the update before may not have been published, and its moments would not fit.
- Each micro-batch of the first pass is scored under the reference beside the policy, by the process
  that trains its rows; TRL would score all rows of a step first, in each pass anew.
- TRL's reference is what it finds where the policy was loaded, or a copy of its adapter. pi_agent^0
  is loaded here; where it is the policy without its adapter, that adapter is disabled.
"""

# TRL, transformers and datasets come without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate.utils import gather, send_to_device
from datasets import Dataset
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head, use_adapter

from genenv_core.algorithm.stats import mean, sample_std
from genenv_core.engines.adapters import has_adapter
from genenv_core.errors import TrainingError
from genenv_core.training.grpo.batches import GroupBatches, StoredRollouts
from genenv_core.training.grpo.reference import ReferenceScores
from genenv_core.training.grpo.seen import Seen
from genenv_core.training.loop.steps import StepTrainer, UpdateOutcome, checked, shared_arguments
from genenv_core.training.policies import ranks
from genenv_core.training.policies.completions import completion_logprobs
from genenv_core.training.policies.heads import at_once, tiles_agree
from genenv_core.training.policies.ranks import cut
from genenv_core.training.policies.reference import frozen, load_reference
from genenv_core.training.policies.shards import reshard
from genenv_core.training.policies.weights import LoadedPolicy
from genenv_core.training.updates.grpo import GrpoRequest


class RolloutTrainer(StepTrainer, GRPOTrainer):
    """TRL's GRPOTrainer, which looks up stored groups by id instead of generating.

    A subclass adds the loss in `_compute_loss`, and in `_scales` what it needs of a whole step for
    it.
    """

    clips = False
    """Whether the loss clips ratios; then `clip_fraction` is among its metrics."""
    summed = ("loss", "kl")
    step_batches: GroupBatches

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        reference: Any,
        rollouts: StoredRollouts,
        request: GrpoRequest,
        home: Path,
    ) -> None:
        """Take pi_agent^0 as `reference` where the KL is to it, else None."""
        settings = request.settings
        self.rollouts = rollouts
        self.step_batches = GroupBatches(
            rollouts,
            per_step=settings.groups_per_step,
            micro=settings.micro_batch_rows,
            seed=request.seed,
            processes=request.training.processes,
        )
        self.vocabulary = model.get_input_embeddings().num_embeddings
        first = [self.step_batches.stored(batch) for batch in self.step_batches.batches]
        self._references = ReferenceScores(first, self._score_reference)
        self.training, self.warmup_steps = request.training, settings.warmup_steps
        self.seen, self._step_seen = Seen(), Seen()
        self._first_row = {
            group: index * rollouts.group_size for index, group in enumerate(rollouts.groups)
        }
        self._verdicts = rollouts.verdicts()
        self._step_groups: list[str] | None = None
        self._step_tensors: dict[str, Any] = {}
        self._scored: tuple[Any, Any] | None = None
        self._agrees: bool | None = None
        self._max_mismatch, self._mismatch = settings.max_mismatch, dict[str, float]()
        self._to_bootstrap = settings.kl_reference == "bootstrap"
        super().__init__(
            model=model,
            reward_funcs=stored_reward,
            args=self._config(request, home),
            train_dataset=Dataset.from_dict({"prompt": list(rollouts.groups)}),
            processing_class=tokenizer,
            rollout_func=self._look_up,
        )
        self.check_processes()
        half = self.training.precision == "bfloat16" and not self.training.shares_rows
        if half and self.training.strategy != "zero3":
            self._tiles()  # before a step, which rounds
        self.beta = settings.kl_coef
        if reference is not None:
            add_fused_lm_head(reference, temperature=self.temperature)  # as TRL scores any model
            self.ref_model = frozen(reference, self.accelerator)

    def _config(self, request: GrpoRequest, home: Path) -> GRPOConfig:
        settings, micro_batches = request.settings, self.step_batches.micro_batches_per_step
        return GRPOConfig(
            **shared_arguments(home, request),
            num_train_epochs=settings.passes,
            num_iterations=1,
            gradient_accumulation_steps=micro_batches,
            # Formal: TRL wants whole groups in its own generation batch, but `StepBatches` makes
            # them. Equal to the accumulation, so TRL sees no need to score old logprobs.
            steps_per_generation=micro_batches,
            per_device_train_batch_size=self.rollouts.group_size,
            num_generations=self.rollouts.group_size,
            shuffle_dataset=False,
            max_completion_length=max(len(ids) for ids in self.rollouts.completion_ids),
            temperature=request.temperature,
            # Above 0, TRL would make a reference of the policy as it is now.
            beta=0.0 if self._to_bootstrap else settings.kl_coef,
            use_bias_correction_kl=True,
            importance_sampling_level="token",
            mask_truncated_completions=False,
            disable_dropout=True,
            **self._loss_arguments(request),
        )

    def _loss_arguments(self, request: GrpoRequest) -> dict[str, Any]:
        """Return the fields of TRL's configuration that its loss reads; {} for another loss."""
        del request
        return {}

    def _look_up(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        """Return the stored rows of the prompts, which are group ids, one for each row."""
        taken: Counter[str] = Counter()
        rows: list[int] = []
        for group in prompts:
            rows.append(self._first_row[group] + taken[group])
            taken[group] += 1
        if any(count != self.rollouts.group_size for count in taken.values()):
            raise TrainingError(f"TRL asked for parts of groups: {dict(taken)}")
        stored = self.rollouts
        return {
            "prompt_ids": [stored.prompt_ids[row] for row in rows],
            "completion_ids": [stored.completion_ids[row] for row in rows],
            "logprobs": [stored.logprobs[row] for row in rows],
            "env_mask": [stored.loss_mask[row] for row in rows],
            "reward": [stored.rewards[row] for row in rows],
        }

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        beta, self.beta = self.beta, 0.0  # `_reference` scores by micro-batch
        try:
            output = super()._generate_and_score_completions(inputs)
        finally:
            self.beta = beta
        if self.rollouts.heads is not None:
            groups = [row["prompt"] for row in inputs[:: self.rollouts.group_size]]
            output["advantages"] = output["advantages"][self.rollouts.heads_within(groups)]
        output["old_per_token_logps"] = output["sampling_per_token_logps"]
        return output

    def _calculate_rewards(self, inputs: list[dict[str, Any]], *_: Any) -> Any:
        """Return the stored rewards, (rows, 1), or NaN, of which TRL's own method would warn."""
        own = [[math.nan if row["reward"] is None else row["reward"]] for row in inputs]
        return gather(torch.tensor(own, dtype=torch.float32, device=self.accelerator.device))

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """Return one micro-batch: rows start..stop of the step that `GroupBatches` describes.

        Where a step has fewer rows than processes, a process without a row gets one of weight 0.
        """
        self._leave_out_mismatches()
        groups, start, stop = (generation_batch[name] for name in ("groups", "start", "stop"))
        size, rows = self.rollouts.group_size, stop - start
        if self._step_groups != groups:
            prompts = [{"prompt": group} for group in groups for _ in range(size)]
            self._step_tensors = self._generate_and_score_completions(prompts)
            self._step_groups = groups
        step = self._step_tensors
        first, end = (start, stop) if rows else (0, 1)
        inputs = {name: value[first:end] if value.dim() else value for name, value in step.items()}
        _trim(inputs)
        inputs["step_tokens"] = (step["completion_mask"] * step["tool_mask"]).sum()
        inputs["step_rows"] = sum(self._verdicts[group] for group in groups)
        inputs["rows"] = rows
        inputs["row_groups"] = tuple(groups[row // size] for row in range(first, end))
        inputs |= self._scales(inputs)
        if self.beta:
            rows = self.step_batches.stored(generation_batch)
            inputs["ref_per_token_logps"] = self._reference(rows, inputs)
        self._step_seen.rows.update(groups[row // size] for row in range(start, stop))
        return inputs

    def _reference(self, rows: tuple[int, ...], inputs: dict[str, Any]) -> Any:
        """Return the reference's logprobs of a micro-batch, which consists of these stored rows."""
        if self.training.sharded:  # its processes would not score at the same times
            return self._under_reference(inputs)
        return self._references.of(rows, inputs["completion_ids"].size(1))

    def _score_reference(self, rows: tuple[int, ...]) -> Any:
        padded: Any = self.rollouts.padded(rows)
        return self._under_reference(send_to_device(padded, self.accelerator.device))

    @torch.no_grad()
    def _under_reference(self, inputs: dict[str, Any]) -> Any:
        model, context = self.ref_model, nullcontext()
        if model is None:  # with LoRA: no adapter, or the copy of the starting one that TRL keeps
            model = self.model
            context = use_adapter(model, adapter_name=None if self._to_bootstrap else "ref")
        elif self._to_bootstrap:  # TRL's own has autocast inside
            context = self.accelerator.autocast()
        with context:
            return self._logprobs(model, inputs)

    def _logprobs(self, model: Any, inputs: dict[str, Any], **options: Any) -> Any:
        """Return the logprobs of a micro-batch's completions under a model, (rows, tokens)."""
        return self._get_per_token_logps_and_entropies(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
            torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
            logits_to_keep=inputs["completion_ids"].size(1),
            **options,
        )[0]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        self._leave_out_mismatches()  # the last moment of the start's weights where one resumes
        super()._load_optimizer_and_scheduler(checkpoint)

    def _leave_out_mismatches(self) -> None:
        """Drop, once, the loss of tokens whose logprobs now and at sampling differ too much."""
        most, self._max_mismatch = self._max_mismatch, None
        if most is None:
            return
        stored = self.rollouts
        self.rollouts = stored.near(self._starting_logprobs(), most)
        share = 1 - self.rollouts.tokens / stored.tokens if stored.tokens else 0.0
        self._mismatch = {"mismatch_masked": share}

    def _starting_logprobs(self) -> list[list[float]]:
        """Return the logprobs of all rows under the current weights, with padding at their ends."""
        processes, rows = self.training.processes, len(self.rollouts.rewards)
        batches = cut(rows, most=self.step_batches.micro, processes=processes)
        own: list[list[list[float]]] = []
        with self.looking():
            for start, stop in batches[ranks.index() :: processes]:
                # Processes of a sharded model score together: one without a row scores the first.
                padded = self.rollouts.padded(range(start, stop) if stop > start else range(1))
                inputs: Any = send_to_device(padded, self.accelerator.device)
                own.append(self._logprobs(self.model, inputs).tolist()[: stop - start])
        in_turn = zip(*ranks.collected(own), strict=True)
        return [row for turn in in_turn for batch in turn for row in batch]

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **options: Any
    ) -> Any:
        rows = model, input_ids, attention_mask, logits_to_keep
        shared = self.training.shares_rows
        whole = shared or at_once(attention_mask, logits_to_keep, self.vocabulary, self.training)
        if whole or not self._tiles():
            with self.accelerator.autocast():
                scored = (*completion_logprobs(*rows, self.temperature, shared=shared), None)
        else:
            scored = super()._get_per_token_logps_and_entropies(*rows, **options)
        if torch.is_grad_enabled():
            self._scored = (scored[0].detach(), scored[1].detach())
        return scored

    def _tiles(self) -> bool:
        """Return whether TRL's tiled head scores rows of this model right; seen once."""
        if self._agrees is None:
            self._agrees = tiles_agree(self.model, self.vocabulary, self.temperature)
            reshard(self.model)
        return self._agrees

    def _scales(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return what the loss of a micro-batch needs of its step; the reference comes later."""
        del inputs
        return {}

    def _observe(self, inputs: dict[str, Any], loss: float) -> None:
        assert self._scored is not None
        seen = self._step_seen
        self.add(loss=loss / self.training.processes)
        mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        if not mask.any():
            return
        logps, entropies = (scored[mask] for scored in self._scored)
        checked(logps.sum().item(), "logprobs of the policy during GRPO")
        ratio = (logps - inputs["old_per_token_logps"][mask]).exp()
        seen.tokens += int(mask.sum())
        seen.entropy += entropies.double().sum().item()
        seen.ratio += ratio.double().sum().item()
        seen.ratio_max = max(seen.ratio_max, ratio.max().item())
        seen.clipped += self._clipped(inputs, mask, ratio)
        if "ref_per_token_logps" in inputs:
            gap = inputs["ref_per_token_logps"][mask] - logps
            share = mask.sum() / inputs["step_tokens"]
            self.add(kl=float((gap.exp() - gap - 1).mean() * share))

    def _clipped(self, inputs: dict[str, Any], mask: Any, ratio: Any) -> int:
        """Return how many of a micro-batch's sampled tokens, with these ratios, the loss clips.

        The trainer calls it for every loss; one that does not clip returns 0.
        """
        del inputs, mask, ratio
        return 0

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> float:
        self.seen.add(ranks.collected(self._step_seen))
        self._step_seen = Seen()
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        checked(self.step_values["kl"], "KL to the reference")
        return norm

    def counters(self) -> dict[str, Any]:
        return super().counters() | {"seen": vars(self.seen)}

    def restore(self, counters: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super().restore(counters, tensors)
        seen = counters["seen"]
        self.seen = Seen(**(seen | {"rows": Counter(seen["rows"])}))

    def outcome(self) -> UpdateOutcome:
        """Return the metrics; `TrainingError` unless the loop visited each row `passes` times."""
        expected = int(self.args.num_train_epochs) * self.rollouts.group_size
        for group in self.rollouts.groups:
            if self.seen.rows[group] != expected:
                raise TrainingError(
                    f"group_id {group!r}: {self.seen.rows[group]} row visits instead of {expected}"
                )
        rewards = [reward for reward in self.rollouts.rewards if reward is not None]
        whole = {"reward_mean": mean(rewards), "reward_std": sample_std(rewards)}
        return UpdateOutcome(
            self.step_values | self.seen.metrics(clips=self.clips) | whole | self._mismatch
        )


def stored_reward(*, reward: list[float | None], **_: Any) -> list[float | None]:
    """Return the stored rewards; TRL demands such a function, and this trainer never calls it."""
    return reward


def _trim(inputs: dict[str, Any]) -> None:
    """Cut, in place, the padding that only longer rows of the same step need."""
    prompt = int(inputs["prompt_mask"].sum(1).max())
    completion = int(inputs["completion_mask"].sum(1).max())
    for name, value in inputs.items():
        if name.startswith("prompt_"):
            inputs[name] = value[:, value.size(1) - prompt :]
        elif value.dim() == 2:
            inputs[name] = value[:, :completion]


Trainer = TypeVar("Trainer", bound=RolloutTrainer)


def trainer_of(
    kind: Callable[..., Trainer],
    policy: LoadedPolicy,
    rollouts: StoredRollouts,
    request: GrpoRequest,
    home: Path,
) -> Trainer:
    """Return the trainer of an update; raises TrainingError where its KL has no reference."""
    to_start = request.settings.kl_coef and request.reference is None
    if to_start and not request.training.lora.rank and has_adapter(request.checkpoint):
        raise TrainingError(
            f"{request.checkpoint} has an adapter, so TRL cannot load it as the reference of "
            "grpo.kl_coef: set that to 0, or train adapters (training.lora.rank)"
        )
    first = request.reference
    reference = None if first is None else load_reference(first, policy, request.policy)
    return kind(policy.model, policy.tokenizer, reference, rollouts, request, home)
