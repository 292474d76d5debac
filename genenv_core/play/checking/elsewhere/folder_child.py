"""Plays the domain of an exported folder in a process of its own; runs as a script.

`python -P folder_child.py PACKAGE FOLDER` reads a request a line and writes an answer a line, all
in JSON. It imports only two modules of genenv, both of these checks. So a folder that lacks a file
fails here, and its code never meets genenv's own.
"""

from __future__ import annotations

import json
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

MAY_HAVE = ("solution", "answer_turns", "leaks", "tools_of")
"""Methods that a domain may have beside those of the protocol."""

MAY_SAY = ("judged_while_played", "repeatable", "depends_on_seed")
"""Attributes that a domain may have about itself, true or false."""

EPISODES = 64
"""Most attempts that are open at once; one more closes the oldest."""

TOP = "genenv_core"

PLAYING = f"{TOP}.exchange.environments.playing"


class FolderHost:
    """Answers requests about one domain."""

    def __init__(self, package: str, folder: str) -> None:
        """Import the domain that the folder's environment.json names."""
        inner = Path(folder, package)
        sys.modules[package] = made = types.ModuleType(package)
        made.__path__ = [str(inner)]  # without the package's own file, which imports a framework
        about = json.loads((inner / "environment.json").read_text(encoding="utf-8"))
        found: Any = import_module(f"{package}.{about['module']}")
        for name in about["attribute"].split("."):
            found = getattr(found, name)
        self._domain: Any = getattr(found, "from_options", found)(about["options"])
        self._draft: Any = import_module(f"{package}.{TOP}.types").TaskDraft
        self._episodes: OrderedDict[int, Any] = OrderedDict()
        self._clock: Any = None
        self._package, self._inner = package, inner
        self._tasks: Any = None
        self._begun = 0
        self._only_own()

    def answer(self, request: Mapping[str, Any]) -> Any:
        """Return the answer to a request; raises what the domain raises."""
        do: Callable[..., Any] = getattr(self, f"do_{request['do']}", self._method)
        given = {name: value for name, value in request.items() if name != "do"}
        if "draft" in given:
            given["draft"] = self._draft(**given["draft"])
        return do(**given) if do != self._method else do(request["do"], **given)

    def do_about(self) -> Any:
        """Return the domain's attributes, and which of the optional methods it has."""
        domain = self._domain
        return {
            "name": domain.name,
            "version": domain.version,
            "tools": list(domain.tools),
            "has": [name for name in MAY_HAVE if callable(getattr(domain, name, None))],
            "says": {name: getattr(domain, name) for name in MAY_SAY if hasattr(domain, name)},
        }

    def do_solution(self, draft: Any) -> Any:
        """Return each turn of a right attempt, and what it reveals."""
        return [[turn.says, list(turn.reveals)] for turn in self._domain.solution(draft)]

    def do_score(self, draft: Any, messages: list[Any]) -> Any:
        """Return the three fields of a verdict."""
        verdict = self._domain.score(draft, messages)
        return [verdict.reward, verdict.success, verdict.failure]

    def do_episode(self, draft: Any, seed: int) -> int:
        """Begin an attempt; return its number."""
        episode = self._domain.episode(draft, seed)
        self._begun += 1
        self._episodes[self._begun] = episode
        if len(self._episodes) > EPISODES:
            self._episodes.popitem(last=False)
        return self._begun

    def do_step(self, number: int, action: str) -> Any:
        """Take a turn in an attempt."""
        seen = self._episodes[number].step(action)
        return {
            "messages": list(seen.messages),
            "done": seen.done,
            "simulated": seen.simulated,
            "failed": seen.failed,
            "cause": seen.cause.value,
            "anew": seen.anew,
        }

    def do_said(self, index: int, turns: list[str], seed: int, cut: bool) -> Any:
        """Return reward and success of a whole attempt at a task of the folder.

        The folder's own module `playing` plays it, as for anybody who uses the folder.
        """
        if self._tasks is None:
            playing = import_module(f"{self._package}.{PLAYING}")
            self._tasks = playing.read_tasks(self._inner)
            self._only_own()
        verdict = self._tasks.said(index, turns, seed=seed, cut=cut)
        return [verdict.reward, verdict.success]

    def do_clock(self, ahead: bool) -> None:
        """Set the clock ahead, or back to the true time."""
        if ahead:
            clock = _beside("clock.py")
            self._clock = clock.clock_ahead(clock.clocks(self._package))
            self._clock.__enter__()
        else:
            self._clock.__exit__(None, None, None)

    def _only_own(self) -> None:
        if foreign := sorted(name for name in sys.modules if name.partition(".")[0] == TOP):
            sys.exit(f"the folder's code imports {foreign[0]} of genenv itself")

    def _method(self, name: str, draft: Any) -> Any:
        return list(getattr(self._domain, name)(draft))


def _beside(name: str) -> Any:
    """Return a module of genenv by its file; the folder's code cannot import its name."""
    place = Path(__file__).parents[1] / name
    spec = spec_from_file_location(f"{place.stem}_of_the_folder", place)
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no {place}")
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


if __name__ == "__main__":
    _beside("elsewhere/serving.py").serve(lambda: FolderHost(*sys.argv[1:]))
