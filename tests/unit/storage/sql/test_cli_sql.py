"""The output, files and completion of `genenv sql`.

Invariants: every format holds the same rows; tables cut long cells, show NULL and never move the
cursor; parquet and files are never written into the root; the prompt ends a query with a semicolon,
completes what fits, survives errors, and keeps its history in the user's state folder.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import duckdb
import polars as pl
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from pyarrow.csv import ConvertOptions, read_csv

from flows.cli.data import query, sql
from flows.cli.data.prompt import complete, history_path, prompt, suggest
from flows.shown.rows import cell, encode
from genenv_core.errors import ConfigError, QueryError
from genenv_core.pools import Answer, Limits
from schemas.relations import describe
from tests.examples import some
from tests.mutations import mutation
from tests.unit.builders_root import small_root

FRAME = pl.DataFrame({"a": [1, None], "t": ["x\ny", "z" * 99], "n": [[1, 2], None]})


@pytest.fixture(name="root", scope="module")
def a_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small root."""
    return small_root(tmp_path_factory.mktemp("pool") / "root").root


def test_every_format_holds_the_rows() -> None:
    answer = Answer(FRAME, False)
    assert json.loads(encode(answer, "json")) == FRAME.to_dicts()
    assert pl.read_parquet(BytesIO(encode(answer, "parquet"))).equals(FRAME)
    rows = pl.read_csv(BytesIO(encode(answer, "csv")))
    assert rows["t"].to_list() == FRAME["t"].to_list()
    assert rows["n"].to_list() == ["[1, 2]", None]


@mutation(
    "DECIMAL is a text in JSON", "flows/shown/spelling.py",
    "isinstance(column.dtype, pl.Map | pl.Decimal)", "isinstance(column.dtype, pl.Map)",
)  # fmt: skip
def test_decimals_are_numbers_in_json() -> None:
    whole = "12345678901234567890.25"
    frame = duckdb.sql(
        f"""SELECT 1.5 AS x, 3::DECIMAL(10, 2) AS m, NULL::DECIMAL(5, 2) AS n, {whole} AS digits,
        [1.5, 2.25] AS l, {{'a': [0.5]}} AS d, MAP {{'k': 1.5}} AS p, 'ü' AS t"""
    ).pl()
    text = encode(Answer(frame, False), "json").decode()
    (row,) = json.loads(text)
    assert row == {"x": 1.5, "m": 3.0, "n": None, "digits": float(whole), "l": [1.5, 2.25],
                   "d": {"a": [0.5]}, "p": {"k": 1.5}, "t": "ü"}  # fmt: skip
    assert f'"digits":{whole},' in text
    assert '"[1.50, 2.25]"' in encode(Answer(frame, False), "csv").decode()


def test_empty_texts_and_nulls_stay_apart_in_csv_as_docs_say(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": ["", None, "NA"], "b": [1, None, 3]})
    path = tmp_path / "a.csv"
    path.write_bytes(encode(Answer(frame, False), "csv"))
    apart = ConvertOptions(
        strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
    )
    read = read_csv(path, convert_options=apart)
    assert read.to_pylist() == frame.to_dicts()
    assert read.to_pandas()["a"].isna().tolist() == [False, True, False]
    query = f"SELECT a FROM read_csv('{path}', allow_quoted_nulls = false)"
    assert duckdb.sql(query).fetchall() == [("",), (None,), ("NA",)]


@mutation(
    "a table cuts texts and does not say how to see them", "flows/shown/rows.py",
    "Text(counted(answer) + _whole(cut), style", "Text(counted(answer), style",
)  # fmt: skip
def test_tables_cut_cells_and_show_null() -> None:
    lines = encode(Answer(FRAME, True), "table").decode().splitlines()
    assert lines[1].split() == ["1", "x⏎y", "[1,", "2]"]
    assert lines[2].split() == ["NULL", f"{'z' * 59}…", "NULL"]
    assert lines[3] == (
        "first 2 rows, there are more: --limit-rows 0 shows all; "
        "1 cell ends with …: --format json shows the whole"
    )
    whole = encode(Answer(FRAME.select("a"), False), "table").decode().splitlines()
    assert whole[-1] == "2 rows"
    assert cell("\x1b[31m[red]").plain == "�[31m[red]"
    assert cell(0.123456).plain == "0.1235"


def test_files_are_written_outside_of_the_root_only(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    sql.sql("FROM epochs", root=str(root), output=target)
    assert pl.read_parquet(target).height == 2
    with pytest.raises(QueryError, match="is inside the root"):
        sql.sql("FROM epochs", root=str(root), output=root / "parts" / "x.csv")
    with pytest.raises(ConfigError, match="there is no folder"):
        sql.sql("FROM epochs", root=str(root), output=tmp_path / "no" / "x.csv")


@pytest.mark.parametrize("name", some(("x.xlsx", "x.csv.gz", "x.feather"), ("x.feather",)))
def test_a_file_of_another_format_is_refused(root: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    with pytest.raises(QueryError, match="not one of the formats table, csv, json, parquet"):
        sql.sql("FROM epochs", root=str(root), output=target)
    assert not target.exists()
    sql.sql("FROM epochs", root=str(root), output=target, format_=sql.Format.CSV)
    assert pl.read_csv(target).height == 2


def test_queries_come_from_files(root: Path, tmp_path: Path, capsysbinary) -> None:
    (tmp_path / "q.sql").write_text("-- how many\nSELECT count(*) AS n FROM epochs;")
    sql.sql(root=str(root), file=tmp_path / "q.sql", format_=sql.Format.CSV)
    assert capsysbinary.readouterr().out == b"n\n2\n"
    with pytest.raises(QueryError, match="not both"):
        sql.sql("SELECT 1", root=str(root), file=tmp_path / "q.sql")
    with pytest.raises(QueryError, match=r"nope\.sql"):
        sql.sql(root=str(root), file=tmp_path / "nope.sql")


def test_schema_of_one_relation(capsys: pytest.CaptureFixture[str]) -> None:
    query.show_schema("near_alpha")
    assert capsys.readouterr().out.startswith("near_alpha (view): ")
    with pytest.raises(QueryError, match="did you mean near_alpha"):
        query.show_schema("near_alfa")


def test_completion_fits_the_place() -> None:
    relations = describe()
    names = [relation.name for relation in relations]
    assert [name for name, _ in suggest("SELECT * FROM ep", "", relations)] == names
    assert [name for name, _ in suggest(".schema ", "", relations)] == names
    whole = "SELECT hel FROM epochs"
    offered = [name for name, _ in suggest("SELECT hel", whole, relations)]
    assert "heldout_success" in offered
    assert "loss_mask" not in offered
    assert dict(suggest("SELECT ", "", relations))["loss_mask"]


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT\n1 ;\n", True),
        ("", True),
        (".help", True),
    ],
)
def test_a_semicolon_ends_a_query(text: str, ends: bool) -> None:
    assert complete(text) is ends


@pytest.mark.slow
def test_the_prompt_answers_survives_errors_and_remembers(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = sorted(root.rglob("*"))
    typed = "SELECT nope;\nSELECT\ncount(*) AS n FROM epochs;\nDROP VIEW epochs;\n.quit\n"
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(typed.replace("\n", "\r"))
        prompt(str(root), sql.Format.JSON, Limits())
    out, err = capsysbinary.readouterr()
    assert b'[{"n":2}]' in out
    assert b"nope" in err
    assert b"DROP is refused" in err
    assert history_path() == tmp_path / "genenv" / "sql_history"
    assert "count(*) AS n FROM epochs" in history_path().read_text()
    assert sorted(root.rglob("*")) == before
