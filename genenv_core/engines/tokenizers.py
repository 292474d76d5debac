"""Loads the tokenizer of a checkpoint, as its files have it.

- `tokenizer.json` says how texts become ids. For some values of `model_type` or `tokenizer_class`
  AutoTokenizer keeps its vocabulary alone and puts a family's own rules around it, without a word:
  DeepSeek-R1-Distill-Qwen, TinyLlama and others would see ids that they never learned. genenv then
  reads the file by itself.
- Several chat templates become one, which chooses as transformers does: the one named `tool_use`
  where there are tools, else `default`. So a checkpoint has all of it in one file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from genenv_core.canonical import digest, file_sha256
from genenv_core.errors import ModelError
from genenv_core.machine.shortage import blame_machine

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")

TEXTS = (".json", ".txt", ".model")
"""Files of a checkpoint of which AutoTokenizer makes a tokenizer, its template aside."""

TEMPLATE, MORE_TEMPLATES = "chat_template.jinja", "additional_chat_templates"
"""The file of a chat template, and the folder of those that transformers keeps beside it."""

WITH_TOOLS = "{% if tools is defined and tools is not none %}\n"
"""The beginning of a chat template that genenv joined from two."""

PROBES = (
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "0 12 345 6789 3.14 -1e5",
    "!?.,;:()[]<>#$%&*+=/\\|^~`@_'\"",
    '{"name": "stock", "arguments": {"item": "bolts", "count": 12}}',
    "  two\n\n\tlines   apart \r\n",
    "Größe, naïve, 東京, Привет, 🙂",
)
"""Texts that AutoTokenizer's choice must encode as tokenizer.json does, or genenv reads that."""

_SAME: dict[str, bool] = {}
"""Digest of a checkpoint's `TEXTS` -> whether AutoTokenizer's own class encodes as tokenizer.json
does. Checkpoints of a run share their tokenizer, and to read it takes long."""


def load_tokenizer(checkpoint: Path) -> Any:
    """Return the tokenizer of a checkpoint directory, with one chat template at most.

    Raises `ModelError` where it is missing or cannot be read.
    """
    from transformers import AutoTokenizer

    if not any((checkpoint / name).is_file() for name in TOKENIZER_FILES):
        raise ModelError(
            f"checkpoint {checkpoint}: no tokenizer there (looked for "
            f"{', '.join(TOKENIZER_FILES)}); save the tokenizer beside the model"
        )
    tokenizers: Any = AutoTokenizer
    try:
        taken = tokenizers.from_pretrained(
            checkpoint, local_files_only=True, trust_remote_code=False
        )
        found = _as_stored(checkpoint, taken)
    except Exception as error:  # OSError, ValueError, and what the tokenizers library raises
        blame_machine(error, f"the tokenizer of checkpoint {checkpoint} was not loaded")
        raise ModelError(
            f"checkpoint {checkpoint}: its tokenizer cannot be read: "
            f"{type(error).__name__}: {error}; save it again with save_pretrained"
        ) from error
    templates: Any = found.chat_template
    if isinstance(templates, dict):
        found.chat_template = one_template(checkpoint, cast("dict[str, str]", templates))
    return found


def _as_stored(checkpoint: Path, taken: Any) -> Any:
    """Return what AutoTokenizer took, or the tokenizer of tokenizer.json where they differ."""
    from transformers import PreTrainedTokenizerFast

    file = checkpoint / "tokenizer.json"
    if not file.is_file() or type(taken) is PreTrainedTokenizerFast:
        return taken
    file_tokenizer: Any = PreTrainedTokenizerFast
    texts = sorted(path for path in checkpoint.iterdir() if path.suffix in TEXTS)
    contents = digest([[path.name, file_sha256(path)] for path in texts])
    if contents not in _SAME:
        stored = file_tokenizer(tokenizer_file=str(file))
        probes = (*PROBES, *(f"a{token}b" for token in stored.get_added_vocab()))
        _SAME[contents] = all(_ids(stored, text) == _ids(taken, text) for text in probes)
    if _SAME[contents]:
        return taken
    return file_tokenizer.from_pretrained(
        checkpoint, local_files_only=True, trust_remote_code=False
    )


def _ids(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a text; [] where the tokenizer has no token for a part of it."""
    try:
        return tokenizer(text, add_special_tokens=False)["input_ids"]
    except Exception:  # the tokenizers library raises nothing more special
        return []


def one_template(checkpoint: Path, named: Mapping[str, str]) -> str:
    """Return several chat templates as one; raises `ModelError` without a default one."""
    if "default" not in named:
        raise ModelError(
            f"checkpoint {checkpoint}: it has the chat templates {', '.join(sorted(named))}, and "
            f"none is the default: put the one to use into {TEMPLATE} there"
        )
    # Jinja drops the newline behind a block, and the last one of a template.
    default, tools = (named.get(name, "").removesuffix("\n") for name in ("default", "tool_use"))
    if not tools:
        return named["default"]
    return f"{WITH_TOOLS}{tools}{{%+ else %}}\n{default}{{%+ endif %}}"
