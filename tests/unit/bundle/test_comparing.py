"""How a replay differs.

Invariants: an equal output has no difference, whatever wall clocks say; another key, table, file or
fact is named with both values; sources that differ in comments alone count as the same code, and a
source that cannot be parsed does not; builds of one version are one version.
"""

from __future__ import annotations

from pathlib import Path

from genenv_core.bundle.comparing import COUNT, installations, listed, unequal
from tests.unit.bundle.builders import MACHINE, small_contents


def test_an_equal_output_has_no_difference(tmp_path: Path) -> None:
    wanted = small_contents(tmp_path / "a").stages
    made = small_contents(tmp_path / "b").stages
    assert [unequal(wanted[place], made[place]) for place in wanted] == [[]] * len(wanted)


def test_each_difference_is_named(tmp_path: Path) -> None:
    wanted = small_contents(tmp_path).stages[1, "grpo_update"]
    parts = {**wanted.key_parts, "seed": 1}
    assert unequal(wanted, wanted.model_copy(update={"key": "0" * 64, "key_parts": parts})) == [
        "its key: seed 0 -> 1"
    ]
    assert unequal(wanted, wanted.model_copy(update={"facts": {"steps": 3}})) == [
        "fact steps 2 -> 3"
    ]
    (config, weights) = wanted.parts
    other = weights.model_copy(update={"sha256": "0" * 64})
    assert unequal(wanted, wanted.model_copy(update={"parts": (config, other)})) == [
        f"checkpoint file agent/model.safetensors: sha256 {weights.sha256[:12]} -> {'0' * 12}"
    ]
    assert unequal(wanted, wanted.model_copy(update={"parts": (config,)})) == [
        "checkpoint file agent/model.safetensors: only in the bundle"
    ]
    rollout = small_contents(tmp_path).stages[1, "rollout"]
    fewer = rollout.parts[0].model_copy(update={"sha256": "0" * 64, "rows": 1})
    (line,) = unequal(rollout, rollout.model_copy(update={"parts": (fewer,)}))
    assert line.startswith(f"table traces.parquet: {rollout.parts[0].rows} rows -> 1, sha256 ")


def test_installations_are_told_apart_by_kind() -> None:
    machine = {**MACHINE, "capability": "AVX2", "python": "3.13.0"}
    before = {
        "code/a.py": b"X = 1  # one\n",
        "code/b.py": b"def f():\n    'Say.'\n    return 1\n",
        "code/c.py": b"((((",
        "code/d.py": b"",
        "code/README.md": b"a",
        "locks/installed.txt": b"1",
    }
    after = {
        "code/a.py": b"X = 1\n",
        "code/b.py": b"def f():\n    'Tell.'\n    return 2\n",
        "code/c.py": b"(((((",
        "code/e.sql": b"",
        "code/README.md": b"b",
        "locks/installed.txt": b"2",
    }
    packages = {"torch": "2.13.0+cpu", "aiohttp": "1", "polars": "2.1", "numpy": "2", "moto": "5"}
    here = {"torch": "2.13.0", "aiohttp": "2", "polars": "2.2", "pytest": "9"}
    found = installations((MACHINE, machine), (packages, here), (before, after))
    assert found.bits == ("capability AVX512 -> AVX2",)
    assert found.versions == (
        "python 3.11.9 -> 3.13.0", "numpy 2 -> absent", "polars 2.1 -> 2.2", "aiohttp 1 -> 2"
    )  # fmt: skip
    assert found.code == ("b.py", "c.py", "d.py is not here", "e.sql is only here")
    assert found.wording == ("README.md", "a.py")
    assert "polars" in COUNT


def test_long_lists_are_cut() -> None:
    assert listed(["a", "b", "c"], 2) == "a; b; and 1 more"
    assert listed(("a",), 2) == "a"
