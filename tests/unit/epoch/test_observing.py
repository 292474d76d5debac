"""The rows of `observations`, and a new pi_env that is asked again.

Invariants: each answer of pi_env is a row beside the truth, and the mean is the fact `fidelity`;
where tools were executed there is neither, and the output of the stage is what it was; an episode
has the seed that the attempt's own would have had; a new pi_env is asked at turns spread over the
rows, with the prompt of before and a seed of its own; its truthful, noisy and lying answers come
out in this order, and what the engine failed at does not count.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import polars as pl
import pytest

import tasks.rollout
from genenv_core.config.sections.curriculum import CurriculumConfig
from genenv_core.config.sections.rollout import RolloutConfig
from genenv_core.domains.steps import EPISODE_TURN
from genenv_core.epoch.attempts import attempt
from genenv_core.epoch.observing import episode_seed, observed
from genenv_core.epoch.probe import asked_before, fidelity_metrics, fresh_answers
from genenv_core.epoch.rows import Output, frame
from genenv_core.epoch.scoring import score
from genenv_core.errors import EngineError
from genenv_core.ids import seed_from, stage_seed
from genenv_core.play.chat import ChatFormat
from genenv_core.play.fidelity import Fidelity
from genenv_core.play.simulator import Simulator
from genenv_core.types import Completion, FinishReason, SamplingParams, Task, TaskSource
from schemas.validate import validate
from tests.mutations import mutation
from tests.unit.builders_engine import tiny_tokenizer
from tests.unit.builders_fidelity import (
    DESK,
    DOMAINS,
    TRAILS,
    Simulates,
    lying,
    noisy,
    right_turns,
    simulated,
    truthful,
)
from tests.unit.builders_rollout import ScriptedEngine
from tests.unit.epoch.builders_epoch import rollout, trace

CHAT = ChatFormat(tiny_tokenizer(), name="tiny")
PARAMS = SamplingParams(60)


def tasks_of(domain: Any, count: int = 12) -> list[Task]:
    drafts = enumerate(domain.base_tasks(0, count))
    return [Task(f"t{index}", TaskSource.BASE, draft) for index, draft in drafts]


def played(
    domain: Any, tasks: Sequence[Task], says: Simulates, *, marked: bool = True
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `traces` and `trace_tokens` of two attempts at each task."""
    traces, tokens, rng = [], [], random.Random(0)
    for task in tasks:
        for sample in (0, 1):
            turns = right_turns(domain, task.draft)
            messages = simulated(domain, task.draft, turns, says, rng)
            if not marked:
                for message in messages:
                    message.pop("simulated", None)
            row = trace(f"g-{task.task_id}", sample, task.task_id)
            traces.append(row)
            tokens.append({"trace_id": row["trace_id"], "messages": json.dumps(messages)})
    return frame("traces", traces), frame("trace_tokens", tokens)


def scored(domain: Any, says: Simulates, *, marked: bool = True) -> Output:
    tasks = tasks_of(domain)
    return score(
        *played(domain, tasks, says, marked=marked),
        tasks,
        domain,
        epoch=2,
        curriculum=CurriculumConfig(),
        seed_of=lambda place, sample: 0,
    )


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_every_answer_is_a_row_and_the_mean_is_a_fact(domain: Any) -> None:
    means: list[float] = []
    for says in (truthful, noisy, lying):
        output = scored(domain, says)
        rows = validate("observations", output.tables["observations"])
        calls = sum(len(right_turns(domain, task.draft)) - 1 for task in tasks_of(domain))
        assert rows.height == 2 * calls
        means.append(output.facts["fidelity"])
        assert means[-1] == pytest.approx(rows["fidelity"].mean())
        assert rows["fits_schema"].all() and rows["same_state"].all()
        wrong = rows.filter(pl.col("said") != pl.col("true_content"))
        assert set(wrong["said"]) <= {"nonsense"} and set(wrong["fidelity"]) <= {0.0}
    assert means[0] == 1.0 > means[1] > means[2] == 0.0


@mutation(
    "executed tools write an empty table", "genenv_core/epoch/scoring.py",
    'frame("observations", heard)} if heard else {})', 'frame("observations", heard)})',
)  # fmt: skip
def test_where_tools_are_executed_the_output_is_what_it_was() -> None:
    output = scored(TRAILS, truthful, marked=False)
    assert set(output.tables) == {"scores", "task_scores"}
    assert set(output.facts) == {"p_hat", "zero_signal"}
    same = scored(TRAILS, truthful)
    for name, rows in output.tables.items():
        assert rows.equals(same.tables[name])


def test_rows_say_who_said_what_and_when() -> None:
    (task,) = tasks_of(TRAILS, 1)
    messages = simulated(
        TRAILS, task.draft, right_turns(TRAILS, task.draft), lying, random.Random()
    )
    messages[-2] = {"role": "tool", "content": "error: cut", "simulated": True, "error": True}
    rows = observed(
        [trace("g", 3, task.task_id) | {"messages": json.dumps(messages)}],
        {task.task_id: task},
        TRAILS,
        lambda place, sample: 0,
    )
    *_, (_, last) = task.draft.spec["cards"].items()
    assert rows[-1] == {
        "trace_id": "g.3",
        "epoch": 2,
        "task_id": task.task_id,
        "turn": len(rows) - 1,
        "fits_schema": False,
        "same_state": False,
        "content_similarity": None,
        "fidelity": 0.0,
        "said": "error: cut",
        "true_content": task.draft.spec["asked"]["value"],
    }
    assert rows[-1]["true_content"] in last.values()


class Seeds:
    """A pi_agent that only asks for the seeds of its episodes."""

    def __init__(self) -> None:
        self.asked: dict[tuple[str, int], int] = {}

    def groups(self, batches: Any, **how: Any) -> Any:
        """Yield groups of two, the last task's first."""
        asked = [task_id for batch in batches for task_id, _ in batch]
        for index, task_id in reversed(list(enumerate(asked))):
            for sample in (0, 1):
                self.asked[task_id, sample] = how["seed_of"](task_id, sample, EPISODE_TURN)
            yield index, [rollout(task_id, sample, "a") for sample in (0, 1)]


@mutation(
    "the truth has a seed of its own", "genenv_core/epoch/observing.py",
    "place, sample, EPISODE_TURN", "place, sample, 0",
)  # fmt: skip
def test_the_truth_has_the_seed_of_the_attempts_own_episode() -> None:
    """Also when groups come in another order, and the place differs from the id."""
    player, tasks_, given = Seeds(), tasks_of(DESK, 5)[::-1], {}
    made = dict(
        attempt(
            player,  # type: ignore[arg-type]
            tasks_,
            {0: range(2), 1: range(2, 5)},
            RolloutConfig(n=2),
            epoch=3,
            scope="0" * 8,
            policy_version=1,
            decode=lambda ids: "",
            seed_for=partial(stage_seed, 7, tasks.rollout.STAGE.name, 3),
        )
    )
    traces = pl.concat([made[number]["traces"] for number in sorted(made)]).to_dicts()

    def seed_of(place: int, sample: int) -> int:
        given[tasks_[place].task_id, sample] = episode_seed(7, 3, place, sample)
        return 0

    by_id = {task.task_id: task for task in tasks_}
    messages = json.dumps([{"role": "user", "content": "", "simulated": True}])
    assert observed([row | {"messages": messages} for row in traces], by_id, DESK, seed_of) == []
    assert given == player.asked and len(given) == 10


def again(
    domain: Any, says: Simulates, *, count: int = 64, failing: Sequence[int] = ()
) -> tuple[list[Fidelity], ScriptedEngine]:
    """Return how true a new pi_env is that answers so, and its engine."""
    tasks_ = tasks_of(domain)
    traces, tokens = played(domain, tasks_, lying)
    rows = scored(domain, lying).tables["observations"]
    joined = traces.join(tokens.select("trace_id", "messages"), on="trace_id")
    asked = asked_before(
        rows, joined, {t.task_id: t for t in tasks_}, domain, lambda *_: 0, count=count
    )
    assert len(asked) == count
    rng = random.Random(1)
    answers = iter([says(one.truth.messages[0]["content"], rng) for _, one in asked])
    places = iter(range(count))

    def answer(call: int, request: Any) -> Completion:
        if next(places) in failing:
            next(answers)
            return Completion((), (), FinishReason.ERROR, "lost")
        ids = CHAT.completion(json.dumps({"content": next(answers)}, separators=(",", ":")))
        return Completion(ids, (0.0,) * len(ids), FinishReason.STOP)

    engine = ScriptedEngine(answer)
    simulator = Simulator(domain, CHAT, max_length=4000)
    found = fresh_answers(
        engine, simulator, asked, PARAMS, structured=False, seed_for=partial(seed_from, 5)
    )
    return found, engine


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_a_new_pi_env_is_asked_again(domain: Any) -> None:
    value = {says: fidelity_metrics(again(domain, says)[0]) for says in (truthful, noisy, lying)}
    assert value[truthful] == {"fidelity": 1.0, "fidelity_se": 0.0}
    assert value[lying] == {"fidelity": 0.0, "fidelity_se": 0.0}
    assert value[noisy]["fidelity"] == pytest.approx(0.7, abs=0.2)
    share = value[noisy]["fidelity"]
    assert value[noisy]["fidelity_se"] == pytest.approx((share * (1 - share) / 63) ** 0.5)


def test_prompts_are_those_of_before_and_seeds_are_its_own() -> None:
    _, engine = again(TRAILS, truthful, count=5)
    ((requests, params),) = engine.calls
    assert [request.seed for request in requests] == [
        seed_from(5, "fidelity", place) for place in range(5)
    ]
    assert params == PARAMS
    text = CHAT.decode(requests[0].prompt_ids)
    assert text.count("answer:") == 1 and "read" in text
    assert len({request.prompt_ids for request in requests}) > 1  # spread over the rows


def test_what_the_engine_failed_at_does_not_count() -> None:
    found, _ = again(TRAILS, truthful, count=4, failing=[1, 2])
    assert [one.value for one in found] == [1.0, 1.0]
    with pytest.raises(EngineError, match=r"all 4 answers of the new checkpoint failed.*: lost"):
        again(TRAILS, truthful, count=4, failing=range(4))


@mutation(
    "a new pi_env is not blamed for an answer that does not fit", "genenv_core/epoch/probe.py",
    "if done.finish_reason is not FinishReason.ERROR:\n            said",
    "if not simulator.read(done).failed:\n            said",
)  # fmt: skip
def test_an_answer_that_does_not_fit_is_untrue() -> None:
    (task,) = tasks_of(TRAILS, 1)
    traces, tokens = played(TRAILS, [task], truthful)
    joined = traces.join(tokens.select("trace_id", "messages"), on="trace_id")
    rows = scored(TRAILS, truthful).tables["observations"].head(1)
    asked = asked_before(rows, joined, {"t0": task}, TRAILS, lambda *_: 0, count=1)
    ids = CHAT.completion("nothing")
    engine = ScriptedEngine(lambda *_: Completion(ids, (0.0,) * len(ids), FinishReason.STOP))
    simulator = Simulator(TRAILS, CHAT, max_length=4000)
    how: Any = {"structured": True, "seed_for": partial(seed_from, 5)}
    assert fresh_answers(engine, simulator, asked, PARAMS, **how) == [Fidelity(False, False, None)]
    assert engine.calls[0][0][0].grammar == simulator.grammar()
    # A prompt without room is never sampled, and no answer.
    short = Simulator(TRAILS, CHAT, max_length=3)
    (found,) = fresh_answers(engine, short, asked, PARAMS, **how)
    assert found.value == 0.0 and len(engine.calls) == 1


def test_without_any_turn_there_is_no_metric() -> None:
    nothing = frame("observations", [])
    assert asked_before(nothing, frame("traces", []), {}, TRAILS, lambda *_: 0, count=4) == []
    assert fidelity_metrics([]) == {}
