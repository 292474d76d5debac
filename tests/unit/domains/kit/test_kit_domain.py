"""Domains made of parts.

Invariants: three methods make a domain, and `solve` adds what needs a solution; base tasks, seed
examples and the example in pi_env's rules are outside the held-out bucket; `parse` never raises;
what an author gets wrong is an error that names it; rules are shown where they are asked for;
solutions are played against the tools and reveal what these say first; a certificate looks for all
flaws, and finds one in an author's tools.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from genenv_core.config.sections.curriculum import GenerationConfig
from genenv_core.domains.kit import (
    Bounds,
    Options,
    ProgramDomain,
    SolvedDomain,
    Solving,
    Tools,
    call,
    judges,
    task,
)
from genenv_core.domains.parts import in_heldout
from genenv_core.domains.protocol import KnowsSolution, SeedData, SolutionTurn, WritesAnswers
from genenv_core.epoch.writing.generation import grammar_of
from genenv_core.errors import ConfigError, DomainError
from genenv_core.play.certificate import certify
from genenv_core.types import (
    AgentHistory,
    Context,
    Flaw,
    Grammar,
    Rejected,
    Rejection,
    TaskDraft,
    Verdict,
)
from tests.mutations import mutation
from tests.unit.domains.checking import flaws

DOMAIN = "genenv_core/domains/kit/kit_domain.py"
SOLVED = "genenv_core/domains/kit/solved.py"


@dataclass
class Purse:
    """What one attempt has taken out."""

    coins: list[int]
    taken: int = 0


def take(purse: Purse) -> str:
    """Take the next coin."""
    purse.taken += 1
    return f"a coin of {purse.coins[purse.taken - 1]}"


class PurseOptions(Options):
    coins: int = 3


class Counting(ProgramDomain[PurseOptions]):
    """Counts the coins of a purse; nobody says how."""

    name, version, options_type = "counting", "1", PurseOptions
    toolbox = Tools(take, state=Purse)
    pattern = r"\d+( \d+)+"

    def levels(self) -> int:
        return self.options.coins

    def draw(self, rng: random.Random, level: int) -> str:
        return " ".join(str(rng.randint(21, 99)) for _ in range(level + 1))

    def read(self, text: str) -> TaskDraft | Rejected:
        coins = [int(coin) for coin in text.split()]
        if 0 in coins:
            return Rejected(Rejection.INCONSISTENT, "a coin of 0")
        total = str(sum(coins))
        return task(
            " ".join(map(str, coins)),
            f"There are {len(coins)} coins. What are they worth?",
            total,
            len(coins) - 1,
            coins=tuple(coins),
        )

    def state(self, draft: TaskDraft, seed: int) -> Any:
        return Purse(draft.spec["coins"])

    def judge(self, draft: TaskDraft, answer: str) -> Verdict:
        return judges.number(answer, sum(draft.spec["coins"]))


class Solved(Counting, SolvedDomain[PurseOptions]):
    """Takes them one by one."""

    name = "solved"

    def solve(self, draft: TaskDraft) -> Solving | str:
        total = 0
        for _ in range(int(draft.prompt.split()[2])):
            said = yield call(take)
            total += int(said.split()[3])
        return str(total)


def context(domain: ProgramDomain[PurseOptions], rate: float | None = None) -> Context:
    return Context("c", "t", domain.base_tasks(0, 1)[0], AgentHistory(rate))


def test_three_methods_make_a_domain_and_solve_adds_what_needs_a_solution() -> None:
    plain, solved = Counting(), Solved({"coins": 4})
    assert not isinstance(plain, KnowsSolution | SeedData | WritesAnswers)
    assert isinstance(solved, KnowsSolution) and isinstance(solved, SeedData)
    for domain in (plain, solved):
        for draft in [*domain.base_tasks(1, 40), *domain.heldout_tasks(1, 20)]:
            assert flaws(draft, domain) == []
            assert domain.parse(f" {draft.program}\n") == [draft]
    looked_for = {check.flaw for check in certify(solved.base_tasks(1, 1)[0], solved)}
    assert looked_for == set(Flaw)


def test_the_domain_of_an_authors_options_refuses_others() -> None:
    with pytest.raises(ConfigError, match=r"domain.options.coins: .*got 'x'.*coins"):
        Counting({"coins": "x"})
    with pytest.raises(ConfigError, match=r"domain.options.colour"):
        Counting({"colour": 1})

    class Bare(ProgramDomain[Options]):
        name, version = "bare", "1"
        draw = read = judge = None  # pyright: ignore

    assert Bare().options == Options() and Bare({"explain": False}).options.explain is False
    with pytest.raises(ConfigError, match=r"options of bare: explain\)"):
        Bare({"coins": 1})


@pytest.mark.parametrize("seed", range(3))
def test_nothing_but_heldout_tasks_is_of_the_heldout_bucket(seed: int) -> None:
    domain = Solved()
    base, held = domain.base_tasks(seed, 150), domain.heldout_tasks(seed, 90)
    assert len({draft.program for draft in [*base, *held]}) == 240
    assert not any(in_heldout(draft.program) for draft in base)
    assert all(in_heldout(draft.program) for draft in held)
    levels = [sum(draft.difficulty == level for draft in held) for level in (1, 2, 3)]
    assert max(levels) - min(levels) <= 60 and sum(d.difficulty < 2 for d in base) > 30
    written = [program for _, program in domain.env_examples(seed, 100, 0.5)]
    shown = [p for p in _texts(domain.env_examples(seed, 100, 0.5)) if "base: " in p]
    bases = [text.rpartition("base: ")[2].partition(" ;")[0] for text in shown]
    assert len(bases) == 100 and not any(map(in_heldout, [*written, *bases]))
    assert domain.base_tasks(seed, 150) == base and domain.heldout_tasks(seed, 90) == held


def _texts(examples: list[Any]) -> list[str]:
    return [messages[-1]["content"] for messages, _ in examples]


def test_too_few_programs_are_an_error_that_names_the_options() -> None:
    domain = Solved({"coins": 1})
    with pytest.raises(ConfigError, match="held-out tasks with coins 1, 5000 wanted"):
        domain.heldout_tasks(0, 5000)


@mutation(
    "what an author's reader raises ends the stage", DOMAIN,
    "        except FAILURES as error:\n            found = Rejected",
    "        except OSError as error:\n            found = Rejected",
)  # fmt: skip
@mutation(
    "a task above the levels is in range", DOMAIN,
    "found.difficulty > self.levels()", "found.difficulty > 99",
)  # fmt: skip
@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("20 x", Rejection.UNPARSEABLE, "no program: '20 x'"),
        ("", Rejection.UNPARSEABLE, "no program: ''"),
        ("20 30 40 50 60", Rejection.OUT_OF_RANGE, "level 4, at most 3"),
        ("20 0", Rejection.INCONSISTENT, "a coin of 0"),
        ("9" * 5000 + " 1", Rejection.UNPARSEABLE, "read failed: ValueError: "),
    ],
)
def test_a_text_that_is_no_program_has_a_reason(text: str, reason: str, detail: str) -> None:
    (found,) = Counting().parse(text)
    assert isinstance(found, Rejected)
    assert found.reason == reason and found.detail.startswith(detail) and len(found.detail) < 240


def test_what_is_written_can_be_held_to_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    context: Any = None
    held = grammar_of(Counting(), GenerationConfig(structured=True))
    assert held(context) == Grammar("regex", r"\d+( \d+)+")
    monkeypatch.setattr(Counting, "pattern", "")
    with pytest.raises(ConfigError, match="the domain counting has no pattern"):
        held(context)


def test_rules_are_shown_where_they_are_asked_for() -> None:
    class Ruled(Solved):
        agent_rules = "Count the coins."
        env_rules = "A program is coins."

    told = Ruled()
    agent = told.agent_messages(told.base_tasks(0, 1)[0])
    assert [message["role"] for message in agent] == ["system", "user"]
    assert agent[0]["content"].startswith("Count the coins.\ntake(): Take the next coin.\nA call")
    env = told.env_messages(context(told, 0.72))
    assert env[1]["content"] == f"success 7/10; base: {context(told).base.program} ; new:"
    rules = env[0]["content"].splitlines()
    assert rules[0] == "A program is coins." and rules[-2].startswith("success 9/10; base: ")
    shown = [rules[-2].removeprefix("success 9/10; base: ").removesuffix(" ; new:"), rules[-1]]
    (easy,), (hard,) = map(told.parse, shown)
    assert isinstance(easy, TaskDraft) and isinstance(hard, TaskDraft)
    assert easy.difficulty < hard.difficulty
    assert not in_heldout(easy.program) and not in_heldout(hard.program)
    plain = Ruled({"explain": False})
    assert plain.agent_messages(plain.base_tasks(0, 1)[0]) == agent[1:]
    assert plain.env_messages(context(plain, 0.72)) == env[1:]
    assert "none" in plain.env_messages(context(plain))[0]["content"]
    assert [m["role"] for m in Solved().env_messages(context(plain))] == ["user"]  # there are none


def test_the_spec_is_as_storage_gives_it_back() -> None:
    assert Counting().base_tasks(0, 1)[0].spec["coins"].__class__ is list


@mutation(
    "an answer of a tool is revealed again and again", SOLVED,
    "bool(part) and part not in heard and not holds(known, part)",
    "bool(part) and not holds(known, part)",
)  # fmt: skip
def test_a_solution_reveals_what_the_tools_say_first() -> None:
    (draft,) = Solved().parse("40 30 40")
    assert isinstance(draft, TaskDraft)
    assert Solved().solution(draft) == [
        SolutionTurn(call(take), ("a coin of 40",)),
        SolutionTurn(call(take), ("a coin of 30",)),
        SolutionTurn(call(take)),
        SolutionTurn("110"),
    ]


def test_numbers_that_stand_in_the_request_are_not_revealed() -> None:
    answers = iter(["10.5", "3.0", "10", "7"])

    def work() -> str:
        """Say the next number."""
        return next(answers)

    class Working(Solved):
        toolbox = Tools(work)

        def state(self, draft: TaskDraft, seed: int) -> Any:
            return None

        def solve(self, draft: TaskDraft) -> Solving:
            for _ in range(4):
                yield call(work)
            return ""

    (draft,) = Working().parse("21 22 23")  # the request says 3
    assert isinstance(draft, TaskDraft)
    assert [turn.reveals for turn in Working().solution(draft)] == [
        ("10.5",),
        (),
        ("10",),
        ("7",),
        (),
    ]


def test_seed_examples_are_turns_of_right_attempts() -> None:
    domain = Solved()
    examples = domain.agent_examples(3, 60)
    assert examples == domain.agent_examples(3, 60)
    for messages, answer in examples:
        roles = [message["role"] for message in messages]
        turns = (len(messages) - 2) // 2
        assert roles == ["system", "user", *["assistant", "tool"] * turns]
        coins = int(next(m for m in messages if m["role"] == "user")["content"].split()[2])
        assert (answer == call(take)) == (turns < coins)
    assert {len(messages) for messages, _ in examples} >= {2, 4, 6, 8}


def test_an_attempt_ends_with_the_answer_and_is_judged_by_its_transcript() -> None:
    domain = Solved()
    (draft,) = domain.parse("40 30")
    assert isinstance(draft, TaskDraft)
    messages, episode = domain.agent_messages(draft), domain.episode(draft, 0)
    for turn in domain.solution(draft):
        observed = episode.step(turn.says)
        messages += [{"role": "assistant", "content": turn.says}, *observed.messages]
        judged = domain.score(draft, messages)
        assert judged == (Verdict(1, True) if observed.done else Verdict(0, False, "no_answer"))
    messages[-1] = {"role": "assistant", "content": r"<think>71</think>So \boxed{70}, not 71."}
    assert domain.score(draft, messages).success


def test_a_domain_without_tools_returns_the_answer() -> None:
    class OneTurn(Solved):
        toolbox = Tools()

        def read(self, text: str) -> TaskDraft | Rejected:
            coins = [int(coin) for coin in text.split()]
            return task(text, f"What is {' + '.join(text.split())}?", "", 1, coins=coins)

        def state(self, draft: TaskDraft, seed: int) -> Any:
            return None

        def solve(self, draft: TaskDraft) -> str:
            return str(sum(draft.spec["coins"]))

    domain = OneTurn()
    assert domain.tools == []
    (draft,) = domain.parse("21 22")
    assert isinstance(draft, TaskDraft)
    assert domain.solution(draft) == [SolutionTurn("43")]
    assert "<tool_call>" not in str(domain.agent_messages(draft))


class Chatty(Solved):
    """Its tool says what all coins are worth."""

    toolbox = Tools(state=Purse)

    def __init__(self) -> None:
        def take(purse: Purse) -> str:
            """Take the next coin."""
            purse.taken += 1
            rest = purse.coins[purse.taken - 1 :]
            return " and ".join(f"a coin of {coin}" for coin in rest)

        self.toolbox = Tools(take, state=Purse)
        super().__init__()


def test_a_tool_that_tells_a_later_answer_is_found() -> None:
    domain = Chatty()
    (draft,) = domain.parse("40 30")
    assert isinstance(draft, TaskDraft)
    assert [check.flaw for check in flaws(draft, domain)] == [Flaw.LEAKS_EARLY]


def calls_wrongly(self: Any, draft: TaskDraft) -> Solving:
    yield call(take, coin=1)
    return ""


def trails_off(self: Any, draft: TaskDraft) -> Any:
    yield call(take)


def drawing(program: Any) -> Any:
    return {"draw": lambda self, rng, level: program}


Ask = Callable[[Any, TaskDraft], object]
BASE: Ask = lambda domain, draft: domain.base_tasks(0, 1)  # noqa: E731
HELD: Ask = lambda domain, draft: domain.heldout_tasks(0, 1)  # noqa: E731
OPEN: Ask = lambda domain, draft: domain.episode(draft, 0)  # noqa: E731
SOLVE: Ask = lambda domain, draft: domain.solution(draft)  # noqa: E731

WRONG: list[tuple[type, dict[str, Any], Ask, str]] = [
    (Counting, drawing("0 0"), BASE, r"level \d, draw made '0 0', which read refuses as incon"),
    (Counting, drawing("040 1"), BASE, "draw made '040 1', which read spells '40 1'"),
    (Counting, drawing(None), BASE, r"draw returned None for level \d: return a program"),
    (Counting, {"levels": lambda self: 0}, BASE, "levels returned 0: return the highest level"),
    (Counting, {"levels": lambda self: 0}, HELD, "levels returned 0: return the highest level"),
    (Counting, {"pattern": "[0-9"}, BASE, r"pattern '\[0-9' is no regular expression"),
    (Counting, {"state": lambda *_: None}, OPEN, "state returned NoneType; the tools take Purse"),
    (Solved, {"solve": calls_wrongly}, SOLVE,
     r"turn 1 of solve, take\(coin=1\), at .* the tools say .error: 'coin': Extra"),
    (Solved, {"solve": lambda *_: None}, SOLVE, r"solve returned None at .*: return the answer"),
    (Solved, {"solve": trails_off}, SOLVE, r"solve returned None at .*: return the answer"),
    (Solved, {"bounds": Bounds(turns=2)}, SOLVE, r"this ends the attempt, as .* turn 2 do"),
]  # fmt: skip


@mutation(
    "a solution goes on after a call that failed",
    SOLVED,
    "if wrong := [one for one in answers if one.startswith(ERROR)]:",
    "if wrong := []:",
)
@pytest.mark.parametrize(
    ("kind", "changes", "ask", "words"), WRONG, ids=[one[-1][:30] for one in WRONG]
)
def test_what_an_author_gets_wrong_is_named(
    kind: type, changes: dict[str, Any], ask: Ask, words: str
) -> None:
    (draft,) = Solved().parse("40 30 20")
    assert isinstance(draft, TaskDraft)
    with pytest.raises(DomainError, match=words):
        ask(type("Changed", (kind,), changes)(), draft)


def test_a_domain_of_which_all_programs_are_held_out_says_so() -> None:
    program = next(f"21 {n}" for n in range(21, 99) if in_heldout(f"21 {n}"))

    class Tiny(Solved):
        def draw(self, rng: random.Random, level: int) -> str:
            return program

    with pytest.raises(ConfigError, match="held-out bucket alone"):
        Tiny().agent_examples(0, 1)
