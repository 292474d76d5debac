"""An attempt beside the expected answer, without a server.

Invariants: in an attempt that failed, the first place where it parts from the expected answer is
marked in both; calls are compared as calls, texts by their words; what is equal is not marked.
"""

from __future__ import annotations

import pytest

from flows.view.parting import HeldAttempt, Piece, first_difference, held
from genenv_core.domains.tool_calls import written
from genenv_core.types import Message
from tests.mutations import mutation

PARTING = "flows/view/parting.py"
END = "(ends)"


def ship(total: int) -> str:
    return written({"name": "ship", "arguments": {"item": "nuts", "total": total}})


def attempt(*said: str, answer: str = "recorded") -> list[Message]:
    """Return an attempt of some turns, each with an answer of a tool."""
    messages: list[Message] = [{"role": "user", "content": "Ship nuts."}]
    for text in said:
        messages.append({"role": "assistant", "content": text})
        if "tool_call" in text:
            messages.append({"role": "tool", "name": "ship", "content": answer})
    return messages


def marked(one: HeldAttempt) -> tuple[list[str], list[str]]:
    """Return what is marked in the expected answer, and in what was said."""
    return _marks(one.expected), [mark for turn in one.said for mark in _marks(turn.pieces)]


def _marks(pieces: tuple[Piece, ...]) -> list[str]:
    return [END if piece.ends else piece.marked for piece in pieces if piece.ends or piece.marked]


@mutation(
    "a call that is too many is not marked", PARTING,
    "    if len(places) > len(calls):\n", "    if len(places) > len(calls) + 9:\n",
)  # fmt: skip
@mutation(
    "a call that is missing is not marked", PARTING,
    "    if len(places) < len(calls):\n", "    if len(places) < len(calls) - 9:\n",
)  # fmt: skip
@mutation(
    "a call is marked as a whole", PARTING,
    "return _marked(said, place, found[1]), _cut(wanted, n, found[0])",
    "return _marked(said, place, 0), _cut(wanted, n, 0)",
)  # fmt: skip
@mutation(
    "a text is compared from its beginning alone", PARTING,
    "starts = range(len(b)) if within", "starts = range(1) if within",
)  # fmt: skip
@pytest.mark.parametrize(
    ("expected", "said", "marks"),
    [
        (ship(5) + ship(7), [ship(5) + ship(17)], (["7)"], ["17)"])),
        (ship(5) + ship(7), [ship(5), ship(17)], (["7)"], ["17)"])),  # over two turns
        (ship(5) + ship(7), [ship(5)], (['ship(item="nuts", total=7)'], [END])),
        (ship(5) + ship(7), [ship(5) + "<tool_call>{no"],
         (['ship(item="nuts", total=7)'], ["<tool_call>{no"])),
        (ship(5), ["nothing to do"], (['ship(item="nuts", total=5)'], ["nothing to do"])),
        (ship(5), [ship(5), ship(7)], ([END], ['ship(item="nuts", total=7)'])),
        (ship(5), [ship(5)], ([], [])),  # failed for another reason
        ("42", ["41"], (["42"], ["41"])),
        ("42", ["The answer is 42."], ([], [])),
        ("mon 14:30", ["It is Mon 14:00, so."], (["30"], ["00, so."])),
        ("mon 14:30", [ship(5), "mon"], (["14:30"], [END])),
        ("yes", [ship(5)], (["yes"], [END])),
        ("yes", [], (["yes"], [])),
        ("", ["anything"], ([], [])),
    ],
)  # fmt: skip
def test_the_first_place_where_they_part_is_marked_in_both(
    expected: str, said: list[str], marks: tuple[list[str], list[str]]
):
    one = held(attempt(*said), expected, failed=True)
    if not said:
        assert one.said == ()
        return
    assert marked(one) == marks


@mutation(
    "an attempt that succeeded is marked", PARTING,
    "    if not failed or not wanted:\n", "    if not wanted:\n",
)  # fmt: skip
def test_what_did_not_fail_is_not_marked():
    assert marked(held(attempt(ship(1)), ship(2), failed=False)) == ([], [])


def test_nothing_of_an_attempt_is_lost():
    said = [ship(5) + ship(6), "so <b>", ship(8) + "<tool_call>{"]
    for expected in (ship(5) + ship(7), "text", ship(1) * 9, ""):
        plain = held(attempt(*said), expected, failed=False)
        parted = held(attempt(*said), expected, failed=True)
        whole = [[piece.text + piece.marked for piece in turn.pieces] for turn in parted.said]
        kept = [[text for text in turn if text] for turn in whole]
        assert kept == [[piece.text for piece in turn.pieces] for turn in plain.said]


@mutation(
    "equal answers of tools are each a turn of their own", "genenv_core/report/folding.py",
    "(before.parts, before.earned) == (turn.parts, turn.earned)", "before is turn",
)  # fmt: skip
def test_equal_answers_of_tools_are_one_turn():
    messages = attempt(ship(1) + ship(2) + ship(3))
    messages += [messages[-1], messages[-1], {"role": "tool", "name": "ship", "content": "full"}]
    messages.append({**messages[-1], "rewards": {"reward": 0.5, "speed": None}})
    one = held(messages, "", failed=False)
    assert [turn.role for turn in one.request] == ["user"]
    assert [(turn.role, turn.times) for turn in one.said] == [
        ("assistant", 1), ("tool", 3), ("tool", 1), ("tool", 1),
    ]  # fmt: skip
    assert [turn.earned for turn in one.said] == ["", "", "", "reward 0.5"]


@pytest.mark.parametrize(
    ("expected", "said", "within", "places"),
    [
        ("a b c", "a b c", False, None),
        ("a b c", "a  b\nc", False, None),
        ("a b c", "a x c", False, (2, 2)),
        ("a b", "A b", False, (0, 0)),
        ("a b", "A b", True, None),
        ("a b", "a b c", False, (None, 4)),
        ("a b", "a", False, (2, None)),
        ("", "", False, None),
        ("7", "17", True, (0, 0)),
        ("x " * 60, "y " + "x " * 60, True, (0, 0)),  # too long to be looked for inside
    ],
)
def test_where_two_texts_begin_to_differ(expected: str, said: str, within: bool, places):
    assert first_difference(expected, said, within=within) == places
