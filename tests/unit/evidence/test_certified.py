"""The page of a certificate.

Invariants: it says each number of the certificate, and of each flaw what it is, what to do and an
attempt that shows it; no text of a task becomes a tag; it holds no clock, so equal tasks give
equal bytes; what cannot be played again is said; nothing is played after an error of the domain.
"""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from flows.cli.app import app
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.evidence.certified import CertifiedPage, render, verdict
from genenv_core.evidence.worth import RULES, Worth, WorthCheck
from genenv_core.evidence.written import read_examples
from genenv_core.play.checking.set_flaws import MEANINGS, NOT_FOUND, REMEDIES, AnyFlaw, SetFlaw
from genenv_core.play.checking.sets import (
    FLAWS,
    CertifiedTask,
    FlawCount,
    SetTask,
    certified,
    compared,
    counted,
)
from genenv_core.play.checking.showing import EXAMPLES, FlawExample, flaw_examples
from genenv_core.storage.sql.catalog import connect
from genenv_core.types import Flaw, TaskDraft
from tests.mutations import mutation
from tests.unit.builders_root import small_root
from tests.unit.builders_tables import world
from tests.unit.exchange.test_export import stored
from tests.unit.play.planted import Planted
from tests.unit.test_layers import REPOSITORY

PAGE = "genenv_core/evidence/certified.py"
TEMPLATE = "genenv_core/evidence/certified.html.j2"
SHOWING = "genenv_core/play/checking/showing.py"
WRITTEN = "genenv_core/evidence/written.py"
OUTPUTS = "flows/cli/data/certifying/certify_outputs.py"
HOSTILE = "<script>document.title=1</script><img src=x onerror=alert(1)>\u202e</details>"
_TAGS = """html head meta title style body header div h1 h2 h3 p nav a main dl dt dd table tr th td
b span section details summary code ul li svg rect circle br"""
TAGS = frozenset(_TAGS.split())


class TagReader(HTMLParser):
    """Collects the tags of a page, their attributes and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.words = set[str](), set[tuple[str, str]](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}

    def handle_data(self, data: str) -> None:
        self.words.append(data)


class Hostile(Planted):
    """Planted tasks whose requests hold tags, with the flaws of `plants`."""

    def task(self, number: int) -> TaskDraft:
        one = super().task(number)
        return replace(one, prompt=f"{one.prompt} {HOSTILE}")


def sets(domain: Any, count: int) -> list[CertifiedTask]:
    tasks = [SetTask("base", draft) for draft in domain.base_tasks(0, count)]
    found = list(certified(domain, tasks))
    whole = dict(compared(domain, found))
    return [whole[place] for place in range(count)]


def page_of(domain: Any, count: int = 9) -> str:
    found = sets(domain, count)
    given = CertifiedPage(
        "mine", "of mine", count, {"seed": "0"}, counted(found), flaw_examples(domain, found)
    )
    return render(given, version="0")


EVERY: Any = {"plants": {flaw: [number] for number, flaw in enumerate(Flaw)}}


@pytest.fixture(scope="module")
def hostile() -> str:
    return page_of(Hostile(EVERY))


def sound(text: str) -> None:
    """Assert that a page loads and runs nothing."""
    read = TagReader(text)
    assert read.tags <= TAGS
    assert "default-src 'none'" in text
    assert not [name for name, _ in read.attributes if name.startswith("on") or name == "src"]
    assert all(value.startswith("#") for name, value in read.attributes if name == "href")


@mutation("a task's text is markup on the page", TEMPLATE,
          "{{ example.prompt | clipped | visible }}",
          "{{ example.prompt | clipped | visible | safe }}")  # fmt: skip
def test_no_text_of_a_task_becomes_a_tag(hostile: str) -> None:
    sound(hostile)
    assert "<script>document.title=1</script>" in "".join(TagReader(hostile).words)
    assert "\u202e" not in hostile


@mutation("the page says no remedy", TEMPLATE, "{{ remedies[flaw][1] }}", "")
@mutation("the page has no limits", TEMPLATE, "{% for one in not_found %}", "{% for one in [] %}")
def test_the_page_says_each_flaw_with_its_remedy(hostile: str) -> None:
    words = " ".join("".join(TagReader(hostile).words).split())
    assert "9 of 9 tasks have a flaw: 100.0%, with a 95 % interval from 70.1% to 100.0%." in words
    for flaw in Flaw:
        assert f'<h3 id="{flaw}"' in hostile and f'href="#{flaw}"' in hostile
        assert words.count(MEANINGS[flaw]) == 2
        assert f"in {REMEDIES[flaw][0]}: {REMEDIES[flaw][1]}." in words
    assert words.count("1 of 911.1%") == 9
    assert all(one in words for one in NOT_FOUND)


def test_equal_tasks_give_equal_bytes(hostile: str) -> None:
    assert page_of(Hostile(EVERY)) == hostile


def test_the_words_of_the_page_are_whole() -> None:
    assert set(MEANINGS) == set(FLAWS) == set(REMEDIES)
    docs = " ".join((REPOSITORY / "docs/domain.md").read_text(encoding="utf-8").split())
    assert all(one in docs for one in NOT_FOUND)


@mutation("an example shows another answer", SHOWING,
          'if f"{text[:SHOWN]!r} " in detail or', "if text in detail or")  # fmt: skip
@mutation("a right attempt stands for one that fails", SHOWING,
          'if not one[1].endswith("a success.")', "if one")  # fmt: skip
@mutation("too many examples", SHOWING, ">= EXAMPLES", "> EXAMPLES")
def test_an_example_shows_the_attempt_that_the_check_found() -> None:
    plants = EVERY["plants"] | {Flaw.ACCEPTS_TRIVIAL: [2, 9, 10, 11, 12]}
    domain: Any = Planted({"plants": plants})
    examples = flaw_examples(domain, sets(domain, 13))
    assert {flaw: len(of) for flaw, of in examples.items()} == dict.fromkeys(Flaw, 1) | {
        Flaw.ACCEPTS_TRIVIAL: EXAMPLES
    }

    def said(flaw: AnyFlaw) -> list[str]:
        return [m["content"] for m in examples[flaw][0].messages if m["role"] == "assistant"]

    def came_to(flaw: AnyFlaw) -> str:
        return examples[flaw][0].verdict

    assert said(Flaw.LEAKS_ANSWER) == [] and "It is 77." in examples[Flaw.LEAKS_ANSWER][0].prompt
    assert said(Flaw.REJECTS_GROUND_TRUTH) == ["85"]
    assert came_to(Flaw.REJECTS_GROUND_TRUTH) == "It earns 0 and is no success (wrong)."
    assert (said(Flaw.ACCEPTS_TRIVIAL), came_to(Flaw.ACCEPTS_TRIVIAL)) == (
        ["ok"], "It earns 1 and is a success.",
    )  # fmt: skip
    assert said(Flaw.ACCEPTS_CANARY)[0].startswith("canary")
    assert came_to(Flaw.AMBIGUOUS) == "A step fails."
    assert came_to(Flaw.UNREACHABLE).startswith("It earns 0 and is no success")
    assert said(Flaw.UNKNOWN_TOOL) and said(Flaw.LEAKS_EARLY)
    assert any(m["role"] == "tool" for m in examples[Flaw.LEAKS_EARLY][0].messages)


@mutation("the earlier task is left out", SHOWING, "if other is not None:", "if not other:")
def test_a_task_that_is_there_twice_is_shown_beside_the_other() -> None:
    class Twice(Planted):
        def base_tasks(self, seed: int, count: int) -> list[TaskDraft]:
            tasks = super().base_tasks(seed, count)
            return [*tasks[:-1], replace(tasks[0], fingerprint="another")]

    domain: Any = Twice({})
    ((flaw, (example,)),) = flaw_examples(domain, sets(domain, 4)).items()
    assert flaw is SetFlaw.DUPLICATE and example.beside == "What is 7 times 11?"
    assert example.messages[-1]["content"] == "77" and "a success" in example.verdict


def test_what_cannot_be_played_again_is_said() -> None:
    domain: Any = Planted(EVERY)
    found = sets(domain, 9)
    domain.episode = domain.agent_messages = None
    for examples in flaw_examples(domain, found).values():
        assert examples[0].verdict.startswith(("The attempt cannot be played again: ", "It cannot"))
        assert not examples[0].messages


COUNT = FlawCount(None, 30, 0, 0.0, 0.114)


@mutation("an early end is not said", PAGE, "* (whole.checked < given.asked)", "* 0")
def test_the_verdict_is_one_sentence() -> None:
    given = CertifiedPage("mine", "", 40, {}, [COUNT], {})
    assert verdict(given) == (
        "No flaw was found in 30 tasks; of many more such tasks, the 95 % interval says that "
        "at most 11.4% have one. "
        "It ended early: 40 were to be certified."
    )
    assert verdict(replace(given, flaws=[])).startswith("Nothing is known of flaws")


@mutation("a check is not explained", TEMPLATE, "{{ check.rule.explains }}", "")
def test_checks_of_attempts_are_explained() -> None:
    numbers = {Worth.PASS: (0.95, 0.92, 0.97), Worth.FAIL: (0.01, 0.0, 0.04)}
    checks = [WorthCheck(name, *numbers[Worth.PASS], 90) for name in RULES if name != "floor"]
    checks += [WorthCheck("floor", None, None, None, 0), WorthCheck("floor", 0.95, 0.9, 1.0, 9)]
    given = CertifiedPage("mine", "", 1, {}, [COUNT], {}, checks=checks)
    text = render(given, version="0")
    sound(text)
    words = " ".join("".join(TagReader(text).words).split())
    assert "Of 8 checks of the attempts, 6 pass, 1 fail, 1 cannot say." in words
    assert all(rule.explains in words for rule in RULES.values())
    assert "headroom: pass" in words and "floor: cannot say" in words and "floor: fail" in words
    assert words.count(f"What to do: {RULES['floor'].remedy}.") == 1
    assert "95.0%, interval 92.0 to 97.0% of 90 tasks, wanted at least 90%" in words
    assert "no interval of 0 tasks, wanted at most 5%" in words


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["certify", *map(str, words)])


PLACE = "tests.unit.play.planted:Planted"


@mutation("a page is written after an error alone", OUTPUTS, "if self.page is None:",
          "if self.page is None or True:")  # fmt: skip
def test_the_command_writes_the_page_of_a_domain(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    options = "domain.options={plants: {accepts_trivial: [1]}}"
    words = [PLACE, "--tasks", "3", "--heldout", "0", "--set", options, "--page", file]
    done = command(*words)
    assert isinstance(done.exception, GenenvError) and done.exception.exit_status == 1
    first = file.read_bytes()
    sound(first.decode())
    assert b"accept" in first and b"sevens, version 1" in first
    assert b"--tasks 3 --heldout 0" in first
    command(*words)
    assert file.read_bytes() == first


def test_nothing_is_played_after_an_error_of_the_domain(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    options = "domain.options={plants: {accepts_trivial: [0]}, breaks: {2: raises}}"
    done = command(PLACE, "--tasks", "4", "--heldout", "0", "--set", options, "--page", file)
    assert isinstance(done.exception, GenenvError) and "no such number" in str(done.exception)
    text = file.read_text(encoding="utf-8")
    assert "It ended early: 4 were to be certified." in text
    assert "&#39;ok&#39; is a success" in text and "the attempt that shows it" not in text


def test_the_command_writes_the_page_of_a_run(tmp_path: Path) -> None:
    small_root(tmp_path / "root")
    file = tmp_path / "page.html"
    done = command("--run", "run-a", "--root", tmp_path / "root", "--page", file)
    assert done.exit_code == 0, done.output
    text = file.read_text(encoding="utf-8")
    sound(text)
    words = " ".join("".join(TagReader(text).words).split())
    assert "No flaw was found in 6 tasks" in words and "epochs 1 to 2" in words
    assert "genenv certify --run run-a" in words
    assert all(f"{name}: " in words for name in RULES)


@mutation(
    "examples are those of sound tasks", WRITTEN,
    "AND {_WRITTEN} AND NOT c.passed\nQUALIFY", "AND {_WRITTEN} AND c.passed\nQUALIFY",
)  # fmt: skip
@mutation("a run's examples are without number", WRITTEN, "<= {EXAMPLES}", "> 0")
def test_a_run_has_its_first_tasks_with_a_flaw(tmp_path: Path) -> None:
    given = world()
    fits = (pl.col("flaw") == "accepts_trivial") & (pl.col("task_id") != "e0001-t000000")
    given["certificates"] = given["certificates"].with_columns(
        passed=~fits, detail=pl.when(fits).then(pl.lit("'ok' is a success")).otherwise(pl.lit(""))
    )
    with connect([stored(tmp_path / "tables", given)]) as con:
        found = read_examples(con, "run-a")
        later = read_examples(con, "run-a", (2, 9))
    assert [one.fingerprint for one in found[Flaw.ACCEPTS_TRIVIAL]] == [
        "e0001-t000001", "e0001-t000002", "e0002-t000000",
    ]  # fmt: skip
    assert found.keys() == {Flaw.ACCEPTS_TRIVIAL} and len(later[Flaw.ACCEPTS_TRIVIAL]) == 3
    assert found[Flaw.ACCEPTS_TRIVIAL][0].detail == "'ok' is a success"


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (
            ["--page", "no/such/page.html"],
            ConfigError,
            "--page no/such/page.html: there is no",
        ),
        (["--page", "a.csv", "-o", "a.csv"], ConfigError, "is the file of -o too: give each its"),
        (["--page", "/"], ConfigError, "--page /: it is a directory: name a file in it"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused(
    words: list[str], error: type[GenenvError], said: str
) -> None:
    done = command("arithmetic", "--tasks", "1", "--heldout", "0", *words)
    assert isinstance(done.exception, error) and said in str(done.exception)


def test_a_long_text_is_clipped() -> None:
    example = FlawExample("x" * 5000, "y")
    given = CertifiedPage("mine", "", 1, {}, [COUNT], {Flaw.LEAKS_ANSWER: [example]})
    text = render(given, version="0")
    assert "and 1000 more characters" in text and "x" * 4001 not in text
