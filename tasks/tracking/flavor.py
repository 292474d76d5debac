"""Makes a checkpoint a model that `mlflow.transformers.load_model` takes.

MLflow wants a file MLmodel beside the weights, and the tokenizer's files in a folder of their own.
A digest covers a checkpoint's folder, so genenv puts both elsewhere, with links to its files:
weights are on the disk once. A checkpoint with an adapter gets neither: MLflow would look for its
base by a name, and the base lies beside it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import yaml

from genenv_core.engines.adapters import ADAPTER_CONFIG
from genenv_core.storage.files import link_or_copy

MLMODEL = "MLmodel"
BESIDE = (MLMODEL, "registered_model_meta")
"""Files of a version beside those of the checkpoint; MLflow adds the second when it fetches."""

TOKENIZER = "components/tokenizer"
WEIGHTS = (".safetensors", ".safetensors.index.json")


def mlmodel() -> bytes:
    """Return the file that says to MLflow how to load the checkpoint beside it.

    Its classes are transformers' own, which choose by config.json and run no code of the model.
    """
    flavor = {
        "task": "text-generation",
        "instance_type": "TextGenerationPipeline",
        "pipeline_model_type": "AutoModelForCausalLM",
        "model_binary": ".",
        "components": ["tokenizer"],
        "tokenizer_type": "AutoTokenizer",
        "transformers_version": version("transformers"),
        "code": None,
    }
    return yaml.safe_dump(
        {"flavors": {"transformers": flavor}, "mlflow_version": version("mlflow")}
    ).encode()


def is_loadable(names: Iterable[str]) -> bool:
    """Return whether files of these names are a checkpoint that MLflow can load."""
    return ADAPTER_CONFIG not in names


def of_tokenizer(names: Iterable[str]) -> list[str]:
    """Return the files for the tokenizer's folder: all but the weights."""
    return sorted(name for name in names if not name.endswith(WEIGHTS))


def laid_out(checkpoint: Path, home: Path) -> Path:
    """Return a folder with the checkpoint as MLflow wants it; its name is the checkpoint's."""
    names = sorted(path.name for path in checkpoint.iterdir() if path.is_file())
    if not is_loadable(names):
        return checkpoint
    folder = home / "mlflow" / "models" / checkpoint.name
    (folder / TOKENIZER).mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(checkpoint.resolve() / name)
    for name in of_tokenizer(names):
        if not (folder / TOKENIZER / name).exists():
            link_or_copy(checkpoint / name, folder / TOKENIZER / name)
    # Last, and all at once: without it nothing loads.
    scratch = folder / f".{MLMODEL}"
    scratch.write_bytes(mlmodel())
    shutil.move(scratch, folder / MLMODEL)
    return folder
