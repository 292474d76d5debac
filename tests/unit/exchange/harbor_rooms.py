"""A room of Harbor without Docker, and an agent that says what a file says; imported by `harbor`.

As a program it lets Harbor judge attempts that were made: `harbor_rooms.py TASKS SCRATCH`.

A room is a root of its own in namespaces of its own. Its image is made by the Dockerfile's own
COPY and RUN lines, but for what a network or another user is needed for: the interpreter is
Harbor's, which has pydantic and no genenv.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.task.task import Task
from harbor.models.trial.paths import TrialPaths
from harbor.verifier.verifier import Verifier

OWN = ("opt", "logs", "tests", "solution", "home", "tmp", "usr/local/bin")
"""Folders that a room has for itself; it sees the machine's others."""

ROOMS = 2
"""Rooms in which Harbor judges attempts at a time."""

TURNS = "/opt/attempt/turns.jsonl"

ELSEWHERE = ("RUN useradd ", "RUN pip install ")
"""What an image has from elsewhere."""


def _made(dockerfile: str) -> tuple[list[tuple[list[str], str]], list[str]]:
    """Return the copies (files, place) and the commands of a Dockerfile."""
    copies: list[tuple[list[str], str]] = []
    commands: list[str] = []
    for line in dockerfile.replace("\\\n", "").splitlines():
        what, _, rest = line.partition(" ")
        if what == "COPY":
            *files, place = rest.split()
            copies.append((files, place))
        elif what == "RUN" and not line.startswith(ELSEWHERE):
            commands.append(rest)
        elif what not in ("FROM", "RUN", "WORKDIR", ""):
            raise ValueError(f"the room knows no {what}")
    return copies, commands


class Room(BaseEnvironment):
    """A container, as far as a task needs one; all in it is one user's."""

    @staticmethod
    def type() -> str:
        return "room"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    def _validate_definition(self) -> None:
        if not (self.environment_dir / "Dockerfile").is_file():
            raise FileNotFoundError(f"{self.environment_dir}: no Dockerfile")

    def _at(self, path: object) -> Path:
        return self._root / str(path).lstrip("/")

    async def start(self, force_build: bool) -> None:
        del force_build
        self._root = Path(tempfile.mkdtemp(prefix="room-"))
        for name in (*OWN, "logs/agent", "logs/verifier", "logs/artifacts", "home/agent"):
            self._at(name).mkdir(parents=True, exist_ok=True)
        binds = [f"/{one}" for one in ("bin", "sbin", "lib", "lib64", "etc", "dev", "usr")]
        binds += [sys.base_prefix, sys.prefix]
        mounts = ["mount --make-rprivate /"]
        for name in filter(os.path.exists, binds):
            place = shlex.quote(str(self._at(name)))
            mounts.append(f"mkdir -p {place}; mount --rbind {shlex.quote(name)} {place}")
        local = shlex.quote(str(self._at("usr/local/bin")))
        mounts.append(f"mkdir -p {self._root}/proc; mount -t proc proc {self._root}/proc")
        own = self._root / "own-bin"
        own.mkdir()
        mounts.append(f"mount --bind {own} {local}")
        (own / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (own / "python3").chmod(0o755)
        copies, commands = _made((self.environment_dir / "Dockerfile").read_text())
        for files, place in copies:
            for file in files:
                into = place if not place.endswith("/") else f"{place}{file}"
                if into.startswith("/usr/local/bin/"):
                    target = own / Path(into).name
                else:
                    target = self._at(into)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.environment_dir / file, target)
                target.chmod(0o644)
        begin = "; ".join(["set -e", *mounts, "read pid rest < /proc/self/stat", "echo $pid"])
        inside = f"exec chroot {shlex.quote(str(self._root))} sh -c 'echo; exec sleep infinity'"
        self._init = subprocess.Popen(
            ["unshare", "-rmpf", "--kill-child", "sh", "-c", f"{begin}; {inside}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._init.stdout
        self._pid = self._init.stdout.readline().strip()
        assert self._pid and self._init.stdout.readline(), "the room did not open"
        for command in commands:
            done = await self.exec(command)
            assert not done.return_code, done

    async def stop(self, delete: bool) -> None:
        self._init.kill()
        self._init.wait()
        if delete:
            shutil.rmtree(self._root)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        del user
        inside = f"cd {shlex.quote(cwd or '/home/agent')} && {command}"
        process = await asyncio.create_subprocess_exec(
            *("nsenter", "--preserve-credentials", "-U", "-m", "-p", "-r", "-t", self._pid),
            *("sh", "-c", inside),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", **(self._merge_env(env) or {})},
        )
        out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        return ExecResult(
            stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0
        )

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._at(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._at(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._at(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._at(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._at(source_dir), target_dir, dirs_exist_ok=True)


class SayingAgent(BaseAgent):
    """Says the turns that a file has for the task, by the command that each agent has."""

    @staticmethod
    def name() -> str:
        return "saying"

    def version(self) -> str:
        return "1"

    def __init__(self, *args: Any, turns: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turns: dict[str, list[str]] = json.loads(Path(turns).read_text())

    async def setup(self, environment: BaseEnvironment) -> None:
        del environment

    async def run(self, instruction: str, environment: BaseEnvironment, context: Any) -> None:
        del instruction, context
        modes = await environment.exec("stat -c '%A %n' /opt/attempt/* /usr/local/bin/attempt")
        (self.logs_dir / "modes.txt").write_text(modes.stdout or "")
        for turn in self._turns[environment.environment_name]:
            await environment.exec(f"printf %s {shlex.quote(turn)} | attempt say")


async def judged(tasks: Path, attempts: list[tuple[str, Path]], scratch: Path) -> list[float]:
    """Return the rewards that Harbor reads from the tasks' own `test.sh`.

    Harbor's verifier brings the tests of a task into a room, runs them there, and fetches what they
    wrote. A room is opened once and not for each attempt: the images of all tasks hold the same
    code, and `TURNS` and the tests are brought in anew.

    Args:
        tasks: the folder of the data set.
        attempts: the name of a task, and the file with the turns.
        scratch: folder for what Harbor writes.
    """
    left = iter(enumerate(attempts))
    rewards: dict[int, float] = {}

    async def judge(number: int) -> None:
        paths = TrialPaths(scratch / f"room-{number}")
        paths.mkdir()
        first = Task(tasks / attempts[0][0])
        room = Room(
            first.paths.environment_dir, f"room-{number}", f"room-{number}", paths,
            first.config.environment,
        )  # fmt: skip
        await room.start(force_build=False)
        try:
            for place, (name, turns) in left:
                await room.upload_file(turns, TURNS)
                found = await Verifier(Task(tasks / name), paths, room).verify()
                rewards[place] = found.rewards["reward"]
        finally:
            await room.stop(delete=True)

    await asyncio.gather(*map(judge, range(ROOMS)))
    return [rewards[place] for place in range(len(attempts))]


def main() -> None:
    """Print the rewards of attempts; standard input has their tasks and files of turns."""
    tasks, scratch = map(Path, sys.argv[1:])
    given = [(name, Path(turns)) for name, turns in json.load(sys.stdin)]
    print(json.dumps(asyncio.run(judged(tasks, given, scratch))))


if __name__ == "__main__":
    main()
