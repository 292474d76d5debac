"""Whether a bundle can be replayed here, and whether it comes out the same.

Invariants: each part of a stage's key that would differ is named before any work, code by its
files; other or missing data and models too, with the digest; a replay's root has no other work in
it; the first stage that differs ends the replay and is named with the likely reason; a replay that
ends early is not equal; nothing overwrites a file; a bundle alone loads no code of this machine,
speaks to no address, and names no secret.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from flows import replaying
from flows.cli.runs.bundle import _steps as steps
from flows.replaying import (
    ReplayComparison,
    check_given,
    check_keys,
    open_root,
    promised,
    replayable,
    unpack,
)
from flows.stages import TASKS
from genenv_core.bundle.comparing import Here
from genenv_core.bundle.contents import Contents
from genenv_core.canonical import file_sha256
from genenv_core.config.load import changed, overridden, resolve
from genenv_core.config.stages import EPOCH_STAGES, START_STAGES
from genenv_core.errors import ConfigError, ReplayError
from genenv_core.storage.records.draws import read_draws
from genenv_core.storage.records.keys import stage_key
from genenv_core.storage.records.runs import RunLog
from genenv_core.storage.store.local import LocalStore
from schemas.enums import StageState
from tasks.stage.key import parts_of
from tasks.stage.progress import Event
from tests.mutations import mutation
from tests.unit.bundle.builders import small_contents

REPLAYING = "flows/replaying.py"

NOWHERE = Here((), (), (), ())


@pytest.fixture(name="held")
def a_bundle(tmp_path: Path) -> Contents:
    """Return a bundle whose stages have the keys that this installation would give them."""
    held = small_contents(tmp_path / "made")
    config = overridden(held.config, "bundle")
    stages = {}
    for (epoch, stage), one in held.stages.items():
        own = parts_of(TASKS[stage].stage, config, epoch, replaying._NoInputs())
        parts = {**own, "inputs": one.key_parts["inputs"]}
        stages[epoch, stage] = one.model_copy(update={"key_parts": parts, "key": stage_key(parts)})
    return replace(held, stages=stages)


def test_the_same_installation_gives_the_same_keys(held: Contents) -> None:
    check_keys(held, overridden(held.config, "bundle"), NOWHERE)


@mutation(
    "a bundle chooses which code of this machine is loaded", REPLAYING,
    "if reaches(config) and field not in said:", "if False:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("field", "value", "more"),
    [
        # Popen takes the names of a mapping for a command.
        (
            "agent_update.algorithm",
            "subprocess:Popen",
            {"agent_update": {"options": {"touch": 1, "pwned": 1}}},
        ),
        ("domain.name", "subprocess:Popen", {"domain": {"options": {"touch": 1, "pwned": 1}}}),
        ("teacher.url", "http://evil/v1", {"arm": "offline", "teacher": {"model_name": "m"}}),
        ("compute.vllm.arguments", ["--x=y"], {"compute": {"engine": "vllm"}}),
        ("models.agent", "evil/model", {"models": {"agent_revision": "a" * 40}}),
        ("models.env", "evil/model", {"models": {"env_revision": "a" * 40}}),
        ("teacher.model", "evil/model", {"arm": "offline", "teacher": {"revision": "a" * 40}}),
    ],
)
def test_what_reaches_beyond_genenv_is_not_taken_from_a_bundle(
    held: Contents, field: str, value: Any, more: dict[str, Any], tmp_path: Path
) -> None:
    hostile = replace(held, config=changed(held.config, {**more, field: value}))
    with pytest.raises(ConfigError, match="say it yourself: --set") as refused:
        replayable(hostile, "b.zip", str(tmp_path), ["rollout.n=3"])
    asked = shlex.split(str(refused.value))[-1]
    config = replayable(hostile, "b.zip", str(tmp_path), [asked])
    assert attrgetter(field)(config) == (tuple(value) if isinstance(value, list) else value)


@mutation(
    "a bundle names variables with secrets", REPLAYING,
    "overridden(portable(contents.config), where", "overridden(contents.config, where",
)  # fmt: skip
def test_a_bundle_has_no_say_in_secrets_and_places(held: Contents, tmp_path: Path) -> None:
    evil = {
        "tracking": {"enabled": True, "uri": "http://evil"},
        "execution.teacher.key_env": "AWS_SECRET_ACCESS_KEY",
        "execution.vllm.python": "/tmp/evil",
        "placement.rollout": "evil",
        "limits.tokens": 1,
        "root": "/tmp/evil",
    }
    hostile = replace(held, config=changed(held.config, evil))
    config = replayable(hostile, "b.zip", str(tmp_path), [])
    assert config == replayable(held, "b.zip", str(tmp_path), [])
    assert "evil" not in str(config) and "SECRET" not in str(config)
    measures = changed(held.config, {"arm": "base", "benchmark.model": "./m"})
    with pytest.raises(ConfigError, match="measures a model"):
        replayable(replace(held, config=measures), "b.zip", str(tmp_path), [])


@mutation(
    "a first draw is absent from what changed", "genenv_core/storage/records/keys.py",
    'leaves({"draw": 0, **parts})', "leaves(parts)",
)  # fmt: skip
@mutation(
    "a replay begins with keys that are not the bundle's", REPLAYING,
    "    if not where:\n        return\n", "    return\n",
)  # fmt: skip
def test_every_part_that_differs_is_named_before_any_work(held: Contents) -> None:
    config = overridden(held.config, "bundle", overrides=["rollout.n=3", "seed=5"])
    with pytest.raises(ConfigError) as refused:
        check_keys(held, config, NOWHERE)
    for known in ("config.rollout.n 4 -> 3 (rollout", "seed 0 -> 5 (bootstrap, ", "--unpack"):
        assert known in str(refused.value)
    rollout = held.stages[1, "rollout"]
    parts = {**rollout.key_parts, "code": "0123"}
    other = rollout.model_copy(update={"key_parts": parts})
    replaced = replace(held, stages={**held.stages, (1, "rollout"): other})
    here = Here((), (), ("genenv_core/play/attempt.py",), ())
    with pytest.raises(ConfigError, match=r"other code in genenv_core/play/attempt.py \(rollout\)"):
        check_keys(replaced, overridden(held.config, "bundle"), here)
    drawn = replace(held, facts=replace(held.facts, draws={"rollout@1": 1}))
    with pytest.raises(ConfigError, match=r"draw 0 -> 1 \(rollout\)"):
        check_keys(drawn, overridden(held.config, "bundle"), NOWHERE)


def test_other_data_is_named_with_its_digest(held: Contents, tmp_path: Path) -> None:
    base = tmp_path / "base.jsonl"
    base.write_text('{"program": "+ 1 bolts 2"}\n' * 1)
    config = overridden(held.config, "bundle", overrides=[f"data.base_file={base}"])
    right = replace(held, facts=replace(held.facts, given={"data.base_file": file_sha256(base)}))
    check_given(right, config)
    wrong = replace(held, facts=replace(held.facts, given={"data.base_file": "0" * 64}))
    with pytest.raises(ConfigError, match=r"data.base_file is not what the run was given"):
        check_given(wrong, config)
    with pytest.raises(ConfigError, match=r"data.base_file is not what the run was given"):
        check_given(held, config)  # it was given none
    base.unlink()
    with pytest.raises(ConfigError, match=f"No such file.*data.base_file {'0' * 64}.*--set"):
        check_given(wrong, config)


@mutation(
    "a replay reuses what a root has", REPLAYING,
    'used = "it has stages already" if store.names("stages") or store.names("runs") else ""',
    'used = ""',
)  # fmt: skip
def test_a_replay_has_a_root_of_its_own(held: Contents, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "new")
    drawn = replace(held, facts=replace(held.facts, draws={"rollout@1": 2}))
    open_root(store, "a" * 64, drawn)
    assert read_draws(store, "r").number("rollout", 1) == 2
    store.create("stages/rollout/x.json", b"")
    open_root(store, "a" * 64, drawn)  # the same replay goes on
    with pytest.raises(ConfigError, match="another bundle was replayed there"):
        open_root(store, "b" * 64, drawn)
    with pytest.raises(ConfigError, match="it has stages already"):
        open_root(LocalStore(tmp_path / "made"), "a" * 64, drawn)


def test_draws_are_noted_after_a_kill_before_them(
    held: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "new")
    drawn = replace(held, facts=replace(held.facts, draws={"rollout@1": 2}))

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(replaying, "merge_draws", killed)
        open_root(store, "a" * 64, drawn)
    open_root(store, "a" * 64, drawn)
    assert read_draws(store, "r").number("rollout", 1) == 2


def replayed(held: Contents, root: Path, here: Here = NOWHERE) -> ReplayComparison:
    """Return a comparison with a root to which the bundle's stages are copied as computed."""
    store, log = LocalStore(root), RunLog(LocalStore(root), "r")
    for (epoch, stage), one in held.stages.items():
        store.create(f"stages/{stage}/{one.key}.json", one.to_bytes())
        log.note_key(epoch, stage, one.key)
    return ReplayComparison(held, store, here, overridden(held.config, "bundle"))


def finished(held: Contents) -> list[Event]:
    return [Event("finished", stage, epoch) for epoch, stage in held.stages]


@mutation(
    "a replay that ends early is equal", REPLAYING,
    "        if missing:\n            epoch, stage = missing[0]",
    "        if False:\n            epoch, stage = missing[0]",
)  # fmt: skip
def test_a_replay_with_equal_stages_is_equal(held: Contents, tmp_path: Path) -> None:
    compared = replayed(held, tmp_path / "replay")
    for event in (Event("run"), Event("started", "rollout", 1), *finished(held)):
        compared(event)
    compared.check_all()
    stages = len(START_STAGES) + len(EPOCH_STAGES)
    assert (compared.first, len(compared.equal), compared.reused) == (None, stages, set())
    again = replayed(held, tmp_path / "again")
    again(Event("finished", "bootstrap", 0, state=StageState.CACHED))
    assert again.reused == {(0, "bootstrap")}
    early = replayed(held, tmp_path / "early")
    for event in finished(held)[:-1]:
        early(event)
    with pytest.raises(ReplayError, match=r"publish of epoch 1 .* ended before it"):
        early.check_all()


@mutation(
    "a replay goes on after a stage that differs", REPLAYING,
    "            self.unequal[event.epoch, event.stage] = lines\n"
    "        raise ReplayError(self.said())\n",
    "            self.unequal[event.epoch, event.stage] = lines\n",
)  # fmt: skip
def test_the_first_stage_that_differs_is_named(held: Contents, tmp_path: Path) -> None:
    made = replace(held, stages=dict(held.stages))
    for place in ((1, "rollout"), (1, "score")):
        one = made.stages[place]
        made.stages[place] = one.model_copy(update={"facts": {"steps": 3}})
    compared = replayed(made, tmp_path / "replay")
    compared._contents = held
    for event in finished(held):
        if event.stage in ("rollout", "score"):
            with pytest.raises(ReplayError):
                compared(event)
        else:
            compared(event)
    assert compared.first == (1, "rollout")
    with pytest.raises(ReplayError) as differs:
        compared.check_all()
    for known in ("rollout of epoch 1 is the first", "fact steps 2 -> 3", "not deterministic here"):
        assert known in str(differs.value)


def test_the_likely_reason_is_the_nearest_one(held: Contents, tmp_path: Path) -> None:
    compared = replayed(held, tmp_path / "replay")
    compared.unequal[1, "rollout"] = ["x"]
    for here, said in (
        (Here(("capability AVX2 -> AVX512",), ("polars 1 -> 2",), (), ()), "capability AVX2"),
        (Here((), ("polars 1 -> 2",), (), ()), "polars 1 -> 2"),
    ):
        compared._here = here
        assert said in compared.said()
    compared._config = resolve("tiny", overrides=["compute.threads=2"])
    assert "Bits are promised for" in compared.said()


@pytest.mark.parametrize(
    "override",
    ["compute.threads=2", "compute.device=cuda", "compute.engine=vllm", "training.device=cuda"],
)
def test_bits_are_promised_on_a_cpu_with_one_thread(override: str) -> None:
    assert promised(resolve("tiny"))
    assert not promised(resolve("tiny", overrides=[override]))


def test_a_bundle_is_written_to_a_new_folder_alone(held: Contents, tmp_path: Path) -> None:
    unpack(held.files, tmp_path / "new")
    assert (tmp_path / "new/plugin/mine.py").read_bytes() == b"Y = 1\n"
    with pytest.raises(ConfigError, match="is there already"):
        unpack(held.files, tmp_path / "new")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is there already"):
        unpack(held.files, tmp_path / "link")


def test_the_steps_to_an_environment_name_the_locks_that_are_there(held: Contents) -> None:
    folder = Path("DIR")
    bare = steps(Path("b.zip"), held, folder)
    assert bare[0] == "python3.11 -m venv DIR/venv"
    assert "locks/installed.txt --extra-index-url" in bare[1] and len(bare) == 3
    hostile = replace(held, machine={"python": "3.11;rm -rf ~ #.9\x1b[2J"})
    assert steps(Path("b.zip"), hostile, folder)[0] == "python3 -m venv DIR/venv"
    locked = replace(held, files={**held.files, "locks/requirements.lock": b""})
    assert "--require-hashes -r DIR/locks/torch-cpu.lock" in steps(Path("b"), locked, folder)[2]
