"""What goes into a bundle, and which runs have none.

Invariants: a configuration for others has no place, limit, price or tracking of one machine, loads
as it is, and gives the keys of the run's own; an address with a user is refused; so are a branch, a
run that measures a model, one without a stage, and one whose code, versions or data are not those
here, with the parts of the key that differ; an unfinished run is bundled up to where it is; the
sources are all that count in a key, a plug-in's among them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows import bundling
from flows.bundling import gather, portable_config
from flows.stages import TASKS
from genenv_core.bundle import sources
from genenv_core.bundle.contents import read, rendered, write
from genenv_core.config.load import dump, overridden, preset_values, resolve
from genenv_core.config.schema import RunConfig
from genenv_core.config.sections.unions.benchmark import MeasuredCheckpoint
from genenv_core.config.until import stages_of
from genenv_core.errors import ConfigError
from genenv_core.storage.records.branches import Branch, note_branch
from genenv_core.storage.records.draws import Draws, merge_draws
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from tasks.stage.key import config_fields
from tasks.stage.planning import Planned
from tests.mutations import mutation
from tests.unit.builders_runs import START
from tests.unit.bundle.builders import small_contents

BUNDLING = "flows/bundling.py"

MINE = Path(__file__).parents[3] / "docs" / "examples" / "units.py"


@pytest.fixture(name="played")
def a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """Return the configuration of a run of which all but the last two stages are finished.

    The plan finds them all under the keys that the run has noted.
    """
    config = resolve("tiny", fields={"root": str(tmp_path), "epochs": 1, "run_id": "r"})
    held, log = small_contents(tmp_path), RunLog(LocalStore(tmp_path), "r")
    log.open(dump(config), START)
    for (epoch, stage), one in list(held.stages.items())[:-2]:
        log.note_key(epoch, stage, one.key)
    plan = [Planned(s, e, "hit", one.key, one.key_parts) for (e, s), one in held.stages.items()]
    monkeypatch.setattr(bundling, "plan_run", lambda config: plan)
    return config


@pytest.mark.slow
def test_a_run_is_bundled_up_to_where_it_is(played: RunConfig) -> None:
    store = LocalStore(Path(played.root))
    merge_draws(store, "r", Draws(numbers={"rollout@1": 2, "rollout@7": 1}))
    held = gather(played, store)
    assert list(held.stages) == stages_of(played)[:-2]
    assert (str(held.facts.until), held.last) == ("rwr_update of epoch 1", (1, "rwr_update"))
    assert held.facts.draws == {"rollout@1": 2}
    assert held.facts.started == "2026-11-01T12:00:00Z"
    data = write(held)
    assert read(data) == held and write(gather(played, store)) == data
    ours = {n for n in held.files if n.startswith("code/")}
    assert {f"code/{package}/__init__.py" for package in sources.PACKAGES} <= ours
    assert "code/genenv_core/config/presets/tiny.yaml" in ours
    assert not [name for name in held.files if "__pycache__" in name or name.startswith("plugin/")]
    assert {"locks/installed.txt", "locks/requirements.lock"} <= held.files.keys()
    assert b"genenv==" not in held.files["locks/installed.txt"]
    assert "root" not in held.config and str(played.root).encode() not in data


@mutation(
    "a run is bundled with other code than its own", BUNDLING,
    'if planned.status == "hit" and planned.key == key:', 'if planned.status == "hit":',
)  # fmt: skip
def test_a_key_that_is_not_that_of_this_installation_is_refused(
    played: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(Path(played.root))
    plan = bundling.plan_run(played)
    first = plan[0]
    parts = {**first.parts, "code": "d", "runtime": {"torch": "3"}}
    other = Planned(first.stage, 0, "hit", "0" * 64, parts)
    monkeypatch.setattr(bundling, "plan_run", lambda config: [other, *plan[1:]])
    with pytest.raises(ConfigError, match=r"code c -> d; .*runtime.torch absent -> 3: bundle"):
        gather(played, store)
    gone = Planned("bootstrap", 0, "miss", first.key, changed=("its output is missing or damaged",))
    monkeypatch.setattr(bundling, "plan_run", lambda config: [gone, *plan[1:]])
    with pytest.raises(ConfigError, match=r"bootstrap of epoch 0 .* missing or damaged"):
        gather(played, store)


def test_runs_of_other_kinds_have_no_bundle(played: RunConfig) -> None:
    store = LocalStore(Path(played.root))
    with pytest.raises(ConfigError, match="run none has finished no stage"):
        gather(played.model_copy(update={"run_id": "none"}), store)
    note_branch(store, "r", Branch(run_id="other", epoch=0, epochs=({},)))
    with pytest.raises(ConfigError, match=r"branch of run other .* bundle other"):
        gather(played, store)
    measured = MeasuredCheckpoint(model="./m")
    with pytest.raises(ConfigError, match="measures a model"):
        gather(played.model_copy(update={"benchmark": measured}), store)


@mutation(
    "a bundle has the limits and places of the machine that made it", BUNDLING,
    'if name not in (*FREE_SECTIONS, "root")', 'if name != "root"',
)  # fmt: skip
def test_a_configuration_for_others_gives_the_same_keys() -> None:
    own = [
        *("limits.tokens=9", "prices.hour=2", "tracking.uri=http://mlflow:5000"),
        *("placement.rollout=gpu", "execution.open_attempts=3", "rwr.lambda=2"),
    ]
    config = resolve("tiny", overrides=own, fields={"root": "/mine", "run_id": "r"})
    values = portable_config(config)
    assert "/mine" not in str(values) and "mlflow:5000" not in str(values)
    other = overridden(values, "bundle")
    assert (other.run_id, other.tracking.enabled, other.limits.given) == ("r", False, {})
    assert other.placement.work_pools() == {} and other.rwr.lambda_ == 2
    for task in TASKS.values():
        if task.stage.name != "benchmark":
            reads = task.stage.reads
            assert config_fields(config, reads) == config_fields(other, reads)
    assert portable_config(other) == values


def test_the_file_of_a_configuration_loads_as_it_is(tmp_path: Path) -> None:
    values = portable_config(resolve("tiny", fields={"run_id": "r"}))
    (tmp_path / "config.yaml").write_bytes(rendered(values))
    assert portable_config(resolve(str(tmp_path / "config.yaml"))) == values
    assert preset_values(str(tmp_path / "config.yaml")) == values


def test_an_address_with_a_password_is_refused() -> None:
    options: dict[str, Any] = {"name": "desk", "options": {"data": ["x", "s3://me:word@host/a"]}}
    config = resolve("tiny", fields={"run_id": "r"})
    secret = config.model_copy(
        update={"domain": config.domain.model_copy(update={"options": options["options"]})}
    )
    with pytest.raises(ConfigError, match=r"domain.options.data.1 holds a user or a password") as e:
        portable_config(secret)
    assert "word" not in str(e.value).replace("password", "")


@mutation(
    "an algorithm of one's own is in no bundle", "flows/bundling.py",
    "stage = task.stage.as_asked(config)", "stage = task.stage",
)  # fmt: skip
def test_the_source_of_an_algorithm_is_in_it() -> None:
    mine = MINE.with_name("reinforce.py")
    asked = [f"agent_update.algorithm={mine}:Reinforce", "grpo.passes=1"]
    config = resolve("tiny", overrides=asked, fields={"run_id": "r"})
    found = sources.plugin_files(bundling.plugin_modules(config))
    assert found == {"plugin/reinforce.py": mine.read_bytes()}


def test_the_sources_of_a_plug_in_are_in_it() -> None:
    config = resolve("tiny", overrides=[f"domain.name={MINE}:Units"], fields={"run_id": "r"})
    modules = bundling.plugin_modules(config)
    assert "units" in modules and "genenv_core.domains.kit.kit_domain" in modules
    assert sources.plugin_files(modules) == {"plugin/units.py": MINE.read_bytes()}
