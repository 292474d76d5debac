"""Games side by side, and attempts of a model at them.

Invariants: any number of attempts go on side by side in a bounded number of processes and seats,
in one thread or in many; what was seen is not played again; a process that fails or is replaced
costs at most a replay. A turn with a right call plays its first one; any other is told what is
wrong; none raises; the prediction is what was played, and an attempt ends within 50 turns.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from genenv_core.benchmarks.alfworld import playing, pool
from genenv_core.benchmarks.alfworld.games import GameError, GameProcess, GameState
from genenv_core.benchmarks.alfworld.playing import NOT_PLAYED, Household
from genenv_core.benchmarks.alfworld.pool import Pool
from genenv_core.benchmarks.alfworld.replay import STEPS
from genenv_core.types import Call, Said
from tests.mutations import mutation
from tests.unit.benchmarks.alfworld.household import IDS, WALK, household, write_game
from tests.unit.benchmarks.data import deep

POOL = "genenv_core/benchmarks/alfworld/pool.py"
PLAYING = "genenv_core/benchmarks/alfworld/playing.py"

SEED = 0
ONE = Path("one")
ADMISSIBLE = (*WALK, "look")


class Counted(GameProcess):
    """Plays the game of WALK in memory, and counts what it is asked."""

    numbers = itertools.count(1)

    def __init__(self, log: list[tuple[str, int, str]], games: int = 10**9) -> None:
        super().__init__()
        self.log, self.left, self.games = log, games, games
        self.number: int | None = None
        self.seats: dict[int, int] = {}

    @property
    def pid(self) -> int | None:
        return self.number

    def open(self, path: Path, seat: int = 0) -> GameState:
        if not self.left or self.number is None:
            self.close()
            self.number = next(self.numbers)
            self.left = self.games
        self.left -= 1
        self.log.append(("open", seat, path.name))
        self.seats[seat] = 0
        return self.shown("Welcome.", 0)

    def step(self, command: str, seat: int = 0) -> GameState:
        self.log.append(("step", seat, command))
        if seat not in self.seats:
            raise GameError("no game is open")
        if command == "die":
            self.close()
            raise GameError("it died")
        at = self.seats[seat]
        right = at < len(WALK) and command == WALK[at]
        self.seats[seat] = at + right
        return self.shown("Good." if right else "Nothing happens.", at + right)

    def close(self) -> None:
        self.number, self.seats = None, {}

    def shown(self, said: str, at: int) -> GameState:
        return GameState(said, at == len(WALK), at == len(WALK), ADMISSIBLE, IDS)


def counted(**options: Any) -> tuple[Pool, list[tuple[str, int, str]]]:
    log: list[tuple[str, int, str]] = []
    games = options.pop("games", 10**9)
    return Pool(lambda: Counted(log, games), **options), log


def act(command: Any) -> Said:
    return Said("", (Call("act", {"command": command}),))


def opened(log: Sequence[tuple[str, int, str]]) -> int:
    return sum(what == "open" for what, _, _ in log)


def test_a_game_goes_on_where_it_was() -> None:
    pool, log = counted(processes=1)
    assert pool.after(ONE).observation == "Welcome." and not log[1:]
    for end in range(1, 4):
        state = pool.after(ONE, WALK[:end])
    assert state.won and [what for what, _, _ in log] == ["open", "step", "step", "step"]


@mutation("what was seen is played again", POOL, "return states.get(place)", "return None")
def test_what_was_seen_is_not_played_again() -> None:
    pool, log = counted(processes=1)
    pool.after(ONE, WALK)
    asked = len(log)
    for end in range(4):
        pool.after(ONE, WALK[:end])
    assert len(log) == asked
    item = Household(pool, ONE, False, False)
    assert item.judge(WALK, "official").valid and item.judge(WALK, "strict").valid
    assert len(log) == asked


def test_without_a_memory_everything_is_played_and_equal() -> None:
    for states in (0, 1, 2, pool.STATES):
        games, _ = counted(processes=1, states=states)
        for end in (3, 3, 1, 1, 0, 0, 2, 2, 3):
            assert games.after(ONE, WALK[:end]).won == (end == 3)


@pytest.mark.parametrize(("processes", "seats"), [(1, 1), (1, 2), (2, 3), (4, 16)])
def test_many_attempts_in_one_thread_go_on_in_bounded_seats(processes: int, seats: int) -> None:
    games, log = counted(processes=processes, seats=seats, states=0)
    items = [Household(games, Path(f"game {n}"), False, False) for n in range(12)]
    attempts = [item.begin(SEED) for item in items for _ in range(2)]
    for number, command in enumerate(["dance", *WALK]):
        for attempt in attempts:
            assert attempt.answer(act(command)).done == (number == 3)
    assert {seat for _, seat, _ in log} <= set(range(seats))
    assert len(games.pids) <= processes
    if processes * seats >= 24:
        assert opened(log) <= 2 * len(attempts)


@mutation(
    "the oldest game makes room",
    POOL,
    "self._rng.choice([*self._seats])",
    "next(iter(self._seats))",
)
def test_attempts_that_take_turns_keep_most_of_their_seats() -> None:
    games, log = counted(processes=2, seats=8, states=0)
    attempts = [Household(games, Path(str(n)), True, False).begin(SEED) for n in range(20)]
    for _ in range(20):
        for attempt in attempts:
            attempt.answer(act("look"))
    assert opened(log) < 0.6 * 20 * len(attempts)  # the least recently used made it all of them
    assert [len(host._seats) for host in games._hosts] == [8, 8]


def test_an_attempt_that_is_given_up_makes_room() -> None:
    games, log = counted(processes=2, seats=2, states=0)
    for number in range(40):
        games.after(Path(str(number)), WALK[:1])
    held = {place[0].name for host in games._hosts for place in host._seats.values()}
    assert len(held) == 4 and all(int(name) > 4 for name in held)
    assert {seat for _, seat, _ in log} == {0, 1}


def test_many_threads_share_the_processes() -> None:
    games, log = counted(processes=3, seats=2, states=0)

    def play(number: int) -> bool:
        rng, attempt = (
            random.Random(number),
            Household(games, Path(f"game {number % 5}"), False, False).begin(SEED),
        )
        commands = [*rng.choices(["look", "dance"], k=rng.randrange(4)), *WALK]
        return [attempt.answer(act(command)).done for command in commands][-1]

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(play, range(80)))
    assert len(games.pids) <= 3 and {seat for _, seat, _ in log} <= {0, 1}


@mutation(
    "waiting threads do not count", POOL, "return -played, self.waiting,", "return -played, 0,"
)
def test_open_games_are_spread_over_the_processes() -> None:
    games, log = counted(processes=3)
    for number in range(9):
        games.after(Path(str(number)), WALK[:1])
    assert len(games.pids) == 3 and {seat for _, seat, _ in log} == {0, 1, 2}
    games._hosts[0].waiting = games._hosts[1].waiting = 1  # as while other threads play there
    for looks in range(4):
        games.after(Path("other"), ["look"] * (looks + 1))
    assert [len(host._seats) for host in games._hosts] == [3, 3, 4]


def test_one_game_after_the_other_needs_one_process() -> None:
    games, _ = counted(processes=3)
    for number in range(9):
        assert Household(games, Path(str(number)), False, False).judge(WALK, "official").valid
        Household(games, Path(f"{number} again"), False, False).judge(WALK[:1], "official")
    assert len(games.pids) == 1


@mutation(
    "a process that is gone has its games",
    POOL,
    "            self._seats.clear()\n",
    "            pass\n",
)
def test_a_replaced_process_costs_a_replay() -> None:
    games, log = counted(processes=1, games=3, states=0)
    attempts = [Household(games, Path(str(n)), True, False).begin(SEED) for n in range(5)]
    for command in WALK:
        shown = [attempt.answer(act(command)) for attempt in attempts]
    assert all(observation.done for observation in shown)
    assert opened(log) > 5


def test_a_failed_command_leaves_the_attempt_as_it_was() -> None:
    games, _ = counted(processes=1)
    attempt = Household(games, ONE, False, False).begin(SEED)
    attempt.answer(act(WALK[0]))
    with pytest.raises(GameError, match="it died"):
        attempt.answer(act("die"))
    attempt.answer(act(WALK[1]))
    assert attempt.answer(act(WALK[2])).done


@mutation("an ended game keeps its seat", POOL, "if held == place]", "if held is None]")
def test_a_finished_game_needs_no_seat() -> None:
    games, log = counted(processes=1, seats=2, states=0)
    kept = Household(games, Path("kept"), False, False).begin(SEED)
    kept.answer(act(WALK[0]))
    for number in range(4):
        item = Household(games, Path(str(number)), False, False)
        attempt = item.begin(SEED)
        for command in WALK:
            attempt.answer(act(command))
        item.judge(["look"] * STEPS, "official")
        item.judge(["look"], "official")
    before = opened(log)
    kept.answer(act(WALK[1]))
    assert opened(log) == before


@mutation(
    "long commands are remembered", POOL, "len(command) > LONGEST for", "len(command) < 0 for"
)
def test_a_long_command_is_not_kept() -> None:
    games, _ = counted(processes=1)
    games.after(ONE, ["x" * (pool.LONGEST + 1)])
    assert not games._states
    games.after(ONE, ["x" * pool.LONGEST])
    assert len(games._states) == 1


@pytest.fixture(scope="module")
def item(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Household]:
    folder = tmp_path_factory.mktemp("games")
    name = write_game(folder / "data", "valid_seen/a/t")
    suite = household(folder / "data")
    yield suite.playable(name)
    suite.pool.close()


def test_the_model_sees_rules_and_opening_and_has_one_tool(item: Household) -> None:
    system, user = item.messages
    assert system["role"] == "system" and "act" in system["content"]
    assert user == {"role": "user", "content": "Welcome."}
    (tool,) = item.tools
    assert tool["function"]["name"] == "act" and json.loads(json.dumps(tool)) == tool


def test_the_walkthrough_is_played_and_judged(item: Household) -> None:
    attempt, turns = item.begin(SEED), [act(command) for command in ["dance", *WALK]]
    shown = [attempt.answer(turn) for turn in turns]
    assert [o.messages[0]["content"] for o in shown] == ["Nothing happens.", *["Good."] * 3]
    assert [o.done for o in shown] == [False, False, False, True]
    assert all(m["role"] == "tool" and m["name"] == "act" for o in shown for m in o.messages)
    prediction = item.prediction(turns)
    assert prediction == ["dance", *WALK]
    assert item.judge(prediction, "official").valid


def test_what_is_repaired_in_play_is_repaired_in_the_verdict(item: Household) -> None:
    attempt, turns = item.begin(SEED), [act(command.upper()) for command in WALK]
    assert [attempt.answer(turn).done for turn in turns][-1]
    assert item.judge(item.prediction(turns), "official").valid


def test_strict_play_repairs_nothing() -> None:
    games, _ = counted()
    item = Household(games, ONE, True, False)
    attempt = item.begin(SEED)
    shown = attempt.answer(act(WALK[0].upper()))
    assert shown.messages[0]["content"] == "Nothing happens."
    assert not item.judge([command.upper() for command in WALK], "strict").valid


@mutation(
    "commands are listed after the end",
    PLAYING,
    "if self._admissible and not self._replay.over:",
    "if self._admissible:",
)
def test_admissible_commands_are_listed_where_wanted() -> None:
    games, _ = counted()
    told = f"Commands that can be carried out now: {', '.join(ADMISSIBLE)}."
    for admissible in (False, True):
        item = Household(games, ONE, False, admissible)
        attempt = item.begin(SEED)
        shown = [attempt.answer(act(command)).messages[0]["content"] for command in WALK]
        assert (told in item.messages[1]["content"]) == admissible
        assert [told in text for text in shown] == [admissible, admissible, False]


@mutation(
    "the last call of a turn is played",
    PLAYING,
    "list(_commands(turn))[:1]",
    "list(_commands(turn))[-1:]",
)
def test_of_several_calls_the_first_right_one_is_played(item: Household) -> None:
    calls = (Call("act", {}), Call("act", {"command": WALK[0]}), Call("act", {"command": WALK[1]}))
    attempt, turn = item.begin(SEED), Said("", calls, ("{",))
    shown = [message["content"] for message in attempt.answer(turn).messages]
    assert "one argument" in shown[0] and shown[1:3] == ["Good.", NOT_PLAYED]
    assert "no JSON" in shown[3] and len(shown) == 4
    assert item.prediction([turn]) == [WALK[0]]
    assert attempt.answer(act(WALK[1])).messages[0]["content"] == "Good."


HOSTILE = {
    "nothing": Said(""),
    "chatter": Said("I think that I should go to the desk. " * 5000),
    "malformed": Said("", (), ("{", "[" * 100_000, "null", "\ud800")),
    "no tool": Said("", (Call("dance", {"command": WALK[0]}),)),
    "odd tool": Said("", (Call("\ud800" * 10_000, {}),)),
    "number": act(7),
    "null": act(None),
    "list": act(WALK),
    "deep": act(deep(500)),
    "more": Said("", (Call("act", {"command": WALK[0], "again": True}),)),
    "long": act("go " * 100_000),
    "surrogate": act("\ud800"),
    "zero": act("\0\n"),
    "many": Said("", (Call("act", {"command": "look"}),) * 1_000),
}


@pytest.mark.parametrize("turn", HOSTILE.values(), ids=HOSTILE)
def test_no_turn_raises_and_the_attempt_ends(item: Household, turn: Said) -> None:
    for household_ in (item, Household(item._pool, item._path, False, True, [])):
        attempt, turns = household_.begin(SEED), list[Said]()
        for _ in range(STEPS):
            observation = attempt.answer(turn)
            turns.append(turn)
            wanted = len(turn.calls) + len(turn.malformed)
            assert len(observation.messages) == wanted or not wanted
            assert all(len(message["content"]) < 1000 for message in observation.messages)
            if observation.done:
                break
            assert observation.messages
        assert observation.done
        prediction = household_.prediction(turns)
        assert len(prediction) <= STEPS
        assert household_.judge(prediction, "official").valid is False
        assert attempt.answer(act(WALK[0])).done


@pytest.mark.parametrize("name", sorted(set(HOSTILE) - {"surrogate", "zero", "many"}))
def test_what_is_no_command_is_not_played(item: Household, name: str) -> None:
    assert item.prediction([HOSTILE[name]]) == []
    attempt = item.begin(SEED)
    attempt.answer(HOSTILE[name])
    assert attempt.answer(act(WALK[0])).messages[0]["content"] == "Good."


@mutation(
    "turns without a call are free", PLAYING, "self._turns += 1", "self._turns += bool(said.calls)"
)
def test_turns_are_bounded_whatever_they_say(item: Household) -> None:
    attempt = item.begin(SEED)
    turns = [Said("well"), act("look")] * 25
    assert [attempt.answer(turn).done for turn in turns] == [False] * 49 + [True]
    assert item.prediction([*turns, *map(act, WALK)]) == ["look"] * 25


def test_a_train_game_begins_after_its_first_commands() -> None:
    games, _ = counted()
    item = Household(games, ONE, False, False, WALK[:2])
    text = item.messages[1]["content"]
    assert text.startswith(f"Welcome.\n\n{playing.DONE_BEFORE}\n\n> {WALK[0]}\n\nGood.")
    attempt = item.begin(SEED)
    assert attempt.answer(act(WALK[2])).done
    assert item.judge([WALK[2]], "official").valid
    assert item.judge([], "official").valid is False


@mutation(
    "every game takes a plan", PLAYING, "self._plans = before is not None", "self._plans = True"
)
def test_only_a_train_game_can_be_answered_in_one_turn() -> None:
    games, _ = counted()
    plan = Said("", tuple(Call("act", {"command": command}) for command in WALK))
    item, train = Household(games, ONE, False, False), Household(games, ONE, False, False, [])
    assert not item.begin(SEED).answer(plan).done
    assert item.prediction([plan]) == WALK[:1]
    shown = train.begin(SEED).answer(plan)
    assert shown.done and [m["content"] for m in shown.messages] == ["Good."] * 3
    assert train.prediction([plan]) == WALK
    assert train.judge(train.prediction([plan]), "official").valid


def test_a_plan_ends_the_attempt_and_counts_in_the_first_turn_alone() -> None:
    games, _ = counted()
    train = Household(games, ONE, False, False, [])
    two = Said("", tuple(Call("act", {"command": command}) for command in WALK[:2]))
    assert train.begin(SEED).answer(two).done and train.prediction([two]) == WALK[:2]
    attempt, turns = train.begin(SEED), [act("look"), two]
    assert [attempt.answer(turn).done for turn in turns] == [False, False]
    assert train.prediction(turns) == ["look", WALK[0]]


@mutation("half of a plan has happened", PLAYING, "            self._replay = before\n", "")
def test_a_plan_that_fails_half_way_leaves_the_attempt_as_it_was() -> None:
    games, _ = counted()
    attempt = Household(games, ONE, False, False, []).begin(SEED)
    with pytest.raises(GameError):
        attempt.answer(Said("", (*act(WALK[0]).calls, *act("die").calls)))
    shown = [attempt.answer(act(command)) for command in WALK]
    assert [o.messages[0]["content"] for o in shown] == ["Good."] * 3
    assert [o.done for o in shown] == [False, False, True]
