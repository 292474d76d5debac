"""Checks a checkpoint without loading its weights, and says why it cannot serve.

A plan does this for each given model. Loading would take minutes and the memory of the weights;
these functions read the files through once, piece by piece, as their digest does.
"""

# transformers comes without complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from genenv_core.engines.adapters import ADAPTER_WEIGHTS
from genenv_core.errors import ModelError, one_line
from genenv_core.machine.json_files import broken_file, checkpoint_file, field_of

LFS = b"version https://git-lfs"
"""The beginning of a pointer, which lies in the place of a file that git-lfs has not fetched."""


EXPONENTS = {
    "F64": (np.dtype("<u8"), 0x7FF0_0000_0000_0000),
    "F32": (np.dtype("<u4"), 0x7F80_0000),
    "F16": (np.dtype("<u2"), 0x7C00),
    "BF16": (np.dtype("<u2"), 0x7F80),
}
"""Type of a tensor in safetensors -> its numbers as integers, and the bits of their exponent: NaN
and Inf alone have all of them set (IEEE 754). Nothing can train weights of another type."""

WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"

AT_ONCE = 2**22
"""Numbers of a tensor that are looked at together, which bounds the memory."""

OTHER_HEADS = (
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
)
"""Tables of transformers: the classes whose head gives numbers about a text, such as a reward."""


def check_unloaded(where: str, folder: Path, weights: Iterable[Path]) -> int | None:
    """Return how many tokens a checkpoint's model embeds, None where its configuration says none.

    `where` names the checkpoint in errors; `weights` are its `weight_files`. Raises `ModelError`
    where config.json is no configuration of a causal language model that transformers knows, where
    the weights are quantized or those of a model with another head, and where a file of weights is
    cut off, was never fetched, or holds NaN or Inf.
    """
    stored = checkpoint_file(folder, "config.json", where) or {}
    config = _read(where, stored)
    _check_plain(where, stored, config)
    adapters = folder.glob(ADAPTER_WEIGHTS)
    for path in (*weights, *adapters):
        _check_whole(where, path)
        _check_finite(where, path)
    size = getattr(config, "vocab_size", None)
    return size if isinstance(size, int) else None


def check_shared_rows(folder: Path) -> None:
    """Raise `ModelError` where config.json says that a model cannot share prefixes.

    Call it after `check_unloaded` has accepted the folder. Whether the code of its attention can
    share them, the update itself checks.
    """
    where = str(folder)
    if why := partial_attention(_read(where, checkpoint_file(folder, "config.json", where) or {})):
        raise ModelError(shares_nothing(where, why))


def partial_attention(config: Any) -> str:
    """Return which layers of a model do not attend to all tokens before, '' where all do.

    `config` is the configuration of its texts.
    """
    stored = config.to_dict()
    kinds = stored.get("layer_types")
    if kinds is None:
        window = stored.get("sliding_window")
        return f"sliding_window {window}" if window else ""
    others = sorted({str(kind) for kind in kinds} - {"full_attention"})
    return f"layer_types {', '.join(others)}" if others else ""


def steady_positions(config: Any) -> int | None:
    """Return how many tokens a text may have before its length moves its angles; None: any number.

    Beyond them the rotary embeddings "dynamic" and "longrope" of transformers turn every position
    anew, by the longest row of a batch: a row's logprobs then depend on the rows beside it, and
    cached tokens keep the angles of the shorter text.
    """
    stored = config.get_text_config().to_dict()
    rotary = stored.get("rope_parameters") or {}
    kinds = [one for one in rotary.values() if isinstance(one, dict)] or [rotary]
    limits: list[int] = []
    for one in kinds:
        kind = one.get("rope_type")
        if kind == "dynamic":
            limits.append(stored["max_position_embeddings"])
        if kind == "longrope":
            limits.append(one["original_max_position_embeddings"])
    return min(limits, default=None)


def shares_nothing(checkpoint: object, why: str) -> str:
    """Return the error about a model that cannot share prefixes (`training.rows`)."""
    return (
        f"training.rows is shared: the model of {checkpoint} cannot compute shared prefixes "
        f"({why}): set training.rows=padded"
    )


def _read(where: str, stored: dict[str, Any]) -> Any:
    """Return the configuration of the language model, of a type whose models continue texts."""
    from transformers import CONFIG_MAPPING, __version__
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind = str(stored.get("model_type"))
    known = kind in CONFIG_MAPPING
    if not known and "auto_map" in stored:
        raise ModelError(
            f"{where}: model type {kind!r} is made by code in its own repository (auto_map), which "
            "genenv never runs: use a model that transformers knows"
        )
    if not known:
        raise ModelError(
            f"{where}: transformers {__version__} knows no model_type {kind!r} (config.json): use "
            "a model that it knows, or correct the name"
        )
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelError(
            f"{where}: a model of type {kind!r} ({', '.join(stored.get('architectures') or ())}) "
            "is no causal language model, so it cannot continue a prompt: use one that "
            "AutoModelForCausalLM loads"
        )
    _check_head(where, stored)
    try:
        return CONFIG_MAPPING[kind].from_dict(dict(stored)).get_text_config()
    except Exception as error:  # the library raises its own and everything that wrong types raise
        raise ModelError(
            f"{where}: config.json is no configuration of the model_type {kind!r}: "
            f"{type(error).__name__}: {one_line(error, 200)}; fetch it again"
        ) from error


def _check_head(where: str, stored: dict[str, Any]) -> None:
    """Raise `ModelError` for a model that rates texts: loading would drop its head in silence."""
    from transformers.models.auto import modeling_auto

    others = {name for table in OTHER_HEADS for name in getattr(modeling_auto, table).values()}
    saved = [str(name) for name in stored.get("architectures") or ()]
    if found := [name for name in saved if name in others]:
        raise ModelError(
            f"{where}: it was saved as {found[0]} (architectures in config.json), whose head gives "
            "numbers about a text, as reward models do, and not the next token: give the language "
            "model that it was made from, or one saved as a ...ForCausalLM"
        )


def _check_plain(where: str, stored: dict[str, Any], config: Any) -> None:
    """Raise `ModelError` for quantized weights: an update has to change them by small steps."""
    quantization = stored.get("quantization_config") or getattr(config, "quantization_config", None)
    if not quantization:
        return
    method = dict(quantization).get("quant_method", "of an unnamed method")
    raise ModelError(
        f"{where}: its weights are quantized ({method}, quantization_config in config.json), which "
        "cannot be trained: give the checkpoint that it was made from, or save one after "
        "model.dequantize()"
    )


def _check_whole(where: str, path: Path) -> None:
    """Raise `ModelError` unless the header of a file of weights fits its size."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):
            return
    except SafetensorError as error:
        with path.open("rb") as file:
            pointer = file.read(len(LFS)) == LFS
        raise ModelError(
            f"{where}: {path.name} is a pointer of git-lfs, not the weights: run `git lfs pull` "
            "there"
            if pointer
            else f"{where}: {path.name} is damaged, or was not fetched to its end "
            f"({one_line(error, 100)}): fetch it again"
        ) from error


def _check_finite(where: str, path: Path) -> None:
    """Raise `ModelError` where a file of weights holds NaN or Inf."""
    stat = path.stat()
    spoilt = _not_finite(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    if spoilt:
        first = next(iter(spoilt))
        raise ModelError(
            f"{where}: {path.name} holds NaN or Inf in {len(spoilt)} tensor(s), {spoilt[first]} "
            f"number(s) of {first} among them: what wrote it diverged, or overflowed in float16. "
            "Give an earlier checkpoint, or save it again from the original as bfloat16 or float32"
        )


@cache
def _not_finite(path: Path, inode: int, size: int, mtime_ns: int) -> dict[str, int]:
    """Return tensor -> how many of its numbers are NaN or Inf, for tensors that have some.

    It reads a file once a process, as long as the file stays the same.
    """
    header, begin = _header(path)
    content = np.memmap(path, mode="r")[begin:]
    found: dict[str, int] = {}
    for name, tensor in header.items():
        if tensor["dtype"] not in EXPONENTS:
            continue
        kind, exponent = EXPONENTS[tensor["dtype"]]
        first, end = tensor["data_offsets"]
        numbers = content[first:end].view(kind)
        count = 0
        for start in range(0, len(numbers), AT_ONCE):
            bits = numbers[start : start + AT_ONCE] & kind.type(exponent)
            if bits.max() == exponent:
                count += int((bits == exponent).sum())
        if count:
            found[name] = count
    return found


def weight_files(folder: Path, where: str = "") -> list[Path]:
    """Return the files of weights that transformers loads, sorted; [] where there are none.

    It reads no others beside them: copies in another format or type. `where` names the checkpoint
    in the ModelError about a damaged index; else its folder does.
    """
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = checkpoint_file(folder, WEIGHTS_INDEX, where)
    if index is None:
        return []
    try:
        shards = cast("dict[str, Any]", field_of(index, "weight_map", dict))
        names = {field_of(shards, weight, str) for weight in shards}
    except ValueError as error:
        raise broken_file(folder, WEIGHTS_INDEX, error, where) from error
    return [folder / name for name in sorted(names)]


def bytes_as_float32(folder: Path) -> int:
    """Return the bytes of a checkpoint's weights once they are loaded as float32."""
    headers = [_header(path)[0] for path in weight_files(folder)]
    return sum(4 * math.prod(one["shape"]) for header in headers for one in header.values())


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the tensors of a file of safetensors by name, and where their bytes begin."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(length))
    return {name: one for name, one in header.items() if name != "__metadata__"}, 8 + length


def check_vocabulary(where: str, size: int | None, tokenizer: Any, used: Collection[int]) -> None:
    """Raise `ModelError` where a run needs a token beyond the `size` that the model embeds.

    Text may become any token that is not special. Of the special ones, prompts hold those of `used`
    and turns end with them. Other special tokens may lie beyond: library classes add some by
    themselves, and nothing reads the token that fills rows (`load_policy`).
    """
    if size is None:
        return
    special = {*tokenizer.all_special_tokens}
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    beyond = {
        token: number
        for token, number in vocabulary.items()
        if number >= size and (token not in special or number in used)
    }
    remedy = "use the model's own tokenizer, or make room: model.resize_token_embeddings("
    if beyond:
        first = min(beyond, key=beyond.__getitem__)
        raise ModelError(
            f"{where}: its tokenizer has {len(beyond)} token(s) that the model has no embedding "
            f"for, such as {first!r} (id {beyond[first]}; vocab_size in config.json is {size}): "
            f"{remedy}{max(vocabulary.values()) + 1}), then model.save_pretrained"
        )
    if outside := [token for token in used if token >= size]:
        raise ModelError(
            f"{where}: a turn ends with token {outside[0]}, and the model has {size} tokens: "
            "correct eos_token_id in generation_config.json"
        )
