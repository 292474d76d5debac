"""Writes the tasks of a run as folders of Harbor, which make a data set of it.

| in the folder of a task | what it is |
|---|---|
| `instruction.md` | what the agent reads: how to say a turn, and the request |
| `task.toml` | what Harbor has to know |
| `environment/` | the parts of its image: the code, and the task without unneeded fields |
| `solution/solve.sh` | a right attempt, where the domain knows one |
| `tests/` | the whole task, and what writes the reward |
| `passport.json` | what is known about the task |

An image holds the code, so each folder has a copy of it, in one file.
"""

from __future__ import annotations

import io
import json
import shlex
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genenv_core.canonical import readable_json
from genenv_core.domains.protocol import Domain
from genenv_core.exchange.environments.harbor import saying, serving
from genenv_core.exchange.environments.harbor.withholding import (
    WITHOUT,
    PlayedTurns,
    by_domain,
    withheld,
    without,
)
from genenv_core.exchange.environments.playing import (
    ABOUT,
    TASKS,
    ExportedAttempt,
    TurnLimits,
    right_attempt,
    task_of,
)
from genenv_core.exchange.environments.sources import CopiedCode
from genenv_core.types import JsonObject, TaskDraft

FOLDER = "tasks"
"""The folder of the data set in an export."""

SCHEMA = "1.4"
"""Version of Harbor's form of `task.toml`, that of harbor 0.26."""

USER = "agent"
"""The user in a container who attempts the task, and may not read the environment's files."""

_NO_PASSPORT: JsonObject = {"passport": {}}


@dataclass(frozen=True, slots=True)
class TaskImage:
    """What all tasks of an export share.

    `package` is the name of the copied code's package, and `about` the content of `ABOUT`.
    """

    run: str
    package: str
    code: CopiedCode
    about: JsonObject

    @property
    def limits(self) -> TurnLimits:
        """Return what bounds an attempt."""
        return TurnLimits(self.about["max_turns"], self.about["max_errors"])


def write_task_folders(
    folder: Path,
    image: TaskImage,
    domain: Domain,
    lines: Sequence[JsonObject],
    stored: Iterable[JsonObject],
) -> str:
    """Write a folder for each task below `FOLDER`; return rows for the README's table about them.

    Args:
        folder: the export's.
        image: what the tasks share.
        domain: plays them.
        lines: the tasks with their passports.
        stored: attempts of the run at them, as `stored_attempts` has them; with right
            attempts they decide which fields of a task its container does without.
    """
    drafts = [task_of(line).draft for line in lines]
    right = [right_attempt(domain, draft) for draft in drafts]
    asked = [one["asked"] for one in stored]
    kept, without_fields = list(drafts), list[str]()
    for own in by_domain(domain, drafts):
        fields = withheld(own.domain, own.drafts, image.limits, _plays(own.places, right, asked))
        for place, draft in zip(own.places, own.drafts, strict=True):
            kept[place] = own.whole(without(draft, fields))
        without_fields.append(own.said_of(fields))
    code = _zipped(image)
    for line, draft, less, turns in zip(lines, drafts, kept, right, strict=True):
        place = folder / FOLDER / line["task_id"]
        bare = line | {name: getattr(less, name) for name in WITHOUT} | _NO_PASSPORT
        whole = _TaskFolder(place)
        opening = ExportedAttempt(domain, draft, image.limits, serving.SEED).opening()
        whole.text("instruction.md", _instruction(opening, image.limits.turns))
        whole.text("task.toml", _task_toml(image, line, draft))
        whole.write("passport.json", readable_json(line["passport"]))
        whole.text("environment/Dockerfile", _dockerfile(image))
        whole.write("environment/code.zip", code)
        whole.write("environment/attempt", Path(saying.__file__).read_bytes())
        for inner, one in (("environment", bare), ("tests", line)):
            whole.text(f"{inner}/{TASKS}", json.dumps(one, ensure_ascii=False) + "\n")
            whole.write(f"{inner}/{ABOUT}", readable_json(image.about))
        whole.script("tests/test.sh", _command(image, "judge"))
        if turns:
            whole.script("solution/solve.sh", _solution(turns))
    return f"""| tasks with a right attempt in `{FOLDER}/TASK/solution` | {sum(map(bool, right))} |
| fields of a task that its container does not hold | {"; ".join(without_fields)} |
"""


def _plays(
    places: Sequence[int], right: Sequence[list[str]], asked: Sequence[JsonObject]
) -> list[PlayedTurns]:
    """Return attempts at the tasks in these places, each by its place among them.

    `right` and `asked` are right and stored attempts at all tasks.
    """
    index = {place: count for count, place in enumerate(places)}
    plays = [PlayedTurns(index[place], tuple(right[place])) for place in places if right[place]]
    # A right attempt at another task is wrong here, and says things that few stored attempts say.
    others = [one.turns for one in (*plays[1:], *plays[:1])]
    plays += [PlayedTurns(one.index, turns) for one, turns in zip(plays, others, strict=True)]
    for one in asked:
        if one["index"] in index:
            plays.append(PlayedTurns(index[one["index"]], tuple(one["turns"]), one["seed"]))
    return plays


class _TaskFolder:
    """Writes files below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, content: bytes) -> Path:
        place = self._folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        return place

    def text(self, name: str, content: str) -> None:
        self.write(name, content.encode())

    def script(self, name: str, commands: str) -> None:
        self.write(name, f"#!/bin/sh\nset -eu\n{commands}\n".encode()).chmod(0o755)


def _zipped(image: TaskImage) -> bytes:
    """Return the package as a zip file, the same for equal files."""
    made = io.BytesIO()
    content = {"__init__.py": b"", **image.code.files}
    with zipfile.ZipFile(made, "w") as out:
        for path in sorted(content):
            entry = zipfile.ZipInfo(f"{image.package}/{path}")  # without the time of writing
            out.writestr(entry, content[path], zipfile.ZIP_DEFLATED, compresslevel=9)
    return made.getvalue()


def _command(image: TaskImage, what: str) -> str:
    """Return the command for the environment's part; its path holds no file of the agent."""
    module = f"{image.package}.{serving.__name__}"
    return f"cd / && PYTHONPATH={serving.CODE} exec python3 -P -s -m {module} {what}"


def _dockerfile(image: TaskImage) -> str:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    needs = " ".join(map(shlex.quote, image.code.requirements))
    install = f"RUN pip install --no-cache-dir {needs}\n" if needs else ""
    return f"""FROM python:{python}-slim
RUN useradd --create-home {USER}
{install}COPY attempt /usr/local/bin/attempt
COPY code.zip {serving.HOME}/code.zip
COPY {TASKS} {ABOUT} {serving.TASK}/
RUN python3 -m zipfile -e {serving.HOME}/code.zip {serving.CODE} && \\
    chmod -R go= {serving.HOME}/code.zip {serving.CODE} {serving.TASK} && \\
    chmod 755 /usr/local/bin/attempt
WORKDIR /home/{USER}
"""


def _task_toml(image: TaskImage, line: JsonObject, draft: TaskDraft) -> str:
    values: dict[str, dict[str, Any]] = {
        "task": {
            "name": f"genenv/{image.run}-{line['task_id']}",
            "description": f"A task that pi_env wrote in the run {image.run} of genenv",
        },
        "metadata": {
            "family": draft.family,
            "level": draft.difficulty,
            "digest": line["passport"]["digest"],
        },
        "agent": {"timeout_sec": 900.0, "user": USER},
        # Another container of the same image: what judges never comes to where the agent was.
        "verifier": {"timeout_sec": 300.0, "user": "root", "environment_mode": "separate"},
        "environment": {"build_timeout_sec": 600.0, "cpus": 1, "memory_mb": 1024},
        "environment.healthcheck": {"command": _command(image, "serve"), "timeout_sec": 60.0},
    }
    tables = [
        f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
        for name, table in values.items()
    ]
    head = f'schema_version = "{SCHEMA}"\nartifacts = ["{serving.TURNS}"]\n'
    return "\n".join([head, *tables])


def _toml(value: object) -> str:
    """Return a text or a number as TOML writes it, which is as JSON does but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _instruction(opening: str, most: int) -> str:
    return f"""# How to answer

The request below comes from an environment that you talk with by the command `attempt`. Only what
you say by it counts. Say one turn at a time:

```
attempt say <<'END'
the whole text of your turn
END
```

The command prints what the environment answers. Where the request names tools, a call is a part of
your turn's text, and the environment makes it: there is no such tool in this shell. Nothing can be
taken back. The attempt is over when the command says so, after {most} turns at most. `attempt show`
prints the conversation so far.

# The request

{opening}
"""


def _solution(turns: Sequence[str]) -> str:
    said: list[str] = []
    for turn in turns:
        end = "END"
        while end in turn.splitlines():
            end += "_"
        said.append(f"attempt say <<'{end}'\n{turn}\n{end}")
    return "\n".join(said)
