"""Attempts that advance independently, tools with limits, and pi_env in the place of the tools.

Invariants: an attempt that waits delays no other; results are bit for bit the same for any order of
the tools' answers, and have the tokens of attempts in step; at most one step runs for each worker;
a step over its limit and a step that raises become marked observations, and the attempt continues
from there; tools that keep failing end it; simulated observations are marked; the loss mask of
training leaves out every observed token.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from genenv_core.canonical import canonical_json
from genenv_core.domains.desk import DeskDomain
from genenv_core.domains.rewards import rewarded, rewards_given
from genenv_core.domains.steps import EPISODE_TURN, stepped
from genenv_core.engines.protocol import Engine
from genenv_core.engines.transformers.engine import TransformersEngine
from genenv_core.errors import ConfigError, DomainError
from genenv_core.ids import seed_from
from genenv_core.play.answering import Simulation, ToolExecution
from genenv_core.play.attempt import AttemptBounds, Play
from genenv_core.play.calls import as_said
from genenv_core.play.chat import ChatFormat
from genenv_core.play.driver import run_episodes
from genenv_core.play.simulator import SIMULATED_TURN, Simulator, checked, misfit
from genenv_core.types import (
    Cause,
    FinishReason,
    JsonObject,
    Message,
    Observation,
    Rollout,
    SampleRequest,
    SamplingParams,
    TaskDraft,
)
from tests.mutations import mutation
from tests.unit.builders_engine import spell, write_checkpoint
from tests.unit.builders_rollout import EchoDomain, EchoEpisode, ScriptedEngine, flat
from tests.unit.play.test_rollout import chat_of, draft_of, said
from tests.unit.training import test_grpo
from tests.waiting import BOUND_S, until

steps = test_grpo.steps
PARAMS = SamplingParams(max_tokens=30)
BOUNDS = AttemptBounds(n=2, max_turns=5, max_length=500, max_errors=2)


@dataclass
class SlowEpisode(EchoEpisode):
    """Calls a hook before each answer; the hook may wait or raise."""

    before: Callable[[int, int], None] = lambda seed, turn: None

    def step(self, action: str) -> Observation:
        self.before(self.seed, len(self.seen))
        return super().step(action)


class SlowDomain(EchoDomain):
    """Makes episodes that call a hook with (seed of the episode, turn) before each answer."""

    def __init__(self, before: Callable[[int, int], None]) -> None:
        super().__init__()
        self.before = before

    def episode(self, draft: TaskDraft, seed: int) -> SlowEpisode:
        made = SlowEpisode(int(draft.spec["turns"]), seed, before=self.before)
        self.episodes.append(made)
        return made


def play(
    tasks: Sequence[tuple[str, TaskDraft]],
    engine: Engine,
    domain: EchoDomain,
    *,
    chat: ChatFormat | None = None,
    bounds: AttemptBounds = BOUNDS,
    tools: ToolExecution | Simulation | None = None,
    open_attempts: int = 100,
) -> list[tuple[int, list[Rollout]]]:
    return list(
        run_episodes(
            tasks,
            Play(domain, engine, chat or chat_of(), bounds, PARAMS, seed_from),
            tools=tools or ToolExecution(workers=8, timeout_s=BOUND_S),
            open_attempts=open_attempts,
        )
    )


def saying_ab() -> ScriptedEngine:
    return ScriptedEngine(lambda *_: said(*spell("ab")))


def in_step(domain: EchoDomain, engine: Engine, bounds: AttemptBounds = BOUNDS) -> list[Rollout]:
    """Return the attempts at one task of three turns, whose tools have no workers."""
    play = Play(domain, engine, chat_of(), bounds, PARAMS, seed_from)
    return flat(run_episodes([("t", draft_of(3))], play))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("agent"), eos_probability=0.08)


@pytest.mark.slow
def test_order_of_answers_changes_no_bit(checkpoint: Path) -> None:
    chat = ChatFormat.load(checkpoint)
    tasks = [(f"t{i}", draft_of(1 + i % 5, prompt="abba " * (1 + i))) for i in range(8)]

    def delays(order: int) -> Callable[[int, int], None]:
        return lambda seed, turn: time.sleep(seed_from(order, seed, turn) % 20 / 1000)

    runs: list[list[Rollout]] = []
    for order, workers, opened in ((0, 8, 100), (1, 3, 100), (2, 16, 5)):
        engine = TransformersEngine.load(checkpoint, threads=1)
        made = play(
            tasks,
            engine,
            SlowDomain(delays(order)),
            chat=chat,
            tools=ToolExecution(workers, BOUND_S),
            open_attempts=opened,
        )
        assert sorted(index for index, _ in made) == list(range(8))
        runs.append(flat(made))
    assert runs[0] == runs[1] == runs[2]  # logprobs included
    assert max(one.turns for one in runs[0]) >= 4

    engine = TransformersEngine.load(checkpoint, threads=1)
    play_inline = Play(EchoDomain(), engine, chat, BOUNDS, PARAMS, seed_from)
    inline = flat(run_episodes(tasks, play_inline))
    assert [one.token_ids for one in inline] == [one.token_ids for one in runs[0]]
    assert [one.messages for one in inline] == [one.messages for one in runs[0]]
    for one, other in zip(inline, runs[0], strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_an_attempt_that_waits_holds_up_no_other() -> None:
    slow = seed_from("slow", 0, EPISODE_TURN)
    others_done = threading.Event()

    def before(seed: int, turn: int) -> None:
        if seed == slow and turn == 0:
            assert others_done.wait(BOUND_S)

    engine = saying_ab()
    order: list[int] = []
    bounds = AttemptBounds(n=1, max_turns=5, max_length=500)
    for index, _ in run_episodes(
        [("slow", draft_of(1)), ("quick", draft_of(4)), ("third", draft_of(2))],
        Play(SlowDomain(before), engine, chat_of(), bounds, PARAMS, seed_from),
        tools=ToolExecution(2, BOUND_S),
        open_attempts=10,
    ):
        order.append(index)
        if len(order) == 2:
            others_done.set()
    assert order[-1] == 0 and sorted(order) == [0, 1, 2]


def test_no_more_steps_at_once_than_workers_and_no_more_attempts_than_asked_for() -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def before(seed: int, turn: int) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        until(lambda: most[0] >= 3)  # the first ones wait for each other
        time.sleep(0.005)  # a step beyond the limit would begin meanwhile
        with lock:
            now[0] -= 1

    engine = saying_ab()
    tasks = [(f"t{i}", draft_of(2)) for i in range(10)]
    made = play(tasks, engine, SlowDomain(before), tools=ToolExecution(3, BOUND_S), open_attempts=6)
    assert len(flat(made)) == 20
    assert most[0] == 3
    assert max(len(requests) for requests, _ in engine.calls) <= 6
    # Groups begin in order, and one always may.
    assert [i for i, _ in play(tasks, engine, EchoDomain(), open_attempts=1)] == list(range(10))


@pytest.mark.timeout(BOUND_S)
def test_a_step_over_its_limit_is_an_observation_and_the_episode_goes_on() -> None:
    stuck = seed_from("t", 1, EPISODE_TURN)
    forever, hung = threading.Event(), [0]

    def before(seed: int, turn: int) -> None:
        if seed == stuck and turn == 1 and not hung[0]:
            hung[0] += 1
            forever.wait()

    domain = SlowDomain(before)
    engine = ScriptedEngine(lambda call, _: said(*spell("abcdefgh"[call % 8])))
    one, other = flat(
        play(
            [("t", draft_of(3))],
            engine,
            domain,
            bounds=AttemptBounds(n=2, max_turns=9, max_length=500, max_errors=2),
            tools=ToolExecution(
                1, 1.0
            ),  # the only worker is stuck, and another one takes its place
        )
    )
    forever.set()
    assert (one.finish_reason, one.turns) == (FinishReason.STOP, 3)
    assert (other.finish_reason, other.turns, other.error) == (FinishReason.STOP, 4, "")
    failed = [message for message in other.messages if message.get("error")]
    assert failed == [
        {
            "role": "tool",
            "content": "error: TimeoutError: the tools gave no answer within 1 s",
            "error": True,
        }
    ]
    # Made anew from the action before it; the lost one does not count.
    again = domain.episodes[-1]
    actions = [m["content"] for m in other.messages if m["role"] == "assistant"]
    assert again.seen == [actions[0], actions[2], actions[3]]


@mutation(
    "an attempt that cannot be repeated is", "genenv_core/play/answering.py",
    "step.attempt.stranded = answer.lost and not self._repeatable", "pass",
)  # fmt: skip
@pytest.mark.slow
@pytest.mark.timeout(BOUND_S)
def test_a_step_over_its_limit_ends_an_attempt_that_cannot_be_repeated() -> None:
    forever = threading.Event()

    class Unrepeatable(SlowDomain):
        repeatable = False

    def before(seed: int, turn: int) -> None:
        if turn == 1 and seed == seed_from("t", 0, EPISODE_TURN):
            forever.wait()

    domain = Unrepeatable(before)
    lost, other = flat(play([("t", draft_of(3))], saying_ab(), domain, tools=ToolExecution(2, 1.0)))
    forever.set()
    assert (lost.finish_reason, lost.cause, lost.turns) == (
        FinishReason.ERROR,
        Cause.ENVIRONMENT,
        2,
    )
    assert "gave no answer within 1 s" in lost.error
    assert (other.finish_reason, len(domain.episodes)) == (FinishReason.STOP, 2)


@mutation(
    "the agent reads its rewards", "genenv_core/play/attempt.py",
    "list(map(unrewarded, observation.messages))", "observation.messages",
)  # fmt: skip
def test_rewards_are_stored_and_not_read_by_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    step, read = EchoEpisode.step, list[Message]()

    def rewarding(self: EchoEpisode, action: str) -> Observation:
        plain = step(self, action)
        return replace(plain, messages=tuple(rewarded(plain.messages, {"reward": 0.5})))

    continuation = ChatFormat.continuation

    def reading(self: ChatFormat, messages: Sequence[Message], *more: Any) -> Any:
        read.extend(messages)
        return continuation(self, messages, *more)

    plain = in_step(EchoDomain(), saying_ab())
    monkeypatch.setattr(ChatFormat, "continuation", reading)
    monkeypatch.setattr(EchoEpisode, "step", rewarding)
    made = in_step(EchoDomain(), saying_ab())
    assert [one.token_ids for one in made] == [one.token_ids for one in plain]
    assert read and not any("rewards" in message for message in read)
    assert rewards_given(made[0].messages) == [{"reward": 0.5}] * made[0].turns


@mutation(
    "a reward may be NaN", "genenv_core/domains/rewards.py",
    "number and math.isfinite(cast(float, value))", "number",
)  # fmt: skip
@pytest.mark.parametrize("rewards", [{"reward": float("nan")}, {"reward": "1"}, {3: 0.5}, [1.0]])
def test_rewards_that_are_no_numbers_are_the_environments_failure(rewards: Any) -> None:
    message: Any = {"role": "tool", "content": "so", "rewards": rewards}
    seen = stepped(lambda _: Observation((message,)), "ab")
    assert seen.failed and seen.cause is Cause.ENVIRONMENT
    assert "reward" in seen.messages[0]["content"]


def test_a_step_that_raises_is_an_observation_and_too_many_end_the_attempt() -> None:
    def before(seed: int, turn: int) -> None:
        if turn == 1 and seed == seed_from("t", 0, EPISODE_TURN):
            raise OSError("the shelf\nfell over")

    engine = saying_ab()
    one, other = flat(play([("t", draft_of(3))], engine, SlowDomain(before)))
    assert (one.finish_reason, one.turns) == (FinishReason.ERROR, 3)
    assert (
        one.error == "the environment failed: OSError: the shelf; in step, turn 3 of task t, on ab"
    )
    assert [m.get("error", False) for m in one.messages if m["role"] == "tool"] == [0, 1, 1]
    assert other.finish_reason is FinishReason.STOP
    assert in_step(SlowDomain(before), engine) == [one, other]


@mutation(
    "an environment that fails in the last turn is the agent's failure",
    "genenv_core/play/attempt.py", "cause is not Cause.AGENT and last", "cause is None",
)  # fmt: skip
def test_a_step_that_fails_in_the_last_turn_is_no_limit_of_the_agent() -> None:
    def before(seed: int, turn: int) -> None:
        if seed == seed_from("t", 0, EPISODE_TURN):
            raise OSError("the shelf")

    lost, other = in_step(SlowDomain(before), saying_ab(), replace(BOUNDS, max_turns=1))
    assert (lost.finish_reason, lost.cause) == (FinishReason.ERROR, Cause.ENVIRONMENT)
    assert lost.error.endswith("OSError: the shelf; in step, turn 1 of task t, on ab")
    assert (other.finish_reason, other.error) == (FinishReason.LENGTH, "")


def test_a_step_that_leaves_by_exit_is_an_observation() -> None:
    def before(seed: int, turn: int) -> None:
        raise SystemExit(3)

    engine = saying_ab()
    (one, _) = flat(play([("t", draft_of(3))], engine, SlowDomain(before)))
    assert one.error == "the environment failed: SystemExit: 3; in step, turn 2 of task t, on ab"
    assert in_step(SlowDomain(before), engine)[0] == one


class SlowStart(EchoDomain):
    """Opens episodes slowly; those of the task `hang` never open."""

    def __init__(self, forever: threading.Event) -> None:
        super().__init__()
        self.forever, self.lock = forever, threading.Lock()
        self.now = self.most = 0

    def episode(self, draft: TaskDraft, seed: int) -> EchoEpisode:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        if draft.prompt == "hang":
            self.forever.wait()
        until(lambda: self.most >= 4)  # the first ones wait for each other
        with self.lock:
            self.now -= 1
        return super().episode(draft, seed)


@pytest.mark.slow
def test_episodes_are_opened_beside_each_other_and_within_the_limit() -> None:
    forever = threading.Event()
    domain = SlowStart(forever)
    engine = saying_ab()
    tasks = [(f"t{i}", draft_of(2)) for i in range(8)]
    hanging = ("hang", draft_of(2, prompt="hang"))
    unstartable = ("no", draft_of(2, unstartable=True))
    made = flat(play([*tasks, hanging, unstartable], engine, domain, tools=ToolExecution(4, 1.5)))
    forever.set()
    assert domain.most >= 4  # more where those that were given up are still at it
    assert {one.finish_reason for one in made[:16]} == {FinishReason.STOP}
    errors = [one.error for one in made[16:]]
    start, late = (
        "the episode could not start",
        "TimeoutError: the tools gave no answer within 1.5 s",
    )
    assert errors[:2] == [f"{start}: {late}; in episode of task hang"] * 2
    assert errors[2:] == [f"{start}: OSError: no room; in episode of task no"] * 2
    assert {(one.turns, one.token_ids) for one in made[16:]} == {(0, ())}


@pytest.mark.timeout(BOUND_S)
@pytest.mark.parametrize(
    ("answer", "said_of_it"),
    [
        ("hello", "step returned str, not an Observation"),
        (Observation(({"role": "tool", "content": 7},)), "content is no text: it is 7 (int)"),  # type: ignore[typeddict-item]
        (Observation(({"role": "tool"},)), "KeyError: 'content'"),  # type: ignore[typeddict-item]
        (
            Observation(({"role": "tool", "content": "x" * 2_000_000},)),
            "has 2,000,000 characters, 200,000",
        ),
    ],
)
def test_what_is_no_observation_is_a_failed_one(answer: Any, said_of_it: str) -> None:
    class Odd(EchoDomain):
        def episode(self, draft: TaskDraft, seed: int) -> EchoEpisode:
            made = super().episode(draft, seed)
            made.step = lambda action: answer  # type: ignore[method-assign]
            return made

    engine = saying_ab()
    (one, _) = flat(play([("t", draft_of(3))], engine, Odd()))
    assert said_of_it in one.error and one.error.endswith("; in step, turn 2 of task t, on ab")
    assert one.lost and len(str(one.messages)) < 1000


def test_half_a_character_of_a_tool_can_be_kept() -> None:
    half: Message = {"role": "tool", "name": "\ud83d", "content": "\ud83d"}
    (kept,) = stepped(lambda: Observation((half,))).messages
    assert kept == {"role": "tool", "name": "?", "content": "?"}
    canonical_json(kept)

    def failing() -> Observation:
        raise ValueError("no shelf \ud83d")

    (told,) = stepped(failing).messages
    assert told["content"] == "error: ValueError: no shelf ?"


@pytest.mark.timeout(BOUND_S)
def test_a_cancelled_run_ends_while_tools_are_at_work() -> None:
    forever = threading.Event()
    looks: list[int] = []

    class Stop(BaseException):
        pass

    def check() -> None:
        looks.append(1)
        if len(looks) > 4:
            raise Stop

    hanging = SlowDomain(lambda *_: bool(forever.wait()))  # type: ignore[arg-type,return-value]
    engine = ScriptedEngine(lambda *_: said(5))
    with pytest.raises(Stop):
        list(
            run_episodes(
                [("t", draft_of(1))],
                Play(hanging, engine, chat_of(), BOUNDS, PARAMS, seed_from),
                tools=ToolExecution(2, 3600),  # none of the looks is at the end of a step
                open_attempts=9,
                check=check,
            )
        )
    forever.set()


def test_tools_that_all_hang_fail_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genenv_core.play.tool_workers.MOST_STUCK", 3)
    forever = threading.Event()
    engine = ScriptedEngine(lambda *_: said(5))
    with pytest.raises(DomainError, match=r"tools\.timeout_s 0\.05"):
        play(
            [(f"t{i}", draft_of(1)) for i in range(4)],
            engine,
            SlowDomain(lambda *_: bool(forever.wait())),  # type: ignore[arg-type,return-value]
            tools=ToolExecution(4, 0.05),
        )
    forever.set()


class SimulatedEcho(EchoDomain):
    """Lets pi_env answer until the agent has taken as many turns as the task's spec asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_schema: JsonObject = {
            "properties": {"content": {"type": "string"}, "name": {"enum": ["ship", "pack"]}},
            "required": ["content"],
        }

    def tool_messages(self, draft: TaskDraft, messages: Sequence[Message]) -> list[Message] | None:
        said = [message["content"] for message in messages if message["role"] == "assistant"]
        if len(said) >= int(draft.spec["turns"]):
            return None
        return [{"role": "user", "content": f"play {said[-1]}"}]


def simulated(
    answer: Callable[[SampleRequest], str],
    turns: int = 3,
    closed: bool = True,
    structured: bool = False,
) -> tuple[list[Rollout], ScriptedEngine]:
    chat = chat_of()
    env = ScriptedEngine(lambda _, request: said(*spell(answer(request)), closed=closed))
    domain = SimulatedEcho()
    player = Simulator(domain, chat, max_length=200)
    simulation = Simulation(env, SamplingParams(60), player, structured=structured)
    agent = saying_ab()
    made = flat(play([("t", draft_of(turns))], agent, domain, tools=simulation))
    assert domain.episodes == []  # nothing is executed
    return made, env


def test_pi_env_plays_the_tools_and_it_shows() -> None:
    (one, other), env = simulated(lambda request: '{"content":"ok","name":"ship"}')
    assert one.finish_reason is FinishReason.STOP and one.turns == 3
    tools = [message for message in as_said(one.messages) if message["role"] == "tool"]
    assert tools == [{"role": "tool", "content": "ok", "name": "ship", "simulated": True}] * 2
    assert one.token_ids == other.token_ids
    asked = [request for requests, _ in env.calls for request in requests]
    assert {request.seed for request in asked} == {
        seed_from("t", sample, SIMULATED_TURN - turn) for sample in (0, 1) for turn in (0, 1)
    }
    prompt = chat_of().first_prompt([{"role": "user", "content": "play ab"}])
    assert {request.prompt_ids for request in asked} == {prompt}
    assert env.calls[0][1].stop_token_ids == (1,)
    assert {request.grammar for request in asked} == {None}
    # What pi_env wrote is text to the agent: its tokens are the template's and carry no loss.
    assert sum(one.loss_mask) == 9 and len(one.loss_mask) > 9


@pytest.mark.parametrize(
    ("tools", "name"), [((), None), (("ship",), "ship"), (("ship", "pack"), None)]
)
def test_an_answer_without_a_name_is_that_of_the_only_tool(
    tools: Sequence[str], name: str | None
) -> None:
    domain = SimulatedEcho()
    domain.tools = [{"type": "function", "function": {"name": tool}} for tool in tools]
    simulator = Simulator(domain, chat_of(), max_length=100)
    unnamed, named = (
        simulator.read(said(*spell(text))).messages[0]
        for text in ('{"content":"ok"}', '{"content":"ok","name":"pack"}')
    )
    assert unnamed.get("name") == name
    assert named.get("name") == "pack"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("ok", "no JSON"),
        ("[1]", "it is no object"),
        ('{"name":"ship"}', "content is missing"),
        ('{"content":1}', "content has another value"),
        ('{"content":"ok","name":"fly"}', "name has another value"),
        ('{"content":"ok","more":"x"}', "more is unknown"),
    ],
)
def test_what_does_not_fit_is_a_failed_simulated_observation(answer: str, expected: str) -> None:
    (one, _), _ = simulated(lambda request: answer)
    first = next(message for message in one.messages if message["role"] == "tool")
    assert first.get("simulated") and first.get("error")
    assert expected in first["content"]
    assert one.finish_reason is FinishReason.ERROR and expected in one.error


def test_an_engine_that_can_is_held_to_the_schema() -> None:
    _, env = simulated(lambda request: '{"content":"ok"}', structured=True)
    grammars = {request.grammar for requests, _ in env.calls for request in requests}
    (grammar,) = grammars
    assert grammar is not None and grammar.kind == "json"
    assert json.loads(grammar.text) == SimulatedEcho().observation_schema


def test_a_simulated_answer_that_was_cut_is_a_failed_one() -> None:
    (one, _), _ = simulated(lambda request: '{"content":"ok"}', closed=False)
    assert "cut after 16 tokens" in one.error


def test_a_domain_without_simulation_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tools\.execution is simulated.*'echo'"):
        Simulator(EchoDomain(), chat_of(), max_length=100)
    domain = SimulatedEcho()
    domain.observation_schema = {"type": "objekt"}
    with pytest.raises(ConfigError, match=r"'echo'.*no JSON schema: 'objekt' is not valid"):
        Simulator(domain, chat_of(), max_length=100)


def test_a_domain_that_cannot_ask_gives_a_failed_observation() -> None:
    simulator = Simulator(SimulatedEcho(), chat_of(), max_length=100)
    asked = simulator.prompt(TaskDraft("", {}, "", "", "", 1.0, ""), [])
    assert isinstance(asked, Observation) and asked.failed and asked.simulated
    assert "tool_messages failed: KeyError" in asked.messages[0]["content"]


@pytest.mark.parametrize(
    ("rule", "fits", "wrong"),
    [
        ({"type": "string", "pattern": "^a+$"}, "aa", "ab"),
        ({"type": "string", "maxLength": 2}, "aa", "aaa"),
        ({"type": ["string", "null"]}, "aa", None),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "b", "c"),
        ({}, "anything", 5),
    ],
)
def test_the_whole_of_a_schema_counts(rule: JsonObject, fits: str, wrong: object) -> None:
    schema = {"properties": {"content": rule, "more": {"items": {"type": "integer"}}}}
    assert misfit({"content": fits, "more": [1]}, checked(schema)) == ""
    assert "content" in misfit({"content": wrong}, checked(schema))
    for other in ("a", True):  # a number in Python, and not in JSON
        assert "more.1" in misfit({"content": fits, "more": [1, other]}, checked(schema))


def test_a_dialogue_of_desk_is_played_call_by_call() -> None:
    domain = DeskDomain.from_options({"dialogue": True, "max_calls": 3})
    draft = domain.base_tasks(0, 8)[-1]
    examples = domain.agent_examples(1, 60)
    lengths = {len(messages) for messages, _ in examples}
    assert lengths >= {1, 3, 5}
    assert "done" in {answer for _, answer in examples}
    assert any("recorded" in answer for _, answer in domain.env_examples(1, 40, 1.0))

    episode = domain.episode(draft, 0)
    messages = domain.agent_messages(draft)
    for call in draft.ground_truth.replace("</tool_call>", "</tool_call>\n").splitlines():
        observation = episode.step(call)
        assert not observation.done and observation.messages[0]["content"] == "recorded"
        messages += [{"role": "assistant", "content": call}, *observation.messages]
    messages.append({"role": "assistant", "content": "done"})
    assert episode.step("done").done
    assert domain.score(draft, messages).success
    assert not domain.score(draft, messages[:-3]).success
    wrong = episode.step("<tool_call>{}</tool_call>")
    assert wrong.messages[0]["content"] == "error: malformed_call" and not wrong.done
    assert domain.tool_messages(draft, messages) is None
    asked = domain.tool_messages(draft, messages[:2])
    assert asked is not None and draft.ground_truth[:20] in asked[-1]["content"]


def test_training_gets_the_masks_of_real_multi_turn_attempts(
    tmp_path: Path, checkpoint: Path, steps: list[test_grpo.Step]
) -> None:
    size = test_grpo.SIZE
    made = play(
        [(f"t{i}", draft_of(3, prompt="abba " * (1 + i))) for i in range(2)],
        TransformersEngine.load(checkpoint, threads=1),
        SlowDomain(lambda seed, turn: time.sleep(seed % 5 / 1000)),
        chat=ChatFormat.load(checkpoint),
        bounds=AttemptBounds(n=size, max_turns=3, max_length=200),
    )
    rollouts = flat(made)
    assert sum(one.turns > 1 for one in rollouts) >= size
    rows = [
        {
            "group_id": one.task_id,
            "prompt_ids": list(one.prompt_ids),
            "completion_ids": list(one.token_ids),
            "logprobs": list(one.logprobs),
            "loss_mask": list(one.loss_mask),
            "reward": float(one.sample_index % 2),
            "truncated": one.finish_reason is FinishReason.LENGTH,
        }
        for one in rollouts
    ]
    masks = [mask for row in rows for mask in row["loss_mask"]]
    assert 0 < sum(masks) < len(masks)
    result = test_grpo.update(tmp_path, checkpoint, rows, passes=1)
    expected, clipped = test_grpo.expected_gradient(checkpoint, steps[0][0], rows)
    assert test_grpo.relative_error(steps[0][1], expected) < 1e-5
    # The logprobs stand at the very tokens that the trainer scores.
    assert result.metrics["ratio_mean"] == pytest.approx(1, abs=1e-4)
    assert clipped == result.metrics["clip_fraction"] == 0
    unmasked = [row | {"loss_mask": [1] * len(row["loss_mask"])} for row in rows]
    other, _ = test_grpo.expected_gradient(checkpoint, steps[0][0], unmasked)
    assert test_grpo.relative_error(steps[0][1], other) > 1e-2
