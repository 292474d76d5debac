"""Bamboogle's training questions.

Invariants: every drawn question is sound and comes back from its program, with a search engine and
without; held-out questions are no base questions and no examples, whatever the seeds; a generation
that is no question of two hops or more is refused with the reason; one that repeats an item is
contaminated; a user's questions take the place of the world; pi_env can play the search engine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema.validators import Draft202012Validator

from genenv_core.benchmarks.bamboogle.training import BamboogleDomain
from genenv_core.benchmarks.bamboogle.training.wording import ENV_RULES, OBSERVATION_SCHEMA
from genenv_core.domains.protocol import (
    ConstrainsEnv,
    KnowsSolution,
    SeedData,
    SimulatedTools,
    tools_of,
)
from genenv_core.errors import ConfigError, DataError, DomainError
from genenv_core.play.simulator import checked, misfit
from genenv_core.types import AgentHistory, Context, Rejected, Rejection, TaskDraft
from tests.mutations import mutation
from tests.unit.domains.checking import flaws
from tests.unit.domains.domain_contract import DomainContract
from tests.unit.domains.played_turns import call, hostile, played

WRITING = "genenv_core/benchmarks/bamboogle/training/writing.py"

ITEM = "What is the secret name of the oldest lamp in the deep blue harbour of the north?"
GOOD: dict[str, Any] = {
    "question": "In what year did the author of The Keys of Mosewick die?",
    "answer": "1711",
    "passages": [
        {"title": "The Keys of Mosewick", "text": "The Keys of Mosewick is by Sador Pel."},
        {"title": "Sador Pel", "text": "Sador Pel died in 1711."},
        {"title": "Nuvek Lior", "text": "Nuvek Lior died in 1712."},
    ],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a download with two questions of ours."""
    folder = tmp_path_factory.mktemp("bamboogle")
    rows = f"Question,Answer\n{ITEM},Bertha\nWho is it?,Ann\n"
    (folder / "test.csv").write_text(rows)
    return folder


def made(data: Path, **options: Any) -> BamboogleDomain:
    return BamboogleDomain.from_options({"data": str(data), **options})


@pytest.fixture(scope="module", params=["none", "simulated"])
def domain(request: pytest.FixtureRequest, data: Path) -> BamboogleDomain:
    return made(data, search=request.param)


@pytest.fixture(scope="module")
def alone(data: Path) -> BamboogleDomain:
    return made(data)


class TestBamboogle(DomainContract):
    """The contract, with a search engine and without."""

    base, heldout = 200, 40
    protocols = (SeedData, ConstrainsEnv, KnowsSolution)
    not_allowed = ("", "{}", json.dumps({**GOOD, "passages": []}))
    alien = ({}, {"question": "x", "answer": "y"}, {"passages": [1]})


def test_every_drawn_question_can_be_answered(domain: BamboogleDomain) -> None:
    drafts = [*domain.base_tasks(1, 200), *domain.heldout_tasks(1, 40)]
    for draft in drafts:
        messages, done = played(domain, draft, [t.says for t in domain.solution(draft)])
        assert done and domain.score(draft, messages).success
        messages, done = played(domain, draft, [f"{draft.ground_truth}1"])
        assert done and not domain.score(draft, messages).success
    assert {draft.difficulty for draft in drafts} == {1, 2, 3, 4}
    assert {d.family for d in drafts} == {
        f"hops{n} {kind}" for n in (2, 3) for kind in ("year", "words")
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_every_drawn_question_of_more_seeds_is_sound(domain: BamboogleDomain, seed: int) -> None:
    for draft in [*domain.base_tasks(seed, 200), *domain.heldout_tasks(seed, 200)]:
        assert flaws(draft, domain) == [] and domain.parse(draft.program) == [draft]


def test_the_kind_of_the_answer_does_not_give_it_away(alone: BamboogleDomain) -> None:
    for draft in alone.base_tasks(5, 100):
        if draft.family.endswith("year"):
            texts = [p["text"] for p in draft.spec["passages"] if p["text"][-5:-1].isdigit()]
            assert len(texts) > 1


def test_examples_search_where_there_is_a_search_engine(domain: BamboogleDomain) -> None:
    examples = domain.agent_examples(1, 60)
    ends = [answer for _, answer in examples if answer.startswith("Final answer: ")]
    searches = [answer for _, answer in examples if answer.startswith("<tool_call>")]
    assert len(ends) + len(searches) == 60 and ends
    assert bool(searches) == (domain.options.search != "none")


def test_pi_env_reads_the_agents_success_and_the_base_question(alone: BamboogleDomain) -> None:
    base = alone.base_tasks(0, 1)[0]
    context = Context("c", "t", base, AgentHistory(0.46, {"hops2 year": (3, 8), "a": (1, 2)}))
    system, user = alone.env_messages(context)
    assert user["content"] == (
        f"success 5/10; by family: a 1/2, hops2 year 3/8; base: {base.program} ; new:"
    )
    assert system["content"] == ENV_RULES
    validator = Draft202012Validator(json.loads(alone.env_grammar(context).text))
    for shown in ENV_RULES.splitlines()[-2:]:
        text = shown[shown.index("{") : shown.rindex("}") + 1]
        assert validator.is_valid(json.loads(text))
        assert isinstance(alone.parse(text)[0], TaskDraft)


def without(field: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != field}


def passages(*texts: tuple[str, str]) -> dict[str, Any]:
    return {**GOOD, "passages": [{"title": title, "text": text} for title, text in texts]}


BOOK = ("The Keys of Mosewick", "The Keys of Mosewick is by Sador Pel.")
DIED = ("Sador Pel", "Sador Pel died in 1711.")

MUTATED: list[tuple[Any, Rejection, str]] = [
    ("{", Rejection.UNPARSEABLE, "no JSON"),
    (json.dumps({**GOOD, "answer": "\ud800"}), Rejection.UNPARSEABLE, "surrogate"),
    (without("answer"), Rejection.UNPARSEABLE, "answer"),
    (without("question"), Rejection.UNPARSEABLE, "question"),
    (without("passages"), Rejection.UNPARSEABLE, "passages"),
    ({**GOOD, "answer": 1711}, Rejection.UNPARSEABLE, "answer"),
    ({**GOOD, "hint": "x"}, Rejection.UNPARSEABLE, "hint"),
    ({**GOOD, "passages": ["a", "b"]}, Rejection.UNPARSEABLE, "passages"),
    ({**GOOD, "passages": GOOD["passages"][:1]}, Rejection.OUT_OF_RANGE, "passages"),
    ({**GOOD, "passages": GOOD["passages"] * 6}, Rejection.OUT_OF_RANGE, "passages"),
    ({**GOOD, "question": "Who?"}, Rejection.OUT_OF_RANGE, "question"),
    ({**GOOD, "answer": "1711" * 20}, Rejection.OUT_OF_RANGE, "answer"),
    (passages(BOOK, (DIED[0], DIED[1] * 99)), Rejection.OUT_OF_RANGE, "passages"),
    ({**GOOD, "question": GOOD["question"][:-1]}, Rejection.INCONSISTENT, "end with ?"),
    ({**GOOD, "answer": "the"}, Rejection.INCONSISTENT, "no word"),
    ({**GOOD, "answer": "Mosewick"}, Rejection.LEAKS_ANSWER, "Mosewick"),
    ({**GOOD, "answer": "1799"}, Rejection.INCONSISTENT, "no passage says the answer"),
    ({**GOOD, "question": "In what year did he die?"}, Rejection.INCONSISTENT, "names no"),
    ({**GOOD, "question": "When did Sador Pel die?"}, Rejection.INCONSISTENT, "is enough"),
    (passages((BOOK[0], f"By him. {DIED[1]}"), DIED), Rejection.INCONSISTENT, "is enough"),
    (passages(BOOK, (DIED[0], f"{BOOK[1]} {DIED[1]}")), Rejection.INCONSISTENT, "is enough"),
    (passages((BOOK[0], "It is a novel."), DIED), Rejection.INCONSISTENT, "do not lead"),
    (passages(BOOK, DIED, DIED), Rejection.INCONSISTENT, "one title"),
]  # fmt: skip


@mutation("a question may say its answer", WRITING, "if contains(question, answer):", "if False:")
@mutation(
    "one passage may be enough for a question of two hops", WRITING,
    "if passage.title in holding and any(_about(passage, title) for title in asked):", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(("value", "reason", "detail"), MUTATED)
def test_a_changed_generation_is_refused_with_the_reason(
    alone: BamboogleDomain, value: Any, reason: Rejection, detail: str
) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    (found,) = alone.parse(text)
    assert isinstance(found, Rejected) and found.reason == reason and detail in found.detail


def test_a_good_generation_is_a_task(alone: BamboogleDomain) -> None:
    (draft,) = alone.parse(json.dumps(GOOD))
    assert isinstance(draft, TaskDraft)
    assert (draft.family, draft.difficulty) == ("hops2 year", 1.0)
    assert alone.parse(f"```json\n{json.dumps(GOOD, indent=1)}\n```") == [draft]
    assert draft.prompt.endswith(f"Nuvek Lior died in 1712.\n{GOOD['question']}")
    assert flaws(draft, alone) == []
    longer = {**GOOD, "passages": [*GOOD["passages"], {"title": "Orin", "text": "A man."}] * 1}
    longer["passages"] += [{"title": "Bela", "text": "A town."}]
    (harder,) = alone.parse(json.dumps(longer))
    assert isinstance(harder, TaskDraft) and harder.difficulty == 2.0


@pytest.mark.parametrize("said", ["question", "passage"])
def test_a_generation_that_repeats_an_item_is_contaminated(
    alone: BamboogleDomain, said: str
) -> None:
    value = json.loads(json.dumps(GOOD))
    if said == "question":
        value["question"] = f"{ITEM[:-1]}, says The Keys of Mosewick?"
    else:
        value["passages"][2]["text"] = ITEM
    (found,) = alone.parse(json.dumps(value))
    assert isinstance(found, Rejected) and found.reason == Rejection.CONTAMINATED
    assert "item 0" in found.detail
    assert isinstance(alone.read(json.dumps(value))[0], TaskDraft)


@pytest.mark.slow
def test_hostile_turns_fail_in_training_too(domain: BamboogleDomain) -> None:
    (draft,) = domain.parse(json.dumps(GOOD))
    assert isinstance(draft, TaskDraft)
    for turn in hostile("search"):
        messages, _ = played(domain, draft, [turn])
        assert not domain.score(draft, messages).success


def test_a_training_question_searches_its_own_passages(data: Path) -> None:
    domain = made(data, search="simulated")
    (draft,) = domain.parse(json.dumps(GOOD))
    assert isinstance(draft, TaskDraft) and draft.prompt == GOOD["question"]
    assert [tool["function"]["name"] for tool in tools_of(domain, draft)] == ["search"]
    messages, _ = played(domain, draft, [call("search", query="Sador")])
    first, second = messages[-1]["content"].splitlines()
    assert first == "Sador Pel: Sador Pel died in 1711." and second.startswith("The Keys")


def test_pi_env_plays_the_search_engine(data: Path) -> None:
    domain = made(data, search="simulated")
    assert isinstance(domain, SimulatedTools)
    (draft,) = domain.parse(json.dumps(GOOD))
    assert isinstance(draft, TaskDraft)

    def asked(draft: TaskDraft, text: str) -> Any:
        return domain.tool_messages(
            draft, [*domain.agent_messages(draft), {"role": "assistant", "content": text}]
        )

    system, user = asked(draft, call("search", query="Sador") + call("search", query="Pel"))
    assert "search engine" in system["content"]
    assert "Sador Pel: Sador Pel died in 1711." in user["content"]
    assert user["content"].endswith('queries: ["Sador", "Pel"] ; found:')
    item = domain.items()[0]
    assert asked(item, call("search", query="x"))[1]["content"] == 'queries: ["x"] ; found:'
    assert asked(draft, "Final answer: 1711") is None
    for wrong in ("<tool_call>{", call("search"), call("search", query=7)):
        with pytest.raises(DomainError, match="no search"):
            asked(draft, wrong)
    assert (
        made(data).tool_messages(draft, [{"role": "assistant", "content": call("search")}]) is None
    )
    answer = {"content": "Sador Pel: Sador Pel died in 1711.", "name": "search"}
    assert misfit(answer, checked(OBSERVATION_SCHEMA)) == ""
    with pytest.raises(DomainError, match=r"tools\.execution: simulated"):
        domain.episode(item, 0)


@mutation(
    "a result does not name the corpus that was searched",
    "genenv_core/benchmarks/bamboogle/training/bamboogle_domain.py",
    'self.version += f"-{self._corpus_digest[:16]}"', "pass",
)  # fmt: skip
def test_the_search_engine_is_named(data: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"title": "T", "text": "x"}')
    assert made(data).protocol() == {"search": "none"}
    assert made(data, search="simulated").protocol() == {"search": "simulated"}
    one = made(data, search="corpus", corpus=str(corpus))
    assert one.protocol()["search"] == "corpus" and len(one.protocol()["corpus"]) == 16
    corpus.write_text('{"title": "T", "text": "y"}')
    other = made(data, search="corpus", corpus=str(corpus))
    assert one.protocol() != other.protocol() and one.version != other.version
    for options in ({"search": "corpus"}, {"corpus": str(corpus)}):
        with pytest.raises(ConfigError, match="corpus goes with search"):
            made(data, **options)
    with pytest.raises(ConfigError, match="search"):
        made(data, search="google")


def test_a_users_questions_take_the_place_of_the_world(data: Path, tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} and {n}?", "answer": str(2 * n)} for n in range(100)]
    file = tmp_path / "train.jsonl"

    def write(*rows: Any) -> None:
        file.write_text("\n".join(map(json.dumps, rows)))

    write(*rows)
    domain = made(data, train=str(file))
    base, heldout = domain.base_tasks(1, 60), domain.heldout_tasks(1, 10)
    prompts = {draft.prompt for draft in [*base, *heldout]}
    assert len(prompts) == 70 and prompts <= {row["question"] for row in rows}
    for draft in [*base, *heldout]:
        assert flaws(draft, domain) == []
    with pytest.raises(ConfigError, match="wanted: lower"):
        domain.base_tasks(1, 100)
    version = domain.version
    write(*rows[1:])
    assert made(data, train=str(file)).version != version
    for row, problem in (
        ({"question": "Who?"}, "row 1"),
        ({"question": 1, "answer": "x"}, "row 1"),
        ([], "row 1"),
        ({"question": ITEM, "answer": "x"}, "item 0 of Bamboogle; remove"),
    ):
        write(row)
        with pytest.raises(DataError, match=problem):
            made(data, train=str(file))
    with pytest.raises(ConfigError, match="no such file"):
        made(data, train=str(tmp_path / "none"))


def test_rules_can_be_left_out_for_tiny_models(data: Path) -> None:
    domain = made(data, search="simulated", explain=False)
    draft = domain.base_tasks(1, 1)[0]
    context = Context("c", "t", draft, AgentHistory())
    for messages in (domain.agent_messages(draft), domain.env_messages(context)):
        assert [message["role"] for message in messages] == ["user"]
    assert flaws(draft, domain) == []
    assert domain.agent_messages(domain.items()[0])[0]["role"] == "system"
