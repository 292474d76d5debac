"""What an engine failed at is asked for again.

Invariants: only what failed and may not fail again, with the same seeds, and at most so often; each
pause is twice as long as the one before; a cancelled run waits no longer.
"""

from __future__ import annotations

import time

import pytest

from genenv_core.engines import retries
from genenv_core.engines.retries import Patient, Retries
from genenv_core.types import Completion, FinishReason, SampleRequest, SamplingParams
from tests.mutations import mutation
from tests.unit.builders_rollout import ScriptedEngine

RETRIES = "genenv_core/engines/retries.py"


def failing(times: int) -> ScriptedEngine:
    """Return an engine that fails at seed 1 in its first calls, and answers with the seed."""

    def answer(call: int, request: SampleRequest) -> Completion:
        if request.seed == 1 and call < times:
            return Completion((), (), FinishReason.ERROR, "503")
        return Completion((request.seed,), (-0.5,), FinishReason.STOP)

    return ScriptedEngine(answer)


@mutation(
    "an answer that came late stands in another's place", RETRIES, "made[at] = done",
    "made[0] = done",
)  # fmt: skip
def test_only_what_failed_is_asked_for_again() -> None:
    engine = failing(2)
    requests = [SampleRequest((5,), seed) for seed in (0, 1, 2)]
    made = Patient(engine, Retries(3)).sample(requests, SamplingParams(4))
    assert [one.token_ids for one in made] == [(0,), (1,), (2,)]
    # And once more as a whole, since bits depend on the batch.
    assert [len(asked) for asked, _ in engine.calls] == [3, 1, 1, 3]
    (left, *_) = Patient(failing(9), Retries(1)).sample(requests[1:], SamplingParams(4))
    assert left.error == "503"


@mutation(
    "a refused request is tried again", "genenv_core/types.py",
    "self.finish_reason is FinishReason.ERROR and not self.lasting",
    "self.finish_reason is FinishReason.ERROR",
)  # fmt: skip
def test_what_would_fail_again_is_final() -> None:
    refused = Completion((), (), FinishReason.ERROR, "too long", lasting=True)
    engine = ScriptedEngine(lambda *_: refused)
    made = Patient(engine, Retries(3)).sample([SampleRequest((5,), 0)], SamplingParams(4))
    assert (made, len(engine.calls)) == ([refused], 1)


@mutation("all pauses are equally long", RETRIES, "2.0 ** (number - 1)", "1.0")
def test_each_pause_is_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(retries.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(retries.time, "sleep", sleep)
    for number in (1, 2, 3):
        Retries(3, pause_s=0.75).wait(number)
    assert now[0] == 0.75 * (1 + 2 + 4) and max(slept) == retries.LOOK_S


def test_a_cancelled_run_waits_no_longer() -> None:
    def cancelled() -> None:
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        Retries(3, pause_s=3600, check=cancelled).wait(1)
    assert time.monotonic() - began < 600
