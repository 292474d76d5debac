"""Files of checkpoints, and of folders that others made, that hold one JSON object.

Invariants: whatever else such a file holds (nothing, half of it, a list, bytes that are no text,
nesting without end), its reader names the file and says what is there, and so it does of a field
that is missing or of another type; a file that is not there is no fault where it need not be.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from genenv_core.engines.transformers.unloaded import check_unloaded, weight_files
from genenv_core.engines.vllm.server import adapter_rank
from genenv_core.errors import DataError, GenenvError, ModelError
from genenv_core.exchange.environments.reading import read_folder
from genenv_core.machine.json_files import field_of, json_object
from genenv_core.training.memory.estimate import DecoderShape
from tests.mutations import mutation

JSON_FILES = "genenv_core/machine/json_files.py"
INDEX = "model.safetensors.index.json"
SIZES = {
    "num_attention_heads": 4, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128,
    "vocab_size": 99,
}  # fmt: skip


class Reader(NamedTuple):
    """A file, what reads it in a folder, its error, and what to do by that."""

    file: str
    read: Callable[[Path], Any]
    error: type[GenenvError]
    remedy: str


FETCH = "fetch the checkpoint again"
READERS = {
    "adapter": Reader("adapter_config.json", adapter_rank, ModelError, FETCH),
    "model": Reader(
        "config.json", lambda at: check_unloaded("models.env", at, ()), ModelError, FETCH
    ),
    "memory": Reader("config.json", DecoderShape.read, ModelError, FETCH),
    "index": Reader(INDEX, weight_files, ModelError, FETCH),
    "folder": Reader("statement.json", read_folder, DataError, "get the folder anew"),
}
BROKEN = {
    "nothing": (b" \n", "is empty, expected a JSON object"),
    "half": (b'{"r": ', "is no JSON: Expecting value: line 1 column 7"),
    "list": (b"[]", "is no JSON object: it holds []"),
    "pairs": (b'[["r", 8]]', 'is no JSON object: it holds [["r", 8]]'),
    "bytes": (b"\xff\xfe{", "is no JSON: 'utf-16"),
    "deep": (b"[" * 100_000, "is no JSON: maximum recursion depth"),
}


@mutation("an empty file has no words of its own", JSON_FILES, "if not data.strip():", "if False:",
          by="[nothing-adapter]")  # fmt: skip
@mutation("a list of pairs passes for an object", JSON_FILES,
          "if not isinstance(value, dict):", "if not isinstance(value, dict | list):",
          by="[pairs-adapter]")  # fmt: skip
@mutation("a file nested without end ends the process", JSON_FILES,
          "(ValueError, RecursionError)", "ValueError", by="[deep-adapter]")  # fmt: skip
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize(("content", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_named_with_what_it_holds(
    tmp_path: Path, reader: Reader, content: bytes, words: str
) -> None:
    (tmp_path / reader.file).write_bytes(content)
    with pytest.raises(reader.error) as caught:
        reader.read(tmp_path)
    said = str(caught.value)
    assert f"{reader.file} {words}" in said and reader.remedy in said and "\n" not in said


@pytest.mark.parametrize(
    ("reader", "content", "words"),
    [
        ("memory", SIZES | {"hidden_size": "many"}, 'hidden_size "many", expected a whole number'),
        ("memory", SIZES | {"vocab_size": True}, "vocab_size true, expected a whole number"),
        ("memory", {"n_embd": 3}, "config.json has no field num_attention_heads"),
        ("index", {}, f"{INDEX} has no field weight_map"),
        ("index", {"weight_map": ["a"]}, 'has weight_map ["a"], expected an object'),
        ("index", {"weight_map": {"wte": ["a"]}}, 'has wte ["a"], expected a text'),
    ],
)
def test_a_wrong_field_is_named_with_its_value(
    tmp_path: Path, reader: str, content: Any, words: str
) -> None:
    (tmp_path / READERS[reader].file).write_text(json.dumps(content))
    with pytest.raises(READERS[reader].error) as caught:
        READERS[reader].read(tmp_path)
    assert words in str(caught.value)


@mutation("true is a whole number", JSON_FILES,
          "type(value) is not kind", "not isinstance(value, kind)")  # fmt: skip
def test_a_field_has_exactly_its_type() -> None:
    assert field_of({"r": 8}, "r", int) == 8
    with pytest.raises(ValueError, match="has r true, expected a whole number"):
        field_of({"r": True}, "r", int)
    assert json_object(b'{"r": 8}') == {"r": 8}


def test_a_file_that_is_not_there_is_no_fault_where_it_need_not_be(tmp_path: Path) -> None:
    assert adapter_rank(tmp_path) == 0
    with pytest.raises(ModelError, match=r"its config\.json is missing"):
        DecoderShape.read(tmp_path)
