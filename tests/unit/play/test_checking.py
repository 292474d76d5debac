"""A domain that is played without models: each fault is named with its method and what to do.

Invariants: a sound domain has no fault; each fault that an author makes is found, under the name of
its method; an answer that changes from process to process is found; a run does not start with a
domain whose first task is broken.
"""

from __future__ import annotations

import random
import re
import runpy
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from genenv_core.config.load import resolve
from genenv_core.domains.protocol import SeedExample, SolutionTurn
from genenv_core.domains.registry import get_domain
from genenv_core.errors import ConfigError, GenenvError
from genenv_core.play.asked import wrong_verdict
from genenv_core.play.certificate import answer_verdict
from genenv_core.play.checking import calling
from genenv_core.play.checking import domain_checks as checking
from genenv_core.play.checking.domain_checks import check_domain, check_shortly
from genenv_core.types import Context, Message, Observation, TaskDraft, Verdict
from tests.mutations import mutation

SMALL = {"base": 20, "heldout": 10}
PLACE = "countings.py:Countings"
USER: Message = {"role": "user", "content": "say"}
BUILT_IN: list[Any] = [
    ("arithmetic", {}),
    pytest.param("desk", {}, marks=pytest.mark.slow),
    pytest.param("trails", {}, marks=pytest.mark.slow),
    (PLACE, {"steps": 2}),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder into which `genenv domain new` wrote; no test writes in it."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", sys.path.copy())
        result = CliRunner().invoke(app, ["domain", "new", "countings"])
    assert result.exit_code == 0 and f"genenv domain check {PLACE}" in result.output
    sys.modules.pop("countings", None)
    return folder


@pytest.fixture
def begun(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a copy of the file that `genenv domain new` writes, in the current folder."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield tmp_path / "countings.py"
    sys.modules.pop("countings", None)


@pytest.mark.parametrize(("name", "options"), BUILT_IN)
def test_a_sound_domain_has_no_fault(begun: Path, name: str, options: dict[str, Any]) -> None:
    assert check_domain(name, options, **SMALL) == []
    check_shortly(get_domain(name, options), **SMALL)


@mutation(
    "a request that is begun may end with its answer", "flows/cli/templates/domain.py.txt",
    "if answer == taken[-1]:", "if False:",
)  # fmt: skip
def test_what_is_begun_is_sound_whatever_is_drawn(begun: Path) -> None:
    """The name of a domain decides its draws, so some names had a fault at once."""
    domain = get_domain(PLACE, {})
    tasks = [task for seed in range(20) for task in domain.base_tasks(seed, 40)]
    assert all(not answer_verdict(task, domain, task.prompt).success for task in tasks)


def test_what_is_begun_comes_with_a_test_that_passes(begun: Path) -> None:
    text = begun.with_name("test_countings.py").read_text(encoding="utf-8")
    assert "countdown" not in text.casefold() + begun.read_text(encoding="utf-8").casefold()
    monkey = pytest.MonkeyPatch()
    monkey.syspath_prepend(str(begun.parent))
    names = runpy.run_path(str(begun.with_name("test_countings.py")))
    tests = [one for name, one in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()
    monkey.undo()


def test_nothing_is_written_over(begun: Path) -> None:
    result = CliRunner().invoke(app, ["domain", "new", "countings"])
    assert isinstance(result.exception, ConfigError) and "is there already" in str(result.exception)
    result = CliRunner().invoke(app, ["domain", "new", "../up"])
    assert isinstance(result.exception, ConfigError) and "small letters" in str(result.exception)


@mutation(
    "a domain may have the name of a module of Python", "flows/cli/domain.py",
    "if name in sys.stdlib_module_names:", "if False:",
)  # fmt: skip
@mutation(
    "a domain may have the name of a class that it uses", "flows/cli/domain.py",
    'if re.search(rf"\\b({name}|{title})\\b", own):', "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("class", "is a word of Python's own language"),
        ("none", "is a word of Python's own language"),
        ("calendar", "is a module of Python's own library"),
        ("numpy", "site-packages/numpy/__init__.py, in place of numpy.py"),
        ("schemas", "schemas/__init__.py, in place of schemas.py"),
        ("trails", "is a domain that is there already"),
        ("verdict", "is a name that the domain's own code uses"),
        ("task", "is a name that the domain's own code uses"),
    ],
)
def test_a_name_that_is_taken_is_refused(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["domain", "new", name])
    assert isinstance(result.exception, ConfigError) and words in str(result.exception)
    assert str(result.exception).endswith(f"choose another name, such as my_{name}")
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_the_example_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["domain", "new", "countdown"]).exit_code == 0


class Wrapped:
    """A sound domain, some of whose attributes are others; methods get the sound one as self."""

    def __init__(self, whole: Any, change: dict[str, Any]) -> None:
        for name in dir(whole):
            if not name.startswith("_"):
                setattr(self, name, getattr(whole, name))
        for name, value in change.items():
            setattr(self, name, partial(value, whole) if callable(value) else value)


def base_tasks(change: Any) -> Any:
    """Return a method that gives the sound tasks changed."""
    return lambda self, seed, count: change(self.base_tasks(seed, count))


def each(**changes: Any) -> Any:
    return base_tasks(lambda drafts: [replace(draft, **changes) for draft in drafts])


def nothing(self: Any, *arguments: Any) -> None:
    return None


def raising(self: Any, *arguments: Any) -> Any:
    raise KeyError("no such field")


class Endless:
    def step(self, action: str) -> Observation:
        return Observation(done=False)


class Silent:
    pass


async def _later(self: Any, draft: TaskDraft, messages: list[Message]) -> Verdict:
    return Verdict(1.0, True)


BROKEN: list[tuple[str, str, Any, str]] = [
    # (what is broken, the method or attribute, what it is, what is said)
    ("no version", "version", "", "is ''"),
    ("tools as a text", "tools", "look", "is 'look'"),
    ("a tool without a name", "tools", [{"function": {}}], "has {'function': {}}"),
    ("a schema that is none", "tools",
     [{"function": {"name": "look", "parameters": {"type": "thing"}}}],
     "parameters are no JSON schema"),
    ("no method", "score", None, "no such method"),
    ("a number for a method", "parse", 7, "is 7, no method"),
    ("a judge of one argument", "score", lambda self, d: None,
     "takes (d), and genenv calls score(draft, messages)"),
    ("an async judge", "score", _later, "is an async method"),
    ("mixed keys in the spec", "base_tasks", each(spec={"a": [{1: "a", "b": 2}]}),
     'spec is no JSON: ["a"][0] has the key 1 (int)'),
    ("a difficulty of numpy", "base_tasks", each(difficulty=np.float32(2)), "is np.float32(2.0)"),
    ("no list of tasks", "base_tasks", nothing, "returned None"),
    ("texts for tasks", "base_tasks", base_tasks(lambda d: ["a"] * len(d)), "'a'"),
    ("too few tasks", "base_tasks", base_tasks(lambda d: d[:3]), "3 tasks, 20 were"),
    ("the same task", "base_tasks", base_tasks(lambda d: d[:1] * len(d)), "one fin"),
    ("a broken draw", "base_tasks", raising, "raised KeyError: 'no such field'"),
    ("a number as prompt", "base_tasks", each(prompt=7), "prompt is 7"),
    ("a chance of one", "base_tasks", each(chance=1), "a task the chance 1"),
    ("a success with a failure", "score",
     lambda self, d, m: replace(self.score(d, m), failure="moved"),
     "gives a success the failure 'moved' for"),
    ("a state without a seed", "solution", lambda self, d: [SolutionTurn(str(random.random()))],
     "one seed gives two attempts"),
    ("difficulty as text", "base_tasks", each(difficulty="3"), "difficulty is '3'"),
    ("a set in the spec", "base_tasks", each(spec={"a": {1}}), "spec is no JSON"),
    ("a tuple in it", "base_tasks", each(spec={"a": (1,)}), '["a"] comes back changed from (1,)'),
    ("held-out tasks that are base tasks", "heldout_tasks",
     lambda self, seed, count: self.base_tasks(seed, count), "is a base task too"),
    ("no prompt for pi_env", "env_messages", nothing, "returned None"),
    ("a prompt as text", "agent_messages", lambda self, d: d.prompt, "returned"),
    ("a message without a role", "agent_messages", lambda self, d: [{"content": d.prompt}],
     "has the message"),
    ("half a character in a message", "agent_messages",
     lambda self, d: [{"role": "user", "content": d.prompt + "\ud83d"}], "which cannot be stored"),
    ("half a prompt", "base_tasks", each(prompt="\ud83d"), "cannot be stored"),
    ("half a spec", "base_tasks", each(spec={"a": "\ud83d"}), "cannot be stored"),
    ("no verdict", "score", nothing, "returned None"),
    ("a reward of 2", "score", lambda self, d, m: Verdict(2.0, True), "the reward 2.0"),
    ("success as number", "score", lambda self, d, m: Verdict(1.0, 1), "the success 1"),
    ("everything succeeds", "score", lambda self, d, m: Verdict(1.0, True), "accepts_trivial"),
    ("nothing succeeds", "score", lambda *a: Verdict(0.0, False), "rejects_ground"),
    ("a leak as text", "leaks", lambda self, d: d.ground_truth, "returned '"),
    ("no leaks", "leaks", nothing, "returned None"),
    ("a leak", "leaks", lambda self, d: [d.prompt], "leaks_answer: the request"),
    ("a vector for all", "embed", lambda self, p: [[1.0]], "returned numbers of shape (1, 1)"),
    ("vectors by chance", "embed", lambda self, p: [[random.random()] for _ in p],
     "gives equal requests other vectors"),
    ("a file as text", "files", "words.txt", "is 'words.txt'"),
    ("a missing file", "files", ["words.txt"], "words.txt cannot be read: No such"),
    ("no trivial answers", "trivial_answers", lambda *a: [], "returned []"),
    ("no episode", "episode", lambda *a: Silent(), "Silent"),
    ("an episode that raises", "episode", raising, "raised KeyError"),
    ("a parser that raises", "parse", raising, "raised"),
    ("a parser of another", "parse", lambda self, t: [], "own program"),
    ("examples of the held-out set", "env_examples", lambda self, s, c, e: _shown(self, c),
     "shows the held-out task"),
    ("a number for a verdict on what is wrong", "score", lambda self, d, m: _half(self, d, m),
     "returned 0.5 for the answer"),
    ("a judge that raises on a wrong answer", "score", lambda *a: _picky(*a), "no such"),
    ("a reader that raises", "read_calls", raising, "KeyError"),
    ("a reader of texts", "read_calls", lambda self, t: [t], "give SaidCall"),
    ("too few examples", "agent_examples", lambda *a: [], "returned []"),
    ("examples without a text", "env_examples",
     lambda self, s, c, e: ([([{"role": "user", "content": "write"}], None)] * c),
     "has the answer None"),
    ("examples with a number", "agent_examples", lambda self, s, c: [([USER], 7)] * c,
     "has the answer 7"),
]  # fmt: skip
NAMED = {"a state without a seed": "episode", "a leak": "agent_messages"}
"""Which method is named where it is another one."""


def _half(domain: Any, draft: TaskDraft, messages: list[Message]) -> Any:
    verdict = domain.score(draft, messages)
    return verdict if verdict.success or not messages[-1]["content"] else 0.5


def _picky(domain: Any, draft: TaskDraft, messages: list[Message]) -> Any:
    if messages[-1]["content"] not in ("", "ok", draft.ground_truth):
        raise KeyError("no such answer")
    return domain.score(draft, messages)


def _shown(domain: Any, count: int) -> list[SeedExample]:
    messages: list[Message] = [{"role": "user", "content": "write"}]
    return [(messages, domain.heldout_tasks(0, 1)[0].program)] * count


@mutation(
    "a number of numpy is only said to be out of range", "genenv_core/play/asked.py",
    'f"a reward is from 0 to 1{plain(reward)}"', '"a reward is from 0 to 1"',
)  # fmt: skip
def test_a_number_of_a_library_is_said_to_be_none_of_python() -> None:
    wrong = wrong_verdict(Verdict(np.float32(0.5), True))  # type: ignore[arg-type]
    assert wrong and wrong.found == "gives the reward np.float32(0.5)"
    assert wrong.remedy.endswith("as a float of Python, not as float32: float(...)")
    assert wrong_verdict(Verdict(np.float64(0.5), True)) is None  # which is a float
    wrong = wrong_verdict(Verdict(2.0, True))
    assert wrong and wrong.remedy == "a reward is from 0 to 1"


@mutation(
    "the methods of a base class may have other parameters",
    "genenv_core/play/checking/calling.py",
    "for declared in (*_PROTOCOLS, *bases)", "for declared in _PROTOCOLS",
)  # fmt: skip
def test_methods_that_a_base_class_calls_are_looked_at(begun: Path) -> None:
    sound = type(get_domain(PLACE))
    changed: dict[str, Any] = {"judge": lambda self, draft: None, "levels": 3}
    made: Any = type("Changed", (sound,), changed)
    faults = list(calling.of_signatures(made({})))
    assert {(fault.method, fault.remedy) for fault in faults} == {
        ("judge", "write def judge(self, draft, answer)"),
        ("levels", "write def levels(self)"),
    }
    with pytest.raises(ConfigError, match=r"domain countings: judge: takes \(draft\), and genenv"):
        check_shortly(made({}), base=8, heldout=8)


@pytest.mark.parametrize("name", ["arithmetic", "desk", "trails", PLACE])
def test_what_genenv_has_itself_can_be_called_as_it_calls(begun: Path, name: str) -> None:
    assert list(calling.of_signatures(get_domain(name))) == []


@mutation(
    "a class that takes no options is called with them", "genenv_core/domains/registry.py",
    "if wrong := _not_called_with_options(make):", "if wrong := '':",
)  # fmt: skip
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "class Odd:\n    def __init__(self): ...",
            r"takes \(\), and genenv calls it with one mapp",
        ),
        ("class Odd:\n    def __init__(self, *, steps=3): ...", r"takes \(\*, steps=3\)"),
        ("Odd = 7", "is 7, no class and no function: name the class of the domain"),
    ],
)
def test_a_class_that_takes_no_options_is_said_what_it_is_called_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    file = tmp_path / f"odd_{abs(hash(text))}.py"
    file.write_text(text)
    with pytest.raises(ConfigError, match=rf"domain\.name '.*:Odd': odd_\d+:Odd {said}"):
        get_domain(f"{file}:Odd")


@mutation(
    "half a character in a domain is no fault", "genenv_core/play/checking/shapes.py",
    "return storable(text) != text", "return False",
)  # fmt: skip
@mutation(
    "a state may be drawn without its seed", "genenv_core/play/checking/domain_checks.py",
    "    _check_seed(domain, draft, task)\n", "",
)  # fmt: skip
@mutation(
    "an embedding may give other vectors each time", "genenv_core/play/checking/texts.py",
    "(first != again).any()", "False",
)  # fmt: skip
@mutation(
    "a success may have failed", "genenv_core/play/checking/domain_checks.py",
    "if verdict.success and verdict.failure:", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("what", "attribute", "value", "words"), BROKEN, ids=[one[0] for one in BROKEN]
)
def test_each_fault_is_named_by_its_method(
    begun: Path, monkeypatch: pytest.MonkeyPatch, what: str, attribute: str, value: Any, words: str
) -> None:
    method, broken = NAMED.get(what, attribute), Wrapped(get_domain(PLACE), {attribute: value})
    monkeypatch.setattr(checking, "get_domain", lambda name, options: broken)
    monkeypatch.setattr(checking, "_elsewhere", lambda *arguments: [])
    faults = check_domain("broken", {}, **SMALL)
    assert any(fault.method == method and words in fault.found for fault in faults), faults
    assert all(fault.remedy for fault in faults)


def hang(self: Any, text: str = "", *more: Any) -> Any:
    return re.fullmatch("(A+)+1", "A" * 40)


def doze(self: Any, text: str = "", *more: Any) -> Any:
    time.sleep(60)


@mutation(
    "whatever is slow is a regular expression", "genenv_core/play/checking/calling.py",
    "PATTERNS if _in_pattern(frame) else SLOW", "PATTERNS",
)  # fmt: skip
@pytest.mark.parametrize(
    ("change", "method", "words"),
    [
        ({"solution": doze}, "solution", " on task '"),
        ({"parse": lambda self, t: self.parse(t) if t else hang(None)}, "parse", " on ''"),
        pytest.param({"heldout_tasks": hang}, "heldout_tasks", "", marks=pytest.mark.slow),
        pytest.param({"solution": hang}, "solution", " on task '", marks=pytest.mark.slow),
        pytest.param(
            {"episode": lambda *a: SimpleNamespace(step=partial(hang, None))},
            "episode.step",
            " in turn 1 of task '",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_method_that_hangs_is_named_with_its_line(
    begun: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], method: str, words: str
) -> None:
    monkeypatch.setattr(calling, "CALL_S", 0.3)
    changed = {**change, "base_tasks": lambda self, seed, count: self.base_tasks(seed, count)}
    broken = Wrapped(get_domain(PLACE), changed)
    monkeypatch.setattr(checking, "get_domain", lambda name, options: broken)
    (fault,) = check_domain("broken", {}, base=2, heldout=1)
    assert fault.method == method and words in fault.found, fault
    slow = doze in change.values()
    assert fault.remedy == (calling.SLOW if slow else calling.PATTERNS)
    line = (doze if slow else hang).__code__.co_firstlineno + 1
    assert (
        "takes longer than 0.3" in fault.found and f"test_checking.py, line {line}" in fault.found
    )


def test_what_is_raised_is_said_with_the_authors_line(begun: Path) -> None:
    text = begun.read_text(encoding="utf-8")
    line = 1 + text[: text.index("return judges.number(")].count("\n")
    begun.write_text(text.replace("return judges.number(", "return judges.nothing("))
    (fault,) = check_domain(PLACE, {}, **SMALL)
    assert fault.method == "score" and f"(countings.py, line {line})" in fault.found


def test_a_reader_of_programs_that_forgets_to_return_is_named(begun: Path) -> None:
    text = begun.read_text(encoding="utf-8")
    begun.write_text(text.replace("return task(", "task("))
    (fault,) = check_domain(PLACE, {}, **SMALL)
    assert "read returned None" in fault.found


@mutation(
    "a domain whose calls nobody knows has no fault", "genenv_core/play/checking/texts.py",
    "if not known and not seen.failed and _tools_speak(seen):", "if False:",
)  # fmt: skip
def test_calls_that_a_domain_does_not_know_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown: Any = Wrapped(get_domain("trails"), {"read_calls": lambda self, text: []})
    monkeypatch.setattr(checking, "get_domain", lambda name, options: unknown)
    monkeypatch.setattr(checking, "_elsewhere", lambda *arguments: [])
    (fault,) = check_domain("trails", {}, **SMALL)
    assert fault.method == "read_calls" and "in which there is no call" in fault.found
    assert "write read_calls(text)" in fault.remedy
    check_shortly(unknown, **SMALL)  # a run goes on


def test_a_domain_without_a_solution_has_to_end_its_attempts(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Wrapped(get_domain(PLACE), {})
    del plain.solution  # type: ignore[attr-defined]
    monkeypatch.setattr(checking, "get_domain", lambda name, options: plain)
    monkeypatch.setattr(checking, "_elsewhere", lambda *arguments: [])
    assert check_domain("plain", {}, **SMALL) == []
    plain.episode = lambda draft, seed: Endless()  # type: ignore[attr-defined]
    (fault,) = check_domain("plain", {}, **SMALL)
    assert fault.method == "episode.step" and "goes on" in fault.found


@pytest.mark.slow
def test_an_answer_that_changes_in_another_process_is_found(begun: Path) -> None:
    text = begun.read_text(encoding="utf-8")
    assert "take away {' take" in text
    begun.write_text(text.replace("take away {'", "take {hash('away')} {'", 1), encoding="utf-8")
    (fault,) = check_domain(PLACE, {}, **SMALL)
    assert fault.found == "answers otherwise in another process"
    begun.write_text(text + "\nimport os\nif 'PYTHONHASHSEED' in os.environ: raise OSError('no')\n")
    (fault,) = check_domain(PLACE, {}, **SMALL)
    assert "fails in another process" in fault.found and "OSError: no" in fault.found


def test_faults_end_the_command_with_status_1(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = CliRunner().invoke(app, ["domain", "check", PLACE])
    assert shown.exit_code == 0 and "no fault in 100 base and 50 held-out" in shown.output
    for words in ("pi_env reads", "[user] success 5/10", "pi_agent reads", "right is"):
        assert words in shown.output
    cls = type(get_domain(PLACE))
    monkeypatch.setattr(cls, "score", lambda *arguments: None)
    failed = CliRunner().invoke(app, ["domain", "check", PLACE])
    assert isinstance(failed.exception, GenenvError) and failed.exception.exit_status == 1
    assert "score: returned None" in failed.output and "-> return Verdict" in failed.output
    with pytest.raises(ConfigError, match=r"countings: score: returned None.*domain check"):
        check_shortly(get_domain(PLACE), **SMALL)


def test_a_context_has_the_base_task(begun: Path) -> None:
    draft: TaskDraft = get_domain(PLACE).base_tasks(0, 1)[0]
    context: Context = checking.context_of(draft, None)
    assert context.base == draft and context.history.success_rate is None


def test_a_run_does_not_start_with_a_broken_domain_of_ones_own(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.preparing import _checked_domain

    config = resolve("tiny", overrides=[f"domain.name={PLACE}"])
    filed = resolve("tiny", overrides=[f"domain.name={PLACE}", "data.base_file=x"])
    _checked_domain(config, get_domain(PLACE))
    monkeypatch.setattr(type(get_domain(PLACE)), "score", lambda *arguments: None)
    with pytest.raises(ConfigError, match="score: returned None"):
        _checked_domain(config, get_domain(PLACE))
    with pytest.raises(ConfigError, match="score: returned None"):
        _checked_domain(filed, get_domain(PLACE))
    assert _checked_domain(resolve("tiny"), get_domain(PLACE)) == {}
