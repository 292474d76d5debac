"""Where a fault of a domain is: its method, its turn, its task and what was said, in check and run.

The domain is the calendar of docs/examples, with one line of it broken as authors break them.
Invariants: `domain check` names the method, the turn with its call, the task, and what to do; a run
stores the same in the error of an attempt; errors that differ in their places alone count as one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from genenv_core.domains.registry import get_domain
from genenv_core.domains.steps import LONGEST, broken, reason, shortly, stepped
from genenv_core.errors import DomainError
from genenv_core.play.checking.domain_checks import check_domain
from genenv_core.types import Cause, Observation
from tests.mutations import mutation

STEPS = "genenv_core/domains/steps.py"
SOLVED = "genenv_core/domains/kit/solved.py"
KIT_DOMAIN = "genenv_core/domains/kit/kit_domain.py"
DIARY = Path("docs/examples/diary.py").read_text(encoding="utf-8")
SMALL = {"base": 6, "heldout": 3}
Broken = Callable[[str, str], str]


@pytest.fixture
def broken_diary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broken:
    """Return what writes the calendar with one text in the place of another, and its name."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    file = tmp_path / f"diary_{tmp_path.name}.py"

    def write(old: str, new: str) -> str:
        assert DIARY.count(old) == 1
        file.write_text(DIARY.replace(old, new), encoding="utf-8")
        return f"{file}:Diary"

    return write


MOVED = 'return "moved"'
STATE = 'return Calendar({n: Meeting(*rest) for n, *rest in draft.spec["held"]})'
HOUR = "number=number, b=b, hour=hour)\n\n"
TURN = ("turn 3 of solve, move(number=", "at 'move ", "task 'move my meeting with")
TASK = "task 'move my meeting with"
FITS_NOT = ("draw made 'move ", "which does not fit pattern 'Move (", "mend one of the two")
READ = ("read failed: ValueError: ", "it was to read 'move ", "which draw made: mend read")


@mutation(
    "a right attempt that fails has no turn", SOLVED, 'f"{self.name}: turn {turn} of', 'f"turn of'
)
@mutation(
    "a pattern that fits no program is blamed on read", KIT_DOMAIN,
    "if self.pattern and not re.fullmatch(self.pattern, program.strip()):", "if False:",
)  # fmt: skip
@mutation(
    "a read that raises is blamed on draw", KIT_DOMAIN,
    "if found.detail.startswith(_READ_FAILED):", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("old", "new", "method", "words"),
    [
        (MOVED, 'raise RuntimeError("fire")', "solution", (*TURN, "RuntimeError: fire")),
        (MOVED, 'raise ConnectionError("x")', "solution", (*TURN, "ConnectionError: x (diary_")),
        (MOVED, 'return "x" * 2_000_000', "solution", (*TURN, "2,000,000 characters, 2")),
        (MOVED, 'return {"slots": [1, b"x"]}', "solution", (*TURN, """["slots"][1] is b'x'""")),
        (STATE, 'raise OSError("none")', "solution", ("raised OSError: none (diary_", TASK)),
        ("wanted, spec = ", "raise OSError('ill')\n        wanted, spec = ", "score",
         ("raised OSError: ill (diary_", "for the answer move(number=", TASK)),
        ("request = f", 'request = "y" * 2_000_000 + f', "agent_messages", ("has 2,000,0",)),
        ('pattern = r"move', 'pattern = r"Move', "base_tasks", FITS_NOT),
        ("_, who, a, _, b, level, _ = text", "_, who, a, _, b, level = text", "base_tasks", READ),
        (HOUR, HOUR.replace(")", ', slots=[1, {"a": {1}}])', 1), "base_tasks",
         ("""the task's spec: ["slots"][1]["a"] is {1} (set): keep JSON in it""",)),
    ],
)  # fmt: skip
def test_the_check_names_method_turn_task_and_call(
    broken_diary: Broken, old: str, new: str, method: str, words: tuple[str, ...]
) -> None:
    (fault,) = check_domain(broken_diary(old, new), {}, **SMALL)
    assert fault.method == method and fault.remedy
    assert [one for one in words if one not in fault.found] == [], fault.found


def test_a_pattern_that_is_none_and_any_arguments_are_refused(broken_diary: Broken) -> None:
    with pytest.raises(DomainError, match=r"pattern 'move \(\(ana.* is no regular expression"):
        get_domain(broken_diary('r"move (', 'r"move (('))


@dataclass
class Asked:
    """A tool environment of one answer."""

    answer: Any

    def step(self, action: str) -> Observation:
        if isinstance(self.answer, Exception):
            raise self.answer
        return Observation(({"role": "tool", "content": self.answer},), done=False)


CALL = '<tool_call>{"name": "move", "arguments": {"number": 7}}</tool_call>'


@mutation(
    "an observation of any length is taken", STEPS, "if longest <= LONGEST:", "if True:",
)  # fmt: skip
@mutation(
    "the error of an attempt does not say its turn", STEPS,
    "in step, turn {turn} of task {task_id}", "in step of task {task_id}",
)  # fmt: skip
def test_the_error_of_an_attempt_says_where() -> None:
    seen = stepped(Asked(OSError("disk on fire")).step, CALL)
    why = broken(seen, "t7", 3, CALL)
    assert why == (
        "the environment failed: OSError: disk on fire; in step, turn 3 of task t7, on "
        "move(number=7)"
    )
    assert reason(why) == "the environment failed: OSError: disk on fire"
    assert reason(broken(seen, "t8", 1, "go")) == reason(why)
    assert broken(seen, "t7", 0).endswith("disk on fire; in episode of task t7")
    long = stepped(Asked("x" * (LONGEST + 1)).step, CALL)
    assert long.failed and long.cause is Cause.ENVIRONMENT
    assert "ValueError: a message has 200,001 characters, 200,000 at most: return less" in broken(
        long, "t7", 1, CALL
    )
    assert not stepped(Asked("x" * LONGEST).step, CALL).failed


def test_what_was_said_is_shortened() -> None:
    assert shortly(" a\n b ") == "a b" and shortly("") == "an empty text"
    assert shortly("a" * 999) == "a" * 120 + "..."
