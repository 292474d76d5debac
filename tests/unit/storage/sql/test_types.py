"""Every value of every type of DuckDB, in every output of `genenv sql`.

Invariants: each type that DuckDB lists has its least, greatest and oddest values here; each value,
alone and in lists, arrays, structures and maps, is shown on a terminal and in a table; csv, JSON
and Parquet give it back; names that come twice are unique; sums stay integers.
"""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from rich.console import Console

from flows.shown.rows import encode, show
from genenv_core import pools
from genenv_core.errors import QueryError
from genenv_core.pools import Answer, Limits
from genenv_core.storage.sql.catalog import connect, query
from genenv_core.storage.sql.types import spelled
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_root import small_root

TIMES = ["infinity", "-infinity", "0001-01-01", "9999-12-31", "2026-11-23 12:34:56"]
FAR = [*TIMES, "290308-12-21 (BC) 00:00:00", "294246-12-31 23:59:59", "10000-01-01"]
DAY = ["00:00:00", "12:34:56.789012", "24:00:00"]
HUGE = str(2**127 - 1)

VALUES: dict[str, list[str]] = {
    "BOOLEAN": ["true", "false"],
    **{f"{'U' * u}{kind}INT": [str(-u_low), str(high)]
       for kind, bits in (("TINY", 8), ("SMALL", 16), ("BIG", 64), ("HUGE", 128))
       for u, u_low, high in ((0, 2 ** (bits - 1), 2 ** (bits - 1) - 1), (1, 0, 2**bits - 1))},
    "INTEGER": [str(-(2**31)), str(2**31 - 1)],
    "UINTEGER": ["0", str(2**32 - 1)],
    "BIGNUM": ["0", "-" + "9" * 400, "9" * 400],
    "FLOAT": ["nan", "inf", "-inf", "0.1", "-0.0", "3.4028235e+38", "1e-45"],
    "DOUBLE": ["nan", "inf", "-inf", "0.1", "-0.0", "1.7976931348623157e+308", "5e-324"],
    "DECIMAL(38,10)": ["-" + "9" * 28 + "." + "9" * 10, "9" * 28 + "." + "9" * 10, "0"],
    "DECIMAL(38,0)": ["-" + "9" * 38, "9" * 38, "0"],
    "DECIMAL(4,1)": ["-999.9", "999.9"],
    "DATE": ["infinity", "-infinity", "0001-01-01", "9999-12-31", "5877642-06-25 (BC)",
             "5881580-07-10", "10000-01-01"],
    "TIME": DAY,
    "TIME_NS": [*DAY, "12:34:56.789012345"],
    "TIME WITH TIME ZONE": ["00:00:00+15:59:59", "24:00:00-15:59:59", "12:34:56.789012+01"],
    "TIMESTAMP": [*FAR, "1969-12-31 23:59:59.999999"],
    "TIMESTAMP_S": FAR,
    "TIMESTAMP_MS": [*FAR, "2026-11-23 12:34:56.789"],
    "TIMESTAMP_NS": ["infinity", "-infinity", "1677-09-22", "2262-04-11 23:47:16.854775806",
                     "2026-11-23 12:34:56.123456789"],
    "TIMESTAMP WITH TIME ZONE": [*FAR, "2026-11-23 12:34:56.789012+05"],
    "INTERVAL": ["0 days", "-1 year -2 months 3 days 04:05:06.789012", "83 years 999 days"],
    "UUID": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "VARCHAR": ["", "NULL", "a\tb\r\nc", "\x01\x1b[31m", '",;\'"', "\\x00", "🦆é\u202e\ufeff",
                "x" * 100_000],
    "BLOB": ["", r"\x00\xFF\x0A", "plain"],
    "BIT": ["0", "1", "0101" * 99],
    "ENUM('', 'a', '🦆')": ["", "a", "🦆"],
    "GEOMETRY": ["POINT (1 2)", "LINESTRING EMPTY", "POLYGON ((0 0, 1 0.1, 1 1, 0 0))"],
    "JSON": ["{}", "[1, null]", '"x"'],
}  # fmt: skip
"""Values of each type as text that casts to them; a NULL is added to each."""

WRITTEN: dict[str, list[str]] = {
    "UNION": ["union_value(a := 1)::UNION(a INTEGER, b VARCHAR)", "union_value(b := 'x')"],
    "VARIANT": ["1::VARIANT", "'x'::VARIANT", "{'a': [1, NULL]}::VARIANT"],
    "TYPE": ["get_type(1)", "get_type([{'a': 1}])"],
    "NULL": ["NULL"],
}
"""Values that come from no text, as SQL: their text is what DuckDB makes of them."""

SHAPES = {
    "plain": "v",
    "list": "[v, NULL]",
    "lists": "[[v], [], NULL]",
    "array": "array_value(v, v)",
    "struct": "{'a': v, 'b b': [v]}",
    "unnamed": "row(v, v)",
    "map": "map {'k': v}",
    "deep": "[{'m': map {'k': [{'x': v}]}}]",
}


@pytest.fixture(name="con", scope="module")
def a_connection() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB to compare with, whose tables are empty."""
    return connect([])


@pytest.fixture(scope="module")
def plain() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB as others have it, to read files with."""
    made = duckdb.connect()
    made.execute("SET TimeZone = 'UTC'")
    return made


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small root, which tests only read."""
    return small_root(tmp_path_factory.mktemp("types") / "root").root


def listed(kind: str) -> str:
    """Return SQL for the column v with all values of a type, and NULL."""
    if kind in WRITTEN:
        rows = [*WRITTEN[kind], "NULL"]
        return " UNION ALL ".join(f"SELECT {row} AS v" for row in rows)
    rows = ", ".join("'" + value.replace("'", "''") + "'" for value in VALUES[kind])
    return f"SELECT CAST(t AS {kind}) AS v FROM (SELECT unnest([{rows}, NULL]) AS t)"


def test_every_type_of_duckdb_is_here(con: duckdb.DuckDBPyConnection) -> None:
    found = con.execute("SELECT DISTINCT logical_type FROM duckdb_types()").fetchall()
    known = {kind.split("(")[0] for kind in (*VALUES, *WRITTEN)}
    assert {kind for (kind,) in found} - known == {"ARRAY", "LIST", "MAP", "STRUCT"}  # the shapes


@pytest.mark.parametrize("shape", some(SHAPES, ("plain", "deep")))
@pytest.mark.parametrize("kind", [*VALUES, *WRITTEN])
def test_every_value_is_shown_and_comes_back(
    con: duckdb.DuckDBPyConnection,
    plain: duckdb.DuckDBPyConnection,
    kind: str,
    shape: str,
    tmp_path: Path,
) -> None:
    inner = listed(kind)
    texts = [text for (text,) in con.execute(f"SELECT v::VARCHAR FROM ({inner})").fetchall()]
    answer = Answer(query(con, f"SELECT {SHAPES[shape]} AS v FROM ({inner})"), False)
    assert answer.frame.height == len(texts)
    lines = encode(answer, "table").decode().splitlines()
    assert len(lines) == len(texts) + 2
    assert not any(ord(char) < 32 for line in lines for char in line)
    show(answer, Console(file=io.StringIO(), force_terminal=True, width=40))

    # A number as it is written: a float has fewer digits than a DECIMAL.
    rows = [row["v"] for row in json.loads(encode(answer, "json"), parse_float=str)]
    flat = pl.read_csv(io.BytesIO(encode(answer, "csv")), infer_schema=False)["v"].to_list()
    (tmp_path / "v.parquet").write_bytes(encode(answer, "parquet"))
    file = f"FROM '{tmp_path / 'v.parquet'}'"
    exact = plain.execute(f"SELECT {inside(shape)}::VARCHAR {file}").fetchall()
    for place, text in enumerate(texts):
        (kept,) = exact[place]
        assert (None if kept is None else same(kept, kind, con)) == text, "parquet"
        assert leaf(rows[place], shape, kind, con) == text, "json"
        if not (shape == "plain" and text == ""):  # a reader may take an empty text for NULL
            written = flat[place]
            if shape != "plain" and written is not None:
                written = json.loads(written, parse_float=str)
            assert leaf(written, shape, kind, con) == text, "csv"


def inside(shape: str) -> str:
    """Return SQL for the value inside of a shape."""
    return {
        "plain": "v", "list": "v[1]", "lists": "v[1][1]", "array": "v[1]", "struct": "v.a",
        "unnamed": "v['1']", "map": "v['k']", "deep": "v[1].m['k'][1].x",
    }[shape]  # fmt: skip


def leaf(value: Any, shape: str, kind: str, con: duckdb.DuckDBPyConnection) -> str | None:
    """Return DuckDB's text of the value inside of a shape that was read from a text."""
    steps: dict[str, list[Any]] = {
        "plain": [], "list": [0], "lists": [0, 0], "array": [0], "struct": ["a"], "unnamed": ["1"],
        "map": ["k"], "deep": [0, "m", "k", 0, "x"],
    }  # fmt: skip
    for step in steps[shape]:
        value = value[step]
    return None if value is None else same(str(value), kind, con)


def same(text: str, kind: str, con: duckdb.DuckDBPyConnection) -> str:
    """Return the text that DuckDB gives for a text of a type."""
    if kind in WRITTEN:
        return text
    row = con.execute(f"SELECT CAST(CAST(? AS {kind}) AS VARCHAR)", [text]).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize("key", ["1", "[1]", "{'a': 1}", "1.5", "DATE 'infinity'", "'\\x00'::BLOB"])
def test_keys_of_maps_of_every_kind(con: duckdb.DuckDBPyConnection, key: str) -> None:
    answer = Answer(query(con, f"SELECT map {{{key}: 7}} AS m, ({key})::VARCHAR AS k"), False)
    (row,) = json.loads(encode(answer, "json"))
    assert row["m"] == {row["k"]: 7}
    for format_ in ("csv", "table", "parquet"):
        assert encode(answer, format_)


def test_names_that_come_twice_are_unique(con: duckdb.DuckDBPyConnection) -> None:
    rows = query(con, 'SELECT 1 AS a, 2 AS a, 3 AS "A", 4 AS a_1, 5 AS "\x1b[31m\n"')
    assert rows.columns == ["a", "a_1", "A_2", "a_1_1", "\x1b[31m\n"]
    assert "\x1b" not in encode(Answer(rows, False), "table").decode()
    joined = query(con, "SELECT * FROM epochs AS x JOIN epochs AS y USING (epoch)")
    assert {"p_hat", "p_hat_1"} <= set(joined.columns)


def test_no_rows_and_only_nulls(con: duckdb.DuckDBPyConnection) -> None:
    columns = ", ".join(f"NULL::{kind} AS c{n}" for n, kind in enumerate(VALUES))
    for end in ("", " WHERE false"):
        answer = Answer(query(con, f"SELECT {columns} {end}"), False)
        assert len(json.loads(encode(answer, "json"))) == (not end)
        for format_ in ("csv", "table", "parquet"):
            assert encode(answer, format_)


@mutation(
    "every text of rows starts a DuckDB", "genenv_core/storage/sql/types.py",
    "@cache\ndef _casts", "def _casts",
)  # fmt: skip
def test_threads_spell_with_one_duckdb(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT TIMESTAMPTZ '2026-01-01' + to_days(i::INT) AS t FROM range({0}, {0} + 9) r(i)"
    tables = [con.sql(sql.format(first)).to_arrow_table() for first in range(40)]
    alone = [spelled(table) for table in tables]
    monkeypatch.setattr(duckdb, "connect", None)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(spelled, tables)) == alone
    assert alone[1]["t"][0].as_py() == "2026-01-02 00:00:00+00"


def test_sums_are_integers_and_large_ones_keep_their_digits(
    con: duckdb.DuckDBPyConnection,
) -> None:
    rows = query(
        con, f"SELECT sum(i) AS s, {HUGE}::HUGEINT AS h, 10::HUGEINT ** 1 FROM range(4) t(i)"
    )
    assert rows["s"].dtype == pl.Int64 and rows["s"].item() == 6
    assert rows["h"].to_list() == [HUGE]
    assert query(con, f"SELECT '{'9' * 38}'::HUGEINT AS h")["h"].dtype == pl.Decimal(38, 0)


@pytest.mark.slow
def test_the_process_of_queries_hands_every_type_over(root: Path) -> None:
    columns = ", ".join(
        f"[CAST('{values[-1]}' AS {kind})] AS \"{kind.lower()[:3]}\", "
        f"CAST('{values[0]}' AS {kind}) AS c{n}"
        for n, (kind, values) in enumerate(VALUES.items())
        if kind != "VARCHAR"
    )
    found = pools.frame(
        root, f"SELECT {columns}, now() - now() AS d, get_type(1) AS t FROM range(2)"
    )
    assert found.height == 2
    assert found["d"].to_list() == ["00:00:00"] * 2
    assert (
        pools.frame(root, "SELECT 'infinity'::TIMESTAMP_S AS t")["t"].to_physical()[0] == 2**63 - 1
    )


@pytest.mark.parametrize("seconds", some((float("inf"), 1e30, 2e6, 2e6 - 1), (float("inf"),)))
def test_a_query_may_take_for_ever(seconds: float, root: Path) -> None:
    assert pools.frame(root, "SELECT 1 AS a", timeout_s=seconds)["a"].to_list() == [1]


@pytest.mark.parametrize("seconds", [float("nan"), 0.0, -1.0])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(QueryError, match="write seconds above 0"):
        Limits(timeout_s=seconds)
