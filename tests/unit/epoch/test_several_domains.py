"""An epoch of several domains: who is asked for how much, and which tasks are attempted.

Invariants: contexts have the shares in every beginning, and one without base tasks stops; pi_env is
asked for a domain until that one has its share, or its contexts are used up; what one lacks is not
replaced by others; the choice takes each domain's share of the attempts, however near to alpha the
others are; each is predicted by its own slopes and moved by its own drift; the agent's record is
told by domain; base tasks have the shares too.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from genenv_core.algorithm.success.model import Attempts, Features, SuccessModel, log_odds
from genenv_core.config.sections.curriculum import CurriculumConfig, GenerationConfig
from genenv_core.config.sections.updates import MixtureConfig
from genenv_core.domains.kit.several.abilities import abilities_of
from genenv_core.domains.kit.several.joined import SeveralDomains
from genenv_core.domains.protocol import PartOfSeveral
from genenv_core.domains.shares import Shares
from genenv_core.epoch.attempting.choosing import choose, chosen_tasks, features, reserve_tasks
from genenv_core.epoch.attempts import attempted
from genenv_core.epoch.rows import data_tasks, draft_columns, frame, to_tasks
from genenv_core.epoch.writing.contexts import agent_history, make_contexts
from genenv_core.epoch.writing.generation import Writer, write_tasks
from genenv_core.epoch.writing.intake import Intake
from genenv_core.errors import ConfigError
from genenv_core.types import AgentHistory, TaskDraft, TaskSource
from schemas.registry import empty
from tests.mutations import mutation
from tests.unit.epoch.builders_epoch import Chat, WordsDomain, generated, seed_for
from tests.unit.epoch.test_generation import Says

CHOOSING = "genenv_core/epoch/attempting/choosing.py"
CONTEXTS = "genenv_core/epoch/writing/contexts.py"
INTAKE = "genenv_core/epoch/writing/intake.py"
MODEL = "genenv_core/algorithm/success/model.py"

SHARES = Shares({"one": 3.0, "two": 1.0})


def words() -> Any:
    """Return two domains of words; texts are `one: WORDS` and `two: WORDS`."""
    domains: Any = (WordsDomain(), WordsDomain())
    parts = [
        PartOfSeveral(label, label, domain)
        for label, domain in zip(SHARES.names, domains, strict=True)
    ]
    kinds: list[type[SeveralDomains]] = abilities_of(parts)
    return type("Words", tuple(kinds), {})(parts, SHARES, {})


def draft(text: str) -> TaskDraft:
    (found,) = words().parse(text)
    assert isinstance(found, TaskDraft)
    return found


def written(task_id: str, text: str, **more: Any) -> dict[str, Any]:
    """Return the row of a task that pi_env wrote."""
    return generated(task_id, **(draft_columns(draft(text)) | more))


def base(*texts: str) -> Any:
    return data_tasks({TaskSource.BASE: [draft(text) for text in texts]}, "0" * 8)


BASE = base(*(f"one: a{place}" for place in range(6)), "two: b0", "two: b1")


def asked(engine: Says) -> list[list[str]]:
    """Return the domains that pi_env was asked for, call by call."""
    return [
        ["one" if "`one: `" in "".join(map(chr, r.prompt_ids)) else "two" for r in call]
        for call in engine.calls
    ]


def write(engine: Says, **settings: Any) -> Any:
    given = {"tasks": 4, "candidates": 1, "tasks_per_context": 1, "max_generations": 12} | settings
    return write_tasks(
        Writer(engine, Chat(), 3, lambda context: None), words(), GenerationConfig(**given),
        data=BASE, recent=empty("tasks"), history=AgentHistory(), known=[],
        curriculum=CurriculumConfig(), progress=lambda done, total, unit: None,
        epoch=2, scope="0123456789", seed=7, seed_for=seed_for,
    )  # fmt: skip


@mutation(
    "contexts come from any domain", CONTEXTS,
    "own = [i for i, one in enumerate(base) if shares.domain_of(one.draft.family) == name]",
    "own = list(range(len(base)))",
)  # fmt: skip
def test_contexts_have_the_shares_in_every_beginning() -> None:
    contexts = make_contexts(
        words(), to_tasks(BASE), AgentHistory(), count=16, seed=0, epoch=1, shots=0
    )
    of = [SHARES.domain_of(context.base.family) for context in contexts]
    assert Counter(of[:4]) == Counter(of[4:8]) == {"one": 3, "two": 1}
    assert Counter(of) == {"one": 12, "two": 4}
    used = Counter(context.base_task_id for context in contexts)
    assert set(used.values()) == {2}  # of each domain all, then all again


def test_a_domain_without_base_tasks_is_named() -> None:
    with pytest.raises(ConfigError, match=r"domains: two has no base task.*data\.base_file"):
        make_contexts(
            words(), to_tasks(base("one: a")), AgentHistory(), count=4, seed=0, epoch=1, shots=0
        )


@mutation(
    "one domain's tasks count for the other one", INTAKE,
    "missing = {name: count - self._of_domain[name] for name, count in split.items()}",
    "missing = {name: count - self.valid for name, count in split.items()}",
)  # fmt: skip
def test_each_domain_is_asked_until_it_has_its_share() -> None:
    engine = Says(["one: a", "one: !", "two: !", "one: c", "one: d", "two: e"])
    # The order within a call is that of the contexts: three of one for one of two.
    order = [["one", "one", "two", "one"], ["one", "two"]]
    output = write(engine)
    assert [Counter(call) for call in asked(engine)] == [Counter(call) for call in order]
    rows = output.tables["tasks"]
    assert Counter(map(SHARES.domain_of, rows.filter("valid")["family"])) == {"one": 3, "two": 1}
    assert output.tables["contexts"].height == 6


def test_what_one_domain_lacks_is_not_replaced_by_others() -> None:
    engine = Says(["one: a", "one: b", "two: !", "one: c", "two: !", "two: !"])
    output = write(engine)
    assert Counter(one for call in asked(engine) for one in call) == {
        "one": 3,
        "two": 3,
    }  # 12 contexts, three of two
    assert output.facts["valid"] == 3 == output.facts["attempted"]


def test_a_text_counts_for_the_domain_that_it_names() -> None:
    intake = Intake(words(), BASE, empty("tasks"), guard=False, epoch=1, scope="0" * 10)
    contexts = make_contexts(
        words(), to_tasks(BASE), AgentHistory(), count=4, seed=0, epoch=1, shots=0
    )
    batches = intake.batches(contexts, 4, seed_for, lambda done, total, unit: None)
    next(batches)
    for text in ("one: a", "one: b", "one: c", "one: d"):
        intake.add(draft(text))
    assert list(batches) == [] and intake.valid == 4  # two was asked once, and has no more contexts


def chosen(known: list[Attempts], reserve: bool = False, **settings: Any) -> Any:
    """Return what is chosen of 12 easy tasks of `one` and 12 hard ones of `two`."""
    rows = [written(f"t{place:02d}", f"one: {'a' * place}") for place in range(1, 13)]
    rows += [written(f"u{place:02d}", f"two: {'b' * place}") for place in range(1, 13)]
    given = {"tasks": 8, "candidates": 3, "random_share": 0.25} | settings
    return choose(
        frame("tasks", rows), known, settings=GenerationConfig(**given),
        curriculum=CurriculumConfig(alpha=0.5, k_min=0.4), seed=0, shares=SHARES,
        reserve=reserve,
    )  # fmt: skip


def rated(text: str, successes: int, predicted: float | None = None) -> Attempts:
    row = written("t", text)
    odds = None if predicted is None else log_odds(predicted)
    return Attempts(features(row, SHARES), successes, 8, odds)


@mutation(
    "the nearest to alpha are chosen, of whichever domain", CHOOSING,
    'settings.model_copy(update={"tasks": split[domain]}),', "settings,",
)  # fmt: skip
def test_the_choice_keeps_the_shares_however_far_from_alpha_a_domain_is() -> None:
    known = [rated("one: aaa", 4), rated("two: bbb", 0)] * 10
    for before in ([], known):
        attempted_rows = chosen_tasks(chosen(before))
        assert Counter(map(SHARES.domain_of, attempted_rows["family"])) == {"one": 6, "two": 2}
    choices = chosen(known)
    drawn = choices.filter(choice="random")["family"].to_list()
    assert Counter(map(SHARES.domain_of, drawn)) == {"one": 2}  # a quarter of 6, none of 2


@mutation(
    "the drift is that of all domains", CHOOSING,
    "[one for one in known if one.features.domain == domain]", "list(known)",
)  # fmt: skip
def test_what_predictions_missed_moves_the_domain_that_they_were_of() -> None:
    made = chosen([rated("one: aaa", 4, 0.25), rated("two: bbb", 4, 0.5)] * 10)
    drifts = {
        SHARES.domain_of(family): drift
        for family, drift in made.select("family", "predicted_drift").iter_rows()
    }
    assert drifts["two"] == pytest.approx(0, abs=1e-6)
    assert drifts["one"] == pytest.approx(log_odds(0.5) - log_odds(0.25), abs=1e-6)


@mutation(
    "a reserve has one domain after the other", CHOOSING,
    'sort("turn", "number")', 'sort("number", "turn")',
)  # fmt: skip
@mutation(
    "a reserve has all domains in equal shares", CHOOSING,
    "/ shares.weights.get(turns.domain, 1.0)", "/ 1.0",
)  # fmt: skip
def test_every_beginning_of_a_reserve_keeps_the_shares() -> None:
    reserve = reserve_tasks(chosen([rated("one: aaa", 4), rated("two: bbb", 0)] * 10, reserve=True))
    domains = [SHARES.domain_of(family) for family in reserve["family"]]
    assert reserve["reserve_place"].to_list() == list(range(reserve.height))
    for count in (4, 8):
        assert Counter(domains[:count]) == {"one": count * 3 // 4, "two": count // 4}
    assert Counter(domains) == {"one": 6, "two": 10}


def test_a_domain_that_was_never_attempted_is_chosen_by_lot() -> None:
    made = chosen([rated("one: aaa", 4)] * 10)
    of_two = made.filter(made["family"].str.starts_with("two/"))
    assert of_two["predicted_p"].null_count() == 12
    assert Counter(of_two["choice"]) == {"random": 2, "not_chosen": 10}


@mutation(
    "all domains share the slopes of numbers", MODEL,
    "np.where((domains == domain)[:, None], (numbers - centre) / spread, 0.0)",
    "(numbers - centre) / spread",
)  # fmt: skip
@mutation(
    "all domains share the weights of words", MODEL,
    'kind = f"word of {features.domain}" if features.domain else "word"', 'kind = "word"',
)  # fmt: skip
def test_difficulties_and_words_of_two_domains_do_not_mix() -> None:
    """In `one` larger numbers and the word `now` are harder, in `two` easier."""

    def row(domain: str, number: float, text: str, successes: int) -> Attempts:
        return Attempts(Features(f"{domain}/k", (number,), text, domain), successes, 8)

    easy, hard = 7, 1
    rows = [
        row("one", 1, "a", easy), row("one", 5, "a", hard),
        row("two", 1, "b", hard), row("two", 5, "b", easy),
        row("one", 3, "a now", hard), row("one", 3, "a", easy),
        row("two", 3, "b now", easy), row("two", 3, "b", hard),
    ] * 15  # fmt: skip
    found = [one.mean for one in SuccessModel(rows).predict([one.features for one in rows[:8]])]
    assert [rate > 0.5 for rate in found] == [one.successes == easy for one in rows[:8]]
    assert found[0] > 0.7 and found[1] < 0.3 and found[2] < 0.3 and found[3] > 0.7
    assert found[4] < 0.4 < 0.6 < found[6]


@mutation(
    "the record of each domain is that of all", CONTEXTS,
    "agent_history(task_scores, tasks.filter(own))", "agent_history(task_scores, tasks)",
)  # fmt: skip
def test_the_agents_record_is_told_by_domain() -> None:
    tasks = frame("tasks", [written("t", "one: aa"), written("u", "two: aa")])
    scores = frame("task_scores", [
        {"task_id": "t", "source": "generated", "successes": 4, "n": 4},
        {"task_id": "u", "source": "generated", "successes": 1, "n": 4},
    ])  # fmt: skip
    record = agent_history(scores, tasks, SHARES)
    assert record.success_rate == 5 / 8
    assert record.by_family == {"one/k2": (4, 4), "two/k2": (1, 4)}
    assert record.by_domain == {
        "one": AgentHistory(1.0, {"k2": (4, 4)}),
        "two": AgentHistory(0.25, {"k2": (1, 4)}),
    }
    only = agent_history(scores, tasks.head(1), SHARES)
    assert set(only.by_domain) == {"one"}
    assert agent_history(scores, tasks).by_domain == {}


@mutation(
    "base tasks are drawn from all domains together", "genenv_core/epoch/attempts.py",
    "for name, count in shares.split(want).items():", 'for name, count in {"one": want}.items():',
)  # fmt: skip
def test_attempted_base_tasks_have_the_shares() -> None:
    mixture = MixtureConfig(new=0.5, base=0.5, history=0.0)
    new = frame("tasks", [written(f"t{place}", f"one: {'c' * (place + 1)}") for place in range(4)])
    found = attempted(new, BASE, mixture, seed_for, None, SHARES)[4:]
    assert Counter(SHARES.domain_of(one.draft.family) for one in found) == {"one": 3, "two": 1}
    assert len({one.task_id for one in found}) == 4
