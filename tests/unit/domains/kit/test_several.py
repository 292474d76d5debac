"""Several domains in one run, as one domain that is made of them.

Invariants: it keeps the contract of every domain; each domain gets its share of base tasks, of
held-out tasks and of examples, in every beginning of a list, and at least a few; a task says of
which domain it is in its program, its family and its spec, and is played, judged and certified by
that one; equal tasks of one domain that stands there twice are duplicates; pi_env reads how the
agent does in the domain that it writes for; the joined domain has an optional protocol if its
domains can keep it together; names, weights, options and versions change its version, the code of
each domain counts; a wrong entry is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from genenv_core.config.load import resolve
from genenv_core.domains.kit.several.abilities import abilities_of
from genenv_core.domains.kit.several.several_domain import several
from genenv_core.domains.protocol import (
    ConstrainsEnv,
    EmbedsTasks,
    KnowsSolution,
    NamesLeaks,
    PartOfSeveral,
    ReadsAnswers,
    SeedData,
    SimulatedTools,
    ToolsByTask,
    WritesAnswers,
    judged_while_played,
    repeatable,
    tools_of,
)
from genenv_core.domains.registry import get_domain, is_built_in, modules_of
from genenv_core.domains.shares import Shares
from genenv_core.domains.tool_calls import ReadsCalls
from genenv_core.errors import ConfigError, DomainError
from genenv_core.play.certificate import certify
from genenv_core.play.checking.domain_checks import check_domain
from genenv_core.storage.records.code import counted
from genenv_core.types import AgentHistory, Context, Rejected, TaskDraft, Verdict
from tasks import score
from tasks.stage.key import parts_of
from tests.mutations import mutation
from tests.unit.builders_stage import NO_INPUTS
from tests.unit.domains.domain_contract import DomainContract, allowed

JOINED = "genenv_core/domains/kit/several/joined.py"
ABILITIES = "genenv_core/domains/kit/several/abilities.py"

DESK = {"name": "desk", "weight": 3}
SUMS = {"name": "arithmetic"}


def joined(*parts: dict[str, Any]) -> Any:
    return several({"parts": list(parts or (DESK, SUMS))})


@pytest.fixture(scope="module")
def domain() -> Any:
    return joined()


def labels(drafts: list[TaskDraft]) -> Counter[str]:
    return Counter(draft.family.partition("/")[0] for draft in drafts)


def of(domain: Any, label: str) -> TaskDraft:
    return next(d for d in domain.base_tasks(0, 8) if d.family.startswith(f"{label}/"))


class TestSeveral(DomainContract):
    """The contract of every domain."""

    protocols = (SeedData, ConstrainsEnv, WritesAnswers, KnowsSolution, ToolsByTask, ReadsAnswers)

    def apart(self, draft: TaskDraft) -> str:
        return draft.fingerprint.partition(": ")[2]

    def test_pi_env_is_told_the_agents_success_and_the_base_task(self, domain: Any) -> None:
        for label in ("desk", "arithmetic"):
            draft = of(domain, label)
            context = Context("c", "t", draft, AgentHistory(0.87))
            asked = domain.env_messages(context)[-1]["content"]
            own = draft.program.removeprefix(f"{label}: ")
            assert f"success 9/10; base: {own} ; new:" in asked
            assert asked.endswith(f"\nBegin with `{label}: `.")

    def test_the_grammar_allows_what_is_drawn_and_not_everything(self, domain: Any) -> None:
        desk, sums = of(domain, "desk"), of(domain, "arithmetic")
        grammar = domain.env_grammar(Context("c", "t", desk, AgentHistory()))
        assert allowed(grammar, desk.program) and not allowed(grammar, sums.program)
        assert not allowed(grammar, desk.program.removeprefix("desk: "))


@mutation(
    "held-out tasks have the bare shares", JOINED,
    "least = max(1, count // (2 * len(self.parts)))", "least = 1",
)  # fmt: skip
def test_each_domain_has_its_share_of_tasks_and_of_held_out_ones_at_least_half_of_an_equal() -> (
    None
):
    mixed = joined({**DESK, "weight": 9}, SUMS)
    assert labels(mixed.base_tasks(0, 40)) == {"desk": 36, "arithmetic": 4}
    assert labels(mixed.base_tasks(0, 40)[:10]) == {"desk": 9, "arithmetic": 1}
    assert labels(mixed.heldout_tasks(0, 40)) == {"desk": 30, "arithmetic": 10}
    assert labels(mixed.base_tasks(0, 1)) == {"desk": 1}
    rare = joined({**DESK, "weight": 1000}, SUMS)
    assert labels(rare.base_tasks(0, 8)) == {"desk": 7, "arithmetic": 1}


def test_examples_have_the_shares_and_texts_of_tasks_the_name(domain: Any) -> None:
    made = domain.env_examples(0, 40, 0.5)
    assert Counter(text.partition(":")[0] for _, text in made) == {"desk": 30, "arithmetic": 10}
    assert all(asked[-1]["content"].endswith("Begin with `desk: `.")
               for asked, text in made if text.startswith("desk: "))  # fmt: skip
    agent = domain.agent_examples(0, 40)
    assert sum(asked[-1]["content"].endswith(" =") for asked, _ in agent) == 10


@mutation(
    "what pi_env says as a tool names a domain", ABILITIES,
    "        return messages, text\n    return naming", "        pass\n    return naming",
)  # fmt: skip
def test_the_answer_of_a_tool_names_no_domain() -> None:
    played = joined({"name": "desk", "options": {"dialogue": True}}, {"name": "trails"})
    tools = [(m, t) for m, t in played.env_examples(0, 60, 0.5) if t.startswith("{")]
    assert len(tools) > 5
    assert all("Begin with" not in messages[-1]["content"] for messages, _ in tools)


def test_a_task_is_played_and_judged_by_its_own_domain(domain: Any) -> None:
    sums = of(domain, "arithmetic")
    own = get_domain("arithmetic")
    (inner,) = own.parse(sums.program.removeprefix("arithmetic: "))
    assert isinstance(inner, TaskDraft)
    assert domain.own_task(sums)[1] == inner
    assert sums.spec == {"domain": "arithmetic", "task": inner.spec}
    assert sums.difficulty == inner.difficulty and sums.family == f"arithmetic/{inner.family}"
    assert domain.agent_messages(sums) == own.agent_messages(inner)
    said = domain.agent_messages(sums)
    right = [*said, {"role": "assistant", "content": inner.ground_truth}]
    assert domain.score(sums, right).success and domain.answer_turns(sums) == [inner.ground_truth]
    assert tools_of(domain, sums) == own.tools
    assert tools_of(domain, of(domain, "desk")) == get_domain("desk").tools


@mutation(
    "the certificate asks all domains together", "genenv_core/play/certificate.py",
    "    domain, draft = own_task(domain, draft)", "    own_task(domain, draft)",
)  # fmt: skip
def test_a_task_has_the_certificate_of_its_own_domain() -> None:
    class Mute:
        """Trails without a solution, and without an answer that is judged by leaks."""

        def __init__(self) -> None:
            self._own: Any = get_domain("trails")
            self.name, self.version, self.tools = "mute", "1", self._own.tools

        def __getattr__(self, name: str) -> Any:
            if name in ("base_tasks", "parse", "agent_messages", "episode", "score",
                        "trivial_answers"):  # fmt: skip
                return getattr(self._own, name)
            raise AttributeError(name)

    desk = PartOfSeveral("desk", "desk", get_domain("desk"))
    mute: Any = Mute()
    parts = [desk, PartOfSeveral("mute", "mute", mute)]
    made = type("Both", tuple(abilities_of(parts)), {})(parts, Shares({"desk": 1, "mute": 1}), {})
    assert not isinstance(made, KnowsSolution)
    own = get_domain("desk").base_tasks(5, 1)[0]
    (both,) = made.parse(f"desk: {own.program}")
    assert certify(both, made) == certify(own, get_domain("desk"))
    assert {check.flaw for check in certify(both, made)} > {
        check.flaw
        for check in certify(made.parse("mute: " + mute.base_tasks(0, 1)[0].program)[0], made)
    }


def test_a_text_without_a_name_is_no_task(domain: Any) -> None:
    for text in ("+ 3 bolts 4", "trails: a b c", "", ": 3 + 4", "desk 3 + 4"):
        (found,) = domain.parse(text)
        assert isinstance(found, Rejected)
        assert "begin with 'desk: ' or 'arithmetic: '" in found.detail
    (thought,) = domain.parse("<think>desk: or a sum?</think>\narithmetic:  43 + 8")
    assert isinstance(thought, TaskDraft) and thought.program == "arithmetic: 43 + 8"
    (bad,) = domain.parse("arithmetic: 43 +")
    assert isinstance(bad, Rejected) and "begin with" not in bad.detail


@mutation(
    "a domain that stands there twice may write a task twice", JOINED,
    'fingerprint=f"{part.domain.name}: {own.fingerprint}",',
    'fingerprint=f"{part.label}: {own.fingerprint}",',
)  # fmt: skip
def test_a_domain_may_stand_there_twice_and_shares_no_task_with_itself() -> None:
    short = {"name": "desk", "as": "short", "options": {"max_calls": 1, "max_operand": 2}}
    twice = joined(short, {**short, "as": "long", "options": {"max_calls": 2, "max_operand": 2}})
    one, other = (twice.parse(f"{label}: + 1 bolts 2")[0] for label in ("short", "long"))
    assert one.fingerprint == other.fingerprint and one != other
    drawn = twice.base_tasks(0, 40)
    assert len({draft.fingerprint for draft in drawn}) == 40
    assert labels(drawn) == {"short": 20, "long": 20}


@mutation(
    "pi_env reads how the agent does in all domains", JOINED,
    "        if history.by_domain:\n", "        if not history:\n",
)  # fmt: skip
def test_pi_env_reads_how_the_agent_does_in_the_domain_that_it_writes_for(domain: Any) -> None:
    history = AgentHistory(0.5, {"desk/k1": (4, 8)}, {"desk": AgentHistory(0.1, {"k1": (4, 8)})})

    def asked(label: str, known: AgentHistory) -> str:
        return domain.env_messages(Context("c", "t", of(domain, label), known))[-1]["content"]

    assert "success 1/10;" in asked("desk", history)
    assert "success none;" in asked("arithmetic", history)
    assert "success 5/10;" in asked("arithmetic", AgentHistory(0.5))


def test_it_can_do_what_its_domains_can_do_together(domain: Any) -> None:
    played = joined({"name": "desk"}, {"name": "trails"})
    assert isinstance(played, SimulatedTools) and not isinstance(played, WritesAnswers)
    assert not isinstance(domain, SimulatedTools)  # arithmetic has no tools
    for one in (domain, played):
        assert not isinstance(one, NamesLeaks | EmbedsTasks | ReadsCalls)
        assert repeatable(one) and not judged_while_played(one)
    desk = of(played, "desk")
    assert played.tool_messages(desk, [{"role": "assistant", "content": "done"}]) is None


class _Part:
    """A domain of which only these attributes are asked."""

    name, version, tools = "part", "1", ()

    def __init__(self, **more: Any) -> None:
        self.__dict__ |= more


def made_of(*domains: Any) -> Any:
    parts = [PartOfSeveral(f"p{place}", "p", one) for place, one in enumerate(domains)]
    shares = Shares({part.label: 1.0 for part in parts})
    return type("Made", tuple(abilities_of(parts)), {})(parts, shares, {})


@mutation("only all make attempts that cannot be repeated", JOINED,
          "self.repeatable = all(", "self.repeatable = any(")  # fmt: skip
@mutation("only all make a domain judged while it is played", JOINED,
          "self.judged_while_played = any(", "self.judged_while_played = all(")  # fmt: skip
def test_one_domain_decides_what_must_hold_for_all() -> None:
    made = made_of(
        _Part(files=["a"], repeatable=False), _Part(files=["b"], judged_while_played=True)
    )
    assert (made.files, made.repeatable, made.judged_while_played) == (["a", "b"], False, True)
    assert not isinstance(made, SeedData | ReadsAnswers | ConstrainsEnv)
    plain = made_of(_Part(), _Part())
    assert (plain.files, plain.repeatable, plain.judged_while_played) == ([], True, False)


def test_domains_whose_calls_are_read_differently_do_not_go_together() -> None:
    class Own(_Part):
        def read_calls(self, text: str) -> list[Any]:
            return [text]

    assert made_of(Own(), Own()).read_calls("a") == ["a"]
    with pytest.raises(ConfigError, match="p1 read tool calls in a form of their own"):
        made_of(_Part(), Own())


def test_a_row_that_two_domains_read_is_no_task() -> None:
    def reading(found: Any) -> Any:
        return _Part(from_answer=lambda prompt, truth: found)

    draft = TaskDraft("p", {}, "t", "w", "f", 1.0, "w")
    refused = Rejected("unparseable", "no")  # type: ignore[arg-type]
    assert made_of(reading(draft), reading(refused)).from_answer("p", "t").program == "p0: w"
    assert made_of(reading(refused), _Part()).from_answer("p", "t") == refused
    both = made_of(reading(draft), reading(draft)).from_answer("p", "t")
    assert isinstance(both, Rejected) and both.detail.startswith("p0 and p1 both read it")


def test_a_grammar_that_no_name_can_stand_before_is_refused() -> None:
    class Schema(_Part):
        def env_grammar(self, context: Context) -> Any:
            return type("G", (), {"kind": "json", "text": "{}"})()

    made = made_of(Schema(), Schema())
    draft = TaskDraft("p", {"domain": "p0", "task": {}}, "t", "p0: w", "p0/f", 1.0, "part: w")
    with pytest.raises(ConfigError, match=r"generation\.structured: p0, .*kind json"):
        made.env_grammar(Context("c", "t", draft, AgentHistory()))


def test_a_domain_that_gives_too_few_tasks_is_named() -> None:
    own = TaskDraft("p", {}, "t", "w", "f", 1.0, "w")
    one = _Part(base_tasks=lambda seed, count: [own][:count])
    with pytest.raises(DomainError, match="p1 has 0 tasks that no other domain has, of 1 wanted"):
        made_of(one, one).base_tasks(0, 2)


def test_names_weights_options_and_versions_change_the_version(monkeypatch: Any) -> None:
    from genenv_core.domains.arithmetic import Arithmetic

    def version(*parts: dict[str, Any]) -> str:
        return joined(*parts).version

    usual = version()
    assert usual == version(DESK, SUMS)
    others = {
        version({**DESK, "weight": 2}, SUMS),
        version({**DESK, "as": "d"}, SUMS),
        version(DESK, {**SUMS, "options": {"terms": 3}}),
        version(SUMS, DESK),
    }
    monkeypatch.setattr(Arithmetic, "version", "2")
    assert len({usual, *others, version()}) == 6


@mutation(
    "the code of the joined domains counts in no key", "genenv_core/domains/registry.py",
    "return [type(domain).__module__, *chain.from_iterable(of_parts)]",
    "return [type(domain).__module__]",
)  # fmt: skip
def test_the_code_of_each_domain_counts(domain: Any) -> None:
    assert modules_of("several", domain) == [
        "genenv_core.domains.kit.several.several_domain",
        "genenv_core.domains.desk.desk_domain",
        "genenv_core.domains.arithmetic",
    ]


def test_it_is_genenvs_own_if_each_of_its_domains_is() -> None:
    assert is_built_in("several", {"parts": [DESK, SUMS]})
    assert not is_built_in("several", {"parts": [DESK, {"name": "mine.py:Mine"}]})
    assert not is_built_in("several", {"parts": "desk"}) and not is_built_in("several")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([DESK], r"domains: expected a list of at least 2"),
        ([DESK, {**SUMS, "weight": 0}], r"domains\[1\]\.weight: expected more than 0, got 0"),
        ([DESK, {**SUMS, "weight": -1}], r"domains\[1\]\.weight: .* got -1"),
        ([DESK, {**SUMS, "wieght": 1}], r"domains\[1\]\.wieght is no field; .*name, as, weight"),
        ([DESK, {"weight": 1}], r"domains\[1\]\.name"),
        ([DESK, DESK], "2 of them are called 'desk': give each a name of its own"),
        ([DESK, {"name": "dsek"}], r"domains\[1\]\.name 'dsek' is unknown; known: .*desk"),
        ([DESK, {**SUMS, "as": "a/b"}], r"domains\[1\]\.as: .* got 'a/b' \('a-b' would do"),
        ([DESK, {**SUMS, "options": {"trems": 1}}], r"domains\[1\]\.options\.trems"),
        ([DESK, {"name": "several"}], r"domains\[1\]\.name 'several': name the domains themselves"),
    ],
)
def test_a_wrong_entry_is_named(parts: list[Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        get_domain("several", {"parts": parts})


def test_without_domains_it_says_how_to_name_them() -> None:
    with pytest.raises(ConfigError, match=r"^domains is missing: name at least two, as in domains"):
        get_domain("several", {})


def test_a_domain_by_its_place_is_called_as_it_calls_itself(tmp_path: Path) -> None:
    made_from = "from genenv_core.domains.arithmetic import Arithmetic\n\n"
    text = made_from + "class {0}(Arithmetic):\n    name = '{1}'\n"
    (tmp_path / "mine_of_several.py").write_text(text.format("Mine", "mine"), encoding="utf-8")
    (tmp_path / "odd_of_several.py").write_text(text.format("Odd", "an odd one"), encoding="utf-8")
    place = f"{tmp_path}/mine_of_several.py:Mine"
    made = joined(DESK, {"name": place})
    assert [part.label for part in made.parts] == ["desk", "mine"]
    assert "mine_of_several" in modules_of("several", made)
    with pytest.raises(ConfigError, match=r"calls itself 'an odd one', .* give it a short name"):
        joined(DESK, {"name": f"{tmp_path}/odd_of_several.py:Odd"})


@pytest.mark.parametrize("other", ["arithmetic", "trails"])
def test_the_check_of_domains_finds_no_fault(other: str) -> None:
    parts = {"parts": [DESK, {"name": other}]}
    assert check_domain("several", parts, base=20, heldout=10) == []


def test_a_spec_of_no_domain_is_refused(domain: Any) -> None:
    draft = replace(of(domain, "desk"), spec={"domain": "gone", "task": {}})
    ask: list[Callable[[], Any]] = [
        lambda: domain.score(draft, []), lambda: domain.episode(draft, 0),
        lambda: domain.agent_messages(draft), lambda: domain.trivial_answers(draft),
    ]  # fmt: skip
    for asked in ask:
        with pytest.raises(DomainError, match="names none of desk, arithmetic"):
            asked()
    assert isinstance(domain.score(of(domain, "desk"), []), Verdict)


def keyed(*overrides: str) -> dict[str, Any]:
    return parts_of(score.STAGE, resolve("tiny", overrides=overrides), 1, NO_INPUTS)


def test_weights_are_in_the_keys_and_the_code_of_each_domain() -> None:
    one = keyed("domains=[{name: desk, weight: 3}, {name: arithmetic}]")
    other = keyed("domains=[{name: desk, weight: 2}, {name: arithmetic}]")
    more = keyed("domains=[{name: desk, weight: 3}, {name: trails}]")
    assert one["code"] == other["code"] != more["code"]
    assert len({str(found["config"]) for found in (one, other, more)}) == 3
    assert len({found["runtime"]["domain"] for found in (one, other, more)}) == 3


def test_the_keys_of_a_run_of_one_domain_know_nothing_of_several() -> None:
    one = keyed()
    assert one["runtime"]["domain"] == "desk 1"
    domain = {name: value for name, value in one["config"].items() if name.startswith("domain")}
    assert domain == {
        "domain.name": "desk", "domain.options": {"max_calls": 3, "max_operand": 4},
    }  # fmt: skip
    assert not [name for name in counted(*score.STAGE.modules) if "several" in name]
