"""`make bench-gpu`: the GRPO and RWR steps beside TRL's own trainers and the arithmetic limit.

Each measurement is a process of its own, so that peaks of memory are its own. Models are randomly
initialised Qwen2 shapes; genenv and TRL train on the same rows, with the same precision, optimizer,
micro-batches and gradient checkpointing. Where all weights do not fit by genenv's own estimate,
both train LoRA adapters, and the table says so.

- tokens/s: tokens of all rows (prompts too, padding not) a second, of the steps after the first.
- limit: 6 N FLOPs a token (N weights) at the chip's peak; `of limit` is the share reached. What a
  step does beyond it is counted against it: attention, gradient checkpointing's second forward
  pass, the reference's pass in RWR and the KL that RWR measures after each step. TRL's SFTTrainer,
  which stands beside RWR, has neither weights nor KL.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from genenv_core.config.training import LoraConfig, TrainingConfig
from genenv_core.config.updates import GrpoConfig, RwrConfig
from genenv_core.training.memory import GB, Job, Shape, estimate

QWEN: dict[str, dict[str, Any]] = {
    "tiny": {"h": 64, "i": 176, "l": 2, "heads": 4, "kv": 2, "v": 512, "tied": True},
    "0.5B": {"h": 896, "i": 4864, "l": 24, "heads": 14, "kv": 2, "v": 151936, "tied": True},
    "1.5B": {"h": 1536, "i": 8960, "l": 28, "heads": 12, "kv": 2, "v": 151936, "tied": True},
    "7B": {"h": 3584, "i": 18944, "l": 28, "heads": 28, "kv": 4, "v": 152064, "tied": False},
}
PEAK_TFLOPS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L4": 121, "4090": 165}
"""Dense bfloat16 peaks by their makers' data sheets (SXM versions)."""

UPDATES, WHO = ("grpo", "rwr"), ("genenv", "trl")
LIBRARIES = ("torch", "transformers", "trl", "accelerate", "peft")
GROUP = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """One measurement."""

    update: str
    who: str
    shape: str
    device: str
    rows: int
    micro: int
    prompt: int
    completion: int
    steps: int
    lora: int


def config_of(name: str) -> Any:
    """Return the Qwen2 configuration of a shape."""
    from transformers import Qwen2Config

    s = QWEN[name]
    return Qwen2Config(
        vocab_size=s["v"],
        hidden_size=s["h"],
        intermediate_size=s["i"],
        num_hidden_layers=s["l"],
        num_attention_heads=s["heads"],
        num_key_value_heads=s["kv"],
        tie_word_embeddings=s["tied"],
        max_position_embeddings=32768,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )


def training_of(plan: Plan) -> TrainingConfig:
    half = "bfloat16" if plan.device == "cuda" else "float32"
    return TrainingConfig(device=plan.device, precision=half, lora=LoraConfig(rank=plan.lora))


def job_of(plan: Plan) -> Job:
    """Return the job that the plan is, for the estimate of its memory."""
    return Job(
        update="grpo" if plan.update == "grpo" else "rwr",
        shape=replace(Shape.of(config_of(plan.shape).to_dict()), attention_bias=True),
        training=training_of(plan),
        row_tokens=plan.prompt + plan.completion,
        completion_tokens=plan.completion,
        gradient_checkpointing=plan.device == "cuda",
        reference=plan.update == "rwr" and not plan.lora,
    )


def rows_of(plan: Plan) -> list[dict[str, Any]]:
    """Return random rows of unequal lengths: completions of half to all of the given tokens."""
    generator = torch.Generator().manual_seed(0)
    size = QWEN[plan.shape]["v"]

    def ids(count: int) -> list[int]:
        return torch.randint(2, size, (count,), generator=generator).tolist()

    rows: list[dict[str, Any]] = []
    for index in range(plan.rows):
        low = plan.completion // 2
        length = int(torch.randint(low, plan.completion + 1, (1,), generator=generator))
        shared = rows[-1]["prompt_ids"] if index % GROUP else ids(plan.prompt)
        rows.append({"prompt_ids": shared, "completion_ids": [*ids(length - 1), 1]})
    return rows


def measure(plan: Plan) -> dict[str, Any]:
    """Return tokens a second and the peak of memory of one trainer."""
    from transformers import Qwen2ForCausalLM, TrainerCallback

    from genenv_core.training.common import training_session
    from genenv_core.training.lora import add_adapter

    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if plan.device == "cuda":
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

    rows = rows_of(plan)
    tokens = sum(len(row["prompt_ids"]) + len(row["completion_ids"]) for row in rows)
    with (
        tempfile.TemporaryDirectory() as folder,
        training_session("bench", threads=1, seed=0, section="grpo", micro_batch_rows=plan.micro),
    ):
        home = Path(folder)
        with torch.device(plan.device):
            model = Qwen2ForCausalLM(config_of(plan.shape))
        if plan.lora:
            if plan.device == "cuda":
                model = model.to(torch.bfloat16)
            model = add_adapter(model, home, LoraConfig(rank=plan.lora))
        trainer = TRAINERS[plan.update, plan.who](plan, model, rows, home)
        trainer.add_callback(Clock())
        started = time.perf_counter()
        trainer.train()
    taken = ends[-1] - ends[0]
    cuda = plan.device == "cuda"
    peak = torch.cuda.max_memory_allocated() if cuda else _peak_rss()
    return {
        "tokens_per_s": tokens * (len(ends) - 1) / taken,
        "first_step_s": ends[0] - started,
        "peak_bytes": peak,
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


def _grpo_request(plan: Plan, home: Path) -> Any:
    from genenv_core.training.base import GrpoRequest

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


def _stored(rows: list[dict[str, Any]]) -> Any:
    from genenv_core.training.rollouts import StoredRollouts

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
    from genenv_core.training.grpo import StoredRolloutTrainer

    tokenizer = _tokenizer(QWEN[plan.shape]["v"])
    return StoredRolloutTrainer(model, tokenizer, _stored(rows), _grpo_request(plan, home), home)


def trl_grpo(plan: Plan, model: Any, rows: list[dict[str, Any]], home: Path) -> Any:
    """Return TRL's GRPOTrainer as it is, its generation replaced by the same rows."""
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from genenv_core.training.common import shared_arguments
    from genenv_core.training.grpo import stored_reward

    stored = _stored(rows)

    def look_up(prompts: list[str], trainer: Any) -> dict[str, Any]:
        del trainer
        seen: dict[str, int] = {}
        found: list[int] = []
        for prompt in prompts:
            number = seen[prompt] = seen.get(prompt, -1) + 1
            found.append(int(prompt[1:]) * GROUP + number)
        columns = ("prompt_ids", "completion_ids", "logprobs")
        return {name: [getattr(stored, name)[row] for row in found] for name in columns} | {
            "reward": [stored.rewards[row] for row in found]
        }

    request = _grpo_request(plan, home)
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
        train_dataset=Dataset.from_dict({"prompt": list(stored.groups)}),
        processing_class=_tokenizer(QWEN[plan.shape]["v"]),
        rollout_func=look_up,
    )


def _rwr_request(plan: Plan, home: Path) -> Any:
    from genenv_core.training.base import RwrRequest

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


def genenv_rwr(plan: Plan, model: Any, rows: list[dict[str, Any]], home: Path) -> Any:
    """Return genenv's RWR trainer on the rows, reference and leash included."""
    import copy

    from genenv_core.training.leash import Leash
    from genenv_core.training.rwr import WeightedRegressionTrainer

    columns: dict[str, list[Any]] = {
        "row_id": [f"r{index}" for index in range(len(rows))],
        "prompt_ids": [row["prompt_ids"] for row in rows],
        "completion_ids": [row["completion_ids"] for row in rows],
        "weight": [1.0] * len(rows),
    }
    reference = None
    if not plan.lora:
        reference = copy.deepcopy(model)
        if plan.device == "cuda":
            reference = reference.to(torch.bfloat16)
    request = _rwr_request(plan, home)
    tokenizer = _tokenizer(QWEN[plan.shape]["v"])
    trainer = WeightedRegressionTrainer(model, tokenizer, reference, columns, request, home)
    trainer.leash = Leash(trainer, request.settings)
    trainer.add_callback(trainer.leash)
    return trainer


def trl_sft(plan: Plan, model: Any, rows: list[dict[str, Any]], home: Path) -> Any:
    """Return TRL's SFTTrainer as it is, on the same rows and the same tokens' loss."""
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    from genenv_core.training.common import shared_arguments

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


def chip(device: str) -> tuple[str, float]:
    """Return the chip's name, and its peak in FLOPs a second (0: not known here)."""
    if device == "cpu":
        return platform.processor() or platform.machine(), 0.0
    name = torch.cuda.get_device_name()
    return name, next((t * 1e12 for known, t in PEAK_TFLOPS.items() if known in name), 0.0)


def main() -> None:
    """Measure every shape, or be the process of one measurement."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--shape", nargs="*", choices=QWEN, default=["0.5B", "1.5B", "7B"])
    parser.add_argument("--rows", type=int, default=32, help="rows of a step, whole groups of 8")
    parser.add_argument("--micro", type=int, default=4, help="rows of a micro-batch")
    parser.add_argument("--prompt", type=int, default=256, help="tokens of a prompt")
    parser.add_argument("--completion", type=int, default=768, help="most tokens of a completion")
    parser.add_argument("--steps", type=int, default=6, help="optimizer steps, the first not timed")
    parser.add_argument("--peak-tflops", type=float, help="the chip's dense peak, when not known")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(Plan(**json.loads(options.one)))))
        return
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "bench-gpu: torch finds no GPU on this machine, nothing was measured; the same code "
            "runs with --device cpu --shape tiny"
        )
        return
    table(options)


def table(options: argparse.Namespace) -> None:
    """Print a line a measurement, under what is needed to repeat it."""
    name, peak = chip(options.device)
    peak = options.peak_tflops * 1e12 if options.peak_tflops else peak
    print(
        f"chip: {name}, peak {peak / 1e12:.0f} TFLOP/s" if peak else f"chip: {name}, no peak known"
    )
    print("versions: " + ", ".join(f"{library} {version(library)}" for library in LIBRARIES))
    print(f"command: python -m tests.bench.gpu {' '.join(sys.argv[1:])}".rstrip())
    print(f"{'update':6} {'shape':5} {'trained':8} {'who':7} {'tokens/s':>9} {'of limit':>8} "
          f"{'peak GB':>8} {'said GB':>8} {'to TRL':>7}")  # fmt: skip
    for shape in options.shape:
        for update in UPDATES:
            _compare(options, shape, update, peak)


def _compare(options: argparse.Namespace, shape: str, update: str, peak: float) -> None:
    sizes = {name: getattr(options, name) for name in ("rows", "micro", "prompt", "completion")}
    plan = Plan(update, "", shape, options.device, **sizes, steps=options.steps, lora=0)
    if options.device == "cuda":
        memory = torch.cuda.mem_get_info()[0]
        if estimate(job_of(plan)).largest(memory) < plan.micro:
            plan = replace(plan, lora=32)
    found: dict[str, dict[str, Any]] = {}
    for who in WHO:
        told = json.dumps(vars_of(replace(plan, who=who)))
        command = [sys.executable, "-m", "tests.bench.gpu", "--one", told]
        done = subprocess.run(command, capture_output=True, text=True)
        trained = f"LoRA {plan.lora}" if plan.lora else "all"
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1][:120] if done.stderr.strip() else "?"
            print(f"{update:6} {shape:5} {trained:8} {who:7} failed: {reason}")
            continue
        found[who] = json.loads(done.stdout.splitlines()[-1])
    weights = job_of(plan).shape.parameters
    for who, result in found.items():
        speed = result["tokens_per_s"]
        share = f"{6 * weights * speed / peak:8.1%}" if peak else f"{'-':>8}"
        said = estimate(job_of(plan)).total(plan.micro) / GB
        beside = found.get("trl", {}).get("tokens_per_s")
        ratio = f"{speed / beside:7.2f}" if beside else f"{'-':>7}"
        print(f"{update:6} {shape:5} {trained:8} {who:7} {speed:9.0f} {share} "
              f"{result['peak_bytes'] / GB:8.2f} {said:8.2f} {ratio}")  # fmt: skip


def vars_of(plan: Plan) -> dict[str, Any]:
    """Return the plan's values."""
    return {name: getattr(plan, name) for name in Plan.__slots__}


if __name__ == "__main__":
    main()
