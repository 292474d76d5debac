"""The tasks of an exported folder as a taskset of verifiers; runs where `verifiers` is installed.

The environment plays the user: it opens with the request, and answers each turn of the agent until
the attempt is over. The reward is the verdict on what the agent said, so a stored trace can be
scored again.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUntypedFunctionDecorator=false

# No `from __future__ import annotations`: verifiers reads the types at run time.
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from genenv_core.domains.tool_calls import canonical
from genenv_core.exchange.environments.playing import ExportedTasks, read_tasks
from genenv_core.types import JsonObject

FOLDER = Path(__file__).parents[3]
"""The package that holds the tasks, when this module lies in it."""


class VerifiersData(vf.TaskData):
    """What verifiers knows of a task: its place among the tasks, and its passport."""

    place: int
    family: str
    difficulty: float
    passport: JsonObject


class VerifiersTask(vf.Task[VerifiersData]):
    """A task that the domain's own code opens, answers and judges."""

    @vf.reward
    async def reward(self, trace: vf.Trace) -> float:
        """Return the reward of the turns that the agent said; without one, nothing is earned."""
        turns = [_text(message) for message in trace.assistant_messages]
        cut = bool(turns) and trace.is_truncated
        return exported().said(self.data.place, turns, cut=cut).reward

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Return whether the domain's own right attempt succeeds; None where it knows none."""
        del runtime
        verdict = exported().solved(self.data.place)
        return None if verdict is None else verdict.success


class ExportedTaskset(vf.Taskset[VerifiersTask, vf.TasksetConfig]):
    """All tasks of the folder."""

    def load(self) -> Iterator[VerifiersTask]:
        """Yield the tasks in the order in which they were written."""
        for place, task in enumerate(exported().tasks):
            data = VerifiersData(
                id=task.task_id,
                name=task.task_id,
                place=place,
                family=task.draft.family,
                difficulty=task.draft.difficulty,
                passport=task.passport,
            )
            yield VerifiersTask(data, self.config.task)


class ExportedEnvConfig(vf.EnvConfig):
    """Who plays: a plain chat, because the environment says which tools there are."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"})


class ExportedEnv(vf.Env[ExportedEnvConfig]):
    """Answers each turn of the agent as the run did that the tasks come from."""

    async def run(self, task: VerifiersTask, agents: Any) -> None:
        """Play one attempt."""
        attempt = exported().attempt(task.data.place)
        said = attempt.opening()
        async with agents.player.interaction(task) as player:
            while True:
                segment = await player.turn(said)
                if segment.terminated or not player.trace.assistant_messages:
                    return
                answers = attempt.say(_text(player.trace.assistant_messages[-1]))
                if attempt.done:
                    return
                # A chat goes on with words of the user, also where the environment has none.
                said = "\n".join(one["content"] for one in answers) or "(no answer)"


@cache
def exported() -> ExportedTasks:
    """Return the tasks of the package that this module lies in."""
    return read_tasks(FOLDER)


def _text(message: vf.AssistantMessage) -> str:
    """Return a turn as the run's agent would write it: calls that a server took apart, in it."""
    calls = [{"name": one.name, "arguments": one.arguments} for one in message.tool_calls or ()]
    return canonical(message.content or "", calls)
