"""Checks models that people give before any work; errors say the command that helps.

Weights are safetensors, because a pickle runs code when it is read; a model that brings its own
code is not run; the chat template has to write out every message that a policy must see.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genenv_core.canonical import digest, file_sha256
from genenv_core.config.sections.models import is_hub_id
from genenv_core.engines.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS, has_adapter
from genenv_core.engines.tokenizers import MORE_TEMPLATES, TEMPLATE, load_tokenizer
from genenv_core.engines.transformers.unloaded import (
    WEIGHTS,
    WEIGHTS_INDEX,
    check_unloaded,
    check_vocabulary,
    weight_files,
)
from genenv_core.errors import ModelError, one_line
from genenv_core.machine.shortage import blame_machine
from genenv_core.named_files import looked_for
from genenv_core.storage.records.manifest import FileRef
from genenv_core.types import Policy

if TYPE_CHECKING:
    from genenv_core.play.template.probe import Probe

MODEL_FILES = (".json", ".safetensors", ".jinja", ".txt", ".model")
"""Files of a checkpoint that are taken over; pickled weights never are."""

DANGER = "and a pickle can run code when it is read"
PICKLED_ADAPTER = "adapter_model.bin"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
CONVERTS = "genenv_core.exchange.gguf"
SMOLLM2 = "SmolLM2-135M-Instruct"
"""The directory that `make smollm2` writes and the preset laptop reads."""
TOKENIZERS = {"tokenizer.json", "tokenizer.model", "vocab.json"}


def model_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint that count, sorted: of weights, those that are loaded."""
    return _files_beside(folder, weight_files(folder))


def _files_beside(folder: Path, loaded: Sequence[Path]) -> list[Path]:
    weights = {*loaded, folder / ADAPTER_WEIGHTS}
    own = [p for p in folder.iterdir() if p.is_file() and p.suffix in MODEL_FILES]
    more = (folder / MORE_TEMPLATES).glob("*.jinja")
    return sorted([*more, *(p for p in own if p.suffix != ".safetensors" or p in weights)])


def take_over(folder: Path, output: Path) -> None:
    """Copy the files of a checkpoint into a new folder; several chat templates become one file."""
    output.mkdir()
    for path in model_files(folder):
        if path.parent == folder:
            shutil.copyfile(path, output / path.name)
    if (folder / MORE_TEMPLATES).is_dir():
        (output / TEMPLATE).write_text(load_tokenizer(folder).chat_template or "", "utf-8")


def model_folder(
    policy: Policy, folder: Path, variables: Mapping[str, Any] | None = None, field: str = ""
) -> FileRef:
    """Return a checkpoint directory by its content; `ModelError` when it cannot serve.

    `variables` are those of its chat template; `field` names it, else it is models.<policy>.
    """
    return probe_of(policy, folder, variables, field)[0]


def probe_of(
    policy: Policy, folder: Path, variables: Mapping[str, Any] | None = None, field: str = ""
) -> tuple[FileRef, Probe]:
    """Return a checkpoint directory by its content, and its probe.

    Arguments and errors are those of `model_folder`.
    """
    where = f"{field or f'models.{policy}'} {folder}"
    if not folder.is_dir():
        raise ModelError(f"{where}: no such directory{looked_for(folder)}{_how_to_have(folder)}")
    names = {path.name for path in folder.iterdir()}
    if "config.json" not in names:
        if quantized := next((name for name in sorted(names) if name.endswith(".gguf")), None):
            raise ModelError(
                f"{where}: {quantized} is a quantized file of llama.cpp, which cannot be trained: "
                "give the checkpoint that it was made from, or write its weights as float32: "
                + shlex.join(["python", "-m", CONVERTS, str(folder / quantized), "NEW_DIRECTORY"])
            )
        if ADAPTER_CONFIG in names:
            raise ModelError(
                f"{where}: it holds an adapter alone ({ADAPTER_CONFIG}), without the model that it "
                "was trained on: copy the files of that model beside it (weights, config.json, "
                "tokenizer); genenv adds the two"
            )
        raise ModelError(f"{where}: no config.json: it is no Hugging Face checkpoint")
    if not names & TOKENIZERS:
        raise ModelError(
            f"{where}: no tokenizer (tokenizer.json, tokenizer.model or vocab.json): save it "
            "there with tokenizer.save_pretrained"
        )
    _check_weights(where, names, str(folder), str(folder), None)
    _check_adapter(where, folder, names)
    weights = weight_files(folder, where)
    _check_shards(where, weights, names)
    embedded = check_unloaded(where, folder, weights)
    contents = [
        [path.relative_to(folder).as_posix(), content_digest(path)]
        for path in _files_beside(folder, weights)
    ]
    sha256 = digest(contents)
    as_json = json.dumps(dict(variables or {}))
    probe = _check_template(policy, where, folder, sha256, embedded, as_json)
    return FileRef(path=str(folder.absolute()), sha256=sha256), probe


def _how_to_have(folder: Path) -> str:
    """Return what to do about a missing model of the hub, or of the preset laptop; else ''."""
    if folder.name == SMOLLM2:
        return (
            ": `make smollm2` writes it (without a clone: docs/first-model.md); or name a model "
            "that is there: --set models.agent=DIRECTORY --set models.env=DIRECTORY"
        )
    if "/" in str(folder) and is_hub_id(str(folder)):
        return (
            f": if it is a repository of the hub, fetch it first: hf download {folder} --local-dir "
            f"./{folder.name}"
        )
    return ""


def hub_folder(field: str, name: str, revision: str) -> Path:
    """Return the folder of a hub repository at a commit, fetched once, without its pickles.

    Raises ModelError where it cannot be fetched, and for weights that are no safetensors.
    """
    from huggingface_hub import list_repo_files, snapshot_download  # pyright: ignore[reportUnknownVariableType]

    where = f"{field} {name} at {revision[:12]}"
    try:
        patterns = [f"*{suffix}" for suffix in MODEL_FILES]
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
        if not any(path.suffix == ".safetensors" for path in folder.iterdir()):
            names = set(list_repo_files(name, revision=revision))
            _check_weights(where, names, name, name.rpartition("/")[2], revision)
        return folder
    except ModelError:
        raise
    except Exception as error:  # the hub client raises its own, HTTP and OS errors
        blame_machine(error, f"{where} was not fetched")
        raise ModelError(
            f"{where} cannot be fetched: {type(error).__name__}: "
            f"{one_line(error, 200)}; no directory {Path(name).absolute()} is here either. Without "
            f"a network, say `hf download {name} --revision {revision} --local-dir "
            f"./{name.rpartition('/')[2]}` where there is one, bring the directory here, and name "
            "it with a leading ./, / or ~/"
        ) from error


def _check_weights(
    where: str, names: set[str], source: str, target: str, revision: str | None
) -> None:
    """Raise `ModelError` unless there are safetensors, naming what converts a pickle."""
    if any(name.endswith(".safetensors") and not name.startswith("adapter") for name in names):
        return
    pickled = sorted(name for name in names if name.endswith(PICKLED))
    if not pickled:
        raise ModelError(f"{where}: no .safetensors weights: save it with model.save_pretrained")
    refused = f"{where}: its weights are pickled ({pickled[0]}), {DANGER}"
    if not any(name.startswith("pytorch_model") and name.endswith(".bin") for name in pickled):
        raise ModelError(
            f"{refused}. transformers knows no such file: if you trust it, load it with what wrote "
            f"it, and save the model with model.save_pretrained"
        )
    raise ModelError(
        f"{refused}. If you trust it: {conversion(source, f'{target}-safetensors', revision)}"
    )


def _check_adapter(where: str, folder: Path, names: set[str]) -> None:
    """Raise `ModelError` for half an adapter, naming what converts a pickled one."""
    if ADAPTER_WEIGHTS in names or PICKLED_ADAPTER not in names:
        has_adapter(folder)
        return
    old, new = (str(folder / name) for name in (PICKLED_ADAPTER, ADAPTER_WEIGHTS))
    code = (
        "import torch; from safetensors.torch import save_file; "
        f"save_file(torch.load({old!r}, weights_only=True), {new!r})"
    )
    raise ModelError(
        f"{where}: its adapter is pickled ({PICKLED_ADAPTER}), {DANGER}. If you trust it: "
        f"python -c {shlex.quote(code)}"
    )


def conversion(source: str, target: str, revision: str | None = None) -> str:
    """Return the command that writes a checkpoint anew as safetensors, tokenizer included.

    transformers reads pickled weights as tensors only (torch.load with weights_only).
    """
    pinned = f", revision={revision!r}" if revision else ""
    code = (
        "from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; "
        f"[c.from_pretrained({source!r}{pinned}).save_pretrained({target!r}) for c in (M, T)]"
    )
    return f"python -c {shlex.quote(code)}"


def _check_shards(where: str, files: Sequence[Path], names: set[str]) -> None:
    """Raise `ModelError` unless the files of weights that transformers would load are all there."""
    if lost := sorted(path.name for path in files if path.name not in names):
        raise ModelError(f"{where}: {len(lost)} file(s) of its weights are missing: {lost[0]}")
    if files:
        return
    found = sorted(name for name in names if name.endswith(".safetensors"))
    raise ModelError(
        f"{where}: transformers loads {WEIGHTS}, or the files that {WEIGHTS_INDEX} names, and "
        f"neither is there ({', '.join(found[:3])}): fetch what is missing, rename one whole file "
        f"to {WEIGHTS}, or save the model again with model.save_pretrained"
    )


@cache
def _check_template(
    policy: Policy, where: str, folder: Path, sha256: str, embedded: int | None, variables: str
) -> Probe:
    """Return the probe of a checkpoint whose model embeds `embedded` tokens, made once a process.

    Raises `ModelError` for a tokenizer or chat template that cannot serve.
    """
    from genenv_core.play.chat import ChatFormat

    del sha256
    tokenizer = load_tokenizer(folder)
    chat = ChatFormat.load(folder, json.loads(variables), tokenizer)
    used = (*chat.stop_token_ids, *chat.first_prompt([{"role": "user", "content": "."}]))
    check_vocabulary(where, embedded, tokenizer, used)
    return chat.probe(policy)


def content_digest(path: Path) -> str:
    """Return the sha256 of a file, read once a process as long as it stays the same."""
    stat = path.stat()
    return _digest_of(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@cache
def _digest_of(path: Path, inode: int, size: int, mtime_ns: int) -> str:
    return file_sha256(path)
