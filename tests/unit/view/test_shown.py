"""Values as the pages of `genenv view` show them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from flows.view import shown as of_view
from flows.view.shown import LONGEST, cell, shown
from genenv_core.report.words import whole
from tests.mutations import mutation


@mutation(
    "numbers of a page are not those of its SQL", "flows/view/shown.py",
    "        return number(value) if math.isfinite(value) else str(value)\n",
    "        return number(value + 1) if math.isfinite(value) else str(value)\n",
)  # fmt: skip
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (12345, "12,345"),
        (0.5, "0.500"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (datetime(2026, 11, 24, 4, 5, 6, tzinfo=UTC), "2026-11-24 04:05:06"),
        (date(2026, 11, 24), "2026-11-24"),
        ([1, "a", None], "1, a, "),
        ("x" * 1000, "x" * LONGEST + "…"),
        ([7] * 1000, ("7, " * LONGEST)[:LONGEST] + "…"),
    ],
)
def test_values_as_pages_show_them(value: Any, text: str):
    assert shown(value) == text


def test_a_cell_is_text_and_ids_lead_to_their_pages():
    assert cell("<b>") == '<td class="s">&lt;b&gt;</td>'
    assert cell(3) == '<td class="n">3</td>'
    assert 'href="/runs/a%2Fb/tasks/t%2F1"' in cell("t/1", "task_id", "a/b")
    assert "href" not in cell("t/1", "task_id")
    assert 'href="/runs/r"' in cell("r", "computed_by")
    assert 'href="/runs/r/tasks/t0"' in cell("t0", "base_task_id", "r")


def test_only_the_beginning_of_a_long_text_is_looked_at(monkeypatch: pytest.MonkeyPatch):
    looked: list[int] = []
    monkeypatch.setattr(of_view, "visible", lambda text: looked.append(len(text)) or text)
    cell("x" * 10_000_000)
    assert looked and max(looked) <= LONGEST


@mutation(
    "a whole difficulty has digits after the point", "genenv_core/report/words.py",
    "isinstance(value, float) and value.is_integer()", "isinstance(value, float) and value > 1e9",
)  # fmt: skip
def test_whole_difficulties_are_whole_numbers():
    assert [whole(value) for value in (4.0, 1.36875, None)] == ["4", "1.37", ""]
    assert cell(4.0, "difficulty") == '<td class="n">4</td>' != cell(4.0, "p_hat")
