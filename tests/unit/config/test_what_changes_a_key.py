"""Which edit changes which stage's key.

Invariants: a module counts for the stages that import it and for no other; of the code that the
configuration chooses (engine, domain, processes of an update) only the chosen part counts; a module
that decides no result counts nowhere, for a written reason; seeds and ids, which the machinery
around every stage makes, count everywhere; machine, library versions and the domain's version count
where they are used.
"""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.placement import PlacementConfig
from genenv_core.config.sections.unions.alternatives import sections_of
from genenv_core.domains.desk import DeskDomain
from genenv_core.ids import scope_of, seed_from, stage_seed
from genenv_core.storage.records import code
from genenv_core.storage.records.keys import stage_key
from tasks.stage import Stage, StageContext, key
from tasks.stage.key import AROUND, chosen_modules, domain_of, parts_of
from tests.mutations import mutation
from tests.unit.builders_stage import NO_INPUTS
from tests.unit.config.test_stage_config import STAGES, for_every_stage

IDS = "genenv_core/ids.py"
KEY = "tasks/stage/key.py"

TINY = resolve("tiny")
VLLM = resolve("tiny", overrides=["compute.engine=vllm"])
LAUNCHED = resolve("tiny", overrides=["training.processes=2"])

EVERY = set(STAGES)
PLAY = {"rollout", "evaluate", "benchmark"}
UPDATE = {"warm_start", "grpo_update", "rwr_update"}
WRITE = {"warm_start", "generate_tasks"}
SAMPLE = {*WRITE, "rollout", "evaluate", "rwr_update", "benchmark"}
MODELS = {"bootstrap", *SAMPLE, *UPDATE}
DOMAIN = {"bootstrap", "score", *SAMPLE}

EDITS: list[tuple[str, set[str]]] = [
    ("tasks.stage.execution", set()),
    ("tasks.stage.context", set()),
    ("tasks.tracking.track", set()),
    ("tasks.upkeep.tidying", set()),
    ("tasks.policies.trainer", set()),
    ("genenv_core.config.sections.curriculum", set()),
    ("genenv_core.storage.records.artifacts", set()),
    ("genenv_core.training.processes.launch", set()),
    ("genenv_core.training.processes.workers", set()),
    ("genenv_core.training.memory.estimate", set()),
    ("genenv_core.spending.needs", set()),
    ("genenv_core.engines.vllm.engine", set()),
    ("genenv_core.engines.vllm.fleet", set()),
    ("genenv_core.engines.vllm.server", set()),
    ("genenv_core.engines.vllm.upkeep", set()),
    ("genenv_core.engines.vllm.wire", set()),
    ("genenv_core.engines.transformers.engine", SAMPLE),
    ("genenv_core.engines.transformers.sampling", SAMPLE),
    ("genenv_core.engines.protocol", SAMPLE),
    ("genenv_core.engines.transformers.loading", SAMPLE | UPDATE),
    ("genenv_core.play.attempt", PLAY),
    ("genenv_core.play.certificate", WRITE),
    ("genenv_core.play.driver", PLAY),
    (
        "genenv_core.domains.steps",
        PLAY | WRITE | {"bootstrap", "score", "rwr_update", "publish"},
    ),
    ("genenv_core.play.fidelity", {"score", "rwr_update"}),
    ("genenv_core.play.simulator", PLAY | {"rwr_update"}),
    ("genenv_core.play.chat", SAMPLE),
    ("genenv_core.domains.desk.desk_domain", DOMAIN),
    ("genenv_core.domains.desk.scoring", DOMAIN),
    ("genenv_core.training.warm_start.sft", {"bootstrap"}),
    ("genenv_core.training.grpo.trainer", {"grpo_update"}),
    ("genenv_core.training.grpo.stored", {"grpo_update"}),
    ("genenv_core.training.sft.batches", {"warm_start"}),
    ("genenv_core.epoch.warm_starting", {"warm_start"}),
    ("genenv_core.exchange.examples.files", {"warm_start"}),
    ("genenv_core.exchange.examples.runs", {"warm_start"}),
    ("genenv_core.training.rwr.leash", {"rwr_update"}),
    ("genenv_core.training.loop.steps", UPDATE),
    ("genenv_core.training.requests", UPDATE),
    ("genenv_core.training.updates.own", UPDATE),
    ("genenv_core.training.own.trainer", set()),
    ("genenv_core.training.own.checking", set()),
    ("genenv_core.epoch.probe", {"rwr_update"}),
    ("genenv_core.epoch.observing", {"score", "rwr_update"}),
    ("genenv_core.engines.transformers.kl", {"rwr_update"}),
    ("genenv_core.engines.transformers.gap", {"rollout"}),
    ("genenv_core.engines.transformers.scoring", {"rollout", "rwr_update"}),
    ("genenv_core.algorithm.spread", {"rollout", "rwr_update"}),
    ("genenv_core.algorithm.pay.weights", {"pool", "rwr_update"}),
    ("genenv_core.algorithm.pay.alpha", {"rwr_update"}),
    ("genenv_core.algorithm.success.signal", {"pool"}),
    ("genenv_core.algorithm.mixture", {"rollout", "grpo_update", "benchmark"}),
    ("genenv_core.algorithm.admission", WRITE),
    ("genenv_core.epoch.writing.generation", WRITE),
    ("genenv_core.epoch.writing.contexts", WRITE),
    ("genenv_core.epoch.writing.teaching", {"generate_tasks"}),
    ("genenv_core.epoch.attempting.windows", {"generate_tasks", "rollout", "benchmark"}),
    ("genenv_core.epoch.attempting.refilling", set()),  # by name, and in the key of a refill
    ("genenv_core.epoch.attempting.rounds", {"rollout"}),
    ("genenv_core.exchange.chat_endpoint", {"generate_tasks"}),
    ("genenv_core.exchange.chat_answers", {"generate_tasks", "benchmark"}),
    ("genenv_core.exchange.chat_client", {"generate_tasks", "benchmark"}),
    ("genenv_core.exchange.chat_player", {"benchmark"}),
    ("genenv_core.benchmarks.measuring.items", {"benchmark"}),
    ("genenv_core.benchmarks.summary", {"benchmark"}),
    ("genenv_core.benchmarks.bfcl.suite", set()),
    ("genenv_core.play.native_calls", SAMPLE),
    ("genenv_core.algorithm.gates", {"publish"}),
    ("genenv_core.algorithm.reward", {"score", "filter", "pool", "publish", "rwr_update"}),
    ("genenv_core.epoch.attempts", {"rollout", "benchmark"}),
    ("genenv_core.epoch.evaluating", {"evaluate"}),
    ("genenv_core.epoch.pooling", {"pool"}),
    ("genenv_core.epoch.publishing", {"publish"}),
    ("genenv_core.epoch.scoring", {"score"}),
    ("genenv_core.epoch.selecting", {"filter"}),
    ("genenv_core.epoch.rows", EVERY),
    ("genenv_core.ids", EVERY),
    *((f"tasks.{name}", {name}) for name in STAGES),
]


def keys(config: RunConfig = TINY) -> dict[str, str]:
    code.code_version.cache_clear()
    return {
        name: stage_key(parts_of(stage, for_every_stage(config), 1, NO_INPUTS))
        for name, stage in STAGES.items()
    }


@pytest.fixture(scope="module")
def unedited() -> dict[str, str]:
    """Return the keys of the code as it is."""
    return keys()


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def edit(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a module's source another digest."""
    assert code._source(module) is not None
    read = code._read

    def edited(name: str) -> code.ModuleSource:
        return read(name)._replace(digest="edited") if name == module else read(name)

    monkeypatch.setattr(code, "_read", edited)


@pytest.fixture(autouse=True)
def fresh() -> Any:
    yield
    code.code_version.cache_clear()


@mutation(
    "the domain's code is in no key", KEY,
    "chosen = modules_of(config.domain.name, domain) if domain else []", "chosen: list[str] = []",
)  # fmt: skip
@pytest.mark.parametrize(("module", "stages"), EDITS, ids=[module for module, _ in EDITS])
def test_an_edit_recomputes_the_stages_that_use_the_module(
    module: str, stages: set[str], unedited: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(module, monkeypatch)
    assert changed(unedited, keys()) == stages


CHOSEN: list[tuple[RunConfig, str, set[str]]] = [
    (VLLM, "genenv_core.engines.vllm.upkeep", SAMPLE),
    (VLLM, "genenv_core.engines.vllm.wire", SAMPLE),
    (VLLM, "genenv_core.engines.transformers.kv_cache", set()),
    (LAUNCHED, "genenv_core.training.processes.launch", UPDATE),
    (LAUNCHED, "genenv_core.training.processes.workers", set()),
]


@mutation(
    "the engine's code is in no key", KEY,
    "chosen.append(engine_module(config.compute.engine))", "pass",
)  # fmt: skip
@mutation("how an update is launched is in no key", KEY, "chosen.append(LAUNCH)", "pass")
@pytest.mark.parametrize(("config", "module", "stages"), CHOSEN, ids=range(len(CHOSEN)))
def test_what_the_configuration_chooses_counts_where_it_is_used(
    config: RunConfig, module: str, stages: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(config)
    edit(module, monkeypatch)
    assert changed(before, keys(config)) == stages


@mutation(
    "all engines are in every key", KEY, "chosen.append(engine_module(config.compute.engine))",
    'chosen += [engine_module("transformers"), engine_module("vllm")]',
)  # fmt: skip
def test_a_keep_alive_of_vllm_recomputes_nothing_under_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test edits a copy of the file."""
    module, source = "genenv_core.engines.vllm.replica", code._source
    path = source("genenv_core.engines.vllm.replica")
    assert path is not None
    text = path.read_text(encoding="utf-8")
    before, served = keys(), keys(VLLM)
    copy = tmp_path / path.name
    copy.write_text(f"{text}\nKEEP_ALIVE_S = 77.0\n", encoding="utf-8")
    monkeypatch.setattr(code, "_source", lambda name: copy if name == module else source(name))
    code._read.cache_clear()
    assert changed(before, keys()) == set()
    assert changed(served, keys(VLLM)) == SAMPLE
    monkeypatch.undo()
    code._read.cache_clear()


def test_each_module_that_a_stage_names_is_reached_by_no_import() -> None:
    for name, stage in STAGES.items():
        assert stage.modules[0] == f"tasks.{name}"
        for module in stage.modules[1:]:
            others = [other for other in stage.modules if other != module]
            assert module not in code.counted(*others), f"{name} names {module} for nothing"


def reached() -> set[str]:
    """Return the modules of `APART` that the stages import."""
    modules = {
        module
        for stage in STAGES.values()
        for config in (TINY, VLLM, LAUNCHED)
        for module in code.counted(
            *stage.modules, *chosen_modules(stage, config, domain_of(stage, config)), *AROUND
        )
    }
    return {n for module in modules for n in code.imported_modules(module) if code.is_apart(n)}


@pytest.mark.parametrize("name", code.APART)
def test_modules_of_apart_exist_and_are_imported_by_stages(name: str) -> None:
    assert code.APART[name]
    assert code._source(name) is not None
    assert any(n == name or n.startswith(f"{name}.") for n in reached())


def test_the_configuration_holds_values_and_no_rules() -> None:
    """A rule that a section computed would be in no key; these methods only give names to fields.

    Where a stage is computed is in no key either.
    """
    found = {
        f"{section.__name__}.{name}"
        for section in sections(RunConfig)
        if section is not PlacementConfig
        for name, value in vars(section).items()
        if not name.startswith(("_", "model_")) and (callable(value) or isinstance(value, property))
    }
    assert found == {
        "AgentUpdateConfig.own",
        "GrpoConfig.of_its_loss",
        "LimitsConfig.given",
        "PricesConfig.given",
        "RunConfig.measured",
        "RunConfig.warm_started",
        "TrainingConfig.on_gpus",
        "TrainingConfig.one_process_on_cpus",
        "TrainingConfig.own_processes",
        "TrainingConfig.shares_rows",
        "TrainingConfig.sharded",
        "TrainingConfig.yields",
    }


def sections(model: type[BaseModel]) -> list[type[BaseModel]]:
    kinds = [kind for one in model.model_fields.values() for kind in sections_of(one.annotation)]
    return [model, *(section for kind in kinds for section in sections(kind))]


@mutation(
    "a stage's seed is the same in every epoch", IDS,
    "return seed_from(seed, stage, epoch, *parts)", "return seed_from(seed, stage, *parts)",
)  # fmt: skip
@mutation(
    "ids change with the code", IDS,
    '_MADE_BY = ("code", "runtime", "format")', '_MADE_BY = ("runtime", "format")',
)  # fmt: skip
def test_seeds_and_scopes_are_those_of_ids() -> None:
    """The machinery is in no key, so it may not make seeds or scopes of its own."""
    context: Any = object.__new__(StageContext)
    context.seed, context.stage, context.epoch = 7, STAGES["rollout"], 3
    assert context.seed_for("base") == stage_seed(7, "rollout", 3, "base") == 2910559423318262236
    assert context.seed_for(0, 1) == seed_from(7, "rollout", 3, 0, 1) != seed_from(7, "rollout", 3)
    parts = parts_of(STAGES["rollout"], TINY, 1, NO_INPUTS)
    for part in parts:
        other = parts | {part: "other"}
        assert (scope_of(other) == scope_of(parts)) is (part in {"code", "runtime", "format"})


@mutation(
    "seeds and scopes are in no key", KEY,
    "*chosen_modules(stage, config, domain), *AROUND)", "*chosen_modules(stage, config, domain))",
)  # fmt: skip
def test_seeds_count_though_a_stage_imports_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage("toy", ("genenv_core.checks",), ("rwr.steps",))
    before = parts_of(stage, TINY, 1, NO_INPUTS)["code"]
    edit("genenv_core.ids", monkeypatch)
    code.code_version.cache_clear()
    assert parts_of(stage, TINY, 1, NO_INPUTS)["code"] != before


@mutation(
    "the machine is in no key", KEY,
    '        runtime["machine"] = platform.machine()', "        pass",
)  # fmt: skip
def test_the_machine_counts_where_models_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys()
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert changed(before, keys()) == MODELS


@mutation("the processor is in no key", KEY, 'runtime["processor"] = processor()', "pass")
@mutation("the processor counts on GPUs", KEY, "elsewhere and all(elsewhere)", "False")
def test_the_kind_of_processor_counts_where_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = ["compute.engine=vllm", "training.device=cuda"]
    here = ["compute.device=cuda", "training.device=cuda"]
    configs = [TINY, *(resolve("tiny", overrides=on) for on in (gpu[1:], gpu, here))]
    before = [keys(config) for config in configs]
    monkeypatch.setattr(key, "processor", lambda: "GenuineIntel 6/143 00000000")
    found = [changed(old, keys(config)) for old, config in zip(before, configs, strict=True)]
    assert found == [MODELS, MODELS - {"grpo_update"}, {"bootstrap"}, {"bootstrap"}]


@mutation("variables that change arithmetic are in no key", KEY, "deciding(os.environ)", "{}")
def test_a_variable_that_changes_arithmetic_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys()
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")  # reaches no computation
    assert keys() == before
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    assert changed(before, keys()) == MODELS


def test_what_the_readme_says_of_bits_is_in_the_key_of_every_stage_with_a_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each part of the sentence "a CPU with one thread, one kind of processor, ..."."""
    before = keys()
    threads = resolve("tiny", overrides=["compute.threads=2"])
    assert changed(before, keys(threads)) == MODELS
    text = " ".join(Path("README.md").read_text("utf-8").split())
    sentence = (
        "bit for bit, on a CPU with one thread (`compute.threads`), one kind of processor, one set "
        "of library versions and one set of the variables that choose their arithmetic "
        "(`ATEN_CPU_CAPABILITY`, `MKL_*` and others). The key of every stage that runs a model on "
        "a CPU holds all of these."
    )
    assert sentence in text


@mutation(
    "library versions are in no key", KEY,
    'version(library).partition("+")[0] for library in stage.libraries}',
    '"" for library in stage.libraries}',
)  # fmt: skip
def test_each_library_counts_by_its_version_without_the_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, before = importlib.metadata.version, keys()
    for library in sorted({name for stage in STAGES.values() for name in stage.libraries}):
        users = {name for name, stage in STAGES.items() if library in stage.libraries}
        for new, expected in (("0.0.1", users), (real(library) + "+other", set[str]())):
            versions = {library: new}
            monkeypatch.setattr(key, "version", lambda n, v=versions: v.get(n) or real(n))
            assert changed(before, keys()) == expected, (library, new)
    assert {"torch", "transformers"} <= set(STAGES["rollout"].libraries)
    assert {"torch", "transformers", "trl", "accelerate", "peft"} == set(
        STAGES["grpo_update"].libraries
    )
    assert STAGES["rwr_update"].libraries == STAGES["grpo_update"].libraries


@mutation(
    "what reads grammars is in no key", KEY,
    '"transformers": ("llguidance",)', '"transformers": ()',
)  # fmt: skip
def test_the_library_of_grammars_counts_where_a_text_is_held_to_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = resolve("tiny", overrides=["generation.structured=true"])
    served = resolve("tiny", overrides=["generation.structured=true", "compute.engine=vllm"])
    before, real = [keys(config) for config in (TINY, held, served)], importlib.metadata.version
    monkeypatch.setattr(key, "version", lambda n: "0.1" if n == "llguidance" else real(n))
    found = [keys(config) for config in (TINY, held, served)]
    writing = {"generate_tasks", "rwr_update", "warm_start"}
    assert [changed(*both) for both in zip(before, found, strict=True)] == [set(), writing, set()]


@mutation(
    "the domain's version is in no key", KEY,
    'runtime["domain"] = " ".join([domain.name, domain.version, *_file_digests(domain)])', "pass",
)  # fmt: skip
def test_the_domains_version_counts_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys()
    monkeypatch.setattr(DeskDomain, "version", "2")
    assert changed(before, keys()) == DOMAIN
