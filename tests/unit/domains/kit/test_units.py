"""The worked example of docs/domain.md, a domain of parts.

Invariants: it has at most 60 lines; 80 tasks of two seeds have no flaw, and their text reads
back to them; held-out tasks are never base tasks or examples; a changed generation is refused with
its reason; answers succeed as near as it says, wrong ones earn less than right ones; the domain and
its parts are typed, strictly, for those who install genenv.
"""

from __future__ import annotations

import importlib
import json
import random
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from genenv_core.domains.protocol import KnowsSolution, SeedData
from genenv_core.errors import ConfigError
from genenv_core.play.certificate import answer_verdict
from genenv_core.types import Rejected, TaskDraft
from tests.unit.domains.checking import flaws
from tests.unit.domains.domain_contract import DomainContract

REPOSITORY = Path(__file__).parents[4]
EXAMPLES = REPOSITORY / "docs" / "examples"


@pytest.fixture(scope="module")
def domain() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return importlib.import_module("units").Units({})


class TestUnits(DomainContract):
    """The contract."""

    heldout, examples = 100, 200
    protocols = (KnowsSolution, SeedData)
    alien = ()
    test_the_grammar_allows_what_is_drawn_and_not_everything = None  # it has none


def test_it_has_at_most_sixty_lines() -> None:
    assert len((EXAMPLES / "units.py").read_text("utf-8").splitlines()) <= 60


def test_the_page_shows_what_the_example_has() -> None:
    page = (REPOSITORY / "docs" / "domain.md").read_text("utf-8")
    source = (EXAMPLES / "units.py").read_text("utf-8")
    section = page.partition("## A domain of parts")[2].partition("**Tools.**")[0]
    shown = re.findall(r"```python\n(.*?)\n```", section, re.S)
    head, judge = shown[1].split("\n", 1)
    assert all(text in source for text in (shown[0], head, judge))
    assert f"has {len(source.splitlines())} lines" in section


def test_tasks_are_solved_in_several_turns(domain: Any) -> None:
    (draft,) = domain.parse("3 km + 40 ft + 2 mi in m")
    turns = domain.solution(draft)
    assert draft.prompt == "How many m are 3 km + 40 ft + 2 mi?"
    assert [len(turn.reveals) for turn in turns] == [3, 1, 1, 0, 0]
    assert turns[-1].says == "6230.88 m" and draft.ground_truth == "6230.88 m"


CHANGES = (
    (" + ", " - ", "unparseable"),
    (" in ", " into ", "unparseable"),
    (" in ", " + 100 mi in ", "unparseable"),
    (" in ", " + 0 mi in ", "unparseable"),
    (" in ", " + 5 yd in ", "unparseable"),
    (" in ", " in\n", "unparseable"),
    (" in ", " + 2 {unit} in ", "inconsistent"),
    (" in ", " + 1 {other}" * 3 + " in ", "out_of_range"),
)


@pytest.mark.parametrize(("old", "new", "reason"), CHANGES, ids=range(len(CHANGES)))
def test_a_changed_generation_is_refused_with_its_reason(
    domain: Any, old: str, new: str, reason: str
) -> None:
    short = [d for d in domain.base_tasks(7, 60) if (d.difficulty < 3 or "{unit}" not in new)]
    changed = [d for d in short if old in d.program]
    assert len(changed) > 10
    for draft in changed:
        unit = draft.spec["unit"]
        other = next(one for one in ("m", "km") if one != unit)
        (found,) = domain.parse(draft.program.replace(old, new.format(unit=unit, other=other)))
        assert isinstance(found, Rejected) and found.reason == reason, draft.program


def test_no_mutated_generation_raises_or_is_flawed(domain: Any) -> None:
    rng = random.Random(0)
    accepted = 0
    for draft in domain.base_tasks(9, 100):
        text = list(draft.program)
        for _ in range(rng.randint(1, 3)):
            text[rng.randrange(len(text))] = rng.choice("0123456789 +kmftin\n{")
        (found,) = domain.parse("".join(text))
        if isinstance(found, TaskDraft):
            accepted += 1
            assert flaws(found, domain) == []
    assert accepted > 5


def test_options_with_errors(domain: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"domain.options.terms: .*got 7.* \(options of units: expl"
    ):
        type(domain)({"terms": 7})


@pytest.mark.parametrize(
    ("answer", "reward", "success"),
    [
        ("3012.19 m", 1, True),
        ("Final answer: 3,012.2 m.", 1, True),
        ("3012.192m", 1, True),
        ("3020 m", 0.45, False),
        ("301219 m", 0.45, False),
        ("3012.19", 0.9 * 2 / 3, False),
        ("3.01219 km", 0, False),
        ("m", 0, False),
        ("", 0, False),
    ],
)
def test_a_wrong_answer_earns_less(domain: Any, answer: str, reward: float, success: bool) -> None:
    (draft,) = domain.parse("3 km + 40 ft in m")
    verdict = answer_verdict(draft, domain, answer)
    assert (verdict.reward, verdict.success) == (pytest.approx(reward), success)


@pytest.mark.slow
def test_the_example_is_typed_strictly(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "units.py", tmp_path)
    (tmp_path / "use.py").write_text(
        "from units import Units\n"
        "from genenv_core.domains.protocol import Domain, KnowsSolution, SeedData\n"
        "domain: Domain = Units({})\n"
        "solved: KnowsSolution = Units({})\n"
        "seeds: SeedData = Units({})\n"
    )
    settings = {
        "strict": ["."],
        "extraPaths": [str(REPOSITORY)],
        "pythonVersion": "3.11",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "0 errors" in done.stdout


@pytest.mark.parametrize("package", ["genenv_core", "schemas"])
def test_the_packages_say_that_they_are_typed(package: str) -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    assert (REPOSITORY / package / "py.typed").is_file()
    assert "py.typed" in settings["tool"]["setuptools"]["package-data"][package]
