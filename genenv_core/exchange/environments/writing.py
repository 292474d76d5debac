"""Writes the tasks of a run as a folder that others' programs play.

| in the folder | what it is |
|---|---|
| `PACKAGE/tasks.jsonl` | a task and its passport in each line |
| `PACKAGE/environment.json` | which domain plays them, and what bounds an attempt |
| `PACKAGE/genenv_core/` | the part of genenv that the domain needs, under the folder's own name |
| `pyproject.toml` | what installs it |
| `openenv.yaml`, `server/` | for openenv: what its programs look for |
| `tasks/` | for harbor, without a project file: a folder for each task, see `harbor.folders` |
| `LICENSE`, `README.md` | of the code; of the tasks |
| `statement.json` | the in-toto statement on all other files |

Before the folder takes its place, its own copy of the code scores stored attempts of the run again,
in a process of its own; how many rewards are equal stands in the README and in the statement.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import files as files_of
from pathlib import Path
from typing import Any

import duckdb

from genenv_core import __version__
from genenv_core.bundle.statement import STATEMENT, TYPE
from genenv_core.config.sections.rollout import ToolsConfig
from genenv_core.domains.protocol import Domain, ReadsFiles
from genenv_core.domains.registry import get_domain, modules_of
from genenv_core.errors import QueryError
from genenv_core.exchange.environments import EnvironmentFormat
from genenv_core.exchange.environments.harbor import folders
from genenv_core.exchange.environments.passports import TaskSelection, task_lines
from genenv_core.exchange.environments.playing import ABOUT, TASKS
from genenv_core.exchange.environments.refusing import check_givable
from genenv_core.exchange.environments.replaying import Replayed, replay, stored_attempts
from genenv_core.exchange.environments.sources import CopiedCode, copied
from genenv_core.exchange.pools.export import Exported, new_folder, size_of
from genenv_core.plugins import DOMAINS, point_of
from genenv_core.storage.canonical import digest, file_sha256, readable_json
from genenv_core.storage.sql.catalog import query
from genenv_core.types import JsonObject

PREDICATE = "urn:genenv:tasks:v1"
"""The kind of the statement; docs/give-tasks.md describes it."""

ADAPTERS = {
    "openenv": "genenv_core.exchange.environments.openenv_app",
    "verifiers": "genenv_core.exchange.environments.verifiers_tasks",
    "harbor": "genenv_core.exchange.environments.harbor.serving",
}
"""The module that speaks a format; it travels in the folder."""

FRAMEWORKS = {"openenv": "openenv>=0.10", "verifiers": "verifiers>=0.4"}
"""What a format was tried with."""


@dataclass(frozen=True, slots=True)
class _Folder:
    """What is to be written, and under which names."""

    run: str
    format: EnvironmentFormat
    package: str
    config: Mapping[str, Any]
    module: str
    attribute: str
    code: CopiedCode

    @property
    def domain(self) -> str:
        """Return the domain's name, of a file without its folder, which is nobody's business."""
        return os.path.basename(self.config["domain"]["name"])

    @property
    def options(self) -> JsonObject:
        """Return the domain's options."""
        return self.config["domain"].get("options") or {}

    @property
    def places(self) -> list[str]:
        """Return the options that name a place on this machine, which others do not have."""
        return [name for name, value in self.options.items() if _is_place(value)]

    @property
    def about(self) -> JsonObject:
        """Return the content of `ABOUT`."""
        return {
            "domain": self.domain,
            "module": self.module,
            "attribute": self.attribute,
            "options": {
                name: value for name, value in self.options.items() if name not in self.places
            },
            "max_turns": self.config["rollout"]["max_turns"],
            "max_errors": self.config["tools"].get("max_errors", ToolsConfig().max_errors),
            "run_id": self.run,
            "genenv": __version__,
        }

    @property
    def image(self) -> folders.TaskImage:
        """Return what the images of Harbor share."""
        return folders.TaskImage(self.run, self.package, self.code, self.about)


def export_environment(
    con: duckdb.DuckDBPyConnection,
    run: str,
    format_: EnvironmentFormat,
    folder: Path,
    selection: TaskSelection,
) -> Exported:
    """Write the selected tasks of a run into a new folder, from an open connection over the run.

    Raises ConfigError when the folder is not empty, or when the domain cannot be given away: it is
    one of several, its environment is a server, or it needs what no other machine has. Raises
    QueryError when no task fits.
    """
    config = _config(con, run)
    domain = get_domain(config["domain"]["name"], config["domain"].get("options"))
    check_givable(domain)
    lines = task_lines(con, run, selection)
    if not lines:
        raise QueryError(
            f"no task that pi_env wrote in run {run} fits ({selection.condition}): widen the "
            "filters, or let the run finish an epoch"
        )
    planned = _planned(run, format_, config, domain)
    with new_folder(folder) as scratch:
        _write(scratch, planned, lines)
        replayed = replay(con, run, scratch, planned.package, lines, config["seed"])
        more = ""
        if format_ == "harbor":
            stored = stored_attempts(con, run, lines, config["seed"])
            more = folders.write_task_folders(scratch, planned.image, domain, lines, stored)
        readme = _readme(planned, lines, replayed, more)
        (scratch / "README.md").write_text(readme, encoding="utf-8")
        statement = _statement(scratch, planned, selection, lines, replayed)
        (scratch / STATEMENT).write_bytes(readable_json(statement))
        size = size_of(scratch)
    return Exported(folder, len(lines), size, _found(replayed))


def _is_place(value: object) -> bool:
    return isinstance(value, str) and os.path.isabs(value) and os.path.exists(value)


def _config(con: duckdb.DuckDBPyConnection, run: str) -> JsonObject:
    runs = query(con, "SELECT run_id, config FROM runs")
    return json.loads(dict(runs.iter_rows())[run])


def _planned(
    run: str, format_: EnvironmentFormat, config: Mapping[str, Any], domain: Domain
) -> _Folder:
    package = re.sub(r"\W", "_", f"tasks_{run}").lower()
    module, attribute = _made_by(config["domain"]["name"], domain)
    modules = [module, type(domain).__module__, ADAPTERS[format_]]
    data = [Path(one) for one in domain.files] if isinstance(domain, ReadsFiles) else []
    code = copied(modules, package, data)
    return _Folder(run, format_, package, config, module, attribute, code)


def _made_by(name: str, domain: Domain) -> tuple[str, str]:
    """Return the module that makes a domain, and what of it."""
    if ":" in name:
        return modules_of(name, domain)[-1], name.rpartition(":")[2]
    point = point_of(DOMAINS, name, "domain.name")
    return point.module, point.attr


def _write(folder: Path, planned: _Folder, lines: list[JsonObject]) -> None:
    inner = folder / planned.package
    for path, content in planned.code.files.items():
        place = inner / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    with (inner / TASKS).open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (inner / ABOUT).write_bytes(readable_json(planned.about))
    (inner / "__init__.py").write_text(_package(planned), encoding="utf-8")
    (folder / "LICENSE").write_text(_licence(), encoding="utf-8")
    if planned.format != "harbor":
        (folder / "pyproject.toml").write_text(_project(planned), encoding="utf-8")
    if planned.format == "openenv":
        (folder / "openenv.yaml").write_text(_openenv_yaml(planned, len(lines)), encoding="utf-8")
        (folder / "server").mkdir()
        (folder / "server" / "__init__.py").touch()
        (folder / "server" / "app.py").write_text(_server(planned), encoding="utf-8")


def _package(planned: _Folder) -> str:
    said = (
        f'"""Tasks that pi_env wrote in the run {planned.run}, and the code that plays them."""\n'
    )
    if planned.format != "verifiers":
        return said
    names = ("ExportedEnv", "ExportedTaskset")
    adapter = f"{planned.package}.{ADAPTERS['verifiers']}"
    listed = ", ".join(f'"{name}"' for name in names)
    return f"{said}\nfrom {adapter} import {', '.join(names)}\n\n__all__ = [{listed}]\n"


def _server(planned: _Folder) -> str:
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


def _project(planned: _Folder) -> str:
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


def _openenv_yaml(planned: _Folder, tasks: int) -> str:
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
    verifier:
      kind: reward_channel
    task_api: true
    declared_task_count:
      train: {tasks}
  network:
    mode: no-network
  task_distribution:
    dataset_version: "{planned.run}"
  types:
    tags: ["{planned.domain.rpartition(":")[2].lower()}"]
"""


def _readme(planned: _Folder, lines: list[JsonObject], replayed: Replayed, more: str) -> str:
    measured = [line["passport"]["measured"] for line in lines]
    attempts = sum(one["n"] for each in measured for one in each)
    solved = sum(one["successes"] for each in measured for one in each)
    share = f", {solved / attempts:.3f} of them successes" if attempts else ""
    unsound = sum(line["passport"]["certificate"]["sound"] is False for line in lines)
    left_out = ", ".join(planned.places) or "none"
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
| domain | {planned.domain} |
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


def _statement(
    folder: Path,
    planned: _Folder,
    selection: TaskSelection,
    lines: list[JsonObject],
    replayed: Replayed,
) -> JsonObject:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        "_type": TYPE,
        "subject": [
            {"name": path.relative_to(folder).as_posix(), "digest": {"sha256": file_sha256(path)}}
            for path in paths
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "run": planned.run,
            "config": {"digest": {"sha256": digest(planned.config)}},
            "domain": planned.about,
            "format": planned.format,
            "tasks": len(lines),
            "selected": selection.condition,
            "replayed": {"compared": replayed.compared, "different": replayed.different},
            "builder": {"id": f"pkg:pypi/genenv@{__version__}"},
        },
    }


def _licence() -> str:
    """Return the licence of genenv's code, as it is installed."""
    found = (one for one in files_of("genenv") or [] if one.name == "LICENSE")
    return next(found).read_text(encoding="utf-8")


def _found(replayed: Replayed) -> dict[str, int]:
    found = {"stored attempts were scored again by the folder, with equal rewards": replayed.equal}
    if replayed.different:
        found[f"got another reward, such as {replayed.example}"] = replayed.different
    return found
