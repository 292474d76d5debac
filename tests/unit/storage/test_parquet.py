"""Parquet parts.

Invariants: equal frames give equal bytes, in any process and for any chunks; rows come back
unchanged; the file names table and schema version and is refused when they do not fit; DuckDB reads
every encoding; a file of an older version is read as one of today, with what was always so or null.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

from genenv_core.errors import IntegrityError, NotFound, SchemaError
from genenv_core.storage.records import parquet
from genenv_core.storage.records.parquet import TABLE_KEY, VERSION_KEY, read_parquet, to_parquet
from schemas import registry
from schemas.registry import TABLES
from tests.mutations import mutation
from tests.unit.builders_tables import sample_frame
from tests.waiting import BOUND_S

PARQUET = "genenv_core/storage/records/parquet.py"

ALL = sorted(TABLES)
ROOT = Path(__file__).resolve().parents[3]
DIGESTS = """
import hashlib
from genenv_core.storage.records.parquet import to_parquet
from schemas.registry import TABLES
from tests.unit.builders_tables import sample_frame
for table in sorted(TABLES):
    print(table, hashlib.sha256(to_parquet(table, sample_frame(table))).hexdigest())
"""


@pytest.mark.parametrize("table", ALL)
def test_rows_come_back_as_they_were(table: str, tmp_path: Path) -> None:
    for frame in (sample_frame(table), registry.empty(table), sample_frame(table, rows=600)):
        data = to_parquet(table, frame)
        path = tmp_path / "part.parquet"
        path.write_bytes(data)
        for source in (data, path, str(path)):
            back = read_parquet(table, source)
            assert back.equals(frame)
            assert back.schema == frame.schema


@pytest.mark.slow
def test_bytes_are_equal_in_another_process() -> None:
    # Another time zone and hash seed, so that neither can be what makes them equal.
    environment = os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=True,
    )
    here = [
        f"{table} {hashlib.sha256(to_parquet(table, sample_frame(table))).hexdigest()}"
        for table in ALL
    ]
    assert done.stdout.split("\n")[:-1] == here


@pytest.mark.parametrize("table", ALL)
def test_bytes_do_not_depend_on_chunks_or_history_of_the_frame(table: str) -> None:
    frame = sample_frame(table, rows=600)
    half = frame.height // 2
    pieces = pl.concat([frame.head(half), frame.tail(frame.height - half)], rechunk=False)
    shuffled = frame.with_row_index("at").reverse().sort("at").drop("at")
    through_rows = pl.DataFrame(frame.to_dicts(), schema=frame.schema)
    expected = to_parquet(table, frame)
    for other in (pieces, shuffled, through_rows, read_parquet(table, expected)):
        assert to_parquet(table, other) == expected


def test_bytes_do_not_depend_on_chunks_where_pages_fill() -> None:
    frame = sample_frame("trace_tokens", rows=500).with_columns(
        messages=pl.format("[{}]", pl.int_range(500).cast(pl.String).repeat_by(2000).list.join(","))
    )
    pieces = pl.concat([frame[start : start + 7] for start in range(0, 500, 7)], rechunk=False)
    assert pieces.n_chunks() > 1
    assert to_parquet("trace_tokens", pieces) == to_parquet("trace_tokens", frame)


@pytest.mark.parametrize("table", ALL)
def test_duckdb_reads_what_was_written(table: str, tmp_path: Path) -> None:
    frame = sample_frame(table, rows=600)
    path = tmp_path / "part.parquet"
    path.write_bytes(to_parquet(table, frame))
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        rows = con.execute("SELECT * FROM read_parquet(?)", [str(path)]).pl()
        types = con.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
    assert rows.with_columns(
        pl.col(name).cast(dtype) for name, dtype in frame.schema.items()
    ).equals(frame)
    assert [(row[0], row[1]) for row in types] == [
        (column.name, column.sql_type) for column in registry.columns(table)
    ]


def test_row_groups_and_encodings_are_the_measured_ones() -> None:
    frame = sample_frame("trace_tokens", rows=1100)
    metadata = pq.ParquetFile(io.BytesIO(to_parquet("trace_tokens", frame))).metadata
    assert [metadata.row_group(i).num_rows for i in range(3)] == [512, 512, 76]
    group = metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert all(column.compression == "ZSTD" for column in columns.values())
    assert "BYTE_STREAM_SPLIT" in columns["logprobs.list.element"].encodings
    assert "RLE_DICTIONARY" in columns["token_ids.list.element"].encodings
    assert columns["trace_id"].statistics.min == frame["trace_id"][0]
    assert columns["messages"].statistics is None
    scalars = pl.concat([sample_frame("traces", rows=500)] * 34)
    metadata = pq.ParquetFile(io.BytesIO(to_parquet("traces", scalars))).metadata
    assert [metadata.row_group(i).num_rows for i in range(2)] == [16384, 616]


def test_file_holds_nothing_of_the_machine() -> None:
    data = to_parquet("scores", sample_frame("scores"))
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    assert metadata.metadata == {b"genenv.table": b"scores", b"genenv.schema_version": b"1"}
    assert metadata.created_by.startswith("parquet-cpp-arrow version")


def test_unvalidated_frame_is_not_written() -> None:
    frame = sample_frame("scores")
    for broken, what in [
        (frame.with_columns(pl.col("epoch").cast(pl.Int32)), "epoch has type Int32, not Int64"),
        (frame.drop("reward"), "column reward is missing"),
        (frame.with_columns(prize=1), "column prize is unknown"),
        (frame.select(reversed(frame.columns)), "columns are in the order failure"),
    ]:
        with pytest.raises(SchemaError, match=what):
            to_parquet("scores", broken)


def test_only_wanted_columns_are_read() -> None:
    frame = sample_frame("trace_tokens")
    data = to_parquet("trace_tokens", frame)
    wanted = ["token_ids", "trace_id"]
    assert read_parquet("trace_tokens", data, columns=wanted).equals(frame.select(wanted))
    with pytest.raises(SchemaError, match="table trace_tokens has no column reward"):
        read_parquet("trace_tokens", data, columns=["trace_id", "reward"])


SCORES = to_parquet("scores", sample_frame("scores"))


def of_version(digit: bytes) -> bytes:
    """Return a file that names another version of its schema."""
    known = b"genenv.schema_version\x18\x01"
    assert SCORES.count(known + b"1") == 1
    return SCORES.replace(known + b"1", known + digit)


def of_others() -> bytes:
    file = io.BytesIO()
    sample_frame("scores").write_parquet(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("table", "data", "error", "words"),
    [
        ("scores", of_version(b"2"), SchemaError, "version 2 and this genenv knows 1: upgrade"),
        ("scores", of_version(b"x"), SchemaError, "schema version 'x', no number"),
        ("traces", SCORES, SchemaError, "table traces: .*scores.parquet holds table scores"),
        ("scores", of_others(), SchemaError, "scores.parquet holds no table of genenv"),
        *(("scores", torn, IntegrityError, "no whole Parquet file")
          for torn in (SCORES[:-7], SCORES[:40], b"", b"hello")),
        ("scores", None, NotFound, "scores.parquet"),
    ],
    ids=["newer", "odd", "another table", "of others", "cut", "short", "empty", "text", "gone"],
)  # fmt: skip
def test_what_is_no_file_of_the_table_is_refused(
    tmp_path: Path, table: str, data: bytes | None, error: type[Exception], words: str
) -> None:
    if data is not None:
        (tmp_path / "scores.parquet").write_bytes(data)
    with pytest.raises(error, match=words):
        read_parquet(table, tmp_path / "scores.parquet")


def test_changed_columns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = to_parquet("scores", sample_frame("scores"))
    changed = pl.Schema(registry.schema("scores") | {"epoch": pl.Int32()})
    monkeypatch.setattr(parquet, "schema", lambda table: changed)
    told = "column epoch has type Int64, not Int32, so another version of genenv wrote it: read it"
    with pytest.raises(SchemaError, match=told):
        read_parquet("scores", data)


def test_a_file_of_a_version_that_only_lacks_columns_is_read_with_nulls(tmp_path: Path) -> None:
    frame = sample_frame("stage_runs")
    table = pq.read_table(io.BytesIO(to_parquet("stage_runs", frame)))
    added = ["computed_by", "computed_at", "computed_seconds", "computed_root"]
    added += ["tokens", "peak_memory"]
    old = table.drop_columns(added).replace_schema_metadata(
        {TABLE_KEY: "stage_runs", VERSION_KEY: "1"}
    )
    pq.write_table(old, tmp_path / "old.parquet")
    read = read_parquet("stage_runs", tmp_path / "old.parquet")
    assert read.drop(added).equals(frame.drop(added)) and read.schema == frame.schema
    assert read.select(pl.col(added).is_null().all()).row(0) == (True,) * len(added)
    one = read_parquet("stage_runs", tmp_path / "old.parquet", columns=["computed_by", "epoch"])
    assert one.columns == ["computed_by", "epoch"] and one.height == frame.height
    pq.write_table(
        old.replace_schema_metadata({TABLE_KEY: "stage_runs", VERSION_KEY: "0"}),
        tmp_path / "older.parquet",
    )
    with pytest.raises(SchemaError, match="schema version 0 and this genenv knows 4"):
        read_parquet("stage_runs", tmp_path / "older.parquet")


@mutation(
    "what was always so before is read as null", PARQUET,
    "for name in lacking if name in values]", "for name in lacking if name not in values]",
)  # fmt: skip
@mutation(
    "what a value is made of is not read with it", PARQUET,
    "needed = [*(columns or ()), *_needed(table, lacking)]", "needed = list(columns or ())",
)  # fmt: skip
def test_a_file_from_before_a_column_was_added_has_what_was_always_so(tmp_path: Path) -> None:
    frame = sample_frame("trace_sequences")
    table = pq.read_table(io.BytesIO(to_parquet("trace_sequences", frame)))
    old = table.drop_columns(["parent", "branch_turn"]).replace_schema_metadata(
        {TABLE_KEY: "trace_sequences", VERSION_KEY: "1"}
    )
    pq.write_table(old, tmp_path / "old.parquet")
    read = read_parquet("trace_sequences", tmp_path / "old.parquet")
    assert read.equals(frame) and read["parent"].to_list()[:1] == [0]
    one = read_parquet("trace_sequences", tmp_path / "old.parquet", columns=["parent"])
    assert one.equals(frame.select("parent"))


@mutation(
    "a column of before its renaming is refused", "schemas/registry.py",
    'and number not in self._about["renamed"]', "and number",
)  # fmt: skip
def test_a_file_from_before_a_column_was_renamed_is_read_by_the_new_name(tmp_path: Path) -> None:
    frame = sample_frame("epochs")
    table = pq.read_table(io.BytesIO(to_parquet("epochs", frame)))
    names = ["mean_calls" if name == "mean_difficulty" else name for name in table.column_names]
    old = table.rename_columns(names).replace_schema_metadata(
        {TABLE_KEY: "epochs", VERSION_KEY: "2"}
    )
    pq.write_table(old, tmp_path / "old.parquet")
    assert read_parquet("epochs", tmp_path / "old.parquet").equals(frame)
    one = read_parquet("epochs", tmp_path / "old.parquet", columns=["mean_difficulty", "epoch"])
    assert one.equals(frame.select("mean_difficulty", "epoch"))
