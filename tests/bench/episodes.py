"""How long 256 episodes with slow tools take, beside what bounds them from below.

Episodes of 1 to 8 turns, tools that take 0 to 200 ms, the embedded agent's model size, one thread.
Two lower bounds, measured in the same run: the slowest episode (its tools, and its tokens sampled
with nobody beside it), and the engine (all that is sampled and read, at the speed at which one
large batch of it goes). The same episodes in step, where everybody waits for the slowest tool of
a turn, stand beside them. Repetitions alternate; the median is reported.

Run `python -m tests.bench episodes`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.ids import seed_from
from genenv_core.play.answering import ToolExecution
from genenv_core.play.attempt import AttemptBounds, Play
from genenv_core.play.chat import ChatFormat
from genenv_core.play.driver import run_episodes
from genenv_core.types import Observation, Rollout, SampleRequest, SamplingParams, TaskDraft
from tests.unit.builders_engine import write_checkpoint
from tests.unit.builders_rollout import EchoDomain, EchoEpisode, flat

EPISODES, LONGEST, SLOWEST_MS = 256, 8, 200
WORKERS = 128
REPETITIONS = 3
PARAMS = SamplingParams(max_tokens=96)
BOUNDS = AttemptBounds(n=1, max_turns=LONGEST, max_length=500)


def latency_s(seed: int, turn: int) -> float:
    """Return how long the tools of an episode take in one turn."""
    return seed_from("latency", seed, turn) % (SLOWEST_MS + 1) / 1000


class _Slow(EchoEpisode):
    def step(self, action: str) -> Observation:
        time.sleep(latency_s(self.seed, len(self.seen)))
        return super().step(action)


class _SlowDomain(EchoDomain):
    def episode(self, draft: TaskDraft, seed: int) -> EchoEpisode:
        return _Slow(int(draft.spec["turns"]), seed)


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = write_checkpoint(Path(folder), eos_probability=1 / 15)
        for name, value, unit in bench_episodes(checkpoint):
            print(f"{name:44} {value:10.2f} {unit}")


def bench_episodes(checkpoint: Path) -> list[tuple[str, float, str]]:
    """Return (name, value, unit) rows."""
    chat = ChatFormat.load(checkpoint)
    tasks = [
        (f"t{i:03d}", TaskDraft(f"abba {i}", {"turns": 1 + i % LONGEST}, "", "", "", 1.0, str(i)))
        for i in range(EPISODES)
    ]
    walls: dict[str, list[float]] = {"apart": [], "step": [], "slowest": [], "engine": []}
    shares: list[float] = []
    made: list[Rollout] = []
    for repetition in range(REPETITIONS + 1):
        engine = TransformersEngine.load(checkpoint, threads=1)
        start, cpu = time.perf_counter(), time.process_time()
        slow = Play(_SlowDomain(), engine, chat, BOUNDS, PARAMS, seed_from)
        made = flat(
            run_episodes(tasks, slow, tools=ToolExecution(WORKERS, 30), open_attempts=EPISODES)
        )
        seconds = {"apart": time.perf_counter() - start}
        cpu = time.process_time() - cpu
        start = time.perf_counter()
        quick = Play(EchoDomain(), engine, chat, BOUNDS, PARAMS, seed_from)
        in_step = flat(run_episodes(tasks, quick))
        seconds["step"] = time.perf_counter() - start + _waited_in_step(in_step)
        seconds["slowest"] = _slowest(engine, made, chat)
        least = time.process_time()
        seconds["engine"] = _sampled_at_once(engine, made, chat)
        least = time.process_time() - least
        if repetition:  # the first one warms up
            shares.append(cpu / least)
            for name, value in seconds.items():
                walls[name].append(value)
    median = {name: statistics.median(values) for name, values in walls.items()}
    ratios = [
        apart / max(slow, fast)
        for apart, slow, fast in zip(walls["apart"], walls["slowest"], walls["engine"], strict=True)
    ]
    tokens = sum(sum(one.loss_mask) for one in made)
    return [
        ("turns", float(sum(one.turns for one in made)), ""),
        ("tokens sampled", float(tokens), ""),
        ("lower bound: the slowest episode", median["slowest"], "s"),
        ("lower bound: the engine", median["engine"], "s"),
        ("episodes apart", median["apart"], "s"),
        ("episodes in step", median["step"], "s"),
        ("episodes apart / the larger bound", statistics.median(ratios), "x"),
        ("CPU time, episodes apart / the engine alone", statistics.median(shares), "x"),
        ("in step / apart", median["step"] / median["apart"], "x"),
    ]


def _waited_in_step(made: Sequence[Rollout]) -> float:
    """Return the seconds that attempts in step wait for tools: each turn's slowest, summed."""
    return sum(
        max(
            (latency_s(_seed(one), turn) for one in made if _steps(one) > turn),
            default=0.0,
        )
        for turn in range(LONGEST)
    )


def _seed(one: Rollout) -> int:
    return seed_from(one.task_id, one.sample_index, -1)


def _steps(one: Rollout) -> int:
    """Return the number of tool calls; a truncated completion makes none."""
    return sum(message["role"] == "tool" for message in one.messages)


def _requests(one: Rollout) -> list[tuple[SampleRequest, int]]:
    """Return each turn's request and the number of its tokens."""
    found: list[tuple[SampleRequest, int]] = []
    ids = one.token_ids
    position = 0
    for turn in range(one.turns):
        end = position
        while end < len(ids) and one.loss_mask[end]:
            end += 1
        request = SampleRequest(
            (*one.prompt_ids, *ids[:position]), seed_from(one.task_id, one.sample_index, turn)
        )
        found.append((request, end - position))
        while end < len(ids) and not one.loss_mask[end]:
            end += 1
        position = end
    return found


def _slowest(engine: TransformersEngine, made: Sequence[Rollout], chat: ChatFormat) -> float:
    """Return the seconds of the slowest episode: its tools, plus its turns sampled alone."""
    params = SamplingParams(PARAMS.max_tokens, stop_token_ids=chat.stop_token_ids)
    waits = {
        one.task_id: sum(latency_s(_seed(one), turn) for turn in range(_steps(one))) for one in made
    }
    longest = 0.0
    for one in sorted(made, key=lambda one: -waits[one.task_id])[:3]:
        session = engine.open_session(params)
        start = time.perf_counter()
        for request, _ in _requests(one):
            session.submit(0, request, params.max_tokens)
            while session.computes:
                session.advance()
        longest = max(longest, waits[one.task_id] + time.perf_counter() - start)
    return longest


def _sampled_at_once(
    engine: TransformersEngine, made: Sequence[Rollout], chat: ChatFormat
) -> float:
    """Return the seconds to sample every turn of every episode without waiting for tools.

    The session gets an episode's next turn as soon as the turn before it ends.
    """
    params = SamplingParams(PARAMS.max_tokens, stop_token_ids=chat.stop_token_ids)
    session = engine.open_session(params)
    waiting = {tag: [request for request, _ in _requests(one)] for tag, one in enumerate(made)}
    start = time.perf_counter()
    for tag, requests in waiting.items():
        session.submit(tag, requests.pop(0), params.max_tokens)
    while session.computes:
        for tag, _ in session.advance():
            if waiting[tag]:
                session.submit(tag, waiting[tag].pop(0), params.max_tokens)
    return time.perf_counter() - start
