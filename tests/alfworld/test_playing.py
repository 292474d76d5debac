"""The official games, played by a model's turns (the suite `alfworld`).

Invariants: the walkthrough of a game wins turn by turn, with the verdict that it gets as a
prediction, and no other turn does; games go on side by side, also with fewer seats than games;
games that are put in the place of the train split make tasks that are certified sound.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from genenv_core.benchmarks.alfworld import BENCHMARK
from genenv_core.benchmarks.alfworld.loading import walkthrough_of
from genenv_core.benchmarks.alfworld.playing import Household
from genenv_core.benchmarks.alfworld.pool import Pool
from genenv_core.benchmarks.alfworld.training.alfworld_domain import AlfworldDomain
from genenv_core.domains.tool_calls import said, written
from genenv_core.types import Message, Rejected, Rejection, TaskDraft
from tests.unit.benchmarks.data import official
from tests.unit.domains.checking import flaws

pytestmark = pytest.mark.slow
MEGABYTE = 2**20


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """Skip without what plays the games."""
    if not os.environ.get("GENENV_ALFWORLD_PYTHON"):
        pytest.skip("no packages here: `make test-suites NAMES=alfworld` installs them")


@pytest.fixture(scope="module")
def domain() -> Iterator[AlfworldDomain]:
    """Return the official games as a domain, and end their processes."""
    found = AlfworldDomain.from_options({"data": str(official("alfworld"))})
    yield found
    found._games.pool.close()


def act(command: str) -> str:
    return written({"name": "act", "arguments": {"command": command}})


def walk_of(domain: AlfworldDomain, draft: TaskDraft) -> list[str]:
    return walkthrough_of(domain._games.games[draft.spec["item"]].path)


def test_walkthroughs_win_turn_by_turn(domain: AlfworldDomain) -> None:
    assert len(domain.items()) == 24
    drafts = domain.items()[::3]  # `test_games` plays them all
    transcripts: list[list[Message]] = [domain.agent_messages(draft) for draft in drafts]
    episodes = [domain.episode(draft, 0) for draft in drafts]
    left, ended, begun = [walk_of(domain, draft) for draft in drafts], set[int](), time.monotonic()
    for turn in range(50):
        for number, walk in enumerate(left):
            if turn < len(walk):
                observation = episodes[number].step(act(walk[turn]))
                says: Message = {"role": "assistant", "content": act(walk[turn])}
                transcripts[number] += [says, *observation.messages]
                ended |= {number} if observation.done else set()
    print(f"{sum(map(len, left))} commands side by side in {time.monotonic() - begun:.1f} s")
    assert ended == set(range(len(drafts)))
    for draft, messages, walk in zip(drafts, transcripts, left, strict=True):
        verdict = domain.verdict(draft, messages)
        assert verdict == domain.suite.judge(draft.spec["item"], walk, "official")
        assert verdict.valid and domain.score(draft, messages).success
        assert messages[1]["content"].endswith(draft.prompt)
        assert not domain.verdict(draft, messages[:-2]).valid


def test_few_seats_cost_time_and_nothing_else(domain: AlfworldDomain) -> None:
    drafts = domain.items()[:4]
    paths = [domain._games.games[draft.spec["item"]].path for draft in drafts]
    for seats in (4, 2):
        pool, begun = Pool(processes=1, seats=seats, states=0), time.monotonic()
        attempts = [Household(pool, path, False, False).begin(0) for path in paths]
        walks, won = [walk_of(domain, draft) for draft in drafts], 0
        for turn in range(max(map(len, walks))):
            for attempt, walk in zip(attempts, walks, strict=True):
                if turn < len(walk):
                    won += attempt.answer(said(act(walk[turn]))).done
        size = psutil.Process(pool.pids[0]).memory_info().rss / MEGABYTE
        print(f"{seats} seats: {time.monotonic() - begun:.1f} s, {size:.0f} MB")
        assert won == len(drafts)
        pool.close()


def train_data(folder: Path, games: str, items: str) -> Path:
    """Copy the games of one split as those to train on, and of another as items."""
    source = official("alfworld") / "json_2.1.1"
    shutil.copytree(source / games, folder / "json_2.1.1" / "train")
    shutil.copytree(source / items, folder / "json_2.1.1" / items)
    return folder


def test_games_to_train_on_make_sound_tasks(tmp_path: Path) -> None:
    data = train_data(tmp_path, "valid_unseen", "valid_seen")
    domain = AlfworldDomain.from_options({"data": str(data)})
    for draft in domain.base_tasks(0, 10):
        assert domain.parse(draft.program) == [draft]
        assert flaws(draft, domain) == []
        assert "_bar_" not in draft.ground_truth
    domain._games.pool.close()


def test_a_game_of_the_benchmark_is_no_task(tmp_path: Path) -> None:
    domain = AlfworldDomain.from_options(
        {"data": str(train_data(tmp_path, "valid_seen", "valid_seen"))}
    )
    for game in domain._train.open:
        (found,) = domain.parse(f'{{"game": "{game}", "done": 0}}')
        assert isinstance(found, Rejected) and found.reason is Rejection.CONTAMINATED
    domain._games.pool.close()


def test_the_benchmark_has_limits_and_a_headline() -> None:
    assert BENCHMARK.limits.turns == 50 and BENCHMARK.headline == "unseen"
