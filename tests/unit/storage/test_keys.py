"""Canonical JSON, stage keys and the difference between two of them.

Invariants: equal values give equal bytes in any order and every process; NaN is refused;
the key depends on each part and on nothing else; two keys differ if and only if `difference` has a
line, and each line names the dotted path, the old and the new value.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genenv_core import canonical
from genenv_core.canonical import canonical_json, digest, readable_json, sha256
from genenv_core.storage.records.keys import difference, key_parts, stage_key
from tests.mutations import mutation
from tests.waiting import BOUND_S

KEYS = "genenv_core/storage/records/keys.py"

leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
) | st.text(st.characters(codec="utf-8"), max_size=8)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=5,
)
# Names without a dot, as the fields of a configuration are.
names = st.text("abcdef", min_size=1, max_size=3)
mappings = st.dictionaries(names, values, max_size=4)
# The first text of a new checkout reads all of Unicode, which takes a busy machine seconds.
unhurried = settings(suppress_health_check=[HealthCheck.too_slow])

PARTS: dict[str, Any] = {
    "stage": "rwr_update",
    "code": "c0de",
    "config": {"rwr.steps": 8, "rwr.lambda_": 1.0, "domain.options": {}},
    "inputs": {"pools": ["a" * 64, "b" * 64], "train": True},
    "seed": 0,
    "epoch": 3,
    "runtime": {"torch": "2.13.0"},
}


def parts(**changed: Any) -> dict[str, Any]:
    return key_parts(**(PARTS | changed))


def test_canonical_json_golden() -> None:
    value = {"b": [1, 2.5, None, True], "a": {"é": "ß", "d": ()}}
    assert canonical_json(value) == '{"a":{"d":[],"é":"ß"},"b":[1,2.5,null,true]}'.encode()
    assert readable_json({"b": 1, "a": "é"}) == '{\n  "a": "é",\n  "b": 1\n}\n'.encode()


def test_digest_golden() -> None:
    # sha256 of the two bytes {}
    expected = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert digest({}) == sha256(b"{}") == hashlib.sha256(b"{}").hexdigest() == expected


@unhurried
@given(mappings)
def test_json_comes_back_and_order_does_not_count(value: dict[str, Any]) -> None:
    data = canonical_json(value)
    assert json.loads(data) == value
    assert canonical_json(dict(reversed(value.items()))) == data
    assert json.loads(readable_json(value)) == value


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_refused(bad: float) -> None:
    for write in (canonical_json, readable_json, digest):
        with pytest.raises(ValueError, match=r'\["a"\]\[0\] is -?(nan|inf) \(float\)'):
            write({"a": [bad]})


def test_key_is_the_digest_of_the_readable_parts() -> None:
    made = parts()
    assert set(made) == set(PARTS) | {"format"}
    assert stage_key(made) == digest(made)
    assert stage_key(json.loads(readable_json(made))) == stage_key(made)


def test_order_of_fields_inputs_and_libraries_does_not_count() -> None:
    turned = {
        name: dict(reversed(value.items())) if isinstance(value, dict) else value
        for name, value in PARTS.items()
    }
    assert stage_key(key_parts(**turned)) == stage_key(parts())


CHANGES = [
    ({"stage": "pool"}, ["stage rwr_update -> pool"]),
    ({"code": "beef"}, ["code c0de -> beef"]),
    ({"seed": 1}, ["seed 0 -> 1"]),
    ({"epoch": 4}, ["epoch 3 -> 4"]),
    ({"runtime": {"torch": "2.14.0"}}, ["runtime.torch 2.13.0 -> 2.14.0"]),
    (
        {"runtime": {"torch": "2.13.0", "trl": "1.16.0"}},
        ["runtime.trl absent -> 1.16.0"],
    ),
    (
        {"config": {"rwr.steps": 4, "rwr.lambda_": 2.0, "domain.options": {}}},
        ["config.rwr.lambda_ 1.0 -> 2.0", "config.rwr.steps 8 -> 4"],
    ),
    (
        # A tail that only a long list's text would show.
        {"inputs": {"pools": ["a" * 64, "c" * 64], "train": True}},
        [f"inputs.pools.1 {'b' * 12} -> {'c' * 12}"],
    ),
    (
        {"inputs": {"pools": ["a" * 64, f"{'b' * 64}@2"], "train": True}},
        [f"inputs.pools.1 {'b' * 12} -> {'b' * 12}@2"],
    ),
    (
        {"inputs": {"pools": ["a" * 64], "train": True}},
        [f"inputs.pools.1 {'b' * 12} -> absent"],
    ),
    # Equal in Python, but not in JSON and so not in the key.
    ({"inputs": {"pools": ["a" * 64, "b" * 64], "train": 1}}, ["inputs.train true -> 1"]),
    (
        {"config": {"rwr.steps": 8, "rwr.lambda_": 1.0, "domain.options": {"max_calls": 3}}},
        ["config.domain.options {} -> absent", "config.domain.options.max_calls absent -> 3"],
    ),
]


@mutation("the epoch is in no key", KEYS, '"epoch": epoch,', '"epoch": 0,')
@mutation("the seed is in no key", KEYS, '"seed": seed,', '"seed": 0,')
@pytest.mark.parametrize(("changed", "lines"), CHANGES)
def test_each_part_changes_the_key_and_is_named(changed: dict[str, Any], lines: list[str]) -> None:
    assert stage_key(parts(**changed)) != stage_key(parts())
    assert difference(parts(), parts(**changed)) == lines


@unhurried
@given(mappings, mappings)
def test_keys_differ_exactly_when_a_difference_is_listed(
    left: dict[str, Any], right: dict[str, Any]
) -> None:
    one, other = parts(config=left), parts(config=right)
    lines = difference(one, other)
    assert bool(lines) == (stage_key(one) != stage_key(other))
    assert difference(one, one) == []
    assert len(difference(other, one)) == len(lines)
    assert all(line.startswith("config") and " -> " in line for line in lines)


def test_lines_are_short_and_digests_are_cut() -> None:
    old, new = parts(config={"note": "x" * 500}), parts(config={"note": "y" * 500})
    (line,) = difference(old, new)
    assert line == f"config.note {'x' * 80} -> {'y' * 80}"


def test_keys_are_equal_in_another_process() -> None:
    code = (
        "import sys, json; from genenv_core.storage.records.keys import key_parts, stage_key;"
        "print(stage_key(key_parts(**json.loads(sys.argv[1]))))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, json.dumps(PARTS)],
        capture_output=True,
        text=True,
        check=True,
        timeout=BOUND_S,
    ).stdout
    assert output.strip() == stage_key(parts())


@mutation(
    "an empty container has no name", "genenv_core/canonical.py",
    "    if not items:\n        yield path, value\n",
    "    if not isinstance(value, Mapping | list | tuple):\n        yield path, value\n",
)  # fmt: skip
@mutation(
    "lists are always taken apart", "genenv_core/canonical.py",
    "elif lists and isinstance", "elif isinstance",
)  # fmt: skip
def test_nested_values_have_dotted_names() -> None:
    nested: dict[str, Any] = {"a": {"b": [1, {}], "c": ()}, "d": None}
    split: list[tuple[str, Any]] = [("a.b.0", 1), ("a.b.1", {}), ("a.c", ()), ("d", None)]
    assert list(canonical.leaves(nested)) == split
    whole: list[tuple[str, Any]] = [("a.b", [1, {}]), ("a.c", ()), ("d", None)]
    assert list(canonical.leaves(nested, lists=False)) == whole
    assert canonical.value_at(nested, ("a", "c")) == () and canonical.section_of(nested, "d") == {}
    assert canonical.value_at(nested, ("d", "e"), 3) == canonical.value_at({}, "x", 3) == 3
