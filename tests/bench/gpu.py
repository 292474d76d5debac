"""`make bench-gpu`: the GRPO and RWR steps beside TRL's own trainers and the arithmetic limit.

Each measurement is a process of its own, so that peaks of memory are its own and that the failure
of one, or its end at the time limit, leaves the others alone. Models are randomly initialised Qwen2
shapes on one GPU; genenv and TRL train on the same rows, with the same precision, optimizer,
kernels, micro-batches and gradient checkpointing. Where all weights do not fit by genenv's own
estimate, both train LoRA adapters; where that does not fit either, micro-batches are smaller. The
table says both, in Markdown as docs/performance.md wants it.

- tokens/s: tokens of all rows (prompts too, padding not) a second, of the steps after the first.
- of limit: the share of the chip's bfloat16 peak that the products with N weights need: 6 N FLOPs
  a token, 4 N with LoRA. Beyond it, and so counted against it, a step has attention,
  gradient checkpointing's second forward pass, the reference's pass in RWR and the KL that RWR
  measures after each step. TRL's SFTTrainer, which stands beside RWR, has neither weights nor KL.
- peak, estimated: what torch had allocated at most while training, and what genenv says (its bound
  for CUDA's own context left out, which torch does not count).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from genenv_core.training.memory.estimate import GB, estimate
from tests.bench.gpu_plan import GROUP, QWEN, Plan, flops, job_of
from tests.bench.gpu_trainers import ENOUGH_STEPS, measure

PEAK_TFLOPS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L4": 121, "4090": 165}
"""Dense bfloat16 peaks by their makers' data sheets (SXM versions)."""

UPDATES, WHO = ("grpo", "rwr"), ("trl", "genenv")
LIBRARIES = ("torch", "transformers", "trl", "accelerate", "peft", "liger-kernel")
BEGUN_S = 30.0
"""With less time left nothing is begun: the imports alone take that long."""
REPOSITORY = Path(__file__).parents[2]


def chip(device: str) -> tuple[str, float]:
    """Return the chip's name, and its peak in FLOPs a second (0: not known here)."""
    if device == "cpu":
        return platform.processor() or platform.machine(), 0.0
    name = torch.cuda.get_device_name()
    return name, next((t * 1e12 for known, t in PEAK_TFLOPS.items() if known in name), 0.0)


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    made = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    made.add_argument("--shape", nargs="*", choices=QWEN, default=["0.5B", "1.5B", "7B"])
    made.add_argument("--rows", type=int, default=32, help="rows of a step, whole groups of 8")
    made.add_argument("--micro", type=int, default=4, help="rows of a micro-batch, a divisor of 8")
    made.add_argument("--prompt", type=int, default=256, help="tokens of a prompt")
    made.add_argument("--completion", type=int, default=768, help="most tokens of a completion")
    made.add_argument("--steps", type=int, default=6, help="optimizer steps, the first not timed")
    made.add_argument("--kernels", choices=("torch", "liger"), default="torch", help="of both")
    made.add_argument("--minutes", type=float, default=20, help="after these nothing is begun")
    made.add_argument("--limit", type=float, default=300, help="seconds of one measurement")
    made.add_argument("--peak-tflops", type=float, help="the chip's dense peak, when not known")
    made.add_argument("--one", help=argparse.SUPPRESS)
    return made


def main() -> None:
    """Measure every shape, or make one measurement as a child process."""
    options = parser().parse_args()
    if options.one:
        print(json.dumps(measure(Plan(**json.loads(options.one)))))
        return
    if options.rows % GROUP or GROUP % options.micro or options.steps < ENOUGH_STEPS:
        parser().error(
            f"--rows is a multiple of {GROUP}, --micro divides {GROUP}, --steps is {ENOUGH_STEPS} "
            "or more"
        )
    if options.kernels == "liger" and options.device == "cpu":
        parser().error("--kernels liger needs a GPU")
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "bench-gpu: torch finds no GPU on this machine, nothing was measured; the same code "
            "runs with --device cpu --shape tiny"
        )
        return
    for line in headlines(options):
        print(line, flush=True)
    table(options)


def headlines(options: argparse.Namespace) -> list[str]:
    """Return what is needed to repeat the measurements."""
    name, peak = chip(options.device)
    peak = options.peak_tflops * 1e12 if options.peak_tflops else peak
    shown = f"{peak / 1e12:.0f} TFLOP/s" if peak else "not known, see --peak-tflops"
    driver = _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    commit = _said("git", "-C", str(REPOSITORY), "rev-parse", "HEAD")
    changed = _said("git", "-C", str(REPOSITORY), "status", "--porcelain", "-uno")
    return [
        f"- chip: {name}, bfloat16 peak {shown}",
        f"- driver {driver.splitlines()[0] if driver else 'none'}, CUDA {torch.version.cuda}",
        f"- versions: Python {platform.python_version()}, "
        + ", ".join(f"{library} {_version(library)}" for library in LIBRARIES),
        f"- commit: {commit or 'unknown'}{', with changes' if changed else ''}",
        f"- command: python -m tests.bench.gpu {' '.join(sys.argv[1:])}".rstrip(),
        f"- {options.rows} rows a step, prompts of {options.prompt} tokens, completions of "
        f"{options.completion // 2} to {options.completion}; kernels of both: {options.kernels}",
        "",
    ]


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


COLUMNS = ("update", "shape", "trained", "micro", "who", "tokens/s", "of limit", "to TRL",
           "peak GB", "estimated GB", "note")  # fmt: skip


def table(options: argparse.Namespace) -> None:
    """Print a line for each measurement as soon as it is made."""
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    end = time.monotonic() + 60 * options.minutes
    for shape in options.shape:
        for update in UPDATES:
            _compare(fitting(options, shape, update), options, end)


def fitting(options: argparse.Namespace, shape: str, update: str) -> Plan:
    """Return the largest measurement that fits the device by genenv's own estimate."""
    sizes = {name: getattr(options, name) for name in ("rows", "micro", "prompt", "completion")}
    settings = {"steps": options.steps, "kernels": options.kernels, "limit_s": options.limit}
    plan = Plan(update, "", shape, options.device, **sizes, **settings, lora=0)
    if options.device == "cpu":
        return plan
    memory = float(torch.cuda.mem_get_info()[0])
    adapters = replace(plan, lora=32)
    tried = [plan, *(replace(adapters, micro=n) for n in (8, 4, 2, 1) if n <= plan.micro)]
    return next((p for p in tried if estimate(job_of(p)).largest(memory) >= p.micro), tried[-1])


def _compare(plan: Plan, options: argparse.Namespace, end: float) -> None:
    peak = options.peak_tflops * 1e12 if options.peak_tflops else chip(options.device)[1]
    needed = estimate(job_of(plan))
    said = (needed.total(plan.micro) - needed.fixed["runtime"]) / GB
    beside = 0.0
    for who in WHO:
        found = _measured(replace(plan, who=who), end)
        head = [plan.update, plan.shape, f"LoRA {plan.lora}" if plan.lora else "all weights"]
        if isinstance(found, str):
            row = [*head, plan.micro, who, "-", "-", "-", "-", f"{said:.2f}", found]
        else:
            speed = found["tokens_per_s"]
            share = f"{flops(plan) * speed / peak:.1%}" if peak else "-"
            ratio = f"{speed / beside:.2f}" if beside and who != "trl" else "-"
            beside = speed if who == "trl" else beside
            note = f"{found['steps']} steps, first {found['first_step_s']:.1f} s"
            memory = f"{found['peak_bytes'] / GB:.2f}"
            row = [
                *head,
                plan.micro,
                who,
                f"{speed:.0f}",
                share,
                ratio,
                memory,
                f"{said:.2f}",
                note,
            ]
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def _measured(plan: Plan, end: float) -> dict[str, Any] | str:
    """Return the result of one measurement, or a short reason why there is none."""
    left = end - time.monotonic()
    if left < BEGUN_S:
        return "not measured: the time of --minutes was over"
    seconds = min(plan.limit_s, left)
    request = json.dumps(asdict(replace(plan, limit_s=seconds)))
    command = [sys.executable, "-m", "tests.bench.gpu", "--one", request]
    one_gpu = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env=os.environ | one_gpu
        )
    except subprocess.TimeoutExpired:
        return f"not done in {seconds:.0f} s"
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    if "out of memory" in done.stderr:
        return "out of memory"
    last = (done.stderr.strip().splitlines() or ["no word"])[-1]
    return f"failed: {last[:160]}".replace("|", "/")


if __name__ == "__main__":
    main()
