"""What a comparison is of: arms by name, seeds, and the runs that follow.

Invariants: an arm's run has the name that `genenv run` gives the same configuration, so what was
played is reused; every name that genenv offers resolves, and differs from genenv; what cannot be
meant is refused by name; nothing is compared with itself.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from flows.cli.runs.compare import compare, seeds_of
from flows.deploy.requests import comparison_of, configuration
from genenv_core.config.arms import ARMS, Arm
from genenv_core.config.comparison import (
    ABLATIONS,
    SHORT,
    Budget,
    Measure,
    comparison_name,
    does,
    planned_runs,
    read_comparison,
)
from genenv_core.config.load import resolve, run_name
from genenv_core.config.request import RunRequest
from genenv_core.config.requests_beside import CompareRequest
from genenv_core.errors import ConfigError
from tests.mutations import mutation

COMPARISON = "genenv_core/config/comparison.py"
REQUESTS = "genenv_core/config/requests_beside.py"

SETS = {"lambda=0": ("rwr.lambda", 0), "alpha=0.3": ("curriculum.alpha", 0.3)}


def runs_of(arms: Any, *, base: str = "tiny", seeds: tuple[int, ...] = (0,), **more: Any) -> Any:
    fields = {"arms": arms, "seeds": list(seeds), **more}
    return planned_runs(read_comparison(base, fields), "/root")


@pytest.mark.parametrize("arm", [arm for arm in Arm if arm is not Arm.OFFLINE])
def test_an_arms_run_is_the_one_that_genenv_run_would_play(arm: Arm) -> None:
    other = "random" if arm is Arm.GENENV else "genenv"
    planned = runs_of([arm, other], seeds=(3, 4))
    assert [(run.arm, run.seed) for run in planned] == [
        (arm, 3), (other, 3), (arm, 4), (other, 4),
    ]  # fmt: skip
    alone = resolve("tiny", overrides=[f"arm={arm}"], fields={"seed": 3, "root": "/root"})
    assert planned[0].run_id == run_name(alone, "tiny")
    assert planned[0].config == alone.model_copy(update={"run_id": planned[0].run_id})


@pytest.mark.parametrize("name", [*ABLATIONS, *SETS, "level=group+n=8", "rwr.kl_coef=0.5"])
def test_every_named_arm_is_genenv_with_its_change(name: str) -> None:
    genenv, changed = runs_of(["genenv", name])
    assert changed.config.arm is Arm.GENENV
    assert changed.run_id != genenv.run_id
    assert does(name).startswith("genenv")
    if name in SETS:
        field, value = SETS[name]
        wanted = resolve("tiny", overrides=[f"{field}={value}"], fields={"root": "/root"})
        assert changed.run_id == run_name(wanted, "tiny")


def test_short_names_are_fields() -> None:
    values = {"alpha": 0.4, "beta": 3, "k_min": 0.3, "level": "group", "lambda": 2, "n": 5}
    values |= {"pay": "signal"}
    assert set(values) == set(SHORT)
    for short, value in values.items():
        _, changed = runs_of(["genenv", f"{short}={value}"])
        field = SHORT[short]
        wanted = resolve("tiny", overrides=[f"{field}={value}"], fields={"root": "/root"})
        assert changed.config.model_copy(update={"run_id": None}) == wanted


def test_a_file_names_base_changes_and_arms(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("epochs: 3\nrwr: {steps: 4}\n")
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "base: mine.yaml\nset: {rollout: {n: 6}, rwr.lambda: 2}\nseeds: [7]\nbudget: tokens\n"
        "measure: greedy\narms:\n  genenv:\n  random:\n  narrow: {curriculum: {k_min: 0.2}}\n"
    )
    comparison = read_comparison(str(spec), {})
    assert (comparison.budget, comparison.measure) == (Budget.TOKENS, Measure.GREEDY)
    genenv, random, narrow = (run.config for run in planned_runs(comparison, "/root"))
    assert {c.rollout.n for c in (genenv, random, narrow)} == {6}
    assert {(c.epochs, c.rwr.steps, c.rwr.lambda_) for c in (genenv, random)} == {(3, 4, 2.0)}
    assert (narrow.curriculum.k_min, genenv.curriculum.k_min) == (0.2, 0.4)
    fields = {"seeds": [1, 2], "set": {"epochs": 9}}
    again = planned_runs(read_comparison(str(spec), fields), "/root")
    assert {(run.seed, run.config.epochs) for run in again} == {(1, 9), (2, 9)}
    assert {run.config.rollout.n for run in again} == {6}
    assert genenv.run_id is not None
    assert genenv.run_id.startswith("mine-genenv-s7-")


def test_the_form_asks_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENENV_ROOT", "/root")
    asked = {"preset": "tiny", "arms": ["genenv", "lambda=0"], "seeds": 2, "first_seed": 5}
    request = CompareRequest.model_validate({**asked, "changes": ["epochs=1"]})
    comparison, root = comparison_of(request)
    wanted = runs_of(["genenv", "lambda=0"], seeds=(5, 6), set={"epochs": 1})
    assert planned_runs(comparison, root) == wanted


@mutation("the form names no ablation", REQUESTS, "', '.join(ABLATIONS)", "'no_filter and others'")
def test_the_form_names_every_arm() -> None:
    words = CompareRequest.model_json_schema()["properties"]["arms"]["description"]
    named = set(re.findall(r"\w+", words))
    assert {*ARMS, *ABLATIONS} <= named


@pytest.mark.parametrize(
    "changes",
    [
        {"bootstrap": {"agent": {"layers": 2}}, "epochs": 1},
        {"domain": {"options": {"max_calls": 2}}},
    ],
)
def test_an_arm_a_form_and_set_change_a_preset_alike(changes: dict[str, Any]) -> None:
    _, arm = runs_of({"genenv": {"rwr.steps": 9}, "other": changes})
    form = configuration(RunRequest.model_validate({"preset": "tiny", "root": "/root", **changes}))
    texts = [f"{name}={json.dumps(value)}" for name, value in changes.items()]
    told = resolve("tiny", overrides=texts, fields={"root": "/root"})
    assert arm.config == form == told.model_copy(update={"run_id": run_name(told, "tiny")})
    assert arm.config.bootstrap.agent.hidden_size == 48  # the preset's
    assert len(arm.config.domain.options) == (1 if "domain" in changes else 2)


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (["genenv"], {}, "two at least"),
    (["genenv", "randm"], {}, "did you mean 'random'"),
    (["genenv", "genenv"], {}, "genenv is given twice"),
    (["genenv", "lambda=4"], {}, "arms genenv and lambda=4 are one and the same run"),
    (["genenv", "lambda=-1"], {}, "arm lambda=-1, seed 0"),
    (["genenv", "alfa=0.3"], {}, "alfa is no field"),
    (["genenv", "arm.x=0"], {}, "arm.x=0, seed 0: .*arm"),
    (["genenv", "lambda=2+x"], {}, "arm lambda=2[+]x, seed 0: change 'x': expected field=value"),
    (["genenv", "=3"], {}, "arms"),
    (["genenv", "alpha="], {}, "arm alpha=, seed 0: change 'alpha=': there is no value"),
    (["genenv", "seed=3"], {}, "seed is not an arm's: every arm plays"),
    ({"genenv": None, "x": {"run_id": "mine"}}, {}, "run_id is not an arm's"),
    (["genenv", "random"], {"set": {"root": "/x"}}, "root is not an arm's: give --root"),
    (["genenv", "epochs=9"], {}, "one and the same run"),
    (["genenv", "random"], {"seeds": []}, "give one at least"),
    (["genenv", "random"], {"seeds": [1, 1]}, "none twice"),
    (["genenv", "random"], {"budget": "money"}, "budget"),
    (["genenv", "random"], {"set": {"epochz": 2}}, "epochz is no field"),
    (["genenv", "offline"], {}, "offline"),
]


@mutation(
    "an arm may have a seed of its own", COMPARISON,
    'if name.partition(".")[0] in OF_ALL:', "if False:",
)  # fmt: skip
@mutation("an arm is compared with itself", COMPARISON, "if run_id in named:", "if False:")
@pytest.mark.parametrize(("arms", "more", "words"), REFUSED)
def test_what_cannot_be_compared_is_refused(arms: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        runs_of(arms, **({"seeds": (0,)} | more))
    assert "--set" not in str(refused.value)


@pytest.mark.parametrize("text", ["epochs", "=3", "epochs=[3"])
def test_a_wrong_change_is_told_as_it_was_given(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.cli.runs.compare.heed_ends", lambda: None)
    # As the form's own pattern lets it pass where nobody checks parameters.
    request = CompareRequest(root="/root").model_copy(update={"changes": [text]})
    with pytest.raises(ConfigError, match=r"^request\.changes ") as refused:
        comparison_of(request)
    assert "--set" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"^--set ") as refused:
        compare("tiny", arms="genenv,random", seeds="1", set_=[text])
    assert repr(text) in str(refused.value)


def test_without_arms_the_error_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match="give --arms genenv,random"):
        read_comparison("tiny", {"seeds": [0]})


def test_seeds_as_people_write_them() -> None:
    assert seeds_of("3") == [0, 1, 2]
    assert seeds_of("100-103") == [100, 101, 102, 103]
    assert seeds_of("3,5,8-9") == [3, 5, 8, 9]
    for text in ("", "a", "3-", "9-3", "1,,2", "-4", "1.5", "0-99999999"):
        with pytest.raises(ConfigError, match="write how many"):
            seeds_of(text)


def test_the_name_is_of_everything_in_it() -> None:
    one = read_comparison("tiny", {"arms": ["genenv", "random"], "seeds": [0]})
    other = read_comparison("tiny", {"arms": ["genenv", "random"], "seeds": [1]})
    assert comparison_name(one) == comparison_name(one.model_copy())
    assert comparison_name(one) != comparison_name(other)
