"""How fast the transformers engine samples, beside `model.generate` on the same work.

256 requests (32 prompts x 8 samples, prompts of 20 to 60 tokens), completions of up to 96 tokens,
one thread, temperature 1, the embedded agent's model size. `generate` gets all 256 rows in one
left-padded batch, its fastest way here. Both count only tokens up to and including the end token.
Repetitions alternate, so that a busy neighbour hits both; the median is reported.

Run `python -m tests.bench.engine [CHECKPOINT]`.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.engines.transformers.loading import load_model
from genenv_core.types import SampleRequest, SamplingParams
from tests.unit.builders_engine import random_prompts, tiny_model

PROMPTS = 32
SAMPLES = 8
MAX_TOKENS = 96
REPETITIONS = 7


def bench_engine(checkpoint: Path | None = None) -> list[tuple[str, float, str]]:
    """Return (name, value, unit) rows: tokens per CPU second of both ways, and their ratio.

    Without a checkpoint, two random models are measured. Completions of the first average about 25
    tokens. The second never ends early, so rows that leave early gain nothing.
    """
    if checkpoint is not None:
        return _compare("checkpoint", load_model(checkpoint, dtype=torch.float32))
    return [
        *_compare("varying lengths", tiny_model()),
        *_compare("all full length", tiny_model(eos_probability=1e-9)),
    ]


def _compare(label: str, model: Any) -> list[tuple[str, float, str]]:
    stop = model.config.eos_token_id
    stop = stop if isinstance(stop, int) else stop[0]
    vocab = model.get_input_embeddings().weight.shape[0]
    prompts = [
        tuple(token % vocab for token in prompt)
        for prompt in random_prompts(PROMPTS, shortest=20, longest=60)
        for _ in range(SAMPLES)
    ]
    engine = TransformersEngine(model, threads=1)
    ways: dict[str, Callable[[int], int]] = {
        "engine": lambda seed: _with_engine(engine, prompts, stop, seed),
        "model.generate": lambda seed: generated(model, prompts, stop, seed),
    }
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for repetition in range(REPETITIONS + 1):
        for name, way in ways.items():
            start = time.process_time()
            tokens = way(repetition)
            speed = tokens / (time.process_time() - start)
            if repetition:  # the first one warms up
                speeds[name].append(speed)
    torch.set_num_threads(threads)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    pairs = zip(speeds["engine"], speeds["model.generate"], strict=True)
    return [
        *((f"{label}: {name}", value, "tokens/CPU s") for name, value in medians.items()),
        (f"{label}: ratio", statistics.median(own / other for own, other in pairs), "x"),
    ]


def _with_engine(
    engine: TransformersEngine, prompts: list[tuple[int, ...]], stop: int, seed: int
) -> int:
    requests = [
        SampleRequest(prompt, seed * len(prompts) + row) for row, prompt in enumerate(prompts)
    ]
    params = SamplingParams(max_tokens=MAX_TOKENS, stop_token_ids=(stop,))
    return sum(len(answer.token_ids) for answer in engine.sample(requests, params))


def generated(
    model: Any, prompts: list[tuple[int, ...]], stop: int, seed: int, most: int = MAX_TOKENS
) -> int:
    """Return how many tokens `model.generate` samples for prompts; -1 stops at none."""
    width = max(map(len, prompts))
    torch.manual_seed(seed)
    with torch.inference_mode():
        whole = model.generate(
            input_ids=torch.tensor([(0,) * (width - len(p)) + p for p in prompts]),
            attention_mask=torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts]),
            max_new_tokens=most,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            eos_token_id=stop,
            pad_token_id=0,
        )
    ended = (whole[:, width:] == stop).numpy()
    lengths = np.where(ended.any(1), ended.argmax(1) + 1, ended.shape[1])
    return int(lengths.sum())


def main(checkpoint: Path | None = None) -> None:
    """Print the table for the given checkpoint, or for random models."""
    for name, value, unit in bench_engine(checkpoint):
        print(f"{name:34} {value:10.1f} {unit}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
