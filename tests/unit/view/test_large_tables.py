"""Which tables the pages of a root elsewhere open.

Invariants: a table of kind `payload` is opened for a question that names it, and then alone; in a
root on this machine every table is open.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flows.view import reading
from flows.view.reading import LARGE, Reader
from schemas.registry import TABLES
from tests.mutations import mutation

READING = "flows/view/reading.py"


@mutation(
    "a payload table is open in a root elsewhere", READING,
    'if one.kind == "payload")', 'if one.kind == "payload" and one.name != "trainer_logprobs")',
)  # fmt: skip
def test_every_table_of_payload_is_large() -> None:
    payload = {name for name, spec in TABLES.items() if spec.kind == "payload"}
    assert payload == LARGE and {"trace_tokens", "trainer_logprobs"} <= LARGE


@mutation(
    "pages of a root elsewhere open every table", READING,
    "if self._here else set(TABLES) - LARGE", "if self._here else set(TABLES)",
)  # fmt: skip
@pytest.mark.parametrize(("uri", "open_ones"), [("s3://b/r", {*TABLES} - LARGE), ("/r", {*TABLES})])
def test_a_root_elsewhere_is_opened_without_its_payload(
    uri: str, open_ones: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[set[str]] = []
    monkeypatch.setattr(reading, "sources", lambda *_, tables: opened.append(set(tables)) or [])
    store: Any = SimpleNamespace(uri=uri)
    Reader(store)._found(check=False)
    assert opened == [open_ones]


def test_a_question_that_names_a_payload_table_is_asked_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Reader, "apart", lambda _, sql, limits: asked.append(sql))
    monkeypatch.setattr(Reader, "_current", lambda _: SimpleNamespace(ask=lambda sql: None))
    store: Any = SimpleNamespace(uri="s3://b/r")
    questions = [
        f"SELECT * FROM {name} WHERE trace_id = 't'" for name in ("traces", *sorted(LARGE))
    ]
    for sql in questions:
        Reader(store).ask(sql)
    assert asked == questions[1:]
