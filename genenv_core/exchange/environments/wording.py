"""The texts beside the tasks and the code of an exported folder: what installs and explains it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from genenv_core import __version__
from genenv_core.bundle.statement import STATEMENT
from genenv_core.exchange.environments.harbor import folders
from genenv_core.exchange.environments.planning import ADAPTERS, PlannedFolder
from genenv_core.exchange.environments.playing import TASKS
from genenv_core.exchange.environments.replaying import Replayed
from genenv_core.types import JsonObject

FRAMEWORKS = {"openenv": "openenv>=0.10", "verifiers": "verifiers>=0.4"}
"""The releases of its framework that genenv was tried with, by format."""


SOLVE = "solution/solve.py"
"""The program of a folder for OpenEnv that plays right attempts, from the folder."""


def texts(planned: PlannedFolder, tasks: int, *, oracle: bool) -> dict[str, str]:
    """Return the texts that no attempt decides, by their path in the folder.

    `oracle` says that the folder's code knows a right attempt at every task.
    """
    found = {f"{planned.package}/__init__.py": _package(planned)}
    if planned.format != "harbor":
        found["pyproject.toml"] = _project(planned)
    if planned.format == "openenv":
        found |= {
            "openenv.yaml": _openenv_yaml(planned, tasks, oracle=oracle),
            "server/__init__.py": "",
            "server/app.py": _server(planned),
        }
        if oracle:
            found[SOLVE] = _solve(planned)
    return found


def _package(planned: PlannedFolder) -> str:
    said = (
        f'"""Tasks that pi_env wrote in the run {planned.run}, and the code that plays them."""\n'
    )
    if planned.format != "verifiers":
        return said
    names = ("ExportedEnv", "ExportedTaskset")
    adapter = f"{planned.package}.{ADAPTERS['verifiers']}"
    listed = ", ".join(f'"{name}"' for name in names)
    return f"{said}\nfrom {adapter} import {', '.join(names)}\n\n__all__ = [{listed}]\n"


def _server(planned: PlannedFolder) -> str:
    return f'''"""Serves the tasks: `uvicorn server.app:app`, or `python -m server.app`."""

import argparse
from pathlib import Path

import uvicorn

import {planned.package}
from {planned.package}.{ADAPTERS["openenv"]} import make_app

app = make_app(Path({planned.package}.__file__).parent, "{planned.package}")


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    uvicorn.run(app, host=given.host, port=given.port)


if __name__ == "__main__":
    main()
'''


def _solve(planned: PlannedFolder) -> str:
    return f'''"""Plays a right attempt at every task and prints what it earns.

Run `python {SOLVE}`. It ends with status 1 where one earns less than 1.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))

from {planned.package}.genenv_core.exchange.environments.playing import read_tasks

tasks, short = read_tasks(HERE / "{planned.package}"), 0
for index, task in enumerate(tasks.tasks):
    verdict = tasks.solved(index)
    reward = verdict.reward if verdict else None
    short += reward is None or reward < 1
    print(json.dumps({{"index": index, "id": task.task_id, "reward": reward}}))
sys.exit(1 if short else 0)
'''


def _project(planned: PlannedFolder) -> str:
    needs = [FRAMEWORKS[planned.format], *planned.code.requirements]
    needs = [one for one in needs if one != planned.format]
    packages = sorted(
        {
            planned.package,
            *(f"{planned.package}.{name}" for name in _packages(planned.code.files)),
        }
    )
    script = ""
    if planned.format == "openenv":
        packages.append(f"{planned.package}.server")
        script = (
            f'\n[project.scripts]\nserver = "{planned.package}.server.app:main"\n'
            f'\n[tool.setuptools.package-dir]\n"{planned.package}.server" = "server"\n'
        )
    listed = "".join(f'  "{name}",\n' for name in packages)
    return f"""[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{planned.package.replace("_", "-")}"
version = "1.0.0"
description = "Tasks that pi_env wrote in the run {planned.run}"
requires-python = ">=3.11"
license = "Apache-2.0"
license-files = ["LICENSE"]
dependencies = {json.dumps(needs)}
{script}
[tool.setuptools]
packages = [
{listed}]

[tool.setuptools.package-data]
"*" = ["*"]
"""


def _packages(paths: Mapping[str, bytes]) -> set[str]:
    suffix = "/__init__.py"
    return {path.removesuffix(suffix).replace("/", ".") for path in paths if path.endswith(suffix)}


def _openenv_yaml(planned: PlannedFolder, tasks: int, *, oracle: bool) -> str:
    declared = f"    oracle:\n      form: script\n      location: {SOLVE}\n" if oracle else ""
    return f"""spec_version: 1
name: {planned.package}
version: 1.0.0
type: space
runtime: fastapi
app: server.app:app
port: 8000
validation:
  reward:
    range: [0.0, 1.0]
    oracle_tolerance: 0.0
    floor_margin: 0.1
  resources:
    cpu: 1.0
    memory_mb: 1024
    disk_mb: 512
    episode_timeout_s: 60.0
  capabilities:
{declared}    verifier:
      kind: reward_channel
    task_api: true
    declared_task_count:
      train: {tasks}
  network:
    mode: no-network
  task_distribution:
    dataset_version: "{planned.run}"
  types:
    tags: {json.dumps([one.rpartition(":")[2].lower() for one in planned.labels])}
"""


def readme_text(
    planned: PlannedFolder, lines: list[JsonObject], replayed: Replayed, more: str
) -> str:
    """Return the README of a folder with these tasks; `more` are further rows of its table."""
    measured = [line["passport"]["measured"] for line in lines]
    attempts = sum(one["n"] for each in measured for one in each)
    solved = sum(one["successes"] for each in measured for one in each)
    share = f", {solved / attempts:.3f} of them successes" if attempts else ""
    unsound = sum(line["passport"]["certificate"]["sound"] is False for line in lines)
    left_out = ", ".join(planned.left_out) or "none"
    how = {
        "openenv": "pip install . && server --port 8000",
        "verifiers": f"pip install . && vf-validate {planned.package} --runtime.type subprocess",
        "harbor": f"harbor run -p {folders.FOLDER} -a oracle",
    }[planned.format]
    return f"""# {len(lines)} tasks of {planned.run}

pi_env, a language model, wrote these tasks in a run of genenv {__version__}. The code that opens,
answers and judges them lies beside them and needs no genenv.

```
{how}
```

| | |
|---|---|
| run | `{planned.run}` |
{_domains(planned, lines)}
| tasks | {len(lines)} |
| attempts at them in the run | {attempts}{share} |
| tasks that a check or an attempt speaks against | {unsound} |
| stored attempts scored again by this folder | {replayed.compared} |
| of them with another reward than in the run | {replayed.different} |
| most turns of an attempt | {planned.about["max_turns"]} |
| options left out, which name a place on the machine of the run | {left_out} |
{more}
Each line of `{planned.package}/{TASKS}` is a task with its passport: how often which checkpoint
solved it (`measured`, with Wilson's 95 % interval), what its certificate says, where it comes from
(`lineage`), and the digest of the task. `{STATEMENT}` is an in-toto statement on all files.

The answers are in this folder too: keep it away from what you train or measure.
The code is licensed under Apache-2.0 (`LICENSE`), but for a domain of your own. The texts were
written by models and programs; nobody read them all.
"""


def _domains(planned: PlannedFolder, lines: list[JsonObject]) -> str:
    """Return the row of the README that says what plays the tasks, and how many each has."""
    if not planned.several:
        return f"| domain | {planned.labels[0]} |"
    count = Counter(line["family"].partition("/")[0] for line in lines)
    said = ", ".join(f"{label} ({count[label]} tasks)" for label in planned.labels)
    return f"| domains, which the family of a task begins with | {said} |"
