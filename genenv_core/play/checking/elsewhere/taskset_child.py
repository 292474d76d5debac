"""Plays a taskset of verifiers in a process of its own; runs as a script where verifiers is.

`python -P taskset_child.py MODULE FOLDER` answers requests as `serving` says. The task's own
rewards judge an answer, as in `vf-replay`: from the messages alone, without a runtime.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

GOLD = ("answer", "ground_truth", "gold", "target")
"""Fields of a task that may hold its answer; the first one present counts."""


class TasksetHost:
    """Answers requests about one taskset."""

    def __init__(self, module: str, folder: str) -> None:
        """Load every task; ends the process if an answer alone does not decide the tasks."""
        sys.path.insert(0, folder)
        import verifiers.v1 as vf
        from verifiers.v1.utils.loaders import taskset_class

        found = taskset_class(module)(vf.TasksetConfig(id=module))
        if not found.bounded:
            sys.exit("the taskset is infinite: bound it in its own load()")
        self._vf, self._tasks = vf, list(found)
        self._loop = asyncio.new_event_loop()  # rewards may keep a client that belongs to it
        if not self._tasks:
            sys.exit("the taskset has no task")
        if needs := _needs(self._tasks[0]):
            sys.exit(f"its tasks need {needs}: genenv plays tasks that an answer alone decides")

    def answer(self, request: Mapping[str, Any]) -> Any:
        """Return the answer to a request."""
        given = {name: value for name, value in request.items() if name != "do"}
        return getattr(self, f"do_{request['do']}")(**given)

    def do_about(self) -> Any:
        """Return the version of verifiers, and the number of tasks."""
        return {"verifiers": version("verifiers"), "tasks": len(self._tasks)}

    def do_task(self, index: int) -> Any:
        """Return a task's key, the messages that open an attempt, and its answer or ''."""
        task = self._tasks[index]
        answers = (getattr(task.data, name, None) for name in GOLD)
        answer = next((str(one) for one in answers if isinstance(one, str | int | float)), "")
        messages = [{"role": one.role, "content": _text(one)} for one in self._opening(task)]
        return {"key": task.key, "messages": messages, "answer": answer}

    def do_reward(self, index: int, text: str) -> float:
        """Return the reward of an attempt in which the agent says just this."""
        from verifiers.v1.graph import MessageNode
        from verifiers.v1.trace import Trace, TraceTask
        from verifiers.v1.types import AssistantMessage

        vf, task = self._vf, self._tasks[index]
        said = [*self._opening(task), AssistantMessage(content=text)]
        nodes = [
            MessageNode(
                message=one, parent=place - 1 if place else None, sampled=place == len(said) - 1
            )
            for place, one in enumerate(said)
        ]
        about = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
        agent = vf.AgentInfo(config=vf.AgentConfig())
        trace = Trace(task=about, state=vf.State(), agent=agent, nodes=nodes)
        self._loop.run_until_complete(task.score(trace))
        return float(trace.reward)

    def _opening(self, task: Any) -> list[Any]:
        from verifiers.v1.types import SystemMessage, UserMessage

        data = task.data
        system = [SystemMessage(content=data.system_prompt)] if data.system_prompt else []
        prompt = data.prompt
        return [*system, *([UserMessage(content=prompt)] if isinstance(prompt, str) else prompt)]


def _text(message: Any) -> str:
    from verifiers.v1.types import content_text

    return content_text(message.content)


def _needs(task: Any) -> str:
    """Return what a task needs beside an answer, '' for nothing."""
    if task.data.prompt is None:
        return "a user that opens the conversation"
    if task.NEEDS_CONTAINER or task.data.image:
        return "a container"
    if type(task).toolsets(task.config):
        return "tools"
    if task.config.judges:
        return "a judge's model"
    rewards = task.hooks("reward")
    if not rewards:
        return "a judge of another kind, for they have no reward"
    for one in rewards:
        runtime = inspect.signature(one).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            return "a runtime for their rewards"
    return ""


def _serving() -> Any:
    place = Path(__file__).with_name("serving.py")
    spec = spec_from_file_location("serving_of_the_taskset", place)
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no {place}")
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


if __name__ == "__main__":
    _serving().serve(lambda: TasksetHost(*sys.argv[1:]))
