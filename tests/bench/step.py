"""The steps of an update on a CPU, beside TRL's own trainer and beside plain torch, on equal rows.

Rows are like those of the preset `laptop`: groups of eight, prompts of 26 tokens of which all share
16, answers of 3. One thread, CPU seconds of all steps with their losses; what comes before the
first step (loading, and what the trainers prepare) is not counted. The ways take turns, and each
begins with the same weights. Plain torch has the same tensors, loss, clipping and optimizer (AdamW,
fused) in a loop of a few lines; padded and shared rows (`training.rows`) are compared with their
like. TRL pads its rows. TRL's SFTTrainer has no KL, so it stands beside RWR without rows on the
leash. With them, plain torch computes what RWR does: the reference once, the KL in each step and
after it.

The weights are those of SmolLM2-135M-Instruct where `make smollm2` has put them, else random ones
of its shape with two layers. Run `python -m tests.bench.step [CHECKPOINT]`. A processor with AMX
computes bfloat16 faster; the first line says whether this is one.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PrinterCallback
from transformers.utils import logging as hf_logging

from genenv_core.config.sections.training import LoraConfig, Precision
from genenv_core.config.sections.updates import GrpoConfig, RwrConfig
from genenv_core.engines.transformers.loading import load_model
from genenv_core.engines.transformers.scoring import kl_terms
from genenv_core.training.loop.update import alone
from genenv_core.training.policies.completions import completion_logits, laid_out
from genenv_core.training.policies.lora import add_adapter
from tests.bench import gpu_trainers
from tests.bench.gpu_plan import GROUP, QWEN, Plan

REPOSITORY = Path(__file__).parents[2]
WEIGHTS = REPOSITORY / "models" / "SmolLM2-135M-Instruct"
REPETITIONS = 5
ROWS, STEPS = 16, 2
PROMPT, COMMON, ANSWER = 26, 16, 3
SHAPE = "SmolLM2"
Layout = Literal["padded", "shared"]


@dataclass(frozen=True, slots=True)
class Case:
    """One table: an update, what it trains, and in which precision."""

    update: str
    lora: int = 0
    precision: Precision = "float32"
    leash: bool = False

    @property
    def name(self) -> str:
        trained = f"LoRA {self.lora}" if self.lora else "all weights"
        return f"{self.update}{' with KL' if self.leash else ''}, {trained}, {self.precision}"

    @property
    def ways(self) -> list[tuple[str, Layout]]:
        """Who computes it, and on which rows; TRL has no KL of RWR."""
        padded: list[tuple[str, Layout]] = [("genenv", "padded"), ("torch", "padded")]
        if not self.leash:
            padded.append(("TRL", "padded"))
        return [*padded, ("genenv", "shared"), ("torch", "shared")]


CASES = (
    Case("grpo"),
    Case("rwr"),
    Case("rwr", leash=True),
    Case("grpo", lora=32),
    Case("grpo", precision="bfloat16"),
)


def rows_like_laptop(vocabulary: int, count: int = ROWS) -> list[dict[str, Any]]:
    """Return rows whose prompts begin alike, groups of eight with the same prompt."""
    drawn = torch.Generator().manual_seed(0)

    def ids(count: int) -> list[int]:
        return torch.randint(2, vocabulary, (count,), generator=drawn).tolist()

    common = ids(COMMON)
    rows: list[dict[str, Any]] = []
    for index in range(count):
        prompt = rows[-1]["prompt_ids"] if index % GROUP else [*common, *ids(PROMPT - COMMON)]
        rows.append({"prompt_ids": prompt, "completion_ids": [*ids(ANSWER - 1), 1]})
    return rows


def seconds(
    case: Case, who: str, layout: Layout, model: Any, rows: list[dict[str, Any]], steps: int = STEPS
) -> float:
    """Return the CPU seconds of the steps of one way; the model has learned afterwards."""
    plan = Plan(
        case.update, who, SHAPE, "cpu", len(rows), len(rows), PROMPT, ANSWER, steps, case.lora,
        layout=layout, precision=case.precision,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, alone(_request(plan)):
        home = Path(folder)
        if case.lora:
            model = add_adapter(model, home, LoraConfig(rank=case.lora))
        return _timed(_made(case, plan, model, rows, home))


def _timed(train: Callable[[], object]) -> float:
    start = time.process_time()
    train()
    return time.process_time() - start


def _request(plan: Plan) -> Any:
    return gpu_trainers.grpo_request(plan, Path())


def _made(
    case: Case, plan: Plan, model: Any, rows: list[dict[str, Any]], home: Path
) -> Callable[[], object]:
    """Return what computes the steps of one way, ready to begin."""
    if plan.who == "torch":
        return PlainTorch(case, plan, model, rows).train
    given = (plan, model, rows, home)
    if (case.update, plan.who) == ("rwr", "genenv"):
        trainer = gpu_trainers.genenv_rwr(*given, leash=case.leash)
    else:
        trainer = gpu_trainers.TRAINERS[case.update, plan.who.lower()](*given)
    trainer.remove_callback(PrinterCallback)
    return trainer.train


class PlainTorch:
    """The same steps in plain torch: one batch, its loss, clipping, AdamW."""

    def __init__(self, case: Case, plan: Plan, model: Any, rows: list[dict[str, Any]]) -> None:
        prompts, answers = (
            [row[name] for row in rows] for name in ("prompt_ids", "completion_ids")
        )
        self.batch = laid_out(prompts, answers, shared=plan.layout == "shared")
        self.case, self.steps, self.model = case, plan.steps, model.train()
        self.settings: Any = (GrpoConfig if case.update == "grpo" else RwrConfig)()
        self.half = case.precision == "bfloat16"
        self.rows, self.tokens = len(rows), len(self.batch["targets"])
        stored = gpu_trainers.stored(rows)
        rewards = torch.tensor(stored.rewards).view(-1, GROUP)
        scale = rewards.std(1, keepdim=True) + 1e-4
        advantages = (rewards - rewards.mean(1, keepdim=True)) / scale
        self.advantages = advantages.flatten().repeat_interleave(self.batch["lengths"])
        self.old = torch.tensor([p for row in stored.logprobs for p in row])
        self.trained = [p for p in model.parameters() if p.requires_grad]
        rate = self.settings.learning_rate
        self.optimizer = torch.optim.AdamW(self.trained, lr=rate, weight_decay=0.0, fused=True)
        self.reference = torch.empty(0)

    def train(self) -> None:
        """Compute all steps."""
        if self.case.leash:
            with torch.no_grad():
                self.reference = self._logprobs()
                self._kl(self._logprobs()).item()
        for _ in range(self.steps):
            loss = self._loss()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.trained, self.settings.max_grad_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.case.leash:
                with torch.no_grad():
                    self._kl(self._logprobs()).item()

    def _logprobs(self) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            return completion_logits(self.model, self.batch).log_softmax(-1)

    def _loss(self) -> torch.Tensor:
        logprobs = self._logprobs()
        chosen = logprobs.gather(1, self.batch["targets"].unsqueeze(1)).squeeze(1)
        if self.case.update == "rwr":
            nll = -chosen.sum() / self.tokens
            return nll + self.settings.kl_coef * self._kl(logprobs) if self.case.leash else nll
        ratio = (chosen - self.old).exp()
        clipped = ratio.clamp(1 - self.settings.clip_low, 1 + self.settings.clip_high)
        return -torch.min(ratio * self.advantages, clipped * self.advantages).sum() / self.tokens

    def _kl(self, logprobs: torch.Tensor) -> torch.Tensor:
        return kl_terms(logprobs, self.reference).sum() / self.rows


def measured(
    case: Case, fresh: Callable[[], Any], repetitions: int, count: int = ROWS
) -> dict[tuple[str, Layout], list[float]]:
    """Return the CPU seconds of each way in each repetition, after one that warms up."""
    found: dict[tuple[str, Layout], list[float]] = {way: [] for way in case.ways}
    rows = rows_like_laptop(fresh().get_input_embeddings().num_embeddings, count)
    for repetition in range(repetitions + 1):
        for way, values in found.items():
            gc.collect()  # a trainer is a cycle of references, as large as four copies of its model
            taken = seconds(case, *way, fresh(), rows)
            if repetition:
                values.append(taken)
    return found


def lines(case: Case, found: dict[tuple[str, Layout], list[float]]) -> list[str]:
    """Return a line for each way, and for each ratio: its median and its least and most."""
    shown = [f"{case.name}:"]
    for (who, layout), values in found.items():
        shown.append(f"  {who + ', ' + layout:32} {_spread(values)} CPU s")
    compared: list[tuple[Layout, str]] = [("padded", "TRL"), ("padded", "torch")]
    for layout, other in [*compared, ("shared", "torch")]:
        if (other, layout) in found:
            pairs = zip(found["genenv", layout], found[other, layout], strict=True)
            ratios = [ours / theirs for ours, theirs in pairs]
            shown.append(f"  {f'genenv / {other}, {layout}':32} {_spread(ratios)}")
    return shown


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):7.3f} ({min(values):.3f} to {max(values):.3f})"


def source(checkpoint: Path) -> tuple[str, Callable[[], Any]]:
    """Return what the model is, and what loads it anew: a checkpoint's, else a random one."""
    if (checkpoint / "config.json").is_file():
        return checkpoint.name, lambda: load_model(checkpoint, dtype=torch.float32)
    return f"random weights, {QWEN[SHAPE]['l']} layers of the shape of SmolLM2", _random


def _random() -> Any:
    from transformers import Qwen2ForCausalLM

    from tests.bench.gpu_plan import config_of

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Qwen2ForCausalLM(config_of(SHAPE))


def main(checkpoint: Path = WEIGHTS, repetitions: int = REPETITIONS) -> None:
    """Print a table for each case."""
    hf_logging.disable_progress_bar()
    what, fresh = source(checkpoint)
    amx = "amx_bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    print(f"{what}; AMX {'there' if amx else 'not there'}; {ROWS} rows, {STEPS} steps", flush=True)
    for case in CASES:
        for line in lines(case, measured(case, fresh, repetitions)):
            print(line, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else WEIGHTS)
