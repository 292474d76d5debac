"""What a run reads from outside of its store: data files and given models, checked before work.

Their content, not their name, is in the stage keys.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

from genenv_core.config.schema import RunConfig
from genenv_core.domains.base import Domain
from genenv_core.domains.registry import get_domain
from genenv_core.errors import DataError, ModelError
from genenv_core.exchange.base_data import heldout_fingerprints, read_base
from genenv_core.storage.canonical import digest, file_sha256
from genenv_core.storage.manifest import FileRef

log = logging.getLogger("genenv.inputs")

MODEL_FILES = (".json", ".safetensors", ".jinja", ".txt", ".model")
"""Files of a checkpoint that are taken over; pickled weights never are."""


def external_inputs(config: RunConfig) -> dict[str, FileRef | None]:
    """Return what `bootstrap` reads from outside, with digests.

    Raises ConfigError for an unknown domain, DataError and ModelError naming file, line and remedy.
    """
    domain = get_domain(config.domain.name, config.domain.options)
    inputs: dict[str, FileRef | None] = {"base_file": None}
    if config.data.base_file is not None:
        inputs["base_file"] = _data_file(config.data.base_file)
        _check_base(config, domain, Path(inputs["base_file"].path))
    for policy, name, revision in (
        ("agent", config.models.agent, config.models.agent_revision),
        ("env", config.models.env, config.models.env_revision),
    ):
        inputs[f"{policy}_model"] = None
        if name != "bootstrap":
            folder = _hub_folder(name, revision) if revision else Path(name).expanduser()
            inputs[f"{policy}_model"] = _model_folder(policy, folder)
    return inputs


def offline_input(config: RunConfig) -> FileRef | None:
    """Return the file of the arm `offline` with its digest, None for other arms."""
    return None if config.data.offline_file is None else _data_file(config.data.offline_file)


def model_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint that are taken over, sorted."""
    return sorted(p for p in folder.iterdir() if p.is_file() and p.suffix in MODEL_FILES)


def _check_base(config: RunConfig, domain: Domain, path: Path) -> None:
    """Read the base data as bootstrap will, so that bad data stops a run before any work."""
    data = config.data
    found = read_base(
        path,
        domain,
        format_=data.base_format,
        mapping=data.base_mapping,
        count=data.base_tasks,
        skip_bad=data.skip_bad,
        heldout=heldout_fingerprints(domain, config.seed, data.heldout_tasks),
    )
    for row in found.bad:
        log.info("data.base_file: skipped %s", row)


def _data_file(name: str) -> FileRef:
    path = Path(name).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        contents = [[file.relative_to(path).as_posix(), _digest(file)] for file in files]
        return FileRef(path=str(path), sha256=digest(contents))
    if not path.is_file():
        raise DataError(f"{path}: No such file or directory")
    return FileRef(path=str(path), sha256=_digest(path))


def _hub_folder(name: str, revision: str) -> Path:
    from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType]

    try:
        patterns = [f"*{suffix}" for suffix in MODEL_FILES]
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except Exception as error:  # the hub client raises its own, HTTP and OS errors
        raise ModelError(
            f"model {name} at {revision[:12]} cannot be fetched: {type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}; name a local directory instead"
        ) from error


def _model_folder(policy: str, folder: Path) -> FileRef:
    where = f"models.{policy} {folder}"
    if not folder.is_dir():
        raise ModelError(f"{where}: no such directory")
    names = {path.name for path in folder.iterdir()}
    if "config.json" not in names:
        raise ModelError(f"{where}: no config.json: it is no Hugging Face checkpoint")
    if not names & {"tokenizer.json", "tokenizer.model", "vocab.json"}:
        raise ModelError(
            f"{where}: no tokenizer (tokenizer.json, tokenizer.model or vocab.json): save it "
            "there with tokenizer.save_pretrained"
        )
    if not any(name.endswith(".safetensors") for name in names):
        raise ModelError(
            f"{where}: no .safetensors weights: pickled weights are refused, load the model once "
            "where you trust it and save it with model.save_pretrained"
        )
    contents = [[path.name, _digest(path)] for path in model_files(folder)]
    return FileRef(path=str(folder), sha256=digest(contents))


def _digest(path: Path) -> str:
    """Return the sha256 of a file, read once a process as long as it stays the same."""
    stat = path.stat()
    return _digest_of(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@cache
def _digest_of(path: Path, inode: int, size: int, mtime_ns: int) -> str:
    return file_sha256(path)
