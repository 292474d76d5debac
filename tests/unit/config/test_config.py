"""Configurations.

Invariants: every preset and every configuration file in the repository loads, and a resolved one
written as YAML resolves to itself; defaults are within their own bounds; every bad input is one
ConfigError with the field's path, the value and the remedy; every field is described, in the
models and in the JSON schema; a resolved configuration cannot be changed; the run's name is stable
and does not depend on epochs, root, run id or tracking; every value in the presets of the paper is
marked as the paper's, with its place, or as ours; every value for laptops has its reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from genenv_core.algorithm.mixture import base_attempts
from genenv_core.config.load import (
    NOT_IDENTITY,
    changed,
    dump,
    preset_names,
    resolve,
    run_name,
    to_yaml,
)
from genenv_core.config.meant_for_tiny import meant_for_tiny
from genenv_core.config.schema import RunConfig
from genenv_core.domains.protocol import KnowsSolution
from genenv_core.domains.registry import get_domain
from genenv_core.domains.trails.trails_domain import TrailsOptions
from genenv_core.errors import ConfigError
from genenv_core.exchange.given_models import SMOLLM2
from genenv_core.types import AgentHistory, Context
from tests.examples import some
from tests.mutations import mutation
from tests.unit.benchmarks.data import official
from tests.waiting import BOUND_S

REPOSITORY = Path(__file__).parents[3]
PRESETS = REPOSITORY / "genenv_core" / "config" / "presets"
PAPERS = ["paper", "paper-small"]
BENCHMARKS = {
    "paper-alfworld": "alfworld",
    "paper-api-bank": "apibank",
    "paper-bamboogle": "bamboogle",
    "paper-bfcl": "bfcl",
    "paper-travelplanner": "travelplanner",
}
"""Presets of the paper's benchmarks, with the folders of the official data."""
FOREIGN = {"docker-compose", "docker-compose.yaml", "docker-compose.yml", ".pre-commit-config.yaml"}


def sections(model: type[BaseModel] = RunConfig, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, model
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from sections(annotation, f"{path}.{name}" if path else name)


def run_configs() -> list[Path]:
    """Return the repository's YAML files whose fields are those of a run configuration."""
    found: list[Path] = []
    skipped = {".git", ".venv", ".venv-vllm", "node_modules", "genenv-data", "build"}
    for path in sorted(REPOSITORY.rglob("*.y*ml")):
        if skipped & set(path.relative_to(REPOSITORY).parts) or path.name in FOREIGN:
            continue
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        values = documents[0] if len(documents) == 1 else None
        if isinstance(values, dict) and set(values) & set(RunConfig.model_fields) - {"models"}:
            found.append(path)
    return found


def leaves(values: dict[str, Any]) -> list[Any]:
    nested = [leaves(v) if isinstance(v, dict) else [v] for v in values.values()]
    return [leaf for part in nested for leaf in part]


def test_the_presets_are_these() -> None:
    others = ["headroom", "laptop", "paper", "paper-small", "quickstart", "tiny", "trails"]
    assert preset_names() == sorted([*BENCHMARKS, *others])


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_survives_a_round_trip(name: str, tmp_path: Path) -> None:
    config = resolve(name)
    written = tmp_path / "config.yaml"
    written.write_text(to_yaml(config), encoding="utf-8")
    assert resolve(str(written)) == config
    assert RunConfig.model_validate(dump(config)) == config


def test_presets_are_what_the_documentation_says() -> None:
    quick, tiny, paper = resolve("quickstart"), resolve("tiny"), resolve("paper")
    assert quick == RunConfig()
    assert (quick.epochs, quick.generation.tasks, quick.rollout.n) == (12, 160, 8)
    assert (tiny.epochs, tiny.generation.tasks, tiny.models.agent) == (2, 8, "bootstrap")
    assert paper.models.agent == paper.models.env == "Qwen/Qwen2.5-7B-Instruct"
    assert (paper.epochs, paper.grpo.groups_per_step, paper.rollout.max_length) == (10, 64, 9000)
    assert (paper.curriculum.alpha, paper.curriculum.k_min, paper.rwr.lambda_) == (0.5, 0.1, 1.0)
    assert paper.grpo.learning_rate == 1e-6 and paper.rwr.kl_coef > 0
    assert paper.data.base_tasks == 544


@pytest.mark.parametrize("name", PAPERS)
def test_a_preset_of_the_paper_can_work(name: str) -> None:
    """The rules are explained, an epoch varies each base task four times, and no signal is lost."""
    config = resolve(name)
    desk = get_domain(config.domain.name, config.domain.options)
    base, generation, mixture = config.data.base_tasks, config.generation, config.mixture
    assert len(desk.base_tasks(config.seed, base)) == base
    heldout = config.data.validation_tasks + config.data.test_tasks
    assert len(desk.heldout_tasks(config.seed, heldout)) == heldout
    assert desk.agent_messages(desk.base_tasks(config.seed, 1)[0])[0]["role"] == "system"
    assert generation.tasks_per_context == 4 and generation.tasks == 4 * base
    assert generation.max_generations >= 2 * generation.tasks
    assert base_attempts(generation.tasks, new_share=mixture.new, base_share=mixture.base) == base
    assert round(mixture.new * config.grpo.max_groups) >= generation.tasks
    assert generation.tasks // config.grpo.groups_per_step in (32, 34)
    # Adam moves a weight by about this much in an update; bfloat16 tells 0.02 from its neighbours
    # by 2**-13. Adapters begin at zero and have no such steps to cross.
    moved = config.rwr.learning_rate * config.rwr.steps
    assert moved > 2**-13
    assert config.rollout.max_length == config.compute.vllm.max_model_len


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_preset_of_a_benchmark_is_the_papers_on_its_domain(name: str) -> None:
    own = yaml.safe_load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"))
    paper, config = dump(resolve("paper")), dump(resolve(name))
    assert own.pop("preset") == "paper" and own.pop("domain")["name"] == config["domain"]["name"]
    changed = {"domain", *own}
    assert all(config[field] == paper[field] for field in paper if field not in changed)
    for (
        section,
        fields,
    ) in own.items():  # nothing is repeated, and nothing else of a section differs
        assert fields.keys() == {
            f for f in paper[section] if config[section][f] != paper[section][f]
        }
    assert config["rollout"]["max_length"] == config["compute"]["vllm"]["max_model_len"]
    told = config["rollout"]["max_tokens"] + config["generation"]["max_tokens"]
    assert told < config["rollout"]["max_length"]


@pytest.mark.parametrize(
    "name", some(sorted(set(BENCHMARKS) - {"paper-alfworld"}), ("paper-bamboogle",))
)
def test_a_preset_of_a_benchmark_can_work(name: str) -> None:
    """There are enough tasks, and their right answers fit with two letters to a token."""
    config = resolve(name, overrides=[f"domain.options.data={official(BENCHMARKS[name])}"])
    domain: Any = get_domain(config.domain.name, config.domain.options)
    base = domain.base_tasks(config.seed, config.data.base_tasks)
    heldout = domain.heldout_tasks(
        config.seed, config.data.validation_tasks + config.data.test_tasks
    )
    for draft in [*base[:40], *heldout[:40]]:
        assert len(draft.ground_truth) < 2 * config.rollout.max_tokens
        assert len(draft.program) < 2 * config.generation.max_tokens
        assert len(domain.solution(draft)) <= config.rollout.max_turns
        history = AgentHistory(success_rate=0.5)
        asked = [
            *domain.agent_messages(draft),
            *domain.env_messages(Context("c", "t", draft, history)),
        ]
        letters = sum(len(message["content"]) for message in asked)
        assert letters < 4 * config.rollout.max_length


def test_a_file_may_start_from_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("preset: tiny\nepochs: 3\nrwr: {learning_rate: 0.5}\n")
    changes = ["epochs=3", "rwr.learning_rate=0.5"]
    assert resolve(str(file)) == resolve("tiny", overrides=changes)
    file.write_text("preset: tini\n")
    words = r"mine\.yaml: preset 'tini' is not one of headroom, laptop, paper, "
    with pytest.raises(ConfigError, match=words):
        resolve(str(file))
    file.write_text("preset: [tiny]\n")
    with pytest.raises(ConfigError, match="is not one of headroom, laptop"):
        resolve(str(file))


@pytest.mark.parametrize("name", [*PAPERS, *BENCHMARKS])
def test_every_field_of_a_preset_of_the_paper_says_whose_it_is(name: str) -> None:
    text = (PRESETS / f"{name}.yaml").read_text(encoding="utf-8")
    fields = [line for line in text.splitlines() if not re.match(r"\s*(#|$)", line)]
    values = [line for line in fields if not re.fullmatch(r" *[a-z_]+:|preset: paper", line)]
    unmarked = [line for line in values if not re.search(r"\S  # (paper|ours): \S", line)]
    given = yaml.safe_load(text)
    started = given.pop("preset", None) == "paper"
    assert not unmarked and len(values) == len(leaves(given))
    where = r"(section [0-9]|table 2|appendix A|batch size 64 \(table 2\)|544 base)"
    assert all(re.search(f"# paper: {where}", line) for line in values if "# paper" in line)
    assert "arXiv 2512.19682v2" in text or "as in paper.yaml" in text or started


def test_every_field_of_the_preset_for_laptops_has_its_reason() -> None:
    text = (PRESETS / "laptop.yaml").read_text(encoding="utf-8")
    fields = [line for line in text.splitlines() if not re.match(r"\s*(#|$)", line)]
    values = [line for line in fields if not re.fullmatch(r" *[a-z_]+:", line)]
    assert len(values) == len(leaves(yaml.safe_load(text)))
    assert [line for line in values if not re.search(r"\S  # \S", line)] == []


def test_the_preset_for_laptops_can_work() -> None:
    """The longest right answer and task fit; the tasks are enough; the updates take their turns."""
    config = resolve("laptop")
    assert config.models.agent == config.models.env
    assert config.models.agent.rpartition("/")[2] == SMOLLM2
    domain = get_domain(config.domain.name, config.domain.options)
    assert len(domain.base_tasks(0, config.data.base_tasks)) == config.data.base_tasks
    held = config.data.validation_tasks + config.data.test_tasks
    # SmolLM2 takes at least one token for a character, and one for the end of a turn.
    longest = max(domain.heldout_tasks(0, held), key=lambda draft: len(draft.program))
    assert len(longest.program) < config.generation.max_tokens
    assert len(longest.ground_truth) < config.rollout.max_tokens
    assert config.warm_start.steps and config.execution.updates_at_once == 1
    assert config.execution.keep_checkpoints == 1


def test_the_test_bed_of_several_turns_can_be_played() -> None:
    """The held-out tasks have all lengths equally, and the longest attempt has its turns."""
    config = resolve(str(REPOSITORY / "docs" / "examples" / "headroom-trails.yaml"))
    options = TrailsOptions.model_validate(config.domain.options)
    assert config.domain.name == "trails" and options.steep
    domain = get_domain(config.domain.name, config.domain.options)
    assert (config.data.validation_tasks + config.data.test_tasks) % options.max_looks == 0
    longest = max(domain.heldout_tasks(0, options.max_looks), key=lambda draft: draft.difficulty)
    assert isinstance(domain, KnowsSolution)
    assert len(domain.solution(longest)) == options.max_looks + 1 <= config.rollout.max_turns
    assert len(longest.program.split()) < config.generation.max_tokens / 2


def test_the_laptop_s_desk_has_the_tasks_that_it_is_measured_on() -> None:
    config = resolve(str(REPOSITORY / "docs" / "examples" / "laptop-tools.yaml"))
    domain = get_domain(config.domain.name, config.domain.options)
    held = config.data.validation_tasks + config.data.test_tasks
    drafts = domain.heldout_tasks(0, held)
    assert len({draft.program for draft in drafts}) == held and config.data.test_tasks == 240
    assert {draft.difficulty for draft in drafts} == {1, 2, 3, 4}


@mutation(
    "the warm start of a preset cannot be turned off", "genenv_core/config/sections/warm_start.py",
    'if given and "steps" not in self.model_fields_set:', "if given and self.steps == 0:",
)  # fmt: skip
def test_steps_0_turns_the_warm_start_of_a_preset_off() -> None:
    assert resolve("laptop", overrides=["warm_start.steps=0"]).warm_started == []
    assert len(resolve("laptop").warm_started) == 2


def test_the_files_that_the_page_of_the_first_model_shows_load(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "first-model.md").read_text(encoding="utf-8")
    shown = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    assert len(shown) == 3
    for text in shown:
        (file := tmp_path / "shown.yaml").write_text(text, encoding="utf-8")
        config = resolve(str(file))
        assert len(config.warm_started) == 2 and meant_for_tiny(config) == []


@pytest.mark.parametrize("path", run_configs(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_configuration_file_in_the_repository_loads(path: Path) -> None:
    assert isinstance(resolve(str(path)), RunConfig)


def test_the_search_for_configuration_files_finds_the_presets() -> None:
    folder = REPOSITORY / "genenv_core" / "config" / "presets"
    assert {folder / f"{name}.yaml" for name in preset_names()} <= set(run_configs())


@pytest.mark.parametrize(("path", "model"), sections())
def test_every_field_is_described_and_frozen(path: str, model: type[BaseModel]) -> None:
    assert model.model_config.get("frozen") and model.model_config.get("extra") == "forbid"
    assert model.__doc__
    schema = model.model_json_schema()
    for name, field in model.model_fields.items():
        text = (field.description or "").strip()
        assert len(text) > 5 and text.endswith((".", ")")), f"{path}.{name}: {text!r}"
        shown = schema["properties"][field.alias or name]
        if (
            "description" not in shown
        ):  # equal to the section's own: said once, behind the reference
            shown = schema["$defs"][shown["$ref"].rpartition("/")[2]]
        assert shown["description"] == field.description


@pytest.mark.parametrize(("path", "model"), sections())
def test_every_number_has_bounds(path: str, model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        if field.annotation in (int, float):
            kinds = {type(constraint).__name__ for constraint in field.metadata}
            assert kinds & {"Ge", "Gt"} and kinds & {"Le", "Lt"}, f"{path}.{name} is open-ended"


def test_a_resolved_configuration_cannot_be_changed() -> None:
    config = resolve("tiny")
    with pytest.raises(ValidationError, match="frozen"):
        config.epochs = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        config.rwr.steps = 3  # type: ignore[misc]


def test_overrides_win_over_the_file_and_options_over_both(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("epochs: 3\nseed: 1\nrwr: {steps: 5, lambda: 2.0}\n", encoding="utf-8")
    config = resolve(
        str(path),
        overrides=["epochs=4", "rwr.steps=6", "curriculum.level=batch"],
        fields={"epochs": 5, "seed": None, "root": "/tmp/elsewhere"},
    )
    assert (config.epochs, config.seed, config.root) == (5, 1, "/tmp/elsewhere")
    assert (config.rwr.steps, config.rwr.lambda_, config.curriculum.level) == (6, 2.0, "batch")


def test_an_empty_file_is_the_quickstart(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("# nothing yet\n", encoding="utf-8")
    assert resolve(str(path)) == resolve("quickstart")


BAD_OVERRIDES = [
    # (override, what the message must hold: the path, the value, what to do)
    ("rwr.step=4", ["rwr.step", "no field", "(did you mean 'rwr.steps'?)"]),
    ("grop.passes=4", ["grop", "no field", "(did you mean 'grpo'?)"]),
    (
        "evaluation.heldout_tasks=10",
        ["evaluation.heldout_tasks is no field (did you mean 'data.set_tasks' or 'data.test_"],
    ),
    ("alpha=0.4", ["alpha is no field (did you mean 'curriculum.alpha' or"]),
    ("grpo.lambda=2", ["grpo.lambda is no field (did you mean 'rwr.lambda'?)"]),
    ("agent_update.option=2", ["(did you mean 'agent_update.options'?)"]),
    ("rwr.zzzqq=1", ["rwr.zzzqq is no field"]),
    ("generation.n=1", ["(did you mean 'rollout.n'?)"]),
    ("epochs=0", ["epochs", "expected 1 or more", "got 0"]),
    ("epochs=two", ["epochs", "expected a whole number", "got 'two'"]),
    ("curriculum.alpha=1.5", ["curriculum.alpha", "expected 1 or less", "got 1.5"]),
    ("curriculum.k_min=-0.1", ["curriculum.k_min", "expected 0 or more", "got -0.1"]),
    ("curriculum.beta=0", ["curriculum.beta", "expected more than 0", "got 0"]),
    ("curriculum.level=epoch", ["curriculum.level", "'task', 'group' or 'batch'", "'epoch'"]),
    (
        "arm=genv",
        [
            "arm",
            "'genenv', 'random', 'static', 'offline' or 'base'",
            "'genv' (did you mean 'genenv'?)",
        ],
    ),
    ("rwr.lambda=.nan", ["rwr.lambda", "finite", "got nan"]),
    ("rwr.kl_cap=.inf", ["rwr.kl_cap", "finite", "got inf"]),
    ("seed=true", ["seed", "a number, not true or false", "got True"]),
    ("rwr.kl_cap=no", ["rwr.kl_cap", "a number, not true or false", "got False"]),
    ("rwr=3", ["rwr", "a section with fields", "got 3: set its fields, as in rwr."]),
    ("rwr={3: 4}", ["rwr.3 is no field"]),
    ("run_id=../up", ["run_id", "letters, digits, dots", "got '../up' ('up' would do)"]),
    ("seed=-1", ["seed", "expected 0 or more", "got -1"]),
    ("mixture.new=0.5", ["mixture.new + base + history", "0.9", "must be 1"]),
    ("generation.max_generations=2", ["generation.max_generations 2", "tasks 8", "raise"]),
    ("rollout.n=1", ["rollout.n 1", "no signal", "use 2 or more, or arm base"]),
    ("bootstrap.agent.heads=5", ["bootstrap.agent.heads 5", "hidden_size 48"]),
    ("bootstrap.env.heads=5", ["bootstrap.env.heads 5", "hidden_size 48"]),
    ("curriculum.track=2.5", ["curriculum.track", "expected 2 or less", "got 2.5"]),
    (
        "curriculum={track: 0.5, level: batch}",
        ["curriculum.track 0.5", "one p_hat", "another level"],
    ),
    ("rwr.pay=difficulty", ["rwr.pay", "alpha", "learnability", "signal", "'difficulty'"]),
    (
        "grpo.kl_reference=bootstrap",
        ["does nothing", "kl_coef 0", "set a kl_coef"],
    ),
    (
        "gates.min_fidelity=0.9",
        ["gates.min_fidelity 0.9", "does nothing", "tools.execution inline", "simulated"],
    ),
    (
        "measure.benchmarks=[bfl]",
        ["measure.benchmarks 'bfl' is unknown; known:", "did you mean 'bfcl'?"],
    ),
    ("measure.benchmarks=[bfcl, bfcl]", ["measure.benchmarks", "stands twice", "remove"]),
    ("measure.every=2", ["section measure does nothing without measure.benchmarks"]),
    ("measure={benchmarks: [bfcl], every: 0}", ["measure.every", "expected 1 or more"]),
    (
        "benchmark={model: m, attempt_seconds: 3}",
        ["benchmark.attempt_seconds does nothing without benchmark.url", "in place of benchmark.m"],
    ),
    ("arm=offline", ["has no teacher", "teacher.file"]),
    ("teacher.file=x.jsonl", ["teacher.file", "does nothing", "arm genenv", "remove"]),
    ("models.agent=Qwen/Qwen2.5-7B", ["models.agent", "commit", "models.agent_revision"]),
    ("models.env_revision=" + "a" * 40, ["models.env_revision", "does nothing", "remove it"]),
    ("models.env_revision=main", ["models.env_revision", "the whole id of a commit", "'main'"]),
    (
        "models={agent: ./a, agent_chat_template_kwargs: {tools: null}}",
        ["models.agent_chat_template_kwargs 'tools'", "set by genenv itself", "remove it"],
    ),
    (
        "models={env: ./a, env_chat_template_kwargs: {depth: [1]}}",
        ["models.env_chat_template_kwargs 'depth'", "a text or a finite number", "got [1]"],
    ),
    (
        "models={env: ./a, env_chat_template_kwargs: {depth: .nan}}",
        ["models.env_chat_template_kwargs 'depth'", "a text or a finite number", "got nan"],
    ),
    (
        "models={agent: ./a, agent_chat_template_kwargs: {strftime_now: today}}",
        ["models.agent_chat_template_kwargs 'strftime_now'", "the date", "2026-01-31", "'today'"],
    ),
    (
        "models.env_chat_template_kwargs={enable_thinking: false}",
        ["models.env_chat_template_kwargs", "does nothing", "bootstrap", "remove it"],
    ),
    (
        "warm_start.steps=60",
        ["warm_start.steps 60 does nothing", "bootstrap makes both", "give models.agent"],
    ),
    ("warm_start.probe_rows=8", ["warm_start.probe_rows", "does nothing", "such as 60"]),
    ("epochs", ["--set 'epochs'", "expected field=value"]),
    ("=3", ["--set '=3'", "expected field=value"]),
    ("epochs.x=3", ["--set 'epochs.x=3'", "'epochs' is a value, not a section"]),
    ("epochs=[3", ["--set 'epochs=[3'", "no YAML"]),
]


@mutation(
    "a field of another section is never meant", "genenv_core/config/load.py",
    "(BESIDE if above == section else 0)", "(BESIDE if above == section else -1)",
)  # fmt: skip
@mutation(
    "a field of the same section is meant no sooner", "genenv_core/config/load.py",
    "(BESIDE if above == section else 0)", "0",
)  # fmt: skip
@mutation(
    "any field is near", "genenv_core/config/load.py",
    "    if best < NEAR:\n", "    if False:\n",
)  # fmt: skip
@mutation(
    "a template's variable may shadow an argument", "genenv_core/config/sections/models.py",
    "        if name in TEMPLATE_ARGUMENTS:\n", "        if False:\n",
)  # fmt: skip
@pytest.mark.parametrize(("override", "texts"), BAD_OVERRIDES, ids=[o for o, _ in BAD_OVERRIDES])
def test_a_bad_setting_names_the_field_the_value_and_the_remedy(
    override: str, texts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("tiny", overrides=[override])
    for text in texts:
        assert text in str(caught.value)
    assert ("did you mean" in str(caught.value)) == any("did you mean" in text for text in texts)
    assert caught.value.exit_status == 2


@mutation(
    "a mapping that is no section is merged", "genenv_core/config/load.py",
    "if rest or (inner and isinstance(more, Mapping)):", "if rest or isinstance(more, Mapping):",
)  # fmt: skip
def test_changes_merge_sections_and_replace_other_mappings() -> None:
    options = {"a": 1, "b": 2}
    values = {"epochs": 3, "domain": {"name": "desk", "options": options}}
    for changes, wanted in (
        ({"domain": {"options": {"c": 3}}}, {"name": "desk", "options": {"c": 3}}),
        ({"domain.options": {"c": 3}}, {"name": "desk", "options": {"c": 3}}),
        ({"domain": {"options.c": 3}}, {"name": "desk", "options": options | {"c": 3}}),
        ({"domain.options.c": 3}, {"name": "desk", "options": options | {"c": 3}}),
        ({"domain": {"name": "sums"}}, {"name": "sums", "options": options}),
    ):
        assert changed(values, changes) == {"epochs": 3, "domain": wanted}
    nested = {"vllm": {"urls": ["http://a"]}}
    assert changed({"execution": nested}, {"execution": {"vllm": {"concurrency": 2}}}) == {
        "execution": {"vllm": {"urls": ["http://a"], "concurrency": 2}}
    }
    assert values == {"epochs": 3, "domain": {"name": "desk", "options": {"a": 1, "b": 2}}}
    with pytest.raises(ConfigError, match="'epochs' is a value, not a section"):
        changed(values, {"epochs.x": 3})


@pytest.mark.parametrize(
    ("overrides", "options"),
    [
        ((), {"max_calls": 3, "max_operand": 4}),
        (("domain.name=desk",), {"max_calls": 3, "max_operand": 4}),
        (("domain.name=trails",), {}),
        (("domain.options={max_looks: 2}", "domain.name=trails"), {"max_looks": 2}),
        (("domain.name=trails", "domain.options.max_looks=2"), {"max_looks": 2}),
    ],
)
def test_another_domain_does_not_get_the_options_of_the_presets(
    overrides: tuple[str, ...], options: dict[str, int], tmp_path: Path
) -> None:
    assert resolve("tiny", overrides=overrides).domain.options == options
    file = tmp_path / "mine.yaml"
    file.write_text("preset: tiny\ndomain: {name: trails}\n")
    assert resolve(str(file)).domain.options == {}


def test_tracking_is_refused_where_all_rows_weigh_alike() -> None:
    with pytest.raises(
        ConfigError, match=r"curriculum\.track 0\.5 does nothing with rwr\.lambda 0"
    ):
        resolve("tiny", overrides=["curriculum.track=0.5", "rwr.lambda=0"])
    # Epochs differ in p_hat, so tracking counts in a window of several even where level is batch.
    old = ("curriculum={track: 0.5, level: batch}", "rwr.window_epochs=2")
    assert resolve("tiny", overrides=list(old)).curriculum.track == 0.5


def test_a_pay_of_single_tasks_is_refused_beside_another_level_and_a_target() -> None:
    with pytest.raises(ConfigError, match=r"rwr\.pay signal .* curriculum\.level group: set that"):
        resolve("tiny", overrides=["rwr.pay=signal", "curriculum.level=group"])
    with pytest.raises(ConfigError, match=r"curriculum\.track 0\.5 does nothing with rwr\.pay"):
        resolve("tiny", overrides=["rwr.pay=learnability", "curriculum.track=0.5"])
    assert resolve("tiny", overrides=["rwr.pay=learnability"]).rwr.pay == "learnability"


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        (
            "qickstart",
            [
                "'qickstart'",
                "paper, paper-alfworld, paper-api",
                "quickstart, tiny, trails",
                "did you mean 'quickstart'",
            ],
        ),
        ("no/such.yaml", ["'no/such.yaml'", "neither a preset", "nor a file"]),
        (".", ["it is a directory, not a file"]),
    ],
)
def test_an_unknown_source_names_what_is_known(source: str, texts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(source)
    for text in texts:
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"{a: [\n", ["is no YAML", "line 2, column 1"]),
        (b"\tepochs: 1", ["is no YAML", "line 1, column 1"]),
        (b"a: !!python/object:os.system x", ["is no YAML", "could not determine a constructor"]),
        (b"- epochs\n", ["holds a list", "`field: value` lines"]),
        (b"just words\n", ["holds a str"]),
        (b"\xff\xfe\x00", ["cannot be read", "utf-8"]),
        (b"1: 2\n", ["keys should be strings", "got 1"]),
        (b"rwr:\n", ["rwr", "got nothing"]),
        (b"epochs: 0\nseed: -1\n", ["epochs", "got 0", "seed", "got -1"]),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(
    content: bytes, texts: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        resolve(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    for text in texts:
        assert text in str(caught.value)


def test_many_mistakes_are_counted_not_listed(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("".join(f"field{index}: 1\n" for index in range(9)), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"and 4 more$"):
        resolve(str(path))


def test_validate_on_the_command_line_gives_status_two_and_one_line() -> None:
    command = [sys.executable, "-m", "flows.cli.app", "config", "validate", "tiny"]
    wrong = subprocess.run(
        [*command, "--set", "rwr.step=4"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=BOUND_S,
    )
    assert wrong.returncode == 2, wrong.stderr
    assert wrong.stderr.strip().count("\n") == 0
    assert "rwr.step is no field (did you mean 'rwr.steps'?)" in wrong.stderr


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["execution.vllm.concurrency=4"], "execution.vllm does nothing for compute.engine tr"),
        (
            ["compute.engine=vllm", "rollout.top_p=0.9", "rollout.temperature=0.8"],
            "rollout.top_p 0.9 with rollout.temperature 0.8: vLLM returns logprobs before",
        ),
        (
            ["compute.engine=vllm", "compute.vllm.arguments=[--port=1]"],
            "genenv sets --port itself",
        ),
        (
            ["compute.engine=vllm", "compute.vllm.arguments=[--trust_remote]"],
            "genenv sets --trust-remote-code itself",
        ),
        (
            ["compute.engine=vllm", "compute.vllm.arguments=[--config, more.yaml]"],
            "genenv sets --config itself",
        ),
        (
            ["compute.engine=vllm", "execution.vllm.urls=[http://u:secret@host]"],
            "is no address like",
        ),
        (
            ["compute.engine=vllm", "execution.vllm.urls=[http://h:1, http://h:1]"],
            "names an address twice",
        ),
        (
            ["compute.engine=vllm", "execution.vllm.urls=[http://h]", "execution.vllm.python=py"],
            "remove one of them",
        ),
    ],
)
def test_engine_settings_that_do_nothing_or_harm_are_refused(
    overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve("tiny", overrides=overrides)


def test_engine_settings_that_are_sound() -> None:
    config = resolve(
        "tiny",
        overrides=[
            "compute.engine=vllm",
            "compute.vllm.arguments=[--enforce-eager]",
            "execution.vllm.urls=[http://gpu-1:8000, https://gpu-2/serve]",
            "generation.structured=true",
            "rollout.top_p=0.9",
        ],
    )
    assert config.execution.vllm.urls == ("http://gpu-1:8000", "https://gpu-2/serve")
    assert resolve("tiny", overrides=["execution.vllm.concurrency=256"]) == resolve("tiny")


def test_run_name_golden_shape() -> None:
    name = run_name(resolve("tiny", fields={"seed": 3}), "tiny")
    stem, arm, seed, digest = name.split("-")
    assert (stem, arm, seed) == ("tiny", "genenv", "s3")
    assert len(digest) == 6 and set(digest) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    "override",
    [
        "epochs=7",
        "root=/somewhere",
        "execution.checkpoint_seconds=0",
        "tracking.enabled=false",
        "tracking.experiment=other",
        "measure.benchmarks=[bfcl]",
        "limits.tokens=5000",
        "prices.hour=2.5",
        "roots.read=[s3://team/genenv]",
    ],
)
def test_run_name_does_not_depend_on_where_or_how_long(override: str) -> None:
    assert override.partition("=")[0].split(".")[0] in NOT_IDENTITY
    other = resolve("tiny", overrides=[override])
    assert other != resolve("tiny")
    assert run_name(other, "tiny") == run_name(resolve("tiny"), "tiny")


@pytest.mark.parametrize("override", ["seed=1", "arm=base", "rwr.steps=9", "curriculum.alpha=0.4"])
def test_run_name_depends_on_what_makes_the_result(override: str) -> None:
    assert run_name(resolve("tiny", overrides=[override]), "tiny") != run_name(
        resolve("tiny"), "tiny"
    )


def test_a_given_run_id_is_the_name() -> None:
    assert run_name(resolve("tiny", fields={"run_id": "mine.1"}), "tiny") == "mine.1"


@pytest.mark.parametrize(
    ("source", "stem"),
    [
        ("/a/b/my setting.yaml", "my-setting"),
        ("../.yaml", "yaml"),
        ("ünï.yml", "ünï"),
        ("x" * 90 + ".yaml", "x" * 40),
    ],
)
def test_run_name_of_a_file_is_a_safe_file_name(source: str, stem: str) -> None:
    name = run_name(resolve("tiny"), source)
    assert name.startswith(f"{stem}-genenv-s0-")
    assert "/" not in name and not name.startswith(".")


def test_run_name_is_equal_in_another_process() -> None:
    code = (
        "from genenv_core.config.load import resolve, run_name;"
        "print(run_name(resolve('paper'), 'paper'))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=BOUND_S
    ).stdout
    assert output.strip() == run_name(resolve("paper"), "paper")


@mutation(
    "a password in a root to read from is kept", "genenv_core/config/sections/roots.py",
    'if scheme == "s3" and ("@" in rest or', 'if scheme == "s3" and (False or',
)  # fmt: skip
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("[s3://KEY:hidden@team/x]", r"roots\.read holds a root with credentials: leave them out"),
        ("['s3://team/x?secret=hidden']", "holds a root with credentials"),
        ("[http://me:hidden@team/x]", "a root at http://, for which there is no store"),
        ("[gs://team/x]", r"roots\.read holds a root at gs://"),
        ("['']", r"roots\.read '' names no root: write a directory or s3://"),
        ("[s3://]", "names no root"),
        ("[s3://team/x, ./here, s3://team/x]", "'s3://team/x' stands twice, remove it"),
        ("s3://team/x", r"roots\.read: expected a list, as in \[a, b\], got 's3://team/x'"),
    ],
)
def test_roots_to_read_from_that_cannot_be_are_refused(value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        resolve("tiny", overrides=[f"roots.read={value}"])
    assert "hidden" not in str(caught.value)
    assert resolve("tiny", overrides=["roots.read=[s3://team/x, ./a@b]"]).roots.read


def test_a_date_for_chat_templates_is_kept_as_text() -> None:
    """YAML reads an unquoted date as one, and JSON has none."""
    day = "models={agent: ./a, agent_chat_template_kwargs: {strftime_now: 2024-07-26}}"
    given = resolve("tiny", overrides=[day]).models.agent_chat_template_kwargs
    assert given == {"strftime_now": "2024-07-26"}
