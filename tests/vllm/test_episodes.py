"""Attempts of several turns; a real vLLM server samples the agent and the simulated tools.

Invariants: attempts advance independently while tools take time, raise and hang; training gets the
ids that the server sampled, with its logprobs, which are those of transformers also after
observations; the server's prefix cache holds a turn's prompt up to the end of the last turn;
pi_env's text in the place of tools follows the domain's schema, and is marked.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from genenv_core.domains.steps import EPISODE_TURN
from genenv_core.engines.transformers.gap import Sampled, logprob_gap
from genenv_core.engines.transformers.scoring import ScoringArithmetic
from genenv_core.engines.vllm.engine import VllmEngine
from genenv_core.ids import seed_from
from genenv_core.play.answering import Simulation, ToolExecution
from genenv_core.play.attempt import AttemptBounds, Play
from genenv_core.play.chat import ChatFormat
from genenv_core.play.driver import run_episodes
from genenv_core.play.simulator import Simulator
from genenv_core.types import (
    FinishReason,
    JsonObject,
    Message,
    Observation,
    Rollout,
    SamplingParams,
    TaskDraft,
)
from tests.unit.builders_rollout import EchoDomain, EchoEpisode
from tests.waiting import BOUND_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

TOLERANCE = 1e-3
BLOCK = 32
PARAMS = SamplingParams(max_tokens=90)
BOUNDS = AttemptBounds(n=2, max_turns=4, max_length=500, max_errors=2)
TASKS = [
    (f"t{i}", TaskDraft(f"abba {i} " * 8, {"turns": 1 + i % 4}, "", "", "", 1.0, str(i)))
    for i in range(12)
]
RAISES, HANGS = seed_from("t3", 0, EPISODE_TURN), seed_from("t7", 1, EPISODE_TURN)


class Episode(EchoEpisode):
    """Takes up to 60 ms a step; one episode raises once, and one hangs once."""

    struck: ClassVar[set[int]] = set()
    forever = threading.Event()

    def step(self, action: str) -> Observation:
        first = self.seed not in self.struck
        if first and self.seed in (RAISES, HANGS):
            self.struck.add(self.seed)
            if self.seed == RAISES:
                raise OSError("the shelf fell over")
            self.forever.wait(60)
        time.sleep(self.seed % 61 / 1000)
        return super().step(action)


class Domain(EchoDomain):
    def episode(self, draft: TaskDraft, seed: int) -> EchoEpisode:
        return Episode(int(draft.spec["turns"]), seed)


SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "content": {"enum": ["recorded", "none left"]},
        "name": {"enum": ["ship", "pack"]},
    },
    "required": ["content", "name"],
    "additionalProperties": False,
}


class SimulatedDomain(EchoDomain):
    """Lets pi_env answer until the agent has taken as many turns as the task's spec asks for."""

    observation_schema = SCHEMA

    def tool_messages(self, draft: TaskDraft, messages: Sequence[Message]) -> list[Message] | None:
        spoken = [message["content"] for message in messages if message["role"] == "assistant"]
        if len(spoken) >= int(draft.spec["turns"]):
            return None
        return [{"role": "user", "content": f"play {len(spoken)} {draft.prompt}"}]


def play(
    engine: VllmEngine, checkpoint: Path, domain: EchoDomain, tools: ToolExecution | Simulation
) -> list[Rollout]:
    chat = ChatFormat.load(checkpoint)
    made = run_episodes(
        TASKS,
        Play(domain, engine, chat, BOUNDS, PARAMS, seed_from),
        tools=tools,
        open_attempts=100,
    )
    return [one for _, group in sorted(made, key=lambda item: item[0]) for one in group]


def counted(engine: VllmEngine, name: str) -> float:
    """Return the value of one of the server's metrics."""
    assert engine.server is not None
    with urllib.request.urlopen(f"{engine.server.url}/metrics", timeout=BOUND_S) as answer:
        text = answer.read().decode()
    return sum(map(float, re.findall(rf"^vllm:{name}_total\{{.*\}} (\S+)$", text, re.MULTILINE)))


def largest_gap(checkpoint: Path, made: Sequence[Rollout]) -> float:
    rows = [Sampled(one.prompt_ids, one.token_ids, one.logprobs, one.loss_mask) for one in made]
    gap = logprob_gap(checkpoint, rows, temperature=1.0, arithmetic=ScoringArithmetic(1))
    assert gap is not None and gap.tokens > 500
    print(gap)
    return gap.largest


def cached_at_least(one: Rollout) -> int:
    """Return how many of this attempt's prompt tokens earlier turns left in the server's cache."""
    found, mask = 0, [*one.loss_mask, 0]
    ends = [i for i in range(1, len(mask)) if mask[i - 1] and not mask[i]]
    for end in ends[:-1]:
        # The last sampled token was never read; only whole blocks are found.
        found += (len(one.prompt_ids) + end - 1) // BLOCK * BLOCK
    return found


def test_attempts_with_slow_tools(engine: VllmEngine, checkpoints: list[Path]) -> None:
    Episode.struck.clear()
    hits, computed = counted(engine, "prefix_cache_hits"), counted(engine, "prompt_tokens")
    made = play(engine, checkpoints[0], Domain(), ToolExecution(workers=6, timeout_s=3.0))
    Episode.forever.set()
    hits = counted(engine, "prefix_cache_hits") - hits
    computed = counted(engine, "prompt_tokens") - computed
    assert len(made) == 24 and not [one.error for one in made if one.error]
    assert sum(one.turns > 1 for one in made) >= 8
    errors = [m["content"] for one in made for m in one.messages if m.get("error")]
    assert sorted(errors) == [
        "error: OSError: the shelf fell over",
        "error: TimeoutError: the tools gave no answer within 3 s",
    ]
    for one in made:
        assert {p for p, m in zip(one.logprobs, one.loss_mask, strict=True) if not m} <= {0.0}
    assert largest_gap(checkpoints[0], made) < TOLERANCE
    bound = sum(map(cached_at_least, made))
    print(f"prompt tokens {computed:.0f}, found in the prefix cache {hits:.0f}, at least {bound}")
    assert hits >= bound > 500


def test_pi_env_plays_the_tools(engine: VllmEngine, checkpoints: list[Path]) -> None:
    chat = ChatFormat.load(checkpoints[0])
    domain = SimulatedDomain()
    simulator = Simulator(domain, chat, max_length=400)
    # One server plays both policies here; their prompts and seeds are their own.
    simulation = Simulation(engine, SamplingParams(200), simulator, structured=True)
    made = play(engine, checkpoints[0], domain, simulation)
    assert len(made) == 24 and domain.episodes == []
    tools = [m for one in made for m in one.messages if m["role"] == "tool"]
    assert len(tools) >= 12 and all(message.get("simulated") for message in tools)
    good = [message for message in tools if not message.get("error")]
    # A model that has learned nothing may write blanks between the parts without an end.
    assert all("cut after 200 tokens" in m["content"] for m in tools if m.get("error"))
    assert len(good) > len(tools) / 2
    assert {m["content"] for m in good} == {"recorded", "none left"}
    assert {m.get("name") for m in good} == {"ship", "pack"}
    assert largest_gap(checkpoints[0], made) < TOLERANCE
    whole = [one for one in made if one.finish_reason is FinishReason.STOP]
    assert whole and json.dumps(whole[0].messages)
