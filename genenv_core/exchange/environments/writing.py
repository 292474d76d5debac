"""Writes the tasks of a run as a folder that others' programs play.

| in the folder | what it is |
|---|---|
| `PACKAGE/tasks.jsonl` | a task and its passport in each line |
| `PACKAGE/environment.json` | which domain plays them, and what bounds an attempt |
| `PACKAGE/genenv_core/` | the part of genenv that the domain needs, under the folder's own name |
| `pyproject.toml` | what installs it |
| `openenv.yaml`, `server/` | for openenv: what its programs look for |
| `solution/solve.py` | for openenv: a right attempt at every task, where the domain knows all |
| `tasks/` | for harbor, without a project file: a folder for each task, see `harbor.folders` |
| `LICENSE`, `README.md` | of the code; of the tasks |
| `statement.json` | the in-toto statement on all other files |

Before the folder takes its place, its own copy of the code scores stored attempts of the run again,
in a process of its own; how many rewards are equal stands in the README and in the statement.
"""

from __future__ import annotations

import json
from importlib.metadata import files as files_of
from pathlib import Path

import duckdb

from genenv_core import __version__
from genenv_core.bundle.statement import STATEMENT, TYPE
from genenv_core.canonical import digest, file_sha256, readable_json
from genenv_core.domains.protocol import Domain
from genenv_core.domains.registry import get_domain
from genenv_core.errors import QueryError
from genenv_core.exchange.environments import EnvironmentFormat
from genenv_core.exchange.environments.harbor import folders
from genenv_core.exchange.environments.passports import TaskSelection, task_lines
from genenv_core.exchange.environments.planning import PlannedFolder, planned_folder
from genenv_core.exchange.environments.playing import ABOUT, TASKS, right_attempt, task_of
from genenv_core.exchange.environments.replaying import Replayed, replay, stored_attempts
from genenv_core.exchange.environments.wording import readme_text, texts
from genenv_core.exchange.pools.export import Exported, new_folder, size_of
from genenv_core.storage.sql.catalog import query
from genenv_core.types import JsonObject

PREDICATE = "urn:genenv:tasks:v1"
"""The kind of the statement; docs/give-tasks.md describes it."""


def export_environment(
    con: duckdb.DuckDBPyConnection,
    run: str,
    format_: EnvironmentFormat,
    folder: Path,
    selection: TaskSelection,
) -> Exported:
    """Write the selected tasks of a run into a new folder, from an open connection over the run.

    Raises ConfigError when the folder is not empty, when a domain cannot be given away, because its
    environment is a server or it needs what no other machine has, and for a domain that the run
    does not have. Raises QueryError when no task fits.
    """
    config = _config(con, run)
    domain = get_domain(config["domain"]["name"], config["domain"].get("options"))
    planned = planned_folder(run, format_, config, domain, selection.domains)
    lines = task_lines(con, run, selection)
    if not lines:
        raise QueryError(
            f"no task that pi_env wrote in run {run} fits ({selection.condition}): widen the "
            "filters, or let the run finish an epoch"
        )
    with new_folder(folder) as scratch:
        _write(scratch, planned, domain, lines)
        replayed = replay(con, run, scratch, planned.package, lines, config["seed"])
        more = ""
        if format_ == "harbor":
            stored = stored_attempts(con, run, lines, config["seed"])
            more = folders.write_task_folders(scratch, planned.image, domain, lines, stored)
        readme = readme_text(planned, lines, replayed, more)
        (scratch / "README.md").write_text(readme, encoding="utf-8")
        statement = _statement(scratch, planned, selection, lines, replayed)
        (scratch / STATEMENT).write_bytes(readable_json(statement))
        size = size_of(scratch)
    return Exported(folder, len(lines), size, _found(replayed))


def _config(con: duckdb.DuckDBPyConnection, run: str) -> JsonObject:
    runs = query(con, "SELECT run_id, config FROM runs")
    return json.loads(dict(runs.iter_rows())[run])


def _write(folder: Path, planned: PlannedFolder, domain: Domain, lines: list[JsonObject]) -> None:
    inner = folder / planned.package
    for path, content in planned.code.files.items():
        place = inner / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    with (inner / TASKS).open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (inner / ABOUT).write_bytes(readable_json(planned.about))
    (folder / "LICENSE").write_text(_licence(), encoding="utf-8")
    # OpenEnv asks for an oracle of every task; harbor has one beside each task that has one.
    oracle = planned.format == "openenv" and all(
        right_attempt(domain, task_of(line).draft) for line in lines
    )
    for path, content in texts(planned, len(lines), oracle=oracle).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(content, encoding="utf-8")


def _statement(
    folder: Path,
    planned: PlannedFolder,
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
