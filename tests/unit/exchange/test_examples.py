"""Examples of a warm start from a file.

Invariants: a bad row is refused with its line, field and value; each policy that is wanted has
enough of them; without a file the domain has to make them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.errors import ConfigError, DataError
from genenv_core.exchange.examples.files import LEAST, read_examples
from genenv_core.exchange.examples.given import warm_start_input
from genenv_core.storage.records.manifest import ExamplesRef, FileRef
from genenv_core.types import Policy
from tests.mutations import mutation
from tests.unit.plugged import add_own_domain, domain_of

EXAMPLES = "genenv_core/exchange/examples/files.py"
PROMPT = [{"role": "user", "content": "4 + 2"}]
GOOD: dict[str, Any] = {"policy": "agent", "messages": PROMPT, "answer": "6"}


def written(path: Path, rows: list[Any]) -> Path:
    file = path / "examples.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


def test_examples_are_read_by_policy_in_their_order(tmp_path: Path) -> None:
    rows = [GOOD, GOOD | {"policy": "env", "answer": "3 + 5"}, GOOD | {"answer": "7"}]
    found = read_examples(written(tmp_path, rows), ())
    assert found[Policy.AGENT] == [(PROMPT, "6"), (PROMPT, "7")]
    assert found[Policy.ENV] == [(PROMPT, "3 + 5")]


@mutation(
    "an example without an answer is taught", EXAMPLES,
    "if not isinstance(answer, str) or not answer.strip():", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("row", "words"),
    [
        (GOOD | {"policy": "pi_env"}, "\"policy\" is 'pi_env', expected agent or env"),
        (GOOD | {"answer": " "}, "\"answer\" is ' ', expected a text"),
        (GOOD | {"answer": 6}, '"answer" is 6, expected a text'),
        (GOOD | {"messages": "4 + 2"}, "\"messages\" is '4 \\+ 2', expected a list"),
        (
            GOOD | {"messages": [*PROMPT, {"role": "bot", "content": ""}]},
            "\"messages.1\" is {'role': 'bot', 'content': ''}, expected role",
        ),
        ([1], "is .*expected a JSON object"),
    ],
)
def test_a_bad_row_is_refused_with_line_field_and_value(
    tmp_path: Path, row: Any, words: str
) -> None:
    with pytest.raises(DataError, match=rf"examples\.jsonl:2: .*{words}"):
        read_examples(written(tmp_path, [GOOD, row]), ())


@mutation(
    "a warm start begins with too few examples", EXAMPLES,
    "if len(found[policy]) < LEAST:", "if not found[policy]:",
)  # fmt: skip
def test_each_given_policy_needs_some(tmp_path: Path) -> None:
    file = written(tmp_path, [GOOD] * LEAST + [GOOD | {"policy": "env"}] * (LEAST - 1))
    assert read_examples(file, [Policy.AGENT])
    with pytest.raises(DataError, match=r"has 7 rows of policy env, and a warm start of models\.e"):
        read_examples(file, list(Policy))


def test_without_a_file_the_domain_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["models.agent=./a", "warm_start.steps=6"]
    assert announced(resolve("tiny")) is None
    assert announced(resolve("tiny", overrides=given)) is None
    file = written(tmp_path, [GOOD] * LEAST)
    named = announced(resolve("tiny", overrides=[*given, f"warm_start.examples={file}"]))
    assert named is not None and named.path == str(file)
    add_own_domain(monkeypatch, "bare", f"{__name__}:Bare")
    with pytest.raises(ConfigError, match="the domain bare makes no examples"):
        announced(resolve("tiny", overrides=[*given, "domain={name: bare, options: {}}"]))


def announced(config: RunConfig) -> FileRef | ExamplesRef | None:
    """Return where the examples of a run of its domain lie."""
    return warm_start_input(config, domain_of(config))


class Bare:
    """A domain without seed data."""

    name, version, tools = "bare", "1", ()

    def __init__(self, options: dict[str, Any]) -> None: ...
