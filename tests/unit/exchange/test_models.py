"""Models that people give, with real tokenizers and checkpoints made on the spot.

Invariants: a pickle is refused, unread, with a command that converts it, from a directory and from
the hub; safetensors beside a pickle are used and the pickle is not; a checkpoint without one of its
shards, or with its own code, is refused; a chat template that is missing, or drops text that a
policy must see, is refused before any work; the code never trusts remote code.
"""

from __future__ import annotations

import ast
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file

from flows.cli.machines.doctor import model_checks
from genenv_core.config.load import resolve
from genenv_core.config.schema import RunConfig
from genenv_core.engines.transformers import unloaded
from genenv_core.engines.transformers.unloaded import bytes_as_float32
from genenv_core.errors import ModelError
from genenv_core.exchange import external, gguf
from genenv_core.exchange.given_models import (
    model_files,
    model_folder,
    probe_of,
    take_over,
)
from genenv_core.play.template.mending import ANSWERS, SYSTEM
from genenv_core.types import Policy
from tests.mutations import mutation
from tests.unit.builders_engine import CHATML, tiny_model, tiny_tokenizer
from tests.unit.plugged import domain_of

REPOSITORY = Path(__file__).parents[3]
GIVEN = "genenv_core/exchange/given_models.py"
UNLOADED = "genenv_core/engines/transformers/unloaded.py"
NO_TOOLS = CHATML.replace("{% for m in messages %}", "{% for m in messages if m.role != 'tool' %}")
NO_SYSTEM = CHATML.replace(
    "{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"
)
NO_ANSWERS = CHATML.replace(
    "{{ m.content }}", "{% if m.role != 'assistant' %}{{ m.content }}{% endif %}"
)
LAST_ONLY = CHATML.replace("{% for m in messages %}", "{% for m in messages[-1:] %}")
REFUSES_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}"
    "{% endif %}{% endfor %}" + CHATML
)
REFUSES_TOOLS = REFUSES_SYSTEM.replace("'system'", "'tool'")


class Boom:
    """A pickle that leaves a mark when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trace,))


def checkpoint(folder: Path, template: str | None = CHATML, **shape: Any) -> Path:
    tokenizer = tiny_tokenizer(template)
    tiny_model(vocab_size=len(tokenizer), **shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def given_to(config: RunConfig) -> external.Given:
    """Return what people give a run of its domain."""
    return external.given_to(config, domain_of(config))


def pickled(folder: Path) -> Path:
    """Return a checkpoint with pickled weights, like old checkpoints."""
    model = tiny_model(vocab_size=len(tiny_tokenizer()))
    checkpoint(folder)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder


@pytest.mark.slow
@mutation(
    "the missing model of a preset is not said how to have", "genenv_core/exchange/given_models.py",
    "{looked_for(folder)}{_how_to_have(folder)}", "{looked_for(folder)}",
)  # fmt: skip
def test_the_missing_model_of_the_preset_laptop_is_named_with_what_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError) as raised:
        given_to(resolve("laptop"))
    said = str(raised.value)
    assert said.startswith(
        "models.agent models/SmolLM2-135M-Instruct: no such directory (looked for /"
    )
    assert "/models/SmolLM2-135M-Instruct): `make smollm2`" in said
    assert said.endswith("--set models.agent=DIRECTORY --set models.env=DIRECTORY")
    with pytest.raises(
        ModelError, match=rf"models.agent nope: no such directory \(looked for {Path.cwd()}/nope\)$"
    ):
        given_to(resolve("laptop", overrides=["models.agent=./nope"]))


def test_a_pickle_is_refused_with_a_command_that_converts_it(tmp_path: Path) -> None:
    old = pickled(tmp_path / "old model")
    with pytest.raises(ModelError, match=r"pickled \(pytorch_model\.bin\).*can run code") as caught:
        model_folder(Policy.AGENT, old)
    python, option, code = shlex.split(str(caught.value).partition("If you trust it: ")[2])
    assert (python, option) == ("python", "-c")
    exec(code, {})  # what `python -c` does, without a second import of torch
    new = tmp_path / "old model-safetensors"
    taken = {path.name for path in model_files(new)}
    assert model_folder(Policy.AGENT, new).path == str(new)
    assert "model.safetensors" in taken and "tokenizer.json" in taken


@pytest.mark.parametrize("name", ["model.pt", "consolidated.00.pth", "last.ckpt"])
def test_no_pickle_is_ever_read(tmp_path: Path, name: str) -> None:
    folder, trace = checkpoint(tmp_path / "model"), tmp_path / "trace"
    torch.save(Boom(trace), folder / name)
    model_folder(Policy.AGENT, folder)
    assert name not in {path.name for path in model_files(folder)}
    (folder / "model.safetensors").unlink()
    message = (
        "its weights are pickled .* transformers knows no such file: .*load it with what wrote it"
    )
    with pytest.raises(ModelError, match=message):
        model_folder(Policy.AGENT, folder)
    assert not trace.exists()
    (folder / name).unlink()
    with pytest.raises(ModelError, match=r"no \.safetensors weights"):
        model_folder(Policy.AGENT, folder)


@mutation(
    "a quantized file is said to be no checkpoint", "genenv_core/exchange/given_models.py",
    'if name.endswith(".gguf")', 'if name.endswith(".ggml")',
)  # fmt: skip
def test_a_quantized_file_is_named_with_what_converts_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a model"
    folder.mkdir()
    (folder / "small.Q4_1.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"cannot be trained: .*write its weights") as caught:
        model_folder(Policy.AGENT, folder)
    command = shlex.split(str(caught.value).partition("as float32: ")[2])
    assert command[:3] == ["python", "-m", gguf.__name__]
    file = command[3]
    assert file == str(folder / "small.Q4_1.gguf")
    monkeypatch.setattr(gguf, "READER", "no_reader")
    assert gguf.main([file, str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert gguf.main([file + "x", str(tmp_path / "new")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert gguf.main([file, str(tmp_path / "new")]) == 2
    assert "pip install no_reader" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_half_an_adapter_is_refused_and_a_pickled_one_with_what_converts_it(
    tmp_path: Path,
) -> None:
    folder = checkpoint(tmp_path / "it's adapted")
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(
        ModelError, match=r"adapter_config\.json without adapter_model\.safetensors"
    ):
        model_folder(Policy.AGENT, folder)
    weights = {"a.lora_A.weight": torch.ones(2, 3)}
    torch.save(weights, folder / "adapter_model.bin")
    with pytest.raises(ModelError, match="its adapter is pickled") as caught:
        model_folder(Policy.AGENT, folder)
    code = shlex.split(str(caught.value).partition("If you trust it: ")[2])[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert torch.equal(
        load_file(folder / "adapter_model.safetensors")["a.lora_A.weight"], torch.ones(2, 3)
    )
    assert model_folder(Policy.AGENT, folder).sha256


def test_a_pickle_on_the_hub_is_refused_with_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no network, so a double of the hub's client records the requests."""
    asked: dict[str, Any] = {}
    fetched = tmp_path / "fetched"
    shutil.copytree(pickled(tmp_path / "old"), fetched, ignore=shutil.ignore_patterns("*.bin"))

    def snapshot_download(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        return str(fetched)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    files = ["config.json", "pytorch_model-00001-of-00002.bin"]
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda name, revision: files)
    commit = "a" * 40
    overrides = ("models.agent=org/old", f"models.agent_revision={commit}")
    config = resolve("tiny", overrides=overrides)
    with pytest.raises(ModelError, match=r"models\.agent org/old at a{12}: .*pickled") as caught:
        given_to(config)
    assert f"from_pretrained('\"'\"'org/old'\"'\"', revision='\"'\"'{commit}" in str(caught.value)
    assert asked["revision"] == commit and asked["name"] == "org/old"
    assert not [p for p in asked["allow_patterns"] if p.endswith((".bin", ".pt", ".py", "*"))]


def cached(hub: Path, name: str, commit: str, folder: Path) -> None:
    """Lay a directory out as the hub's client keeps a repository: links to its blobs."""
    home = hub / f"models--{name.replace('/', '--')}"
    (home / "blobs").mkdir(parents=True)
    (home / "snapshots" / commit).mkdir(parents=True)
    for file in folder.iterdir():
        shutil.copyfile(file, home / "blobs" / file.name)
        link = home / "snapshots" / commit / file.name
        link.symlink_to(Path("..", "..", "blobs", file.name))


def test_a_hub_id_in_the_cache_is_the_directory_with_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's own client, without a network, as HF_HUB_OFFLINE=1 and HF_HUB_CACHE set it."""
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder, commit = checkpoint(tmp_path / "plain"), "b" * 40
    cached(tmp_path / "hub", "org/small", commit, folder)

    def asked(*overrides: str) -> Any:
        return given_to(resolve("tiny", overrides=overrides)).agent_model

    by_id = asked("models.agent=org/small", f"models.agent_revision={commit}")
    assert by_id.sha256 == asked(f"models.agent={folder}").sha256
    with pytest.raises(ModelError, match=r"models\.agent org/none at b{12} cannot be") as caught:
        asked("models.agent=org/none", f"models.agent_revision={commit}")
    remedy = f"`hf download org/none --revision {commit} --local-dir ./none`"
    assert remedy in str(caught.value)
    assert f"no directory {Path('org/none').absolute()} is here either" in str(caught.value)


@mutation(
    "the index of shards is read again and again", GIVEN,
    "for path in _files_beside(folder, weights)\n", "for path in model_files(folder)\n",
)  # fmt: skip
def test_a_checkpoint_without_all_its_shards_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sharded"
    tokenizer = tiny_tokenizer()
    tiny_model(vocab_size=len(tokenizer)).save_pretrained(folder, max_shard_size="200KB")
    tokenizer.save_pretrained(folder)
    shards = sorted(folder.glob("model-*.safetensors"))
    read: list[str] = []
    real = unloaded.checkpoint_file

    def noted(at: Path, name: str, where: str = "") -> dict[str, Any] | None:
        read.append(name)
        return real(at, name, where)

    monkeypatch.setattr(unloaded, "checkpoint_file", noted)
    assert len(shards) > 1 and model_folder(Policy.ENV, folder)
    assert read.count(unloaded.WEIGHTS_INDEX) == 1
    shards[-1].unlink()
    with pytest.raises(ModelError, match=r"1 file\(s\) of its weights are missing: model-0"):
        model_folder(Policy.ENV, folder)


@mutation(
    "weights that nothing loads are taken", GIVEN,
    "    if files:\n        return\n", "    return\n",
    by="unit/exchange/test_models.py::test_weights_that_transformers_would_not_load_are_refused",
)  # fmt: skip
@mutation(
    "copies of the weights are taken over too", GIVEN,
    'if p.suffix != ".safetensors" or p in weights)', "if p)",
    by="unit/exchange/test_models.py::test_weights_that_transformers_would_not_load_are_refused",
)  # fmt: skip
@mutation(
    "copies of the weights count as memory", UNLOADED,
    "headers = [_header(path)[0] for path in weight_files(folder)]",
    'headers = [_header(path)[0] for path in folder.glob("*.safetensors")]',
    by="unit/exchange/test_models.py::test_weights_that_transformers_would_not_load_are_refused",
)  # fmt: skip
def test_weights_that_transformers_would_not_load_are_refused(tmp_path: Path) -> None:
    """Mistral's own file, a half-precision variant, shards without their index: and beside one."""
    folder = checkpoint(tmp_path / "given")
    whole, memory = folder / "model.safetensors", bytes_as_float32(folder)
    (folder / "consolidated.safetensors").write_bytes(b"damaged")
    assert model_folder(Policy.AGENT, folder) and bytes_as_float32(folder) == memory
    take_over(folder, tmp_path / "taken")
    assert [path.name for path in (tmp_path / "taken").glob("*.safetensors")] == [whole.name]
    shutil.copyfile(whole, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")
    assert folder / "adapter_model.safetensors" in model_files(folder)
    for name in ("model.fp16.safetensors", "model-00001-of-00001.safetensors"):
        whole = whole.rename(folder / name)
        message = rf"transformers loads model\.safetensors.*neither is there \(.*{name}.*rename"
        with pytest.raises(ModelError, match=message):
            model_folder(Policy.AGENT, folder)


def test_a_model_that_is_its_own_code_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "own")
    (folder / "modeling_own.py").write_text("raise SystemExit('this code ran')\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}}
    (folder / "config.json").write_text(json.dumps(config))
    assert model_folder(Policy.AGENT, folder)  # transformers knows the type: its own class is taken
    assert "modeling_own.py" not in {path.name for path in model_files(folder)}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own"}))
    with pytest.raises(ModelError, match=r"'own' is made by code in its own repository"):
        model_folder(Policy.AGENT, folder)


def test_a_tokenizer_without_tokenizer_json_is_left_alone(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "vocabulary")
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("\n".join(" ".join(pair) for pair in model["merges"]))
    assert model_folder(Policy.AGENT, folder)


@mutation(
    "a chat template may hide what the agent has to see", "genenv_core/play/template/probe.py",
    "if _HOLDS.format(role) not in text:", "if _HOLDS.format(role) in MARKS:",
)  # fmt: skip
@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat template"),
        (NO_ANSWERS, "drops the text of an assistant message"),
        (LAST_ONLY, "drops system messages.*repair chat_template"),
    ],
    ids=["none", "no answers", "last message only"],
)
def test_a_chat_template_that_hides_something_from_the_agent_is_refused(
    tmp_path: Path, template: str | None, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        model_folder(Policy.AGENT, checkpoint(tmp_path / "model", template))


@pytest.mark.parametrize(
    ("template", "told"),
    [(NO_TOOLS, ANSWERS), (REFUSES_TOOLS, ANSWERS), (NO_SYSTEM, SYSTEM), (REFUSES_SYSTEM, SYSTEM)],
    ids=["no tools", "refuses tools", "no system", "refuses system"],
)
def test_what_a_template_does_not_write_is_written_and_named(
    tmp_path: Path, template: str, told: str
) -> None:
    folder = checkpoint(tmp_path / "model", template)
    given, probe = probe_of(Policy.AGENT, folder)
    assert given == model_folder(Policy.AGENT, folder)
    assert told in probe.mended and told in probe.protocol["chat template"]
    answers = {check.name: check.detail for check in model_checks(folder)}
    assert told in answers["as pi_agent"] and given.sha256[:16] in answers["as pi_env"]


def test_the_template_is_tried_with_the_variables_of_the_configuration(tmp_path: Path) -> None:
    refuses = "{% if not quiet %}{{ raise_exception('be quiet') }}{% endif %}" + CHATML
    given = f"models.env={checkpoint(tmp_path / 'model', refuses)}"
    with pytest.raises(ModelError, match="be quiet"):
        given_to(resolve("tiny", overrides=[given]))
    quiet = "models.env_chat_template_kwargs={quiet: true}"
    assert given_to(resolve("tiny", overrides=[given, quiet])).env_model


@pytest.mark.parametrize(
    ("policy", "template"),
    [
        (Policy.AGENT, CHATML),
        (Policy.AGENT, REFUSES_SYSTEM),
        (Policy.ENV, CHATML),
        (Policy.ENV, NO_TOOLS),
    ],
)
def test_templates_that_show_what_a_policy_sees_are_taken(
    tmp_path: Path, policy: Policy, template: str
) -> None:
    assert model_folder(policy, checkpoint(tmp_path / "model", template)).sha256


def test_no_code_trusts_remote_code_or_reads_pickles() -> None:
    """Auto classes need trust_remote_code=False in every call, and models use_safetensors."""
    seen = 0
    for layer in ("genenv_core", "tasks", "flows", "schemas", "tests/bench"):
        for path in (REPOSITORY / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                options = {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg}
                called = ast.unparse(node.func)
                assert options.get("trust_remote_code", "False") == "False", path
                assert called not in ("torch.load", "pickle.load", "pickle.loads"), path
                if called.endswith(".from_pretrained") and not called.startswith("PeftModel"):
                    seen += 1
                    assert options.get("trust_remote_code") == "False", f"{path}:{node.lineno}"
                    assert options.get("local_files_only") == "True", f"{path}:{node.lineno}"
                    if "okenizer" not in called:
                        assert options.get("use_safetensors") == "True", f"{path}:{node.lineno}"
    assert seen >= 3  # the tokenizer twice, and the one place that loads models
