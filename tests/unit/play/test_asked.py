"""What a domain's methods give where a stage asks.

Invariants: a verdict and drafts go through as they are, but for half a character; anything else,
and whatever is raised, ends in one line with domain, method, value, the author's line and what to
do; an attempt that broke is judged by nobody.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from genenv_core.domains.arithmetic import Arithmetic
from genenv_core.epoch.evaluating import _row
from genenv_core.errors import ConfigError, DomainError
from genenv_core.play.asked import env_prompt, example_turns, judged, parsed
from genenv_core.types import (
    AgentHistory,
    Context,
    FinishReason,
    Rejected,
    Rejection,
    Rollout,
    Verdict,
)
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import task

SAID: Any = [{"role": "user", "content": "how many?"}, {"role": "assistant", "content": "seven"}]
FINE = [Rejected(Rejection.UNPARSEABLE, "no")]


def raising(*arguments: Any) -> Any:
    raise KeyError("no field\nof this name")


def own(method: Any) -> Any:
    return SimpleNamespace(name="own", score=method, parse=method)


@pytest.mark.parametrize("verdict", [Verdict(1.0, True), Verdict(0, False, "wrong")])
def test_a_verdict_goes_through(verdict: Verdict) -> None:
    assert judged(own(lambda *a: verdict), task("a").draft, SAID) == verdict


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (lambda *a: None, "score returned None"),
        (lambda *a: 0.5, "score returned 0.5"),
        (lambda *a: Verdict(True, True), "score gives the reward True"),
        (lambda *a: Verdict(0.5, 1), "score gives the success 1"),  # type: ignore[arg-type]
        (lambda *a: Verdict(0.5, False, None), "score gives the failure None"),  # type: ignore[arg-type]
        (raising, r"score raised KeyError: .*\(test_asked.py, line \d+\)"),
    ],
)
def test_what_is_no_verdict_is_named(method: Any, words: str) -> None:
    with pytest.raises(
        DomainError, match=rf"domain own: {words}.*'seven'.* of trace t-7 "
    ) as caught:
        judged(own(method), task("a").draft, SAID, "t-7")
    assert "\n" not in str(caught.value) and "genenv domain check" in str(caught.value)


@mutation(
    "an example repeats the program that it should vary", "genenv_core/play/asked.py",
    '"content": answer.program', '"content": base.program',
)  # fmt: skip
@mutation(
    "each example has the rules again", "genenv_core/play/asked.py",
    'turns += [message for message in request if message["role"] != "system"]', "turns += request",
)  # fmt: skip
@pytest.mark.parametrize("explain", [True, False])
def test_pi_env_reads_examples_before_its_request(explain: bool) -> None:
    domain = Arithmetic({"explain": explain})
    base, *shown = domain.base_tasks(0, 4)
    context = Context("c", "t", base, AgentHistory(0.5))
    examples = example_turns(domain, shown, context.history, 2)
    prompt = env_prompt(domain, replace(context, examples=examples))
    alone = domain.env_messages(context)
    assert (prompt[: len(alone) - 1], prompt[-1]) == (alone[:-1], alone[-1])
    requests = [domain.env_messages(replace(context, base=one))[-1] for one in shown]
    assert prompt[len(alone) - 1 : -1] == [
        requests[0],
        {"role": "assistant", "content": shown[1].program},
        requests[1],
        {"role": "assistant", "content": shown[2].program},
    ]
    assert env_prompt(domain, context) == alone


def test_drafts_go_through() -> None:
    made = [*FINE, task("a").draft]
    assert parsed(own(lambda text: made), "a") == made


@mutation(
    "a run stores a spec that is no JSON", "genenv_core/play/asked.py",
    'if odd := next(filter(None, specs), ""):', 'if odd := "":',
)  # fmt: skip
def test_a_spec_that_is_no_json_is_named_with_its_place() -> None:
    made = [replace(task("a").draft, spec={"slots": [1, {"at": b"x"}]})]
    place = (
        r"""spec is no JSON: \["slots"\]\[1\]\["at"\] is b'x' \(bytes\), for '9 - 4': keep JSON"""
    )
    with pytest.raises(DomainError, match=rf"domain own: parse gives a task whose {place}"):
        parsed(own(lambda text: made), "9 - 4")


@pytest.mark.parametrize("field", ["prompt", "ground_truth", "program", "spec"])
def test_half_a_character_of_a_model_ends_no_stage(field: str) -> None:
    half: Any = {"spec": {"wanted": ["\ud83d"]}}.get(field, "\ud83d")
    broken = replace(task("a").draft, **{field: half})
    told = Rejected(Rejection.UNPARSEABLE, "none: \ud83d")
    first, second = parsed(own(lambda text: [broken, told]), "a")
    assert isinstance(first, Rejected) and first.reason is Rejection.UNPARSEABLE
    assert second == Rejected(Rejection.UNPARSEABLE, "none: ?")
    verdict = judged(own(lambda *a: Verdict(0.0, False, "not \ud83d")), task("a").draft, SAID)
    assert verdict.failure == "not ?"


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (lambda text: None, "parse returned None"),
        (lambda text: [], r"parse returned \[\]"),
        (lambda text: ["a"], r"parse returned \['a'\]"),
        (lambda text: tuple(FINE), "parse returned "),
        (raising, "parse raised KeyError"),
    ],
)
def test_what_are_no_drafts_is_named(method: Any, words: str) -> None:
    with pytest.raises(DomainError, match=rf"domain own: {words}.* for '9 - 4': return") as caught:
        parsed(own(method), "9 - 4")
    assert "\n" not in str(caught.value)


def test_a_domains_own_words_are_kept() -> None:
    def refusing(*arguments: Any) -> Any:
        raise ConfigError("the games are missing: make alfworld")

    for ask in (lambda d: judged(d, task("a").draft, SAID), lambda d: parsed(d, "a")):
        with pytest.raises(ConfigError, match="the games are missing"):
            ask(own(refusing))


def test_a_broken_attempt_at_a_heldout_task_is_judged_by_nobody() -> None:
    why = "the environment failed"
    broken = Rollout("a", 0, (), (), (), (), (), 0, FinishReason.ERROR, error=why)
    row = _row(task("a"), broken, own(raising))
    assert (row["success"], row["reward"], row["failure"]) == (False, 0.0, broken.error)
