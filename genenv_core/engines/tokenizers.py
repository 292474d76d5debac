"""Loads the tokenizer of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from genenv_core.errors import ModelError
from genenv_core.machine.shortage import blame_machine

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


def load_tokenizer(checkpoint: Path) -> Any:
    """Return the tokenizer of a checkpoint directory, as transformers chooses it."""
    from transformers import AutoTokenizer

    if not any((checkpoint / name).is_file() for name in TOKENIZER_FILES):
        raise ModelError(
            f"checkpoint {checkpoint}: no tokenizer there (looked for "
            f"{', '.join(TOKENIZER_FILES)}); save the tokenizer beside the model"
        )
    tokenizers: Any = AutoTokenizer
    try:
        return tokenizers.from_pretrained(
            checkpoint, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # OSError, ValueError, and what the tokenizers library raises
        blame_machine(error, f"the tokenizer of checkpoint {checkpoint} was not loaded")
        raise ModelError(
            f"checkpoint {checkpoint}: its tokenizer cannot be read: "
            f"{type(error).__name__}: {error}; save it again with save_pretrained"
        ) from error
