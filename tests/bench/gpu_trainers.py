"""The four trainers of `make bench-gpu`, and one measurement of one of them."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from genenv_core.config.sections.training import LoraConfig
from genenv_core.config.sections.updates import GrpoConfig, RwrConfig
from tests.bench.gpu_plan import (
    GROUP,
    QWEN,
    Plan,
    config_of,
    frozen_in_half,
    rows_of,
    training_of,
)

ENOUGH_STEPS = 3
"""A measurement ends early, with this many steps at least, when half of its time is over."""


def measure(plan: Plan) -> dict[str, Any]:
    """Return tokens a second and the peak of memory of one trainer."""
    from transformers import Qwen2ForCausalLM, TrainerCallback

    from genenv_core.training.loop.update import alone
    from genenv_core.training.policies.kernels import use_kernels
    from genenv_core.training.policies.lora import add_adapter

    ends: list[float] = []
    cuda, born = plan.device == "cuda", time.perf_counter()

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if cuda:
                torch.cuda.synchronize()
            ends.append(time.perf_counter())
            late = ends[-1] - born > plan.limit_s / 2
            control.should_training_stop |= late and len(ends) >= ENOUGH_STEPS

    rows = rows_of(plan)
    tokens = sum(len(row["prompt_ids"]) + len(row["completion_ids"]) for row in rows)
    with (
        tempfile.TemporaryDirectory() as folder,
        alone(grpo_request(plan, Path())),
    ):
        home = Path(folder)
        model: Any
        with torch.device(plan.device):
            model = Qwen2ForCausalLM(config_of(plan.shape))
        use_kernels(model, training_of(plan))
        if plan.lora:
            model = add_adapter(
                model.bfloat16() if frozen_in_half(plan) else model,
                home,
                LoraConfig(rank=plan.lora),
            )
        if cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        trainer = TRAINERS[plan.update, plan.who](plan, model, rows, home)
        trainer.add_callback(Clock())
        started = time.perf_counter()
        trainer.train()
    return {
        "tokens_per_s": tokens * (len(ends) - 1) / (ends[-1] - ends[0]),
        "first_step_s": ends[0] - started,
        "peak_bytes": torch.cuda.max_memory_allocated() if cuda else _peak_rss(),
        "steps": len(ends),
    }


def _peak_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _tokenizer(vocabulary: int) -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<eos>": 1} | {f"w{index}": index for index in range(2, vocabulary)}
    inner = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def grpo_request(plan: Plan, home: Path) -> Any:
    from genenv_core.training.updates.grpo import GrpoRequest

    settings = GrpoConfig(
        passes=plan.steps, groups_per_step=plan.rows // GROUP, micro_batch_rows=plan.micro
    )
    return GrpoRequest(
        checkpoint=home / "none",
        output=home / "out",
        rows=home / "none",
        settings=settings,
        training=training_of(plan),
        gradient_checkpointing=plan.device == "cuda",
        group_size=GROUP,
        temperature=1.0,
        seed=0,
        threads=1,
    )


def stored(rows: list[dict[str, Any]]) -> Any:
    from genenv_core.training.grpo.batches import StoredRollouts

    return StoredRollouts(
        group_size=GROUP,
        groups=tuple(f"g{index}" for index in range(len(rows) // GROUP)),
        prompt_ids=[row["prompt_ids"] for row in rows],
        completion_ids=[row["completion_ids"] for row in rows],
        logprobs=[[-1.0] * len(row["completion_ids"]) for row in rows],
        loss_mask=[[1] * len(row["completion_ids"]) for row in rows],
        rewards=[float(index % GROUP == 0) for index in range(len(rows))],
    )


def genenv_grpo(plan: Plan, model: Any, rows: list[dict[str, Any]], home: Path) -> Any:
    """Return genenv's GRPO trainer on the rows, as an update makes it."""
    from genenv_core.training.grpo.trainer import StoredRolloutTrainer

    tokenizer = _tokenizer(QWEN[plan.shape]["v"])
    request = grpo_request(plan, home)
    return StoredRolloutTrainer(model, tokenizer, None, stored(rows), request, home)


def trl_grpo(plan: Plan, model: Any, rows: list[dict[str, Any]], home: Path) -> Any:
    """Return TRL's GRPOTrainer, unchanged except that it takes the same rows and samples none."""
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from genenv_core.training.grpo.stored import stored_reward
    from genenv_core.training.loop.steps import shared_arguments

    kept = stored(rows)

    def look_up(prompts: list[str], trainer: Any) -> dict[str, Any]:
        del trainer
        seen: dict[str, int] = {}
        found: list[int] = []
        for prompt in prompts:
            number = seen[prompt] = seen.get(prompt, -1) + 1
            found.append(int(prompt[1:]) * GROUP + number)
        columns = ("prompt_ids", "completion_ids", "logprobs")
        return {name: [getattr(kept, name)[row] for row in found] for name in columns} | {
            "reward": [kept.rewards[row] for row in found]
        }

    request = grpo_request(plan, home)
    accumulation = plan.rows // plan.micro
    return GRPOTrainer(
        model=model,
        reward_funcs=stored_reward,
        args=GRPOConfig(
            **shared_arguments(home, request),
            max_steps=plan.steps,
            gradient_accumulation_steps=accumulation,
            steps_per_generation=accumulation,
            per_device_train_batch_size=plan.micro,
            num_generations=GROUP,
            shuffle_dataset=False,
            max_completion_length=plan.completion,
            temperature=1.0,
            beta=0.0,
        ),
        train_dataset=Dataset.from_dict({"prompt": list(kept.groups)}),
        processing_class=_tokenizer(QWEN[plan.shape]["v"]),
        rollout_func=look_up,
    )


def _rwr_request(plan: Plan, home: Path) -> Any:
    from genenv_core.training.updates.rwr import RwrRequest

    settings = RwrConfig(
        steps=plan.steps, steps_per_row=100, micro_batch_rows=plan.micro, kl_cap=1e6
    )
    return RwrRequest(
        checkpoint=home / "none",
        initial=home / "none",
        output=home / "out",
        rows=home / "none",
        settings=settings,
        training=training_of(plan),
        gradient_checkpointing=plan.device == "cuda",
        seed=0,
        threads=1,
    )


def genenv_rwr(
    plan: Plan, model: Any, rows: list[dict[str, Any]], home: Path, *, leash: bool = True
) -> Any:
    """Return genenv's RWR trainer on the rows, with the reference where they are on the leash."""
    import copy

    from genenv_core.training.rwr.batches import StoredGenerations
    from genenv_core.training.rwr.trainer import WeightedRegressionTrainer

    kept = StoredGenerations(
        row_id=[f"r{index}" for index in range(len(rows))],
        prompt_ids=[row["prompt_ids"] for row in rows],
        completion_ids=[row["completion_ids"] for row in rows],
        weight=[1.0] * len(rows),
        leash=[leash] * len(rows),
    )
    reference = None
    if leash and not plan.lora:
        reference = copy.deepcopy(model)
        if plan.device == "cuda":
            reference = reference.to(torch.bfloat16)
    request = _rwr_request(plan, home)
    tokenizer = _tokenizer(QWEN[plan.shape]["v"])
    return WeightedRegressionTrainer(model, tokenizer, reference, kept, request, home)


def trl_sft(plan: Plan, model: Any, rows: list[dict[str, Any]], home: Path) -> Any:
    """Return TRL's unchanged SFTTrainer, on the same rows with a loss on the same tokens."""
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    from genenv_core.training.loop.steps import shared_arguments

    data = {
        "input_ids": [[*row["prompt_ids"], *row["completion_ids"]] for row in rows],
        "labels": [[-100] * len(row["prompt_ids"]) + row["completion_ids"] for row in rows],
    }
    return SFTTrainer(
        model=model,
        args=SFTConfig(
            **shared_arguments(home, _rwr_request(plan, home)),
            max_steps=plan.steps,
            gradient_accumulation_steps=plan.rows // plan.micro,
            per_device_train_batch_size=plan.micro,
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
        train_dataset=Dataset.from_dict(data),
        processing_class=_tokenizer(QWEN[plan.shape]["v"]),
    )


TRAINERS = {
    ("grpo", "genenv"): genenv_grpo,
    ("grpo", "trl"): trl_grpo,
    ("rwr", "genenv"): genenv_rwr,
    ("rwr", "trl"): trl_sft,
}
