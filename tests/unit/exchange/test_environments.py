"""Tasks of a run as an environment that others play.

Invariants: each selected task is there once, with its attempts and its digest; the folder's code
runs where genenv is not, answers and judges as the run did, and says so only where it does; what
cannot be given away is refused by name; the statement names every file.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from flows.cli.app import app
from genenv_core.canonical import digest
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError, QueryError
from genenv_core.exchange.environments import sources, writing
from genenv_core.exchange.environments.passports import TaskSelection, task_lines
from genenv_core.exchange.environments.playing import DRAFT, ExportedAttempt, TurnLimits
from genenv_core.exchange.environments.sources import copied
from genenv_core.exchange.environments.writing import export_environment
from genenv_core.storage.sql.catalog import connect
from genenv_core.types import TaskDraft
from tests.mutations import mutation
from tests.pipeline.commands import REPOSITORY
from tests.unit.benchmarks.data import SHARED, official
from tests.unit.exchange.test_export import stored, tables, with_drafts

PLAYING = "genenv_core/exchange/environments/playing.py"
PASSPORTS = "genenv_core/exchange/environments/passports.py"
SOURCES = "genenv_core/exchange/environments/sources.py"
REPLAYING = "genenv_core/exchange/environments/replaying.py"
WRITING = "genenv_core/exchange/environments/writing.py"
WORDING = "genenv_core/exchange/environments/wording.py"
PLANNING = "genenv_core/exchange/environments/planning.py"
PACKAGE = "tasks_run_a"
LIMITS = TurnLimits(turns=3, errors=2)


@cache
def _honest() -> dict[str, pl.DataFrame]:
    """Return the tables, with transcripts whose agent is right where the stored score says so."""
    found = dict(tables())
    right = dict(found["scores"].select("trace_id", "success").iter_rows())
    texts: list[str] = []
    rows = found["trace_tokens"].select("trace_id", "messages").iter_rows()
    for trace, messages in rows:
        said = json.loads(messages)
        if not right[trace]:
            said[1]["content"] = "I do not know."
            del said[2:]
        texts.append(json.dumps(said))
    found["trace_tokens"] = found["trace_tokens"].with_columns(messages=pl.Series(texts))
    return found


def given_away(
    folder: Path,
    format_: Any = "openenv",
    given: dict[str, pl.DataFrame] | None = None,
    **selection: Any,
) -> tuple[Path, dict[str, int]]:
    """Return the folder of an export, and what it says of the attempts scored again."""
    out = folder / format_
    with connect([stored(folder / "tables", given or dict(_honest()))]) as con:
        done = export_environment(con, "run-a", format_, out, TaskSelection(**selection))
    return out, done.changes


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return the tasks of an export."""
    text = (folder / PACKAGE / "tasks.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def with_config(domain: dict[str, Any], **rollout: int) -> dict[str, pl.DataFrame]:
    """Return the tables of a run of another domain."""
    found = dict(_honest())
    config = json.loads(found["runs"]["config"][0])
    config["domain"] = domain
    config["rollout"] |= rollout
    found["runs"] = found["runs"].with_columns(config=pl.lit(json.dumps(config)))
    return found


@mutation(
    "a given task has the attempts at another one", PASSPORTS,
    'measured[row.pop("fingerprint")].append(row)', 'measured[row["fingerprint"][:2]].append(row)',
)  # fmt: skip
@mutation(
    "a rejected text of pi_env is given away as a task", PASSPORTS,
    "AND t.source = 'generated' AND t.valid", "AND t.source != 'test'",
)  # fmt: skip
@mutation(
    "the digest of a given task is of its passport too", PASSPORTS,
    '"digest": digest(task),', '"digest": digest(row["task_id"]),',
)  # fmt: skip
def test_each_task_has_its_passport(tmp_path: Path) -> None:
    given = _honest()
    found = {line["task_id"]: line for line in lines(given_away(tmp_path)[0])}
    written = given["tasks"].filter((pl.col("source") == "generated") & pl.col("valid"))
    assert list(found) == sorted(written["task_id"])
    for row in written.iter_rows(named=True):
        line = found[row["task_id"]]
        task = {name: line[name] for name in DRAFT}
        assert task["spec"] == json.loads(row["spec"]) and task["prompt"] == row["prompt"]
        passport = line["passport"]
        assert passport["digest"] == digest(task)
        assert passport["lineage"]["env_policy_version"] == row["env_policy_version"]
        assert passport["lineage"]["run_id"] == "run-a"
    group = given["task_scores"].filter(pl.col("group_id") == "e0001-g000002")
    (measured,) = found[group["task_id"][0]]["passport"]["measured"]
    # Wilson's interval of 2 of 4, by hand: z = 1.959964, half = z sqrt(1/16 + z^2/64) / (1 + z^2/4)
    assert measured == {
        **{"epoch": 1, "policy_version": 0, "weights": "agent-digest-0", "n": 4, "successes": 2},
        **{
            "p_hat": 0.5,
            "wilson_low": pytest.approx(0.150039),
            "wilson_high": pytest.approx(0.849961),
        },
    }
    checks = found["e0001-t000000"]["passport"]["certificate"]["checks"]
    stored_checks = given["certificates"].filter(pl.col("task_id") == "e0001-t000000")
    assert checks == dict(stored_checks.select("flaw", "passed").iter_rows())


def test_tasks_that_count_as_duplicates_are_one_with_all_attempts(tmp_path: Path) -> None:
    given = dict(_honest())
    twin = given["tasks"].filter(pl.col("task_id") == "e0001-t000002")["fingerprint"][0]
    again = pl.col("task_id") == "e0002-t000001"
    given["tasks"] = given["tasks"].with_columns(
        fingerprint=pl.when(again).then(pl.lit(twin)).otherwise("fingerprint")
    )
    found = {
        line["task_id"]: line["passport"] for line in lines(given_away(tmp_path, given=given)[0])
    }
    assert "e0002-t000001" not in found
    measured = found["e0001-t000002"]["measured"]
    assert [(one["epoch"], one["weights"], one["successes"]) for one in measured] == [
        (1, "agent-digest-0", 2),
        (2, "agent-digest-1", 1),
    ]


@mutation(
    "a filter by success takes what nobody attempted", PASSPORTS,
    'conditions.append(f"p_hat BETWEEN', 'conditions.append(f"p_hat IS NULL OR p_hat BETWEEN',
)  # fmt: skip
@pytest.mark.parametrize(
    ("selection", "count"),
    [
        ({}, 6),
        ({"epochs": (2, 2)}, 3),
        ({"p_hat": (0.25, 0.25)}, 2),
        ({"p_hat": (0.25, 0.5)}, 4),
        ({"families": ("k1",), "epochs": (2, 2)}, 2),
    ],
)
def test_filters(tmp_path: Path, selection: dict[str, Any], count: int) -> None:
    given = dict(_honest())
    unread = pl.col("task_id") == "e0002-t000000"
    given["task_scores"] = given["task_scores"].filter(~unread)  # which nobody attempted
    with connect([stored(tmp_path / "tables", given)]) as con:
        assert len(task_lines(con, "run-a", TaskSelection(**selection))) == count


def test_what_fits_nothing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"no task that pi_env wrote in run run-a fits \(epoch"):
        given_away(tmp_path, epochs=(9, 9))
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


@mutation(
    "an export says that all rewards are equal", REPLAYING,
    "if verdict != [one", "if not verdict and [one",
)  # fmt: skip
def test_an_export_counts_the_stored_attempts_that_it_judges_otherwise(tmp_path: Path) -> None:
    told = "stored attempts were scored again by the folder, with equal rewards"
    folder, changes = given_away(tmp_path)
    assert changes == {told: 24}
    assert (
        "| of them with another reward than in the run | 0 |" in (folder / "README.md").read_text()
    )
    # In these tables every agent is right, whatever the stored score: 6 of 24 are successes.
    folder, changes = given_away(tmp_path, "verifiers", tables())
    assert changes.pop(told) == 6
    ((what, count),) = changes.items()
    assert count == 18 and what.endswith(": 0.0 in the run, 1.0 here")
    statement = json.loads((folder / "statement.json").read_text())
    assert statement["predicate"]["replayed"] == {"compared": 24, "different": 18}


@mutation(
    "the statement on an export leaves out its code", WRITING,
    'folder.rglob("*") if path.is_file()', 'folder.glob("*") if path.is_file()',
)  # fmt: skip
def test_the_statement_names_every_file(tmp_path: Path) -> None:
    folder, _ = given_away(tmp_path)
    statement = json.loads((folder / "statement.json").read_text())
    named = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    there = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "statement.json"
    }
    assert named == there
    assert {f"{PACKAGE}/tasks.jsonl", "LICENSE", "openenv.yaml", "README.md"} <= named.keys()
    assert statement["_type"] == "https://in-toto.io/Statement/v1"


def test_the_project_file_names_every_package(tmp_path: Path) -> None:
    for format_ in ("openenv", "verifiers"):
        folder, _ = given_away(tmp_path, format_)
        project = tomllib.loads((folder / "pyproject.toml").read_text())
        packages = {
            path.parent.relative_to(folder).as_posix().replace("/", ".")
            for path in (folder / PACKAGE).rglob("__init__.py")
        }
        server = {f"{PACKAGE}.server"} if format_ == "openenv" else set[str]()
        assert set(project["tool"]["setuptools"]["packages"]) == packages | server
        needs = project["project"]["dependencies"]
        assert needs[0].startswith(format_) and not any("torch" in one for one in needs)
        assert any(one.startswith("pydantic>=") for one in needs)
    yaml.safe_load((tmp_path / "openenv" / "openenv.yaml").read_text())


@mutation(
    "a folder declares an oracle that some task lacks", WRITING,
    'planned.format == "openenv" and all(', 'planned.format == "openenv" and any(',
)  # fmt: skip
@mutation(
    "the oracle of a folder says that a wrong attempt is right", WORDING,
    "short += reward is None or reward < 1", "short += reward is None",
)  # fmt: skip
@pytest.mark.slow
def test_a_folder_for_openenv_plays_a_right_attempt_at_every_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def oracle(folder: Path) -> Any:
        validation = yaml.safe_load((folder / "openenv.yaml").read_text())["validation"]
        return validation["capabilities"].get("oracle")

    def played(folder: Path) -> tuple[int, list[float]]:
        done = subprocess.run(
            [sys.executable, "-I", "solution/solve.py"], cwd=folder, capture_output=True, text=True
        )
        return done.returncode, [json.loads(row)["reward"] for row in done.stdout.splitlines()]

    given = with_config({"name": "desk"})
    folder, _ = given_away(tmp_path, "openenv", given)
    assert oracle(folder) == {"form": "script", "location": "solution/solve.py"}
    assert played(folder) == (0, [1.0] * len(lines(folder)))
    about = folder / PACKAGE / "environment.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"max_errors": 0}))
    assert played(folder) == (1, [0.0] * len(lines(folder)))
    known = writing.right_attempt
    unknown = lines(folder)[0]["prompt"]
    monkeypatch.setattr(
        writing, "right_attempt", lambda d, t: [] if t.prompt == unknown else known(d, t)
    )
    (tmp_path / "other").mkdir()
    other, _ = given_away(tmp_path / "other", "openenv", given)
    assert oracle(other) is None and not (other / "solution").exists()


ALONE = """
import json, sys, types
from importlib import import_module
from importlib.abc import MetaPathFinder
package, folder, needed = sys.argv[1:]
sys.path.insert(0, folder)
sys.modules[package] = types.ModuleType(package)
sys.modules[package].__path__ = [f"{folder}/{package}"]

class Nothing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        top = name.partition(".")[0]
        known = {package, "pydantic", "pydantic_core", "annotated_types", "typing_extensions",
                 "typing_inspection", *needed.split(), *sys.stdlib_module_names}
        if not top.startswith("_") and top not in known:
            raise ImportError(f"{name} is not there")

if "polars" not in needed:  # which looks for everything that it could work with
    sys.meta_path.insert(0, Nothing())
playing = import_module(f"{package}.genenv_core.exchange.environments.playing")
tasks = playing.read_tasks(__import__("pathlib").Path(folder, package))
for place in range(len(tasks.tasks)):
    attempt = tasks.attempt(place)
    right = tasks.solved(place)
    print(json.dumps([right.reward, tasks.said(place, [""]).reward, attempt.opening()]))
tops = {name.partition(".")[0] for name in sys.modules}
assert not tops & {"genenv_core", "torch", "transformers", "prefect", "mlflow"}
"""


NEEDED = {"bamboogle": "dateutil six", "travelplanner": "polars"}
"""What the judges of benchmarks import beside pydantic."""


def alone(folder: Path, needed: str = "") -> list[list[Any]]:
    """Return what an export comes to in a process that has pydantic and nothing of genenv."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", ALONE, PACKAGE, str(folder), needed],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@mutation(
    "copied code imports genenv itself", SOURCES,
    'f"from {package}.".encode()', 'b"from "',
)  # fmt: skip
@mutation(
    "an agent of others does not read which tools there are", PLAYING,
    "if not self.tools or OPEN in said:", "if self.tools or OPEN in said:",
)  # fmt: skip
def test_its_code_runs_where_genenv_is_not(tmp_path: Path) -> None:
    folder, _ = given_away(tmp_path, given=with_config({"name": "desk", "options": {}}))
    for gold, empty, opening in alone(folder):
        assert (gold, empty) == (1.0, 0.0)
        assert opening.startswith("The tools are\n{") and "<tool_call>" in opening


BENCHMARKS = ("api_bank", "bamboogle", "bfcl", "travelplanner")


@pytest.mark.parametrize(
    "name",
    [
        "trails",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("arithmetic", *BENCHMARKS)),
        *(
            pytest.param(f"{REPOSITORY}/docs/examples/{one}", marks=pytest.mark.slow)
            for one in ("units.py:Units", "diary.py:Diary")
        ),
    ],
)
def test_domains_go_with_all_that_they_need(
    tmp_path: Path, name: str, forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENENV_BENCHMARKS", str(SHARED))  # as others have it, too
    options = {"data": str(official(name))} if name in BENCHMARKS else {}
    given = with_config({"name": name, "options": options})
    given = with_drafts(given, get_domain(name, options).base_tasks(0, 60))
    folder, _ = given_away(tmp_path, given=given)
    about = json.loads((folder / PACKAGE / "environment.json").read_text())
    assert about["options"] == {}
    found = alone(folder, NEEDED.get(name, ""))
    assert [empty for _, empty, _ in found] == [0.0] * 6
    assert all(gold > 0.5 for gold, _, _ in found)


OWN = """
import helpers_of_mine, random
import helpers_of_mine as helped
from helpers_of_mine import (
    ANSWER,
)
from pathlib import Path
from genenv_core.domains.kit import ProgramDomain, judges, task
from genenv_core.types import Rejected, TaskDraft, Verdict

class Mine(ProgramDomain):
    name, version = "mine", "1"
    files = [Path(__file__).parent / "words" / "list.txt"]

    def draw(self, rng: random.Random, level: int) -> str:
        return "say it"

    def read(self, text: str) -> TaskDraft | Rejected:
        return task(text, "Say it.", helpers_of_mine.ANSWER, 1)

    def judge(self, draft: TaskDraft, answer: str) -> Verdict:
        assert helped.ANSWER == ANSWER
        return judges.exact(answer, self.files[0].read_text().strip())
"""


def own_domain(folder: Path, code: str = OWN) -> dict[str, Any]:
    """Write a domain with a helper and a file of its own; return its part of a configuration."""
    (folder / "words").mkdir(parents=True)
    (folder / "words" / "list.txt").write_text("it\n")
    (folder / "helpers_of_mine.py").write_text('ANSWER = "it"\n')
    (folder / "mine_of_tests.py").write_text(code)
    return {"name": f"{folder / 'mine_of_tests.py'}:Mine", "options": {}}


@mutation(
    "a folder that is given away names places of the machine of the run", PLANNING,
    "os.path.isabs(value) and os.path.exists(value)", "value is None",
)  # fmt: skip
def test_options_that_name_a_place_here_stay_here(tmp_path: Path, forgotten: None) -> None:
    code = (
        OWN.replace("ProgramDomain, judges", "Options, ProgramDomain, judges").replace(
            "class Mine", "class Placed(Options):\n    at: str = ''\n    n: int = 1\n\nclass Mine"
        )
        + "Mine.options_type = Placed\n"
    )
    domain = own_domain(tmp_path / "mine", code)
    given = with_config(domain | {"options": {"at": str(tmp_path), "n": 2}})
    folder, _ = given_away(tmp_path, given=given)
    about = json.loads((folder / PACKAGE / "environment.json").read_text())
    assert about["options"] == {"n": 2}
    assert "name a place on the machine of the run | at |" in (folder / "README.md").read_text()
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    assert not any(str(tmp_path) in text for text in texts)
    assert "| domain | mine_of_tests.py:Mine |" in (folder / "README.md").read_text()


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test import its own modules of these names."""
    from genenv_core.storage.records import code

    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("mine_of_tests", "helpers_of_mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    code._read.cache_clear()
    code._source.cache_clear()


@mutation(
    "the files that a domain reads stay behind", PLANNING,
    "[Path(one) for one in domain.files] if", "[Path(one) for one in ()] if",
)  # fmt: skip
def test_a_domain_of_ones_own_goes_with_its_helpers_and_files(
    tmp_path: Path, forgotten: None
) -> None:
    given = with_config(own_domain(tmp_path / "mine"), max_turns=1)
    answers = pl.lit(
        json.dumps([{"role": "user", "content": "?"}, {"role": "assistant", "content": "it"}])
    )
    given["trace_tokens"] = given["trace_tokens"].with_columns(messages=answers)
    folder, changes = given_away(tmp_path, given=given)
    assert changes["stored attempts were scored again by the folder, with equal rewards"] == 6
    assert (folder / PACKAGE / "words" / "list.txt").read_text() == "it\n"
    text = (folder / PACKAGE / "mine_of_tests.py").read_text()
    assert f"import {PACKAGE}.helpers_of_mine as helpers_of_mine, random" in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("import torch", "mine_of_tests imports torch, which playing the tasks does not need"),
        ("import genenv_core.domains.parts", "says `import genenv_core.domains.parts`, whose uses"),
        (
            "Mine.files = [Path('/etc/hostname')]",
            "the domain reads /etc/hostname, which lies",
        ),
        (
            "__import__('decimal_of_nobody') if '.' in __name__ else 0",
            "does not run by itself: Mod",
        ),
    ],
)
def test_what_cannot_be_given_away_is_refused(
    tmp_path: Path, forgotten: None, more: str, said: str
) -> None:
    given = with_config(own_domain(tmp_path / "mine", f"{OWN}\n{more}\n"))
    with pytest.raises(ConfigError, match=said):
        given_away(tmp_path, given=given)
    assert not (tmp_path / "openenv").exists()


def test_imports_are_renamed_wherever_they_stand() -> None:
    cases = (
        ("é = 1; from  own.a import b; import other, own as o", "é = 1; from p.own.a import b; "
         "import other, p.own as o"),
        ("if 1:\n    from \\\n        own import (\n        c,\n    )",
         "if 1:\n    from p.own import (\n        c,\n    )"),
        ("from . import own; from owner import own", "from . import own; from owner import own"),
        ("import own\nfrom json import (\n    own,\n)", "import p.own as own\nfrom json import (\n"
         "    own,\n)"),
    )  # fmt: skip
    for source, expected in cases:
        made = sources._renamed(source, ast.parse(source), "m", {"own"}, "p")
        assert made.decode() == expected
        ast.parse(made)


def test_imports_for_types_alone_need_no_library() -> None:
    found = copied(["genenv_core.domains.protocol"], "p")
    assert found.requirements == []
    assert "genenv_core/types.py" in found.files and "genenv_core/__init__.py" in found.files
    with pytest.raises(ConfigError, match="the module zlib has no Python source"):
        copied(["zlib"], "p")


class Failing:
    """An episode that refuses what the agent says."""

    def step(self, action: str) -> Any:
        from genenv_core.errors import DomainError

        raise DomainError("no")


@mutation(
    "an attempt of others never ends", PLAYING,
    "observation.done or self._turns >= self._limits.turns", "observation.done",
)  # fmt: skip
@mutation(
    "an attempt that breaks is judged by what it said", PLAYING,
    "if self.broken:", "if False:",
)  # fmt: skip
def test_an_attempt_is_bounded_as_in_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    domain: Any = get_domain("trails")
    draft: TaskDraft = domain.base_tasks(0, 1)[0]
    look = '<tool_call>{"name": "look", "arguments": {"card": "ada", "field": "town"}}</tool_call>'
    attempt = ExportedAttempt(domain, draft, LIMITS, 0)
    for _ in range(3):
        assert not attempt.done and attempt.say(look)
    assert attempt.done and attempt.say(look) == []
    assert sum(one["role"] == "assistant" for one in attempt.messages) == 3
    monkeypatch.setattr(domain, "episode", lambda draft, seed: Failing())
    broken = ExportedAttempt(domain, draft, LIMITS, 0)
    assert broken.say("a")[0]["content"] == "error: DomainError: no" and not broken.done
    broken.say("b")
    monkeypatch.setattr(domain, "score", None)
    assert broken.done and broken.verdict().failure == "error"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--format", "openenv", "--pool", "d_env"],
            "--pool d_env does nothing for --format",
        ),
        (["--format", "verifiers", "--kept"], "--kept does nothing for --format verifiers"),
        (["--format", "openenv", "--min-reward", "1"], "--min-reward does nothing"),
        (["--format", "harbor", "--tasks", "test"], "--tasks does nothing for --format harbor"),
        (
            ["--format", "openenv", "--p-hat", "0.8:0.2"],
            "--p-hat '0.8:0.2': expected lowest",
        ),
        (["--format", "openenv", "--p-hat", "1.2"], "--p-hat '1.2': expected lowest:highest"),
        (["--pool", "d_train", "--p-hat", "0:1"], "--p-hat works with --format openenv, verifi"),
        (["--pool", "d_train", "--sound"], "--sound works with --format openenv, verifiers"),
        (["--pool", "tasks"], "--pool tasks is for --format openenv, verifiers and"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        app(["export", "run-a", *options], standalone_mode=False)
