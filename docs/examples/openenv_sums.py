"""Sums as an environment of OpenEnv: two tries, and a reward at the end, 1 or a half.

Runs where the package `openenv` is installed, not in genenv's environment: docs/openenv.md.
"""

import os

from openenv.core.env_server import Action, Environment, Observation, State, create_app
from pydantic import Field

TASKS = {"train": 40, "test": 20}


class SumAction(Action):
    answer: str = Field(..., description="the sum")


class SumObservation(Observation):
    said: str = ""


class Sums(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._sum, self._tries = 0, 0

    def reset(self, seed=None, episode_id=None, first=None, second=1, split="", index=0):
        if first is None:
            first, second = 1 + index % 9, 1 + index // 9 + 5 * (split == "test")
        if first + second > 16:
            raise ValueError("sums above 16 are not for children")
        self._sum, self._tries = first + second, 0
        return SumObservation(said=f"{first} + {second} =", metadata={"right": str(self._sum)})

    def step(self, action, timeout_s=None):
        self._tries += 1
        right = action.answer.strip() == str(self._sum)
        done = right or self._tries == 2
        said = "right" if right else "wrong" if done else "try again"
        return SumObservation(said=said, reward=right / self._tries if done else None, done=done)

    @property
    def state(self):
        return State(step_count=self._tries)


class SumsWithTasks(Sums):
    def list_splits(self):
        return list(TASKS)

    def num_tasks(self, split):
        return TASKS[split]


app = create_app(
    SumsWithTasks if os.environ.get("SUMS_TASKS") else Sums,
    SumAction,
    SumObservation,
    env_name="sums",
    max_concurrent_envs=int(os.environ.get("SUMS_ROOM", "4")),
)
