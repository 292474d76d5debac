"""The tasks of a run of several domains as one environment that others play.

Invariants: each task names its domain and is opened, answered and judged by it, so rewards are
those of the run; only the code of the chosen domains is there; a container lacks what its task's
own domain does without; a domain that nobody can be given hinders itself alone, and is named.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from genenv_core.domains.kit.several.several_domain import several
from genenv_core.domains.protocol import right_turns
from genenv_core.errors import ConfigError, QueryError
from genenv_core.exchange.environments.harbor.withholding import by_domain
from genenv_core.exchange.environments.reading import read_folder
from tests.mutations import mutation
from tests.unit.exchange.test_environments import (
    OWN,
    PACKAGE,
    alone,
    forgotten,
    given_away,
    lines,
    own_domain,
    with_config,
)
from tests.unit.exchange.test_export import with_drafts

__all__ = ["forgotten"]

PASSPORTS = "genenv_core/exchange/environments/passports.py"
PLANNING = "genenv_core/exchange/environments/planning.py"
WITHHOLDING = "genenv_core/exchange/environments/harbor/withholding.py"
PARTS: list[dict[str, Any]] = [
    {"name": "desk", "weight": 2.0},
    {"name": "trails", "as": "cards", "options": {"max_looks": 3}},
]
EQUAL = "stored attempts were scored again by the folder, with equal rewards"


def said_by(turns: list[str]) -> str:
    """Return a stored transcript in which the agent says these turns."""
    said = [{"role": "user", "content": "?"}]
    for place, turn in enumerate(turns):
        said += [{"role": "tool", "content": "seen"}] * bool(place)
        said.append({"role": "assistant", "content": turn})
    return json.dumps(said)


@cache
def tables() -> dict[str, pl.DataFrame]:
    """Return a small run of two domains; the agent is right where the stored score says so."""
    given = with_config({"name": "several", "options": {"parts": PARTS}}, max_turns=8)
    domain: Any = several({"parts": PARTS})
    found = with_drafts(given, domain.base_tasks(3, 60))
    read = {draft.program: draft for draft in domain.base_tasks(3, 60)}
    programs = dict(found["tasks"].filter("valid").select("task_id", "program").iter_rows())
    right = dict(found["scores"].select("trace_id", "success").iter_rows())
    turns = {
        trace: right_turns(domain, read[programs[task]]) if right[trace] else ["I do not know."]
        for trace, task in found["traces"].select("trace_id", "task_id").iter_rows()
    }
    found["traces"] = found["traces"].with_columns(
        turns=pl.Series([len(turns[one]) for one in found["traces"]["trace_id"]])
    )
    found["trace_tokens"] = found["trace_tokens"].with_columns(
        messages=pl.Series([said_by(turns[one]) for one in found["trace_tokens"]["trace_id"]])
    )
    return found


def test_each_task_is_played_by_its_own_domain(tmp_path: Path) -> None:
    folder, changes = given_away(tmp_path, given=dict(tables()))
    assert changes == {EQUAL: 24}
    given = lines(folder)
    labels = Counter(line["family"].partition("/")[0] for line in given)
    assert labels == {"desk": 4, "cards": 2}
    assert all(line["program"].startswith(f"{line['spec']['domain']}: ") for line in given)
    about = json.loads((folder / PACKAGE / "environment.json").read_text())
    assert about["domain"] == "desk, cards"
    one, other = about["options"]["parts"]
    assert (one["label"], one["weight"], one["options"]) == ("desk", 2.0, {})
    assert (other["label"], other["name"], other["options"]) == (
        "cards",
        "trails",
        {"max_looks": 3},
    )
    for line, (gold, empty, opening) in zip(given, alone(folder), strict=True):
        assert (gold, empty) == (1.0, 0.0)
        tool = "look" if line["spec"]["domain"] == "cards" else "ship"
        assert f'"name": "{tool}"' in opening and line["prompt"] in opening
    readme = (folder / "README.md").read_text()
    assert "begins with | desk (4 tasks), cards (2 tasks) |" in readme
    assert 'tags: ["desk", "cards"]' in (folder / "openenv.yaml").read_text()
    assert len(read_folder(folder).tasks) == 6  # files and passports are what is said of them


@mutation(
    "a right attempt is known if all domains know theirs", "genenv_core/domains/protocol.py",
    "    domain, draft = own_task(domain, draft)\n    if isinstance(domain, KnowsSolution):",
    "    if isinstance(domain, KnowsSolution):",
)  # fmt: skip
def test_one_domain_may_know_what_is_right() -> None:
    domain: Any = several({"parts": PARTS})
    silent: Any = type("Silent", (type(domain).__mro__[-2],), {})(domain.parts, domain.shares, {})
    for draft in domain.base_tasks(0, 4):
        assert right_turns(silent, draft) == right_turns(domain, draft) != []


@mutation(
    "the code of all domains goes with the tasks of one", PLANNING,
    "if not labels or one.label in labels", "if labels or one.label not in labels",
)  # fmt: skip
@mutation(
    "tasks of all domains go with the code of one", PASSPORTS,
    "if self.domains:", "if not self:",
)  # fmt: skip
def test_one_of_them_may_go_alone(tmp_path: Path) -> None:
    folder, changes = given_away(tmp_path, "verifiers", dict(tables()), domains=("cards",))
    assert changes == {EQUAL: 8}
    assert {line["spec"]["domain"] for line in lines(folder)} == {"cards"}
    code = folder / PACKAGE / "genenv_core" / "domains"
    assert (code / "trails" / "trails_domain.py").exists() and not (code / "desk").exists()


@mutation(
    "what one domain needs every container holds", WITHHOLDING,
    "if of is part.domain", "if of",
)  # fmt: skip
def test_a_container_lacks_what_its_own_domain_does_without(tmp_path: Path) -> None:
    folder, changes = given_away(tmp_path, "harbor", dict(tables()))
    assert changes == {EQUAL: 24}
    for line in lines(folder):
        task = folder / "tasks" / line["task_id"]
        assert json.loads((task / "tests" / "tasks.jsonl").read_text()) == line
        assert (task / "solution" / "solve.sh").exists()
        bare = json.loads((task / "environment" / "tasks.jsonl").read_text())
        label, whole = line["spec"]["domain"], line["spec"]["task"]
        assert bare["spec"]["domain"] == label and bare["program"] == f"{label}: "
        assert bare["ground_truth"] == "" and bare["prompt"] == line["prompt"]
        kept = set(bare["spec"]["task"])
        assert kept == (set() if label == "desk" else {"cards"}) and kept < set(whole)
    readme = (folder / "README.md").read_text()
    assert "not hold | desk: spec, ground_truth, program, fingerprint; cards: " in readme


@mutation(
    "tasks of one domain are counted among those of all", WITHHOLDING,
    "list(own), list(own.values())", "list(range(len(own))), list(own.values())",
)  # fmt: skip
def test_the_tasks_of_a_domain_keep_their_places() -> None:
    domain: Any = several({"parts": PARTS})
    drafts = domain.base_tasks(0, 6)
    found = by_domain(domain, drafts)
    assert [(of.part.label, of.places) for of in found if of.part] == [
        ("desk", [0, 2, 3, 5]), ("cards", [1, 4]),
    ]  # fmt: skip
    for of in found:
        assert [of.whole(own) for own in of.drafts] == [drafts[place] for place in of.places]


@mutation(
    "a domain behind a server hinders all others", PLANNING,
    "    domains = _chosen(_domains(config[\"domain\"], domain), several, labels)\n",
    "    domains = _domains(config[\"domain\"], domain)\n",
)  # fmt: skip
def test_a_domain_that_nobody_can_be_given_is_named(tmp_path: Path, forgotten: None) -> None:
    mine = own_domain(tmp_path / "mine", f"{OWN}\nMine.judged_while_played = True\n")
    parts = [PARTS[0], mine | {"as": "served"}]
    given = with_config({"name": "several", "options": {"parts": parts}})
    with pytest.raises(ConfigError, match=r"domain mine: .*and those of desk with --domain"):
        given_away(tmp_path, given=given)
    # Past that, the tasks of these tables are simply of no domain.
    with pytest.raises(QueryError, match="no task that pi_env wrote in run run-a fits"):
        given_away(tmp_path, given=given, domains=("desk",))


@mutation(
    "an unknown domain goes as none", PLANNING, "if label not in {one.label", "if label in {''",
)  # fmt: skip
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"parts": PARTS}, "--domain trails: the domains of the run are desk, cards: name these"),
        (None, "--domain trails: the run plays one domain, desk: leave it out"),
    ],
)
def test_a_domain_that_the_run_does_not_have_is_refused(
    tmp_path: Path, options: dict[str, Any] | None, said: str
) -> None:
    section = {"name": "several", "options": options} if options else {"name": "desk"}
    with pytest.raises(ConfigError, match=said):
        given_away(tmp_path, given=with_config(section), domains=("trails",))
