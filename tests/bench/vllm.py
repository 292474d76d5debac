"""How fast the engine `vllm` samples, beside a bare client of the same server under the same load.

256 requests (64 prompts of 20 to 60 tokens, 4 seeds each), completions of up to 64 tokens, 64 under
way, on one server that the engine started. The bare client posts the same bodies and reads the
answers as JSON, and checks nothing. Repetitions alternate, and so does who comes first in each.
The median of the ratios is judged; their quartiles show how far to trust it, because one load takes
less than a second. Limit: 0.95.

Needs an environment with vLLM: `make test-vllm` builds one.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp

from genenv_core.config.sections.compute import VllmConfig, VllmServing
from genenv_core.engines.vllm.engine import VllmEngine
from genenv_core.engines.vllm.server import PYTHON_VARIABLE, VllmSetup
from genenv_core.engines.vllm.wire import WireRequest, body
from genenv_core.types import SampleRequest, SamplingParams
from tests.unit.builders_engine import EOS_ID, random_prompts, write_checkpoint
from tests.vllm.conftest import SMALL

LIMIT = 0.95
PROMPTS = 64
SAMPLES = 4
AT_ONCE = 64
REPETITIONS = 40
PARAMS = SamplingParams(max_tokens=64, stop_token_ids=(EOS_ID,))
BUILT = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"


def main() -> None:
    """Print both speeds and their ratio, or why there are none."""
    python = os.environ.get(PYTHON_VARIABLE) or (str(BUILT) if BUILT.exists() else "")
    if not python:
        print(f"vllm: not measured, no vLLM here (`make test-vllm` builds it; {PYTHON_VARIABLE})")
        return
    os.environ.update({name: value for name, value in SMALL.items() if name not in os.environ})
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = write_checkpoint(Path(folder), num_attention_heads=2)
        config = VllmConfig()
        serving = VllmServing(python=python, concurrency=AT_ONCE)
        begun = time.perf_counter()
        engine = VllmEngine(
            checkpoint, VllmSetup("genenv-bench", config, serving, Path(folder) / "vllm.log")
        )
        print(f"{'vllm: start of the server':34} {time.perf_counter() - begun:10.1f} s")
        try:
            _compare(engine)
        finally:
            engine.close()


def _compare(engine: VllmEngine) -> None:
    requests = [
        # Every second seed, so that no two of them share a request.
        SampleRequest(tuple(token % 150 + 2 for token in prompt), seed=2 * (1000 * index + sample))
        for index, prompt in enumerate(random_prompts(PROMPTS, shortest=20, longest=60))
        for sample in range(SAMPLES)
    ]
    server = engine.server
    assert server is not None
    ways: dict[str, Callable[[], int]] = {
        "engine": lambda: sum(len(a.token_ids) for a in engine.sample(requests, PARAMS)),
        "bare client": lambda: asyncio.run(_bare(server.url, server.key, requests)),
    }
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(REPETITIONS + 1):
        for name in sorted(ways, reverse=bool(repetition % 2)):
            start = time.perf_counter()
            tokens = ways[name]()
            if repetition:  # the first one warms up
                speeds[name].append(tokens / (time.perf_counter() - start))
    for name, values in speeds.items():
        print(f"{f'vllm: {name}':34} {statistics.median(values):10.1f} tokens/s")
    pairs = zip(speeds["engine"], speeds["bare client"], strict=True)
    low, ratio, high = statistics.quantiles([own / bare for own, bare in pairs], n=4)
    name = "vllm: engine / bare client"
    print(f"{name:34} {ratio:10.3f} (limit {LIMIT}; quartiles {low:.3f}, {high:.3f})")


async def _bare(url: str, key: str, requests: list[SampleRequest]) -> int:
    """Return how many tokens the server sent for these requests."""
    gate = asyncio.Semaphore(AT_ONCE)
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Authorization": f"Bearer {key}"}

    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def one(request: SampleRequest) -> int:
            content = body(
                "genenv-bench", WireRequest(request.prompt_ids, request.seed, 1), PARAMS, 64
            )
            async with gate, session.post(f"{url}/v1/completions", json=content) as answer:
                return len(json.loads(await answer.read())["choices"][0]["token_ids"])

        return sum(await asyncio.gather(*map(one, requests)))


if __name__ == "__main__":
    main()
