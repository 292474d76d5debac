"""Seeded defects of tasks: each kind breaks a sound task, or the code that judges and plays it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from genenv_core.domains.desk import DeskDomain
from genenv_core.domains.desk.desk_domain import DeskOptions
from genenv_core.domains.desk.program import render_call
from genenv_core.domains.protocol import Episode
from genenv_core.domains.trails import TrailsDomain
from genenv_core.domains.trails.wording import render_answer
from genenv_core.types import Flaw, Message, Observation, TaskDraft, Verdict

RIGHT = Verdict(1.0, True)

DOMAINS: dict[str, tuple[Any, ...]] = {
    "desk": (DeskDomain(), DeskDomain(DeskOptions(dialogue=True, explain=True))),
    "trails": (TrailsDomain(),),
}

Broken = tuple[TaskDraft, Any]


def sound(domain: Any, seed: int, count: int) -> Iterator[TaskDraft]:
    """Yield sound tasks: base tasks and held-out ones."""
    half = count // 2
    yield from domain.base_tasks(seed, half)
    yield from domain.heldout_tasks(seed, count - half)


def parts_of(draft: TaskDraft, domain: Any) -> list[str]:
    """Return the parts of the answer that have to be worked out."""
    return [part for turn in domain.solution(draft) for part in turn.reveals]


def with_methods(domain: Any, **methods: Any) -> Any:
    """Return the domain with other methods or attributes."""
    kind: Any = type("Broken", (type(domain),), methods)
    return kind(domain.options)


def accepting(domain: Any, accepts: Callable[[str, TaskDraft], bool]) -> Any:
    """Return the domain with a judge that accepts some last texts too."""

    def score(self: Any, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        said = messages[-1]["content"] if messages[-1]["role"] == "assistant" else None
        if said is not None and accepts(said, draft):
            return RIGHT
        return domain.score(draft, messages)

    return with_methods(domain, score=score)


def playing(domain: Any, step: Callable[[Episode, str, TaskDraft, int], Observation]) -> Any:
    """Return the domain with other tools; `step` gets the sound episode, the action, the seed."""

    def episode(self: Any, draft: TaskDraft, seed: int) -> Any:
        inner = domain.episode(draft, seed)

        class Tools:
            def step(self, action: str) -> Observation:
                return step(inner, action, draft, seed)

        return Tools()

    return with_methods(domain, episode=episode)


def another(draft: TaskDraft, domain: Any, rng: random.Random) -> TaskDraft:
    """Return a task with another answer."""
    while True:
        (other,) = domain.base_tasks(rng.getrandbits(30), 1)
        if other.spec != draft.spec and other.ground_truth != draft.ground_truth:
            return other


def anything(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    return draft, accepting(domain, lambda said, task: True)


def a_constant(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    return draft, accepting(domain, lambda said, task: said == "ok")


def nothing(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    return draft, accepting(domain, lambda said, task: not said.strip())


def an_echo(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    return draft, accepting(domain, lambda said, task: task.prompt in said)


def the_beginning(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    def begins(said: str, task: TaskDraft) -> bool:
        longer = task.ground_truth.startswith(said.rstrip())
        return longer and len(said.rstrip()) < len(task.ground_truth)

    return draft, accepting(domain, begins)


def a_claim(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    return draft, accepting(domain, lambda said, task: said.startswith("The answer is"))


def any_call(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    return draft, accepting(domain, lambda said, task: '"arguments": {}' in said)


def a_coin(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    toss = random.Random(rng.random())

    def score(self: Any, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        return RIGHT if toss.random() < 0.5 else Verdict(0.0, False, "tails")

    return draft, with_methods(domain, score=score)


def drifting(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    judged = [0]

    def score(self: Any, draft: TaskDraft, messages: Sequence[Message]) -> Verdict:
        judged[0] += 1
        verdict = domain.score(draft, messages)
        return replace(verdict, reward=verdict.reward * (1 - judged[0] / 1000))

    return draft, with_methods(domain, score=score)


def other_truth(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    return replace(draft, ground_truth=another(draft, domain, rng).ground_truth), domain


def other_spec(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    return replace(draft, spec=another(draft, domain, rng).spec), domain


def other_request(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    other = another(draft, domain, rng)
    return replace(draft, prompt=other.prompt, program=other.program), domain


def wrong_answer(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    """Spec and ground truth agree on an answer that is wrong."""
    if domain.name == "desk":
        calls = [dict(call) for call in draft.spec["calls"]]
        rng.choice(calls)["total"] += rng.randint(1, 9)
        return desk_draft(draft, calls), domain
    asked = dict(draft.spec["asked"])
    told = {card[asked["field"]] for card in draft.spec["cards"].values()}
    others = {"town": ["bern", "kobe"], "trade": ["nurse", "clerk"], "pet": ["owl", "hen"]}
    asked["value"] = next(
        value for value in [*others[asked["field"]], *told] if value != asked["value"]
    )
    truth = render_answer(asked["person"], asked["field"], asked["value"])
    return replace(draft, spec=draft.spec | {"asked": asked}, ground_truth=truth), domain


def unknown_tool(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    """A tool that is not offered: another name in the answer, or none offered at all."""
    if domain.name == "desk" and rng.random() < 0.5:
        calls = [dict(call) for call in draft.spec["calls"]]
        rng.choice(calls)["name"] = "teleport"
        return desk_draft(draft, calls), domain
    broken = with_methods(domain)
    broken.tools = ()
    return draft, broken


def desk_draft(draft: TaskDraft, calls: list[dict[str, Any]]) -> TaskDraft:
    told = [render_call(i, c["name"], c["item"], c["total"]) for i, c in enumerate(calls, start=1)]
    return replace(draft, spec={"calls": calls}, ground_truth="".join(told))


def told_whole(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    truth = rng.choice([draft.ground_truth, draft.ground_truth.upper()])
    return replace(draft, prompt=f"{draft.prompt} Hint: {truth}"), domain


def told_in_part(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    part = rng.choice(parts_of(draft, domain))
    return replace(draft, prompt=f"{draft.prompt} ({part}, in case you wonder)"), domain


def flaky_tools(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    def step(inner: Episode, action: str, task: TaskDraft, seed: int) -> Observation:
        if random.Random(f"{task.program} {seed}").random() < 0.5:
            raise OSError("no connection")
        return inner.step(action)

    return draft, playing(domain, step)


def endless(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    return draft, playing(
        domain, lambda inner, action, task, seed: replace(inner.step(action), done=False)
    )


def talkative_tools(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    """Tools that tell the last part of the answer to whoever asks."""
    last = parts_of(draft, domain)[-1]

    def step(inner: Episode, action: str, task: TaskDraft, seed: int) -> Observation:
        try:
            done = inner.step(action).done
        except Exception:
            done = False
        told: Message = {"role": "tool", "content": f"psst: {last}"}
        return Observation(() if done and domain.name == "trails" else (told,), done=done)

    return draft, playing(domain, step)


def telling_errors(draft: TaskDraft, domain: Any, rng: random.Random) -> Broken:
    """Tools whose error says what would have been right."""
    first = parts_of(draft, domain)[0]
    said = [turn.says for turn in domain.solution(draft)]

    def step(inner: Episode, action: str, task: TaskDraft, seed: int) -> Observation:
        if action not in said:
            raise ValueError(f"expected {first}")
        return inner.step(action)

    return draft, playing(domain, step)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of defect, the flaw that names it, and whether it needs parts to give away."""

    break_: Callable[[TaskDraft, Any, random.Random], Broken]
    flaw: Flaw
    tells: bool = False


KINDS = (
    Kind(anything, Flaw.ACCEPTS_CANARY),
    Kind(a_constant, Flaw.ACCEPTS_TRIVIAL),
    Kind(nothing, Flaw.ACCEPTS_TRIVIAL),
    Kind(an_echo, Flaw.ACCEPTS_TRIVIAL),
    Kind(the_beginning, Flaw.ACCEPTS_TRIVIAL),
    Kind(a_claim, Flaw.ACCEPTS_CANARY),
    Kind(any_call, Flaw.ACCEPTS_CANARY),
    Kind(a_coin, Flaw.UNSTEADY_VERDICT),
    Kind(drifting, Flaw.UNSTEADY_VERDICT),
    Kind(other_truth, Flaw.REJECTS_GROUND_TRUTH),
    Kind(other_spec, Flaw.REJECTS_GROUND_TRUTH),
    Kind(other_request, Flaw.UNREACHABLE),
    Kind(wrong_answer, Flaw.UNREACHABLE),
    Kind(unknown_tool, Flaw.UNKNOWN_TOOL),
    Kind(told_whole, Flaw.LEAKS_ANSWER),
    Kind(told_in_part, Flaw.LEAKS_ANSWER, tells=True),
    Kind(flaky_tools, Flaw.AMBIGUOUS),
    Kind(endless, Flaw.UNREACHABLE),
    Kind(talkative_tools, Flaw.LEAKS_EARLY, tells=True),
    Kind(telling_errors, Flaw.LEAKS_EARLY, tells=True),
)


def defects(name: str, count: int, seed: int) -> Iterator[tuple[Kind, TaskDraft, Any]]:
    """Yield broken tasks of a domain, its variants and the kinds in turn."""
    rng = random.Random(f"{name} {seed}")
    for number in range(count):
        domain = DOMAINS[name][number % len(DOMAINS[name])]
        kind = KINDS[number // len(DOMAINS[name]) % len(KINDS)]
        while True:
            (draft,) = domain.base_tasks(rng.getrandbits(30), 1)
            if not kind.tells or parts_of(draft, domain):
                break
        yield kind, *kind.break_(draft, domain, rng)
