"""A GGUF file, as llama.cpp reads it, written as a checkpoint that can be trained:
`python -m genenv_core.exchange.gguf FILE DIRECTORY`.

The weights of such a file are quantized: 4 to 8 bits each, a scale for a block of them. This
module writes them as the float32 numbers that they stand for, so the checkpoint is as exact as the
file, and less exact than the model behind the file.
"""

# transformers has partial types only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from genenv_core.errors import ModelError

READER = "gguf"
"""The package that transformers reads such files with."""


def dequantized(file: Path, output: Path) -> None:
    """Write the model and the tokenizer of a GGUF file into a new folder, weights in float32.

    The folder appears when it is whole. Equal files give equal weights. Raises ModelError where the
    folder is there already, the file or its reader is missing, or the file holds no language model
    that transformers knows.
    """
    if output.exists():
        raise ModelError(f"{output} is there already: name a new directory")
    if not file.is_file():
        raise ModelError(f"{file}: no such file")
    if importlib.util.find_spec(READER) is None:
        raise ModelError(f"{file}: the package {READER} reads such files: pip install {READER}")
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    whole = output.with_name(f"{output.name}.{os.getpid()}.part")
    try:
        read = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(
            file.parent, gguf_file=file.name, trust_remote_code=False, local_files_only=True
        )
        config: Any = read.config
        del config.quantization_config
        # The model that was read counts as quantized, and refuses to be saved.
        model = type(read)(config)
        model.load_state_dict(read.state_dict())
        model.save_pretrained(whole)
        tokenizer.save_pretrained(whole)
        whole.rename(output)
    except (ValueError, KeyError, NotImplementedError, AttributeError) as error:
        raise ModelError(f"{file} cannot be read as a language model: {error}") from error
    finally:
        shutil.rmtree(whole, ignore_errors=True)


def main(words: Sequence[str] | None = None) -> int:
    """Convert a file as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m genenv_core.exchange.gguf",
        description="Write a GGUF file as a checkpoint of float32 weights.",
    )
    parser.add_argument("file", type=Path, help="a GGUF file of a language model")
    parser.add_argument("directory", type=Path, help="the new checkpoint")
    asked = parser.parse_args(words)
    try:
        dequantized(asked.file, asked.directory)
    except ModelError as error:
        print(f"genenv: {error}", file=sys.stderr)
        return error.exit_status
    print(f"{asked.directory}: the weights of {asked.file.name}, dequantized to float32")
    return 0


if __name__ == "__main__":
    sys.exit(main())
