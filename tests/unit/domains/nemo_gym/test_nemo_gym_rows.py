"""Rows of NeMo Gym as tasks, and the agent's turns as actions, without a server.

Invariants: what the agent reads of a row is what the row asks with, in chat messages; a row that
cannot be played is refused with its line; the agent can reach no route but those of its tools.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genenv_core.domains.nemo_gym.facts import NEEDED
from genenv_core.domains.nemo_gym.rows import GymRow, _lines, read_rows
from genenv_core.domains.nemo_gym.turns import GymForm, TurnLog
from genenv_core.domains.tool_calls import written
from genenv_core.errors import ConfigError
from tests.mutations import mutation
from tests.unit.domains.nemo_gym.double import HINT, row

CALL = written({"name": "hint", "arguments": {"loud": True}})


def rows_of(folder: Path, *rows: Any, field: str | None = None) -> dict[str, list[GymRow]]:
    path = folder / "rows.jsonl"
    path.write_text("\n\n".join(one if isinstance(one, str) else json.dumps(one) for one in rows))
    return read_rows(path, field, "train")


def asked(given: Any, **more: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": given, **more}, "right": "7"}


def test_rows_have_the_split_that_they_say(tmp_path: Path) -> None:
    given = [row("train", 0), row("test", 0), row("train", 1)]
    found = rows_of(tmp_path, *given, field="split")
    assert {name: [one.fields for one in rows] for name, rows in found.items()} == {
        "train": [given[0], given[2]],
        "test": [given[1]],
    }
    assert [len(rows) for rows in rows_of(tmp_path, *given).values()] == [3]
    with pytest.raises(ConfigError, match=r"line 1: its field 'right' is 7: name a field"):
        rows_of(tmp_path, {**asked("?"), "right": 7}, field="right")


def test_a_request_of_the_responses_api_becomes_chat_messages(tmp_path: Path) -> None:
    said: Any = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What?"}]},
        {"type": "reasoning", "summary": []},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Which?"}]},
        {"type": "function_call", "name": "hint", "arguments": '{"loud": true}', "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "two digits"},
        {"role": "user", "content": [{"type": "input_image"}, {"type": "text", "text": "This."}]},
    ]
    found = rows_of(tmp_path, asked(said, instructions="Add."), asked("4 ="))["train"]
    assert found[0].messages == (
        {"role": "system", "content": "Add.\n\nBe brief."},
        {"role": "user", "content": "What?"},
        {"role": "assistant", "content": "Which?"},
        {"role": "assistant", "content": CALL},
        {"role": "tool", "content": "two digits"},
        {"role": "user", "content": "[input_image]\nThis."},
    )
    assert found[0].prompt.startswith("What?\n\nWhich?") and "brief" not in found[0].prompt
    assert found[1].messages == ({"role": "user", "content": "4 ="},)


@mutation(
    "the agent may call any route of a server", "genenv_core/domains/nemo_gym/rows.py",
    "if not _NAME.fullmatch(name) or name in ROUTES:", "if not name:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 1 is no JSON: Expecting property name"),
        ("[" * 100_000, "line 1 is no JSON: maximum recursion depth"),
        ("[1]", "line 1 is no JSON object: it holds [1]; write a row as an object on one line"),
        ({"right": "7"}, "responses_create_params.input has no message of a user"),
        (asked([{"role": "system", "content": "a"}]), "has no message of a user"),
        (asked([{"type": "item_reference", "id": "a"}]), "an item that is no message"),
        (asked([{"role": "tool", "content": "a"}]), "an item that is no message"),
        (
            asked([{"type": "function_call", "name": "a", "arguments": "{"}]),
            "the call of 'a' has arguments that are no JSON",
        ),
        (asked("?", tools=[{"type": "web_search"}]), "only functions can be called"),
        (asked("?", tools=[{**HINT, "name": "../verify"}]), "a tool is named '../verify'"),
        *((asked("?", tools=[{**HINT, "name": one[1:]}]), "a tool is named") for one in NEEDED),
    ],
)
def test_a_row_that_cannot_be_played_is_refused(tmp_path: Path, line: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=r"domain\.options\.rows: .*") as refused:
        rows_of(tmp_path, line)
    assert why in str(refused.value)


@mutation(
    "a line's end inside a text ends the row", "genenv_core/domains/nemo_gym/rows.py",
    "lines = path.read_bytes().splitlines()",
    "lines = [line.encode() for line in path.read_text().splitlines()]",
)  # fmt: skip
def test_a_text_may_hold_what_unicode_calls_a_lines_end(tmp_path: Path) -> None:
    asks = "One.\u2028Two.\x85"
    found = rows_of(tmp_path, json.dumps(asked(asks), ensure_ascii=False))["train"]
    assert [one.prompt for one in found] == [asks]


def test_a_line_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"right": "7"}\n{"right": "\xe4"}\n')
    with pytest.raises(ConfigError, match=r"rows\.jsonl, line 2 is no JSON: 'utf-8' codec"):
        list(_lines(tmp_path / "rows.jsonl"))


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rows\.jsonl has no rows"):
        rows_of(tmp_path, "")
    with pytest.raises(ConfigError, match="nowhere cannot be read"):
        read_rows(tmp_path / "nowhere", None, "train")
    (tmp_path / "packed").write_bytes(b"\x1f\x8b\xff")
    with pytest.raises(ConfigError, match=r"packed, line 1 is no JSON: "):
        read_rows(tmp_path / "packed", None, "train")


@mutation(
    "an agent without tools has its calls read", "genenv_core/domains/nemo_gym/turns.py",
    "in_order(said) if self.tools else (said.strip(), [])", "in_order(said)",
)  # fmt: skip
def test_a_turn_without_a_call_is_the_end() -> None:
    tool = {"name": "hint", "description": None, "input_schema": HINT["parameters"]}
    form = GymForm([tool])
    end = {"said": {"text": "7", "calls": []}}
    assert form.actions("<think>3 + 4</think> 7") == [("", end)]
    said = {"text": "a", "calls": [("hint", '{"loud": true}')] * 2}
    call = {"name": "hint", "arguments": {"loud": True}}
    assert form.actions(f"a{CALL}{CALL}") == [("hint", {"said": said, **call}), ("hint", call)]
    assert GymForm([]).actions(CALL) == [("", {"said": {"text": CALL, "calls": []}})]
    assert (form.role_of("hint"), form.role_of("")) == ("tool", "user")


def test_calls_that_nobody_answered_stay_open() -> None:
    log = TurnLog()
    log.hear({"text": "", "calls": [["hint", "{}"], ["hint", "{}"]]})
    log.answer("one")
    log.hear({"text": "7", "calls": []})
    items = log.response([])["output"]
    kinds = ["function_call", "function_call", "function_call_output", "message"]
    assert [one["type"] for one in items] == kinds
    assert [one.get("call_id") for one in items] == ["call_1", "call_2", "call_1", None]
