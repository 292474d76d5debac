"""Artifacts: parts first, the manifest last.

Invariants: no manifest, no output; a truncated, altered or missing part and an unreadable manifest
are misses with a warning, a torn footer also after the part was verified once; a rewrite repairs
them; two commits of one key have one winner, also among racing processes; an equal output has
an equal digest under another key, and the digest covers names, contents and facts, but not the
order of writing; manifests bound the ids of their rows; a checkpoint is laid out whole, once, under
the digest of its files.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genenv_core.errors import IntegrityError, NotFound, NumericalError, SchemaError
from genenv_core.storage import paths
from genenv_core.storage.records.artifacts import Artifacts, ArtifactWriter, file_sha256, reference
from genenv_core.storage.records.manifest import Manifest, Part
from genenv_core.storage.store.local import LocalStore
from tests.mutations import mutation
from tests.unit.builders_tables import sample_frame
from tests.unit.storage.store_contract import start_together
from tests.waiting import BOUND_S

ARTIFACTS = "genenv_core/storage/records/artifacts.py"

KEY, OTHER = "a" * 64, "b" * 64
PARTS = {"stage": "score", "seed": 0}
WEIGHTS = {"model.safetensors": b"weights", "config.json": b"{}", "tokenizer.json": b"[]"}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def write(
    store: LocalStore,
    key: str = KEY,
    *,
    facts: dict[str, Any] | None = None,
    tables: tuple[str, ...] = ("traces", "scores"),
    weights: dict[str, bytes] | None = None,
) -> tuple[Manifest, bool]:
    """Commit a small output: tables, and a checkpoint of both policies when weights are given."""
    writer = ArtifactWriter(store, "score", PARTS, key)
    for table in tables:
        writer.table(table, sample_frame(table))
    for policy in ("agent", "env") if weights else ():
        folder = store.scratch()
        for name, data in (weights or {}).items():
            (folder / name).write_bytes(data + policy.encode())
        writer.checkpoint(policy, folder)
    return writer.commit({"p_hat": 0.5} if facts is None else facts)


def file_of(store: LocalStore, part: Part) -> Path:
    path = store.local(part.path)
    path.chmod(0o644)
    return path


def test_nothing_is_visible_before_the_commit(store: LocalStore) -> None:
    writer = ArtifactWriter(store, "score", PARTS, KEY)
    writer.table("scores", sample_frame("scores"))
    assert store.list("parts") and store.list("stages") == []
    assert Artifacts(store).find("score", KEY) is None
    writer.commit({})
    assert store.list("stages") == [paths.manifest("score", KEY)]
    assert Artifacts(store).find("score", KEY) is not None


@mutation(
    "a NaN among the facts is committed", ARTIFACTS,
    "not_finite((name, one) for name, one in found if isinstance(one, float))", '""',
)  # fmt: skip
def test_a_fact_that_is_no_number_is_refused(store: LocalStore) -> None:
    with pytest.raises(NumericalError, match=r"facts of stage score\.loss is nan"):
        ArtifactWriter(store, "score", PARTS, KEY).commit({"loss": float("nan")})
    assert Artifacts(store).find("score", KEY) is None


def test_a_finished_stage_is_read_back(store: LocalStore) -> None:
    manifest, won = write(store)
    assert won
    found = Artifacts(store).find("score", KEY)
    assert found == manifest
    assert (found.stage, found.key, found.key_parts, found.facts) == (
        "score",
        KEY,
        PARTS,
        {"p_hat": 0.5},
    )
    assert [part.name for part in found.parts] == ["scores.parquet", "traces.parquet"]
    assert found.rows == sample_frame("scores").height + sample_frame("traces").height
    for part in found.parts:
        path = store.local(part.path)
        assert path.stat().st_size == part.bytes
        assert file_sha256(path) == part.sha256 == path.stem
    assert found.bytes == sum(part.bytes for part in found.parts)
    assert Artifacts(store).find("score", OTHER) is None
    assert Artifacts(store).find("filter", KEY) is None


def test_rows_come_back_from_one_and_from_many_manifests(store: LocalStore) -> None:
    artifacts = Artifacts(store)
    one, _ = write(store)
    other, _ = write(store, OTHER, tables=("scores",))
    scores = sample_frame("scores")
    assert artifacts.frame(one, "scores").equals(scores)
    assert artifacts.frame([one, other], "scores").height == 2 * scores.height
    nothing = artifacts.frame(other, "traces")
    assert nothing.height == 0 and nothing.schema == sample_frame("traces").schema


def test_a_part_bounds_the_ids_of_its_rows(store: LocalStore) -> None:
    frame = sample_frame("scores").sample(fraction=1, shuffle=True, seed=1)
    part = ArtifactWriter(store, "score", PARTS, KEY).written("scores", frame, "scores/0.parquet")
    ids = sorted(frame["trace_id"])
    assert (part.first_id, part.last_id, part.rows) == (ids[0], ids[-1], frame.height)
    empty = ArtifactWriter(store, "score", PARTS, KEY).written(
        "scores", frame.clear(), "scores/1.parquet"
    )
    assert (empty.first_id, empty.last_id, empty.rows) == (None, None, 0)


def test_a_frame_that_does_not_fit_its_table_is_refused(store: LocalStore) -> None:
    writer = ArtifactWriter(store, "score", PARTS, KEY)
    with pytest.raises(SchemaError, match="scores"):
        writer.table("scores", sample_frame("scores").drop("reward"))
    assert store.list("parts") == []


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE = [
    (Path.unlink, "is missing"),
    (truncate, "expected"),
    (empty, "has 0 bytes"),
    (alter, "other bytes than its manifest says"),
]


@mutation(
    "a part of another content is a hit", ARTIFACTS,
    "            if digest != part.sha256:\n", "            if False:\n",
)  # fmt: skip
@mutation(
    "a missing part is a hit", ARTIFACTS, "            if stat is None:\n",
    "            if stat is None:\n                continue\n            if stat is None:\n",
)  # fmt: skip
@pytest.mark.parametrize(
    ("damage", "message"), DAMAGE, ids=["missing", "truncated", "empty", "altered"]
)
@pytest.mark.parametrize("name", ["scores.parquet", "env/config.json"])
def test_a_damaged_part_is_a_miss_said_aloud_and_healed_by_a_rewrite(
    store: LocalStore,
    damage: Callable[[Path], None],
    message: str,
    name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    manifest, _ = write(store, weights=WEIGHTS)
    part = next(part for part in manifest.parts if part.name == name)
    damage(file_of(store, part))
    with caplog.at_level(logging.WARNING, "genenv.storage"):
        assert Artifacts(store).find("score", KEY) is None
    assert "taken as a miss" in caplog.text
    assert f"part {name} ({part.path})" in caplog.text and message in caplog.text
    with pytest.raises(IntegrityError, match="missing or altered; run the same command again"):
        Artifacts(store).load(reference(manifest))

    assert write(store, weights=WEIGHTS)[0] == manifest  # its parts are whole again, so it stands
    caplog.clear()
    assert Artifacts(store).find("score", KEY) == manifest
    assert caplog.text == ""


@pytest.mark.parametrize("tail", [b"\0" * 8, b"\xff\xff\xff\x7fPAR1"], ids=["zeros", "length"])
def test_a_torn_footer_is_found_also_in_a_part_verified_before(
    store: LocalStore, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    manifest, _ = write(store)
    artifacts = Artifacts(store)
    assert artifacts.find("score", KEY) == manifest
    path = file_of(store, manifest.parts[0])
    path.write_bytes(path.read_bytes()[:-8] + tail)  # of the old size
    with caplog.at_level(logging.WARNING, "genenv.storage"):
        assert artifacts.find("score", KEY) is None
    assert (
        f"part {manifest.parts[0].name} ({manifest.parts[0].path}) has a torn foot" in caplog.text
    )


def test_another_output_takes_the_place_of_a_damaged_one(store: LocalStore) -> None:
    manifest, _ = write(store)
    file_of(store, manifest.parts[0]).unlink()
    other, won = write(store, tables=("traces",), facts={"p_hat": 0.25})
    assert manifest.parts[0].name == "scores.parquet" and won
    assert Artifacts(store).find("score", KEY) == other != manifest


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "its content does not fit"),  # one digit of a fact is another
        *((content, "") for content in (b"", b'{"stage": "sc', b"[]", b'{"stage": "score"}')),
    ],
)
def test_an_unreadable_manifest_is_a_miss_and_is_replaced(
    store: LocalStore, content: bytes | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    manifest, _ = write(store)
    path = paths.manifest("score", KEY)
    altered = store.read(path).replace(b'"p_hat": 0.5', b'"p_hat": 0.7')
    store.replace(path, altered if content is None else content)
    with caplog.at_level(logging.WARNING, "genenv.storage"):
        assert Artifacts(store).find("score", KEY) is None
    assert f"manifest={path} unreadable, taken as a miss: {why}" in caplog.text
    _, won = write(store)
    assert won
    assert Artifacts(store).find("score", KEY) == manifest


def test_an_equal_output_has_an_equal_digest_under_another_key(store: LocalStore) -> None:
    one, _ = write(store, weights=WEIGHTS)
    other, _ = write(store, OTHER, weights=WEIGHTS)
    assert one.key != other.key
    assert one.digest == other.digest
    assert one.parts == other.parts  # and its bytes are stored once


@mutation(
    "the digest of an output leaves out its facts", "genenv_core/storage/records/manifest.py",
    '"facts": self.facts', '"facts": {}',
)  # fmt: skip
def test_the_digest_covers_rows_facts_and_names(store: LocalStore, tmp_path: Path) -> None:
    made = [
        write(store, "1" * 64)[0],
        write(store, "2" * 64, facts={"p_hat": 0.25})[0],
        write(store, "3" * 64, tables=("scores",))[0],
        write(store, "4" * 64, weights=WEIGHTS)[0],
    ]
    renamed = made[0].model_copy(
        update={"parts": tuple(p.model_copy(update={"name": f"x{p.name}"}) for p in made[0].parts)}
    )
    digests = {manifest.digest for manifest in [*made, renamed]}
    assert len(digests) == 5
    assert write(store, "5" * 64, tables=("scores", "traces"))[0].digest == made[0].digest


@mutation(
    "a commit replaces the first winner", ARTIFACTS,
    "            self._store.create(path, data)\n", "            self._store.replace(path, data)\n",
)  # fmt: skip
def test_the_second_commit_of_a_key_gets_the_first_ones_manifest(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    first, won = write(store)
    second, again = write(store)
    assert (won, again) == (True, False)
    assert second == first
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING, "genenv.storage"):
        other, third = write(store, facts={"p_hat": 1.0})
    assert (third, other) == (False, first)
    assert "computed twice with different outputs; the first stays" in caplog.text


COMMIT = """
import sys
from pathlib import Path
from genenv_core.storage.records.artifacts import ArtifactWriter
from genenv_core.storage.store.local import LocalStore

store = LocalStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for turn in range(20):
    writer = ArtifactWriter(store, "score", {}, f"{turn:064d}")
    manifest, won = writer.commit({"by": sys.argv[2]})
    print(won, manifest.facts["by"])
"""


@pytest.mark.slow
def test_racing_commits_agree_on_one_winner(store: LocalStore) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", COMMIT, store.uri, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name in "ab"
    ]
    start_together(racers)
    lines = [racer.communicate(timeout=BOUND_S)[0].splitlines() for racer in racers]
    for turn, seen in enumerate(zip(*lines, strict=True)):
        assert sum(line.startswith("True") for line in seen) == 1, f"key {turn}: {seen}"
        assert len({line.split()[1] for line in seen}) == 1, f"key {turn}: {seen}"


def test_a_reference_finds_its_output_and_only_that(store: LocalStore) -> None:
    manifest, _ = write(store, weights=WEIGHTS)
    ref = reference(manifest)
    assert json.loads(ref.model_dump_json()) == ref.model_dump(mode="json")
    assert (ref.rows, ref.facts, ref.digest) == (manifest.rows, {"p_hat": 0.5}, manifest.digest)
    assert ref.checkpoints == manifest.checkpoints
    assert Artifacts(store).load(ref) == manifest
    for change in ({"digest": "0" * 64}, {"key": OTHER}):
        with pytest.raises(IntegrityError, match="stage score key"):
            Artifacts(store).load(ref.model_copy(update=change))


def test_shards_are_adopted_and_read_in_order(store: LocalStore) -> None:
    frame = sample_frame("scores")
    halves = [frame.head(3), frame.slice(3)]
    writer = ArtifactWriter(store, "score", PARTS, KEY)
    shards = [
        writer.written("scores", half, f"scores/{index:05d}.parquet")
        for index, half in enumerate(halves)
    ]
    writer.adopt(reversed(shards))
    manifest, _ = writer.commit({})
    assert Artifacts(store).frame(manifest, "scores").equals(frame)


def test_a_checkpoint_is_laid_out_under_the_digest_of_its_files(store: LocalStore) -> None:
    manifest, _ = write(store, weights=WEIGHTS)
    artifacts = Artifacts(store)
    folder = artifacts.checkpoint(manifest, "agent")
    assert folder == store.root / paths.checkpoint(manifest.checkpoints["agent"])
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert files == {name: data + b"agent" for name, data in WEIGHTS.items()}
    assert set(manifest.checkpoints) == {"agent", "env"}
    assert manifest.checkpoints["agent"] != manifest.checkpoints["env"]
    before = os.stat(folder).st_ino
    assert artifacts.checkpoint(manifest, "agent") == folder
    assert os.stat(folder).st_ino == before
    with pytest.raises(NotFound, match="no model 'teacher'"):
        artifacts.checkpoint(manifest, "teacher")


def test_a_checkpoint_digest_is_of_names_and_contents_alone(store: LocalStore) -> None:
    def digest_of(key: str, weights: dict[str, bytes]) -> str:
        return write(store, key, tables=(), weights=weights)[0].checkpoints["agent"]

    same = digest_of("1" * 64, dict(reversed(WEIGHTS.items())))
    assert digest_of("2" * 64, WEIGHTS) == same
    renamed = {name.replace("config", "setup"): data for name, data in WEIGHTS.items()}
    assert digest_of("3" * 64, renamed) != same
    assert digest_of("4" * 64, WEIGHTS | {"config.json": b"{ }"}) != same
    assert digest_of("5" * 64, WEIGHTS | {"extra.json": b""}) != same


def test_half_a_layout_is_laid_out_again(store: LocalStore) -> None:
    manifest, _ = write(store, weights=WEIGHTS)
    artifacts = Artifacts(store)
    folder = artifacts.checkpoint(manifest, "agent")
    (folder / "config.json").unlink()
    assert {p.name for p in artifacts.checkpoint(manifest, "agent").iterdir()} == set(WEIGHTS)


def test_a_healed_part_reaches_the_layout(store: LocalStore) -> None:
    manifest, _ = write(store, weights=WEIGHTS)
    Artifacts(store).checkpoint(manifest, "agent")
    part = next(p for p in manifest.of_checkpoint("agent") if p.name == "agent/model.safetensors")
    alter(file_of(store, part))  # the layout is a hard link to the same bytes
    write(store, weights=WEIGHTS)
    again = Artifacts(store)
    assert again.find("score", KEY) == manifest
    folder = again.checkpoint(manifest, "agent")
    assert file_sha256(folder / "model.safetensors") == part.sha256
